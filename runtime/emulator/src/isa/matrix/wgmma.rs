//! `wgmma.mma_async`: the product of a warp group, with operands in shared memory (PTX ISA §9.7.15).
//!
//! D has 64 rows, of which warp `w` of the group holds rows `16 w` to `16 w + 15`. Within them, and with `g = l / 4` and `t = l % 4` of lane
//! `l`: elements `4 j` to `4 j + 3` are (g, 8 j + 2 t), (g, 8 j + 2 t + 1), (g + 8, 8 j + 2 t) and (g + 8, 8 j + 2 t + 1); with `.f16` two
//! elements share a register. A in registers is laid out as A of `mma.sync` with 16 rows.
//!
//! Operands in shared memory consist of units of 16 bytes. Where k runs along a unit the operand is K-major, where m or n does, it is
//! MN-major (the transposed forms, of 16-bit types only). An instruction takes 32 bytes of k, two units, of a K-major operand.

use std::ops::Range;

use super::element::{Accumulator, Element};
use super::mma::{BitProduct, add_integer, multiply_rows};

/// Rows of D.
const M: usize = 64;

/// Rows of D that a warp holds.
const ROWS: usize = 16;

/// A unit's bytes.
const UNIT: u32 = 16;

/// How units are permuted within shared memory (PTX ISA §9.7.15.5.1.2, "Matrix Descriptor Format").
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Swizzle {
    None,
    Bytes32,
    Bytes64,
    Bytes128,
}

impl Swizzle {
    /// Bytes of a row of the pattern.
    fn row(self) -> u32 {
        match self {
            Swizzle::None => 16,
            Swizzle::Bytes32 => 32,
            Swizzle::Bytes64 => 64,
            Swizzle::Bytes128 => 128,
        }
    }
}

/// A matrix descriptor (PTX ISA §9.7.15.5.1.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Descriptor {
    /// Where the operand starts in the shared window, in bytes.
    pub start: u32,
    /// The leading dimension's byte offset.
    pub leading: u32,
    /// The stride dimension's byte offset.
    pub stride: u32,
    /// Which row of the swizzle's pattern the row of 128 bytes with address 0 is.
    pub base_offset: u32,
    pub swizzle: Swizzle,
}

impl Descriptor {
    /// From its 64 bits: bits 0 to 13, 16 to 29 and 32 to 45 are addresses in units of 16 bytes, 49 to 51 the base offset, 62 and 63 the
    /// swizzle. The other bits mean nothing on `sm_90a`.
    pub fn decode(bits: u64) -> Descriptor {
        let field = |at: u32| (bits >> at & 0x3fff) as u32 * UNIT;
        Descriptor {
            start: field(0),
            leading: field(16),
            stride: field(32),
            base_offset: (bits >> 49 & 7) as u32,
            swizzle: match bits >> 62 {
                0 => Swizzle::None,
                1 => Swizzle::Bytes128,
                2 => Swizzle::Bytes64,
                _ => Swizzle::Bytes32,
            },
        }
    }

    /// Where a unit lies, before the permutation: `along` counts units along the contiguous dimension, `across` elements of the other.
    ///
    /// Eight rows of `Swizzle::row` bytes make an atom. K-major: the stride is from eight rows to the next eight, and the leading offset, of
    /// use without a swizzle only, from a unit to the next. MN-major: the leading offset is from an atom to the next along m or n, the stride
    /// from eight k to the next eight; without a swizzle those two change places.
    fn offset(&self, along: u32, across: u32, k_major: bool) -> u32 {
        let row = self.swizzle.row();
        let per_row = row / UNIT;
        let (atom, within) = (along / per_row, along % per_row);
        let (group, line) = (across / 8, across % 8);
        let (atom_step, group_step) = match (k_major, self.swizzle) {
            // A row of the pattern may be longer than an instruction's 32 bytes of k, never shorter than them with a swizzle.
            (true, _) => (self.leading, self.stride),
            (false, Swizzle::None) => (self.stride, self.leading),
            (false, _) => (self.leading, self.stride),
        };
        atom * atom_step + group * group_step + line * row + within * UNIT
    }

    /// The address of a unit in the shared window: bits of the row within the pattern permute the units of the row.
    pub fn address(&self, along: u32, across: u32, k_major: bool) -> u32 {
        let linear = self.start.wrapping_add(self.offset(along, across, k_major)) & 0x3_ffff;
        let row = (linear >> 7).wrapping_sub(self.base_offset);
        let permutation = match self.swizzle {
            Swizzle::None => 0,
            Swizzle::Bytes32 => row & 1,
            Swizzle::Bytes64 => row & 3,
            Swizzle::Bytes128 => row & 7,
        };
        linear ^ (permutation << 4)
    }
}

