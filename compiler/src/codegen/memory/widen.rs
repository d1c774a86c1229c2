//! Packed elements of slots, widened to 16 bits as they are read.
//!
//! A fragment's thread has two neighbours of every eight columns: one byte of a word. Four lanes of a row read the same 16 bytes, and each
//! keeps its byte of the four words; a byte's two values then become a register of two halves by moving bits: an e2m1 shifted into the place
//! of a half's exponent is the value but for the difference of the exponents' biases, subnormal ones too. Units that work on bits are what
//! the widening waits for: each value costs them as little as possible.

use std::collections::HashMap;

use tesserine_set::DType;

use crate::{
    codegen::{
        builder::{Effect, I32, Place, Val},
        lower::Lower,
        ptx_table, roles,
    },
    diagnostics::Diagnostic,
    ir::{
        Op,
        role::{ChannelId, OpKind},
    },
    layout::{Layout, swizzle::CHUNK},
    target::Feature,
};

/// Columns of packed elements in a chunk, and in a word.
const OF_CHUNK: u32 = 32;
const OF_WORD: u32 = 8;

/// What stands between the exponent of an e2m1 in a half's place and the half's: the bits to the right that it moves from the top of a
/// half, the mask of all but the sign, and two halves of the power of two.
struct Half {
    shift: u32,
    mask: i64,
    rebias: i64,
    product: &'static str,
    /// Times this, a code of four bits in a half has its sign at the top and the rest where the mask is, if the two do not meet.
    spread: Option<u32>,
}

impl Half {
    fn of(elem: DType) -> Option<Half> {
        match elem {
            DType::Bf16 => Some(Half {
                shift: 6,
                mask: 0x01C0_01C0,
                rebias: 0x7E80_7E80,
                product: "mul.rn.bf16x2",
                spread: Some(1 << 12 | 1 << 6),
            }),
            DType::F16 => Some(Half {
                shift: 3,
                mask: 0x0E00_0E00,
                rebias: 0x7400_7400,
                product: "mul.rn.f16x2",
                spread: None,
            }),
            _ => None,
        }
    }
}

