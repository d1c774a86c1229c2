//! Products of warp groups (PTX ISA §9.7.15): each shape, type, transposition and swizzle, with A in shared memory or in registers.
//!
//! Shared memory is filled with small whole numbers, whatever place a descriptor gives them, so that a wrong address shows and sums are exact.

use crate::{
    kind::{B32, BF16X2, Bound, E4M3X4, E5M2X4, F16X2, F32, Operand, TF32},
    snippet::{SM_90A, Snippet},
};

const FAMILY: &str = "wgmma";

/// Bytes of shared memory, which both operands use all over.
const SHARED: u32 = 48 * 1024;

/// A type of products.
#[derive(Clone, Copy)]
struct Types {
    name: &'static str,
    k: usize,
    a: Operand,
    sum: Operand,
    /// Whether operands can be transposed: of 16 bits only.
    wide: bool,
    /// Whether the operands of the instruction end in two signs.
    signs: bool,
}

const fn types(name: &'static str, k: usize, a: Operand, sum: Operand, wide: bool) -> Types {
    Types {
        name,
        k,
        a,
        sum,
        wide,
        signs: true,
    }
}

const FLOATS: [Types; 12] = [
    types("f32.f16.f16", 16, F16X2, F32, true),
    types("f32.bf16.bf16", 16, BF16X2, F32, true),
    types("f16.f16.f16", 16, F16X2, F16X2, true),
    types("f32.tf32.tf32", 8, TF32, F32, false),
    types("f32.e4m3.e4m3", 32, E4M3X4, F32, false),
    types("f32.e4m3.e5m2", 32, E4M3X4, F32, false),
    types("f32.e5m2.e4m3", 32, E5M2X4, F32, false),
    types("f32.e5m2.e5m2", 32, E5M2X4, F32, false),
    types("f16.e4m3.e4m3", 32, E4M3X4, F16X2, false),
    types("f16.e4m3.e5m2", 32, E4M3X4, F16X2, false),
    types("f16.e5m2.e4m3", 32, E5M2X4, F16X2, false),
    types("f16.e5m2.e5m2", 32, E5M2X4, F16X2, false),
];

/// How an operand lies in shared memory.
#[derive(Clone, Copy)]
struct Layout {
    /// The code of a descriptor's bits 62 and 63.
    swizzle: u64,
    leading: u64,
    stride: u64,
    base: u64,
}

impl Layout {
    /// The descriptor without the address.
    fn bits(self) -> u64 {
        self.leading >> 4 << 16 | self.stride >> 4 << 32 | self.base << 49 | self.swizzle << 62
    }
}

/// One product: everything that its instruction says.
struct Case {
    types: Types,
    n: usize,
    a: Layout,
    b: Layout,
    /// Bytes from the start of shared memory.
    starts: (u32, u32),
    in_registers: bool,
    scale_d: bool,
    signs: (i32, i32),
    transposed: (u32, u32),
    remark: String,
}

impl Case {
    fn new(types: Types, n: usize) -> Case {
        let layout = Layout {
            swizzle: 0,
            leading: 128,
            stride: 256,
            base: 0,
        };
        Case {
            types,
            n,
            a: layout,
            b: layout,
            starts: (0, 16 * 1024),
            in_registers: false,
            scale_d: true,
            signs: (1, 1),
            transposed: (0, 0),
            remark: String::new(),
        }
    }

    fn remark(mut self, remark: &str) -> Case {
        self.remark += &format!(", {remark}");
        self
    }

