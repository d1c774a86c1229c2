//! The interpreter, on the kernels' source as it was when this program was built.

use std::collections::HashMap;

use tesserine_compiler::{
    Module, Session,
    diagnostics::Diagnostics,
    interp::{self, Args, Tensor},
    ir::tile::Instance,
    target::Target,
};
use tesserine_set::ScalarValue;

use super::{Backend, Refusal, library};
use crate::Arg;

/// The target whose schedules are used; they change nothing in what a program means.
const TARGET: &str = "sm_90a";

/// Loaded sources and the instances made so far.
pub struct Interpreter {
    session: Session,
    modules: HashMap<String, Module>,
    instances: HashMap<String, Instance>,
    target: Target,
}

impl Interpreter {
    pub fn new() -> Result<Interpreter, String> {
        Ok(Interpreter {
            session: Session::new(),
            modules: HashMap::new(),
            instances: HashMap::new(),
            target: Target::parse(TARGET).map_err(|e| e.to_string())?,
        })
    }

    fn instance(&mut self, source: &str, name: &str) -> Result<&Instance, Refusal> {
        if !self.instances.contains_key(name) {
            let module = match self.modules.get(source) {
                Some(module) => *module,
                None => {
                    let text = library::source(source)?;
                    let loaded = self.session.load_text(source, text);
                    let module = loaded.map_err(|d| self.refused(&d))?;
                    *self.modules.entry(source.to_owned()).or_insert(module)
                }
            };
            let made = self.session.instantiate(module, name, self.target);
            let instance = made.map_err(|d| self.refused(&d))?;
            self.instances.insert(name.to_owned(), instance);
        }
        Ok(&self.instances[name])
    }

    fn refused(&self, diagnostics: &Diagnostics) -> Refusal {
        Refusal::Failed(library::show(self.session.sources(), diagnostics))
    }
}

impl Backend for Interpreter {
    fn name(&self) -> String {
        "the interpreter".to_owned()
    }

    fn run(
        &mut self,
        source: &str,
        instance: &str,
        args: &mut [(&'static str, Arg)],
    ) -> Result<(), Refusal> {
        let instance = self.instance(source, instance)?;
        let failed = |text: String| Refusal::Failed(text);
        let mut passed = Args::new();
        let mut aligned = true;
        for (name, arg) in args.iter() {
            let value = match arg {
                Arg::Scalar(value) => interp::Arg::Scalar(ScalarValue::Float(*value)),
                Arg::Tensor(t) => {
                    let start = t.offset * t.size();
                    aligned &= start % 16 == 0;
                    let data = t.bytes[start..].to_vec();
                    let tensor = Tensor::strided(t.dtype, t.shape.clone(), t.strides.clone(), data);
                    interp::Arg::Tensor(tensor.map_err(|e| failed(e.to_string()))?)
                }
            };
            passed.insert((*name).to_owned(), value);
        }
        // Tensors of the interpreter have no addresses: it takes all bases for aligned.
        let report = match instance.bodies.last() {
            Some(general) if !aligned => interp::run(general, &mut passed),
            _ => interp::launch(instance, &mut passed),
        };
        let report = report.map_err(|e| failed(e.to_string()))?;
        if let Some(unwritten) = report.unwritten.first() {
            return Err(failed(unwritten.to_string()));
        }
        for (name, arg) in args.iter_mut() {
            if let (Arg::Tensor(t), Some(interp::Arg::Tensor(done))) = (arg, passed.get(*name)) {
                let start = t.offset * t.size();
                t.bytes[start..].copy_from_slice(&done.data);
            }
        }
        Ok(())
    }
}
