//! `wgmma`: decoded, and executed by each warp of a warp group (PTX ISA §9.7.15).
//!
//! A product is computed when it is issued, and its accumulators hold the result from then on; but they and A's registers are pending, and
//! anything but another product that touches them is a fault, until a `wgmma.wait_group` that covers the product. The four warps of a group
//! run one after another, and [`Issues`] sees that they issue the same products.

use std::collections::VecDeque;

use super::{
    element::{Accumulator, Element},
    op::{fragment, shape},
    wgmma::{Descriptor, Left, Wgmma},
};
use crate::{
    check::{Access, Agent, Proxy},
    fault::{Fault, FaultKind},
    isa::operands::{Decoder, Refused, Src64, SrcP, Type, Word},
    machine::{LANES, Step},
    memory::Region,
    ptx::{Operand, Space},
};

#[derive(Clone, Debug)]
pub(crate) enum Op {
    /// `wgmma.fence` (§9.7.15.7.1).
    Fence,
    /// `wgmma.commit_group` (§9.7.15.7.2).
    Commit,
    /// `wgmma.wait_group` (§9.7.15.7.3): at most so many groups stay pending.
    Wait(usize),
    /// `wgmma.mma_async` (§9.7.15.5.2).
    Multiply(Box<Multiply>),
}

#[derive(Clone, Debug)]
pub(crate) struct Multiply {
    wgmma: Wgmma,
    d: Box<[Word]>,
    a: From,
    b: Src64,
    accumulate: SrcP,
}

#[derive(Clone, Debug)]
enum From {
    Shared(Src64),
    Registers([Word; 4]),
}

/// The products of a warp that were not waited for, and what its registers are to them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Products {
    /// Those of no group yet.
    open: Vec<Product>,
    /// Oldest first.
    groups: VecDeque<Vec<Product>>,
    /// By the machine's numbering of registers; empty until the first `wgmma`.
    uses: Vec<Use>,
    /// How many products are pending.
    pending: usize,
    /// Issued so far.
    issued: u64,
}

/// One that is pending: its registers.
#[derive(Clone, Debug)]
struct Product {
    accumulators: Box<[Word]>,
    sources: Option<[Word; 4]>,
    /// What reads shared memory for it.
    agent: Option<Agent>,
}

/// What a register is to products.
#[derive(Clone, Copy, Debug, Default)]
struct Use {
    /// Nothing wrote it since the last `wgmma.fence`.
    fenced: bool,
    /// Pending products that have it as accumulator, and their n and type.
    accumulates: u32,
    shape: Option<(usize, Accumulator)>,
    /// Pending products that read it as a part of A.
    read: u32,
}

/// What the warps of a warp group issued, from the first product on that one of them has yet to issue.
#[derive(Clone, Debug, Default)]
pub(crate) struct Issues {
    first: u64,
    queue: VecDeque<Issue>,
}

/// A product as its first warp issued it.
#[derive(Clone, Debug)]
struct Issue {
    at: u32,
    operands: (u64, u64, bool),
    /// How many warps issued it.
    warps: u32,
}

pub(super) fn decode(d: &mut Decoder<'_>) -> Result<Op, Refused> {
    if d.target.sm != 90 || !d.target.exact {
        return Err("it needs sm_90a".into());
    }
    let parts: Vec<&str> = d.parts()[1..].iter().map(|p| &**p).collect();
    match parts[..] {
        ["fence", "sync", "aligned"] => Ok(Op::Fence),
        ["commit_group", "sync", "aligned"] => Ok(Op::Commit),
        ["wait_group", "sync", "aligned"] => {
            let count = d.constant(d.operand(0)?)?;
            let count = usize::try_from(count).ok().filter(|c| *c < 8);
            Ok(Op::Wait(
                count.ok_or("a count of groups up to 7 must stand here")?,
            ))
        }
        [
            "mma_async",
            "sync",
            "aligned",
            of_shape,
            of_d,
            of_a,
            of_b,
            ref rest @ ..,
        ] => {
            let of_shape = shape(of_shape).ok_or("it lacks a shape")?;
            decode_multiply(d, of_shape, [of_d, of_a, of_b], rest)
        }
        _ => Err("".into()),
    }
}

