//! The check of channels: kernels that work pass it, and random small roles agree with a simulator that knows nothing of it.

use std::{collections::BTreeMap, fmt::Write, path::Path, time::Instant};

use tesserine_compiler::{Session, diagnostics::render, target::Target};

fn target() -> Target {
    Target::parse("sm_90a").expect("a target")
}

/// The codes of what is said of the one kernel `k` of `text`, and all that is said.
fn codes_of(text: &str) -> (Vec<String>, String) {
    let mut session = Session::new();
    let made = session
        .load_text("k.tess", text)
        .and_then(|module| session.instantiate(module, "k", target()));
    match made {
        Ok(_) => (Vec::new(), String::new()),
        Err(list) => {
            let mut all = String::new();
            for d in list.iter() {
                all.push_str(&render(d, session.sources(), false));
            }
            let codes = list.iter().map(|d| d.code.as_str().to_owned());
            (codes.collect(), all)
        }
    }
}

#[test]
fn kernels_with_roles_pass() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let kernels = [
        ("tests/samples/gemm.tess", "gemm_nt<bf16>"),
        ("tests/samples/gemm.tess", "gemm_nt_pair<bf16>"),
        ("tests/samples/gemm_fp8_block.tess", "gemm_fp8_block"),
        ("tests/samples/gemm_fp4.tess", "gemm_w4a16<bf16>"),
        (
            "tests/samples/grouped_gemm.tess",
            "grouped_gemm<bf16, E = 8>",
        ),
        (
            "tests/samples/attention_prefill.tess",
            "prefill<bf16, DQ = 128, DV = 128>",
        ),
        (
            "tests/samples/attention_prefill.tess",
            "prefill<bf16, DQ = 128, DV = 128, PP = true, CAUSAL = false>",
        ),
        ("tests/samples/mla_decode.tess", "mla_decode<bf16, P = 64>"),
        ("tests/conformance/tiles/roles.tess", "specialised<f16>"),
        ("tests/conformance/tiles/roles.tess", "drawn<f16>"),
    ];
    for (file, instance) in kernels {
        let mut session = Session::new();
        let begin = Instant::now();
        let made = session
            .load(&root.join(file), None)
            .and_then(|module| session.instantiate(module, instance, target()));
        println!("{instance}: {:?}", begin.elapsed());
        let made = made.unwrap_or_else(|list| {
            let all: String = list
                .iter()
                .map(|d| render(d, session.sources(), false))
                .collect();
            panic!("{instance} of {file}: {all}")
        });
        let roles = made
            .bodies
            .iter()
            .any(|b| b.to_string().contains("\n  roles ("));
        assert!(roles, "{instance} has no roles");
    }
}

/// Roles that pass rows from `load` to `add`, with what each does.
fn rows(header: &str, load: &str, add: &str) -> Vec<String> {
    let text = format!(
        "kernel k(x: view<f32>[n, 64], y: out view<f32>[n, 64], flags: view<i32>[f], s: i32) for sm_90a {header}
        {{
            let flag = flags[0] > 0;
            let steps = ceil_div(n, 8);
            channel c: tile<f32>[64] depth 2;
            channel d: tile<f32>[64] depth 2;
            channel e: tile<f32>[1] depth 1;
            roles {{
                load: 1 warp {{ {load} }}
                add: 1 warpgroup {{ {add} }}
            }}
        }}"
    );
    let (codes, said) = codes_of(&text);
    println!("{said}");
    codes
}

const GRID: &str = "grid (i in 1)";

