//! Matrix instructions in kernels: `ldmatrix`, `stmatrix`, `movmatrix`, `mma`, `wgmma`, and what is wrong with those that misuse them.

use tesserine_emulator::{
    Fault, FaultKind, Launch, LoadError, Memory, Module, Options, target::Target,
};

/// A kernel: `%r1` is the thread, `%rd1` and `%rd2` its word in the input and the output, `tile` 32 KiB of shared memory at `%r2`.
fn kernel(body: &str) -> String {
    format!(
        ".version 8.0\n.target sm_90a\n.address_size 64\n\
         .visible .entry k(.param .u64 in, .param .u64 out)\n{{\n\
         .reg .pred %p<4>;\n.reg .b32 %r<64>;\n.reg .b64 %rd<16>;\n.reg .f32 %f<64>;\n.reg .f64 %fd<64>;\n\
         .shared .align 1024 .b8 tile[32768];\n\
         ld.param.u64 %rd1, [in];\nld.param.u64 %rd2, [out];\nmov.u32 %r1, %tid.x;\nmul.wide.u32 %rd3, %r1, 4;\n\
         add.s64 %rd1, %rd1, %rd3;\nadd.s64 %rd2, %rd2, %rd3;\nmov.u32 %r2, tile;\n{body}\nret;\n}}\n"
    )
}

/// The line of a body's first instruction.
const FIRST: u32 = 19;

/// Runs a block of `threads` threads; gives the first `outputs` words.
fn run(body: &str, threads: u32, input: &[u32], outputs: usize) -> Result<Vec<u32>, Fault> {
    let target = Target::named("sm_90a").unwrap();
    let module = Module::load(&kernel(body), target).unwrap_or_else(|e| panic!("{e}"));
    let memory = Memory::new();
    let bytes: Vec<u8> = input.iter().flat_map(|w| w.to_le_bytes()).collect();
    let from = memory.allocate(bytes.len()).unwrap();
    memory.write(from, &bytes).unwrap();
    let to = memory.allocate(4 * outputs).unwrap();
    let arguments = [from.to_le_bytes(), to.to_le_bytes()];
    let launch = Launch {
        entry: "k",
        grid: [1, 1, 1],
        block: [threads, 1, 1],
        cluster: [1, 1, 1],
        shared_bytes: 0,
        arguments: &[&arguments[0], &arguments[1]],
    };
    module.launch(&memory, &launch, &Options::default())?;
    let mut bytes = vec![0; 4 * outputs];
    memory.read(to, &mut bytes).unwrap();
    let words = bytes.as_chunks::<4>().0;
    Ok(words.iter().map(|b| u32::from_le_bytes(*b)).collect())
}

fn fault(body: &str, threads: u32, input: &[u32]) -> Fault {
    match run(body, threads, input, 4096) {
        Err(fault) => fault,
        Ok(_) => panic!("no fault:\n{body}"),
    }
}

/// Loads words of the thread to registers, word i from `4 i threads` bytes further.
fn load(kind: &str, registers: std::ops::Range<usize>, threads: usize) -> String {
    let one = |(i, r)| format!("ld.global.b32 %{kind}{r}, [%rd1+{}];\n", 4 * threads * i);
    registers.enumerate().map(one).collect()
}

/// Stores registers so.
fn store(kind: &str, registers: std::ops::Range<usize>, threads: usize) -> String {
    let one = |(i, r)| format!("st.global.b32 [%rd2+{}], %{kind}{r};\n", 4 * threads * i);
    registers.enumerate().map(one).collect()
}

/// Copies `count` words a thread to `tile`.
fn fill(count: usize, threads: usize) -> String {
    let mut text = "shl.b32 %r3, %r1, 2;\nadd.u32 %r3, %r3, %r2;\n".to_owned();
    for i in 0..count {
        let at = 4 * threads * i;
        text += &format!("ld.global.b32 %r4, [%rd1+{at}];\nst.shared.b32 [%r3+{at}], %r4;\n");
    }
    text + "bar.sync 0;\n"
}

fn list(kind: &str, range: std::ops::Range<usize>) -> String {
    let names: Vec<String> = range.map(|i| format!("%{kind}{i}")).collect();
    format!("{{{}}}", names.join(", "))
}

