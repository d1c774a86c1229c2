//! Control flow against plain Rust: programs of loops, branches and early ends, made at random, run by the interpreter
//! after sema, and walked here as they stand.

use proptest::{collection::vec, prelude::*, test_runner::Config};
use tesserine_compiler::{
    Session,
    diagnostics::render,
    interp::{self, Arg, Args, Tensor},
    ir::tile,
    target::Target,
};
use tesserine_set::DType;

/// Statements over the variables `a` and `b`, the inputs `x[0]` to `x[3]`, and the loop indices around them.
#[derive(Clone, Debug)]
enum Stmt {
    /// `a = a * 3 + term`, or `b = …`, within a small range.
    Assign(bool, Term),
    If(Cond, Vec<Stmt>, Vec<Stmt>),
    /// Bounds, `rev`, step; unrolled if the first is set.
    For(bool, Term, Term, bool, i64, Vec<Stmt>),
    /// Bounds with two inner points.
    Parts(Term, Term, Term, Term, bool, i64, Vec<Stmt>),
    /// Runs at most so often.
    While(i64, Cond, Vec<Stmt>),
    Break,
    Continue,
    Return(Term),
}

#[derive(Clone, Debug)]
enum Term {
    Const(i64),
    A,
    B,
    Input(usize),
    /// The index of the loop so many around.
    Index(usize),
}

#[derive(Clone, Debug)]
struct Cond(Term, i64, i64);

fn term() -> impl Strategy<Value = Term> {
    prop_oneof![
        (-3i64..8).prop_map(Term::Const),
        Just(Term::A),
        Just(Term::B),
        (0usize..4).prop_map(Term::Input),
        (0usize..3).prop_map(Term::Index),
    ]
}

/// What a loop may run to: few iterations.
fn bound() -> impl Strategy<Value = Term> {
    prop_oneof![
        (-2i64..6).prop_map(Term::Const),
        (0usize..4).prop_map(Term::Input)
    ]
}

fn cond() -> impl Strategy<Value = Cond> {
    (term(), 1i64..5, 0i64..4).prop_map(|(t, m, r)| Cond(t, m, r % m))
}

fn stmts() -> impl Strategy<Value = Vec<Stmt>> {
    let leaf = prop_oneof![
        6 => (any::<bool>(), term()).prop_map(|(a, t)| Stmt::Assign(a, t)),
        1 => Just(Stmt::Break),
        1 => Just(Stmt::Continue),
        1 => term().prop_map(Stmt::Return),
    ];
    let stmt = leaf.prop_recursive(4, 24, 4, |inner| {
        let block = || vec(inner.clone(), 0..4);
        prop_oneof![
            4 => (cond(), block(), block()).prop_map(|(c, t, e)| Stmt::If(c, t, e)),
            2 => (any::<bool>(), bound(), bound(), any::<bool>(), 1i64..4, block())
                .prop_map(|(u, lo, hi, rev, step, b)| Stmt::For(u, lo, hi, rev, step, b)),
            1 => (bound(), bound(), bound(), bound(), any::<bool>(), 1i64..4, block())
                .prop_map(|(lo, a, b, hi, rev, step, body)| Stmt::Parts(lo, a, b, hi, rev, step, body)),
            1 => (1i64..5, cond(), block()).prop_map(|(n, c, b)| Stmt::While(n, c, b)),
        ]
    });
    vec(stmt, 1..6)
}

// As source.

struct Writer {
    text: String,
    loops: usize,
    /// In a kernel each change is stored, and `return` has no value.
    kernel: bool,
}

impl Writer {
    fn term(&self, term: &Term) -> String {
        match term {
            Term::Const(v) => format!("({v})"),
            Term::A => "a".into(),
            Term::B => "b".into(),
            Term::Input(i) => format!("x[{i}]"),
            Term::Index(i) if *i < self.loops => format!("i{}", self.loops - 1 - i),
            Term::Index(i) => format!("x[{i}]"),
        }
    }

    fn cond(&self, Cond(t, m, r): &Cond) -> String {
        format!("{} % {m} == {r}", self.term(t))
    }

    fn block(&mut self, stmts: &[Stmt]) {
        for stmt in stmts {
            self.stmt(stmt);
        }
    }

    fn body(&mut self, head: String, stmts: &[Stmt]) {
        self.text += &head;
        self.text += " {\n";
        self.loops += 1;
        self.block(stmts);
        self.loops -= 1;
        self.text += "}\n";
    }

