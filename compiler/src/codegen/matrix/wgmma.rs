//! Products of warpgroups, `wgmma`: 64 rows a warpgroup at a time, all steps along K as one group in flight.
//!
//! A product is one piece of inline PTX, so that nothing comes between its fence and its commit; accumulators are tied to
//! its results. A wait ties all tiles that are in flight, so that nobody reads them before.
//!
//! Operands in slots are described to the instruction by 64 bits. In a row of 32, 64 or 128 bytes K runs along the row, a panel
//! after another; where the other dimension does, 64 bytes times two are a panel, and eight rows of K follow each other.

use tesserine_set::DType;

use crate::{
    codegen::{
        builder::{Effect, I64, Val},
        lower::{Lower, register_type},
        ptx_table::{self, Factor, WarpgroupProduct},
    },
    diagnostics::Diagnostic,
    ir::{
        Op, ValueId,
        role::{OpKind, ProductOperand, SlotPart},
    },
    layout::swizzle::SharedLayout,
    target::legality::Instruction,
};

/// Rows of a warpgroup's instruction.
const ROWS: u32 = 64;

/// Bytes of K in one instruction.
const STEP_BYTES: u32 = 32;

/// Rows that are swizzled together.
const LINES: u32 = 8;

/// Left factors in registers that products in flight may still read: nothing else may take these registers.
#[derive(Default)]
pub(in crate::codegen) struct FactorsInFlight {
    /// Products begun so far.
    begun: u32,
    /// The words of each, with the number of its product.
    words: Vec<(u32, Vec<Val>)>,
}

impl FactorsInFlight {
    fn begin(&mut self, left: &Factor, words: &[Val]) {
        if matches!(left, Factor::Registers) {
            self.words.push((self.begun, words.to_vec()));
        }
        self.begun += 1;
    }

    /// Products begun so far.
    pub(in crate::codegen) fn begun(&self) -> u32 {
        self.begun
    }

    /// Forgets what products read that have begun since then: their region ends, and its values with it.
    pub(in crate::codegen) fn leave(&mut self, begun: u32) {
        self.words.retain(|(number, _)| *number < begun);
    }

    /// The words that are in use until a wait that leaves `pending` products in flight.
    fn waited(&mut self, pending: u32) -> Vec<Val> {
        let all = self.words.iter().flat_map(|(_, words)| words).copied();
        let all = all.collect();
        let begun = self.begun;
        self.words.retain(|(number, _)| begun - number <= pending);
        all
    }
}