/// Four matrices of 8 rows of 16 bytes: element c of row r of matrix m is 256 m + 8 r + c.
fn matrices() -> Vec<u32> {
    let element = |m: usize, r: usize, c: usize| (256 * m + 8 * r + c) as u32;
    let word = |i: usize| {
        let (m, r, c) = (i / 32, i / 4 % 8, i % 4 * 2);
        element(m, r, c) | element(m, r, c + 1) << 16
    };
    (0..128).map(word).collect()
}

/// The address of row `lane` of `tile` in `%r3`.
const ROW: &str = "shl.b32 %r3, %r1, 4;\nadd.u32 %r3, %r3, %r2;\n";

#[test]
fn ldmatrix_gives_each_thread_its_elements() {
    for (transposed, count) in [false, true]
        .into_iter()
        .flat_map(|t| [1, 2, 4].map(|c| (t, c)))
    {
        let trans = if transposed { ".trans" } else { "" };
        let to = list("r", 10..10 + count);
        let body = fill(4, 32)
            + ROW
            + &format!("ldmatrix.sync.aligned.m8n8.x{count}{trans}.shared.b16 {to}, [%r3];\n")
            + &store("r", 10..10 + count, 32);
        let got = run(&body, 32, &matrices(), 32 * count).unwrap();
        for (m, lane) in (0..count).flat_map(|m| (0..32).map(move |l| (m, l))) {
            let (a, b) = (lane / 4, lane % 4 * 2);
            let element = |i: usize| {
                let (row, column) = if transposed { (b + i, a) } else { (a, b + i) };
                (256 * m + 8 * row + column) as u32
            };
            assert_eq!(got[32 * m + lane], element(0) | element(1) << 16);
        }
    }
}

#[test]
fn stmatrix_writes_what_ldmatrix_reads() {
    for trans in ["", ".trans"] {
        let registers = list("r", 10..14);
        let mut body = fill(4, 32)
            + ROW
            + &format!(
                "ldmatrix.sync.aligned.m8n8.x4{trans}.shared.b16 {registers}, [%r3];\n\
                 stmatrix.sync.aligned.m8n8.x4{trans}.shared.b16 [%r3+1024], {registers};\n\
                 bar.sync 0;\nshl.b32 %r3, %r1, 2;\nadd.u32 %r3, %r3, %r2;\n"
            );
        for i in 0..4 {
            body += &format!("ld.shared.b32 %r{}, [%r3+{}];\n", 20 + i, 1024 + 128 * i);
        }
        let got = run(&(body + &store("r", 20..24, 32)), 32, &matrices(), 128).unwrap();
        assert_eq!(got, matrices());
    }
}

#[test]
fn movmatrix_transposes() {
    let body = load("r", 10..11, 32)
        + "movmatrix.sync.aligned.m8n8.trans.b16 %r11, %r10;\n"
        + &store("r", 11..12, 32);
    let got = run(&body, 32, &matrices(), 32).unwrap();
    for (lane, word) in (0..32).zip(got) {
        let (row, column) = (lane / 4, lane % 4 * 2);
        assert_eq!(word, (8 * column + row) | (8 * (column + 1) + row) << 16);
    }
}

/// A small number for each place, and its bits as `.bf16`.
fn number(i: usize) -> f32 {
    (i * 7919 % 13) as f32 - 6.0
}

fn bf16(x: f32) -> u32 {
    x.to_bits() >> 16
}

#[test]
fn mma_multiplies() {
    let a = |row: usize, k: usize| number(16 * row + k);
    let b = |k: usize, column: usize| number(1000 + 8 * k + column);
    let pair = |x: f32, y: f32| bf16(x) | bf16(y) << 16;
    let mut input = Vec::new();
    for (r, lane) in (0..4).flat_map(|r| (0..32).map(move |l| (r, l))) {
        let (row, k) = (lane / 4 + r % 2 * 8, lane % 4 * 2 + r / 2 * 8);
        input.push(pair(a(row, k), a(row, k + 1)));
    }
    for (r, lane) in (0..2).flat_map(|r| (0..32).map(move |l| (r, l))) {
        let (k, column) = (lane % 4 * 2 + r * 8, lane / 4);
        input.push(pair(b(k, column), b(k + 1, column)));
    }
    let body = load("r", 10..16, 32)
        + "mov.f32 %f0, 0f3F000000;\n"
        + &format!(
            "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {}, {}, {}, {{%f0, %f0, %f0, %f0}};\n",
            list("f", 4..8),
            list("r", 10..14),
            list("r", 14..16)
        )
        + &store("f", 4..8, 32);
    let got = run(&body, 32, &input, 128).unwrap();
    for (r, lane) in (0..4).flat_map(|r| (0..32).map(move |l| (r, l))) {
        let (row, column) = (lane / 4 + r / 2 * 8, lane % 4 * 2 + r % 2);
        let want: f32 = 0.5 + (0..16).map(|k| a(row, k) * b(k, column)).sum::<f32>();
        assert_eq!(f32::from_bits(got[32 * r + lane]), want);
    }
}