/// Conditions that both know, whatever they are, and loops of one count.
#[test]
fn what_both_know_passes() {
    let cases = [
        (
            GRID,
            "if flag { put c { x[0, ..] } }",
            "if flag { y[0, ..] = get c; release c; }",
        ),
        (
            GRID,
            "for p in 0..steps { put c { x[p, ..] } if p + 1 < steps { put d { x[p, ..] } } }",
            "for p in 0..steps { y[p, ..] = get c; release c; if p < steps - 1 { y[p, ..] = get d; release d; } }",
        ),
        // The last is put behind the loop, where there is one.
        (
            GRID,
            "for p in 0..steps { put c { x[p, ..] } }",
            "if steps > 0 { for p in 0..steps - 1 { y[p, ..] = get c; release c; } y[0, ..] = get c; release c; }",
        ),
        // One that is longer than any other count.
        (
            GRID,
            "for p in 3..s + 100 { put c { x[p, ..] } }",
            "for p in 0..s + 97 { y[p, ..] = get c; release c; }",
        ),
        // Backwards, and by twos.
        (
            GRID,
            "for p in 0..n rev { put c { x[p, ..] } }",
            "for p in 0..n { y[p, ..] = get c; release c; }",
        ),
        (
            GRID,
            "for p in 0..n step 2 { put c { x[p, ..] } }",
            "for p in 0..ceil_div(n, 2) { y[p, ..] = get c; release c; }",
        ),
        // As long as the facts say so.
        (
            "where n % 8 == 0 grid (i in 1)",
            "for p in 0..n / 8 { put c { x[p, ..] } }",
            "for p in 0..steps { y[p, ..] = get c; release c; }",
        ),
        (
            "where n > 900 grid (i in 1)",
            "for p in 0..max(n, 700) { put c { x[p, ..] } }",
            "for p in 0..n { y[p, ..] = get c; release c; }",
        ),
        // A scalar that is received.
        (
            GRID,
            "for p in 0..n { put e { x[p, 0..1] } let t = get d; release d; if t.sum() > 0.0 { put c { x[p, ..] } } }",
            "for p in 0..n { let t = get e; release e; put d { zeros<f32>[64] } }",
        ),
    ];
    for (header, load, add) in &cases[..8] {
        assert_eq!(
            rows(header, load, add),
            Vec::<String>::new(),
            "{load} | {add}"
        );
    }
    let (header, load, add) = cases[8];
    assert_eq!(rows(header, load, add), ["E0722"], "{load} | {add}");
}

#[test]
fn what_differs_somewhere_is_refused() {
    let cases = [
        // Of a large count, or of one outcome only.
        (
            "E0722",
            "for p in 0..min(n, 1000) { put c { x[p, ..] } }",
            "for p in 0..n { y[p, ..] = get c; release c; }",
        ),
        (
            "E0722",
            "put c { x[0, ..] }",
            "if flag { y[0, ..] = get c; release c; }",
        ),
        (
            "E0722",
            "for p in 0..n step 2 { put c { x[p, ..] } }",
            "for p in 0..n / 2 { y[p, ..] = get c; release c; }",
        ),
        // Only the third turn finds the ring full.
        (
            "E0721",
            "for p in 0..n { put c { x[p, ..] } } put d { x[0, ..] }",
            "y[0, ..] = get d; release d; for p in 0..n { y[p, ..] = get c; release c; }",
        ),
        // Only where the condition on the index holds twice.
        (
            "E0723",
            "for p in 0..n { put c { x[p, ..] } }",
            "for p in 0..n { y[p, ..] = get c; if p < n - 5 { release c; } }",
        ),
    ];
    for (code, load, add) in cases {
        let codes = rows(GRID, load, add);
        assert_eq!(
            codes.first().map(String::as_str),
            Some(code),
            "{load} | {add}"
        );
    }
}

