//! Fragments of matrices and their products (PTX ISA §9.7.14: `ldmatrix`, `stmatrix`, `movmatrix`, `mma.sync`).
//!
//! Operands of products are drawn twice: small whole numbers, whose sums are exact whatever the order of additions, so that every bit is fixed;
//! and floats of ordinary size, compared within a bound.

use crate::{
    kind::{B32, BF16X2, Bound, E4M3X4, E5M2X4, Element, F16X2, F32, F64, Operand, TF32},
    snippet::{SM_75, SM_80, SM_89, SM_90, Since, Snippet},
};

const FAMILY: &str = "matrix";
const PRODUCT: &str = "mma";

const LANES: usize = 32;

pub fn snippets() -> Vec<Snippet> {
    let mut all = Vec::new();
    loads(&mut all);
    stores(&mut all);
    all.push(
        Snippet::new(FAMILY, "movmatrix.sync.aligned.m8n8.trans.b16")
            .since(Since {
                ptx: (7, 8),
                ..SM_75
            })
            .takes(&[B32])
            .gives(B32, Bound::Bits)
            .body("movmatrix.sync.aligned.m8n8.trans.b16 %o0, %i0;")
            .refer_all(|x| {
                let warp = |w: &[u64]| {
                    // Row l / 4, columns 2 (l % 4) and the next.
                    let at = |row: usize, column: usize| {
                        w[4 * row + column / 2] >> (16 * (column % 2)) & 0xffff
                    };
                    let of = |l: usize| at(2 * (l % 4), l / 4) | at(2 * (l % 4) + 1, l / 4) << 16;
                    (0..LANES).map(of).collect::<Vec<u64>>()
                };
                vec![x[0].chunks(LANES).flat_map(warp).collect()]
            }),
    );
    products(&mut all);
    all
}

fn list(letter: &str, from: usize, count: usize) -> String {
    let all: Vec<String> = (from..from + count)
        .map(|i| format!("%{letter}{i}"))
        .collect();
    format!("{{{}}}", all.join(", "))
}

/// Each warp stores 32 rows of 16 bytes, its lanes' operands, and takes matrices out of them; the row of lane `l` is `(5 l + 3) % 32`.
fn loads(all: &mut Vec<Snippet>) {
    for count in [1usize, 2, 4] {
        for trans in ["", ".trans"] {
            for space in ["shared", "shared::cta"] {
                let mnemonic = format!("ldmatrix.sync.aligned.m8n8.x{count}{trans}.{space}.b16");
                let mut snippet = Snippet::new(FAMILY, &mnemonic).takes(&[B32; 4]).shared(2048).body(format!(
                    "mov.u32 %r9, shared;\nmad.lo.u32 %r0, %tid_, 16, %r9;\nst.shared.v4.b32 [%r0], {};\nbar.warp.sync -1;\n\
                     mad.lo.u32 %r1, %lane_, 5, 3;\nand.b32 %r1, %r1, 31;\nand.b32 %r2, %tid_, 96;\nadd.u32 %r1, %r1, %r2;\nmad.lo.u32 %r1, %r1, 16, %r9;\n\
                     {mnemonic} {}, [%r1];",
                    list("i", 0, 4),
                    list("o", 0, count)
                ));
                for _ in 0..count {
                    snippet = snippet.gives(B32, Bound::Bits);
                }
                let transposed = !trans.is_empty();
                all.push(snippet.refer_all(move |x| {
                    let result = |matrix: usize| {
                        let of = |g: usize| {
                            let (lane, warp) = (g % LANES, g - g % LANES);
                            let at = |row: usize, column: usize| {
                                let source = (5 * (8 * matrix + row) + 3) % 32;
                                x[column / 2][warp + source] >> (16 * (column % 2)) & 0xffff
                            };
                            let (major, minor) = (lane / 4, 2 * (lane % 4));
                            match transposed {
                                false => at(major, minor) | at(major, minor + 1) << 16,
                                true => at(minor, major) | at(minor + 1, major) << 16,
                            }
                        };
                        (0..x[0].len()).map(of).collect()
                    };
                    (0..count).map(result).collect()
                }));
            }
        }
    }
}

