//! `mma.sync`: the product of fragments of a warp (PTX ISA §9.7.14).
//!
//! All the shapes here lay their operands out in the same way. With `e` elements in a register, lane `l`, `g = l / 4` and `t = l % 4`:
//!
//! - A, by rows: a register holds row `g` of a block of 8 rows, and columns `e t` to `e t + e - 1` of a block of `4 e` columns. Its blocks
//!   follow each other down first: rows 0 to 7, rows 8 to 15, then the next block of columns.
//! - B, by columns: a register holds column `g`, rows `e t` to `e t + e - 1` of a block of `4 e` rows; blocks go down.
//! - C and D: element `2 h + i` is row `g + 8 h`, column `2 t + i`; with `.f16` both elements of a row share a register.

use super::element::{Accumulator, Element};

/// Product of bits of a `.b1` operation (PTX ISA §9.7.14.5.14).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BitProduct {
    Xor,
    And,
}

impl BitProduct {
    #[inline]
    pub fn of(self, x: u32, y: u32) -> u32 {
        match self {
            BitProduct::Xor => x ^ y,
            BitProduct::And => x & y,
        }
    }
}

/// An `mma.sync` that is dense and unscaled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Mma {
    /// 8 or 16.
    pub m: usize,
    /// Always 8 columns of D.
    pub k: usize,
    pub a: Element,
    pub b: Element,
    pub c: Accumulator,
    pub d: Accumulator,
    /// `.satfinite` of integers: sums beyond `.s32` become its nearest end.
    pub saturate: bool,
    pub bits: BitProduct,
}

/// Columns of D and B.
const N: usize = 8;
/// The most rows of A, and the most elements of a row: of integers but for `.b1`, and of floating-point numbers.
const M: usize = 16;
const K: usize = 64;
const FLOAT_K: usize = 32;

impl Mma {
    /// Whether the ISA has this shape with these types, and if so the first target that has it.
    pub fn first_target(&self) -> Option<u32> {
        use Accumulator as D;
        use Element::*;
        let floats = self.c == self.d && matches!(self.c, D::F16 | D::F32);
        let f32s = self.c == D::F32 && self.d == D::F32;
        let s32s = self.c == D::S32 && self.d == D::S32;
        let target = match (self.a, self.b, self.m, self.k) {
            (F16, F16, 16, 8) if floats => 75,
            (F16, F16, 16, 16) if floats => 80,
            (Bf16, Bf16, 16, 8 | 16) if f32s => 80,
            (Tf32, Tf32, 16, 4 | 8) if f32s => 80,
            (E4m3 | E5m2, E4m3 | E5m2, 16, 16 | 32) if floats => 89,
            (S8 | U8, S8 | U8, 8, 16) if s32s => 75,
            (S8 | U8, S8 | U8, 16, 16 | 32) if s32s => 80,
            (S4 | U4, S4 | U4, 8, 32) if s32s => 75,
            (S4 | U4, S4 | U4, 16, 32 | 64) if s32s => 80,
            (B1, B1, 8, 128) if s32s && self.bits == BitProduct::Xor => 75,
            (B1, B1, 8, 128) | (B1, B1, 16, 128 | 256) if s32s => 80,
            (F64, F64, 8, 4) if self.c == D::F64 && self.d == D::F64 => 80,
            (F64, F64, 16, 4 | 8 | 16) if self.c == D::F64 && self.d == D::F64 => 90,
            _ => return None,
        };
        let saturable = s32s && self.a != B1;
        (!self.saturate || saturable).then_some(target)
    }

    /// Registers of A: of 64 bits for `.f64`, of 32 bits otherwise.
    pub fn a_registers(&self) -> usize {
        self.m * self.k * self.a.bits() / (32 * self.register_bits())
    }

    /// Registers of B.
    pub fn b_registers(&self) -> usize {
        N * self.k * self.b.bits() / (32 * self.register_bits())
    }

    /// Registers of C or D, of that type.
    pub fn accumulator_registers(&self, of: Accumulator) -> usize {
        self.m * N / (32 * of.per_register())
    }

