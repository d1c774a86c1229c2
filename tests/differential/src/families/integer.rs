//! Integer arithmetic (PTX ISA §9.7.1) and extended precision (§9.7.2).

use crate::{
    kind::{B16, B32, B64, Bound, Operand},
    snippet::{SM_90, Snippet},
};

const FAMILY: &str = "integer";
const EXTENDED: &str = "extended";

/// Integer types with the registers that hold them.
const TYPES: [(&str, Operand); 6] = [
    ("u16", B16),
    ("s16", B16),
    ("u32", B32),
    ("s32", B32),
    ("u64", B64),
    ("s64", B64),
];

/// A value as its type reads it.
fn read(bits: u64, width: u32, signed: bool) -> i128 {
    let shift = 64 - width;
    match signed {
        true => ((bits << shift) as i64 >> shift) as i128,
        false => (bits << shift >> shift) as i128,
    }
}

fn low(value: i128, width: u32) -> u64 {
    value as u64 & (u64::MAX >> (64 - width))
}

/// One instruction on integers of one type.
fn typed(
    mnemonic: &str,
    of: Operand,
    signed: bool,
    count: usize,
    value: impl Fn(&[i128]) -> i128 + Send + Sync + 'static,
) -> Snippet {
    let width = of.width;
    Snippet::of(FAMILY, mnemonic, &vec![of; count], of, Bound::Bits).refer(move |x| {
        let values: Vec<i128> = x.iter().map(|v| read(*v, width, signed)).collect();
        low(value(&values), width)
    })
}

pub fn snippets() -> Vec<Snippet> {
    let mut all = Vec::new();
    for (name, of) in TYPES {
        arithmetic(&mut all, name, of);
    }
    saturating(&mut all);
    bits(&mut all);
    dot_products(&mut all);
    extended(&mut all);
    all
}

fn arithmetic(all: &mut Vec<Snippet>, name: &str, of: Operand) {
    let signed = name.starts_with('s');
    let width = of.width;
    let mut op = |mnemonic: String, count, value: fn(&[i128]) -> i128| {
        all.push(typed(&mnemonic, of, signed, count, value));
    };
    op(format!("add.{name}"), 2, |x| x[0].wrapping_add(x[1]));
    op(format!("sub.{name}"), 2, |x| x[0].wrapping_sub(x[1]));
    op(format!("mul.lo.{name}"), 2, |x| x[0].wrapping_mul(x[1]));
    op(format!("mad.lo.{name}"), 3, |x| {
        x[0].wrapping_mul(x[1]).wrapping_add(x[2])
    });
    op(format!("min.{name}"), 2, |x| x[0].min(x[1]));
    op(format!("max.{name}"), 2, |x| x[0].max(x[1]));
    op(format!("sad.{name}"), 3, |x| (x[0] - x[1]).abs() + x[2]);
    if signed {
        op(format!("neg.{name}"), 1, |x| -x[0]);
        op(format!("abs.{name}"), 1, |x| x[0].abs());
    }
    let high = move |x: &[i128]| match signed {
        true => (x[0] * x[1]) >> width,
        false => ((x[0] as u128 * x[1] as u128) >> width) as i128,
    };
    all.push(typed(&format!("mul.hi.{name}"), of, signed, 2, high));
    all.push(typed(&format!("mad.hi.{name}"), of, signed, 3, move |x| {
        high(x) + x[2]
    }));
    // What a division by zero gives is machine-specific: a divisor of zero becomes one. The quotient that overflows wraps.
    for (op, index) in [("div", 0), ("rem", 1)] {
        let mnemonic = format!("{op}.{name}");
        let scratch = match width {
            16 => "%h0",
            32 => "%r0",
            _ => "%q0",
        };
        let body = format!(
            "setp.eq.{name} %p0, %i1, 0;\nselp.b{width} {scratch}, 1, %i1, %p0;\n{mnemonic} %o0, %i0, {scratch};"
        );
        all.push(
            typed(&mnemonic, of, signed, 2, move |x| {
                let divisor = if x[1] == 0 { 1 } else { x[1] };
                [x[0] / divisor, x[0] % divisor][index]
            })
            .body(body),
        );
    }
    if width < 64 {
        let wide = if width == 16 { B32 } else { B64 };
        let product = move |x: &[u64]| read(x[0], width, signed) * read(x[1], width, signed);
        all.push(
            Snippet::of(
                FAMILY,
                &format!("mul.wide.{name}"),
                &[of, of],
                wide,
                Bound::Bits,
            )
            .refer(move |x| low(product(x), 2 * width)),
        );
        all.push(
            Snippet::of(
                FAMILY,
                &format!("mad.wide.{name}"),
                &[of, of, wide],
                wide,
                Bound::Bits,
            )
            .refer(move |x| low(product(x) + read(x[2], 2 * width, signed), 2 * width)),
        );
    }
}

