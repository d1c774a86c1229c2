//! Matrix products written as role IR, through LLVM to PTX for every target; assembled where `ptxas` is found.
#![cfg(feature = "llvm")]

use std::fmt::Write;

use tesserine_compiler::{
    codegen::{self, Module},
    emit::ptxas::Ptxas,
    ir::role,
    layout::{
        Layout, blocked,
        fragments::{Side, WarpGrid, fma_operand, fma_result, mma_operand, mma_result},
        swizzle::SharedLayout,
    },
    span::SourceMap,
    target::{Feature, Target},
};

/// A product `c = a · bᵀ` (`a · b` if `row_major`) of tiles, with a loop over K through a channel.
#[derive(Clone, Copy)]
struct Gemm {
    elem: &'static str,
    tile: [u32; 3],
    warps: u32,
    depth: u32,
    /// Elements that one access of the operands takes.
    width: u32,
    row_major: bool,
    order: &'static str,
    persistent: bool,
}

const LARGE: Gemm = Gemm {
    elem: "bf16",
    tile: [128, 256, 64],
    warps: 8,
    depth: 4,
    width: 8,
    row_major: false,
    order: "  order grouped(8)\n",
    persistent: false,
};

fn layout(layout: &Layout) -> String {
    format!(
        "layout {:?} register {:?} lane {:?} warp {:?} repeat {:?}",
        layout.shape, layout.register, layout.lane, layout.warp, layout.repeat
    )
}

impl Gemm {
    /// How many K one product takes, and its strategy, on `target`.
    fn strategy(&self, target: Target) -> (u32, &'static str) {
        match (self.elem, target.has(Feature::DeepMma)) {
            (_, true) => (16, "mma_sync [16, 8, 16]"),
            ("f16", false) => (8, "mma_sync [16, 8, 8]"),
            _ => (4, "fma"),
        }
    }