#[test]
fn mma_multiplies_doubles_integers_and_bits() {
    let body = "mov.f64 %fd0, 0d3FF0000000000000;\nmov.f64 %fd1, 0d4000000000000000;\n\
         mov.b32 %r10, 0x01010101;\nmov.b32 %r11, 0xffffffff;\nmov.b32 %r12, 5;\n\
         mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%fd2, %fd3}, {%fd0}, {%fd1}, {%fd0, %fd1};\n\
         mov.b64 {%r16, %r17}, %fd2;\nmov.b64 {%r18, %r19}, %fd3;\n\
         mma.sync.aligned.m16n8k32.row.col.s32.u8.s8.s32 {%r20, %r21, %r22, %r23}, \
         {%r10, %r11, %r10, %r11}, {%r11, %r11}, {%r12, %r12, %r12, %r12};\n\
         mma.sync.aligned.m8n8k128.row.col.s32.b1.b1.s32.xor.popc {%r24, %r25}, {%r10}, {%r11}, \
         {%r12, %r12};\n\
         mma.sync.aligned.m16n8k128.row.col.s32.b1.b1.s32.and.popc {%r26, %r27, %r28, %r29}, \
         {%r10, %r11}, {%r11}, {%r12, %r12, %r12, %r12};\n"
        .to_owned()
        + &store("r", 16..30, 32);
    let got = run(&body, 32, &[0], 14 * 32).unwrap();
    let words = |x: f64| [x.to_bits() as u32, (x.to_bits() >> 32) as u32];
    let mut want = Vec::new();
    // 1 + 4 x 2, and 2 + 4 x 2.
    want.extend(words(9.0));
    want.extend(words(10.0));
    // 5 - 32 in rows of ones, 5 - 32 x 255 in rows of 255.
    want.extend([-27, -27, -8155, -8155].map(|x: i32| x as u32));
    // 28 bits of 32 differ, and 4 are common; in the other rows all are.
    want.extend([
        5 + 4 * 28,
        5 + 4 * 28,
        5 + 4 * 4,
        5 + 4 * 4,
        5 + 128,
        5 + 128,
    ]);
    for (r, want) in want.into_iter().enumerate() {
        assert_eq!(got[32 * r..][..32], [want; 32], "{r}");
    }
}

/// A of 64 x 16 and B of 16 x 16 in shared memory as rows of 128 bytes with the swizzle of 128 bytes, of which 32 are used.
fn group_input() -> Vec<u32> {
    let mut bytes = vec![0_u8; 10240];
    for (row, k) in (0..80).flat_map(|row| (0..16).map(move |k| (row, k))) {
        let at = row * 128 + ((k / 8) ^ (row % 8)) * 16 + k % 8 * 2;
        let bits = bf16(number(16 * row + k)) as u16;
        bytes[at..at + 2].copy_from_slice(&bits.to_le_bytes());
    }
    let words = bytes.as_chunks::<4>().0;
    words.iter().map(|b| u32::from_le_bytes(*b)).collect()
}

fn group_sum(row: usize, column: usize) -> f32 {
    (0..16)
        .map(|k| number(16 * row + k) * number(16 * (64 + column) + k))
        .sum()
}

/// Fills shared memory; descriptors in `%rd5` and `%rd6`.
fn group_start() -> String {
    fill(20, 128).replace("bar.sync", "fence.proxy.async.shared::cta;\nbar.sync")
        + "shr.u32 %r4, %r2, 4;\nmov.b32 %r5, 0x40000040;\nmov.b64 %rd5, {%r4, %r5};\n\
           add.s64 %rd6, %rd5, 512;\n"
}

