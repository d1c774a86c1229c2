//! PTX text to syntax: every form against a syntax tree written by hand, errors that name their line and thing, and texts that were broken.

use std::fmt::Write as _;

use proptest::prelude::*;
use tesserine_emulator::ptx::{
    self, Class, Function, Guard, Instruction, Location, Module, Operand, Reg, Space,
};

const HEAD: &str = ".version 8.0\n.target sm_90a, debug\n.address_size 64\n";

fn module(text: &str) -> Module {
    ptx::parse(&format!("{HEAD}{text}")).unwrap_or_else(|error| panic!("{error}\n{text}"))
}

/// The error, and its line in `text` (from 1).
fn refused(text: &str) -> (u32, String) {
    match ptx::parse(&format!("{HEAD}{text}")) {
        Err(error) => (error.line - 3, error.message),
        Ok(_) => panic!("this parses:\n{text}"),
    }
}

/// A function with registers of each class; its statements begin on line 7.
fn around(statements: &str) -> String {
    format!(
        ".global .b32 table[8];\n.visible .entry k(.param .b64 a)\n{{\n.reg .pred %p<4>, p;\n.reg .b16 %rs<4>;\n\
         .reg .b32 %r<9>; .reg .b64 %rd<4>; .reg .v4 .f32 %v;\n{statements}\n}}\n"
    )
}

fn function(statements: &str) -> Function {
    module(&around(statements)).functions.remove(0)
}

fn reg(class: Class, index: u32) -> Operand {
    Operand::Register(Reg { class, index })
}

fn word(index: u32) -> Operand {
    reg(Class::Word, index)
}

fn double(index: u32) -> Operand {
    reg(Class::Double, index)
}

fn predicate(index: u32) -> Operand {
    reg(Class::Predicate, index)
}

fn symbol(name: &str, offset: i64) -> Operand {
    Operand::Symbol(name.into(), offset)
}

fn address(base: Operand, offset: i64, more: Vec<Operand>) -> Operand {
    Operand::Address(Box::new(ptx::Address { base, offset, more }))
}

/// The operands of the only instruction.
fn operands(statement: &str) -> Vec<Operand> {
    let mut function = function(statement);
    assert_eq!(function.body.len(), 1, "{statement}");
    function.body.remove(0).operands
}

/// The last operand of `mov`.
fn value(text: &str) -> Operand {
    operands(&format!("mov.b64 %rd0, {text};")).remove(1)
}

#[test]
fn the_head_of_a_module() {
    let text = ".file 1 \"a b.tess\"\n.file 2 \"c.tess\", 12, 34\n.pragma \"x\";\n\
                .section .debug_str { $L0: .b8 1,2\n .b32 $L1-$L0 { } }\n";
    let module = module(text);
    assert_eq!(module.version, (8, 0));
    assert_eq!(module.target, "sm_90a");
    assert_eq!(module.file(1), Some("a b.tess"));
    assert_eq!(module.file(2), Some("c.tess"));
    assert_eq!(module.file(3), None);
    let minor = ptx::parse(".version 8.10\n.target sm_75").unwrap();
    assert_eq!(minor.version, (8, 10));
}

