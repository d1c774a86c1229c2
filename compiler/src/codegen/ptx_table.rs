//! The templates of inline PTX: all of it is here.
//!
//! Loads tie the padding to the results (`0`, `1`, … in the constraints), so that a lane whose predicate is false keeps
//! it. `$N` are operands in LLVM's numbering: results first.

use tesserine_set::DType;

use super::builder::{F32, Ty};
use crate::ir::tile::{AtomicOp, Cache};

/// A template with its constraints.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Template {
    pub text: String,
    pub constraints: String,
}

/// How an access of some bytes is spelled: the PTX type, and how many 32- or 64-bit registers it takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Words {
    pub spelling: &'static str,
    /// 32-bit registers.
    pub count: usize,
}

/// The words of an access of `bytes` bytes (a power of two up to 16).
pub fn words(bytes: u32) -> Words {
    let (spelling, count) = match bytes {
        1 => ("b8", 1),
        2 => ("b16", 1),
        4 => ("b32", 1),
        8 => ("v2.b32", 2),
        16 => ("v4.b32", 4),
        _ => unreachable!("no access has {bytes} bytes"),
    };
    Words { spelling, count }
}

fn priority(cache: Cache) -> &'static str {
    match cache {
        Cache::Normal => "",
        Cache::EvictFirst => ".L1::evict_first",
        Cache::EvictLast => ".L1::evict_last",
    }
}

fn registers(first: usize, count: usize) -> String {
    let list: Vec<String> = (first..first + count).map(|i| format!("${i}")).collect();
    match count {
        1 => list[0].clone(),
        _ => format!("{{{}}}", list.join(",")),
    }
}

fn address(operand: usize, offset: i64) -> String {
    match offset {
        0 => format!("[${operand}]"),
        _ => format!("[${operand}+{offset}]"),
    }
}

/// A load. Operands: the address, the predicate if `predicated`, then one padding for each result if `predicated`.
/// `constant`: nothing writes the memory while the kernel runs.
pub fn load(words: Words, offset: i64, predicated: bool, constant: bool, cache: Cache) -> Template {
    let n = words.count;
    let guard = if predicated {
        format!("@${} ", n + 1)
    } else {
        String::new()
    };
    let text = format!(
        "{guard}ld.global{}{}.{} {}, {};",
        if constant { ".nc" } else { "" },
        priority(cache),
        words.spelling,
        registers(0, n),
        address(n, offset),
    );
    let early = if predicated { "=&r" } else { "=r" };
    let mut constraints: Vec<String> = vec![early.to_owned(); n];
    constraints.push("l".to_owned());
    if predicated {
        constraints.push("b".to_owned());
        constraints.extend((0..n).map(|i| i.to_string()));
    }
    if !constant {
        constraints.push("~{memory}".to_owned());
    }
    Template {
        text,
        constraints: constraints.join(","),
    }
}

/// A store. Operands: the address, the words, then the predicate if `predicated`.
pub fn store(words: Words, offset: i64, predicated: bool, cache: Cache) -> Template {
    let n = words.count;
    let guard = if predicated {
        format!("@${} ", n + 1)
    } else {
        String::new()
    };
    let text = format!(
        "{guard}st.global{}.{} {}, {};",
        priority(cache),
        words.spelling,
        address(0, offset),
        registers(1, n),
    );
    let mut constraints = vec!["l".to_owned()];
    constraints.extend(vec!["r".to_owned(); n]);
    if predicated {
        constraints.push("b".to_owned());
    }
    constraints.push("~{memory}".to_owned());
    Template {
        text,
        constraints: constraints.join(","),
    }
}

/// A load from shared memory. Operand: the address.
pub fn load_shared(words: Words, offset: i64) -> Template {
    let n = words.count;
    Template {
        text: format!(
            "ld.shared.{} {}, {};",
            words.spelling,
            registers(0, n),
            address(n, offset)
        ),
        constraints: format!("{}l,~{{memory}}", "=r,".repeat(n)),
    }
}

/// A store to shared memory under a predicate. Operands: the address, the words, the predicate.
pub fn store_shared(words: Words) -> Template {
    let n = words.count;
    let text = format!(
        "@${} st.shared.{} [$0], {};",
        n + 1,
        words.spelling,
        registers(1, n)
    );
    Template {
        text,
        constraints: format!("l,{}b,~{{memory}}", "r,".repeat(n)),
    }
}