    fn text(&self, target: Target) -> String {
        let Gemm {
            elem,
            tile: [bm, bn, bk],
            warps,
            width,
            ..
        } = *self;
        let (step, strategy) = self.strategy(target);
        let asynchronous = target.has(Feature::CpAsync) && width > 1;
        let depth = if asynchronous { self.depth } else { 2 };
        let result = match strategy {
            "fma" => fma_result([bm, bn], warps),
            _ => mma_result([bm, bn], WarpGrid::choose(bm, bn, warps, (16, 8))),
        };
        let operand = |side| match strategy {
            "fma" => fma_operand(&result, side, step),
            _ => mma_operand(&result, side, step, step),
        };
        let b_shape = if self.row_major { [bk, bn] } else { [bn, bk] };
        let stored = if width > 1 { 8 } else { 1 };
        let layouts = [
            result.clone(),
            operand(Side::Left),
            operand(Side::Right),
            blocked(&[bm, bn], &[1, 0], stored, warps),
            blocked(&[bm, bk], &[1, 0], width, warps),
            blocked(&b_shape, &[1, 0], width, warps),
        ];
        let in_a = SharedLayout::new(bm, bk, 2);
        let in_b = SharedLayout::new(b_shape[0], b_shape[1], 2);
        let slot = in_a.bytes() + in_b.bytes();
        let scratch = bm * (bn + 16) * 2;

        let mut t = String::new();
        for (i, l) in layouts.iter().enumerate() {
            let _ = writeln!(t, "#l{i} = {}", layout(l));
        }
        let fact = match width {
            1 => String::new(),
            _ => ["a", "b", "c"]
                .iter()
                .map(|p| format!("  fact aligned({p}, 16)\n"))
                .chain(["m", "k", "n"].iter().map(|d| format!("  fact {d} % 8 == 0\n")))
                .collect(),
        };
        let b_extents = if self.row_major { "k, n" } else { "n, k" };
        let persistent = if self.persistent { "  persistent\n" } else { "" };
        let shared = (slot * depth).max(scratch);
        let _ = write!(
            t,
            "kernel \"gemm<{elem}, {bm}, {bn}, {bk}, {width}>\"\n  dims m, k, n\n  param a: view<{elem}>[m, k]\n  param b: view<{elem}>[{b_extents}]\n  \
             param c: out view<{elem}>[m, n]\n{fact}  axis i in ceil_div(m, {bm})\n  axis j in ceil_div(n, {bn})\n{}{persistent}  \
             buffer shared0: {} align 128 at 0\n  buffer shared1: {scratch} align 16 at 0\n  \
             channel channel0: depth {depth} fill {} in shared0\n",
            self.order,
            slot * depth,
            if asynchronous { "cp_async" } else { "registers" },
        );
        let mut at = 0;
        for (shape, l) in [([bm, bk], in_a), (b_shape, in_b)] {
            let _ = writeln!(
                t,
                "    tile {elem} {shape:?} at {at} rows {} pitch {} mask {} shift {}",
                l.rows, l.pitch, l.mask, l.shift
            );
            at += l.bytes();
        }
        let _ = write!(t, "  shared {shared}\nrole \"all\" warps {warps} {{\n");
        let mut w = Writer { text: t, next: 0 };
        w.def(format!("param a : view<{elem}>[?, ?]"));
        w.def(format!("param b : view<{elem}>[?, ?]"));
        w.def(format!("param c : out view<{elem}>[?, ?]"));
        let i = w.def("grid i : i64");
        let j = w.def("grid j : i64");
        let k = w.def("dim k : i64");
        let zero = w.def("constant 0 : i64");
        let one = w.def("constant 1 : i64");
        let deep = w.def(format!("constant {bk} : i64"));
        let less = w.def(format!("constant {} : i64", bk - 1));
        let c_bm = w.def(format!("constant {bm} : i64"));
        let c_bn = w.def(format!("constant {bn} : i64"));
        let last = w.def(format!("constant {} : i64", depth - 1));
        let slots = w.def(format!("constant {depth} : i64"));
        let pad = w.def(format!("constant 0.0 : {elem}"));
        let row = w.def(format!("mul {i}, {c_bm} : i64"));
        let column = w.def(format!("mul {j}, {c_bn} : i64"));
        let sum = w.def(format!("add {k}, {less} : i64"));
        let steps = w.def(format!("div {sum}, {deep} : i64"));
        let nothing = w.def("constant 0.0 : f32");
        let acc = w.def(format!("broadcast {nothing} : tile<f32>[{bm}, {bn}] #l0"));
        let places = |start: &str| {
            let b = match self.row_major {
                true => format!("%1[{start} +: {bk}, {column} +: {bn}]"),
                false => format!("%1[{column} +: {bn}, {start} +: {bk}]"),
            };
            [format!("%0[{row} +: {bm}, {start} +: {bk}]"), b]
        };
        // Begins the copies of iteration `p` into `slot`.
        let fetch = |w: &mut Writer, p: &str, slot: &str| {
            let start = w.def(format!("mul {p}, {deep} : i64"));
            let places = places(&start);
            if asynchronous {
                let live = w.def(format!("compare lt {p}, {steps} : bool"));
                for (tile, place) in places.iter().enumerate() {
                    w.line(format!(
                        "copy_async channel0 tile {tile} {place} slot {slot}, {live} width {width}"
                    ));
                }
                w.line("commit_copies".to_owned());
                return Vec::new();
            }
            let [[ar, ac], [br, bc]] = [[bm, bk], b_shape];
            let width = if width == 1 { String::new() } else { format!(" width {width}") };
            vec![
                w.def(format!(
                    "load {} pad {pad}{width} : tile<{elem}>[{ar}, {ac}] #l4",
                    places[0]
                )),
                w.def(format!(
                    "load {} pad {pad}{width} : tile<{elem}>[{br}, {bc}] #l5",
                    places[1]
                )),
            ]
        };
        let put = |w: &mut Writer, tiles: &[String], slot: &str| {
            for (i, tile) in tiles.iter().enumerate() {
                w.line(format!("write_shared channel0 tile {i} {tile}, {slot}"));
            }
        };
        for s in 0..depth - 1 {
            let p = w.def(format!("constant {s} : i64"));
            let tiles = fetch(&mut w, &p, &p);
            put(&mut w, &tiles, &p);
        }
        let ahead = depth - 1;
        let ahead = w.def(format!("constant {ahead} : i64"));
        let results = w.next;
        w.next += 3;
        let [p, sums, get, fill] = [0; 4].map(|_| {
            w.next += 1;
            format!("%{}", w.next - 1)
        });
        w.line(format!(
            "%{results}, %{}, %{} = for {zero}, {steps}, {one}, {acc}, {zero}, {last} : \
             tile<f32>[{bm}, {bn}] #l0, i64, i64 {{ |{p} : i64, {sums} : tile<f32>[{bm}, {bn}] #l0, {get} : i64, {fill} : i64|",
            results + 1,
            results + 2
        ));
        if asynchronous {
            w.line(format!("wait_copies {}", depth - 2));
        }
        w.line("barrier".to_owned());
        let next = w.def(format!("add {p}, {ahead} : i64"));
        let tiles = fetch(&mut w, &next, &fill);
        let mut sums = sums;
        for at in (0..bk).step_by(step as usize) {
            let a = w.def(format!(
                "read_shared channel0 tile 0 at [0, {at}] {get} : tile<{elem}>[{bm}, {step}] #l1"
            ));
            let (place, turned) = match self.row_major {
                true => (format!("[{at}, 0]"), ""),
                false => (format!("[0, {at}]"), " transposed"),
            };
            let b = w.def(format!(
                "read_shared channel0 tile 1 at {place}{turned} {get} : tile<{elem}>[{step}, {bn}] #l2"
            ));
            sums = w.def(format!(
                "dot {strategy} {a}, {b}, {sums} : tile<f32>[{bm}, {bn}] #l0"
            ));
        }
        put(&mut w, &tiles, &fill);
        let mut slot_after = |slot: &str| {
            let next = w.def(format!("add {slot}, {one} : i64"));
            let wraps = w.def(format!("compare eq {next}, {slots} : bool"));
            w.def(format!("select {wraps}, {zero}, {next} : i64"))
        };
        let (get, fill) = (slot_after(&get), slot_after(&fill));
        w.line(format!("yield {sums}, {get}, {fill}"));
        w.line("}".to_owned());
        if asynchronous {
            w.line("wait_copies 0".to_owned());
        }
        w.line("barrier".to_owned());
        let narrow = w.def(format!("cast %{results} : tile<{elem}>[{bm}, {bn}] #l0"));
        let narrow = w.def(format!(
            "convert scratch shared1 {narrow} : tile<{elem}>[{bm}, {bn}] #l3"
        ));
        let width = if width == 1 { String::new() } else { " width 8".to_owned() };
        w.line(format!(
            "store %2[{row} +: {bm}, {column} +: {bn}] = {narrow}{width}"
        ));
        w.line("return".to_owned());
        w.text + "}\n"
    }
}