#[test]
fn entries_and_what_stands_before_their_bodies() {
    let text = "
.visible .entry first(
    .param .u64 .ptr .global .align 16 a, .param .align 64 .b8 map[128], .param .f32 b, .param .v2 .f32 c
)
.reqntid 256, 2
.reqnctapercluster 2, 1, 1
.explicitcluster
.minnctapersm 1 .maxnreg 128
{ ret; }
.weak .entry second .maxntid 64 { }
.func (.param .b32 result) callee(.reg .b64 p, .param .b64 q) .noreturn
{ st.param.b32 [result], 1; cvta.to.global.u64 p, p; }
.extern .func (.param .b32 _) other(.param .b64 _, .param .b64 _);
";
    let module = module(text);
    let functions = module.functions.iter();
    let names: Vec<_> = functions.map(|f| (&*f.name, f.entry)).collect();
    assert_eq!(
        names,
        [("first", true), ("second", true), ("callee", false)]
    );
    let first = module.entry("first").unwrap();
    let parameters = first.parameters.iter();
    let shapes: Vec<_> = parameters.map(|p| (&*p.name, p.size, p.align)).collect();
    // A pointer's `.align` is about what it points to; a vector is aligned to its size.
    assert_eq!(
        shapes,
        [("a", 8, 8), ("map", 128, 64), ("b", 4, 4), ("c", 8, 8)]
    );
    assert_eq!(first.required_block, Some([256, 2, 1]));
    assert_eq!(first.required_cluster, Some([2, 1, 1]));
    assert_eq!(first.largest_registers, Some(128));
    assert_eq!(first.largest_block, None);
    assert_eq!(first.line, 5);
    let second = module.entry("second").unwrap();
    assert_eq!(second.largest_block, Some([64, 1, 1]));
    assert!(module.entry("callee").is_none());
    let callee = &module.functions[2];
    assert_eq!(callee.registers, [0, 0, 0, 1, 0]);
    assert_eq!(&*callee.variables[0].name, "result");
    assert_eq!(callee.body[1].operands, [double(0), double(0)]);
}

#[test]
fn registers_of_every_type() {
    let text = ".entry k() {
.reg .pred p; .reg .b8 a; .reg .s8 b; .reg .u8 c; .reg .b16 d, e<2>; .reg .f16 f; .reg .bf16 g;
.reg .f32 h; .reg .f16x2 i; .reg .s32 j; .reg .f64 %fd<2>; .reg .u64 l; .reg .b128 m; .reg .v2 .b32 n; }";
    let function = module(text).functions.remove(0);
    assert_eq!(function.registers, [1, 8, 5, 3, 1]);
    let names = |class: Class| function.register_names[class as usize].join(" ");
    assert_eq!(names(Class::Half), "a b c d e0 e1 f g");
    assert_eq!(names(Class::Word), "h i j n.x n.y");
    assert_eq!(names(Class::Double), "%fd0 %fd1 l");
}

#[test]
fn variables_and_their_initial_values() {
    let text = "
.extern .shared .align 16 .b8 dynamic[];
.shared .align 128 .b16 tile[3][4];
.const .f32 k = 1.5;
.visible .global .align 4 .u32 a[2][3] = { {1, 2}, {-1, 0x10, 3 + 4 * 2} };
.global .u16 flat[2][2] = { 1, 2, 3 };
.global .f64 d[] = { 0f3F800000, 0d4000000000000000, -0.5 };
.global .v4 .b8 v = { 1, 2, 3, 4 };
.extern .global .b32 late;
.global .b32 late = 7, later;
";
    let module = module(text);
    let of = |name: &str| module.variables.iter().find(|v| &*v.name == name).unwrap();
    let initial = |name: &str| of(name).initial.clone();
    let shape = |name: &str| {
        (
            of(name).space,
            of(name).size,
            of(name).align,
            of(name).external,
        )
    };
    assert_eq!(shape("dynamic"), (Space::Shared, 0, 16, true));
    assert_eq!(shape("tile"), (Space::Shared, 24, 128, false));
    assert_eq!(of("tile").line, 6);
    assert_eq!(of("k").space, Space::Constant);
    assert_eq!(initial("k"), Some(1.5f32.to_le_bytes().to_vec()));
    let rows = [1u32, 2, 0, u32::MAX, 16, 11];
    assert_eq!(
        initial("a"),
        Some(rows.iter().flat_map(|v| v.to_le_bytes()).collect())
    );
    assert_eq!(shape("flat"), (Space::Global, 8, 2, false));
    assert_eq!(initial("flat"), Some(vec![1, 0, 2, 0, 3, 0]));
    let doubles = [1.0f64, 2.0, -0.5];
    assert_eq!(of("d").size, 24);
    assert_eq!(
        initial("d"),
        Some(doubles.iter().flat_map(|v| v.to_le_bytes()).collect())
    );
    assert_eq!(of("v").align, 4);
    assert_eq!(initial("v"), Some(vec![1, 2, 3, 4]));
    assert_eq!(shape("late"), (Space::Global, 4, 4, false));
    assert_eq!(initial("late"), Some(vec![7, 0, 0, 0]));
    assert_eq!(initial("later"), None);
}

