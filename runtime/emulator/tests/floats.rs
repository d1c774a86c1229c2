//! Float arithmetic and conversions, an instruction at a time over many operands, against the host's arithmetic in the same or a higher
//! precision, and against tables of the PTX ISA.

use tesserine_emulator::{
    Launch, LoadError, Memory, Module, Options,
    target::{TARGETS, Target},
};

fn text(instruction: &str) -> String {
    format!(
        ".version 8.8\n.target sm_100a\n.address_size 64\n\
         .visible .entry k(.param .u64 k_in, .param .u64 k_out, .param .u32 k_count)\n{{\n\
         .reg .pred %p<3>;\n.reg .b8 %q<4>;\n.reg .b16 %h<5>;\n.reg .b32 %r<10>;\n.reg .b64 %d<10>;\n\
         ld.param.u64 %d4, [k_in];\nld.param.u64 %d5, [k_out];\nld.param.u32 %r4, [k_count];\n\
         mov.u32 %r5, %ctaid.x;\nmov.u32 %r6, %ntid.x;\nmov.u32 %r7, %tid.x;\nmad.lo.s32 %r8, %r5, %r6, %r7;\n\
         setp.ge.u32 %p1, %r8, %r4;\n@%p1 bra $end;\n\
         mul.wide.u32 %d6, %r8, 24;\nadd.s64 %d6, %d4, %d6;\n\
         ld.global.b64 %d1, [%d6];\nld.global.b64 %d2, [%d6+8];\nld.global.b64 %d3, [%d6+16];\n\
         cvt.u32.u64 %r1, %d1;\ncvt.u32.u64 %r2, %d2;\ncvt.u32.u64 %r3, %d3;\n\
         cvt.u16.u64 %h1, %d1;\ncvt.u16.u64 %h2, %d2;\ncvt.u16.u64 %h3, %d3;\n\
         {instruction}\n\
         mul.wide.u32 %d7, %r8, 8;\nadd.s64 %d7, %d5, %d7;\nst.global.b64 [%d7], %d0;\n$end:\nret;\n}}\n"
    )
}

fn device() -> Target {
    Target::named("sm_100a").expect("a target of the table")
}

/// Runs a kernel whose body makes `%d0` of `%d1` to `%d3`, whose low bits are `%r1`… and `%h1`… too; a row of inputs a thread.
fn run(instruction: &str, inputs: &[[u64; 3]]) -> Vec<u64> {
    let module = Module::load(&text(instruction), device()).unwrap_or_else(|e| panic!("{e}"));
    let memory = Memory::new();
    let bytes: Vec<u8> = inputs
        .iter()
        .flatten()
        .flat_map(|x| x.to_le_bytes())
        .collect();
    let from = memory.allocate(bytes.len()).expect("memory");
    let to = memory.allocate(8 * inputs.len()).expect("memory");
    memory.write(from, &bytes).expect("its own memory");
    let launch = Launch {
        entry: "k",
        grid: [inputs.len().div_ceil(256) as u32, 1, 1],
        block: [256, 1, 1],
        cluster: [1, 1, 1],
        shared_bytes: 0,
        arguments: &[
            &from.to_le_bytes(),
            &to.to_le_bytes(),
            &(inputs.len() as u32).to_le_bytes(),
        ],
    };
    let done = module.launch(&memory, &launch, &Options::default());
    done.unwrap_or_else(|e| panic!("{instruction}: {e}"));
    let mut bytes = vec![0; 8 * inputs.len()];
    memory.read(to, &mut bytes).expect("its own memory");
    let words = bytes.as_chunks::<8>().0.iter();
    words.map(|w| u64::from_le_bytes(*w)).collect()
}

/// Runs an instruction with its operands named by the width of their registers, and gives inputs with results.
fn each(instruction: &str, inputs: &[[u64; 3]], mut check: impl FnMut([u64; 3], u64)) {
    let widen = if instruction.contains("%d0") {
        ""
    } else if instruction.contains("%r0") {
        "cvt.u64.u32 %d0, %r0;"
    } else if instruction.contains("%p0") {
        "selp.b64 %d0, 1, 0, %p0;"
    } else {
        "cvt.u64.u16 %d0, %h0;"
    };
    let results = run(&format!("{instruction}\n{widen}"), inputs);
    for (input, result) in inputs.iter().zip(results) {
        check(*input, result);
    }
}

struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
}

const SPECIAL: [f32; 22] = [
    0.0,
    -0.0,
    1.0,
    -1.0,
    0.5,
    1.5,
    -2.5,
    3.0,
    1e-3,
    -7.25e5,
    1e30,
    -1e30,
    f32::MAX,
    f32::MIN,
    f32::MIN_POSITIVE,
    -f32::MIN_POSITIVE,
    1e-40,
    -1e-42,
    f32::INFINITY,
    f32::NEG_INFINITY,
    f32::NAN,
    -f32::NAN,
];

