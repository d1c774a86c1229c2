//! Approximate functions (PTX ISA §9.7.3: `div`, `rcp`, `sqrt`, `rsqrt`, `sin`, `cos`, `lg2`, `ex2`, `tanh`; §9.7.4: `ex2`, `tanh`), compared
//! within the bounds that the ISA states.

use crate::{
    exact::{f32_of, flush32},
    kind::{BF16, BF16X2, Bound, F16, F16X2, F32, F64, Operand},
    snippet::{SM_75, SM_90, Since, Snippet},
};

const FAMILY: &str = "approximate";

/// 2 to the power of `p`.
const fn power(p: i32) -> f64 {
    f64::from_bits(((p + 1023) as u64) << 52)
}

const fn within(abs: f64, rel: f64) -> Bound {
    Bound::Within { abs, rel }
}

/// An f32 function. Under `.ftz` subnormal operands and results count as zero.
fn function(
    all: &mut Vec<Snippet>,
    op: &str,
    operands: &[Operand],
    bound: Bound,
    value: fn(&[f64]) -> f64,
) {
    let ranges: [(&str, bool); 2] = [("", false), (", near", true)];
    for (remark, near) in ranges {
        for ftz in [false, true] {
            let f = if ftz { ".ftz" } else { "" };
            let operands: Vec<Operand> = operands
                .iter()
                .map(|o| if near { o.near() } else { *o })
                .collect();
            let snippet = Snippet::of(
                FAMILY,
                &format!("{op}{f}.f32{remark}"),
                &operands,
                F32,
                bound,
            );
            // Away from the ends of the range no rule but the function's own applies.
            all.push(match near {
                true => snippet.refer(move |x| {
                    let flush = |v: &u64| f32_of(if ftz { flush32(*v) } else { *v });
                    let values: Vec<f64> = x.iter().map(flush).collect();
                    (value(&values) as f32).to_bits() as u64
                }),
                false => snippet,
            });
        }
    }
}

pub fn snippets() -> Vec<Snippet> {
    let mut all = Vec::new();
    function(
        &mut all,
        "ex2.approx",
        &[F32],
        within(0.0, power(-22)),
        |x| x[0].exp2(),
    );
    function(
        &mut all,
        "lg2.approx",
        &[F32],
        within(power(-21), power(-22)),
        |x| x[0].log2(),
    );
    function(
        &mut all,
        "rcp.approx",
        &[F32],
        within(0.0, power(-22)),
        |x| 1.0 / x[0],
    );
    function(
        &mut all,
        "rsqrt.approx",
        &[F32],
        within(0.0, power(-22)),
        |x| 1.0 / x[0].sqrt(),
    );
    function(
        &mut all,
        "sqrt.approx",
        &[F32],
        within(0.0, power(-22)),
        |x| x[0].sqrt(),
    );
    // Two units of the last place, of subnormal results too.
    function(
        &mut all,
        "div.approx",
        &[F32, F32],
        within(power(-148), power(-22)),
        |x| x[0] / x[1],
    );
    function(
        &mut all,
        "div.full",
        &[F32, F32],
        within(power(-148), power(-22)),
        |x| x[0] / x[1],
    );
    // Only for a range of arguments is there a bound.
    for (op, value) in [("sin", f64::sin as fn(f64) -> f64), ("cos", f64::cos)] {
        for f in ["", ".ftz"] {
            let mnemonic = format!("{op}.approx{f}.f32, near");
            all.push(
                Snippet::of(
                    FAMILY,
                    &mnemonic,
                    &[F32.near()],
                    F32,
                    within(power(-20), 0.0),
                )
                .refer(move |x| (value(f32_of(x[0])) as f32).to_bits() as u64),
            );
        }
        all.push(
            Snippet::new(FAMILY, format!("{op}.approx.f32, special"))
                .takes(&[F32.below(8)])
                .gives(F32, within(power(-20), 0.0))
                .body(format!(
                    "{}\n{op}.approx.f32 %o0, %r0;",
                    choose(&[
                        0,
                        0x8000_0000,
                        0x7f80_0000,
                        0xff80_0000,
                        0x7fff_ffff,
                        1,
                        0x8000_0001,
                        0x3f80_0000
                    ])
                )),
        );
    }
    all.push(
        Snippet::of(
            FAMILY,
            "tanh.approx.f32",
            &[F32],
            F32,
            within(power(-25), power(-10)),
        )
        .refer(|x| (f32_of(x[0]).tanh() as f32).to_bits() as u64),
    );
    for (op, since, bound) in [
        ("rcp.approx.ftz.f64", SM_75, within(0.0, power(-19))),
        ("rsqrt.approx.ftz.f64", SM_75, within(0.0, power(-19))),
        ("rsqrt.approx.f64", SM_75, within(0.0, power(-19))),
    ] {
        for (remark, operand) in [("", F64), (", near", F64.near())] {
            all.push(
                Snippet::of(FAMILY, &format!("{op}{remark}"), &[operand], F64, bound).since(since),
            );
        }
    }
    let narrow: [(&str, Operand, Since, Bound); 10] = [
        ("ex2.approx.f16", F16, SM_75, within(power(-24), power(-9))),
        (
            "ex2.approx.f16x2",
            F16X2,
            SM_75,
            within(power(-24), power(-9)),
        ),
        ("ex2.approx.ftz.bf16", BF16, SM_90, within(0.0, power(-7))),
        (
            "ex2.approx.ftz.bf16x2",
            BF16X2,
            SM_90,
            within(0.0, power(-7)),
        ),
        (
            "tanh.approx.f16",
            F16,
            SM_75,
            within(power(-10), power(-10)),
        ),
        (
            "tanh.approx.f16x2",
            F16X2,
            SM_75,
            within(power(-10), power(-10)),
        ),
        (
            "tanh.approx.bf16",
            BF16,
            SM_90,
            within(power(-8), power(-7)),
        ),
        (
            "tanh.approx.bf16x2",
            BF16X2,
            SM_90,
            within(power(-8), power(-7)),
        ),
        (
            "ex2.approx.f16, near",
            F16.near(),
            SM_75,
            within(power(-24), power(-9)),
        ),
        (
            "ex2.approx.ftz.bf16, near",
            BF16.near(),
            SM_90,
            within(0.0, power(-7)),
        ),
    ];
    for (op, of, since, bound) in narrow {
        all.push(Snippet::of(FAMILY, op, &[of], of, bound).since(since));
    }
    all
}

/// Puts the constant that the operand numbers into `%r0`.
fn choose(values: &[u32]) -> String {
    let mut text = format!("mov.b32 %r0, {:#x};\n", values[0]);
    for (index, value) in values.iter().enumerate().skip(1) {
        text += &format!("setp.eq.u32 %p0, %i0, {index};\n@%p0 mov.b32 %r0, {value:#x};\n");
    }
    text
}