/// An asynchronous copy of `bytes` bytes. Operands: where to, where from, then how many bytes of the source are read, the
/// rest being zeros, if `partial`, then the predicate if `predicated`.
pub fn copy_async(bytes: u32, to: i64, from: i64, partial: bool, predicated: bool) -> Template {
    let level = if bytes == 16 { "cg" } else { "ca" };
    let (size, mut constraints) = match partial {
        true => (", $2", "l,l,r".to_owned()),
        false => ("", "l,l".to_owned()),
    };
    let mut guard = String::new();
    if predicated {
        guard = format!("@${} ", 2 + usize::from(partial));
        constraints += ",b";
    }
    Template {
        text: format!(
            "{guard}cp.async.{level}.shared.global.L2::128B {}, {}, {bytes}{size};",
            address(0, to),
            address(1, from)
        ),
        constraints: constraints + ",~{memory}",
    }
}

/// Asynchronous copies of 16 bytes of every `step`th row from a thread's first one on, as far as there are `rows`. Operands: where to, where
/// from, the thread's first row among those, the same among those of the view, how many the view has, how many bytes of the source are read
/// where the view has the row, and the bytes between the rows of two copies in memory; in shared memory they are `pitch`. A loop, since its
/// role has few registers.
pub fn fetch_rows(rows: u32, step: u32, pitch: u32) -> Template {
    Template {
        text: format!(
            "{{ .reg .pred p; .reg .b32 t, r, n; .reg .b64 f, a; mov.b32 t, $0; mov.b64 f, $1; mov.b32 r, $2; mov.b64 a, $3; \
             setp.ge.u32 p, r, {rows}; @p bra DONE; AGAIN: setp.lt.u64 p, a, $4; selp.b32 n, $5, 0, p; \
             cp.async.cg.shared.global.L2::128B [t], [f], 16, n; add.s32 t, t, {pitch}; add.s64 f, f, $6; add.s32 r, r, {step}; \
             add.s64 a, a, {step}; setp.lt.u32 p, r, {rows}; @p bra AGAIN; DONE: }}"
        ),
        constraints: "r,l,r,l,l,r,l,~{memory}".to_owned(),
    }
}

/// An atomic operation on memory, relaxed. Operands: the address, the value (before it what is expected, of `cas`), then, if
/// not `always`, a predicate and what the result is where it does not hold. The least and the greatest of floats are found
/// by trying.
pub fn atomic(op: AtomicOp, elem: DType, always: bool) -> Template {
    let wide = elem.bits() == 64;
    let register = if wide { "l" } else { "r" };
    let size = elem.bits();
    let values = if op == AtomicOp::Cas { 2 } else { 1 };
    let result = if always { "=" } else { "=&" };
    let mut constraints = format!(
        "{result}{register},l{}",
        format!(",{register}").repeat(values)
    );
    let mut guard = String::new();
    if !always {
        guard = format!("@${} ", 2 + values);
        constraints += ",b,0";
    }
    constraints += ",~{memory}";
    let letter = match elem {
        t if t.is_float() => "f",
        t if t.is_signed() => "s",
        _ => "u",
    };
    let (name, ty) = match op {
        AtomicOp::Add if elem.is_float() => ("add", format!("f{size}")),
        AtomicOp::Add => ("add", format!("u{size}")),
        AtomicOp::Max => ("max", format!("{letter}{size}")),
        AtomicOp::Min => ("min", format!("{letter}{size}")),
        AtomicOp::And => ("and", format!("b{size}")),
        AtomicOp::Or => ("or", format!("b{size}")),
        AtomicOp::Xor => ("xor", format!("b{size}")),
        AtomicOp::Cas => ("cas", format!("b{size}")),
    };
    let text = match op {
        AtomicOp::Max | AtomicOp::Min if elem.is_float() => {
            let skip = if always {
                String::new()
            } else {
                "@!$3 bra DONE; ".to_owned()
            };
            format!(
                "{{ .reg .pred p; .reg .b{size} n, t; {skip}ld.global.relaxed.gpu.b{size} $0, [$1]; \
                 AGAIN: {name}.f{size} n, $0, $2; atom.global.relaxed.gpu.cas.b{size} t, [$1], $0, n; \
                 setp.ne.b{size} p, t, $0; mov.b{size} $0, t; @p bra AGAIN; DONE: }}"
            )
        }
        AtomicOp::Cas => {
            format!("{guard}atom.global.relaxed.gpu.cas.{ty} $0, [$1], $2, $3;")
        }
        _ => format!("{guard}atom.global.relaxed.gpu.{name}.{ty} $0, [$1], $2;"),
    };
    // Trying reads the address and the value after it has written the result.
    if matches!(op, AtomicOp::Max | AtomicOp::Min) && elem.is_float() {
        constraints =
            constraints.replacen(&format!("{result}{register}"), &format!("=&{register}"), 1);
    }
    Template { text, constraints }
}