fn saturating(all: &mut Vec<Snippet>) {
    let clamp = |v: i128| v.clamp(i32::MIN as i128, i32::MAX as i128);
    all.push(typed("add.sat.s32", B32, true, 2, move |x| {
        clamp(x[0] + x[1])
    }));
    all.push(typed("sub.sat.s32", B32, true, 2, move |x| {
        clamp(x[0] - x[1])
    }));
    all.push(typed("mad.hi.sat.s32", B32, true, 3, move |x| {
        clamp(((x[0] * x[1]) >> 32) + x[2])
    }));
    // 24-bit products: of the low 24 bits of each.
    for (name, signed) in [("u32", false), ("s32", true)] {
        let product = move |x: &[u64]| read(x[0], 24, signed) * read(x[1], 24, signed);
        for (half, shift) in [("lo", 0), ("hi", 16)] {
            all.push(
                Snippet::of(
                    FAMILY,
                    &format!("mul24.{half}.{name}"),
                    &[B32, B32],
                    B32,
                    Bound::Bits,
                )
                .refer(move |x| low(product(x) >> shift, 32)),
            );
            all.push(
                Snippet::of(
                    FAMILY,
                    &format!("mad24.{half}.{name}"),
                    &[B32; 3],
                    B32,
                    Bound::Bits,
                )
                .refer(move |x| low((product(x) >> shift) + x[2] as i128, 32)),
            );
        }
    }
    // Two 16-bit lanes (sm_90).
    for (name, signed) in [("u16x2", false), ("s16x2", true)] {
        let lanes = move |x: &[u64], of: fn(i128, i128) -> i128| {
            (0..2).fold(0, |all, lane| {
                let v = |k: usize| read(x[k] >> (16 * lane), 16, signed);
                all | low(of(v(0), v(1)), 16) << (16 * lane)
            })
        };
        let ops: [(&str, fn(i128, i128) -> i128); 3] = [
            ("add", |a, b| a + b),
            ("min", i128::min),
            ("max", i128::max),
        ];
        for (op, of) in ops {
            all.push(
                Snippet::of(
                    FAMILY,
                    &format!("{op}.{name}"),
                    &[B32, B32],
                    B32,
                    Bound::Bits,
                )
                .since(SM_90)
                .refer(move |x| lanes(x, of)),
            );
        }
    }
    all.push(typed("min.relu.s32", B32, true, 2, |x| x[0].min(x[1]).max(0)).since(SM_90));
    all.push(typed("max.relu.s32", B32, true, 2, |x| x[0].max(x[1]).max(0)).since(SM_90));
}

