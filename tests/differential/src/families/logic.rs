//! Logic and shifts (PTX ISA §9.7.8), and `prmt` (§9.7.9.7).

use crate::{
    kind::{B16, B32, B64, Bound, Operand, PRED},
    snippet::Snippet,
};

const FAMILY: &str = "logic";

fn mask(width: u32) -> u64 {
    u64::MAX >> (64 - width)
}

pub fn snippets() -> Vec<Snippet> {
    let mut all = Vec::new();
    for (name, of) in [("pred", PRED), ("b16", B16), ("b32", B32), ("b64", B64)] {
        let width = of.width;
        let ops: [(&str, fn(u64, u64) -> u64); 3] = [
            ("and", |a, b| a & b),
            ("or", |a, b| a | b),
            ("xor", |a, b| a ^ b),
        ];
        for (op, value) in ops {
            all.push(
                Snippet::of(FAMILY, &format!("{op}.{name}"), &[of, of], of, Bound::Bits)
                    .refer(move |x| value(x[0], x[1])),
            );
        }
        all.push(
            Snippet::of(FAMILY, &format!("not.{name}"), &[of], of, Bound::Bits)
                .refer(move |x| !x[0] & mask(width)),
        );
        if width > 1 {
            all.push(
                Snippet::of(FAMILY, &format!("cnot.{name}"), &[of], of, Bound::Bits)
                    .refer(|x| (x[0] == 0) as u64),
            );
        }
    }
    shifts(&mut all);
    for table in [0x00, 0x80, 0xfe, 0x96, 0xe8, 0xca, 0x2d, 0x1b, 0xff, 0x6a] {
        all.push(
            Snippet::new(FAMILY, format!("lop3.b32, {table:#04x}"))
                .takes(&[B32; 3])
                .gives(B32, Bound::Bits)
                .body(format!("lop3.b32 %o0, %i0, %i1, %i2, {table:#04x};"))
                .refer(move |x| {
                    (0..32).fold(0, |all, i| {
                        let row = (x[0] >> i & 1) << 2 | (x[1] >> i & 1) << 1 | (x[2] >> i & 1);
                        all | (table >> row & 1) << i
                    })
                }),
        );
    }
    permutations(&mut all);
    all
}

fn shifts(all: &mut Vec<Snippet>) {
    for (width, of) in [(16u32, B16), (32, B32), (64, B64)] {
        let small = B32.below(width as u64 + 8);
        for (remark, amount) in [("", small), (", any", B32)] {
            all.push(
                Snippet::of(
                    FAMILY,
                    &format!("shl.b{width}{remark}"),
                    &[of, amount],
                    of,
                    Bound::Bits,
                )
                .refer(move |x| {
                    if x[1] >= width as u64 {
                        0
                    } else {
                        x[0] << x[1] & mask(width)
                    }
                }),
            );
            for kind in ["b", "u"] {
                all.push(
                    Snippet::of(
                        FAMILY,
                        &format!("shr.{kind}{width}{remark}"),
                        &[of, amount],
                        of,
                        Bound::Bits,
                    )
                    .refer(move |x| {
                        if x[1] >= width as u64 {
                            0
                        } else {
                            x[0] >> x[1]
                        }
                    }),
                );
            }
            all.push(
                Snippet::of(
                    FAMILY,
                    &format!("shr.s{width}{remark}"),
                    &[of, amount],
                    of,
                    Bound::Bits,
                )
                .refer(move |x| {
                    let value = (x[0] << (64 - width)) as i64 >> (64 - width);
                    (value >> x[1].min(63)) as u64 & mask(width)
                }),
            );
        }
    }
    for (side, left) in [("l", true), ("r", false)] {
        for (mode, wraps) in [("wrap", true), ("clamp", false)] {
            for (remark, amount) in [("", B32.below(70)), (", any", B32)] {
                all.push(
                    Snippet::of(
                        FAMILY,
                        &format!("shf.{side}.{mode}.b32{remark}"),
                        &[B32, B32, amount],
                        B32,
                        Bound::Bits,
                    )
                    .refer(move |x| {
                        let both = x[1] << 32 | x[0];
                        let n = if wraps { x[2] & 31 } else { x[2].min(32) };
                        match left {
                            true => (both as u128) << n >> 32 & 0xffff_ffff,
                            false => (both >> n) as u128 & 0xffff_ffff,
                        }
                        .try_into()
                        .unwrap_or(0)
                    }),
                );
            }
        }
    }
}

fn permutations(all: &mut Vec<Snippet>) {
    let byte = |x: &[u64], i: u64| ((x[1] << 32 | x[0]) >> (8 * (i & 7))) & 0xff;
    all.push(
        Snippet::of(FAMILY, "prmt.b32", &[B32; 3], B32, Bound::Bits).refer(move |x| {
            (0..4).fold(0, |all, i| {
                let selector = x[2] >> (4 * i);
                let b = byte(x, selector);
                let b = match selector & 8 {
                    0 => b,
                    _ if b & 0x80 != 0 => 0xff,
                    _ => 0,
                };
                all | b << (8 * i)
            })
        }),
    );
    // The byte that place `i` takes, for the selector `s`.
    let modes: [(&str, fn(u64, u64) -> u64); 6] = [
        ("f4e", |s, i| s + i),
        ("b4e", |s, i| s.wrapping_sub(i) & 7),
        ("rc8", |s, _| s),
        ("ecl", |s, i| i.max(s)),
        ("ecr", |s, i| i.min(s)),
        ("rc16", |s, i| (s & 1) * 2 + (i & 1)),
    ];
    for (mode, of) in modes {
        let operand: [Operand; 3] = [B32, B32, B32];
        all.push(
            Snippet::of(
                FAMILY,
                &format!("prmt.b32.{mode}"),
                &operand,
                B32,
                Bound::Bits,
            )
            .refer(move |x| (0..4).fold(0, |all, i| all | byte(x, of(x[2] & 3, i)) << (8 * i))),
        );
    }
}