const FENCE: &str = "wgmma.fence.sync.aligned;\n";
const COMMIT: &str = "wgmma.commit_group.sync.aligned;\n";
const WAIT: &str = "wgmma.wait_group.sync.aligned 0;\n";
const WAIT_1: &str = "wgmma.wait_group.sync.aligned 1;\n";

/// To eight registers from `%f{first}` on.
fn product_to(first: usize, a: &str, rest: &str) -> String {
    let d = list("f", first..first + 8);
    format!("wgmma.mma_async.sync.aligned.m64n16k16.f32.bf16.bf16 {d}, {a}, %rd6, {rest};\n")
}

fn product(accumulate: bool) -> String {
    product_to(0, "%rd5", &format!("{}, 1, 1, 0, 0", u8::from(accumulate)))
}

#[test]
fn wgmma_multiplies() {
    let body = group_start() + FENCE + &product(false) + &product(true) + COMMIT + WAIT;
    let got = run(&(body + &store("f", 0..8, 128)), 128, &group_input(), 1024).unwrap();
    for (i, thread) in (0..8).flat_map(|i| (0..128).map(move |t| (i, t))) {
        let row = thread / 32 * 16 + thread % 32 / 4 + i / 2 % 2 * 8;
        let column = thread % 4 * 2 + i % 2 + i / 4 * 8;
        let want = 2.0 * group_sum(row, column);
        assert_eq!(f32::from_bits(got[128 * i + thread]), want, "{i} {thread}");
    }
}

#[test]
fn wgmma_takes_a_from_registers() {
    // Each register of A is (1, 1): D is the sum of each of B's columns, negated.
    let body = group_start()
        + "mov.b32 %r10, 0x3f803f80;\n"
        + FENCE
        + &product_to(0, "{%r10, %r10, %r10, %r10}", "0, -1, 1, 0")
        + COMMIT
        + WAIT
        + &store("f", 0..8, 128);
    let got = run(&body, 128, &group_input(), 1024).unwrap();
    for (i, thread) in (0..8).flat_map(|i| (0..128).map(move |t| (i, t))) {
        let column = thread % 4 * 2 + i % 2 + i / 4 * 8;
        let want: f32 = -(0..16).map(|k| number(16 * (64 + column) + k)).sum::<f32>();
        assert_eq!(f32::from_bits(got[128 * i + thread]), want);
    }
}

#[test]
fn accumulators_are_pending_until_waited_for() {
    let issued = group_start() + FENCE + &product(false);
    let stores = store("f", 0..8, 128);
    let wrong = [
        // Not waited for at all, waited for with a group left, and never committed.
        issued.clone() + COMMIT + &stores,
        issued.clone() + COMMIT + WAIT_1 + &stores,
        issued.clone() + WAIT + &stores,
        // A write is no better than a read.
        issued.clone() + COMMIT + "mov.f32 %f3, 0f00000000;\n" + WAIT,
    ];
    for body in wrong {
        let early = fault(&body, 128, &group_input());
        assert_eq!(early.kind, FaultKind::Pending, "{early}");
        assert!(early.message.contains("wgmma.wait_group"), "{early}");
    }
}

#[test]
fn registers_of_a_are_pending_too() {
    let issued = group_start()
        + "mov.b32 %r10, 0x3f803f80;\n"
        + FENCE
        + &product_to(0, "{%r10, %r10, %r10, %r10}", "0, 1, 1, 0")
        + COMMIT;
    let early = fault(
        &(issued.clone() + "mov.b32 %r10, 0;\n" + WAIT),
        128,
        &group_input(),
    );
    assert_eq!(early.kind, FaultKind::Pending, "{early}");
    run(
        &(issued + WAIT + "mov.b32 %r10, 0;\n"),
        128,
        &group_input(),
        1,
    )
    .unwrap();
}

#[test]
fn older_groups_can_be_read_while_newer_ones_run() {
    let body = group_start()
        + FENCE
        + &product(false)
        + COMMIT
        + &product_to(8, "%rd5", "0, 1, 1, 0, 0")
        + COMMIT
        + WAIT_1
        + &store("f", 0..8, 128)
        + WAIT;
    let got = run(&body, 128, &group_input(), 1024).unwrap();
    assert_eq!(f32::from_bits(got[0]), group_sum(0, 0));
}