#[test]
fn constants() {
    let cases = [
        ("0", 0),
        ("-5", -5i64 as u64),
        ("0x1F", 31),
        ("0xFFFFU", 65535),
        ("017", 15),
        ("0b101", 5),
        ("18446744073709551615", u64::MAX),
        ("WARP_SZ", 32),
        ("WARP_SZ - 1", 31),
        ("2 + 3 * 4 - (1 + 1) * 2", 10),
        ("-(3 - 5)", 2),
        ("~0", u64::MAX),
        ("- - 3", 3),
        ("-7 / 2", -3i64 as u64),
        ("7 % 4", 3),
        ("1 << 4 | 1", 17),
        ("6 & 3 ^ 1", 3),
        ("-8 >> 1", -4i64 as u64),
        ("-8U >> 60", 15),
        ("1 << 64", 0),
        ("-9223372036854775808 / -1", 0),
        ("(7 > 3) ? 21 : 4", 21),
        ("3 >= 4 ? 1 : 2 == 2 ? 5 : 6", 5),
        ("-1 < 1", 1),
        ("-1 < 1U", 0),
        ("!(2 != 2) && 0 || 4 <= 4", 1),
        ("!5 + 1", 1),
        ("1 << 2 < 5 & 1", 1),
    ];
    for (text, expected) in cases {
        assert_eq!(value(text), Operand::Integer(expected), "{text}");
    }
    assert_eq!(value("0f3F800000"), Operand::Float(0x3F80_0000));
    assert_eq!(value("-0f3f800000"), Operand::Float(0xBF80_0000));
    let minus_one = Operand::Double(0xBFF0_0000_0000_0000);
    assert_eq!(value("0dBFF0000000000000"), minus_one);
    assert_eq!(value("1.5"), Operand::Double(1.5f64.to_bits()));
    assert_eq!(value("-25e-1"), Operand::Double((-2.5f64).to_bits()));
    assert_eq!(value("1."), Operand::Double(1f64.to_bits()));
}

#[test]
fn names_and_addresses() {
    assert_eq!(value("table"), symbol("table", 0));
    assert_eq!(value("table+4*2"), symbol("table", 8));
    assert_eq!(value("table - 4"), symbol("table", -4));
    let specials = [
        "%tid.x",
        "%clock64",
        "%lanemask_lt",
        "%cluster_ctaid.z",
        "%envreg31",
        "%tid",
    ];
    for name in specials {
        assert_eq!(value(name), Operand::Special(name.into()));
    }
    // A vector register is the list of its parts, after the nine words before it.
    assert_eq!(value("%v"), Operand::Vector((9..13).map(word).collect()));
    assert_eq!(value("%v.z"), word(11));
    let in_brackets = |text: &str| operands(&format!("ld.b32 %r0, {text};")).remove(1);
    assert_eq!(in_brackets("[%rd1]"), address(double(1), 0, vec![]));
    assert_eq!(in_brackets("[%rd1+16]"), address(double(1), 16, vec![]));
    assert_eq!(in_brackets("[%rd1+-8]"), address(double(1), -8, vec![]));
    assert_eq!(in_brackets("[%rd1 - 8]"), address(double(1), -8, vec![]));
    assert_eq!(
        in_brackets("[table+12]"),
        address(symbol("table", 0), 12, vec![])
    );
    assert_eq!(
        in_brackets("[16+4]"),
        address(Operand::Integer(20), 0, vec![])
    );
    assert_eq!(in_brackets("[a]"), address(symbol("a", 0), 0, vec![]));
    let coordinates = Operand::Vector(vec![word(1), Operand::Integer(2)]);
    let tensor = address(symbol("a", 0), 0, vec![coordinates]);
    assert_eq!(in_brackets("[a, {%r1, 2}]"), tensor);
}