/// All pairs of special values with a third in turn, and random bits, of which half are near 1.
fn singles() -> Vec<[u64; 3]> {
    let of = |x: f32| u64::from(x.to_bits());
    let mut rows = Vec::new();
    for (i, a) in SPECIAL.into_iter().enumerate() {
        for (j, b) in SPECIAL.into_iter().enumerate() {
            rows.push([of(a), of(b), of(SPECIAL[(i * 7 + j) % SPECIAL.len()])]);
        }
    }
    let mut random = Random(0x1234_5678);
    for i in 0..1500 {
        let mut bits = || {
            let raw = random.next() as u32;
            u64::from(if i % 2 == 0 {
                raw
            } else {
                (raw & 0x83ff_ffff) | 0x3c00_0000
            })
        };
        rows.push([bits(), bits(), bits()]);
    }
    rows
}

fn doubles() -> Vec<[u64; 3]> {
    let mut random = Random(0x9876);
    let mut rows: Vec<[u64; 3]> = singles()
        .iter()
        .map(|row| row.map(|bits| f64::from(f32::from_bits(bits as u32)).to_bits()))
        .filter(|row| row.iter().all(|bits| !f64::from_bits(*bits).is_nan()))
        .collect();
    for _ in 0..1000 {
        rows.push([random.next(), random.next(), random.next()].map(|x| x & !(1 << 62) | 1 << 61));
    }
    rows
}

fn f(bits: u64) -> f32 {
    f32::from_bits(bits as u32)
}

fn flush(x: f32) -> f32 {
    if x.is_subnormal() {
        0f32.copysign(x)
    } else {
        x
    }
}

/// The bits of a result, NaNs as the ISA has them (§9.7.3).
fn bits(x: f32) -> u64 {
    u64::from(if x.is_nan() { 0x7fff_ffff } else { x.to_bits() })
}

#[test]
fn single_precision_is_ieee_to_the_nearest() {
    let rows = singles();
    type Of = fn(f32, f32, f32) -> f32;
    let table: [(&str, Of); 10] = [
        ("add.rn.f32 %r0, %r1, %r2;", |a, b, _| a + b),
        ("add.f32 %r0, %r1, %r2;", |a, b, _| a + b),
        ("sub.rn.f32 %r0, %r1, %r2;", |a, b, _| a - b),
        ("mul.f32 %r0, %r1, %r2;", |a, b, _| a * b),
        ("mul.rn.f32 %r0, %r1, %r2;", |a, b, _| a * b),
        ("fma.rn.f32 %r0, %r1, %r2, %r3;", f32::mul_add),
        ("mad.rn.f32 %r0, %r1, %r2, %r3;", f32::mul_add),
        ("div.rn.f32 %r0, %r1, %r2;", |a, b, _| a / b),
        ("rcp.rn.f32 %r0, %r1;", |a, _, _| 1.0 / a),
        ("sqrt.rn.f32 %r0, %r1;", |a, _, _| a.sqrt()),
    ];
    for (instruction, of) in table {
        each(instruction, &rows, |[a, b, c], result| {
            let expected = bits(of(f(a), f(b), f(c)));
            assert_eq!(result, expected, "{instruction} {} {} {}", f(a), f(b), f(c));
        });
        let (opcode, operands) = instruction.split_once(".f32").expect("a type");
        each(
            &format!("{opcode}.ftz.f32{operands}"),
            &rows,
            |row, result| {
                let [a, b, c] = row.map(|x| flush(f(x)));
                let value = of(a, b, c);
                // A result that rounds up to the smallest normal is not decided by the document.
                if value.abs() != f32::MIN_POSITIVE {
                    assert_eq!(result, bits(flush(value)), "{instruction} {a} {b} {c}");
                }
            },
        );
        if instruction.contains("div")
            || instruction.contains("rcp")
            || instruction.contains("sqrt")
        {
            continue;
        }
        each(
            &format!("{opcode}.sat.f32{operands}"),
            &rows,
            |row, result| {
                let [a, b, c] = row.map(f);
                let value = of(a, b, c);
                let expected = if value > 0.0 { value.min(1.0) } else { 0.0 };
                assert_eq!(
                    result,
                    u64::from(expected.to_bits()),
                    "{instruction} {a} {b} {c}"
                );
            },
        );
    }
}

#[test]
fn directed_roundings_enclose_what_f64_knows() {
    let rows = singles();
    for opcode in ["add", "sub", "mul"] {
        let get = |mode: &str| {
            let mut results = Vec::new();
            let instruction = format!("{opcode}.{mode}.f32 %r0, %r1, %r2;");
            each(&instruction, &rows, |_, result| results.push(result));
            results
        };
        let (near, zero, down, up) = (get("rn"), get("rz"), get("rm"), get("rp"));
        for (i, [a, b, _]) in rows.iter().enumerate() {
            let (a, b) = (f64::from(f(*a)), f64::from(f(*b)));
            // Exact in f64 for products, and for sums of like exponents.
            let (exact, rest) = match opcode {
                "add" => (a + b, two_sum_rest(a, b)),
                "sub" => (a - b, two_sum_rest(a, -b)),
                _ => (a * b, 0.0),
            };
            if rest != 0.0 || !exact.is_finite() {
                continue;
            }
            let (low, high) = (f64::from(f(down[i])), f64::from(f(up[i])));
            assert!(low <= exact && exact <= high, "{opcode} {a:e} {b:e}");
            if low == exact && high == exact {
                if exact != 0.0 {
                    assert!([near[i], zero[i], down[i]] == [up[i]; 3]);
                }
                continue;
            }
            assert_eq!(f(down[i]).next_up(), f(up[i]), "{opcode} {a:e} {b:e}");
            let inner = if exact > 0.0 { down[i] } else { up[i] };
            assert_eq!(zero[i], inner);
            assert!(near[i] == down[i] || near[i] == up[i]);
        }
    }
}