fn decode_multiply(
    d: &mut Decoder<'_>,
    [m, n, k]: [usize; 3],
    [of_d, of_a, of_b]: [&str; 3],
    rest: &[&str],
) -> Result<Op, Refused> {
    let unknown = |name: &str| Refused(format!("`.{name}` is not known here"));
    let mut wgmma = Wgmma {
        n,
        a: Element::named(of_a).ok_or_else(|| unknown(of_a))?,
        b: Element::named(of_b).ok_or_else(|| unknown(of_b))?,
        d: Accumulator::named(of_d).ok_or_else(|| unknown(of_d))?,
        negate_a: false,
        negate_b: false,
        transpose_a: false,
        transpose_b: false,
        saturate: false,
    };
    match (rest, wgmma.a) {
        ([], Element::B1) => return Err("it lacks `.and.popc`".into()),
        ([], _) | (["and", "popc"], Element::B1) => {}
        (["satfinite"], _) => wgmma.saturate = true,
        _ => return Err(unknown(&rest.join("."))),
    }
    let in_registers = !matches!(d.operand(1)?, Operand::Register(_));
    // After the predicate: the signs of floating-point operands, then the order of 16-bit operands in shared memory.
    let signs = if wgmma.a.is_integer() { 0 } else { 2 };
    let orders = match (wgmma.a.bits(), in_registers) {
        (16, true) => 1,
        (16, false) => 2,
        _ => 0,
    };
    d.expect_count(4 + signs + orders..=4 + signs + orders)?;
    for (i, negate) in [&mut wgmma.negate_a, &mut wgmma.negate_b][..signs]
        .iter_mut()
        .enumerate()
    {
        **negate = match d.constant(d.operand(4 + i)?)? as i64 {
            1 => false,
            -1 => true,
            _ => return Err("a scale must be 1 or -1".into()),
        };
    }
    let order = |i: usize| match d.constant(d.operand(4 + signs + i)?)? {
        0 => Ok(false),
        1 => Ok(true),
        _ => Err(Refused::from("an order must be 0 or 1")),
    };
    if orders == 2 {
        wgmma.transpose_a = order(0)?;
    }
    if orders > 0 {
        wgmma.transpose_b = order(orders - 1)?;
    }
    wgmma.check().map_err(Refused::from)?;
    if m != 64 || k != wgmma.k() {
        return Err("the shape and the types do not fit".into());
    }
    // Accumulators and A's registers may be pending, so that reads and writes of them are looked at when the product runs.
    let words = |operands: &[Operand]| -> Result<Vec<Word>, Refused> {
        let word = |operand: &Operand| match operand {
            Operand::Register(reg) => d.file.word(*reg),
            _ => None,
        };
        let words: Option<Vec<Word>> = operands.iter().map(word).collect();
        words.ok_or_else(|| "32-bit registers must stand here".into())
    };
    let accumulators = words(fragment(d, 0, wgmma.accumulator_registers())?)?;
    let a = if in_registers {
        let registers = words(fragment(d, 1, 4)?)?;
        From::Registers(
            registers
                .try_into()
                .map_err(|_| "four registers must stand here")?,
        )
    } else {
        From::Shared(d.src64(d.operand(1)?, Type::B64)?)
    };
    Ok(Op::Multiply(Box::new(Multiply {
        wgmma,
        d: accumulators.into(),
        a,
        b: d.src64(d.operand(2)?, Type::B64)?,
        accumulate: d.src_predicate(d.operand(3)?)?,
    })))
}

impl Products {
    /// Whether a register belongs to a product that was not waited for.
    pub(crate) fn is_pending(&self, register: u32) -> bool {
        let of = self.uses.get(register as usize);
        of.is_some_and(|u| u.accumulates + u.read > 0)
    }

    /// The first of some registers that is pending.
    #[inline]
    pub(crate) fn first_pending(&self, registers: &[u32]) -> Option<u32> {
        if self.pending == 0 {
            return None;
        }
        registers.iter().copied().find(|r| self.is_pending(*r))
    }

    /// An instruction other than `wgmma.mma_async` wrote those registers.
    #[inline]
    pub(crate) fn wrote(&mut self, registers: &[u32]) {
        if self.uses.is_empty() {
            return;
        }
        for &register in registers {
            self.uses[register as usize].fenced = false;
        }
    }

    fn prepare(&mut self, registers: usize) {
        if self.uses.is_empty() {
            self.uses = vec![Use::default(); registers];
        }
    }

    fn fence(&mut self, registers: usize) {
        self.prepare(registers);
        self.uses.iter_mut().for_each(|u| u.fenced = true);
    }
}