#[test]
fn operands_of_every_form() {
    let pair = |a, b| Operand::Pair(Box::new((a, b)));
    let third = Reg {
        class: Class::Predicate,
        index: 3,
    };
    assert_eq!(
        operands("setp.lt.and.s32 %p1|%p2, %r1, 3, !%p3;"),
        [
            pair(predicate(1), predicate(2)),
            word(1),
            Operand::Integer(3),
            Operand::NotRegister(third)
        ]
    );
    let elected = pair(Operand::Sink, predicate(4));
    assert_eq!(
        operands("elect.sync _|p, -1;"),
        [elected, Operand::Integer(u64::MAX)]
    );
    let halves = Operand::Vector(vec![Operand::Sink, reg(Class::Half, 3)]);
    assert_eq!(operands("mov.b32 {_, %rs3}, %r8;"), [halves, word(8)]);
    assert_eq!(
        operands("bar.sync 0, 64;"),
        [Operand::Integer(0), Operand::Integer(64)]
    );
    assert_eq!(operands("ret;"), []);
}

#[test]
fn opcodes_are_cut_at_dots_alone() {
    let text = "@!%p2 cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint \
                [%r1], [a, {%r1, %r2}], [%r3], %rd1;";
    let function = function(text);
    let instruction: &Instruction = &function.body[0];
    let parts: Vec<&str> = instruction.opcode.iter().map(|part| &**part).collect();
    let [bytes, hint] = ["mbarrier::complete_tx::bytes", "L2::cache_hint"];
    let expected = [
        "cp",
        "async",
        "bulk",
        "tensor",
        "2d",
        "shared::cluster",
        "global",
        bytes,
        hint,
    ];
    assert_eq!(parts, expected);
    let guard = Guard {
        predicate: Reg {
            class: Class::Predicate,
            index: 2,
        },
        negated: true,
    };
    assert_eq!(instruction.guard, Some(guard));
    assert_eq!(instruction.line, 10);
    assert_eq!(instruction.operands.len(), 4);
    assert!(instruction.has("2d") && !instruction.has("cp"));
}

#[test]
fn labels_before_and_after_their_uses() {
    let text = "$top: @%p1 bra $end;\nbra.uni $top;\nts: .branchtargets $top, $mid;\n\
                $mid: brx.idx %r1, ts;\nret;\n$end:";
    let function = function(text);
    let label = |index: usize| function.body[index].operands.last().cloned();
    assert_eq!(label(0), Some(Operand::Label(4)));
    assert_eq!(label(1), Some(Operand::Label(0)));
    let table = vec![Operand::Label(0), Operand::Label(2)];
    assert_eq!(label(2), Some(Operand::Vector(table)));
    assert_eq!(function.body.len(), 4);
}

#[test]
fn scopes_shadow_names_of_registers_labels_and_variables() {
    let text = "
.shared .b32 buffer[4];
again: mov.b32 %r1, buffer;
{ .reg .b32 %r1; .shared .b64 buffer[2];
  bra again;
  again: mov.b32 %r1, buffer; bra out; }
{ .reg .b32 %r1; again: mov.b32 %r1, 0; bra again; }
bra again;
out: mov.b32 %r1, 0;";
    let function = function(text);
    // Thirteen words are the function's: nine and a vector of four.
    let firsts = function.body.iter().map(|i| i.operands[0].clone());
    let expected = [
        word(1),
        Operand::Label(2),
        word(13),
        Operand::Label(7),
        word(14),
        Operand::Label(4),
        Operand::Label(0),
        word(1),
    ];
    assert_eq!(firsts.collect::<Vec<_>>(), expected);
    let sizes: Vec<u64> = function.variables.iter().map(|v| v.size).collect();
    assert_eq!(sizes, [16, 16]);
    let [outer, inner] = [0, 2].map(|i: usize| function.body[i].operands[1].clone());
    assert_eq!(outer, symbol(&function.variables[0].name, 0));
    assert_eq!(inner, symbol(&function.variables[1].name, 0));
    assert_ne!(outer, inner);
}