fn bits(all: &mut Vec<Snippet>) {
    for (width, of) in [(32u32, B32), (64, B64)] {
        let mut op = |mnemonic: String,
                      inputs: &[Operand],
                      output: Operand,
                      value: Box<dyn Fn(&[u64]) -> u64 + Send + Sync>| {
            all.push(Snippet::of(FAMILY, &mnemonic, inputs, output, Bound::Bits).refer(value));
        };
        op(
            format!("popc.b{width}"),
            &[of],
            B32,
            Box::new(|x| x[0].count_ones() as u64),
        );
        op(
            format!("clz.b{width}"),
            &[of],
            B32,
            Box::new(move |x| (x[0] << (64 - width)).leading_zeros().min(width) as u64),
        );
        op(
            format!("brev.b{width}"),
            &[of],
            of,
            Box::new(move |x| x[0].reverse_bits() >> (64 - width)),
        );
        for signed in [false, true] {
            let t = if signed { "s" } else { "u" };
            // The highest bit that is not a sign bit; all ones if there is none.
            let top = move |x: u64| {
                let v = read(x, width, signed);
                let v = if v < 0 { !v } else { v };
                match v {
                    0 => None,
                    v => Some(127 - v.leading_zeros()),
                }
            };
            op(
                format!("bfind.{t}{width}"),
                &[of],
                B32,
                Box::new(move |x| top(x[0]).map_or(0xffff_ffff, u64::from)),
            );
            op(
                format!("bfind.shiftamt.{t}{width}"),
                &[of],
                B32,
                Box::new(move |x| top(x[0]).map_or(0xffff_ffff, |t| (width - 1 - t) as u64)),
            );
            let extract = move |x: &[u64]| {
                let (position, length) = (x[1] as u32 & 0xff, x[2] as u32 & 0xff);
                let bit = |i: u32| x[0] >> i & 1;
                let sign = match !signed || length == 0 {
                    true => 0,
                    false => bit((position + length - 1).min(width - 1)),
                };
                (0..width).fold(0, |all, i| {
                    let at = position + i;
                    let b = if i < length && at < width {
                        bit(at)
                    } else {
                        sign
                    };
                    all | b << i
                })
            };
            // The ISA has places and lengths in 0..=255. Of more, 32-bit forms look at the low eight bits, 64-bit forms do not.
            let field = if width == 64 { B32.below(256) } else { B32 };
            op(
                format!("bfe.{t}{width}"),
                &[of, field, field],
                of,
                Box::new(extract),
            );
            op(
                format!("bfe.{t}{width}, small"),
                &[of, B32.below(width as u64 + 2), B32.below(width as u64 + 2)],
                of,
                Box::new(extract),
            );
        }
        let insert = move |x: &[u64]| {
            let (position, length) = (x[2] as u32 & 0xff, x[3] as u32 & 0xff);
            (0..length)
                .take_while(|i| position + i < width)
                .fold(x[1], |all, i| {
                    let at = position + i;
                    all & !(1 << at) | (x[0] >> i & 1) << at
                })
        };
        let field = if width == 64 { B32.below(256) } else { B32 };
        op(
            format!("bfi.b{width}"),
            &[of, of, field, field],
            of,
            Box::new(insert),
        );
        op(
            format!("bfi.b{width}, small"),
            &[
                of,
                of,
                B32.below(width as u64 + 2),
                B32.below(width as u64 + 2),
            ],
            of,
            Box::new(insert),
        );
    }
    // The place of the n-th set bit, from a base upwards or downwards.
    let fns = |x: &[u64]| {
        let (mask, base, offset) = (x[0] as u32, x[1] as i64, x[2] as u32 as i32);
        if base > 31 {
            return 0xffff_ffff;
        }
        let set = |i: i64| (0..32).contains(&i) && mask >> i & 1 == 1;
        if offset == 0 {
            return if set(base) { base as u64 } else { 0xffff_ffff };
        }
        let step = if offset > 0 { 1 } else { -1 };
        let (mut at, mut left) = (base, offset.unsigned_abs());
        while (0..32).contains(&at) {
            if set(at) {
                left -= 1;
                if left == 0 {
                    return at as u64;
                }
            }
            at += step;
        }
        0xffff_ffff
    };
    all.push(
        Snippet::new(FAMILY, "fns.b32")
            .takes(&[B32, B32.below(32), B32.below(17)])
            .gives(B32, Bound::Bits)
            .body("sub.s32 %r0, %i2, 8;\nfns.b32 %o0, %i0, %i1, %r0;")
            .refer(move |x| fns(&[x[0], x[1], (x[2] as u32).wrapping_sub(8) as u64])),
    );
    for mode in ["clamp", "wrap"] {
        let amount = move |v: u64, limit: u64| match mode {
            "wrap" => v & 31,
            _ => v.min(limit),
        };
        for signed in [false, true] {
            let t = if signed { "s32" } else { "u32" };
            all.push(
                Snippet::of(
                    FAMILY,
                    &format!("szext.{mode}.{t}"),
                    &[B32, B32.below(40)],
                    B32,
                    Bound::Bits,
                )
                .refer(move |x| match amount(x[1], 32) as u32 {
                    0 => 0,
                    n => low(read(x[0], n, signed), 32),
                }),
            );
        }
        all.push(
            Snippet::of(
                FAMILY,
                &format!("bmsk.{mode}.b32"),
                &[B32.below(40), B32.below(40)],
                B32,
                Bound::Bits,
            )
            .refer(move |x| {
                let (position, length) = (amount(x[0], 32), amount(x[1], 32));
                ((1u64 << length) - 1) << position & 0xffff_ffff
            }),
        );
    }
}

fn dot_products(all: &mut Vec<Snippet>) {
    let byte = |v: u64, lane: u32, signed: bool| read(v >> (8 * lane), 8, signed);
    for (a, b) in [(false, false), (false, true), (true, false), (true, true)] {
        let name = |signed: bool| if signed { "s32" } else { "u32" };
        all.push(
            Snippet::of(
                FAMILY,
                &format!("dp4a.{}.{}", name(a), name(b)),
                &[B32; 3],
                B32,
                Bound::Bits,
            )
            .refer(move |x| {
                let sum: i128 = (0..4).map(|i| byte(x[0], i, a) * byte(x[1], i, b)).sum();
                low(sum + x[2] as i128, 32)
            }),
        );
        for (half, from) in [("lo", 0), ("hi", 2)] {
            all.push(
                Snippet::of(
                    FAMILY,
                    &format!("dp2a.{half}.{}.{}", name(a), name(b)),
                    &[B32; 3],
                    B32,
                    Bound::Bits,
                )
                .refer(move |x| {
                    let product = |i: u32| read(x[0] >> (16 * i), 16, a) * byte(x[1], i + from, b);
                    low(product(0) + product(1) + x[2] as i128, 32)
                }),
            );
        }
    }
}

