//! A warp's registers: arrays over its 32 lanes, and which lanes of each were written.

use crate::isa::matrix::group::Products;
use crate::isa::operands::{Double, Dst, Predicate, RegisterFile, Src, Src32, Src64, SrcP, Word};

/// Lanes of a warp.
pub(crate) const LANES: usize = 32;

#[derive(Clone, Debug, Default)]
pub(crate) struct Registers {
    /// The first of `words` have 16 bits.
    pub halves: u32,
    pub words: Vec<[u32; LANES]>,
    pub doubles: Vec<[u64; LANES]>,
    pub predicates: Vec<u32>,
    /// By the numbering of [`RegisterFile`]: the lanes that were written, and are not pending.
    pub defined: Vec<u32>,
    /// Products of warp groups that were not waited for; none of their registers are `defined`.
    pub products: Products,
    /// The carry flag, `CC.CF`.
    pub carry: u32,
}

impl Registers {
    pub(crate) fn new(file: &RegisterFile) -> Registers {
        Registers {
            halves: file.halves,
            words: vec![[0; LANES]; file.words as usize],
            doubles: vec![[0; LANES]; file.doubles as usize],
            predicates: vec![0; file.predicates as usize],
            defined: vec![0; file.tracked() as usize],
            products: Products::default(),
            carry: 0,
        }
    }

    #[inline]
    pub(crate) fn word(&self, source: Src32) -> [u32; LANES] {
        match source {
            Src32::Reg(word) => self.words[word.0 as usize],
            Src32::Imm(value) => [value; LANES],
        }
    }

    #[inline]
    pub(crate) fn double(&self, source: Src64) -> [u64; LANES] {
        match source {
            Src64::Reg(double) => self.doubles[double.0 as usize],
            Src64::Imm(value) => [value; LANES],
        }
    }

    /// Lanes where it holds.
    #[inline]
    pub(crate) fn predicate(&self, source: SrcP) -> u32 {
        match source {
            SrcP::Reg { predicate, negated } => {
                let value = self.predicates[predicate.0 as usize];
                if negated { !value } else { value }
            }
            SrcP::Imm(true) => u32::MAX,
            SrcP::Imm(false) => 0,
        }
    }

    /// Any source, zero-extended to 64 bits; of 128-bit ones the low half.
    pub(crate) fn any(&self, source: Src) -> [u64; LANES] {
        match source {
            Src::Small(source) => self.word(source).map(u64::from),
            Src::Large(source) => self.double(source),
            Src::Quad(place) => self.doubles[place.0 as usize],
        }
    }

    #[inline]
    pub(crate) fn set_word(&mut self, to: Word, lanes: u32, values: &[u32; LANES]) {
        let at = to.0 as usize;
        blend(&mut self.words[at], lanes, values);
        self.defined[at] |= lanes;
    }

    #[inline]
    pub(crate) fn set_double(&mut self, to: Double, lanes: u32, values: &[u64; LANES]) {
        blend(&mut self.doubles[to.0 as usize], lanes, values);
        let at = self.words.len() + to.0 as usize;
        self.defined[at] |= lanes;
    }

    #[inline]
    pub(crate) fn set_predicate(&mut self, to: Predicate, lanes: u32, values: u32) {
        let predicate = &mut self.predicates[to.0 as usize];
        *predicate = *predicate & !lanes | values & lanes;
        let at = self.words.len() + self.doubles.len() + to.0 as usize;
        self.defined[at] |= lanes;
    }

    /// Low bits into a register of any width; a 128-bit one gets zeroes above.
    pub(crate) fn set_any(&mut self, to: Dst, lanes: u32, values: &[u64; LANES]) {
        match to {
            Dst::Word(word) => {
                let mask = if word.0 < self.halves {
                    0xffff
                } else {
                    u32::MAX
                };
                self.set_word(word, lanes, &values.map(|v| v as u32 & mask));
            }
            Dst::Double(double) => self.set_double(double, lanes, values),
            Dst::Quad(double) => {
                self.set_double(double, lanes, values);
                self.set_double(Double(double.0 + 1), lanes, &[0; LANES]);
            }
            Dst::Sink => {}
        }
    }
}

#[inline]
fn blend<T: Copy>(into: &mut [T; LANES], lanes: u32, values: &[T; LANES]) {
    if lanes == u32::MAX {
        *into = *values;
        return;
    }
    for lane in 0..LANES {
        if lanes >> lane & 1 != 0 {
            into[lane] = values[lane];
        }
    }
}