/// Both get a scalar, and decide by it.
#[test]
fn what_is_received_is_one_value() {
    let kernel = |other: &str| {
        codes_of(&format!(
            "kernel k(x: view<f32>[n, 64], y: out view<f32>[n, 64], z: out view<f32>[n, 64]) for sm_90a grid (i in 1)
            {{
                channel flags: tile<f32>[64] depth 2;
                channel c: tile<f32>[64] depth 2;
                roles {{
                    load: 1 warp {{ for p in 0..n {{ put flags {{ x[p, ..] }} }} }}
                    one: 1 warpgroup {{
                        for p in 0..n {{
                            let t = get flags;
                            let go = t.sum() > 0.0;
                            release flags;
                            if go {{ put c {{ zeros<f32>[64] }} }}
                        }}
                    }}
                    other: 1 warpgroup {{
                        for p in 0..n {{
                            let go = (get flags).sum() {other} 0.0;
                            release flags;
                            if go {{ z[p, ..] = get c; release c; }}
                        }}
                    }}
                }}
            }}"
        ))
    };
    let (codes, said) = kernel(">");
    assert_eq!(codes, Vec::<String>::new(), "{said}");
    let (codes, said) = kernel("<");
    assert_eq!(codes, ["E0722"], "{said}");
}

// Random roles.

/// How often a loop turns, or when a condition holds: numbers of the launch.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Count {
    A,
    B,
    Const(i64),
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Cond {
    Above(Count, i64),
    Less,
    /// Of the innermost loop.
    NotFirst,
    NotLast,
}

/// What a role does; in a plan for all roles, `Pass` is a put in one and a get in others.
#[derive(Clone, Debug, PartialEq)]
enum Node {
    Pass(usize),
    Put(usize),
    Get(usize),
    Release(usize),
    Loop(Count, Vec<Node>),
    If(Cond, Vec<Node>, Vec<Node>),
}

struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        (self.0 >> 33) % n
    }

    fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }
}

#[derive(Debug)]
struct Program {
    depths: Vec<u64>,
    producer: Vec<usize>,
    readers: Vec<Vec<usize>>,
    roles: Vec<Vec<Node>>,
}

fn count(r: &mut Random) -> Count {
    match r.below(4) {
        0 | 1 => Count::A,
        2 => Count::B,
        _ => Count::Const(1 + r.below(3) as i64),
    }
}

fn plan(r: &mut Random, channels: usize, depth: u32, in_loop: bool) -> Vec<Node> {
    let n = 1 + r.below(3);
    (0..n)
        .map(|_| match r.below(if depth == 0 { 2 } else { 5 }) {
            0 | 1 => Node::Pass(r.below(channels as u64) as usize),
            2 | 3 => Node::Loop(count(r), plan(r, channels, depth - 1, true)),
            _ => {
                let cond = match r.below(if in_loop { 4 } else { 2 }) {
                    0 => Cond::Above(
                        if r.one_in(2) { Count::A } else { Count::B },
                        r.below(3) as i64 - 1,
                    ),
                    1 => Cond::Less,
                    2 => Cond::NotFirst,
                    _ => Cond::NotLast,
                };
                let other = match r.one_in(2) {
                    true => plan(r, channels, depth - 1, in_loop),
                    false => Vec::new(),
                };
                Node::If(cond, plan(r, channels, depth - 1, in_loop), other)
            }
        })
        .collect()
}

impl Program {
    fn make(r: &mut Random) -> Program {
        let (roles, channels) = (2 + r.below(2) as usize, 1 + r.below(3) as usize);
        let mut program = Program {
            depths: (0..channels).map(|_| 1 + r.below(3)).collect(),
            producer: Vec::new(),
            readers: Vec::new(),
            roles: Vec::new(),
        };
        for _ in 0..channels {
            let producer = r.below(roles as u64) as usize;
            let mut readers: Vec<usize> = (0..roles)
                .filter(|&x| x != producer && !r.one_in(3))
                .collect();
            if readers.is_empty() {
                readers.push((producer + 1) % roles);
            }
            program.producer.push(producer);
            program.readers.push(readers);
        }
        let plan = plan(r, channels, 2, false);
        for role in 0..roles {
            let own = program.project(r, &plan, role);
            program.roles.push(own);
        }
        program
    }