    fn stmt(&mut self, stmt: &Stmt) {
        match stmt {
            Stmt::Assign(first, t) => {
                let name = if *first { "a" } else { "b" };
                let t = self.term(t);
                self.text += &format!("{name} = ({name} * 3 + {t}) % 97;\n");
                if self.kernel {
                    self.text += "y[0] = a as i32; y[1] = b as i32;\n";
                }
            }
            Stmt::If(c, then, els) => {
                self.text += &format!("if {} {{\n", self.cond(c));
                self.block(then);
                if els.is_empty() {
                    self.text += "}\n";
                } else {
                    self.text += "} else {\n";
                    self.block(els);
                    self.text += "}\n";
                }
            }
            Stmt::For(unroll, lo, hi, rev, step, stmts) => {
                let constant = *unroll && matches!((lo, hi), (Term::Const(_), Term::Const(_)));
                let head = format!(
                    "for {}i{} in {}..{}{}{}",
                    if constant { "const " } else { "" },
                    self.loops,
                    self.term(lo),
                    self.term(hi),
                    if *rev { " rev" } else { "" },
                    if *step > 1 {
                        format!(" step {step}")
                    } else {
                        String::new()
                    },
                );
                self.body(head, stmts);
            }
            Stmt::Parts(lo, a, b, hi, rev, step, stmts) => {
                let head = format!(
                    "for (i{}, part) in {}..{}..{}..{}{}{}",
                    self.loops,
                    self.term(lo),
                    self.term(a),
                    self.term(b),
                    self.term(hi),
                    if *rev { " rev" } else { "" },
                    if *step > 1 {
                        format!(" step {step}")
                    } else {
                        String::new()
                    },
                );
                self.text += &head;
                self.text += " {\na = (a + part) % 97;\n";
                self.loops += 1;
                self.block(stmts);
                self.loops -= 1;
                self.text += "}\n";
            }
            Stmt::While(n, c, stmts) => {
                let counter = format!("i{}", self.loops);
                self.text += &format!("let mut {counter} = 0;\n");
                let head = format!("while {counter} < {n} && {}", {
                    // The index of a `while` is its counter.
                    self.loops += 1;
                    let c = self.cond(c);
                    self.loops -= 1;
                    c
                });
                self.text += &format!("{head} {{\n{counter} += 1;\n");
                self.loops += 1;
                self.block(stmts);
                self.loops -= 1;
                self.text += "}\n";
            }
            Stmt::Break if self.loops > 0 => self.text += "break;\n",
            Stmt::Continue if self.loops > 0 => self.text += "continue;\n",
            Stmt::Break | Stmt::Continue => {}
            Stmt::Return(_) if self.kernel => self.text += "return;\n",
            Stmt::Return(t) => {
                let t = self.term(t);
                self.text += &format!("return a * 1000 + b + {t};\n");
            }
        }
    }
}

// As it runs.

struct Walk {
    a: i64,
    b: i64,
    x: [i64; 4],
    indices: Vec<i64>,
}

enum Left {
    Break,
    Continue,
    Return(i64),
}

impl Walk {
    fn term(&self, term: &Term) -> i64 {
        match term {
            Term::Const(v) => *v,
            Term::A => self.a,
            Term::B => self.b,
            Term::Input(i) => self.x[*i],
            Term::Index(i) => match self.indices.len().checked_sub(1 + i) {
                Some(at) => self.indices[at],
                None => self.x[*i],
            },
        }
    }

    fn cond(&self, Cond(t, m, r): &Cond) -> bool {
        self.term(t).rem_euclid(*m) == *r
    }

    fn block(&mut self, stmts: &[Stmt]) -> Option<Left> {
        stmts.iter().find_map(|s| self.stmt(s))
    }

    /// One iteration; `Some` if the loop ends.
    fn iteration(&mut self, index: i64, stmts: &[Stmt]) -> Option<Option<Left>> {
        self.indices.push(index);
        let left = self.block(stmts);
        self.indices.pop();
        match left {
            None | Some(Left::Continue) => None,
            Some(Left::Break) => Some(None),
            left => Some(left),
        }
    }

