//! Exchange within a warp (PTX ISA §9.7.9.6 `shfl.sync`, §9.7.13: `vote`, `match`, `redux`, `elect`, `activemask`), and divergence.

use crate::{
    kind::{B32, B64, Bound, F32, PRED},
    snippet::{SM_80, SM_90, Since, Snippet},
};

const FAMILY: &str = "warp";
const DIVERGENCE: &str = "divergence";

const LANES: usize = 32;

/// The lane that a lane reads, and whether it was in range.
fn shuffle(mode: &str, lane: u64, b: u64, c: u64) -> (u64, bool) {
    let (segment, b, clamp) = (c >> 8 & 31, b & 31, c & 31);
    let most = lane & segment | clamp & !segment & 31;
    let least = lane & segment;
    let (from, inside) = match mode {
        "up" => {
            let from = lane as i64 - b as i64;
            (from, from >= most as i64)
        }
        "down" => {
            let from = (lane + b) as i64;
            (from, from <= most as i64)
        }
        "bfly" => {
            let from = (lane ^ b) as i64;
            (from, from <= most as i64)
        }
        _ => {
            let from = (least | b & !segment & 31) as i64;
            (from, from <= most as i64)
        }
    };
    if inside {
        (from as u64, true)
    } else {
        (lane, false)
    }
}

/// What a warp computes from its lanes' operands, applied warp by warp to one output.
fn by_warp(values: &[u64], of: impl Fn(&[u64], usize) -> u64) -> Vec<u64> {
    let warps = values.chunks(LANES);
    warps
        .flat_map(|w| (0..w.len()).map(|lane| of(w, lane)).collect::<Vec<u64>>())
        .collect()
}

pub fn snippets() -> Vec<Snippet> {
    let mut all = Vec::new();
    shuffles(&mut all);
    votes(&mut all);
    matches(&mut all);
    reductions(&mut all);
    others(&mut all);
    divergence(&mut all);
    all
}

fn shuffles(all: &mut Vec<Snippet>) {
    for mode in ["up", "down", "bfly", "idx"] {
        let whole: &[u64] = if mode == "up" { &[0] } else { &[0x1f] };
        let segments = [16u64, 24, 28, 30].map(|s| s << 8 | whole[0]);
        for c in whole.iter().copied().chain(segments).chain([0x0c, 0x1805]) {
            all.push(
                Snippet::new(FAMILY, format!("shfl.sync.{mode}.b32, {c:#x}"))
                    .takes(&[B32, B32.below(40)])
                    .gives(B32, Bound::Bits)
                    .gives(PRED, Bound::Bits)
                    .body(format!(
                        "shfl.sync.{mode}.b32 %o0|%o1, %i0, %i1, {c:#x}, -1;"
                    ))
                    .refer_all(move |x| {
                        let of = |g: usize| shuffle(mode, (g % LANES) as u64, x[1][g], c);
                        let from = |g: usize| x[0][g / LANES * LANES + of(g).0 as usize];
                        vec![
                            (0..x[0].len()).map(from).collect(),
                            (0..x[0].len()).map(|g| of(g).1 as u64).collect(),
                        ]
                    }),
            );
        }
        // A constant distance, no predicate, and each lane its own clamp.
        all.push(
            Snippet::new(FAMILY, format!("shfl.sync.{mode}.b32, own clamps"))
                .takes(&[B32, B32.below(32), B32.below(0x2000)])
                .gives(B32, Bound::Bits)
                .body(format!(
                    "shfl.sync.{mode}.b32 %o0, %i0, %i1, %i2, 0xffffffff;"
                ))
                .refer_all(move |x| {
                    let from = |g: usize| {
                        let (lane, _) = shuffle(mode, (g % LANES) as u64, x[1][g], x[2][g]);
                        x[0][g / LANES * LANES + lane as usize]
                    };
                    vec![(0..x[0].len()).map(from).collect()]
                }),
        );
        // Half the lanes, those that are even, which read even lanes.
        let c = whole[0];
        all.push(
            Snippet::new(FAMILY, format!("shfl.sync.{mode}.b32, even lanes"))
                .takes(&[B32, B32.below(16)])
                .gives(B32, Bound::Bits)
                .body(format!(
                    "mov.b32 %o0, %i0;\nand.b32 %r0, %lane_, 1;\nsetp.ne.u32 %p0, %r0, 0;\nshl.b32 %r1, %i1, 1;\n\
                     @%p0 bra skip_{mode};\nshfl.sync.{mode}.b32 %o0, %i0, %r1, {c:#x}, 0x55555555;\nskip_{mode}:"
                ))
                .refer_all(move |x| {
                    let from = |g: usize| {
                        let lane = g % LANES;
                        match lane % 2 {
                            1 => x[0][g],
                            _ => {
                                let (from, _) = shuffle(mode, lane as u64, x[1][g] * 2, c);
                                x[0][g - lane + from as usize]
                            }
                        }
                    };
                    vec![(0..x[0].len()).map(from).collect()]
                }),
        );
    }
}