/// A `wgmma.mma_async` that is dense.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Wgmma {
    /// Columns of D.
    pub n: usize,
    pub a: Element,
    pub b: Element,
    pub d: Accumulator,
    /// `imm-scale-a` and `imm-scale-b` are -1.
    pub negate_a: bool,
    pub negate_b: bool,
    /// A and B are MN-major in shared memory.
    pub transpose_a: bool,
    pub transpose_b: bool,
    /// `.satfinite` of integers.
    pub saturate: bool,
}

/// Where A lies.
#[derive(Clone, Copy, Debug)]
pub enum Left<'a> {
    Shared(Descriptor),
    /// The warp's four registers.
    Registers(&'a [[u32; 32]; 4]),
}

impl Wgmma {
    /// Elements of k: 32 bytes of them.
    pub fn k(&self) -> usize {
        256 / self.a.bits()
    }

    /// Registers of D of a thread.
    pub fn accumulator_registers(&self) -> usize {
        M * self.n / (128 * self.d.per_register())
    }

    /// Whether the ISA has this shape with these types and flags (PTX ISA §9.7.15.5.2); if not, why.
    pub fn check(&self) -> Result<(), &'static str> {
        use Accumulator as D;
        use Element::*;
        match (self.a, self.b, self.d) {
            (F16, F16, D::F16 | D::F32)
            | (Bf16, Bf16, D::F32)
            | (Tf32, Tf32, D::F32)
            | (E4m3 | E5m2, E4m3 | E5m2, D::F16 | D::F32)
            | (S8 | U8, S8 | U8, D::S32)
            | (B1, B1, D::S32) => {}
            _ => return Err("no such combination of types"),
        }
        if !(8..=256).contains(&self.n) || !self.n.is_multiple_of(8) {
            return Err("n must be a multiple of 8 up to 256");
        }
        if self.a.is_integer() && self.n > 24 && !self.n.is_multiple_of(16) {
            return Err("n of integer types must be 8, 24 or a multiple of 16");
        }
        if self.a.bits() != 16 && (self.transpose_a || self.transpose_b) {
            return Err("only 16-bit types have transposed operands");
        }
        if self.a.is_integer() && (self.negate_a || self.negate_b) {
            return Err("integer types have no scale");
        }
        if self.saturate && (self.a == B1 || !self.a.is_integer()) {
            return Err("only 8-bit integers saturate");
        }
        Ok(())
    }

    /// D = A B + D, or A B where `accumulate` is false, of a warp of the group: its 16 rows of D need those of A, and all of B. `read` gives the
    /// 16 bytes at an address of the shared window; an error of its leaves D as it was. `d` has as many registers as
    /// [`Wgmma::accumulator_registers`] says.
    pub fn run<E>(
        &self,
        warp: usize,
        a: Left<'_>,
        b: Descriptor,
        accumulate: bool,
        d: &mut [[u32; 32]],
        read: &mut dyn FnMut(u32) -> Result<[u8; 16], E>,
    ) -> Result<(), E> {
        let left = match a {
            Left::Shared(descriptor) => {
                let first = ROWS * warp;
                let k_major = !self.transpose_a;
                Words::from_shared(&descriptor, first..first + ROWS, k_major, read)?
            }
            Left::Registers(registers) => Words::from_registers(registers),
        };
        let right = Words::from_shared(&b, 0..self.n, !self.transpose_b, read)?;
        match self.a {
            Element::B1 => self.run_bits(&left, &right, accumulate, d),
            _ if self.a.is_integer() => self.run_integers(&left, &right, accumulate, d),
            _ => self.run_floats(&left, &right, accumulate, d),
        }
        Ok(())
    }

    fn run_floats(&self, left: &Words, right: &Words, accumulate: bool, d: &mut [[u32; 32]]) {
        let k = self.k();
        let mut rows = vec![0.0; ROWS * k];
        left.unpack(self.a.bits(), &mut rows, |word, out| {
            self.a.floats(word, out)
        });
        let mut columns = vec![0.0; self.n * k];
        right.unpack(self.b.bits(), &mut columns, |word, out| {
            self.b.floats(word, out)
        });
        if self.negate_a != self.negate_b {
            rows.iter_mut().for_each(|x| *x = -*x);
        }
        // Eight columns at a time, k by k, as the inner product wants them.
        let mut panel = vec![0.0; 8 * k];
        let per_register = self.d.per_register();

        for j in 0..self.n / 8 {
            for (c, column) in columns[8 * j * k..][..8 * k].chunks_exact(k).enumerate() {
                for (to, &x) in panel[c..].iter_mut().step_by(8).zip(column) {
                    *to = x;
                }
            }
            for (pair, two) in rows.chunks_exact(2 * k).enumerate() {
                let mut sums = [[0.0; 8]; 2];
                // Which sums a register of a lane holds: row of the two, first column, register, lane.
                let places = (0..2).flat_map(|row| {
                    let r = 2 * pair + row;
                    (0..8).step_by(per_register).map(move |column| {
                        let element = 4 * j + 2 * (r / 8) + column % 2;
                        let lane = 4 * (r % 8) + column / 2;
                        (row, column, element / per_register, lane)
                    })
                });
                if accumulate {
                    for (row, column, register, lane) in places.clone() {
                        let out = &mut sums[row][column..column + per_register];
                        self.d.floats(d[register][lane], out);
                    }
                }
                multiply_rows(two, &panel, &mut sums);
                for (row, column, register, lane) in places {
                    d[register][lane] = self.d.encode(&sums[row][column..column + per_register]);
                }
            }
        }
    }

    fn run_integers(&self, left: &Words, right: &Words, accumulate: bool, d: &mut [[u32; 32]]) {
        let k = self.k();
        let (mut rows, mut columns) = (vec![0; ROWS * k], vec![0; self.n * k]);
        left.unpack(self.a.bits(), &mut rows, |word, out| {
            self.a.integers(word, out)
        });
        right.unpack(self.b.bits(), &mut columns, |word, out| {
            self.b.integers(word, out)
        });
        self.store_integers(accumulate, d, |row, column| {
            let (row, column) = (&rows[row * k..][..k], &columns[column * k..][..k]);
            row.iter().zip(column).map(|(x, y)| x * y).sum()
        });
    }

    /// `.and` is the only product of bits here (PTX ISA §9.7.15.5.2).
    fn run_bits(&self, left: &Words, right: &Words, accumulate: bool, d: &mut [[u32; 32]]) {
        let product = BitProduct::And;
        self.store_integers(accumulate, d, |row, column| {
            let pairs = left.0[row].iter().zip(&right.0[column]);
            pairs
                .map(|(&x, &y)| product.of(x, y).count_ones() as i32)
                .sum()
        });
    }

    fn store_integers(
        &self,
        accumulate: bool,
        d: &mut [[u32; 32]],
        sum: impl Fn(usize, usize) -> i32,
    ) {
        for (r, register) in d.iter_mut().enumerate() {
            for (lane, to) in register.iter_mut().enumerate() {
                let row = 8 * (r % 4 / 2) + lane / 4;
                let column = 8 * (r / 4) + 2 * (lane % 4) + r % 2;
                let before = if accumulate { *to } else { 0 };
                *to = add_integer(before, sum(row, column), self.saturate);
            }
        }
    }
}