    fn stmt(&mut self, stmt: &Stmt) -> Option<Left> {
        match stmt {
            Stmt::Assign(first, t) => {
                let t = self.term(t);
                let name = if *first { &mut self.a } else { &mut self.b };
                *name = (*name * 3 + t).rem_euclid(97);
                None
            }
            Stmt::If(c, then, els) => match self.cond(c) {
                true => self.block(then),
                false => self.block(els),
            },
            Stmt::For(_, lo, hi, rev, step, stmts) => {
                let (lo, hi) = (self.term(lo), self.term(hi));
                let mut all: Vec<i64> = (lo..hi.max(lo)).step_by(*step as usize).collect();
                if *rev {
                    all.reverse();
                }
                all.into_iter()
                    .find_map(|i| self.iteration(i, stmts))
                    .flatten()
            }
            Stmt::Parts(lo, a, b, hi, rev, step, stmts) => {
                let [lo, a, b, hi] = [lo, a, b, hi].map(|t| self.term(t));
                let end = hi.max(lo);
                let a = a.clamp(lo, end);
                let b = b.clamp(a, end);
                let mut all: Vec<i64> = (lo..end).step_by(*step as usize).collect();
                if *rev {
                    all.reverse();
                }
                all.into_iter()
                    .find_map(|i| {
                        let part = i64::from(i >= a) + i64::from(i >= b);
                        self.a = (self.a + part).rem_euclid(97);
                        self.iteration(i, stmts)
                    })
                    .flatten()
            }
            Stmt::While(n, c, stmts) => {
                for i in 0..*n {
                    self.indices.push(i);
                    let on = self.cond(c);
                    self.indices.pop();
                    if !on {
                        break;
                    }
                    if let Some(left) = self.iteration(i + 1, stmts) {
                        return left;
                    }
                }
                None
            }
            Stmt::Break if !self.indices.is_empty() => Some(Left::Break),
            Stmt::Continue if !self.indices.is_empty() => Some(Left::Continue),
            Stmt::Break | Stmt::Continue => None,
            Stmt::Return(t) => Some(Left::Return(self.a * 1000 + self.b + self.term(t))),
        }
    }
}

fn instance(text: &str) -> tile::Instance {
    let mut session = Session::new();
    let made = session
        .load_text("program.tess", text)
        .and_then(|module| session.instantiate(module, "k", Target::ALL[4]));
    match made {
        Ok(made) => {
            for body in &made.bodies {
                assert_eq!(tile::verify(body), Ok(()), "{text}\n{body}");
            }
            made
        }
        Err(diagnostics) => {
            let all: String = diagnostics
                .iter()
                .map(|d| render(d, session.sources(), false))
                .collect();
            panic!("{text}\n{all}");
        }
    }
}

/// What the kernel leaves in `y`, which starts as zeros.
fn run(instance: &tile::Instance, x: [i64; 4]) -> Vec<f64> {
    let tensor = |dtype, values: &[f64]| -> Arg {
        Tensor::from_f64(dtype, vec![values.len()], values)
            .expect("a tensor")
            .into()
    };
    let mut args: Args = [
        ("x".to_owned(), tensor(DType::I32, &x.map(|v| v as f64))),
        ("y".to_owned(), tensor(DType::I32, &[0.0, 0.0])),
    ]
    .into_iter()
    .collect();
    interp::launch(instance, &mut args).unwrap_or_else(|e| panic!("{e}\n{}", instance.bodies[0]));
    match &args["y"] {
        Arg::Tensor(tensor) => tensor.to_f64(),
        Arg::Scalar(_) => panic!("`y` is a tensor"),
    }
}

fn walk(stmts: &[Stmt], x: [i64; 4]) -> (Walk, Option<Left>) {
    let mut walk = Walk {
        a: x[0].rem_euclid(97),
        b: 5,
        x,
        indices: Vec::new(),
    };
    let left = walk.block(stmts);
    (walk, left)
}

const START: &str = "let mut a = x[0] % 97;\nlet mut b = 5;\n";

proptest! {
    #![proptest_config(Config { cases: 400, failure_persistence: None, ..Config::default() })]

    #[test]
    fn functions_return_from_anywhere(stmts in stmts(), x in prop::array::uniform4(-3i64..7)) {
        let mut writer = Writer { text: String::new(), loops: 0, kernel: false };
        writer.block(&stmts);
        let text = format!(
            "fn f(x) {{\n{START}{}return a * 1000 + b;\n}}\n\
             kernel k(x: view<i32>[4], y: mut view<i32>[2]) grid (g in 1) {{ y[0] = f(x) as i32; }}",
            writer.text
        );
        let got = run(&instance(&text), x);
        let (end, left) = walk(&stmts, x);
        let wanted = match left {
            Some(Left::Return(value)) => value,
            _ => end.a * 1000 + end.b,
        };
        prop_assert_eq!(got[0], wanted as f64, "{}", text);
    }

    #[test]
    fn kernels_end_anywhere(stmts in stmts(), x in prop::array::uniform4(-3i64..7)) {
        let mut writer = Writer { text: String::new(), loops: 0, kernel: true };
        writer.block(&stmts);
        let text = format!(
            "kernel k(x: view<i32>[4], y: mut view<i32>[2]) grid (g in 1) {{\n{START}\
             y[0] = a as i32; y[1] = b as i32;\n{}y[0] = a as i32;\n}}",
            writer.text
        );
        let got = run(&instance(&text), x);
        let (end, left) = walk(&stmts, x);
        // A part's number is added to `a` before the next store.
        if !matches!(left, Some(Left::Return(_))) {
            prop_assert_eq!(got[0], end.a as f64, "{}", text);
        }
        prop_assert_eq!(got[1], end.b as f64, "{}", text);
    }
}
