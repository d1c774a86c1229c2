//! The walk over a role's operations: control flow, values, and what the other files here emit.

use std::{collections::HashMap, rc::Rc};

use cranelift_entity::EntityRef;
use tesserine_set::{AbiArg, DType, Fact, Formula, FormulaOp, ParamKind, Term, ViewParam};

use super::{
    builder::{
        BF16, Builder, Effect, F16, F32, F64, GENERIC, GLOBAL, I1, I8, I16, I32, I64, Kind, Place,
        Ty, Val,
    },
    matrix::FactorsInFlight,
    roles::{self, InRole},
};
use crate::{
    diagnostics::{Diagnostic, codes},
    ir::{
        self, OpId, RegionId, ValueDef, ValueId,
        role::{self, OpKind, RoleBody},
        tile::{BinaryOp, Constant, OpKind as Tile},
    },
    layout::Layout,
    span::{SourceMap, Span},
    target::{
        PtxVersion, Target,
        legality::{self, Instruction},
    },
};

/// A kernel as LLVM IR text.
pub struct Lowered {
    pub text: String,
    pub threads: u32,
    pub ptx_version: PtxVersion,
}

type Op = ir::Op<OpKind>;

/// From how many registers a thread on, intermediate results of a whole tile are avoided.
const WIDE: usize = 64;

/// Registers that go through a chain of operations together: enough to hide the latency of each.
const TOGETHER: usize = 8;

/// The registers of a tile, or the one of a scalar.
pub type Regs = Rc<[Val]>;

/// One kernel on its way.
pub struct Lower<'a> {
    pub b: Builder<'a>,
    pub kernel: &'a role::Kernel,
    pub body: &'a RoleBody,
    pub target: Target,
    /// Where the operation at hand stands.
    pub span: Span,
    pub threads: u32,
    /// The thread's number in the block.
    pub thread: Val,
    /// Of a kernel of several roles.
    in_role: Option<InRole>,
    /// Where the kernel's tensor maps are.
    pub(super) maps: Vec<Val>,
    version: PtxVersion,
    values: HashMap<ValueId, Regs>,
    arguments: HashMap<Argument, Val>,
    formulas: HashMap<Formula, Val>,
    /// The block's index on each axis.
    pub axes: Vec<Val>,
    coordinates: HashMap<(Vec<Vec<u32>>, Vec<Vec<u32>>, usize), Rc<[Val]>>,
    owners: HashMap<u32, Val>,
    /// Shared bytes that some thread may still be reading: start and end.
    reading: Vec<(u32, u32)>,
    /// Of a 16-bit register that is part of a word: the word, and which part of it.
    pub parts: HashMap<u32, (Val, u32)>,
    /// What products in flight read from registers.
    pub(in crate::codegen) factors: FactorsInFlight,
}

/// What was known before a role was entered.
pub(super) struct BeforeRole<'a> {
    body: &'a RoleBody,
    threads: u32,
    thread: Val,
    in_role: Option<InRole>,
    values: HashMap<ValueId, Regs>,
    formulas: HashMap<Formula, Val>,
    coordinates: HashMap<(Vec<Vec<u32>>, Vec<Vec<u32>>, usize), Rc<[Val]>>,
    owners: HashMap<u32, Val>,
    reading: Vec<(u32, u32)>,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Argument {
    Pointer(u32),
    Stride(u32, u32),
    Dim(u32),
    Scalar(u32),
    Counter,
}

/// Lowers `kernel` for `target`.
pub fn lower<'a>(
    kernel: &'a role::Kernel,
    target: Target,
    sources: &'a SourceMap,
    entry: &str,
) -> Result<Lowered, Diagnostic> {
    let Some(role) = kernel.roles.first() else {
        unreachable!("the verifier checked that there is a role")
    };
    let threads = roles::warps(kernel) * Target::WARP;
    let mut lower = Lower {
        b: Builder::new(sources, kernel.header.span, entry),
        kernel,
        body: &role.body,
        target,
        span: kernel.header.span,
        threads,
        thread: Val::i32(0),
        in_role: None,
        maps: Vec::new(),
        version: target.info().ptx,
        values: HashMap::new(),
        arguments: HashMap::new(),
        formulas: HashMap::new(),
        axes: Vec::new(),
        coordinates: HashMap::new(),
        owners: HashMap::new(),
        reading: Vec::new(),
        parts: HashMap::new(),
        factors: FactorsInFlight::default(),
    };
    let parameters = lower.parameters();
    lower.b.set_location(kernel.header.span);
    lower.thread = {
        let place = lower.b.go_to(Place::Prologue);
        let thread = lower.b.call(
            Some(I32),
            "llvm.nvvm.read.ptx.sreg.tid.x",
            &[],
            Effect::Pure,
        );
        lower.b.go_to(place);
        thread
    };
    if roles::is_needed(kernel) {
        lower.roles()?;
    } else {
        lower.wait_for_the_grid_before()?;
        lower.blocks()?;
    }
    lower.b.return_void();

    let mut attributes = vec![format!("\"nvvm.reqntid\"=\"{threads},1,1\"")];
    // Products want registers more than blocks beside them: told nothing, `ptxas` may prefer to spill a few.
    let alone = (!kernel.channels.is_empty()).then_some(1);
    if let Some(blocks) = kernel.header.schedule.blocks_per_sm.or(alone) {
        attributes.push(format!("\"nvvm.minctasm\"=\"{blocks}\""));
    }
    if let Some(registers) = kernel.header.schedule.max_regs {
        attributes.push(format!("\"nvvm.maxnreg\"=\"{registers}\""));
    }
    let cluster = kernel.header.cluster();
    if cluster > 1 {
        attributes.push(format!("\"nvvm.cluster_dim\"=\"{cluster},1,1\""));
        lower.need(Instruction::Cluster)?;
    }
    if super::shared_bytes(kernel) > 0 {
        let align = kernel.buffers.values().map(|b| b.align).fold(16, u32::max);
        lower.b.global(&format!(
            "@shared = external addrspace(3) global [0 x i8], align {align}"
        ));
    }
    Ok(Lowered {
        text: lower.b.finish(entry, &parameters, &attributes.join(" ")),
        threads,
        ptx_version: lower.version,
    })
}