#[test]
fn calls_parse_to_instructions() {
    let text = ".extern .func (.param .b32 r) callee(.param .b64 q);
.entry k() { .reg .b32 %r<2>;
{ .param .b64 p0; st.param.b64 [p0+0], 3; .param .b32 r0; call.uni (r0), callee, (p0); ld.param.b32 %r1, [r0+0]; }
{ .param .b64 p0; call callee, (p0); prototype: .callprototype (.param .b32 _) _ (.param .b64 _); } }";
    let function = module(text).functions.remove(0);
    let call = &function.body[1];
    assert_eq!(call.mnemonic(), "call.uni");
    let list = |name| Operand::Vector(vec![symbol(name, 0)]);
    assert_eq!(call.operands, [list("r0"), symbol("callee", 0), list("p0")]);
    assert_eq!(function.variables.len(), 3);
    let spaces = function.variables.iter().map(|v| v.space);
    assert_eq!(spaces.collect::<Vec<_>>(), [Space::Parameter; 3]);
}

#[test]
fn locations_are_the_latest_of_the_function() {
    let text = "bar.sync 0;\n.loc 1 5 3\nbar.sync 0; bar.sync 0;\n\
                .loc 2 7 1, function_name $L_info+4, inlined_at 1 9 2\nbar.sync 0;\n.loc 1 0 8\nbar.sync 0;";
    let at = |file, line, column| Some(Location { file, line, column });
    let locations: Vec<_> = function(text).body.iter().map(|i| i.location).collect();
    assert_eq!(
        locations,
        [None, at(1, 5, 3), at(1, 5, 3), at(2, 7, 1), None]
    );
}

#[test]
fn comments_are_blank_and_lines_count() {
    let text = "/* a\n b */ bar.sync 0; // bar.sync 1;\n\n# 1 \"x\"\nbar.sync 2;";
    let lines: Vec<u32> = function(text).body.iter().map(|i| i.line).collect();
    assert_eq!(lines, [11, 14]);
}

#[test]
fn errors_name_their_line_and_what_is_wrong() {
    let cases = [
        ("add.s32 %r1, %r2, %r99;", 7, "unknown register `%r99`"),
        ("ret;\nbra $nowhere;", 8, "`$nowhere`"),
        ("{ inner: ret; }\nbra inner;", 8, "`inner`"),
        ("{ .reg .b32 x; }\nmov.b32 x, 0;", 8, "`x`"),
        ("@%r1 bra $l;", 7, "`%r1` is no predicate"),
        ("@%p9 ret;", 7, "unknown register `%p9`"),
        ("l: ret;\nl: ret;", 8, "label `l` is defined twice"),
        (".reg .b32 y;\n.reg .b64 y;", 8, "`y` is declared twice"),
        (".reg .b32 z<4294967295>;", 7, "too many registers"),
        (".reg .b24 z;", 7, "`.b24`"),
        ("add.s32 %r1, %r2", 8, "expected `,` or `;`"),
        ("mov.b32 %r1, 0f3F;", 7, "`0f3F`"),
        (
            "mov.b32 %r1, 99999999999999999999;",
            7,
            "`99999999999999999999`",
        ),
        ("mov.b32 %r1, 1/0;", 7, "divided by zero"),
        ("mov.b32 %r1, \u{e9};", 7, "'\u{e9}'"),
        ("mov.b32 %r1, %v.q;", 7, "`.q`"),
        (".sharde .b32 x;", 7, "`.sharde`"),
        ("/* never", 7, "comment"),
        ("ld.b32 %r1, [%p1|%p2];", 7, "`]`"),
        (
            "t: .branchtargets t;\nbrx.idx %r1, t;",
            7,
            "`t` is no label",
        ),
    ];
    for (text, line, message) in cases {
        let (found_line, found) = refused(&around(text));
        assert!(found.contains(message), "{text}: {found}");
        assert_eq!(found_line, line, "{text}: {found}");
    }
    let outside = [
        (
            ".global .b32 a[4] = { 1, 2, 3, 4, 5 };",
            "more initial values",
        ),
        (".global .b64 a = b;", "address"),
        (".global .b32 a[];", "no extent"),
        (
            ".global .b8 a[0xFFFFFFFF][0xFFFFFFFF][0xFFFFFFFF];",
            "larger than",
        ),
        (".global .align 3 .b8 a;", "alignment of 3"),
        (".global .b32 a; .global .b32 a;", "`a` is defined twice"),
        (".entry k { } .entry k { }", "`k` is defined twice"),
        (".entry k { ret;", "does not end"),
        (".entry k .maxntid 0 { }", "count of 0"),
        (".entry k .surprise { }", "`.surprise`"),
        (".global .texref t;", "`.texref`"),
        ("add.s32;", "a directive"),
        (".file 1 \"x", "string"),
    ];
    for (text, message) in outside {
        let (line, found) = refused(text);
        assert!(found.contains(message), "{text}: {found}");
        assert_eq!(line, 1, "{text}: {found}");
    }
    assert!(ptx::parse("").is_err());
    assert!(ptx::parse(".version 8.0").is_err());
    assert!(ptx::parse(".version 8.0 .target sm_75 .address_size 32").is_err());
}