fn stores(all: &mut Vec<Snippet>) {
    for count in [1usize, 2, 4] {
        for trans in ["", ".trans"] {
            let mnemonic = format!("stmatrix.sync.aligned.m8n8.x{count}{trans}.shared.b16");
            let mut snippet = Snippet::new(FAMILY, &mnemonic).since(SM_90).takes(&vec![B32; count]).shared(2048).body(format!(
                "mov.u32 %r9, shared;\nmad.lo.u32 %r0, %tid_, 16, %r9;\nst.shared.v4.b32 [%r0], {{0, 0, 0, 0}};\nbar.warp.sync -1;\n\
                 mad.lo.u32 %r1, %lane_, 5, 3;\nand.b32 %r1, %r1, 31;\nand.b32 %r2, %tid_, 96;\nadd.u32 %r1, %r1, %r2;\nmad.lo.u32 %r1, %r1, 16, %r9;\n\
                 {mnemonic} [%r1], {};\nbar.warp.sync -1;\nld.shared.v4.b32 {}, [%r0];",
                list("i", 0, count),
                list("o", 0, 4)
            ));
            for _ in 0..4 {
                snippet = snippet.gives(B32, Bound::Bits);
            }
            let transposed = !trans.is_empty();
            all.push(snippet.refer_all(move |x| {
                let threads = x[0].len();
                let mut words = vec![vec![0u64; threads]; 4];
                for g in 0..threads {
                    let (lane, warp) = (g % LANES, g - g % LANES);
                    for (matrix, values) in x.iter().enumerate() {
                        for half in 0..2 {
                            let (major, minor) = (lane / 4, 2 * (lane % 4) + half);
                            let (row, column) = if transposed {
                                (minor, major)
                            } else {
                                (major, minor)
                            };
                            let place = warp + (5 * (8 * matrix + row) + 3) % 32;
                            let value = values[g] >> (16 * half) & 0xffff;
                            words[column / 2][place] |= value << (16 * (column % 2));
                        }
                    }
                }
                words
            }));
        }
    }
}

/// A shape and types of `mma.sync`.
#[derive(Clone)]
struct Product {
    mnemonic: String,
    shape: (usize, usize, usize),
    a: Factor,
    b: Factor,
    /// What C and D hold.
    sum: Operand,
    since: Since,
}

/// Elements of a factor.
#[derive(Clone, Copy)]
struct Factor {
    of: Operand,
    /// Bits of an element, and whether an integer has a sign.
    bits: u32,
    signed: bool,
}

fn float(of: Operand) -> Factor {
    Factor {
        of,
        bits: of.element.bits(of.width),
        signed: true,
    }
}

fn integer(bits: u32, signed: bool) -> Factor {
    Factor {
        of: B32,
        bits,
        signed,
    }
}

impl Factor {
    /// Elements of a register.
    fn pack(self) -> usize {
        (self.of.width / self.bits) as usize
    }

    fn value(self, register: u64, index: usize) -> f64 {
        let bits = register >> (self.bits as usize * index);
        match self.of.element {
            Element::Bits => {
                let shift = 64 - self.bits;
                match self.signed {
                    true => ((bits << shift) as i64 >> shift) as f64,
                    false => (bits << shift >> shift) as f64,
                }
            }
            element => element.value(bits & (u64::MAX >> (64 - self.bits))),
        }
    }
}

impl Product {
    fn registers(&self) -> (usize, usize, usize) {
        let (m, n, k) = self.shape;
        let a = m * k / LANES / self.a.pack();
        let b = n * k / LANES / self.b.pack();
        let c = m * n / LANES / (self.sum.width / self.sum.element.bits(self.sum.width)) as usize;
        (a, b, c)
    }
}

/// An element of D: its register, thread and place in the register, C's bits of it, and the products.
struct Cell<'a> {
    register: usize,
    thread: usize,
    place: usize,
    c: u64,
    products: &'a [f64],
}

/// D = A B + C of a warp.
fn multiply(p: &Product, x: &[Vec<u64>], combine: fn(f64, f64) -> f64) -> Vec<Vec<u64>> {
    let (.., c_count) = p.registers();
    let mut result = vec![vec![0u64; x[0].len()]; c_count];
    let size = p.sum.element.bits(p.sum.width) as usize;
    cells(p, x, combine, |cell| {
        let sum: f64 = cell.products.iter().sum();
        let bits = match p.sum.element {
            Element::Bits => (cell.c as i32).wrapping_add(sum as i64 as i32) as u32 as u64,
            element => element.bits_of(element.value(cell.c) + sum),
        };
        result[cell.register][cell.thread] |= bits << (size * cell.place);
    });
    result
}