#[test]
fn chains_have_one_shape() {
    // The first of the registers as accumulators of another shape, with no wait in between.
    let narrow = "wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%f0, %f1, %f2, %f3}, %rd5, %rd6, 1, 1, 1, 0, 0;\n";
    let body = group_start() + FENCE + &product(false) + narrow;
    let torn = fault(&body, 128, &group_input());
    assert_eq!(torn.kind, FaultKind::Pending, "{torn}");
}

#[test]
fn written_registers_need_a_fence() {
    let zero: String = (0..8)
        .map(|i| format!("mov.f32 %f{i}, 0f00000000;\n"))
        .collect();
    let after = group_start() + FENCE + &zero + &product(true) + COMMIT + WAIT;
    let unfenced = fault(&after, 128, &group_input());
    assert_eq!(unfenced.kind, FaultKind::Race, "{unfenced}");
    assert!(unfenced.message.contains("wgmma.fence"), "{unfenced}");
    let before = group_start() + &zero + FENCE + &product(true) + COMMIT + WAIT;
    let body = before + &store("f", 0..8, 128);
    let got = run(&body, 128, &group_input(), 1024).unwrap();
    assert_eq!(f32::from_bits(got[0]), group_sum(0, 0));
}

#[test]
fn accumulators_must_be_written_before_they_are_added_to() {
    let body = group_start() + FENCE + &product(true) + COMMIT + WAIT;
    let unwritten = fault(&body, 128, &group_input());
    assert_eq!(
        unwritten.kind,
        FaultKind::UninitializedRegister,
        "{unwritten}"
    );
}

#[test]
fn a_group_is_four_warps_that_do_the_same() {
    let multiply = FENCE.to_owned() + &product(false) + COMMIT + WAIT;
    let few = fault(&(group_start() + &multiply), 96, &group_input());
    assert_eq!(few.kind, FaultKind::Participation, "{few}");
    // The last warp multiplies with another B.
    let body =
        group_start() + "setp.ge.u32 %p1, %r1, 96;\n@%p1 add.s64 %rd6, %rd6, -8;\n" + &multiply;
    let other = fault(&body, 128, &group_input());
    assert_eq!(other.kind, FaultKind::Participation, "{other}");
    // The last warp goes away.
    let body = group_start() + "setp.ge.u32 %p1, %r1, 96;\n@%p1 exit;\n" + &multiply;
    let gone = fault(&body, 128, &group_input());
    assert_eq!(gone.kind, FaultKind::Participation, "{gone}");
    // Threads of a warp have different descriptors.
    let body =
        group_start() + "setp.eq.u32 %p1, %r1, 7;\n@%p1 add.s64 %rd6, %rd6, -8;\n" + &multiply;
    let torn = fault(&body, 128, &group_input());
    assert_eq!(torn.kind, FaultKind::Operand, "{torn}");
}

#[test]
fn products_read_through_the_async_proxy() {
    let multiply = FENCE.to_owned() + &product(false) + COMMIT + WAIT;
    let body = group_start().replace("fence.proxy.async.shared::cta;\n", "") + &multiply;
    let unfenced = fault(&body, 128, &group_input());
    assert_eq!(unfenced.kind, FaultKind::MissingProxyFence, "{unfenced}");
}

#[test]
fn operands_stay_until_the_product_was_waited_for() {
    let write = "mov.b32 %r4, 0;\nst.shared.b32 [%r3], %r4;\n";
    let issued = group_start() + FENCE + &product(false) + COMMIT;
    let torn = fault(&(issued.clone() + write + WAIT), 128, &group_input());
    assert_eq!(torn.kind, FaultKind::Race, "{torn}");
    // The other warps read it too.
    let torn = fault(&(issued.clone() + WAIT + write), 128, &group_input());
    assert_eq!(torn.kind, FaultKind::Race, "{torn}");
    run(
        &(issued + WAIT + "bar.sync 0;\n" + write),
        128,
        &group_input(),
        1,
    )
    .unwrap();
}