impl Issues {
    /// Notes product number `number` of a warp. Another warp of the group must not have issued another one.
    fn note(&mut self, number: u64, at: u32, operands: (u64, u64, bool)) -> Result<(), u32> {
        let index = number.wrapping_sub(self.first) as usize;
        match self.queue.get_mut(index) {
            Some(issue) => {
                if (issue.at, issue.operands) != (at, operands) {
                    return Err(issue.at);
                }
                issue.warps += 1;
            }
            None => self.queue.push_back(Issue {
                at,
                operands,
                warps: 1,
            }),
        }
        while self.queue.front().is_some_and(|i| i.warps == 4) {
            self.queue.pop_front();
            self.first += 1;
        }
        Ok(())
    }

    /// The first product that not all four warps issued.
    pub(crate) fn unfinished(&self) -> Option<u32> {
        self.queue.front().map(|issue| issue.at)
    }
}

/// The value that all lanes have; a fault if they differ.
fn uniform(step: &Step<'_>, what: &str, values: [u64; LANES]) -> Result<u64, Fault> {
    match values.iter().position(|v| *v != values[0]) {
        None => Ok(values[0]),
        Some(lane) => {
            let message = format!("{what} differs between threads of a warp");
            Err(step.fault(FaultKind::Operand, message, 1 | 1 << lane))
        }
    }
}

impl Op {
    pub(super) fn execute(&self, step: &mut Step<'_>) -> Result<(), Fault> {
        match self {
            Op::Fence => {
                let count = step.registers.defined.len();
                step.registers.products.fence(count);
            }
            Op::Commit => {
                let products = &mut step.registers.products;
                let open = std::mem::take(&mut products.open);
                products.groups.push_back(open);
            }
            Op::Wait(left) => {
                let groups = &mut step.registers.products.groups;
                let done = groups.len().saturating_sub(*left);
                let done: Vec<Product> = groups.drain(..done).flatten().collect();
                for product in done {
                    settle(step, &product);
                }
            }
            Op::Multiply(op) => op.execute(step)?,
        }
        Ok(())
    }
}

/// The registers of a product may be touched again, if no other product needs them.
fn settle(step: &mut Step<'_>, product: &Product) {
    if let Some(agent) = product.agent {
        let clocks = &mut step.cluster.clocks[step.rank as usize];
        let token = clocks.complete(agent);
        clocks.acquire_lanes(step.warp, step.lanes, &token);
    }
    let file = &step.grid.program.file;
    let registers = &mut *step.registers;
    registers.products.pending -= 1;
    let mut leave = |word: Word, accumulator: bool| {
        let track = file.track_word(word) as usize;
        let of = &mut registers.products.uses[track];
        if accumulator {
            of.accumulates -= 1;
        } else {
            of.read -= 1;
        }
        if of.accumulates + of.read == 0 {
            registers.defined[track] = u32::MAX;
        }
    };
    for &word in &product.accumulators {
        leave(word, true);
    }
    for &word in product.sources.iter().flatten() {
        leave(word, false);
    }
}

/// 16 bytes of the block's shared memory, read through the async proxy.
fn read_unit(step: &mut Step<'_>, address: u32, agent: Option<Agent>) -> Result<[u8; 16], Fault> {
    let region = step.resolve(Space::Shared, u64::from(address), 16, 16, 0)?;
    let mut unit = [0; 16];
    if let Region::Shared { rank, offset } = region {
        step.check_shared(rank, offset, unit.len(), 0, Access::Read, agent)?;
        let shared = &step.cluster.blocks[rank as usize].shared;
        unit.copy_from_slice(&shared[offset as usize..][..16]);
    }
    Ok(unit)
}