struct Writer {
    text: String,
    next: u32,
}

impl Writer {
    fn line(&mut self, what: String) {
        let _ = writeln!(self.text, "  {what}");
    }

    fn def(&mut self, what: impl Into<String>) -> String {
        let name = format!("%{}", self.next);
        self.next += 1;
        self.line(format!("{name} = {}", what.into()));
        name
    }
}

fn compile(text: &str, target: Target) -> Module {
    let kernel = role::parse(text).unwrap_or_else(|e| panic!("{e}\n{text}"));
    role::verify(&kernel).unwrap_or_else(|e| panic!("{e:?}\n{text}"));
    codegen::compile(&kernel, target, &SourceMap::default()).unwrap_or_else(|d| {
        let text = codegen::llvm_text(&kernel, target, &SourceMap::default());
        panic!("{d:?}\n{}", text.unwrap_or_default())
    })
}

/// Compiles and assembles; nothing may spill or be complained about.
fn assembled(gemm: Gemm, target: Target) -> Module {
    let text = gemm.text(target);
    let module = compile(&text, target);
    if let Ok(dir) = std::env::var("TESS_DUMP") {
        let file = |extension: &str| format!("{dir}/{}.{extension}", module.entry);
        std::fs::write(file(&format!("{target}.ptx")), &module.ptx).unwrap();
        std::fs::write(file(&format!("{target}.ll")), &module.llvm_ir).unwrap();
        std::fs::write(file("role"), &text).unwrap();
    }
    if let Ok(tool) = Ptxas::find() {
        let cubin = tool
            .assemble(&module.ptx, target)
            .unwrap_or_else(|e| panic!("{e}\n{}", module.ptx));
        if std::env::var("TESS_DUMP").is_ok() {
            println!("{} {target}: {:?} {:?}", module.entry, cubin.resources, cubin.losses);
        }
        assert_eq!(cubin.losses, Vec::<String>::new(), "{}", module.entry);
    }
    module
}

#[test]
fn large_tiles_where_shared_memory_allows() {
    for name in ["sm_90a", "sm_100a"] {
        let module = assembled(LARGE, Target::parse(name).unwrap());
        let count = |text: &str| module.ptx.matches(text).count();
        assert_eq!(count("mma.sync.aligned.m16n8k16"), 4 * 4 * 8);
        assert_eq!(count("ldmatrix.sync.aligned.m8n8.x4"), 4 * (4 + 4));
        assert_eq!(count("cp.async.cg.shared.global"), 4 * (4 + 8));
    }
}