/// The LLVM type of one register that holds an element.
pub fn register_type(elem: DType) -> Ty {
    match elem {
        DType::F64 => F64,
        DType::F32 | DType::Tf32 => F32,
        DType::F16 => F16,
        DType::Bf16 => BF16,
        DType::E4m3 | DType::E5m2 | DType::E2m1 | DType::Ue8m0 | DType::Ue4m3 => I8,
        DType::I8 | DType::U8 | DType::U4 | DType::I4 => I8,
        DType::I16 | DType::U16 => I16,
        DType::I32 | DType::U32 => I32,
        DType::I64 | DType::U64 => I64,
        DType::Bool | DType::U1 => I1,
    }
}

impl<'a> Lower<'a> {
    /// An error at the operation at hand: the thing is not compiled yet.
    pub fn not_yet(&self, what: impl std::fmt::Display) -> Diagnostic {
        Diagnostic::error(
            codes::E0010,
            self.span,
            format!("{what} is not yet compiled"),
        )
    }

    /// The instruction is about to be emitted: raises the kernel's PTX version, or refuses.
    pub fn need(&mut self, instruction: Instruction) -> Result<(), Diagnostic> {
        let version = legality::require(instruction, self.target, self.span)?;
        self.version = self.version.max(version);
        Ok(())
    }

    /// The kernel is of this PTX version at least.
    pub(super) fn raise(&mut self, version: PtxVersion) {
        self.version = self.version.max(version);
    }

    /// Whether the target has the instruction; raises the kernel's PTX version if so.
    pub fn may_use(&mut self, instruction: Instruction) -> bool {
        legality::has(instruction, self.target) && self.need(instruction).is_ok()
    }

    fn parameters(&mut self) -> Vec<String> {
        let signature = &self.kernel.header.signature;
        let mut text = Vec::new();
        for (i, arg) in super::abi(self.kernel).into_iter().enumerate() {
            let n = i as u32;
            let (key, ty, spelled) = match arg {
                AbiArg::Pointer { param } => {
                    let align = self.base_alignment(param);
                    // Where the kernel before may still write to it, loads are not constant, and LLVM takes those through a pointer
                    // without an alias for constant.
                    let changing = self.kernel.header.schedule.overlap
                        && self.view(param).access == tesserine_set::Access::Read;
                    let alias = if changing { "" } else { " noalias" };
                    let spelled = format!("ptr addrspace(1){alias} align {align} %a{n}");
                    (Argument::Pointer(param), GLOBAL, spelled)
                }
                AbiArg::Stride { param, dim } => {
                    (Argument::Stride(param, dim), I64, format!("i64 %a{n}"))
                }
                AbiArg::Dim { dim } => {
                    let spelled = format!("i64 range(i64 0, {}) %a{n}", 1i64 << 48);
                    (Argument::Dim(dim), I64, spelled)
                }
                AbiArg::Counter => {
                    let spelled = format!("ptr addrspace(1) align 8 %a{n}");
                    (Argument::Counter, GLOBAL, spelled)
                }
                AbiArg::TensorMap { .. } => {
                    self.maps.push(Val {
                        ty: GENERIC,
                        kind: Kind::Argument(n),
                    });
                    text.push(format!(
                        "ptr byval([128 x i8]) align 64 \"nvvm.grid_constant\" %a{n}"
                    ));
                    continue;
                }
                AbiArg::Scalar { param } => {
                    let ty = match signature.params[param as usize].kind {
                        ParamKind::Scalar { dtype, .. } => scalar_argument(dtype),
                        ParamKind::View(_) => unreachable!("the ABI lists scalars"),
                    };
                    (Argument::Scalar(param), ty, format!("{ty} %a{n}"))
                }
            };
            let value = Val {
                ty,
                kind: Kind::Argument(n),
            };
            self.arguments.insert(key, value);
            text.push(spelled);
        }
        text
    }