    /// What one role does of the plan, perhaps in another order, perhaps not all of it.
    fn project(&self, r: &mut Random, plan: &[Node], role: usize) -> Vec<Node> {
        let mut out = Vec::new();
        let mut late = Vec::new();
        for node in plan {
            match node {
                Node::Pass(c) if self.producer[*c] == role => out.push(Node::Put(*c)),
                Node::Pass(c) if self.readers[*c].contains(&role) => {
                    out.push(Node::Get(*c));
                    match r.one_in(3) {
                        true => late.push(Node::Release(*c)),
                        false => out.push(Node::Release(*c)),
                    }
                }
                Node::Loop(count, body) => {
                    let body = self.project(r, body, role);
                    if !body.is_empty() {
                        out.push(Node::Loop(*count, body));
                    }
                }
                Node::If(cond, a, b) => {
                    let (a, b) = (self.project(r, a, role), self.project(r, b, role));
                    if !a.is_empty() || !b.is_empty() {
                        out.push(Node::If(*cond, a, b));
                    }
                }
                _ => {}
            }
        }
        out.extend(late);
        if out.len() > 1 && r.one_in(4) {
            let at = r.below(out.len() as u64 - 1) as usize;
            out.swap(at, at + 1);
        }
        if !out.is_empty() && r.one_in(40) {
            let at = r.below(out.len() as u64) as usize;
            out.remove(at);
        }
        out
    }

    fn source(&self) -> String {
        let mut text = "kernel k(x: view<f32>[64], y: out view<f32>[64], a: i32, b: i32) for sm_90a grid (i in 1)\n{\n".to_owned();
        for (c, depth) in self.depths.iter().enumerate() {
            let _ = writeln!(text, "    channel c{c}: tile<f32>[64] depth {depth};");
        }
        text.push_str("    roles {\n");
        for (i, body) in self.roles.iter().enumerate() {
            let _ = writeln!(text, "        role{i}: 1 warp {{");
            write_nodes(body, 3, None, &mut text);
            text.push_str("        }\n");
        }
        text.push_str("    }\n}\n");
        text
    }
}

fn show(count: Count) -> String {
    match count {
        Count::A => "a".into(),
        Count::B => "b".into(),
        Count::Const(n) => n.to_string(),
    }
}