impl Lower<'_> {
    /// Reads a tile of e2m1 as one of 16-bit floats.
    pub(super) fn read_widened(
        &mut self,
        op: &Op<OpKind>,
        channel: ChannelId,
        tile: u32,
        layout: &Layout,
    ) -> Result<Vec<Val>, Diagnostic> {
        let elem = self.elem(op.results[0]);
        let whole = |v: &Vec<u32>| v[1].is_multiple_of(OF_WORD);
        let pairs = layout.shape.len() == 2 && layout.register.first() == Some(&vec![0, 1]);
        let lanes = layout.lane[..2] == [vec![0, 2], vec![0, 4]]
            && layout.lane[2..]
                .iter()
                .chain(&layout.warp)
                .all(|v| v[1] == 0);
        let columns = layout.block()[1].is_multiple_of(OF_WORD)
            && layout.shape[1].is_multiple_of(OF_CHUNK)
            && layout.register.iter().skip(1).all(whole);
        let Some(half) = Half::of(elem).filter(|_| pairs && lanes && columns) else {
            return Err(self.not_yet("a packed tile of a slot that is no left factor of a product"));
        };
        let threads = Layout {
            lane: [vec![vec![0, 0]; 2], layout.lane[2..].to_vec()].concat(),
            ..layout.clone()
        };
        let mut plan = self.shared_plan(channel, tile, op.operands[0], &threads);
        let select = {
            let place = self.b.go_to(Place::Prologue);
            let lane = self.b.and(self.thread, Val::i32(3));
            let own = self.b.mul(lane, Val::i32(0x11));
            let select = self.b.add(own, Val::i32(0x40));
            self.b.go_to(place);
            select
        };
        let mut chunks: HashMap<[u32; 2], (Val, Val)> = HashMap::new();
        let mut regs = Vec::with_capacity(layout.registers() as usize);
        for first in (0..layout.registers()).step_by(2) {
            let at = layout.coordinate(first, 0, 0);
            let key = [at[0], at[1] / OF_CHUNK];
            let (low, high) = match chunks.get(&key) {
                Some(&found) => found,
                None => {
                    let (pointer, constant) =
                        self.shared_place(&mut plan, [key[0], key[1] * OF_CHUNK]);
                    let words = ptx_table::words(CHUNK);
                    let template = ptx_table::load_shared(words, constant.into());
                    let four = self.b.asm(
                        &template.text,
                        &template.constraints,
                        &vec![I32; words.count],
                        &[pointer],
                        Effect::Memory,
                    );
                    let lower = self.permute(four[0], four[1], select);
                    let upper = self.permute(four[2], four[3], select);
                    let all = self.permute(lower, upper, Val::i32(0x5410));
                    let found = match half.spread {
                        Some(_) => {
                            let codes = Val::i32(0x0F0F_0F0F);
                            let above = self.b.lshr(all, 4);
                            (self.b.and(all, codes), self.b.and(above, codes))
                        }
                        None => (self.b.shl(all, 4), all),
                    };
                    chunks.insert(key, found);
                    found
                }
            };
            // The lower four bits at the top of the lower half, the upper ones at that of the upper.
            let byte = at[1] % OF_CHUNK / OF_WORD;
            if let Some(spread) = half.spread {
                // A code at the bottom of each half, and above it its byte's highest bit, which is 0: shifts are a multiplication, which
                // other units do than those that choose bytes and bits.
                let picked = Val::i32((8 + byte) << 12 | (4 + byte) << 8 | (8 + byte) << 4 | byte);
                let codes = self.permute(low, high, picked);
                let text = format!("mul.lo.u32 $0, $1, {spread};");
                let spread = self.b.asm(&text, "=r,r", &[I32], &[codes], Effect::Pure)[0];
                let mask = Val::int(half.mask | 0x8000_8000_u32 as i32 as i64, I32);
                let bits = self.b.and(spread, mask);
                let rebias = Val::int(half.rebias, I32);
                let word = self.product_of_halves(half.product, bits, rebias);
                regs.extend(self.unpack(&[word], elem, 2));
                continue;
            }
            let picked = Val::i32((4 + byte) << 12 | byte << 4);
            let tops = self.permute(low, high, picked);
            // The power has the sign.
            let sign = Val::int(0x8000_8000_u32 as i32 as i64, I32);
            let sign = self.b.and(tops, sign);
            let power = self.b.xor(sign, Val::int(half.rebias, I32));
            let size = self.b.lshr(tops, half.shift);
            let size = self.b.and(size, Val::int(half.mask, I32));
            let word = self.product_of_halves(half.product, size, power);
            regs.extend(self.unpack(&[word], elem, 2));
        }
        Ok(regs)
    }

    /// Bytes of two words, chosen by the four nibbles of `select`.
    fn permute(&mut self, a: Val, b: Val, select: Val) -> Val {
        self.b
            .call(Some(I32), "llvm.nvvm.prmt", &[a, b, select], Effect::Pure)
    }

    /// Whether products of 16-bit floats are computed two at a time: between roles, where threads make factors of products.
    pub(in crate::codegen) fn multiplies_pairs(&self, elem: DType, count: usize) -> bool {
        Half::of(elem).is_some()
            && count.is_multiple_of(2)
            && roles::is_needed(self.kernel)
            && self.target.has(Feature::Wgmma)
    }

    /// The products of registers, in pairs.
    pub(in crate::codegen) fn products_of_pairs(
        &mut self,
        a: &[Val],
        b: &[Val],
        elem: DType,
    ) -> Vec<Val> {
        let name = Half::of(elem).map_or("", |half| half.product);
        let (left, right) = (self.pack(a, elem), self.pack(b, elem));
        let pairs: Vec<Val> = left
            .into_iter()
            .zip(right)
            .map(|(a, b)| self.product_of_halves(name, a, b))
            .collect();
        self.unpack(&pairs, elem, a.len() as u32)
    }

    /// Two halves times two.
    fn product_of_halves(&mut self, name: &str, a: Val, b: Val) -> Val {
        let text = format!("{name} $0, $1, $2;");
        self.b.asm(&text, "=r,r,r", &[I32], &[a, b], Effect::Pure)[0]
    }
}