    fn snippet(&self) -> Snippet {
        let t = self.types;
        let pack = (t.sum.width / t.sum.element.bits(t.sum.width)) as usize;
        let registers = 64 * self.n / 128 / pack;
        let list = |letter: &str, from: usize, count: usize| {
            let all: Vec<String> = (from..from + count)
                .map(|i| format!("%{letter}{i}"))
                .collect();
            format!("{{{}}}", all.join(", "))
        };
        let mnemonic = format!(
            "wgmma.mma_async.sync.aligned.m64n{}k{}.{}",
            self.n, t.k, t.name
        );
        let mut body = String::new();
        // All threads copy the random words.
        body += "mov.u32 %r9, shared;\nmov.u32 %r0, %tid_;\nfill_w:\nmad.wide.u32 %q0, %r0, 4, %raw;\nld.global.b32 %r1, [%q0];\nmad.lo.u32 %r2, %r0, 4, %r9;\nst.shared.b32 [%r2], %r1;\n\
                 add.u32 %r0, %r0, 128;\n";
        body += &format!("setp.lt.u32 %p0, %r0, {};\n@%p0 bra fill_w;\n", SHARED / 4);
        // The accumulator starts with whole numbers of the thread's own.
        for r in 0..registers {
            body += &format!("add.u32 %r3, %tid_, {};\nand.b32 %r3, %r3, 7;\n", 3 * r);
            body += &match t.sum {
                F32 => format!("cvt.rn.f32.u32 %o{r}, %r3;\n"),
                F16X2 => format!("cvt.rn.f16.u32 %h0, %r3;\nmov.b32 %o{r}, {{%h0, %h0}};\n"),
                _ => format!("sub.s32 %o{r}, %r3, 3;\n"),
            };
        }
        let descriptor = |register: &str, start: u32, layout: Layout| {
            format!(
                "add.u32 %r4, %r9, {start};\nand.b32 %r4, %r4, 0x3ffff;\nshr.u32 %r4, %r4, 4;\ncvt.u64.u32 {register}, %r4;\nor.b64 {register}, {register}, {:#x};\n",
                layout.bits()
            )
        };
        body += &descriptor("%q1", self.starts.0, self.a);
        body += &descriptor("%q2", self.starts.1, self.b);
        body += "fence.proxy.async;\nbar.sync 0;\n";
        body += &format!("setp.ne.u32 %p1, {}, 0;\n", self.scale_d as u32);
        let a = match self.in_registers {
            true => list("i", 0, 4),
            false => "%q1".into(),
        };
        let signs = match t.signs {
            true => format!(", {}, {}", self.signs.0, self.signs.1),
            false => String::new(),
        };
        let transposed = match (t.wide, self.in_registers) {
            (true, true) => format!(", {}", self.transposed.1),
            (true, false) => format!(", {}, {}", self.transposed.0, self.transposed.1),
            (false, _) => String::new(),
        };
        let tail = if self.remark.contains("satfinite") {
            ".satfinite"
        } else {
            ""
        };
        let mnemonic = match t.name.ends_with("b1") {
            true => format!("{mnemonic}.and.popc"),
            false => format!("{mnemonic}{tail}"),
        };
        body += &format!(
            "wgmma.fence.sync.aligned;\n{mnemonic} {}, {a}, %q2, %p1{signs}{transposed};\nwgmma.commit_group.sync.aligned;\nwgmma.wait_group.sync.aligned 0;",
            list("o", 0, registers)
        );
        let words = (SHARED / 4) as usize;
        // Bits mean other types of the same size too; integers are drawn at random.
        let drawn = if t.a == B32 { t.a } else { t.a.whole() };
        let mut snippet = Snippet::new(FAMILY, format!("{mnemonic}{}", self.remark))
            .since(SM_90A)
            .launch(1, 128)
            .shared(SHARED)
            .raw(drawn, words)
            .body(body);
        if self.in_registers {
            snippet = snippet.takes(&[drawn; 4]);
        }
        for _ in 0..registers {
            snippet = snippet.gives(t.sum, Bound::Numbers);
        }
        snippet
    }
}

/// Layouts in which consecutive elements of K lie side by side, by swizzle.
const K_MAJOR: [(&str, Layout); 4] = [
    (
        "no swizzle",
        Layout {
            swizzle: 0,
            leading: 128,
            stride: 256,
            base: 0,
        },
    ),
    (
        "swizzle of 32 bytes",
        Layout {
            swizzle: 3,
            leading: 16,
            stride: 256,
            base: 0,
        },
    ),
    (
        "swizzle of 64 bytes",
        Layout {
            swizzle: 2,
            leading: 16,
            stride: 512,
            base: 0,
        },
    ),
    (
        "swizzle of 128 bytes",
        Layout {
            swizzle: 1,
            leading: 16,
            stride: 1024,
            base: 0,
        },
    ),
];