    fn register_bits(&self) -> usize {
        if self.a == Element::F64 { 64 } else { 32 }
    }

    /// D = A B + C on 32-bit registers; each slice has as many registers as the shape says. For all types but `.f64`.
    pub fn run(&self, a: &[[u32; 32]], b: &[[u32; 32]], c: &[[u32; 32]], d: &mut [[u32; 32]]) {
        match self.a {
            Element::B1 => self.run_bits(a, b, c, d),
            _ if self.a.is_integer() => self.run_integers(a, b, c, d),
            _ => self.run_floats(a, b, c, d),
        }
    }

    fn run_floats(&self, a: &[[u32; 32]], b: &[[u32; 32]], c: &[[u32; 32]], d: &mut [[u32; 32]]) {
        let mut sums = [[0.0; N]; M];
        let (mut left, mut right) = ([0.0; M * FLOAT_K], [0.0; FLOAT_K * N]);
        // The common types by themselves, so that their decoders are inlined.
        match self.a {
            Element::F16 => unpack_a(self, a, &mut left, |w, out| Element::F16.floats(w, out)),
            Element::Bf16 => unpack_a(self, a, &mut left, |w, out| Element::Bf16.floats(w, out)),
            other => unpack_a(self, a, &mut left, |w, out| other.floats(w, out)),
        }
        match self.b {
            Element::F16 => unpack_b(self, b, &mut right, |w, out| Element::F16.floats(w, out)),
            Element::Bf16 => unpack_b(self, b, &mut right, |w, out| Element::Bf16.floats(w, out)),
            other => unpack_b(self, b, &mut right, |w, out| other.floats(w, out)),
        }
        for (h, row) in c.iter().enumerate() {
            for (lane, &word) in row.iter().enumerate() {
                let (r, at) = self.accumulator_place(self.c, h, lane);
                self.c
                    .floats(word, &mut sums[r][at..at + self.c.per_register()]);
            }
        }
        let rows = left.chunks_exact(2 * self.k);
        for (rows, sums) in rows.zip(sums[..self.m].as_chunks_mut().0) {
            multiply_rows(rows, &right, sums);
        }
        for (h, row) in d.iter_mut().enumerate() {
            for (lane, word) in row.iter_mut().enumerate() {
                let (r, at) = self.accumulator_place(self.d, h, lane);
                *word = self.d.encode(&sums[r][at..at + self.d.per_register()]);
            }
        }
    }

    fn run_integers(&self, a: &[[u32; 32]], b: &[[u32; 32]], c: &[[u32; 32]], d: &mut [[u32; 32]]) {
        let (mut left, mut right, mut sums) = ([0; M * K], [0; K * N], [[0; N]; M]);
        unpack_a(self, a, &mut left, |word, out| self.a.integers(word, out));
        unpack_b(self, b, &mut right, |word, out| self.b.integers(word, out));
        for (row, sums) in left.chunks_exact(self.k).zip(&mut sums[..self.m]) {
            for (&x, column) in row.iter().zip(right.chunks_exact(N)) {
                for (sum, &y) in sums.iter_mut().zip(column) {
                    // At most 64 products of at most 16 bits.
                    *sum += x * y;
                }
            }
        }
        self.add_integers(&sums, c, d);
    }

    fn run_bits(&self, a: &[[u32; 32]], b: &[[u32; 32]], c: &[[u32; 32]], d: &mut [[u32; 32]]) {
        let words = self.k / 32;
        let blocks = self.m / 8;
        let mut sums = [[0; N]; M];
        for (r, row) in sums[..self.m].iter_mut().enumerate() {
            for (column, sum) in row.iter_mut().enumerate() {
                for w in 0..words {
                    let x = a[w / 4 * blocks + r / 8][4 * (r % 8) + w % 4];
                    let y = b[w / 4][4 * column + w % 4];
                    *sum += self.bits.of(x, y).count_ones() as i32;
                }
            }
        }
        self.add_integers(&sums, c, d);
    }