#[test]
fn hostile_texts_are_refused_without_deep_stacks_or_long_loops() {
    let deep = 200_000;
    let nested = |open: &str, close: &str| format!("{}1{}", open.repeat(deep), close.repeat(deep));
    for (open, close) in [("(", ")"), ("-", ""), ("{", "}"), ("[", "]"), ("~(", ")")] {
        refused(&around(&format!("mov.b64 %rd0, {};", nested(open, close))));
    }
    let (_, message) = refused(&around(&"{".repeat(deep)));
    assert!(message.contains("nesting"), "{message}");
    refused(&format!(".global .b8 a[1] = {};", nested("{", "}")));
    let wide = ".global .b8 a[2][1000000000000] = { {}, {1} };";
    assert!(refused(wide).1.contains("initial values of more"));
    let rows = "{},".repeat(100_000);
    let long = format!(".global .b8 a[][1000000000000] = {{ {rows} }};");
    assert!(refused(&long).1.contains("larger than"));
    // A table of a thousand labels that two thousand branches use would be two million operands.
    let mut text = format!("t: .branchtargets l{};\nl: ret;\n", ", l".repeat(999));
    text.push_str(&"brx.idx %r1, t;\n".repeat(2000));
    assert!(refused(&around(&text)).1.contains("too long"));
}

#[test]
fn long_texts_parse_in_linear_time() {
    // Every label is used in an inner scope before it is defined: were each searched for, this would take minutes.
    let count = 50_000;
    let mut text = String::new();
    for index in 0..count {
        let label = count - 1 - index;
        let _ = writeln!(
            text,
            "{{ .reg .b32 t; mov.b32 t, {index}; @%p1 bra $l{label}; }}"
        );
    }
    for index in 0..count {
        let _ = writeln!(text, "$l{index}: bar.sync 0;");
    }
    let function = function(&text);
    assert_eq!(function.body.len(), 3 * count);
    let last = 3 * count as u32 - 1;
    assert_eq!(function.body[1].operands, [Operand::Label(last)]);
    assert_eq!(function.registers[Class::Word as usize], count as u32 + 13);
}

fn check_operand(function: &Function, operand: &Operand) {
    match operand {
        Operand::Register(reg) | Operand::NotRegister(reg) => {
            assert!(reg.index < function.registers[reg.class as usize]);
        }
        Operand::Label(at) => assert!(*at as usize <= function.body.len()),
        Operand::Vector(parts) => parts.iter().for_each(|part| check_operand(function, part)),
        Operand::Address(address) => {
            check_operand(function, &address.base);
            let more = address.more.iter();
            more.for_each(|part| check_operand(function, part));
        }
        Operand::Pair(pair) => {
            check_operand(function, &pair.0);
            check_operand(function, &pair.1);
        }
        _ => {}
    }
}