fn ballot(w: &[u64]) -> u64 {
    w.iter()
        .enumerate()
        .fold(0, |all, (i, v)| all | (*v & 1) << i)
}

fn votes(all: &mut Vec<Snippet>) {
    let modes: [(&str, fn(u64) -> bool); 3] = [
        ("all", |b| b == 0xffff_ffff),
        ("any", |b| b != 0),
        ("uni", |b| b == 0 || b == 0xffff_ffff),
    ];
    // A vote that random predicates would nearly always lose: a comparison with the lane's number decides.
    let body = |vote: &str| {
        format!(
            "setp.lt.u32 %p0, %lane_, %i0;\nand.b32 %r0, %gid, 32;\nsetp.ne.u32 %p1, %r0, 0;\nor.pred %p0, %p0, %p1;\n{vote}"
        )
    };
    let predicate = |x: &[Vec<u64>]| -> Vec<u64> {
        let of = |(g, v): (usize, &u64)| (((g % LANES) as u64) < *v || g & 32 != 0) as u64;
        x[0].iter().enumerate().map(of).collect()
    };
    for (mode, holds) in modes {
        for (not, negated) in [("", false), ("!", true)] {
            all.push(
                Snippet::new(FAMILY, format!("vote.sync.{mode}.pred, {not}p"))
                    .takes(&[B32.below(33)])
                    .gives(PRED, Bound::Bits)
                    .body(body(&format!("vote.sync.{mode}.pred %o0, {not}%p0, -1;")))
                    .refer_all(move |x| {
                        let p = predicate(x);
                        let flip = if negated { 0xffff_ffff } else { 0 };
                        vec![by_warp(&p, |w, _| holds(ballot(w) ^ flip) as u64)]
                    }),
            );
        }
    }
    all.push(
        Snippet::new(FAMILY, "vote.sync.ballot.b32")
            .takes(&[PRED])
            .gives(B32, Bound::Bits)
            .body("vote.sync.ballot.b32 %o0, %i0, -1;")
            .refer_all(|x| vec![by_warp(&x[0], |w, _| ballot(w))]),
    );
    all.push(
        Snippet::new(FAMILY, "vote.sync.ballot.b32, of a part")
            .takes(&[PRED])
            .gives(B32, Bound::Bits)
            .body(
                "mov.b32 %o0, 0;\nsetp.lt.u32 %p0, %lane_, 11;\n@!%p0 bra skip_part;\n\
                 vote.sync.ballot.b32 %o0, !%i0, 0x7ff;\nskip_part:",
            )
            .refer_all(|x| {
                vec![by_warp(&x[0], |w, lane| {
                    if lane < 11 { !ballot(w) & 0x7ff } else { 0 }
                })]
            }),
    );
}