fn write_nodes(nodes: &[Node], indent: usize, of: Option<(usize, Count)>, out: &mut String) {
    let pad = "    ".repeat(indent);
    for node in nodes {
        let _ = match node {
            Node::Pass(_) => Ok(()),
            Node::Put(c) => writeln!(out, "{pad}put c{c} {{ x[..64] }}"),
            Node::Get(c) => writeln!(out, "{pad}let t = get c{c};"),
            Node::Release(c) => writeln!(out, "{pad}release c{c};"),
            Node::Loop(count, body) => {
                let _ = writeln!(out, "{pad}for p{indent} in 0..{} {{", show(*count));
                write_nodes(body, indent + 1, Some((indent, *count)), out);
                writeln!(out, "{pad}}}")
            }
            Node::If(cond, a, b) => {
                let cond = match (cond, of) {
                    (Cond::Above(count, n), _) => format!("{} > {n}", show(*count)),
                    (Cond::NotFirst, Some((p, _))) => format!("p{p} > 0"),
                    (Cond::NotLast, Some((p, n))) => format!("p{p} < {} - 1", show(n)),
                    _ => "a < b".to_owned(),
                };
                let _ = writeln!(out, "{pad}if {cond} {{");
                write_nodes(a, indent + 1, of, out);
                let _ = writeln!(out, "{pad}}} else {{");
                write_nodes(b, indent + 1, of, out);
                writeln!(out, "{pad}}}")
            }
        };
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Event {
    Put(usize),
    Get(usize),
    Release(usize),
}

/// Everything that a role does, one after another.
fn events(nodes: &[Node], a: i64, b: i64, of: Option<(i64, i64)>, out: &mut Vec<Event>) {
    let value = |count: &Count| match count {
        Count::A => a,
        Count::B => b,
        Count::Const(n) => *n,
    };
    for node in nodes {
        match node {
            Node::Pass(_) => {}
            Node::Put(c) => out.push(Event::Put(*c)),
            Node::Get(c) => out.push(Event::Get(*c)),
            Node::Release(c) => out.push(Event::Release(*c)),
            Node::Loop(count, body) => {
                let n = value(count);
                (0..n).for_each(|p| events(body, a, b, Some((p, n)), out));
            }
            Node::If(cond, yes, no) => {
                let holds = match (cond, of) {
                    (Cond::Above(count, n), _) => value(count) > *n,
                    (Cond::NotFirst, Some((p, _))) => p > 0,
                    (Cond::NotLast, Some((p, n))) => p < n - 1,
                    _ => a < b,
                };
                events(if holds { yes } else { no }, a, b, of, out);
            }
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Verdict {
    Fine,
    Stuck,
    /// Numbers do not match, or a slot is not held, or held at the end.
    Wrong,
}

impl Program {
    /// One tile after another, each with its counts.
    fn run(&self, tiles: &[(i64, i64)], r: &mut Random) -> Verdict {
        let all = |body: &Vec<Node>| {
            let mut out = Vec::new();
            for &(a, b) in tiles {
                events(body, a, b, None, &mut out);
            }
            out
        };
        let roles: Vec<Vec<Event>> = self.roles.iter().map(all).collect();
        let total = |role: usize, event: Event| roles[role].iter().filter(|e| **e == event).count();
        for c in 0..self.depths.len() {
            let puts = total(self.producer[c], Event::Put(c));
            for &reader in &self.readers[c] {
                let mut held = 0i64;
                for event in &roles[reader] {
                    match event {
                        Event::Get(x) if *x == c => held += 1,
                        Event::Release(x) if *x == c => held -= 1,
                        _ => {}
                    }
                    if held < 0 {
                        return Verdict::Wrong;
                    }
                }
                if held != 0 || total(reader, Event::Get(c)) != puts {
                    return Verdict::Wrong;
                }
            }
        }
        // Any order that the ring lets happen.
        let mut at = vec![0usize; roles.len()];
        let mut put = vec![0u64; self.depths.len()];
        let mut got: BTreeMap<(usize, usize), u64> = BTreeMap::new();
        let mut back: BTreeMap<(usize, usize), u64> = BTreeMap::new();
        loop {
            let ready: Vec<usize> = (0..roles.len())
                .filter(|&i| match roles[i].get(at[i]) {
                    None => false,
                    Some(Event::Release(_)) => true,
                    Some(Event::Get(c)) => got.get(&(i, *c)).copied().unwrap_or(0) < put[*c],
                    Some(Event::Put(c)) => self.readers[*c].iter().all(|&reader| {
                        put[*c] < back.get(&(reader, *c)).copied().unwrap_or(0) + self.depths[*c]
                    }),
                })
                .collect();
            if ready.is_empty() {
                let ended = roles.iter().zip(&at).all(|(role, at)| *at == role.len());
                return match ended {
                    true => Verdict::Fine,
                    false => Verdict::Stuck,
                };
            }
            let i = ready[r.below(ready.len() as u64) as usize];
            match roles[i][at[i]] {
                Event::Put(c) => put[c] += 1,
                Event::Get(c) => *got.entry((i, c)).or_default() += 1,
                Event::Release(c) => *back.entry((i, c)).or_default() += 1,
            }
            at[i] += 1;
        }
    }
}

/// Whether `k` puts or gets anything in a channel that the other end does not touch at all is said before anything is executed.
fn touches(nodes: &[Node], wanted: &Node) -> bool {
    nodes.iter().any(|node| match node {
        Node::Loop(_, body) => touches(body, wanted),
        Node::If(_, a, b) => touches(a, wanted) || touches(b, wanted),
        node => node == wanted,
    })
}

#[test]
fn random_roles_agree_with_a_simulator() {
    let (mut fine, mut stuck, mut wrong) = (0, 0, 0);
    for seed in 0..500u64 {
        let mut r = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) + 1);
        let mut program = Program::make(&mut r);
        // A reader that gets nothing is none.
        for c in 0..program.depths.len() {
            let roles = &program.roles;
            program.readers[c].retain(|&role| touches(&roles[role], &Node::Get(c)));
        }
        let untouched = (0..program.depths.len()).any(|c| {
            let puts = touches(&program.roles[program.producer[c]], &Node::Put(c));
            puts == program.readers[c].is_empty()
        });
        let mut expected: Vec<Verdict> = Vec::new();
        for a in -1..=11 {
            for b in -1..=11 {
                expected.push(program.run(&[(a, b)], &mut r));
            }
        }
        if untouched {
            expected.push(Verdict::Wrong);
        }
        let text = program.source();
        let (codes, said) = codes_of(&text);
        let has = |v: Verdict| expected.contains(&v);
        let ok = match codes.first().map(String::as_str) {
            None => !has(Verdict::Stuck) && !has(Verdict::Wrong),
            Some("E0721") => has(Verdict::Stuck),
            Some("E0722" | "E0723" | "E0724") => has(Verdict::Wrong),
            _ => false,
        };
        assert!(
            ok,
            "seed {seed}: the simulator says stuck: {}, wrong: {}; the check\n{said}\nof\n{text}",
            has(Verdict::Stuck),
            has(Verdict::Wrong)
        );
        match (has(Verdict::Stuck), has(Verdict::Wrong)) {
            (false, false) => fine += 1,
            (true, _) => stuck += 1,
            _ => wrong += 1,
        }
    }
    println!("{fine} fine, {stuck} stuck, {wrong} wrong");
    assert!(
        fine > 50 && stuck > 20 && wrong > 20,
        "{fine} {stuck} {wrong}"
    );
}

// Products in flight.

/// One turn of a role that multiplies what it gets.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Work {
    Get(usize),
    /// Of the slot that this turn got, transposed, with itself.
    Begin(usize),
    Release(usize, Option<u32>),
    Await(usize),
}

/// Whether `turns` turns of `work`, for which another role puts into the channels in order, end: slots that a product in
/// flight reads are free when it is known to be over.
fn flows(work: &[Work], depths: &[u64], turns: u64) -> bool {
    let channels = depths.len();
    let (mut put, mut got, mut back) = (
        vec![0u64; channels],
        vec![0u64; channels],
        vec![0u64; channels],
    );
    let mut next_put = 0u64;
    // Of each product in flight: which it is, whether its slot is given back, and when at the latest.
    let mut flying: Vec<(u64, usize, bool, Option<u32>)> = Vec::new();
    let mut newest = 0u64;
    let settle =
        |flying: &mut Vec<(u64, usize, bool, Option<u32>)>, back: &mut Vec<u64>, until: u64| {
            flying.retain(|(id, c, given, _)| {
                if *id <= until && *given {
                    back[*c] += 1;
                }
                *id > until
            });
        };
    for _ in 0..turns {
        let mut mine = vec![0u64; channels];
        for step in work {
            match *step {
                Work::Get(c) => {
                    // The other role goes as far as it can.
                    while next_put < turns * channels as u64 {
                        let to = (next_put % channels as u64) as usize;
                        if put[to] >= back[to] + depths[to] {
                            break;
                        }
                        put[to] += 1;
                        next_put += 1;
                    }
                    if put[c] <= got[c] {
                        return false;
                    }
                    got[c] += 1;
                }
                Work::Begin(c) => {
                    newest += 1;
                    mine[c] = newest;
                    flying.push((newest, c, false, None));
                }
                Work::Release(c, lag) => match flying.iter_mut().find(|f| f.0 == mine[c]) {
                    Some(f) => (f.2, f.3) = (true, lag),
                    None => back[c] += 1,
                },
                Work::Await(c) => settle(&mut flying, &mut back, mine[c]),
            }
            let due = flying
                .iter()
                .filter(|f| f.2 && f.3.is_some_and(|lag| newest - f.0 >= u64::from(lag)));
            // To know that one is over is to know that no more than `lag` fly.
            let due = due
                .filter_map(|f| f.3)
                .map(|lag| newest - u64::from(lag))
                .max();
            if let Some(until) = due {
                settle(&mut flying, &mut back, until);
            }
        }
    }
    true
}

#[test]
fn slots_are_free_when_their_products_are_over() {
    let (mut fine, mut stuck) = (0, 0);
    for seed in 0..160u64 {
        let mut r = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) + 7);
        let channels = 1 + r.below(2) as usize;
        let depths: Vec<u64> = (0..channels).map(|_| 1 + r.below(3)).collect();
        let carried = r.one_in(2);
        let mut work = Vec::new();
        for c in 0..channels {
            work.extend([Work::Get(c), Work::Begin(c)]);
            let lag = match r.below(4) {
                0 => None,
                n => Some(n as u32 - 1),
            };
            let release = Work::Release(c, lag);
            match r.one_in(3) {
                true if !carried => work.extend([Work::Await(c), release]),
                _ => work.push(release),
            }
        }
        if !carried {
            for c in 0..channels {
                if !work.contains(&Work::Await(c)) {
                    work.push(Work::Await(c));
                }
            }
        }
        // What stands before may stand later.
        if work.len() > 4 && r.one_in(2) {
            let release = work.iter().position(|w| matches!(w, Work::Release(..)));
            if let Some(at) = release {
                let step = work.remove(at);
                work.push(step);
            }
        }
        let mut text = "kernel k(x: view<f16>[n, 64], y: out view<f32>[64, 64], a: i32) for sm_90a grid (i in 1)\n{\n".to_owned();
        for (c, depth) in depths.iter().enumerate() {
            let _ = writeln!(text, "    channel c{c}: tile<f16>[64, 64] depth {depth};");
        }
        text.push_str("    roles {\n        load: 1 warp { for p in 0..a {");
        for c in 0..channels {
            let _ = write!(text, " put c{c} {{ x[p*64 +: 64, ..] }}");
        }
        text.push_str(" } }\n        math: 1 warpgroup {\n            let mut acc = zeros<f32>[64, 64];\n            for p in 0..a {\n");
        for step in &work {
            let _ = match step {
                Work::Get(c) => writeln!(text, "                let t{c} = get c{c};"),
                Work::Begin(c) if carried => {
                    writeln!(text, "                acc = mma(t{c}, t{c}.t, acc);")
                }
                Work::Begin(c) => writeln!(text, "                let s{c} = mma(t{c}, t{c}.t);"),
                Work::Release(c, None) => writeln!(text, "                release c{c};"),
                Work::Release(c, Some(lag)) => {
                    writeln!(text, "                release c{c} lag {lag};")
                }
                Work::Await(c) => writeln!(text, "                acc = acc + await s{c};"),
            };
        }
        let result = if carried { "await acc" } else { "acc" };
        let _ = writeln!(
            text,
            "            }}\n            y[0 +: 64, ..] = {result};\n        }}\n    }}\n}}"
        );
        let ends = (0..=12).all(|turns| flows(&work, &depths, turns));
        let (codes, said) = codes_of(&text);
        match ends {
            true => assert_eq!(codes, Vec::<String>::new(), "seed {seed}\n{said}\n{text}"),
            false => assert_eq!(codes, ["E0721"], "seed {seed}\n{said}\n{text}"),
        }
        match ends {
            true => fine += 1,
            false => stuck += 1,
        }
    }
    assert!(fine > 20 && stuck > 20, "{fine} {stuck}");
}