/// Counts one thread's arrival, with fences before and after, and sets the counter back at the last one. Operands: the
/// address, the count before the last arrival, a predicate. Result: 1 at the last, 0 elsewhere.
pub fn arrive() -> Template {
    Template {
        text: "{ .reg .pred p; .reg .b32 c; mov.b32 $0, 0; @!$3 bra DONE; fence.acq_rel.gpu; \
               atom.global.relaxed.gpu.add.u32 c, [$1], 1; setp.eq.u32 p, c, $2; selp.b32 $0, 1, 0, p; \
               @p st.global.relaxed.gpu.b32 [$1], 0; fence.acq_rel.gpu; DONE: }"
            .to_owned(),
        constraints: "=&r,l,r,b,~{memory}".to_owned(),
    }
}

/// Draws the next number from a counter. Operand: its address.
pub fn draw() -> Template {
    Template {
        text: "atom.global.relaxed.gpu.add.u64 $0, [$1], 1;".to_owned(),
        constraints: "=l,l,~{memory}".to_owned(),
    }
}

/// Sets a counter to 0. Operands: its address, a predicate.
pub fn reset() -> Template {
    Template {
        text: "@$1 st.global.relaxed.gpu.u64 [$0], 0;".to_owned(),
        constraints: "l,b,~{memory}".to_owned(),
    }
}

/// The threads of a cluster meet, and what one wrote to shared memory the others read.
pub fn meet() -> Template {
    Template {
        text: "barrier.cluster.arrive.release.aligned; barrier.cluster.wait.acquire.aligned;"
            .to_owned(),
        constraints: "~{memory}".to_owned(),
    }
}

/// A word of the cluster's first block. Operand: where it is in a block's shared memory.
pub fn load_first() -> Template {
    Template {
        text: "{ .reg .b64 a; mapa.shared::cluster.u64 a, $1, 0; ld.shared::cluster.b32 $0, [a]; }"
            .to_owned(),
        constraints: "=r,l,~{memory}".to_owned(),
    }
}

/// A product of 8-bit floats, 16 by 8 by 32. Operands: four words of the left one, two of the right one, four sums.
pub fn mma_fp8(left: DType, right: DType) -> Template {
    Template {
        text: format!(
            "mma.sync.aligned.m16n8k32.row.col.f32.{left}.{right}.f32 {}, {}, {}, {};",
            registers(0, 4),
            registers(4, 4),
            registers(8, 2),
            registers(10, 4)
        ),
        constraints: "=f,=f,=f,=f,r,r,r,r,r,r,f,f,f,f".to_owned(),
    }
}

/// Adds 1 to a word of shared memory. Operands: its address, a predicate.
pub fn count_shared() -> Template {
    Template {
        text: "@$1 red.shared.add.u32 [$0], 1;".to_owned(),
        constraints: "l,b,~{memory}".to_owned(),
    }
}

/// Where a place in shared memory is in another block of the cluster. Operands: its address, the block's rank.
pub fn map_shared() -> Template {
    Template {
        text: "mapa.shared::cluster.u64 $0, $1, $2;".to_owned(),
        constraints: "=l,l,r".to_owned(),
    }
}

/// A load from the shared memory of a block of the cluster. Operand: an address that [`map_shared`] gave.
pub fn load_cluster(words: Words, offset: usize) -> Template {
    let n = words.count;
    Template {
        text: format!(
            "ld.shared::cluster.{} {}, {};",
            words.spelling,
            registers(0, n),
            address(n, offset as i64)
        ),
        constraints: format!("{}l,~{{memory}}", "=r,".repeat(n)),
    }
}

/// Two f32 (the upper one first) to the low two bytes of a word; `kind` is `e4m3x2` or `e5m2x2`.
pub fn to_fp8(kind: &str) -> Template {
    Template {
        text: format!(
            "{{ .reg .b16 h; cvt.rn.satfinite.{kind}.f32 h, $1, $2; mov.b32 $0, {{h, h}}; }}"
        ),
        constraints: "=r,f,f".to_owned(),
    }
}