fn matches(all: &mut Vec<Snippet>) {
    for (width, of) in [(32, B32), (64, B64)] {
        // Few values, so that some are equal.
        let few = of.below(5);
        all.push(
            Snippet::new(FAMILY, format!("match.any.sync.b{width}"))
                .takes(&[few])
                .gives(B32, Bound::Bits)
                .body(format!("match.any.sync.b{width} %o0, %i0, -1;"))
                .refer_all(|x| {
                    vec![by_warp(&x[0], |w, lane| {
                        let same = |(i, v): (usize, &u64)| ((*v == w[lane]) as u64) << i;
                        w.iter().enumerate().map(same).sum()
                    })]
                }),
        );
        // In every other warp all lanes have the first one's value.
        all.push(
            Snippet::new(FAMILY, format!("match.all.sync.b{width}"))
                .takes(&[few])
                .gives(B32, Bound::Bits)
                .gives(PRED, Bound::Bits)
                .body(format!(
                    "and.b32 %r0, %gid, 32;\nsetp.ne.u32 %p0, %r0, 0;\nselp.b{width} {}, %i0, 7, %p0;\nmatch.all.sync.b{width} %o0|%o1, {}, -1;",
                    if width == 32 { "%r1" } else { "%q1" },
                    if width == 32 { "%r1" } else { "%q1" },
                ))
                .refer_all(|x| {
                    let value = |(g, v): (usize, &u64)| if g & 32 != 0 { *v } else { 7 };
                    let values: Vec<u64> = x[0].iter().enumerate().map(value).collect();
                    let same = |w: &[u64]| w.iter().all(|v| *v == w[0]);
                    vec![
                        by_warp(&values, |w, _| if same(w) { 0xffff_ffff } else { 0 }),
                        by_warp(&values, |w, _| same(w) as u64),
                    ]
                }),
        );
    }
}

fn reductions(all: &mut Vec<Snippet>) {
    let ops: [(&str, fn(u64, u64) -> u64); 9] = [
        ("add.u32", |a, b| (a + b) & 0xffff_ffff),
        ("add.s32", |a, b| (a + b) & 0xffff_ffff),
        ("min.u32", u64::min),
        ("max.u32", u64::max),
        ("min.s32", |a, b| (a as i32).min(b as i32) as u32 as u64),
        ("max.s32", |a, b| (a as i32).max(b as i32) as u32 as u64),
        ("and.b32", |a, b| a & b),
        ("or.b32", |a, b| a | b),
        ("xor.b32", |a, b| a ^ b),
    ];
    for (op, of) in ops {
        all.push(
            Snippet::new(FAMILY, format!("redux.sync.{op}"))
                .since(SM_80)
                .takes(&[B32])
                .gives(B32, Bound::Bits)
                .body(format!("redux.sync.{op} %o0, %i0, -1;"))
                .refer_all(move |x| {
                    vec![by_warp(&x[0], |w, _| {
                        w.iter().copied().reduce(of).unwrap_or(0)
                    })]
                }),
        );
        let label = op.replace('.', "_");
        all.push(
            Snippet::new(FAMILY, format!("redux.sync.{op}, of a part"))
                .since(SM_80)
                .takes(&[B32])
                .gives(B32, Bound::Bits)
                .body(format!(
                    "mov.b32 %o0, 5;\nsetp.ge.u32 %p0, %lane_, 20;\n@!%p0 bra skip_{label};\nredux.sync.{op} %o0, %i0, 0xfff00000;\nskip_{label}:"
                ))
                .refer_all(move |x| {
                    vec![by_warp(&x[0], |w, lane| match lane < 20 {
                        true => 5,
                        false => w[20..].iter().copied().reduce(of).unwrap_or(0),
                    })]
                }),
        );
    }
    let only: &'static [u32] = &[100, 103];
    for op in ["min", "max"] {
        for abs in ["", ".abs"] {
            for nan in ["", ".NaN"] {
                all.push(
                    Snippet::of(
                        FAMILY,
                        &format!("redux.sync.{op}{abs}{nan}.f32"),
                        &[F32],
                        F32,
                        Bound::Numbers,
                    )
                    .since(Since {
                        exact: only,
                        ptx: (8, 6),
                        sm: 100,
                    })
                    .body(format!("redux.sync.{op}{abs}{nan}.f32 %o0, %i0, -1;")),
                );
            }
        }
    }
}