fn two_sum_rest(a: f64, b: f64) -> f64 {
    let sum = a + b;
    let of_b = sum - a;
    (a - (sum - of_b)) + (b - of_b)
}

#[test]
fn double_precision_is_ieee() {
    let rows = doubles();
    type Of = fn(f64, f64, f64) -> f64;
    let table: [(&str, Of); 9] = [
        ("add.f64 %d0, %d1, %d2;", |a, b, _| a + b),
        ("sub.rn.f64 %d0, %d1, %d2;", |a, b, _| a - b),
        ("mul.rn.f64 %d0, %d1, %d2;", |a, b, _| a * b),
        ("fma.rn.f64 %d0, %d1, %d2, %d3;", f64::mul_add),
        ("div.rn.f64 %d0, %d1, %d2;", |a, b, _| a / b),
        ("rcp.rn.f64 %d0, %d1;", |a, _, _| 1.0 / a),
        ("sqrt.rn.f64 %d0, %d1;", |a, _, _| a.sqrt()),
        ("abs.f64 %d0, %d1;", |a, _, _| a.abs()),
        ("copysign.f64 %d0, %d1, %d2;", |a, b, _| b.copysign(a)),
    ];
    for (instruction, of) in table {
        each(instruction, &rows, |row, result| {
            let [a, b, c] = row.map(f64::from_bits);
            let expected = of(a, b, c);
            let same = result == expected.to_bits()
                || (expected.is_nan() && f64::from_bits(result).is_nan());
            assert!(same, "{instruction} {a:e} {b:e} {c:e}: {result:#x}");
        });
    }
}

#[test]
fn approximations_are_within_their_bounds() {
    let rows = singles();
    // Relative errors of PTX ISA §9.7.3; the largest of each instruction.
    type Of = fn(f64, f64) -> f64;
    let table: [(&str, f64, Of); 9] = [
        ("ex2.approx.ftz.f32 %r0, %r1;", 2f64.powi(-22), |a, _| {
            a.exp2()
        }),
        ("ex2.approx.f32 %r0, %r1;", 2f64.powi(-22), |a, _| a.exp2()),
        ("lg2.approx.f32 %r0, %r1;", 2f64.powi(-22), |a, _| a.log2()),
        ("rcp.approx.ftz.f32 %r0, %r1;", 2f64.powi(-23), |a, _| {
            1.0 / a
        }),
        ("rsqrt.approx.f32 %r0, %r1;", 2f64.powf(-22.9), |a, _| {
            1.0 / a.sqrt()
        }),
        ("sqrt.approx.f32 %r0, %r1;", 2f64.powi(-23), |a, _| a.sqrt()),
        ("tanh.approx.f32 %r0, %r1;", 2f64.powi(-11), |a, _| a.tanh()),
        ("div.full.f32 %r0, %r1, %r2;", 2f64.powi(-22), |a, b| a / b),
        ("sin.approx.f32 %r0, %r1;", 2f64.powf(-20.5), |a, _| a.sin()),
    ];
    for (instruction, bound, of) in table {
        let ftz = instruction.contains("ftz");
        each(instruction, &rows, |[a, b, _], result| {
            let inputs = [a, b].map(|x| f64::from(if ftz { flush(f(x)) } else { f(x) }));
            let exact = of(inputs[0], inputs[1]);
            let ours = f64::from(f(result));
            if exact.is_nan() {
                // Of -0 the root's reciprocal is an infinity of that sign.
                assert!(result == 0x7fff_ffff, "{instruction} {inputs:?}: {ours}");
            } else if exact.abs() > f64::from(f32::MAX) {
                assert!(ours.is_infinite() || ours.abs() == f64::from(f32::MAX));
            } else if exact.abs() < f64::from(f32::MIN_POSITIVE) && ftz {
                assert!(ours.abs() <= f64::from(f32::MIN_POSITIVE));
            } else {
                let error = (ours - exact).abs();
                let most = exact.abs() * bound + 2f64.powi(-149);
                assert!(
                    error <= most,
                    "{instruction} {inputs:?}: {ours}, not {exact}"
                );
            }
        });
    }
}