/// Two f32 (the upper one first) to the low byte of a word, as e2m1.
pub fn to_fp4() -> Template {
    Template {
        text: "{ .reg .b8 b; cvt.rn.satfinite.e2m1x2.f32 b, $1, $2; mov.b32 $0, {b, b, b, b}; }"
            .to_owned(),
        constraints: "=r,f,f".to_owned(),
    }
}

/// The low two bytes of a word to two halves in a word.
pub fn from_fp8(kind: &str) -> Template {
    Template {
        text: format!("{{ .reg .b16 h, z; mov.b32 {{h, z}}, $1; cvt.rn.f16x2.{kind} $0, h; }}"),
        constraints: "=r,r".to_owned(),
    }
}

/// Makes `depth` full and `depth` empty barriers, one after another. Operands: where, a predicate.
pub fn make_barriers(depth: u32, full: u32, empty: u32) -> Template {
    let text: Vec<String> = (0..2 * depth)
        .map(|i| {
            let count = if i < depth { full } else { empty };
            let place = address(0, i64::from(8 * i));
            format!("@$1 mbarrier.init.shared::cta.b64 {place}, {count};")
        })
        .collect();
    Template {
        text: text.join(" "),
        constraints: "r,b,~{memory}".to_owned(),
    }
}

/// Operands: the map, a predicate.
pub fn prefetch_map() -> Template {
    Template {
        text: "@$1 prefetch.tensormap [$0];".to_owned(),
        constraints: "l,b,~{memory}".to_owned(),
    }
}

/// Barriers that were made are seen by all blocks of the cluster, and by bulk copies.
pub fn fence_barriers() -> Template {
    Template {
        text: "fence.mbarrier_init.release.cluster;".to_owned(),
        constraints: "~{memory}".to_owned(),
    }
}

/// Lets the next grid of the stream begin once all blocks are here, and waits until those before have ended and what they stored is seen.
pub fn overlap() -> Template {
    Template {
        text: "griddepcontrol.launch_dependents; griddepcontrol.wait;".to_owned(),
        constraints: "~{memory}".to_owned(),
    }
}

/// Waits until the phase of this parity is complete. Operands: the barrier, the parity.
pub fn wait_barrier() -> Template {
    Template {
        text: "{ .reg .pred p; AGAIN: mbarrier.try_wait.parity.shared::cta.b64 p, [$0], $1; @p bra DONE; \
               bra AGAIN; DONE: }"
            .to_owned(),
        constraints: "r,r,~{memory}".to_owned(),
    }
}

/// Operands: the barrier, the bytes, a predicate.
pub fn expect_bytes() -> Template {
    Template {
        text: "@$2 mbarrier.arrive.expect_tx.shared::cta.b64 _, [$0], $1;".to_owned(),
        constraints: "r,r,b,~{memory}".to_owned(),
    }
}

/// Writes zeros to 16 bytes of each of `panels` panels, `panel` bytes apart, row after row. Operands: where the first piece lies, its row, the
/// row that is no more written, rows and bytes from one piece to the next.
pub fn clear_rows(panels: u32, panel: u32) -> Template {
    let mut text = String::from(
        "{ .reg .pred p; .reg .b32 at, row, z; mov.b32 at, $0; mov.b32 row, $1; mov.b32 z, 0; \
         AGAIN: setp.ge.s32 p, row, $2; @p bra DONE;",
    );
    for number in 0..panels {
        let piece = format!(" st.shared.v4.b32 [at+{}], {{z, z, z, z}};", number * panel);
        text.push_str(&piece);
    }
    text.push_str(" add.s32 at, at, $4; add.s32 row, row, $3; bra AGAIN; DONE: }");
    Template {
        text,
        constraints: "r,r,r,n,n,~{memory}".to_owned(),
    }
}

/// The lane's number.
pub fn lane() -> Template {
    Template {
        text: "mov.u32 $0, %laneid;".to_owned(),
        constraints: "=r".to_owned(),
    }
}

/// Operands: the barrier, a predicate.
pub fn arrive_barrier() -> Template {
    Template {
        text: "@$1 mbarrier.arrive.shared::cta.b64 _, [$0];".to_owned(),
        constraints: "r,b,~{memory}".to_owned(),
    }
}

/// Arrives when the thread's asynchronous copies so far have ended. Operand: the barrier.
pub fn arrive_copied() -> Template {
    Template {
        text: "cp.async.mbarrier.arrive.noinc.shared::cta.b64 [$0];".to_owned(),
        constraints: "r,~{memory}".to_owned(),
    }
}