fn others(all: &mut Vec<Snippet>) {
    all.push(
        Snippet::new(FAMILY, "elect.sync")
            .since(SM_90)
            .takes(&[B32])
            .gives(B32, Bound::Bits)
            .gives(PRED, Bound::Bits)
            .body("elect.sync %o0|%o1, -1;"),
    );
    all.push(
        Snippet::new(FAMILY, "elect.sync, of a part")
            .since(SM_90)
            .takes(&[B32])
            .gives(B32, Bound::Bits)
            .gives(PRED, Bound::Bits)
            .body("mov.b32 %o0, 99;\nsetp.ne.u32 %o1, 0, 0;\nsetp.ge.u32 %p0, %lane_, 9;\n@!%p0 bra skip_elect;\nelect.sync %o0|%o1, 0xfffffe00;\nskip_elect:"),
    );
    all.push(
        Snippet::new(FAMILY, "activemask.b32")
            .takes(&[B32])
            .gives(B32, Bound::Bits)
            .body("activemask.b32 %o0;")
            .refer_all(|x| vec![vec![0xffff_ffff; x[0].len()]]),
    );
    // Through shared memory, with a warp's barrier in between.
    all.push(
        Snippet::new(FAMILY, "bar.warp.sync")
            .takes(&[B32])
            .gives(B32, Bound::Bits)
            .shared(512)
            .body(
                "mov.u32 %r0, shared;\nmad.lo.u32 %r1, %tid_, 4, %r0;\nst.shared.b32 [%r1], %i0;\nbar.warp.sync -1;\n\
                 xor.b32 %r2, %tid_, 13;\nmad.lo.u32 %r2, %r2, 4, %r0;\nld.shared.b32 %o0, [%r2];",
            )
            .refer_all(|x| vec![by_warp(&x[0], |w, lane| w[lane ^ 13])]),
    );
}