#[test]
fn minima_and_maxima() {
    let rows = singles();
    let order = |a: f32, b: f32| {
        if a.total_cmp(&b).is_lt() {
            (a, b)
        } else {
            (b, a)
        }
    };
    for (opcode, largest) in [("min", false), ("max", true)] {
        let two = |a: f32, b: f32| match (a.is_nan(), b.is_nan()) {
            (true, _) => b,
            (_, true) => a,
            _ if largest => order(a, b).1,
            _ => order(a, b).0,
        };
        each(
            &format!("{opcode}.f32 %r0, %r1, %r2;"),
            &rows,
            |[a, b, _], result| {
                assert_eq!(result, bits(two(f(a), f(b))), "{opcode} {} {}", f(a), f(b));
            },
        );
        each(
            &format!("{opcode}.NaN.f32 %r0, %r1, %r2;"),
            &rows,
            |[a, b, _], result| {
                let nan = f(a).is_nan() || f(b).is_nan();
                let expected = if nan { f32::NAN } else { two(f(a), f(b)) };
                assert_eq!(result, bits(expected));
            },
        );
        each(
            &format!("{opcode}.f32 %r0, %r1, %r2, %r3;"),
            &rows,
            |row, result| {
                let [a, b, c] = row.map(f);
                assert_eq!(result, bits(two(two(a, b), c)), "{opcode} {a} {b} {c}");
            },
        );
        each(
            &format!("{opcode}.xorsign.abs.f32 %r0, %r1, %r2;"),
            &rows,
            |[a, b, _], result| {
                let (x, y) = (f(a).abs(), f(b).abs());
                if x.is_nan() || y.is_nan() {
                    return;
                }
                let sign = if (a ^ b) >> 31 & 1 != 0 { -1.0 } else { 1.0 };
                assert_eq!(result, bits(two(x, y) * sign));
            },
        );
        each(
            &format!("{opcode}.f64 %d0, %d1, %d2;"),
            &doubles(),
            |[a, b, _], result| {
                let (a, b) = (f64::from_bits(a), f64::from_bits(b));
                let below = a.total_cmp(&b).is_lt();
                let expected = if below == largest { b } else { a };
                assert_eq!(result, expected.to_bits());
            },
        );
    }
}

fn half_of(brain: bool, bits: u64) -> f64 {
    if brain {
        half::bf16::from_bits(bits as u16).to_f64()
    } else {
        half::f16::from_bits(bits as u16).to_f64()
    }
}

/// The nearest half of an f64 that has no more bits than f32 has, so that the crate's way over f32 loses nothing.
fn to_half(brain: bool, value: f64) -> u64 {
    let single = value as f32;
    if value.is_nan() {
        return 0x7fff;
    }
    u64::from(if brain {
        half::bf16::from_f32(single).to_bits()
    } else {
        half::f16::from_f32(single).to_bits()
    })
}

fn halves() -> Vec<[u64; 3]> {
    let mut random = Random(0x51);
    let special = [
        0u64, 0x8000, 0x3c00, 0xbc00, 0x3f80, 0x7bff, 0x7c00, 0xfc00, 0x7e01, 1, 0x8003, 0x0400,
        0x7f80,
    ];
    let mut rows = Vec::new();
    for a in special {
        for b in special {
            rows.push([a | b << 16, b | 0x3c00_0000, a | b << 16]);
        }
    }
    for _ in 0..2000 {
        let mut bits = || random.next() & 0x8fff_8fff | 0x3000_3000;
        rows.push([bits(), bits(), bits()]);
    }
    rows
}

#[test]
fn halves_add_and_multiply_alone_and_in_pairs() {
    let rows = halves();
    type Of = fn(f64, f64) -> f64;
    let table: [(&str, Of); 3] = [
        ("add", |a, b| a + b),
        ("sub", |a, b| a - b),
        ("mul", |a, b| a * b),
    ];
    for (opcode, of) in table {
        for (ty, brain) in [("f16", false), ("bf16", true)] {
            let expected =
                |a: u64, b: u64| to_half(brain, of(half_of(brain, a), half_of(brain, b)));
            each(
                &format!("{opcode}.rn.{ty} %h0, %h1, %h2;"),
                &rows,
                |[a, b, _], result| {
                    assert_eq!(result, expected(a, b), "{opcode}.{ty} {a:#x} {b:#x}");
                },
            );
            each(
                &format!("{opcode}.{ty}x2 %r0, %r1, %r2;"),
                &rows,
                |[a, b, _], result| {
                    let pair = expected(a, b) | expected(a >> 16, b >> 16) << 16;
                    assert_eq!(result, pair, "{opcode}.{ty}x2 {a:#x} {b:#x}");
                },
            );
        }
    }
    each(
        "fma.rn.relu.f16 %h0, %h1, %h2, %h3;",
        &[[0x3c00, 0xbc00, 0x3800], [0x3c00, 0x4000, 0x3c00]],
        |[a, ..], result| {
            assert_eq!(a, 0x3c00);
            // 1 · −1 + 0.5 is negative; 1 · 2 + 1 is 3.
            assert!(result == 0 || result == 0x4200);
        },
    );
    each("neg.bf16x2 %r0, %r1;", &rows, |[a, ..], result| {
        assert_eq!(result, a ^ 0x8000_8000)
    });
    each("abs.f16 %h0, %h1;", &rows, |[a, ..], result| {
        assert_eq!(result, a & 0x7fff)
    });
    each(
        "ex2.approx.f16x2 %r0, %r1;",
        &[[0x4000_bc00, 0, 0]],
        |_, result| assert_eq!(result, 0x4400_3800),
    );
    each(
        "max.f16 %h0, %h1, %h2;",
        &[[0x8000, 0, 0], [0x7e01, 0x3c00, 0]],
        |[_, b, _], result| assert_eq!(result, b),
    );
}