/// A ring of one stage: thread 0 fills it by a bulk copy twice, all multiply it twice. `released` stands where the first product is over.
fn ring(released: &str) -> String {
    let wait = |barrier: usize, label: &str| {
        format!(
            "{label}: mbarrier.try_wait.parity.shared::cta.b64 %p3, [%r2+{barrier}], 0;\n@!%p3 bra {label};\n"
        )
    };
    let copy = |barrier: usize| {
        format!(
            "@%p2 mbarrier.arrive.expect_tx.shared::cta.b64 %rd7, [%r2+{barrier}], 10240;\n\
             @%p2 cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r2], [%rd1], 10240, [%r2+{barrier}];\n"
        )
    };
    let (full, empty, again) = (16384, 16392, 16400);
    format!(
        "setp.eq.u32 %p2, %r1, 0;\n@%p2 mbarrier.init.shared::cta.b64 [%r2+{full}], 1;\n\
         @%p2 mbarrier.init.shared::cta.b64 [%r2+{empty}], 128;\n\
         @%p2 mbarrier.init.shared::cta.b64 [%r2+{again}], 1;\n\
         fence.proxy.async.shared::cta;\nbar.sync 0;\n\
         shr.u32 %r4, %r2, 4;\nmov.b32 %r5, 0x40000040;\nmov.b64 %rd5, {{%r4, %r5}};\nadd.s64 %rd6, %rd5, 512;\n"
    ) + &copy(full)
        + &wait(full, "$filled")
        + FENCE
        + &product(false)
        + COMMIT
        + released
        + &format!("mbarrier.arrive.shared::cta.b64 %rd8, [%r2+{empty}];\n@!%p2 bra $go;\n")
        + &wait(empty, "$empty")
        + &copy(again)
        + "$go:\n"
        + WAIT
        + &wait(again, "$again")
        + FENCE
        + &product(true)
        + COMMIT
        + WAIT
        + &store("f", 0..8, 128)
        + &format!(
            "bar.sync 0;\n@%p2 mbarrier.inval.shared::cta.b64 [%r2+{full}];\n\
             @%p2 mbarrier.inval.shared::cta.b64 [%r2+{empty}];\n@%p2 mbarrier.inval.shared::cta.b64 [%r2+{again}];\n"
        )
}

#[test]
fn stages_are_refilled_when_products_are_over() {
    let got = run(&ring(WAIT), 128, &group_input(), 1024).unwrap();
    assert_eq!(f32::from_bits(got[0]), 2.0 * group_sum(0, 0));
    // Released before the product was waited for.
    let torn = fault(&ring(""), 128, &group_input());
    assert_eq!(torn.kind, FaultKind::Race, "{torn}");
}

#[test]
fn matrices_are_ordered_as_other_accesses_are() {
    let load = ROW.to_owned()
        + "ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r10, %r11, %r12, %r13}, [%r3];\n";
    let race = fault(
        &(fill(4, 32).replace("bar.sync 0;\n", "") + &load),
        32,
        &matrices(),
    );
    assert_eq!(race.kind, FaultKind::Race, "{race}");
    let unwritten = fault(&(fill(3, 32) + &load), 32, &matrices());
    assert_eq!(
        unwritten.kind,
        FaultKind::UninitializedMemory,
        "{unwritten}"
    );
    // Each lane stores one row and gives another one's address to load.
    let store = "stmatrix.sync.aligned.m8n8.x4.shared.b16 [%r3], {%r10, %r10, %r10, %r10};\n\
                 xor.b32 %r3, %r3, 16;\n\
                 ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r10, %r11, %r12, %r13}, [%r3];\n";
    let race = fault(&(fill(4, 32) + &load + store), 32, &matrices());
    assert_eq!(race.kind, FaultKind::Race, "{race}");
}

#[test]
fn descriptors_stay_in_shared_memory() {
    let body = group_start() + "add.s64 %rd6, %rd6, 1536;\n" + FENCE + &product(false);
    let outside = fault(&body, 128, &group_input());
    assert_eq!(outside.kind, FaultKind::OutOfBounds, "{outside}");
}

#[test]
fn rows_are_aligned_and_in_shared_memory() {
    let with = |operands: &str| fill(4, 32) + "ldmatrix.sync.aligned.m8n8.x1" + operands + ";\n";
    let odd = fault(&with(".shared.b16 {%r10}, [%r2+8]"), 32, &matrices());
    assert_eq!(odd.kind, FaultKind::Misaligned, "{odd}");
    let far = fault(&with(".shared.b16 {%r10}, [%r2+32768]"), 32, &matrices());
    assert_eq!(far.kind, FaultKind::OutOfBounds, "{far}");
    let global = "and.b64 %rd4, %rd1, -16;\n".to_owned() + &with(".b16 {%r10}, [%rd4]");
    let global = fault(&global, 32, &matrices());
    assert_eq!(global.kind, FaultKind::Operand, "{global}");
}