/// Threads of a warp that go different ways.
fn divergence(all: &mut Vec<Snippet>) {
    let snippet = |name: &str, body: &str| {
        Snippet::new(DIVERGENCE, name)
            .takes(&[B32])
            .gives(B32, Bound::Bits)
            .body(body)
    };
    // Steps of the Collatz sequence: each lane makes its own number of rounds.
    all.push(
        snippet(
            "a loop with a count of its own a lane",
            "and.b32 %r0, %i0, 0xffff;\nadd.u32 %r0, %r0, 1;\nmov.b32 %o0, 0;\nloop_c:\nsetp.le.u32 %p0, %r0, 1;\n@%p0 bra done_c;\n\
             and.b32 %r1, %r0, 1;\nsetp.eq.u32 %p1, %r1, 0;\n@%p1 bra even_c;\nmad.lo.u32 %r0, %r0, 3, 1;\nbra.uni next_c;\n\
             even_c:\nshr.u32 %r0, %r0, 1;\nnext_c:\nadd.u32 %o0, %o0, 1;\nbra loop_c;\ndone_c:",
        )
        .refer(|x| {
            let (mut n, mut steps) = ((x[0] & 0xffff) as u32 + 1, 0);
            while n > 1 {
                n = if n % 2 == 0 { n / 2 } else { n.wrapping_mul(3).wrapping_add(1) };
                steps += 1;
            }
            steps
        }),
    );
    all.push(
        snippet(
            "nested branches",
            "mov.b32 %o0, 1;\nand.b32 %r0, %i0, 1;\nsetp.eq.u32 %p0, %r0, 0;\n@%p0 bra else_1;\n\
             and.b32 %r1, %i0, 2;\nsetp.eq.u32 %p1, %r1, 0;\n@%p1 bra else_2;\nmul.lo.u32 %o0, %i0, 7;\nbra end_2;\n\
             else_2:\nxor.b32 %o0, %i0, 0x55;\nend_2:\nadd.u32 %o0, %o0, %lane_;\nbra end_1;\n\
             else_1:\nand.b32 %r2, %i0, 4;\nsetp.ne.u32 %p2, %r2, 0;\n@%p2 add.u32 %o0, %i0, 100;\n@!%p2 sub.u32 %o0, %i0, %lane_;\nend_1:\nshl.b32 %o0, %o0, 1;",
        )
        .refer_all(|x| {
            let of = |(g, v): (usize, &u64)| {
                let (v, lane) = (*v as u32, (g % LANES) as u32);
                let r = match v & 3 {
                    3 => v.wrapping_mul(7).wrapping_add(lane),
                    1 => (v ^ 0x55).wrapping_add(lane),
                    _ if v & 4 != 0 => v.wrapping_add(100),
                    _ => v.wrapping_sub(lane),
                };
                (r << 1) as u64
            };
            vec![x[0].iter().enumerate().map(of).collect()]
        }),
    );
    all.push(
        snippet(
            "brx.idx",
            "and.b32 %r0, %i0, 3;\nmov.b32 %o0, 0;\ntable_b: .branchtargets case_0, case_1, case_2, case_3;\nbrx.idx %r0, table_b;\n\
             case_0:\nadd.u32 %o0, %i0, 1;\nbra end_b;\ncase_1:\nmul.lo.u32 %o0, %i0, 5;\nbra end_b;\ncase_2:\nnot.b32 %o0, %i0;\nbra end_b;\ncase_3:\nshr.u32 %o0, %i0, 3;\nend_b:",
        )
        .refer(|x| {
            let v = x[0] as u32;
            (match v & 3 {
                0 => v.wrapping_add(1),
                1 => v.wrapping_mul(5),
                2 => !v,
                _ => v >> 3,
            }) as u64
        }),
    );
    // Two ways that each end in an exchange among those that took it.
    all.push(
        snippet(
            "an exchange in each of two branches",
            "and.b32 %r0, %lane_, 1;\nsetp.eq.u32 %p0, %r0, 0;\n@%p0 bra even_x;\nshfl.sync.bfly.b32 %o0, %i0, 2, 0x1f, 0xaaaaaaaa;\n\
             bra join_x;\neven_x:\nshfl.sync.bfly.b32 %o0, %i0, 4, 0x1f, 0x55555555;\njoin_x:\nbar.warp.sync -1;\nshfl.sync.bfly.b32 %o0, %o0, 1, 0x1f, -1;",
        )
        .refer_all(|x| {
            vec![by_warp(&x[0], |w, lane| {
                let other = lane ^ 1;
                w[other ^ if other % 2 == 1 { 2 } else { 4 }]
            })]
        }),
    );
    // Lanes that leave, and a vote of those that stay.
    all.push(
        Snippet::new(DIVERGENCE, "threads that exit early")
            .takes(&[B32])
            .extra(B32, Bound::Bits, 4096, false)
            .body(
                "setp.lt.u32 %p0, %lane_, 7;\n@%p0 ret;\nvote.sync.any.pred %p1, %p0, 0xffffff80;\nselp.u32 %r0, 1000, 1, %p1;\n\
                 add.u32 %r0, %r0, %i0;\nmad.wide.u32 %q0, %gid, 4, %extra;\nst.global.u32 [%q0], %r0;",
            )
            .refer_all(|x| {
                let of = |(g, v): (usize, &u64)| if g % LANES < 7 { 0 } else { (v + 1) & 0xffff_ffff };
                vec![x[0].iter().enumerate().map(of).collect()]
            }),
    );
    all.push(
        snippet(
            "exit in a loop",
            "mov.b32 %o0, 0;\nand.b32 %r0, %i0, 31;\nloop_e:\nadd.u32 %o0, %o0, %r0;\nsetp.eq.u32 %p0, %r0, 0;\nsub.u32 %r0, %r0, 1;\n@!%p0 bra loop_e;",
        )
        .refer(|x| {
            let n = x[0] & 31;
            n * (n + 1) / 2
        }),
    );
    // A guard on an instruction with results is no branch.
    all.push(
        snippet(
            "guards",
            "setp.gt.s32 %p0, %i0, 10;\nmov.b32 %o0, %i0;\n@%p0 mov.b32 %o0, 77;\n@!%p0 add.u32 %o0, %o0, 3;\n@%p0 setp.ne.u32 %p0, %lane_, 5;\n@%p0 add.u32 %o0, %o0, 1;",
        )
        .refer_all(|x| {
            let of = |(g, v): (usize, &u64)| match (*v as i32) > 10 {
                true => 77 + (g % LANES != 5) as u64,
                false => (v + 3) & 0xffff_ffff,
            };
            vec![x[0].iter().enumerate().map(of).collect()]
        }),
    );
}