#[test]
fn mixed_precision_widens_and_rounds_once() {
    let rows: Vec<[u64; 3]> = halves()
        .iter()
        .zip(singles())
        .map(|(h, s)| [h[0] & 0xffff, h[1] & 0xffff, s[2]])
        .collect();
    for (ty, brain) in [("f16", false), ("bf16", true)] {
        let wide = |x: u64| half_of(brain, x) as f32;
        each(
            &format!("fma.rn.f32.{ty} %r0, %h1, %h2, %r3;"),
            &rows,
            |[a, b, c], result| {
                assert_eq!(result, bits(wide(a).mul_add(wide(b), f(c))));
            },
        );
        each(
            &format!("add.rn.f32.{ty} %r0, %h1, %r3;"),
            &rows,
            |[a, _, c], result| {
                assert_eq!(result, bits(wide(a) + f(c)));
            },
        );
        each(
            &format!("sub.rn.f32.{ty} %r0, %h1, %r3;"),
            &rows,
            |[a, _, c], result| {
                assert_eq!(result, bits(wide(a) - f(c)));
            },
        );
    }
}

#[test]
fn pairs_of_singles() {
    let rows: Vec<[u64; 3]> = singles()
        .windows(2)
        .map(|w| std::array::from_fn(|i| w[0][i] | w[1][i] << 32))
        .collect();
    type Of = fn(f32, f32, f32) -> f32;
    let table: [(&str, Of); 3] = [
        ("add.rn.f32x2 %d0, %d1, %d2;", |a, b, _| a + b),
        ("mul.f32x2 %d0, %d1, %d2;", |a, b, _| a * b),
        ("fma.rn.f32x2 %d0, %d1, %d2, %d3;", f32::mul_add),
    ];
    for (instruction, of) in table {
        each(instruction, &rows, |[a, b, c], result| {
            let low = bits(of(f(a), f(b), f(c)));
            let high = bits(of(f(a >> 32), f(b >> 32), f(c >> 32)));
            assert_eq!(result, low | high << 32);
        });
    }
}

#[test]
fn signs_and_properties() {
    let rows = singles();
    each("abs.f32 %r0, %r1;", &rows, |[a, ..], r| {
        assert_eq!(r, a & 0x7fff_ffff)
    });
    each("neg.ftz.f32 %r0, %r1;", &rows, |[a, ..], r| {
        assert_eq!(r as u32, (-flush(f(a))).to_bits());
    });
    each("copysign.f32 %r0, %r1, %r2;", &rows, |[a, b, _], r| {
        assert_eq!(r as u32, f(b).copysign(f(a)).to_bits());
    });
    type Of = fn(f32) -> bool;
    let table: [(&str, Of); 6] = [
        ("finite", f32::is_finite),
        ("infinite", f32::is_infinite),
        ("number", |x| !x.is_nan()),
        ("notanumber", f32::is_nan),
        ("normal", |x| x.is_normal() || x == 0.0),
        ("subnormal", f32::is_subnormal),
    ];
    for (property, of) in table {
        each(
            &format!("testp.{property}.f32 %p0, %r1;"),
            &rows,
            |[a, ..], r| {
                assert_eq!(r != 0, of(f(a)), "{property} {}", f(a));
            },
        );
    }
}

#[test]
fn conversions_between_integers_cut_extend_and_clamp() {
    let mut random = Random(8);
    let rows: Vec<[u64; 3]> = (0..600)
        .map(|i| [random.next() >> (i % 64), 0, 0])
        .collect();
    type Of = fn(u64) -> u64;
    let table: [(&str, Of); 16] = [
        ("cvt.u64.u32 %d0, %r1;", |x| u64::from(x as u32)),
        ("cvt.s64.s32 %d0, %r1;", |x| i64::from(x as i32) as u64),
        ("cvt.u32.u64 %r0, %d1;", |x| u64::from(x as u32)),
        ("cvt.u16.u32 %h0, %r1;", |x| u64::from(x as u16)),
        ("cvt.u32.u16 %r0, %h1;", |x| u64::from(x as u16)),
        ("cvt.s32.s8 %r0, %r1;", |x| {
            u64::from(i32::from(x as i8) as u32)
        }),
        ("cvt.s16.s8 %h0, %h1;", |x| {
            u64::from(i16::from(x as i8) as u16)
        }),
        ("cvt.s8.s32 %r0, %r1;", |x| {
            u64::from(i32::from(x as i8) as u32)
        }),
        ("cvt.u8.u32 %r0, %r1;", |x| u64::from(x as u8)),
        ("cvt.u16.s8 %r0, %r1;", |x| {
            u64::from(i16::from(x as i8) as u16)
        }),
        ("cvt.sat.s8.s32 %r0, %r1;", |x| {
            u64::from((x as i32).clamp(-128, 127) as u32)
        }),
        ("cvt.sat.u8.s32 %r0, %r1;", |x| {
            u64::from((x as i32).clamp(0, 255) as u32)
        }),
        ("cvt.sat.u16.u64 %h0, %d1;", |x| x.min(65535)),
        ("cvt.sat.s32.u32 %r0, %r1;", |x| {
            u64::from((x as u32).min(0x7fff_ffff))
        }),
        ("cvt.sat.u32.s64 %r0, %d1;", |x| {
            (x as i64).clamp(0, 0xffff_ffff) as u64
        }),
        ("cvt.s64.u32 %d0, %r1;", |x| u64::from(x as u32)),
    ];
    for (instruction, of) in table {
        each(instruction, &rows, |[x, ..], result| {
            assert_eq!(result, of(x), "{instruction} {x:#x}")
        });
    }
}