/// Layouts in which consecutive elements of M or N lie side by side.
const MN_MAJOR: [(&str, Layout); 4] = [
    (
        "no swizzle",
        Layout {
            swizzle: 0,
            leading: 256,
            stride: 128,
            base: 0,
        },
    ),
    (
        "swizzle of 32 bytes",
        Layout {
            swizzle: 3,
            leading: 512,
            stride: 256,
            base: 0,
        },
    ),
    (
        "swizzle of 64 bytes",
        Layout {
            swizzle: 2,
            leading: 1024,
            stride: 512,
            base: 0,
        },
    ),
    (
        "swizzle of 128 bytes",
        Layout {
            swizzle: 1,
            leading: 2048,
            stride: 1024,
            base: 0,
        },
    ),
];

pub fn snippets() -> Vec<Snippet> {
    let mut cases = Vec::new();
    for types in FLOATS {
        for n in [8, 16, 24, 64, 96, 128, 256] {
            cases.push(Case::new(types, n));
        }
        for (name, layout) in K_MAJOR {
            for n in [32, 128] {
                let case = Case {
                    a: layout,
                    b: layout,
                    ..Case::new(types, n)
                };
                cases.push(case.remark(name));
            }
        }
        for n in [8, 64, 160] {
            let (name, layout) = K_MAJOR[3];
            let case = Case {
                b: layout,
                in_registers: true,
                ..Case::new(types, n)
            };
            cases.push(case.remark("A in registers").remark(name));
        }
        let negative = Case {
            signs: (-1, 1),
            ..Case::new(types, 40)
        };
        cases.push(negative.remark("A negated"));
        let negative = Case {
            signs: (1, -1),
            in_registers: true,
            ..Case::new(types, 40)
        };
        cases.push(negative.remark("B negated, A in registers"));
        cases.push(
            Case {
                scale_d: false,
                ..Case::new(types, 48)
            }
            .remark("without the old sum"),
        );
        // The second step of K inside a row of 128 bytes.
        let (name, layout) = K_MAJOR[3];
        let step = Case {
            a: layout,
            b: layout,
            starts: (32, 16 * 1024 + 64),
            ..Case::new(types, 64)
        };
        cases.push(step.remark(name).remark("inside a row"));
        if types.wide {
            for (name, layout) in MN_MAJOR {
                for (remark, transposed) in [
                    ("A transposed", (1, 0)),
                    ("B transposed", (0, 1)),
                    ("both transposed", (1, 1)),
                ] {
                    let plain = K_MAJOR.iter().find(|(other, _)| *other == name);
                    let plain = plain.map_or(layout, |(_, l)| *l);
                    let of = |t: u32| if t == 1 { layout } else { plain };
                    let case = Case {
                        a: of(transposed.0),
                        b: of(transposed.1),
                        transposed,
                        ..Case::new(types, 128)
                    };
                    cases.push(case.remark(remark).remark(name));
                }
            }
            let (name, layout) = MN_MAJOR[3];
            for n in [16, 64, 256] {
                let case = Case {
                    b: layout,
                    in_registers: true,
                    transposed: (0, 1),
                    ..Case::new(types, n)
                };
                cases.push(case.remark("A in registers, B transposed").remark(name));
            }
        }
    }
    for (name, satfinite) in [
        ("s32.s8.s8", true),
        ("s32.s8.u8", true),
        ("s32.u8.s8", true),
        ("s32.u8.u8", true),
        ("s32.b1.b1", false),
    ] {
        let types = Types {
            name,
            k: if name.ends_with("b1") { 256 } else { 32 },
            a: B32,
            sum: B32,
            wide: false,
            signs: false,
        };
        for n in [8, 24, 64, 128, 256] {
            cases.push(Case::new(types, n));
        }
        for (name, layout) in K_MAJOR {
            cases.push(
                Case {
                    a: layout,
                    b: layout,
                    ..Case::new(types, 96)
                }
                .remark(name),
            );
        }
        cases.push(
            Case {
                in_registers: true,
                ..Case::new(types, 64)
            }
            .remark("A in registers"),
        );
        cases.push(
            Case {
                scale_d: false,
                ..Case::new(types, 16)
            }
            .remark("without the old sum"),
        );
        if satfinite {
            cases.push(Case::new(types, 32).remark("satfinite"));
        }
    }
    cases.iter().map(Case::snippet).collect()
}