    /// The view that parameter `param` is.
    pub fn view(&self, param: u32) -> &'a ViewParam {
        match &self.kernel.header.signature.params[param as usize].kind {
            ParamKind::View(view) => view,
            ParamKind::Scalar { .. } => unreachable!("the verifier checked that it is a view"),
        }
    }

    /// What the base of a view is known to be a multiple of, in bytes.
    fn base_alignment(&self, param: u32) -> u32 {
        let view = self.view(param);
        let facts = &self.kernel.header;
        let element = view.dtype.bits().max(8) / 8;
        facts
            .requires
            .iter()
            .chain(&facts.facts)
            .filter_map(|fact| match fact {
                Fact::Aligned { param: p, bytes } if *p == param => Some(*bytes),
                _ => None,
            })
            .chain(view.facts.align)
            .fold(element, u32::max)
            .min(1 << 16)
    }

    pub fn pointer(&self, param: u32) -> Val {
        self.arguments[&Argument::Pointer(param)]
    }

    /// The counter that tiles are drawn from.
    pub fn counter(&self) -> Val {
        self.arguments[&Argument::Counter]
    }

    /// The stride of a dimension, in elements.
    pub fn stride(&self, param: u32, dim: u32) -> Val {
        self.arguments
            .get(&Argument::Stride(param, dim))
            .copied()
            .unwrap_or(Val::i64(1))
    }

    /// The value of a formula, worked out once, in the prologue.
    pub fn formula(&mut self, formula: &Formula) -> Val {
        if let Some(value) = self.formulas.get(formula) {
            return *value;
        }
        let place = self.b.go_to(Place::Prologue);
        let mut stack: Vec<Val> = Vec::new();
        for term in &formula.0 {
            let value = match *term {
                Term::Int(value) => Val::i64(value),
                Term::Dim(dim) => self.arguments[&Argument::Dim(dim)],
                Term::Scalar(param) => {
                    let value = self.arguments[&Argument::Scalar(param)];
                    self.b.resize(value, I64, true)
                }
                Term::Given(param) => {
                    let pointer = self.arguments[&Argument::Pointer(param)];
                    let address = self.b.cast("ptrtoint", pointer, I64);
                    let given = self.b.icmp("ne", address, Val::i64(0));
                    self.b.cast("zext", given, I64)
                }
                Term::Multiprocessors => unreachable!("only a cost asks for it"),
                Term::Op(op) => {
                    let b = if op.arity() == 2 {
                        stack.pop().expect("formulas were checked")
                    } else {
                        Val::i64(0)
                    };
                    let a = stack.pop().expect("formulas were checked");
                    self.formula_op(op, a, b)
                }
            };
            stack.push(value);
        }
        self.b.go_to(place);
        let value = stack.pop().expect("formulas were checked");
        self.formulas.insert(formula.clone(), value);
        value
    }

    /// Dimensions are not negative, and grids and extents are made of them; divisors are positive where a launch
    /// succeeded.
    fn formula_op(&mut self, op: FormulaOp, a: Val, b: Val) -> Val {
        let truth = |s: &mut Self, v: Val| s.b.icmp("ne", v, Val::i64(0));
        match op {
            FormulaOp::Neg => self.b.sub(Val::i64(0), a),
            FormulaOp::Not => {
                let v = self.b.icmp("eq", a, Val::i64(0));
                self.b.cast("zext", v, I64)
            }
            FormulaOp::Add => self.b.add(a, b),
            FormulaOp::Sub => self.b.sub(a, b),
            FormulaOp::Mul => self.b.mul(a, b),
            FormulaOp::Div => self.floor_div(a, b, true),
            FormulaOp::Rem => self.floor_rem(a, b, true),
            FormulaOp::CeilDiv | FormulaOp::RoundUp => {
                // (a + b − 1) / b, for a divisor above zero.
                let less = self.b.sub(b, Val::i64(1));
                let sum = self.b.add(a, less);
                let blocks = self.floor_div(sum, b, true);
                match op {
                    FormulaOp::CeilDiv => blocks,
                    _ => self.b.mul(blocks, b),
                }
            }
            FormulaOp::Min => self.b.intrinsic("llvm.smin", &[a, b]),
            FormulaOp::Max => self.b.intrinsic("llvm.smax", &[a, b]),
            FormulaOp::And | FormulaOp::Or => {
                let (x, y) = (truth(self, a), truth(self, b));
                let v = match op {
                    FormulaOp::And => self.b.and(x, y),
                    _ => self.b.or(x, y),
                };
                self.b.cast("zext", v, I64)
            }
            FormulaOp::Eq
            | FormulaOp::Ne
            | FormulaOp::Lt
            | FormulaOp::Le
            | FormulaOp::Gt
            | FormulaOp::Ge => {
                let predicate = match op {
                    FormulaOp::Eq => "eq",
                    FormulaOp::Ne => "ne",
                    FormulaOp::Lt => "slt",
                    FormulaOp::Le => "sle",
                    FormulaOp::Gt => "sgt",
                    _ => "sge",
                };
                let v = self.b.icmp(predicate, a, b);
                self.b.cast("zext", v, I64)
            }
        }
    }

    /// The part of each coordinate that the thread gives, in a layout.
    pub fn thread_coordinates(&mut self, layout: &Layout) -> Rc<[Val]> {
        let key = (layout.lane.clone(), layout.warp.clone(), layout.shape.len());
        if let Some(found) = self.coordinates.get(&key) {
            return found.clone();
        }
        let place = self.b.go_to(Place::Prologue);
        let bits: Vec<&Vec<u32>> = layout.lane.iter().chain(&layout.warp).collect();
        let mut all = Vec::new();
        for d in 0..layout.shape.len() {
            let mut sum = Val::i32(0);
            let mut i = 0;
            while i < bits.len() {
                let value = bits[i][d];
                if value == 0 {
                    i += 1;
                    continue;
                }
                // Bits that move by the same distance move together.
                let mut run = 1;
                while value.is_power_of_two()
                    && i + run < bits.len()
                    && bits[i + run][d] == value << run
                {
                    run += 1;
                }
                let mask = ((1u64 << run) - 1) << i;
                let piece = if i + run == bits.len() && i == 0 && self.threads <= 1 << run {
                    self.thread
                } else {
                    self.b.and(self.thread, Val::i32(mask as u32))
                };
                let piece = if value.is_power_of_two() {
                    let to = value.trailing_zeros();
                    match to.cmp(&(i as u32)) {
                        std::cmp::Ordering::Less => self.b.lshr(piece, i as u32 - to),
                        _ => self.b.shl(piece, to - i as u32),
                    }
                } else {
                    let bit = self.b.lshr(piece, i as u32);
                    self.b.mul(bit, Val::i32(value))
                };
                sum = self.b.or(sum, piece);
                i += run;
            }
            all.push(sum);
        }
        self.b.go_to(place);
        let all: Rc<[Val]> = all.into();
        self.coordinates.insert(key, all.clone());
        all
    }

    /// The coordinate of register `register` along `dim`.
    pub fn coordinate(&mut self, layout: &Layout, register: u32, dim: usize) -> Val {
        let base = self.thread_coordinates(layout)[dim];
        let at = layout.coordinate(register, 0, 0)[dim];
        self.b.add(base, Val::i32(at))
    }

    /// The largest coordinate along `dim` that the thread alone gives.
    pub fn thread_reach(layout: &Layout, dim: usize) -> u32 {
        layout
            .lane
            .iter()
            .chain(&layout.warp)
            .fold(0, |reach, v| reach | v[dim])
    }

    /// Whether this thread is the first among those that hold the same elements; constant `true` if none do.
    pub fn owner(&mut self, layout: Option<&Layout>) -> Val {
        let all = self.threads.next_power_of_two() - 1;
        let free = match layout {
            // A scalar: the first thread has it.
            None => all,
            Some(layout) => layout
                .lane
                .iter()
                .chain(&layout.warp)
                .enumerate()
                .filter(|(_, v)| v.iter().all(|&x| x == 0))
                .fold(
                    all & !(Target::WARP * layout.warps() - 1),
                    |mask, (i, _)| mask | 1 << i,
                ),
        };
        if free == 0 {
            return Val::bool(true);
        }
        if let Some(&owner) = self.owners.get(&free) {
            return owner;
        }
        let place = self.b.go_to(Place::Prologue);
        let bits = self.b.and(self.thread, Val::i32(free));
        let owner = self.b.icmp("eq", bits, Val::i32(0));
        self.b.go_to(place);
        self.owners.insert(free, owner);
        owner
    }

    pub fn get(&self, value: ValueId) -> Regs {
        self.values
            .get(&value)
            .unwrap_or_else(|| unreachable!("{value} is used before it is made"))
            .clone()
    }

    /// The one register of a scalar.
    pub fn scalar(&self, value: ValueId) -> Val {
        self.get(value)[0]
    }

    pub fn set(&mut self, value: ValueId, regs: impl Into<Regs>) {
        self.values.insert(value, regs.into());
    }

    pub fn layout(&self, value: ValueId) -> Option<&'a Layout> {
        self.body.values[value].ty.layout.as_deref()
    }

    pub fn elem(&self, value: ValueId) -> DType {
        self.body.ty(value).ty.elem()
    }

    /// How many registers the value takes.
    pub(super) fn count(&self, value: ValueId) -> usize {
        self.layout(value).map_or(1, |l| l.registers() as usize)
    }

    pub fn region(&mut self, region: RegionId) -> Result<Vec<Val>, Diagnostic> {
        let body = self.body;
        let begun = self.factors.begun();
        let values = self.list(&body.regions[region].ops)?;
        self.factors.leave(begun);
        match values {
            Some(values) => Ok(values),
            None => unreachable!("the verifier checked that regions end in a terminator"),
        }
    }

    /// Operations that follow on each other; the values that the terminator hands on, if it is among them.
    pub(super) fn list(&mut self, ops: &[OpId]) -> Result<Option<Vec<Val>>, Diagnostic> {
        let body = self.body;
        let mut at = 0;
        while at < ops.len() {
            let op = ops[at];
            let operation = &body.ops[op];
            self.locate(operation);
            match &operation.kind {
                OpKind::Tile(Tile::Yield | Tile::Return) => {
                    let values = operation.operands.iter();
                    return Ok(Some(values.flat_map(|&v| self.get(v).to_vec()).collect()));
                }
                _ if self.is_wide(op) => at = self.chains(ops, at)?,
                _ => {
                    self.operation(op)?;
                    at += 1;
                }
            }
        }
        Ok(None)
    }

    fn locate(&mut self, op: &Op) {
        self.span = op.span;
        self.b.set_location(op.span);
    }

    /// Whether the operation goes element by element over so many registers that intermediate results of all of them
    /// would not fit beside each other.
    fn is_wide(&self, id: OpId) -> bool {
        let op = &self.body.ops[id];
        matches!(
            op.kind,
            OpKind::Tile(
                Tile::Unary(_)
                    | Tile::Binary(_)
                    | Tile::Compare(_)
                    | Tile::Fma
                    | Tile::Select
                    | Tile::Cast
            )
        ) && self.count(op.results[0]) >= WIDE
    }

    /// Emits wide operations that follow on each other, from `ops[at]` on: some registers through all of the operations,
    /// then the next ones. Operations in between that depend on none of them come first. Gives the place behind.
    fn chains(&mut self, ops: &[OpId], mut at: usize) -> Result<usize, Diagnostic> {
        let body = self.body;
        let registers = self.count(body.ops[ops[at]].results[0]);
        let mut chain = Vec::new();
        let mut parts: HashMap<ValueId, Vec<Val>> = HashMap::new();
        while let Some(&id) = ops.get(at) {
            let op = &body.ops[id];
            if self.is_wide(id) && self.count(op.results[0]) == registers {
                chain.push(op);
                parts.insert(op.results[0], Vec::with_capacity(registers));
            } else if matches!(
                op.kind,
                OpKind::Tile(
                    Tile::Constant(_)
                        | Tile::Broadcast
                        | Tile::Unary(_)
                        | Tile::Binary(_)
                        | Tile::Cast
                )
            ) && !op.operands.iter().any(|v| parts.contains_key(v))
            {
                self.locate(op);
                self.operation(id)?;
            } else {
                break;
            }
            at += 1;
        }
        for start in (0..registers).step_by(TOGETHER) {
            let range = start..(start + TOGETHER).min(registers);
            for op in &chain {
                self.locate(op);
                let operands: Vec<Regs> = op
                    .operands
                    .iter()
                    .map(|v| match parts.get(v) {
                        Some(part) => part[range.clone()].into(),
                        None => match self.get(*v) {
                            one if one.len() == 1 => one,
                            all => all[range.clone()].into(),
                        },
                    })
                    .collect();
                let OpKind::Tile(kind) = &op.kind else {
                    unreachable!("the chain has operations on tiles")
                };
                let made = self.elementwise(op, kind, &operands)?;
                match parts.get_mut(&op.results[0]) {
                    Some(part) => part.extend(made),
                    None => unreachable!("each operation of the chain has a part"),
                }
            }
        }
        for op in chain {
            if let Some(part) = parts.remove(&op.results[0]) {
                self.set(op.results[0], part);
            }
        }
        Ok(at)
    }

    fn operation(&mut self, id: OpId) -> Result<(), Diagnostic> {
        let body = self.body;
        let op = &body.ops[id];
        match &op.kind {
            OpKind::Load {
                indices,
                cache,
                width,
            } => self.load(op, indices, *cache, *width),
            OpKind::Store {
                indices,
                cache,
                width,
            } => self.store(op, indices, *cache, *width),
            OpKind::Reduce {
                op: kind,
                axis,
                scratch,
            } => self.reduce(op, *kind, *axis, *scratch),
            OpKind::Convert { scratch } => self.convert(op, *scratch),
            OpKind::Atomic {
                op: kind,
                indices,
                scratch,
            } => self.atomic(op, *kind, indices, *scratch),
            OpKind::Arrive { indices, scratch } => self.arrive(op, indices, *scratch),
            OpKind::Through {
                op: through,
                scratch,
            } => self.through(op, through, *scratch),
            OpKind::Barrier => self.barrier(),
            OpKind::Replica => {
                let replica = self.replica();
                self.set(op.results[0], vec![replica]);
                Ok(())
            }
            OpKind::Dot { strategy } => self.dot(op, *strategy),
            OpKind::CopyAsync {
                channel,
                tile,
                indices,
                width,
            } => self.copy_async(op, *channel, *tile, indices, *width),
            OpKind::Copy {
                channel,
                tile,
                indices,
                width,
            } => self.copy(op, *channel, *tile, indices, *width),
            OpKind::FetchColumns { channel, indices } => self.fetch_columns(op, *channel, indices),
            OpKind::CopyColumn {
                channel,
                tile,
                stage,
            } => self.copy_column(op, (*channel, *tile), *stage),
            OpKind::WaitFull { channel } => self.wait_slot(op, *channel, false),
            OpKind::WaitEmpty { channel } => self.wait_slot(op, *channel, true),
            OpKind::ExpectBytes { channel, bytes } => self.expect_bytes(op, *channel, *bytes),
            OpKind::CopyBulk {
                channel,
                tile,
                map,
                offset,
                multicast,
                cache,
            } => self.copy_bulk(op, (*channel, *tile, *offset), *map, *multicast, *cache),
            OpKind::TakeTurn { warps } => self.take_turn(*warps),
            OpKind::PassTurn { to, warps } => self.pass_turn(*to, *warps),
            OpKind::ClearRows { channel, tile } => self.clear_rows(op, *channel, *tile),
            OpKind::ArriveFull { channel } => self.arrive_slot(op, *channel, false),
            OpKind::ArriveCopied { channel } => self.arrive_copied(op, *channel),
            OpKind::ArriveEmpty { channel } => self.arrive_slot(op, *channel, true),
            OpKind::Product { a, b, columns } => self.product(op, *a, *b, *columns),
            OpKind::WaitProducts { pending } => self.wait_products(op, *pending),
            OpKind::StoreBulk {
                channel,
                tile,
                map,
                offset,
            } => self.store_bulk(op, (*channel, *tile, *offset), *map),
            OpKind::WaitStores { pending, read } => self.wait_stores(*pending, *read),
            OpKind::CommitCopies => self.commit_copies(),
            OpKind::WaitCopies { pending } => self.wait_copies(*pending),
            OpKind::WriteShared {
                channel,
                tile,
                offsets,
            } => self.write_shared(op, *channel, *tile, *offsets),
            OpKind::ReadShared {
                channel,
                tile,
                offsets,
                transposed,
            } => self.read_shared(op, *channel, *tile, *offsets, *transposed),
            OpKind::Tile(kind) => match kind {
                Tile::If => self.branch(id),
                Tile::For { rev, .. } => self.counted_loop(id, *rev),
                Tile::While => self.searching_loop(id),
                // Nothing in what is released.
                Tile::Assert { .. } | Tile::Debug { .. } => Ok(()),
                _ => self.tile_operation(id, kind),
            },
        }
    }

    fn tile_operation(&mut self, id: OpId, kind: &Tile) -> Result<(), Diagnostic> {
        let body = self.body;
        let op = &body.ops[id];
        let result = op.results[0];
        let regs: Vec<Val> = match kind {
            Tile::Constant(constant) => vec![self.constant(*constant)?],
            Tile::Param(param) => match self.arguments.get(&Argument::Scalar(*param)) {
                None => Vec::new(),
                Some(&argument) => vec![self.scalar_parameter(argument, *param, result)?],
            },
            Tile::ViewBitcast => Vec::new(),
            Tile::Dim(dim) => vec![self.arguments[&Argument::Dim(*dim)]],
            Tile::GridIndex(axis) => vec![self.axes[*axis as usize]],
            Tile::Unary(_)
            | Tile::Binary(_)
            | Tile::Compare(_)
            | Tile::Fma
            | Tile::Select
            | Tile::Cast => {
                let operands: Vec<Regs> = op.operands.iter().map(|&v| self.get(v)).collect();
                self.elementwise(op, kind, &operands)?
            }
            Tile::Bitcast => {
                let (from, to) = (self.elem(op.operands[0]), self.elem(result));
                if from.bits() != to.bits() {
                    return Err(self.not_yet("a bitcast between widths"));
                }
                let ty = register_type(to);
                let a = self.get(op.operands[0]);
                a.iter().map(|&a| self.b.bitcast(a, ty)).collect()
            }
            Tile::Broadcast | Tile::Reshape | Tile::Permute(_) | Tile::Slice(_) => {
                self.rearrange(op, kind)?
            }
            Tile::Iota => self.iota(result)?,
            Tile::Ptx { text } => {
                let operands: Vec<(Regs, DType)> = op
                    .operands
                    .iter()
                    .map(|&v| (self.get(v), self.elem(v)))
                    .collect();
                let made = self.inline_ptx(text, &operands)?;
                self.set(result, made);
                return Ok(());
            }
            Tile::Scan { .. }
            | Tile::Sort { .. }
            | Tile::TopK { .. }
            | Tile::Histogram { .. }
            | Tile::Occurrence
            | Tile::Take { .. }
            | Tile::Concat { .. }
            | Tile::ClusterReduce { .. }
            | Tile::Debug { .. }
            | Tile::Reduce { .. }
            | Tile::Dot
            | Tile::Load { .. }
            | Tile::Store { .. }
            | Tile::Atomic { .. }
            | Tile::Arrive { .. }
            | Tile::Role(_)
            | Tile::If
            | Tile::For { .. }
            | Tile::While
            | Tile::Yield
            | Tile::Return
            | Tile::Assert { .. } => {
                unreachable!("role IR has forms of its own for these, or they are done above")
            }
        };
        self.set(result, regs);
        Ok(())
    }

    /// The registers of an elementwise operation's result, from as many of each operand. A condition may have one only.
    fn elementwise(
        &mut self,
        op: &Op,
        kind: &Tile,
        operands: &[Regs],
    ) -> Result<Vec<Val>, Diagnostic> {
        let elem = self.elem(op.operands[0]);
        let result = self.elem(op.results[0]);
        match (kind, operands) {
            (Tile::Unary(unary), [a]) => a.iter().map(|&a| self.unary(*unary, a, elem)).collect(),
            (Tile::Binary(BinaryOp::Mul), [a, b]) if self.multiplies_pairs(result, a.len()) => {
                Ok(self.products_of_pairs(a, b, result))
            }
            (Tile::Binary(binary), [a, b]) => {
                let known = self.is_nonnegative(op.operands[0], 8)
                    && self.is_nonnegative(op.operands[1], 8);
                a.iter()
                    .zip(b.iter())
                    .map(|(&a, &b)| self.binary(*binary, a, b, elem, known))
                    .collect()
            }
            (Tile::Compare(compare), [a, b]) => a
                .iter()
                .zip(b.iter())
                .map(|(&a, &b)| self.compare(*compare, a, b, elem))
                .collect(),
            (Tile::Fma, [a, b, c]) => (0..a.len())
                .map(|i| self.fma(a[i], b[i], c[i], result))
                .collect(),
            (Tile::Select, [c, a, b]) => {
                let condition = |i: usize| c[if c.len() == 1 { 0 } else { i }];
                Ok((0..a.len())
                    .map(|i| self.b.select(condition(i), a[i], b[i]))
                    .collect())
            }
            (Tile::Cast, [a]) => self.cast_all(a, elem, result),
            _ => unreachable!("the verifier checked the number of operands"),
        }
    }

    fn scalar_parameter(
        &mut self,
        argument: Val,
        param: u32,
        result: ValueId,
    ) -> Result<Val, Diagnostic> {
        let ParamKind::Scalar { dtype, .. } =
            self.kernel.header.signature.params[param as usize].kind
        else {
            unreachable!("the argument is a scalar's")
        };
        let place = self.b.go_to(Place::Prologue);
        let (value, from) = match dtype {
            DType::Bool => (self.b.icmp("ne", argument, Val::int(0, I8)), DType::Bool),
            DType::U64 => (argument, DType::U64),
            t if t.is_int() => (argument, DType::I64),
            t => {
                let ty = register_type(t);
                (self.b.bitcast(argument, ty), t)
            }
        };
        let value = self.cast_all(&[value], from, self.elem(result));
        self.b.go_to(place);
        Ok(value?[0])
    }

    fn constant(&mut self, constant: Constant) -> Result<Val, Diagnostic> {
        Ok(match constant.settled() {
            Constant::Any(elem) => self.zero(elem),
            Constant::Bool(value) => Val::bool(value),
            Constant::Int(value, elem) => Val::int(value, register_type(elem)),
            Constant::Float(value, elem) => match elem {
                DType::F64 | DType::F32 | DType::Tf32 | DType::F16 | DType::Bf16 => {
                    Val::float(value, register_type(elem))
                }
                _ => self.cast_all(&[Val::float(value, F32)], DType::F32, elem)?[0],
            },
        })
    }

    fn iota(&mut self, result: ValueId) -> Result<Vec<Val>, Diagnostic> {
        let ty = register_type(self.elem(result));
        let layout = self.layout(result).expect("a tile has a layout");
        let coordinates = self.thread_coordinates(layout);
        let mut base = Val::i32(0);
        let mut strides = vec![1u32; layout.shape.len()];
        for d in (0..layout.shape.len()).rev() {
            if d + 1 < layout.shape.len() {
                strides[d] = strides[d + 1] * layout.shape[d + 1];
            }
            let scaled = self.b.mul(coordinates[d], Val::i32(strides[d]));
            base = self.b.add(base, scaled);
        }
        let base = self.b.resize(base, ty, false);
        Ok((0..layout.registers())
            .map(|register| {
                let at = layout.coordinate(register, 0, 0);
                let offset: u32 = at.iter().zip(&strides).map(|(a, s)| a * s).sum();
                self.b.add(base, Val::int(offset as i64, ty))
            })
            .collect())
    }

    pub(super) fn is_in_role(&self) -> bool {
        self.in_role.is_some()
    }

    pub(super) fn role_at_hand(&self) -> Option<InRole> {
        self.in_role
    }

    /// What the thread knows of its role.
    pub fn in_role(&self) -> InRole {
        self.in_role
            .unwrap_or_else(|| unreachable!("kernels with such operations are compiled by roles"))
    }

    /// Where the tensor map is that the launch passed.
    pub fn tensor_map(&self, map: role::MapId) -> Val {
        self.maps[map.index()]
    }

    /// What follows is `role`'s; gives what was known before.
    pub(super) fn enter_role(
        &mut self,
        role: &'a role::Role,
        thread: Val,
        in_role: InRole,
    ) -> BeforeRole<'a> {
        let own = Target::WARP * role.warps;
        BeforeRole {
            body: std::mem::replace(&mut self.body, &role.body),
            threads: std::mem::replace(&mut self.threads, own),
            thread: std::mem::replace(&mut self.thread, thread),
            in_role: self.in_role.replace(in_role),
            values: std::mem::take(&mut self.values),
            formulas: self.formulas.clone(),
            coordinates: std::mem::take(&mut self.coordinates),
            owners: std::mem::take(&mut self.owners),
            reading: std::mem::take(&mut self.reading),
        }
    }

    /// What the role worked out for itself is of no use to others.
    pub(super) fn leave_role(&mut self, before: BeforeRole<'a>) {
        self.body = before.body;
        self.threads = before.threads;
        self.thread = before.thread;
        self.in_role = before.in_role;
        self.values = before.values;
        self.formulas = before.formulas;
        self.coordinates = before.coordinates;
        self.owners = before.owners;
        self.reading = before.reading;
        self.axes.clear();
    }

    /// Whether a block's next tile may meet threads that still read shared memory for this one, without a barrier of theirs.
    pub(super) fn reuses_scratch(&self) -> bool {
        match self.in_role {
            None => self.kernel.shared_bytes > 0,
            Some(_) => !self.reading.is_empty(),
        }
    }

    /// All threads of the role arrive, and see what the others stored.
    pub fn barrier(&mut self) -> Result<(), Diagnostic> {
        self.need(Instruction::Barrier)?;
        match self.in_role.and_then(|r| r.barrier) {
            Some(_) if self.threads == Target::WARP => self.meet_in_warp(),
            Some(number) => {
                self.b.call(
                    None,
                    "llvm.nvvm.barrier.cta.sync.aligned.count",
                    &[number, Val::i32(self.threads)],
                    Effect::Convergent,
                );
            }
            None => {
                self.b.call(
                    None,
                    "llvm.nvvm.barrier.cta.sync.aligned.all",
                    &[Val::i32(0)],
                    Effect::Convergent,
                );
            }
        }
        self.reading.clear();
        Ok(())
    }

    /// The bytes are about to be written: waits for those who may still read them.
    pub fn claim_shared(&mut self, start: u32, bytes: u32) -> Result<(), Diagnostic> {
        let end = start + bytes;
        if self.reading.iter().any(|&(s, e)| s < end && start < e) {
            self.barrier()?;
        }
        Ok(())
    }

    /// The bytes are being read, until the next barrier.
    pub fn note_shared_read(&mut self, start: u32, bytes: u32) {
        self.reading.push((start, start + bytes));
    }

    fn results(&mut self, id: OpId, values: &[Val]) {
        let body = self.body;
        let mut at = 0;
        for &result in &body.ops[id].results {
            let count = self.count(result);
            self.set(result, &values[at..at + count]);
            at += count;
        }
    }

    fn types(&self, values: &[ValueId]) -> Vec<Ty> {
        values
            .iter()
            .flat_map(|&v| {
                let ty = register_type(self.elem(v));
                std::iter::repeat_n(ty, self.count(v))
            })
            .collect()
    }

    fn branch(&mut self, id: OpId) -> Result<(), Diagnostic> {
        let body = self.body;
        let op = &body.ops[id];
        let condition = self.scalar(op.operands[0]);
        let constant = match (condition.is_true(), condition.is_false()) {
            (true, _) => Some(op.regions[0]),
            (_, true) => Some(op.regions[1]),
            _ => None,
        };
        if let Some(region) = constant {
            let values = self.region(region)?;
            self.results(id, &values);
            return Ok(());
        }
        let (yes, no, after) = (self.b.label(), self.b.label(), self.b.label());
        self.b.branch(condition, yes, no, false);
        let before = self.reading.clone();
        let mut incoming = Vec::new();
        let mut reading = Vec::new();
        for (label, &region) in [yes, no].into_iter().zip(&op.regions) {
            self.reading = before.clone();
            self.b.begin(label);
            let values = self.region(region)?;
            incoming.push((self.b.block(), values));
            self.b.jump(after);
            reading.append(&mut self.reading);
        }
        self.reading = reading;
        self.b.begin(after);
        let slot = self.b.phis(&self.types(&op.results));
        let results = slot.results().to_vec();
        self.b.fill(slot, &incoming);
        self.results(id, &results);
        Ok(())
    }

    /// What is read at the end of a loop's body is still being read at its start.
    fn enter_loop(&mut self, regions: &[RegionId]) {
        for region in regions {
            let mut used = Vec::new();
            self.scratch_in(*region, &mut used);
            self.reading.append(&mut used);
        }
    }

    fn scratch_in(&self, region: RegionId, out: &mut Vec<(u32, u32)>) {
        for &op in &self.body.regions[region].ops {
            let op = &self.body.ops[op];
            if let OpKind::Reduce {
                scratch: Some(buffer),
                ..
            }
            | OpKind::Convert {
                scratch: Some(buffer),
            }
            | OpKind::Atomic {
                scratch: Some(buffer),
                ..
            }
            | OpKind::Arrive {
                scratch: Some(buffer),
                ..
            }
            | OpKind::Through {
                scratch: Some(buffer),
                ..
            } = &op.kind
            {
                let buffer = &self.kernel.buffers[*buffer];
                let start = buffer.offset.unwrap_or(0);
                out.push((start, start + buffer.bytes));
            }
            for &inner in &op.regions {
                self.scratch_in(inner, out);
            }
        }
    }

    fn counted_loop(&mut self, id: OpId, rev: bool) -> Result<(), Diagnostic> {
        let body = self.body;
        let op = &body.ops[id];
        let [lo, hi, step] = [0, 1, 2].map(|i| self.scalar(op.operands[i]));
        let inits: Vec<Val> = op.operands[3..]
            .iter()
            .flat_map(|&v| self.get(v).to_vec())
            .collect();
        let region = op.regions[0];
        let args = body.regions[region].args.clone();

        let enters = self.b.icmp("slt", lo, hi);
        if enters.is_false() {
            self.results(id, &inits);
            return Ok(());
        }
        // The last index that a loop of this step reaches.
        let first = if rev {
            let span = self.b.sub(hi, Val::i64(1));
            let span = self.b.sub(span, lo);
            let steps = self.floor_div(span, step, true);
            let back = self.b.mul(steps, step);
            self.b.add(lo, back)
        } else {
            lo
        };
        let (head, after) = (self.b.label(), self.b.label());
        let entering = self.pack_carried(&args[1..], &inits);
        let before = self.b.block();
        if enters.is_true() {
            self.b.jump(head);
        } else {
            self.b.branch(enters, head, after, false);
        }

        self.b.begin(head);
        self.enter_loop(&op.regions);
        let mut types = vec![I64];
        types.extend(self.carried_types(&args[1..]));
        let slot = self.b.phis(&types);
        let index = slot.results()[0];
        let carried = slot.results()[1..].to_vec();
        let carried = self.unpack_carried(&args[1..], &carried);
        self.set(args[0], vec![index]);
        let mut at = 0;
        for &arg in &args[1..] {
            let count = self.count(arg);
            self.set(arg, &carried[at..at + count]);
            at += count;
        }
        let yielded = self.region(region)?;
        self.span = op.span;
        self.b.set_location(op.span);
        let going_on = self.pack_carried(&args[1..], &yielded);
        let (next, again) = if rev {
            let next = self.b.sub(index, step);
            (next, self.b.icmp("sge", next, lo))
        } else {
            let next = self.b.add(index, step);
            (next, self.b.icmp("slt", next, hi))
        };
        let latch = self.b.block();
        // Where no pass may be made, products end before the two ways out meet: `ptxas` keeps nothing in flight where others
        // define the same registers. Where one in flight was there before the loop, a pass is made or the registers are other ones.
        let yields = &body.ops[*body.regions[region].ops.last().unwrap_or(&id)].operands;
        let mut ends = yields.iter().zip(&op.operands[3..]);
        let drains = !enters.is_true()
            && ends.any(|(&end, &start)| self.is_in_flight(end) && !self.is_in_flight(start));
        let mut left = latch;
        let mut finished = going_on.clone();
        if drains {
            let drain = self.b.label();
            self.b.branch(again, head, drain, true);
            self.b.begin(drain);
            let drained = self.drain(yields, &yielded);
            finished = self.pack_carried(&args[1..], &drained);
            left = self.b.block();
            self.b.jump(after);
        } else {
            self.b.branch(again, head, after, true);
        }
        let with = |index: Val, values: &[Val]| -> Vec<Val> {
            std::iter::once(index)
                .chain(values.iter().copied())
                .collect()
        };
        self.b.fill(
            slot,
            &[
                (before, with(first, &entering)),
                (latch, with(next, &going_on)),
            ],
        );

        self.b.begin(after);
        if enters.is_true() {
            self.results(id, &yielded);
        } else {
            let slot = self.b.phis(&self.carried_types(&op.results));
            let results = slot.results().to_vec();
            self.b.fill(slot, &[(before, entering), (left, finished)]);
            let results = self.unpack_carried(&op.results, &results);
            self.results(id, &results);
        }
        Ok(())
    }

    /// Whether a product that gives the value may still be in flight.
    pub(super) fn is_in_flight(&self, value: ValueId) -> bool {
        let body = self.body;
        let ValueDef::Result { op, index } = body.values[value].def else {
            return false;
        };
        let op = &body.ops[op];
        match &op.kind {
            OpKind::Product { .. } => true,
            OpKind::WaitProducts { pending } => *pending > 0,
            OpKind::Tile(Tile::If | Tile::For { .. } | Tile::While) => {
                op.regions.iter().any(|&r| {
                    let last = body.regions[r].ops.last().map(|&o| &body.ops[o].operands);
                    let yielded = last.and_then(|o| o.get(index as usize));
                    yielded.is_some_and(|&v| self.is_in_flight(v))
                })
            }
            _ => false,
        }
    }

    fn searching_loop(&mut self, id: OpId) -> Result<(), Diagnostic> {
        let body = self.body;
        let op = &body.ops[id];
        let inits: Vec<Val> = op
            .operands
            .iter()
            .flat_map(|&v| self.get(v).to_vec())
            .collect();
        let (head, inside, after) = (self.b.label(), self.b.label(), self.b.label());
        let before = self.b.block();
        self.b.jump(head);
        self.b.begin(head);
        self.enter_loop(&op.regions);
        let [test, work] = op.regions[..] else {
            unreachable!("the verifier checked that `while` has two regions")
        };
        let slot = self.b.phis(&self.types(&op.results));
        let carried = slot.results().to_vec();
        for region in [test, work] {
            let mut at = 0;
            for &arg in &body.regions[region].args {
                let count = self.count(arg);
                self.set(arg, &carried[at..at + count]);
                at += count;
            }
        }
        let condition = self.region(test)?[0];
        self.b.branch(condition, inside, after, false);
        self.b.begin(inside);
        let yielded = self.region(work)?;
        let latch = self.b.block();
        self.b.jump_back(head);
        self.b.fill(slot, &[(before, inits), (latch, yielded)]);
        self.b.begin(after);
        self.results(id, &carried);
        Ok(())
    }

    /// Whether the scalar is proven to be ≥ 0, looking `depth` operations deep. Index arithmetic does not wrap.
    pub fn is_nonnegative(&self, value: ValueId, depth: u32) -> bool {
        let body = self.body;
        if !body.ty(value).ty.shape().is_empty() || !body.ty(value).ty.elem().is_int() {
            return false;
        }
        if !body.ty(value).ty.elem().is_signed() {
            return true;
        }
        if depth == 0 {
            return false;
        }
        let op = match body.values[value].def {
            ValueDef::Argument { region, index: 0 } => {
                return self
                    .loop_of(region)
                    .is_some_and(|op| self.is_nonnegative(body.ops[op].operands[0], depth - 1));
            }
            ValueDef::Argument { .. } => return false,
            ValueDef::Result { op, .. } => &body.ops[op],
        };
        let both = || {
            op.operands
                .iter()
                .all(|&v| self.is_nonnegative(v, depth - 1))
        };
        let OpKind::Tile(kind) = &op.kind else {
            return false;
        };
        match kind {
            Tile::Constant(Constant::Int(v, _)) => *v >= 0,
            Tile::Dim(_) | Tile::GridIndex(_) => true,
            Tile::Binary(
                BinaryOp::Add
                | BinaryOp::Mul
                | BinaryOp::Div
                | BinaryOp::Rem
                | BinaryOp::Min
                | BinaryOp::Or
                | BinaryOp::Shr,
            ) => both(),
            Tile::Binary(BinaryOp::And | BinaryOp::Max) => op
                .operands
                .iter()
                .any(|&v| self.is_nonnegative(v, depth - 1)),
            Tile::Select => op.operands[1..]
                .iter()
                .all(|&v| self.is_nonnegative(v, depth - 1)),
            _ => false,
        }
    }

    /// The counted loop whose body `region` is.
    fn loop_of(&self, region: RegionId) -> Option<OpId> {
        self.body.ops.iter().find_map(|(id, op)| {
            (op.regions.first() == Some(&region)
                && matches!(op.kind, OpKind::Tile(Tile::For { .. })))
            .then_some(id)
        })
    }

    /// Whether the scalar is proven to be less than the formula: an index on an axis of that extent, or of a loop that
    /// ends there.
    pub fn is_below(&self, value: ValueId, extent: &Formula) -> bool {
        let body = self.body;
        let is_extent = |v: ValueId| match body.defining_op(v).map(|op| &body.ops[op].kind) {
            Some(OpKind::Tile(Tile::Dim(dim))) => extent.as_dim() == Some(*dim),
            Some(OpKind::Tile(Tile::Constant(Constant::Int(c, _)))) => {
                extent.as_int().is_some_and(|e| *c <= e)
            }
            _ => false,
        };
        match body.values[value].def {
            ValueDef::Argument { region, index: 0 } => self
                .loop_of(region)
                .is_some_and(|op| is_extent(body.ops[op].operands[1])),
            ValueDef::Argument { .. } => false,
            ValueDef::Result { op, .. } => match &body.ops[op].kind {
                OpKind::Tile(Tile::GridIndex(axis)) => {
                    self.kernel.header.axes[*axis as usize].extent == *extent
                }
                OpKind::Tile(Tile::Constant(Constant::Int(c, _))) => {
                    extent.as_int().is_some_and(|e| *c < e)
                }
                _ => false,
            },
        }
    }
}

/// The LLVM type in which a scalar parameter is passed.
fn scalar_argument(elem: DType) -> Ty {
    match elem {
        DType::Bool => I8,
        DType::F64 => F64,
        DType::F32 | DType::Tf32 => F32,
        DType::F16 | DType::Bf16 => I16,
        t if t.is_int() => I64,
        _ => I8,
    }
}

/// The parameter whose memory a view value is.
pub fn view_parameter(body: &RoleBody, mut value: ValueId) -> u32 {
    loop {
        let op = body.defining_op(value).map(|op| &body.ops[op]);
        match op.map(|op| (&op.kind, op)) {
            Some((OpKind::Tile(Tile::Param(param)), _)) => return *param,
            Some((OpKind::Tile(Tile::ViewBitcast), op)) => value = op.operands[0],
            _ => unreachable!("the verifier checked where views come from"),
        }
    }
}