#[test]
fn conversions_between_integers_and_floats() {
    let mut random = Random(81);
    let mut rows = singles();
    rows.extend((0..600).map(|i| [random.next() >> (i % 64), 0, 0]));
    rows.extend(
        [0.5f32, 1.5, 2.5, -0.5, 300.7, -2147483648.0, 4294967040.0]
            .map(|x| [u64::from(x.to_bits()), 0, 0]),
    );
    let whole = |x: f32, of: fn(f32) -> f32| of(x);
    type Of = fn(u64) -> u64;
    let b: fn(f32) -> u64 = |x| u64::from(x.to_bits());
    let table: [(&str, Of); 14] = [
        ("cvt.rn.f32.s32 %r0, %r1;", |x| {
            u64::from((x as i32 as f32).to_bits())
        }),
        ("cvt.rn.f32.u32 %r0, %r1;", |x| {
            u64::from((x as u32 as f32).to_bits())
        }),
        ("cvt.rn.f32.s64 %r0, %d1;", |x| {
            u64::from((x as i64 as f32).to_bits())
        }),
        ("cvt.rn.f32.u64 %r0, %d1;", |x| {
            u64::from((x as f32).to_bits())
        }),
        ("cvt.rn.f64.s64 %d0, %d1;", |x| (x as i64 as f64).to_bits()),
        ("cvt.rn.f64.s32 %d0, %r1;", |x| {
            f64::from(x as i32).to_bits()
        }),
        ("cvt.rn.f32.u16 %r0, %h1;", |x| {
            u64::from(f32::from(x as u16).to_bits())
        }),
        ("cvt.rn.f32.s16 %r0, %h1;", |x| {
            u64::from(f32::from(x as i16).to_bits())
        }),
        ("cvt.rn.f32.s8 %r0, %r1;", |x| {
            u64::from(f32::from(x as i8).to_bits())
        }),
        ("cvt.rzi.s32.f32 %r0, %r1;", |x| {
            u64::from(f(x) as i32 as u32)
        }),
        ("cvt.rzi.u32.f32 %r0, %r1;", |x| u64::from(f(x) as u32)),
        ("cvt.rni.s32.f32 %r0, %r1;", |x| {
            u64::from(f(x).round_ties_even() as i32 as u32)
        }),
        ("cvt.rmi.s32.f32 %r0, %r1;", |x| {
            u64::from(f(x).floor() as i32 as u32)
        }),
        ("cvt.rpi.u8.f32 %r0, %r1;", |x| u64::from(f(x).ceil() as u8)),
    ];
    for (instruction, of) in table {
        each(instruction, &rows, |[x, ..], result| {
            assert_eq!(result, of(x), "{instruction} {x:#x}")
        });
    }
    // A NaN becomes the top bit where 64 bits are involved (§9.7.9.21).
    each("cvt.rzi.s64.f32 %d0, %r1;", &rows, |[x, ..], result| {
        let expected = if f(x).is_nan() {
            1 << 63
        } else {
            f(x) as i64 as u64
        };
        assert_eq!(result, expected);
    });
    each(
        "cvt.rzi.s64.f64 %d0, %d1;",
        &doubles(),
        |[x, ..], result| {
            assert_eq!(result, f64::from_bits(x) as i64 as u64);
        },
    );
    let modes: [(&str, fn(f32) -> f32); 4] = [
        ("rni", f32::round_ties_even),
        ("rzi", f32::trunc),
        ("rmi", f32::floor),
        ("rpi", f32::ceil),
    ];
    for (mode, of) in modes {
        each(
            &format!("cvt.{mode}.f32.f32 %r0, %r1;"),
            &rows,
            |[x, ..], result| {
                let expected = whole(f(x), of);
                assert_eq!(
                    result,
                    if expected.is_nan() {
                        0x7fff_ffff
                    } else {
                        b(expected)
                    },
                    "{mode} {}",
                    f(x)
                );
            },
        );
    }
}