impl Multiply {
    fn execute(&self, step: &mut Step<'_>) -> Result<(), Fault> {
        let warp = (step.warp % 4) as usize;
        if step.warp / 4 * 4 + 4 > step.grid.warps() {
            let message = "the block has no four warps here, which a product of a warp group needs";
            return Err(step.fault(FaultKind::Participation, message, step.lanes));
        }
        let mask = step.predicate(self.accumulate);
        if mask != 0 && mask != u32::MAX {
            let message = "scale-d differs between threads of a warp";
            return Err(step.fault(FaultKind::Operand, message, mask));
        }
        let accumulate = mask != 0;
        let right = uniform(step, "the descriptor of B", step.double(self.b))?;
        let left = match &self.a {
            From::Shared(a) => uniform(step, "the descriptor of A", step.double(*a))?,
            From::Registers(_) => 0,
        };
        self.check_registers(step, accumulate)?;
        self.note(step, (left, right, accumulate))?;
        let a = match &self.a {
            From::Registers(words) => words.map(|w| step.registers.words[w.0 as usize]),
            From::Shared(_) => [[0; LANES]; 4],
        };
        let a = match &self.a {
            From::Shared(_) => Left::Shared(Descriptor::decode(left)),
            From::Registers(_) => Left::Registers(&a),
        };
        let b = Descriptor::decode(right);
        let mut d: Vec<[u32; LANES]> = self
            .d
            .iter()
            .map(|w| step.registers.words[w.0 as usize])
            .collect();
        let agent = step.grid.options.check_races.then(|| {
            let clocks = &mut step.cluster.clocks[step.rank as usize];
            clocks.spawn_joint(step.warp, step.lanes, Proxy::Async)
        });
        let mut read = |address| read_unit(step, address, agent);
        self.wgmma.run(warp, a, b, accumulate, &mut d, &mut read)?;
        let file = &step.grid.program.file;
        let sources = match &self.a {
            From::Registers(words) => Some(*words),
            From::Shared(_) => None,
        };
        let registers = &mut *step.registers;
        for (word, values) in self.d.iter().zip(d) {
            registers.words[word.0 as usize] = values;
            let track = file.track_word(*word) as usize;
            registers.defined[track] = 0;
            let of = &mut registers.products.uses[track];
            of.accumulates += 1;
            of.shape = Some((self.wgmma.n, self.wgmma.d));
        }
        for word in sources.iter().flatten() {
            let track = file.track_word(*word) as usize;
            registers.defined[track] = 0;
            registers.products.uses[track].read += 1;
        }
        registers.products.pending += 1;
        registers.products.open.push(Product {
            accumulators: self.d.clone(),
            sources,
            agent,
        });
        Ok(())
    }

    /// Whether the registers of D and A hold what they must, and may be used now.
    fn check_registers(&self, step: &mut Step<'_>, accumulate: bool) -> Result<(), Fault> {
        let count = step.registers.defined.len();
        step.registers.products.prepare(count);
        let program = step.grid.program;
        let name = |track: u32| program.names.get(track as usize).map_or("?", |n| &**n);
        let sources: &[Word] = match &self.a {
            From::Registers(words) => words,
            From::Shared(_) => &[],
        };
        let of_d = self.d.iter().map(|w| (w, false));
        for (word, is_source) in of_d.chain(sources.iter().map(|w| (w, true))) {
            let track = program.file.track_word(*word);
            let of = step.registers.products.uses[track as usize];
            if of.accumulates + of.read > 0 {
                // A chain of products of one shape, or of one A, needs no wait in between.
                let chained = if is_source {
                    of.accumulates == 0
                } else {
                    of.read == 0 && of.shape == Some((self.wgmma.n, self.wgmma.d))
                };
                if chained {
                    continue;
                }
                let message = format!(
                    "{} belongs to a product that was not waited for (wgmma.wait_group), and whose shape or operand this one does not share",
                    name(track)
                );
                return Err(step.fault(FaultKind::Pending, message, step.lanes));
            }
            if !is_source && !accumulate {
                continue;
            }
            let undefined = !step.registers.defined[track as usize];
            if undefined != 0 {
                let message = format!("{} is read, and nothing wrote it", name(track));
                return Err(step.fault(FaultKind::UninitializedRegister, message, undefined));
            }
            if !of.fenced {
                let message = format!(
                    "{} was written, and a product uses it with no wgmma.fence in between",
                    name(track)
                );
                return Err(step.fault(FaultKind::Race, message, step.lanes));
            }
        }
        Ok(())
    }

    /// All four warps of the group must issue the same products in the same order.
    fn note(&self, step: &mut Step<'_>, operands: (u64, u64, bool)) -> Result<(), Fault> {
        let number = step.registers.products.issued;
        step.registers.products.issued += 1;
        // A descriptor of A holds for all four warps, as does one of B.
        let block = &mut step.cluster.blocks[step.rank as usize];
        let group = step.warp as usize / 4;
        if block.products.len() <= group {
            block.products.resize_with(group + 1, Issues::default);
        }
        block.products[group].note(number, step.at, operands).map_err(|other| {
            let mut fault = step.fault(
                FaultKind::Participation,
                "the four warps of a warp group issue different products, or with different descriptors",
                step.lanes,
            );
            fault.notes.push(crate::fault::Note {
                message: "another warp of the group issued this one".into(),
                threads: Vec::new(),
                place: step.grid.program.place(other),
            });
            fault
        })
    }
}