/// Arrives at the barrier of another block of the cluster. Operands: the barrier's place, the block's rank, a predicate.
pub fn arrive_in_cluster() -> Template {
    Template {
        text: "{ .reg .b32 a; @$2 mapa.shared::cluster.u32 a, $0, $1; @$2 mbarrier.arrive.shared::cluster.b64 _, [a]; }"
            .to_owned(),
        constraints: "r,r,b,~{memory}".to_owned(),
    }
}

/// What the thread stored to shared memory is seen by bulk copies and products that begin after it.
pub fn fence_async() -> Template {
    Template {
        text: "fence.proxy.async.shared::cta;".to_owned(),
        constraints: "~{memory}".to_owned(),
    }
}

/// A bulk copy to shared memory. Operands: where to, the map, a coordinate for each of `dims` dimensions, the barrier that counts
/// its bytes, a predicate, then if `multicast` the blocks of the cluster as bits.
pub fn copy_bulk(dims: usize, multicast: bool, cache: Cache) -> Template {
    let coordinates = list(2, dims);
    let (barrier, guard) = (2 + dims, 3 + dims);
    let (modifier, blocks) = match multicast {
        true => (".multicast::cluster", format!(", ${}", 4 + dims)),
        false => ("", String::new()),
    };
    let (policy, hint, hinted) = match cache {
        Cache::Normal => (String::new(), "", ""),
        Cache::EvictFirst | Cache::EvictLast => {
            let name = cache.name();
            let policy =
                format!(".reg .b64 policy; createpolicy.fractional.L2::{name}.b64 policy, 1.0; ");
            (policy, ".L2::cache_hint", ", policy")
        }
    };
    let copy = format!(
        "@${guard} cp.async.bulk.tensor.{dims}d.shared::cluster.global.tile.mbarrier::complete_tx::bytes{modifier}{hint} \
         [$0], [$1, {coordinates}], [${barrier}]{blocks}{hinted};"
    );
    Template {
        text: match cache {
            Cache::Normal => copy,
            Cache::EvictFirst | Cache::EvictLast => format!("{{ {policy}{copy} }}"),
        },
        constraints: format!(
            "r,l,{}r,b,{}~{{memory}}",
            "r,".repeat(dims),
            if multicast { "h," } else { "" }
        ),
    }
}

/// A bulk copy from shared memory, a group by itself. Operands: the map, a coordinate for each of `dims` dimensions, where from,
/// a predicate.
pub fn store_bulk(dims: usize) -> Template {
    let coordinates = list(1, dims);
    let (from, guard) = (1 + dims, 2 + dims);
    Template {
        text: format!(
            "@${guard} cp.async.bulk.tensor.{dims}d.global.shared::cta.tile.bulk_group [$0, {coordinates}], [${from}]; \
             @${guard} cp.async.bulk.commit_group;"
        ),
        constraints: format!("l,{}r,b,~{{memory}}", "r,".repeat(dims)),
    }
}

/// The thread waits for its bulk stores.
pub fn wait_stores(pending: u32, read: bool) -> Template {
    let read = if read { ".read" } else { "" };
    Template {
        text: format!("cp.async.bulk.wait_group{read} {pending};"),
        constraints: "~{memory}".to_owned(),
    }
}

/// An operand of a warpgroup's product.
#[derive(Clone, Debug)]
pub enum Factor {
    /// In shared memory: what is added to the descriptor for each block of rows and step along K. `turned`: K does not run along
    /// the rows.
    Slot {
        distances: Vec<Vec<u32>>,
        turned: bool,
    },
    /// Four words for each block of rows and step along K.
    Registers,
}

/// A product of a warpgroup: `blocks` times 64 rows, `n` columns, `steps` times `k`.
#[derive(Clone, Debug)]
pub struct WarpgroupProduct {
    pub n: u32,
    pub k: u32,
    /// Of the sums, of the left factor and of the right one.
    pub types: [DType; 3],
    pub blocks: usize,
    pub steps: usize,
    /// The sums begin at 0.
    pub fresh: bool,
    pub left: Factor,
    pub right: Factor,
}