impl Lower<'_> {
    pub(in crate::codegen) fn product(
        &mut self,
        op: &Op<OpKind>,
        a: ProductOperand,
        b: ProductOperand,
        by_columns: bool,
    ) -> Result<(), Diagnostic> {
        self.need(Instruction::Wgmma)?;
        let result = op.results[0];
        let sum = self.elem(result);
        let shape = self.body.ty(result).ty.shape();
        let (m, n) = (shape[0], shape[1]);
        let groups = self.threads / 128;
        let (rows, n) = match by_columns {
            true => (ROWS, n / groups),
            false => (ROWS * groups, n),
        };
        let blocks = m / rows;
        // Where a warpgroup's rows or columns begin, for each of those before it.
        let (first_row, first_column) = match by_columns {
            true => (0, n),
            false => (ROWS, 0),
        };
        let left = (op.operands[0], 0, blocks, first_row, rows);
        let (left_elem, left, left_steps) = self.factor(a, left)?;
        let (right_elem, right, steps) = self.factor(b, (op.operands[1], 1, 1, first_column, n))?;
        if left_elem.is_int() && left_elem != right_elem {
            self.need(Instruction::WgmmaMixedBytes)?;
        }
        let steps = steps.min(left_steps);
        let accumulate = self.scalar(op.operands[3]);
        let sums = self.get(op.operands[2]);
        let fresh = accumulate.is_false();

        let product = WarpgroupProduct {
            n,
            k: STEP_BYTES * 8 / left_elem.bits(),
            types: [sum, left_elem, right_elem],
            blocks: blocks as usize,
            steps,
            fresh,
            left: left.0,
            right: right.0,
        };
        let t = ptx_table::warpgroup_product(&product);
        let mut args = Vec::new();
        if !fresh {
            args.extend(sums.iter().copied());
            args.push(accumulate);
        }
        self.factors.begin(&product.left, &left.1);
        args.extend(left.1);
        args.extend(right.1);
        let types = vec![register_type(sum); sums.len()];
        let sums = self
            .b
            .asm(&t.text, &t.constraints, &types, &args, Effect::Convergent);
        self.set(result, sums);
        Ok(())
    }

    /// An operand as the instruction takes it, with its arguments, its element, and the steps along K. With the value: which side it is on, in
    /// how many blocks, and how many rows or columns of the result lie between those of warpgroups and between blocks.
    #[allow(clippy::type_complexity)]
    fn factor(
        &mut self,
        operand: ProductOperand,
        (value, side, blocks, of_group, of_block): (ValueId, u32, u32, u32, u32),
    ) -> Result<(DType, (Factor, Vec<Val>), usize), Diagnostic> {
        let ProductOperand::Slot {
            channel,
            tile,
            part,
            transposed,
        } = operand
        else {
            let elem = self.elem(value);
            let regs = self.get(value);
            let words = self.pack(&regs, elem);
            let steps = words.len() / (4 * blocks as usize);
            return Ok((elem, (Factor::Registers, words), steps));
        };
        let tile_of = &self.kernel.channels[channel].tiles[tile as usize];
        let layout = tile_of.layout;
        let elem = match tile_of.elem {
            DType::F32 => DType::Tf32,
            elem => elem,
        };
        let along_rows = transposed != (side == 1);
        let Some((offset, shape)) = SlotPart::of(part, tile_of, along_rows) else {
            unreachable!("the verifier checked where factors begin");
        };
        let k = shape[usize::from(!along_rows)];
        let address = self.slot_address(channel, tile, value, offset);
        let address = match of_group {
            0 => address,
            _ => {
                let distance = match along_rows {
                    false => of_group * layout.pitch,
                    true => columns_bytes(&layout, of_group * elem.bits() / 8),
                };
                let group = self.in_role().group;
                let distance = self.b.mul(group, Val::i32(distance));
                self.b.add(address, distance)
            }
        };
        let start = self.b.lshr(address, 4);
        let start = self.b.and(start, Val::i32(0x3FFF));
        let start = self.b.resize(start, I64, false);
        let descriptor = self
            .b
            .or(start, Val::i64(described(&layout, along_rows) as i64));
        let block = match along_rows {
            false => of_block * layout.pitch,
            true => columns_bytes(&layout, of_block * elem.bits() / 8),
        };
        let steps = k * elem.bits() / 8 / STEP_BYTES;
        let of_step = |step: u32| match along_rows {
            false => columns_bytes(&layout, step * STEP_BYTES),
            true => step * (STEP_BYTES * 8 / elem.bits()) * layout.pitch,
        };
        let distances = (0..blocks)
            .map(|b| (0..steps).map(|s| (b * block + of_step(s)) >> 4).collect())
            .collect();
        let factor = Factor::Slot {
            distances,
            turned: along_rows,
        };
        Ok((elem, (factor, vec![descriptor]), steps as usize))
    }

    /// Waits for all products; `values` are the registers of `yielded`, and given back.
    pub(in crate::codegen) fn drain(&mut self, yielded: &[ValueId], values: &[Val]) -> Vec<Val> {
        let mut all = values.to_vec();
        let mut tiles = Vec::new();
        let mut at = 0;
        for &value in yielded {
            let count = self.get(value).len();
            if self.is_in_flight(value) {
                tiles.extend(at..at + count);
            }
            at += count;
        }
        let args: Vec<Val> = tiles.iter().map(|&i| all[i]).collect();
        let types: Vec<_> = args.iter().map(|v| v.ty).collect();
        let t = ptx_table::wait_products(0, &types, 0);
        let waited = self
            .b
            .asm(&t.text, &t.constraints, &types, &args, Effect::Convergent);
        for (i, value) in tiles.into_iter().zip(waited) {
            all[i] = value;
        }
        all
    }

    pub(in crate::codegen) fn wait_products(
        &mut self,
        op: &Op<OpKind>,
        pending: u32,
    ) -> Result<(), Diagnostic> {
        self.need(Instruction::Wgmma)?;
        let tiles: Vec<_> = op.operands.iter().map(|&v| self.get(v)).collect();
        let mut args: Vec<Val> = tiles.iter().flat_map(|regs| regs.to_vec()).collect();
        let types: Vec<_> = args.iter().map(|v| v.ty).collect();
        let words = self.factors.waited(pending);
        let t = ptx_table::wait_products(pending, &types, words.len());
        args.extend(words);
        let waited = self
            .b
            .asm(&t.text, &t.constraints, &types, &args, Effect::Convergent);
        let mut at = 0;
        for (&result, regs) in op.results.iter().zip(&tiles) {
            self.set(result, &waited[at..at + regs.len()]);
            at += regs.len();
        }
        Ok(())
    }
}

/// Bytes to the column that lies `bytes` further in a row.
fn columns_bytes(layout: &SharedLayout, bytes: u32) -> u32 {
    bytes / layout.pitch * layout.panel_bytes() + bytes % layout.pitch
}

/// What a descriptor says beside where the operand begins: the distances between panels and between groups of rows, in
/// units of 16 bytes, and the swizzle.
fn described(layout: &SharedLayout, along_rows: bool) -> u64 {
    let swizzle: u64 = match layout.pitch {
        128 => 1,
        64 => 2,
        _ => 3,
    };
    // Where K runs along the rows, an instruction stays in one panel, and does not ask for the distance.
    let panels = if along_rows { layout.panel_bytes() } else { 16 };
    let lines = LINES * layout.pitch;
    u64::from(panels >> 4) << 16 | u64::from(lines >> 4) << 32 | swizzle << 62
}