#[test]
fn conversions_between_floats() {
    let rows = singles();
    each("cvt.f64.f32 %d0, %r1;", &rows, |[a, ..], result| {
        if !f(a).is_nan() {
            assert_eq!(result, f64::from(f(a)).to_bits());
        }
    });
    each("cvt.rn.f32.f64 %r0, %d1;", &doubles(), |[a, ..], result| {
        assert_eq!(result, bits(f64::from_bits(a) as f32));
    });
    each("cvt.ftz.sat.f32.f32 %r0, %r1;", &rows, |[a, ..], result| {
        let x = flush(f(a));
        assert_eq!(f(result), if x > 0.0 { x.min(1.0) } else { 0.0 });
    });
    for (ty, brain) in [("f16", false), ("bf16", true)] {
        each(
            &format!("cvt.rn.{ty}.f32 %h0, %r1;"),
            &rows,
            |[a, ..], result| {
                assert_eq!(result, to_half(brain, f64::from(f(a))));
            },
        );
        each(
            &format!("cvt.rn.{ty}x2.f32 %r0, %r1, %r2;"),
            &rows,
            |[a, b, _], result| {
                let of = |x: u64| to_half(brain, f64::from(f(x)));
                assert_eq!(result, of(a) << 16 | of(b));
            },
        );
        each(
            &format!("cvt.rn.relu.{ty}x2.f32 %r0, %r1, %r2;"),
            &rows,
            |[a, b, _], result| {
                let of = |x: u64| match to_half(brain, f64::from(f(x))) {
                    0x8000.. => 0,
                    bits => bits,
                };
                assert_eq!(result, of(a) << 16 | of(b));
            },
        );
        each(
            &format!("cvt.f32.{ty} %r0, %h1;"),
            &halves(),
            |[a, ..], result| {
                let exact = half_of(brain, a & 0xffff);
                if !exact.is_nan() {
                    assert_eq!(f64::from(f(result)), exact);
                }
            },
        );
    }
    // The low 13 bits are rounded away: of two as near, the larger magnitude. A carry runs into the exponent.
    for (mode, half) in [("rna", 0x1000), ("rz", 0)] {
        each(
            &format!("cvt.{mode}.tf32.f32 %r0, %r1;"),
            &rows,
            |[a, ..], result| {
                if !f(a).is_nan() {
                    assert_eq!(result, (a + half) & 0xffff_e000, "{mode} {}", f(a));
                }
            },
        );
    }
}

#[test]
fn conversions_to_and_from_eight_bits_and_fewer() {
    let row = |a: f32, b: f32| [u64::from(a.to_bits()), u64::from(b.to_bits()), 0];
    // 1.0 and 448 in e4m3 are 0x38 and 0x7e; 1.0 and 57344 in e5m2 are 0x3c and 0x7b; the nearest of 0.3 in e2m1 is 0.5.
    let cases = [
        (
            "cvt.rn.satfinite.e4m3x2.f32 %h0, %r1, %r2;",
            row(1.0, -1e9),
            0x38fe,
        ),
        (
            "cvt.rn.satfinite.e4m3x2.f32 %h0, %r1, %r2;",
            row(f32::NAN, 0.0),
            0x7f00,
        ),
        (
            "cvt.rn.satfinite.relu.e4m3x2.f32 %h0, %r1, %r2;",
            row(-1.0, 1.0),
            0x0038,
        ),
        (
            "cvt.rn.satfinite.e5m2x2.f32 %h0, %r1, %r2;",
            row(1.0, f32::INFINITY),
            0x3c7b,
        ),
        (
            "cvt.rn.satfinite.e4m3x2.f16x2 %h0, %r1;",
            [0x3c00_bc00, 0, 0],
            0x38b8,
        ),
        ("cvt.rn.f16x2.e4m3x2 %r0, %h1;", [0x38b8, 0, 0], 0x3c00_bc00),
        ("cvt.rn.f16x2.e5m2x2 %r0, %h1;", [0x7c7b, 0, 0], 0x7c00_7b00),
        (
            "cvt.rn.satfinite.e2m3x2.f32 %h0, %r1, %r2;",
            row(7.5, -0.125),
            0x1f21,
        ),
        (
            "cvt.rn.satfinite.e3m2x2.f32 %h0, %r1, %r2;",
            row(-28.0, 100.0),
            0x3f1f,
        ),
        ("cvt.rn.f16x2.e3m2x2 %r0, %h1;", [0x1f3f, 0, 0], 0x4f00_cf00),
        (
            "cvt.rz.satfinite.ue8m0x2.f32 %h0, %r1, %r2;",
            row(1.5, 4.0),
            0x7f81,
        ),
        (
            "cvt.rp.satfinite.ue8m0x2.f32 %h0, %r1, %r2;",
            row(1.5, f32::NAN),
            0x80ff,
        ),
        (
            "cvt.rn.bf16x2.ue8m0x2 %r0, %h1;",
            [0x7f81, 0, 0],
            0x3f80_4080,
        ),
        (
            "cvt.rz.ue8m0x2.bf16x2 %h0, %r1;",
            [0x3f80_4080, 0, 0],
            0x7f81,
        ),
        (
            "cvt.rn.satfinite.e2m1x2.f32 %q0, %r1, %r2;\nmov.b32 %r0, {%q0, %q0, %q0, %q0};",
            row(-6.0, 0.3),
            0xf1f1_f1f1,
        ),
        (
            "cvt.pack.sat.s8.s32.b32 %r0, %r1, %r2, %r3;",
            [300, -300i32 as u32 as u64, 0x1234_5678],
            0x5678_7f80,
        ),
        (
            "cvt.pack.sat.u16.s32 %r0, %r1, %r2;",
            [70_000, -5i32 as u32 as u64, 0],
            0xffff_0000,
        ),
    ];
    for (instruction, input, expected) in cases {
        each(instruction, &[input], |_, result| {
            assert_eq!(
                result, expected,
                "{instruction}: {result:#x}, not {expected:#x}"
            );
        });
    }
}