/// How far sums of floats may be off, as the ISA leaves open how a product's terms are added: some units of the last place of the sum of the
/// magnitudes; and anything where terms of that sum may overflow on the way.
fn slack(p: &Product, x: &[Vec<u64>]) -> Vec<Vec<f64>> {
    let (.., c_count) = p.registers();
    let mut result = vec![vec![0f64; x[0].len()]; c_count];
    let (limit, unit) = match p.sum.element {
        Element::F16 => (65504.0, 2f64.powi(-10)),
        _ => (f64::from(f32::MAX), 2f64.powi(-21)),
    };
    cells(
        p,
        x,
        |a, b| a * b,
        |cell| {
            let c = p.sum.element.value(cell.c);
            let terms = cell.products.iter().copied().chain([c]);
            let sum: f64 = terms.filter(|t| t.is_finite()).map(f64::abs).sum();
            let slack = if sum >= limit {
                f64::INFINITY
            } else {
                sum * unit
            };
            // Of the elements of a register the largest.
            let of = &mut result[cell.register][cell.thread];
            *of = of.max(slack);
        },
    );
    result
}

/// Visits the elements of D, with the layouts of fragments as the ISA's formulas give them.
fn cells(
    p: &Product,
    x: &[Vec<u64>],
    combine: fn(f64, f64) -> f64,
    mut visit: impl FnMut(Cell<'_>),
) {
    let (m, n, k) = p.shape;
    let (a_count, b_count, c_count) = p.registers();
    let threads = x[0].len();
    let mut products = Vec::new();
    for warp in (0..threads).step_by(LANES) {
        let mut a = vec![0f64; m * k];
        let mut b = vec![0f64; k * n];
        for lane in 0..LANES {
            let (group, member) = (lane / 4, lane % 4);
            for (r, values) in x[..a_count].iter().enumerate() {
                // Registers alternate between the upper and the lower eight rows, if there are two eights.
                let (row, block) = match m {
                    16 => (group + 8 * (r % 2), r / 2),
                    _ => (group, r),
                };
                for j in 0..p.a.pack() {
                    let column = (4 * block + member) * p.a.pack() + j;
                    a[row * k + column] = p.a.value(values[warp + lane], j);
                }
            }
            for (r, values) in x[a_count..a_count + b_count].iter().enumerate() {
                for j in 0..p.b.pack() {
                    let row = (4 * r + member) * p.b.pack() + j;
                    b[row * n + group] = p.b.value(values[warp + lane], j);
                }
            }
        }
        let pack = (p.sum.width / p.sum.element.bits(p.sum.width)) as usize;
        let size = p.sum.element.bits(p.sum.width);
        for lane in 0..LANES {
            let (group, member) = (lane / 4, lane % 4);
            for r in 0..c_count {
                for j in 0..pack {
                    let index = r * pack + j;
                    let (row, column) = (group + 8 * (index / 2), 2 * member + index % 2);
                    let c = x[a_count + b_count + r][warp + lane] >> (size as usize * j)
                        & (u64::MAX >> (64 - size));
                    products.clear();
                    products.extend((0..k).map(|i| combine(a[row * k + i], b[i * n + column])));
                    visit(Cell {
                        register: r,
                        thread: warp + lane,
                        place: j,
                        c,
                        products: &products,
                    });
                }
            }
        }
    }
}

fn add(
    all: &mut Vec<Snippet>,
    p: &Product,
    bound: Bound,
    kinds: fn(Operand) -> Operand,
    remark: &str,
    combine: Option<fn(f64, f64) -> f64>,
) {
    let (a, b, c) = p.registers();
    let mut snippet = Snippet::new(PRODUCT, format!("{}{remark}", p.mnemonic))
        .since(p.since)
        .launch(4, 128)
        .takes(&vec![kinds(p.a.of); a])
        .takes(&vec![kinds(p.b.of); b])
        .takes(&vec![kinds(p.sum); c])
        .body(format!(
            "{} {}, {}, {}, {};",
            p.mnemonic,
            list("o", 0, c),
            list("i", 0, a),
            list("i", a, b),
            list("i", a + b, c)
        ));
    for _ in 0..c {
        snippet = snippet.gives(p.sum, bound);
    }
    all.push(match combine {
        Some(combine) => {
            let p = p.clone();
            snippet.refer_all(move |x| multiply(&p, x, combine))
        }
        None => snippet,
    });
}

fn products(all: &mut Vec<Snippet>) {
    let of = |shape: (usize, usize, usize),
              types: &str,
              a: Factor,
              b: Factor,
              sum: Operand,
              since: Since| {
        let (m, n, k) = shape;
        Product {
            mnemonic: format!("mma.sync.aligned.m{m}n{n}k{k}.row.col.{types}"),
            shape,
            a,
            b,
            sum,
            since,
        }
    };
    let mut floats = Vec::new();
    for (k, first) in [(8, SM_75), (16, SM_80)] {
        floats.push(of(
            (16, 8, k),
            "f32.f16.f16.f32",
            float(F16X2),
            float(F16X2),
            F32,
            first,
        ));
        floats.push(of(
            (16, 8, k),
            "f16.f16.f16.f16",
            float(F16X2),
            float(F16X2),
            F16X2,
            first,
        ));
        floats.push(of(
            (16, 8, k),
            "f32.bf16.bf16.f32",
            float(BF16X2),
            float(BF16X2),
            F32,
            SM_80,
        ));
    }
    for k in [4, 8] {
        floats.push(of(
            (16, 8, k),
            "f32.tf32.tf32.f32",
            float(TF32),
            float(TF32),
            F32,
            SM_80,
        ));
    }
    for (a, a_of) in [("e4m3", E4M3X4), ("e5m2", E5M2X4)] {
        for (b, b_of) in [("e4m3", E4M3X4), ("e5m2", E5M2X4)] {
            for k in [32, 16] {
                let since = Since {
                    ptx: (8, 7),
                    ..SM_89
                };
                floats.push(of(
                    (16, 8, k),
                    &format!("f32.{a}.{b}.f32"),
                    float(a_of),
                    float(b_of),
                    F32,
                    since,
                ));
                floats.push(of(
                    (16, 8, k),
                    &format!("f16.{a}.{b}.f16"),
                    float(a_of),
                    float(b_of),
                    F16X2,
                    since,
                ));
            }
        }
    }
    for p in &floats {
        // Whole numbers up to 4: sums stay below 2048, exact in f16.
        add(
            all,
            p,
            Bound::Numbers,
            Operand::whole,
            "",
            Some(|a, b| a * b),
        );
        let fine = if p.sum == F32 {
            2f64.powi(-16)
        } else {
            2f64.powi(-3)
        };
        let fp8 = if p.a.bits == 8 { 2f64.powi(-6) } else { 0.0 };
        let rel = if p.sum == F32 {
            2f64.powi(-20)
        } else {
            2f64.powi(-8)
        };
        let bound = Bound::Within {
            abs: fine.max(fp8),
            rel,
        };
        add(all, p, bound, Operand::near, ", near", None);
        let before = all.len();
        add(all, p, bound, |o| o, ", any", None);
        for snippet in all.drain(before..).collect::<Vec<_>>() {
            let p = p.clone();
            all.push(snippet.slack(move |x| slack(&p, x)));
        }
    }
    for (m, n, k, since) in [
        (8, 8, 4, SM_80),
        (16, 8, 4, SM_90),
        (16, 8, 8, SM_90),
        (16, 8, 16, SM_90),
    ] {
        let p = of(
            (m, n, k),
            "f64.f64.f64.f64",
            float(F64),
            float(F64),
            F64,
            since,
        );
        add(
            all,
            &p,
            Bound::Numbers,
            Operand::whole,
            "",
            Some(|a, b| a * b),
        );
        let bound = Bound::Within {
            abs: 2f64.powi(-46),
            rel: 2f64.powi(-48),
        };
        add(all, &p, bound, Operand::near, ", near", None);
    }
    let any: fn(Operand) -> Operand = |o| o;
    for (a, b) in [(false, false), (false, true), (true, false), (true, true)] {
        for (bits, shapes) in [
            (8, [(8, 8, 16), (16, 8, 16), (16, 8, 32)]),
            (4, [(8, 8, 32), (16, 8, 32), (16, 8, 64)]),
        ] {
            let name = |signed: bool| format!("{}{bits}", if signed { "s" } else { "u" });
            for shape in shapes {
                let since = if shape.0 == 8 { SM_75 } else { SM_80 };
                for satfinite in ["", ".satfinite"] {
                    let types = format!("s32.{}.{}.s32", name(a), name(b));
                    let mut p = of(
                        shape,
                        &types,
                        integer(bits, a),
                        integer(bits, b),
                        B32,
                        since,
                    );
                    if !satfinite.is_empty() {
                        p.mnemonic = p.mnemonic.replace(".col.", ".col.satfinite.");
                    }
                    add(
                        all,
                        &p,
                        Bound::Bits,
                        any,
                        "",
                        satfinite.is_empty().then_some(|a, b| a * b),
                    );
                }
            }
        }
    }
    for (op, since) in [("xor", SM_75), ("and", SM_80)] {
        for shape in [(8, 8, 128), (16, 8, 128), (16, 8, 256)] {
            let since = if shape.0 == 16 { SM_80 } else { since };
            let mut p = of(
                shape,
                "s32.b1.b1.s32",
                integer(1, false),
                integer(1, false),
                B32,
                since,
            );
            p.mnemonic += &format!(".{op}.popc");
            let combine: fn(f64, f64) -> f64 = match op {
                "xor" => |a, b| f64::from(a != b),
                _ => |a, b| a * b,
            };
            add(all, &p, Bound::Bits, any, "", Some(combine));
        }
    }
}