/// A product, with the fence before it, as one group. Results: the sums, blocks one after another. Operands, unless `fresh`: the
/// sums, and a predicate that is false where they count as 0; then the left factor, a descriptor or its words, and the right one.
pub fn warpgroup_product(product: &WarpgroupProduct) -> Template {
    let WarpgroupProduct {
        n,
        k,
        types: [sum, a, b],
        blocks,
        steps,
        fresh,
        left,
        right,
    } = product;
    let own = (*n / 2) as usize;
    let sums = own * blocks;
    let mut next = sums;
    let register = if *sum == DType::F32 { "f" } else { "r" };
    let early = if *fresh { "=&" } else { "=" };
    let mut constraints = vec![format!("{early}{register}"); sums];
    let mut first = "f".to_owned();
    if !fresh {
        constraints.extend((0..sums).map(|i| i.to_string()));
        next += sums;
        first = format!("${next}");
        constraints.push("b".to_owned());
        next += 1;
    }
    let left_at = next;
    match left {
        Factor::Slot { .. } => {
            constraints.push("l".to_owned());
            next += 1;
        }
        Factor::Registers => {
            constraints.extend(vec!["r".to_owned(); 4 * blocks * steps]);
            next += 4 * blocks * steps;
        }
    }
    let right_at = next;
    constraints.push("l".to_owned());
    constraints.push("~{memory}".to_owned());

    let spelled = |t: &DType| match t {
        DType::I8 => "s8".to_owned(),
        DType::I32 => "s32".to_owned(),
        t => t.to_string(),
    };
    let is_sixteen = a.bits() == 16;
    let turned = |factor: &Factor| matches!(factor, Factor::Slot { turned: true, .. });
    let mut rest = match sum {
        DType::F32 => ", 1, 1".to_owned(),
        _ => String::new(),
    };
    if is_sixteen {
        if let Factor::Slot { turned, .. } = left {
            rest += &format!(", {}", u32::from(*turned));
        }
        rest += &format!(", {}", u32::from(turned(right)));
    }
    let name = format!(
        "wgmma.mma_async.sync.aligned.m64n{n}k{k}.{}.{}.{}",
        spelled(sum),
        spelled(a),
        spelled(b)
    );
    let mut text = "{ .reg .pred t, f; .reg .b64 a, b; setp.ne.b32 t, 1, 0; setp.ne.b32 f, 0, 0; \
                    wgmma.fence.sync.aligned; "
        .to_owned();
    for block in 0..*blocks {
        for step in 0..*steps {
            let left = match left {
                Factor::Slot { distances, .. } => {
                    text += &format!("add.s64 a, ${left_at}, {}; ", distances[block][step]);
                    "a".to_owned()
                }
                Factor::Registers => {
                    format!("{{{}}}", list_of(left_at + 4 * (block * steps + step), 4))
                }
            };
            if let Factor::Slot { distances, .. } = right {
                text += &format!("add.s64 b, ${right_at}, {}; ", distances[0][step]);
            }
            let accumulate = if step == 0 { &first } else { "t" };
            text += &format!(
                "{name} {{{}}}, {left}, b, {accumulate}{rest}; ",
                list_of(block * own, own)
            );
        }
    }
    text += "wgmma.commit_group.sync.aligned; }";
    Template {
        text,
        constraints: constraints.join(","),
    }
}

/// Waits for products, and passes what is in flight through. Operands and results: the tiles' registers, of these types; further
/// operands: so many words that products in flight read.
pub fn wait_products(pending: u32, types: &[Ty], words: usize) -> Template {
    let letter = |ty: &Ty| if *ty == F32 { "f" } else { "r" };
    let results = types.iter().map(|ty| format!("={}", letter(ty)));
    let operands = (0..types.len()).map(|i| i.to_string());
    let all = results
        .chain(operands)
        .chain((0..words).map(|_| "r".to_owned()))
        .chain(["~{memory}".to_owned()])
        .collect::<Vec<_>>();
    Template {
        text: format!("wgmma.wait_group.sync.aligned {pending};"),
        constraints: all.join(","),
    }
}

fn list_of(first: usize, count: usize) -> String {
    let list: Vec<String> = (first..first + count).map(|i| format!("${i}")).collect();
    list.join(",")
}

fn list(first: usize, count: usize) -> String {
    format!("{{{}}}", list_of(first, count))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loads_keep_their_padding() {
        let t = load(words(16), 64, true, true, Cache::EvictFirst);
        assert_eq!(
            t.text,
            "@$5 ld.global.nc.L1::evict_first.v4.b32 {$0,$1,$2,$3}, [$4+64];"
        );
        assert_eq!(t.constraints, "=&r,=&r,=&r,=&r,l,b,0,1,2,3");
    }

    #[test]
    fn stores_clobber_memory() {
        let t = store(words(2), 0, true, Cache::Normal);
        assert_eq!(t.text, "@$2 st.global.b16 [$0], $1;");
        assert_eq!(t.constraints, "l,r,b,~{memory}");
    }
}
