//! Entries decoded: instructions in the order of the text, and where parameters and variables lie.

use std::{collections::BTreeMap, sync::Arc};

use super::{
    Op, Together,
    legality::Code,
    operands::{Decoder, Placed, RegisterFile, SrcP},
};
use crate::{
    LoadError,
    fault::Place,
    machine::{PARAMETER_BASE, SHARED_BASE},
    ptx::{self, Class, Space},
    target::Target,
};

/// An instruction as the machine runs it.
#[derive(Clone, Debug)]
pub(crate) struct Inst {
    /// Lanes where it does not hold skip the instruction.
    pub guard: Option<SrcP>,
    pub op: Op,
    pub together: Together,
    /// Registers that it reads, by the numbering of [`RegisterFile`].
    pub reads: Box<[u32]>,
    /// Registers that it writes.
    pub writes: Box<[u32]>,
    pub line: u32,
    pub location: Option<ptx::Location>,
    pub mnemonic: Arc<str>,
}

/// An entry, decoded.
#[derive(Clone, Debug)]
pub(crate) struct Program {
    pub name: String,
    pub insts: Vec<Inst>,
    pub file: RegisterFile,
    /// Names by the numbering of [`RegisterFile`].
    pub names: Vec<Arc<str>>,
    /// Offset and bytes of each parameter.
    pub parameters: Vec<(u64, u64)>,
    pub parameter_bytes: u64,
    /// Static shared memory, in bytes; dynamic memory follows it.
    pub shared_bytes: u32,
    /// Local memory of a thread.
    pub local_bytes: u32,
    pub required_block: Option<[u32; 3]>,
    pub largest_block: Option<[u32; 3]>,
    pub required_cluster: Option<[u32; 3]>,
    /// `.maxnreg`.
    pub largest_registers: Option<u32>,
    pub files: Arc<BTreeMap<u32, Arc<str>>>,
    /// `.shared` variables for messages: first byte, bytes, name.
    pub shared_names: Vec<(u32, u32, Arc<str>)>,
}

fn align(value: u64, to: u32) -> u64 {
    value.next_multiple_of(u64::from(to.max(1)))
}

impl Program {
    pub(crate) fn decode(
        module: &ptx::Module,
        function: &ptx::Function,
        target: Target,
    ) -> Result<Program, LoadError> {
        let code = Code::of(module, target)?;
        code.check_entry(function)?;
        let file = RegisterFile::of(function);
        let refuse_variable = |v: &ptx::Variable, reason: &str| LoadError::NotImplemented {
            line: v.line,
            instruction: v.name.to_string(),
            reason: Some(reason.to_owned()),
        };
        let mut placed = Vec::new();
        let (mut shared, mut local, mut module_variables) = (0u64, 0u64, 0);
        let mut shared_names = Vec::new();
        let mut dynamic_align = 16;
        let mut dynamic = Vec::new();
        for variable in module.variables.iter().chain(&function.variables) {
            let address = match variable.space {
                Space::Shared | Space::SharedCluster if variable.external => {
                    dynamic_align = dynamic_align.max(variable.align);
                    dynamic.push(variable);
                    continue;
                }
                Space::Shared | Space::SharedCluster => {
                    let at = align(shared, variable.align);
                    shared = at.saturating_add(variable.size);
                    if shared > 1 << 20 {
                        return Err(refuse_variable(
                            variable,
                            "no block has so much shared memory",
                        ));
                    }
                    shared_names.push((at as u32, variable.size as u32, variable.name.clone()));
                    u64::from(SHARED_BASE) + at
                }
                Space::Local => {
                    let at = align(local, variable.align);
                    local = at.saturating_add(variable.size);
                    if local > 512 << 10 {
                        return Err(refuse_variable(
                            variable,
                            "no thread has so much local memory",
                        ));
                    }
                    at
                }
                Space::Global | Space::Constant => {
                    module_variables += 1;
                    module_variables - 1
                }
                Space::Generic | Space::Parameter => {
                    return Err(refuse_variable(variable, "no variable lies in this space"));
                }
            };
            placed.push(Placed {
                name: variable.name.clone(),
                space: variable.space,
                address,
            });
        }
        if !dynamic.is_empty() {
            shared = align(shared, dynamic_align);
        }
        for variable in dynamic {
            placed.push(Placed {
                name: variable.name.clone(),
                space: Space::Shared,
                address: u64::from(SHARED_BASE) + shared,
            });
        }
        let mut parameter_bytes = 0;
        let mut parameters = Vec::new();
        for parameter in &function.parameters {
            let at = align(parameter_bytes, parameter.align);
            parameter_bytes = at.saturating_add(parameter.size);
            if parameter_bytes > 32764 {
                return Err(refuse_variable(
                    parameter,
                    "parameters take at most 32764 bytes",
                ));
            }
            parameters.push((at, parameter.size));
            placed.push(Placed {
                name: parameter.name.clone(),
                space: Space::Parameter,
                address: PARAMETER_BASE + at,
            });
        }
        let mut mnemonics: BTreeMap<String, Arc<str>> = BTreeMap::new();
        let mut insts = Vec::with_capacity(function.body.len());
        for instruction in &function.body {
            code.check(instruction)?;
            let text = instruction.mnemonic();
            let mnemonic = mnemonics
                .entry(text)
                .or_insert_with_key(|text| Arc::from(text.as_str()))
                .clone();
            let mut decoder = Decoder {
                file,
                quads: function.registers[Class::Quad as usize],
                placed: &placed,
                instruction,
                target,
                reads: Vec::new(),
                writes: Vec::new(),
            };
            let refused = |reason: String| LoadError::NotImplemented {
                line: instruction.line,
                instruction: mnemonic.to_string(),
                reason: (!reason.is_empty()).then_some(reason),
            };
            let (op, together) = super::decode(&mut decoder).map_err(|r| refused(r.0))?;
            let mut reads = decoder.reads;
            reads.sort_unstable();
            reads.dedup();
            let guard = instruction.guard.map(|g| SrcP::Reg {
                predicate: super::operands::Predicate(g.predicate.index),
                negated: g.negated,
            });
            insts.push(Inst {
                guard,
                op,
                together,
                reads: reads.into(),
                writes: decoder.writes.into(),
                line: instruction.line,
                location: instruction.location,
                mnemonic,
            });
        }
        let mut names = Vec::with_capacity(file.tracked() as usize);
        for class in [Class::Half, Class::Word, Class::Double] {
            names.extend(function.register_names[class as usize].iter().cloned());
        }
        for name in &function.register_names[Class::Quad as usize] {
            names.extend([name.clone(), name.clone()]);
        }
        names.extend(
            function.register_names[Class::Predicate as usize]
                .iter()
                .cloned(),
        );
        Ok(Program {
            name: function.name.clone(),
            insts,
            file,
            names,
            parameters,
            parameter_bytes,
            shared_bytes: shared as u32,
            local_bytes: align(local, 16) as u32,
            required_block: function.required_block,
            largest_block: function.largest_block,
            required_cluster: function.required_cluster,
            largest_registers: function.largest_registers,
            files: Arc::new(module.files.iter().cloned().collect()),
            shared_names,
        })
    }

    /// Where an instruction stands.
    pub(crate) fn place(&self, at: u32) -> Option<Place> {
        let inst = self.insts.get(at as usize)?;
        let source = inst.location.and_then(|l| {
            let file = self.files.get(&l.file)?;
            Some((file.clone(), l.line, l.column))
        });
        Some(Place {
            instruction: inst.mnemonic.clone(),
            ptx_line: inst.line,
            source,
        })
    }
}