#[test]
fn what_is_not_known_is_refused_by_name() {
    let unknown = [
        "add.rn.rz.f32 %r0, %r1, %r2;",
        "add.relu.f32 %r0, %r1, %r2;",
        "fma.f32 %r0, %r1, %r2, %r3;",
        "div.f32 %r0, %r1, %r2;",
        "sin.f32 %r0, %r1;",
        "mul.rn.f32.f16 %r0, %h1, %r2;",
        "add.f32 %r0, %r1;",
        "add.f32 %d0, %r1, %r2;",
        "min.xorsign.f32 %r0, %r1, %r2;",
        "min.f16 %h0, %h1, %h2, %h3;",
        "ex2.approx.bf16 %h0, %h1;",
        "testp.even.f32 %p0, %r1;",
        "cvt.f32 %r0, %r1;",
        "cvt.f32.s32 %r0, %r1;",
        "cvt.rn.s32.f32 %r0, %r1;",
        "cvt.f16.f32 %h0, %r1;",
        "cvt.rn.f32.f16 %r0, %h1;",
        "cvt.rs.f16x2.f32 %r0, %r1, %r2, %r3;",
        "cvt.rn.e4m3x2.f32 %h0, %r1, %r2;",
        "cvt.rn.f16x2.f32 %r0, %r1;",
        "cvt.rn.tf64.f32 %r0, %r1;",
        "cvt.pack.sat.u8.s32 %r0, %r1, %r2;",
    ];
    for instruction in unknown {
        let opcode = instruction.split(' ').next().expect("a word");
        match Module::load(&text(instruction), device()) {
            Err(LoadError::NotImplemented { instruction, .. }) => assert_eq!(instruction, opcode),
            other => panic!("{instruction}: {other:?}"),
        }
    }
}

#[test]
fn each_target_has_what_the_notes_give_it() {
    // The "Target ISA Notes" of each section.
    let table = [
        ("add.f16x2 %r0, %r1, %r2;", 75),
        ("ex2.approx.f16 %h0, %h1;", 75),
        ("tanh.approx.f32 %r0, %r1;", 75),
        ("min.f32 %r0, %r1, %r2;", 75),
        ("min.NaN.f32 %r0, %r1, %r2;", 80),
        ("min.f16 %h0, %h1, %h2;", 80),
        ("fma.rn.relu.f16 %h0, %h1, %h2, %h3;", 80),
        ("fma.rn.bf16x2 %r0, %r1, %r2, %r3;", 80),
        ("neg.bf16 %h0, %h1;", 80),
        ("cvt.rn.f16x2.f32 %r0, %r1, %r2;", 80),
        ("cvt.rn.bf16.f32 %h0, %r1;", 80),
        ("cvt.rna.tf32.f32 %r0, %r1;", 80),
        ("max.xorsign.abs.f32 %r0, %r1, %r2;", 86),
        ("cvt.rn.satfinite.e5m2x2.f32 %h0, %r1, %r2;", 89),
        ("cvt.rn.f16x2.e4m3x2 %r0, %h1;", 89),
        ("add.rn.bf16 %h0, %h1, %h2;", 90),
        ("tanh.approx.bf16x2 %r0, %r1;", 90),
        ("cvt.rn.tf32.f32 %r0, %r1;", 90),
        ("cvt.rn.bf16.s32 %h0, %r1;", 90),
        ("add.rn.f32x2 %d0, %d1, %d2;", 100),
        ("fma.rn.f32.bf16 %r0, %h1, %h2, %r3;", 100),
        ("max.f32 %r0, %r1, %r2, %r3;", 100),
        ("cvt.rn.satfinite.e2m1x2.f32 %q0, %r1, %r2;", 100),
        ("cvt.rz.ue8m0x2.f32 %h0, %r1, %r2;", 100),
    ];
    for (instruction, first) in table {
        for target in TARGETS {
            // The first version that has all targets.
            let text = text(instruction)
                .replace("sm_100a", &target.to_string())
                .replace(".version 8.8", ".version 9.0");
            let loaded = Module::load(&text, target);
            assert_eq!(
                loaded.is_ok(),
                target.sm >= first,
                "{instruction} {target}: {loaded:?}"
            );
        }
    }
}