#[test]
fn whole_warps_take_part() {
    let multiply = "mov.b32 %r10, 0;\nmov.f32 %f0, 0f00000000;\n\
        mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%f1, %f2, %f3, %f4}, {%r10, %r10}, {%r10}, \
        {%f0, %f0, %f0, %f0};\n";
    let some = "setp.eq.u32 %p1, %r1, 5;\n@%p1 exit;\n".to_owned() + multiply;
    assert_eq!(fault(&some, 32, &[0]).kind, FaultKind::Participation);
    assert_eq!(fault(multiply, 16, &[0]).kind, FaultKind::Participation);
    run(multiply, 64, &[0], 1).unwrap();
}

fn refused(target: &str, instruction: &str) -> LoadError {
    let target = Target::named(target).unwrap();
    let text = kernel(&format!("{instruction};"))
        .replace("sm_90a", &target.to_string())
        .replace(".version 8.0", ".version 9.0");
    Module::load(&text, target).unwrap_err()
}

#[test]
fn what_is_not_known_is_refused() {
    let of_16 = "{%f0, %f1, %f2, %f3}, {%r0, %r1, %r2, %r3}, {%r4, %r5}, {%f0, %f1, %f2, %f3}";
    let unknown = [
        "mma.sync.aligned.m8n8k4.row.col.f16.f16.f16.f16 {%r0, %r1, %r2, %r3}, {%r0, %r1}, {%r2, %r3}, \
         {%r0, %r1, %r2, %r3}",
        &format!("mma.sync.aligned.m16n8k16.row.row.f32.f16.f16.f32 {of_16}"),
        &format!("mma.sync.aligned.m16n8k16.row.col.f32.f16.bf16.f32 {of_16}"),
        &format!("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {of_16}"),
        &format!("mma.sync.aligned.m16n8k16.row.col.satfinite.f32.f16.f16.f32 {of_16}"),
        &format!("mma.sp.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32 {of_16}, %r6, 0"),
        &format!(
            "mma.sync.aligned.m16n8k32.row.col.kind::mxf8f6f4.block_scale.f32.e4m3.e4m3.f32.ue8m0 {of_16}, \
             %r6, {{0, 0}}, %r7, {{0, 0}}"
        ),
        "ldmatrix.sync.aligned.m16n16.x1.trans.shared.b8 {%r0, %r1}, [%r2]",
        "ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r0, %r1}, [%r2]",
        "wgmma.mma_async.sync.aligned.m64n12k16.f32.f16.f16 {%f0, %f1, %f2, %f3, %f4, %f5}, %rd5, %rd6, \
         1, 1, 1, 0, 0",
        "wgmma.mma_async.sp.sync.aligned.m64n8k32.f32.f16.f16 {%f0, %f1, %f2, %f3}, %rd5, %rd6, %r0, \
         0, 1, 1, 1, 0, 0",
        "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%f0, %f1, %f2, %f3}, %rd5, %rd6, 1, 1, 2, 0, 0",
        "wgmma.wait_group.sync.aligned 9",
    ];
    for instruction in unknown {
        let error = refused("sm_90a", instruction);
        let at_it = matches!(
            error,
            LoadError::NotImplemented { line: FIRST, .. } | LoadError::Illegal { line: FIRST, .. }
        );
        assert!(at_it, "{error}\n{instruction}");
    }
}

#[test]
fn targets_lack_later_instructions() {
    for (target, instruction) in [
        (
            "sm_75",
            "mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16 {%r0, %r1}, {%r0, %r1, %r2, %r3}, \
             {%r4, %r5}, {%r0, %r1}",
        ),
        (
            "sm_80",
            "stmatrix.sync.aligned.m8n8.x1.shared.b16 [%r2], {%r0}",
        ),
        ("sm_100a", "wgmma.fence.sync.aligned"),
        (
            "sm_80",
            "mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32 {%f0, %f1, %f2, %f3}, \
             {%r0, %r1, %r2, %r3}, {%r4, %r5}, {%f0, %f1, %f2, %f3}",
        ),
    ] {
        let error = refused(target, instruction).to_string();
        assert!(error.contains(&format!("line {FIRST}")), "{error}");
    }
}