/// Rows of A, or columns of B: 32 bytes of k each.
#[derive(Debug)]
struct Words(Vec<[u32; 8]>);

impl Words {
    /// Those rows or columns; whole units of them where the operand is MN-major.
    fn from_shared<E>(
        descriptor: &Descriptor,
        range: Range<usize>,
        k_major: bool,
        read: &mut dyn FnMut(u32) -> Result<[u8; 16], E>,
    ) -> Result<Words, E> {
        let mut rows = vec![[0_u32; 8]; range.len()];
        if k_major {
            for (r, row) in range.zip(&mut rows) {
                for along in 0..2 {
                    let unit = read(descriptor.address(along, r as u32, true))?;
                    for (to, bytes) in row[4 * along as usize..].iter_mut().zip(unit.chunks(4)) {
                        *to = u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
                    }
                }
            }
        } else {
            // 16-bit elements: a unit is eight rows' element of one k.
            for (along, rows) in (range.start / 8..).zip(rows.chunks_exact_mut(8)) {
                for k in 0..16 {
                    let unit = read(descriptor.address(along as u32, k as u32, false))?;
                    for (row, bytes) in rows.iter_mut().zip(unit.chunks(2)) {
                        let element = u32::from(u16::from_le_bytes([bytes[0], bytes[1]]));
                        row[k / 2] |= element << (16 * (k % 2));
                    }
                }
            }
        }
        Ok(Words(rows))
    }

    fn from_registers(registers: &[[u32; 32]; 4]) -> Words {
        let mut rows = vec![[0; 8]; ROWS];
        for (r, register) in registers.iter().enumerate() {
            for (lane, &word) in register.iter().enumerate() {
                rows[8 * (r % 2) + lane / 4][4 * (r / 2) + lane % 4] = word;
            }
        }
        Words(rows)
    }

    fn unpack<T>(&self, bits: usize, out: &mut [T], decode: impl Fn(u32, &mut [T])) {
        let words = self.0.iter().flatten();
        for (&word, out) in words.zip(out.chunks_exact_mut(32 / bits)) {
            decode(word, out);
        }
    }
}