    fn add_integers(&self, sums: &[[i32; N]; M], c: &[[u32; 32]], d: &mut [[u32; 32]]) {
        for (h, (c, d)) in c.iter().zip(d).enumerate() {
            for (lane, (&c, d)) in c.iter().zip(d).enumerate() {
                let (r, at) = self.accumulator_place(Accumulator::S32, h, lane);
                *d = add_integer(c, sums[r][at], self.saturate);
            }
        }
    }

    /// D = A B + C on `.f64`, whose products and sums are rounded as fused multiply-adds in the order of k (PTX ISA §9.7.14.5.14 gives
    /// `.rn` and no order).
    pub fn run_doubles(
        &self,
        a: &[[u64; 32]],
        b: &[[u64; 32]],
        c: &[[u64; 32]],
        d: &mut [[u64; 32]],
    ) {
        let blocks = self.m / 8;
        for (h, (c, d)) in c.iter().zip(d).enumerate() {
            for (lane, (&c, d)) in c.iter().zip(d).enumerate() {
                let (r, column) = self.accumulator_place(Accumulator::F64, h, lane);
                let mut sum = f64::from_bits(c);
                for k in 0..self.k {
                    let x = f64::from_bits(a[k / 4 * blocks + r / 8][4 * (r % 8) + k % 4]);
                    let y = f64::from_bits(b[k / 4][4 * column + k % 4]);
                    sum = x.mul_add(y, sum);
                }
                *d = if sum.is_nan() {
                    0x7fff_ffff_ffff_ffff
                } else {
                    sum.to_bits()
                };
            }
        }
    }

    /// Row and first column of what a lane's register of C or D holds.
    #[inline]
    fn accumulator_place(&self, of: Accumulator, register: usize, lane: usize) -> (usize, usize) {
        let element = register * of.per_register();
        (lane / 4 + 8 * (element / 2), 2 * (lane % 4) + element % 2)
    }
}

/// `c + sum` of 32 bits: wrapped, or clamped to the nearest end.
#[inline]
pub fn add_integer(c: u32, sum: i32, saturate: bool) -> u32 {
    if saturate {
        (c as i32).saturating_add(sum) as u32
    } else {
        c.wrapping_add(sum as u32)
    }
}

/// Adds two rows, one after the other in `rows`, times a matrix of 8 columns to 8 sums each.
#[inline]
pub fn multiply_rows(rows: &[f64], right: &[f64], sums: &mut [[f64; N]; 2]) {
    let (first, second) = rows.split_at(rows.len() / 2);
    // Copies, for registers.
    let [mut upper, mut lower] = *sums;
    for ((&x, &y), column) in first.iter().zip(second).zip(right.as_chunks::<N>().0) {
        for ((upper, lower), &z) in upper.iter_mut().zip(&mut lower).zip(column) {
            *upper += x * z;
            *lower += y * z;
        }
    }
    *sums = [upper, lower];
}

/// A's elements, row by row, `k` a row.
#[inline]
fn unpack_a<T>(mma: &Mma, registers: &[[u32; 32]], out: &mut [T], decode: impl Fn(u32, &mut [T])) {
    let (e, blocks) = (32 / mma.a.bits(), mma.m / 8);
    for (r, register) in registers.iter().enumerate() {
        for (lane, &word) in register.iter().enumerate() {
            let row = lane / 4 + 8 * (r % blocks);
            let at = row * mma.k + e * (4 * (r / blocks) + lane % 4);
            decode(word, &mut out[at..at + e]);
        }
    }
}

/// B's elements, k by k, 8 columns each.
#[inline]
fn unpack_b<T: Copy + Default>(
    mma: &Mma,
    registers: &[[u32; 32]],
    out: &mut [T],
    decode: impl Fn(u32, &mut [T]),
) {
    let e = 32 / mma.b.bits();
    let mut elements = [T::default(); 8];
    for (r, register) in registers.iter().enumerate() {
        for (lane, &word) in register.iter().enumerate() {
            decode(word, &mut elements[..e]);
            let first = e * (4 * r + lane % 4);
            for (i, &element) in elements[..e].iter().enumerate() {
                out[(first + i) * N + lane / 4] = element;
            }
        }
    }
}