/// What the syntax promises of every module that parses.
fn check_invariants(module: &Module) {
    for function in &module.functions {
        for (names, count) in function.register_names.iter().zip(function.registers) {
            assert_eq!(names.len(), count as usize);
        }
        for instruction in &function.body {
            assert!(!instruction.opcode.is_empty());
            let operands = instruction.operands.iter();
            operands.for_each(|operand| check_operand(function, operand));
        }
    }
}

/// As the compiler writes kernels, with a bit of everything.
const SEED: &str = r#".version 8.0
.target sm_90a
.address_size 64
.extern .shared .align 128 .b8 shared[];
.global .align 4 .b32 lut[2][2] = { {1, -2}, {0x3, 4U} };
.visible .entry sums_9f3e(
	.param .u64 .ptr .global .align 16 sums_9f3e_param_0, .param .align 64 .b8 sums_9f3e_param_1[128]
)
.reqntid 128, 1, 1
{
	.reg .pred 	%p<3>;
	.reg .b16 	%rs<3>;
	.reg .b32 	%r<9>;
	.reg .b64 	%rd<5>;
$L__func_begin0:
	.loc	1 5 0
	ld.param.b64 	%rd1, [sums_9f3e_param_0];
	mov.u32 	%r1, %tid.x;
	setp.ge.u32 	%p1|%p2, %r1, WARP_SZ - 1;
	@%p1 bra 	$L__BB0_2; // out
	ld.global.nc.v2.b32 	{%r2, %r3}, [%rd1+-8];
	// begin inline asm
	{ .reg .pred p; elect.sync _|p, 0xffffffff; @!p bra L; mbarrier.init.shared::cta.b64 [shared+16], 1; L: }
	// end inline asm
	fma.rn.f32 	%r4, %r2, 0f3F800000, %r3;
	mov.b32 	{_, %rs1}, %r4;
	cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%r1], [%rd1, {%r2, %r3}], [%r4];
$L__BB0_2:
	ret;
$L__tmp9:
}
	.file	1 "/sums.tess"
	.section	.debug_macinfo	{	}
"#;

#[test]
fn the_seed_parses() {
    let module = ptx::parse(SEED).unwrap();
    check_invariants(&module);
    assert_eq!(module.functions[0].body.len(), 12);
}

/// Pieces that mean something to the parser.
const PIECES: [&str; 26] = [
    "{",
    "}",
    "(",
    ")",
    "[",
    "]",
    ";",
    ",",
    "|",
    "@",
    "!",
    ":",
    "::",
    "<",
    ">",
    "-",
    "+",
    "*",
    "\"",
    "/*",
    "0f",
    ".reg .b32 ",
    ".shared ",
    ".align ",
    "%r1",
    "\u{2202}",
];

/// An edit: where, how many bytes go, and what comes.
type Edit = (prop::sample::Index, usize, Option<&'static str>);

fn edited(edits: &[Edit]) -> String {
    let mut text = SEED.to_owned();
    for (place, length, piece) in edits {
        let start = text.floor_char_boundary(place.index(text.len() + 1));
        let end = text.floor_char_boundary((start + length).min(text.len()));
        text.replace_range(start..end, piece.unwrap_or(""));
    }
    text
}

fn edits() -> impl Strategy<Value = Vec<Edit>> {
    let piece = prop::option::of(prop::sample::select(&PIECES[..]));
    let edit = (any::<prop::sample::Index>(), 0usize..40, piece);
    prop::collection::vec(edit, 1..6)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 600, ..ProptestConfig::default() })]

    #[test]
    fn broken_texts_never_panic(edits in edits()) {
        if let Ok(module) = ptx::parse(&edited(&edits)) {
            check_invariants(&module);
        }
    }

    #[test]
    fn any_text_never_panics(text in "[ -~\n\u{e9}]{0,200}") {
        for head in ["", ".version 8.0\n.target sm_90a\n", ".version 8.0\n.target sm_90a\n.entry k { .reg .b32 %r<4>; "] {
            if let Ok(module) = ptx::parse(&format!("{head}{text}")) {
                check_invariants(&module);
            }
        }
    }
}