/// Chains of instructions that pass a carry on.
fn extended(all: &mut Vec<Snippet>) {
    for (width, of) in [(32u32, B32), (64, B64)] {
        let t = format!("u{width}");
        let wide = move |low: u64, high: u64| (high as u128) << width | low as u128;
        let halves = move |v: u128| {
            [
                v as u64 & (u64::MAX >> (64 - width)),
                (v >> width) as u64 & (u64::MAX >> (64 - width)),
            ]
        };
        let two = |name: String, body: String, count: usize| {
            Snippet::new(EXTENDED, name)
                .takes(&vec![of; count])
                .gives(of, Bound::Bits)
                .gives(of, Bound::Bits)
                .body(body)
        };
        let each = move |x: &[Vec<u64>], f: &dyn Fn(&[u64]) -> u128| {
            let results: Vec<[u64; 2]> = (0..x[0].len())
                .map(|t| {
                    let operands: Vec<u64> = x.iter().map(|i| i[t]).collect();
                    halves(f(&operands))
                })
                .collect();
            vec![
                results.iter().map(|r| r[0]).collect(),
                results.iter().map(|r| r[1]).collect(),
            ]
        };
        all.push(
            two(
                format!("add.cc.{t}, addc"),
                format!("add.cc.{t} %o0, %i0, %i2;\naddc.{t} %o1, %i1, %i3;"),
                4,
            )
            .refer_all(move |x| each(x, &|x| wide(x[0], x[1]).wrapping_add(wide(x[2], x[3])))),
        );
        all.push(
            two(
                format!("sub.cc.{t}, subc"),
                format!("sub.cc.{t} %o0, %i0, %i2;\nsubc.{t} %o1, %i1, %i3;"),
                4,
            )
            .refer_all(move |x| each(x, &|x| wide(x[0], x[1]).wrapping_sub(wide(x[2], x[3])))),
        );
        // The carry that goes in comes out again.
        let r = if width == 32 { "%r" } else { "%q" };
        all.push(
            two(
                format!("add.cc.{t}, addc.cc, addc"),
                format!(
                    "add.cc.{t} {r}0, %i0, %i1;\naddc.cc.{t} %o0, %i2, %i3;\naddc.{t} %o1, 0, 0;"
                ),
                4,
            )
            .refer_all(move |x| {
                each(x, &|x| {
                    let carry = (x[0] as u128 + x[1] as u128) >> width;
                    x[2] as u128 + x[3] as u128 + carry
                })
            }),
        );
        all.push(
            two(
                format!("sub.cc.{t}, subc.cc, subc"),
                format!(
                    "sub.cc.{t} {r}0, %i0, %i1;\nsubc.cc.{t} %o0, %i2, %i3;\nsubc.{t} %o1, 0, 0;"
                ),
                4,
            )
            .refer_all(move |x| {
                each(x, &|x| {
                    let borrow = (x[0] < x[1]) as i128;
                    (x[2] as i128 - x[3] as i128 - borrow) as u128
                })
            }),
        );
        let product = move |x: &[u64]| x[0] as u128 * x[1] as u128;
        all.push(
            two(
                format!("mad.lo.cc.{t}, madc.hi"),
                format!("mad.lo.cc.{t} %o0, %i0, %i1, %i2;\nmadc.hi.{t} %o1, %i0, %i1, %i3;"),
                4,
            )
            .refer_all(move |x| each(x, &|x| product(x).wrapping_add(wide(x[2], x[3])))),
        );
        all.push(
            two(
                format!("mad.hi.cc.{t}, addc"),
                format!("mad.hi.cc.{t} %o0, %i0, %i1, %i2;\naddc.{t} %o1, %i3, 0;"),
                4,
            )
            .refer_all(move |x| {
                each(x, &|x| {
                    let sum = (product(x) >> width) + x[2] as u128;
                    (sum & (u64::MAX >> (64 - width)) as u128)
                        | (x[3] as u128 + (sum >> width)) << width
                })
            }),
        );
    }
}
