//! The proof that two accesses of two blocks touch nothing in common.
//!
//! It assumes the contrary: that an element of the view is touched by both, and collects terms which then have one value
//! in both blocks, until these are all grid indices: then there was only one block. Each step's argument stands with it.

use std::{
    cell::RefCell,
    collections::{BTreeSet, HashMap},
};

use super::{
    Access, Dim,
    forms::{Form, Forms, Inside, MAX_EXTENT, TermId},
};

/// What proofs need to know of a kernel besides its forms.
pub(super) struct Facts {
    /// Of each grid axis: its index, and its extent where that is a sum.
    pub axes: Vec<(Form, Option<Form>)>,
    /// Of each parameter's dimensions, the extent where it is a sum.
    pub extents: Vec<Vec<Option<Form>>>,
}

/// Values of 64-bit integers.
const ALL: (i128, i128) = (i64::MIN as i128, i64::MAX as i128);

/// How deep `min` and `max` are looked into.
const MAX_DEPTH: u32 = 16;

/// How many limits of one range are looked at.
const MAX_LIMITS: usize = 32;

/// A range in which elements lie.
enum Range {
    /// A constant number of them from there on.
    Window(Form, i64),
    /// `p[e] .. p[e + 1]` of a sorted view.
    Neighbours(u32, Form),
    /// From there on, so many: `t·q .. (t + 1)·q`.
    Part(Form, Form),
}

struct Proof<'a, 'k> {
    forms: &'a Forms<'k>,
    facts: &'a Facts,
    a: &'a Access,
    b: &'a Access,
    /// Terms that have one value in both blocks.
    equal: BTreeSet<TermId>,
    /// Whether a term has one value in both because all that it is made of has.
    known: RefCell<HashMap<TermId, bool>>,
    ranges: RefCell<HashMap<TermId, (i128, i128)>>,
}

/// The grid axes that may differ between two blocks of which one does `a` and one `b` on one element; `Ok` if none.
pub(super) fn apart(
    forms: &Forms<'_>,
    facts: &Facts,
    a: &Access,
    b: &Access,
) -> Result<(), Vec<usize>> {
    let mut proof = Proof {
        forms,
        facts,
        a,
        b,
        equal: BTreeSet::new(),
        known: RefCell::default(),
        ranges: RefCell::default(),
    };
    loop {
        let open = proof.open();
        if open.is_empty() || proof.one_arrival() {
            return Ok(());
        }
        if !proof.step() {
            return Err(open);
        }
    }
}

impl Proof<'_, '_> {
    fn open(&self) -> Vec<usize> {
        let indices = self.facts.axes.iter().enumerate();
        indices
            .filter(|(_, (index, _))| !self.is_known(index))
            .map(|(i, _)| i)
            .collect()
    }

    /// Both stand inside one `arrive`, and its counter is the same: it is true in one block only.
    fn one_arrival(&self) -> bool {
        self.a.arrivals.iter().any(|arrival| {
            self.b.arrivals.iter().any(|other| {
                arrival.op == other.op && arrival.indices.iter().all(|i| self.is_known(i))
            })
        })
    }

    /// Whether a form has one value in both blocks.
    fn is_known(&self, form: &Form) -> bool {
        form.terms.keys().all(|&t| self.is_known_term(t))
    }

    fn is_known_term(&self, term: TermId) -> bool {
        if self.equal.contains(&term) {
            return true;
        }
        if let Some(&known) = self.known.borrow().get(&term) {
            return known;
        }
        let known = match &self.forms.terms[term as usize].of {
            Some(of) => of.iter().all(|form| self.is_known(form)),
            None => false,
        };
        self.known.borrow_mut().insert(term, known);
        known
    }

    // Ranges.

    /// Whether a sum is what its terms add up to, without wrapping around.
    fn is_exact(&self, form: &Form) -> bool {
        let (lo, hi) = self.sum(form);
        lo >= ALL.0 && hi <= ALL.1
    }

    fn range(&self, form: &Form) -> (i128, i128) {
        let sum = self.sum(form);
        // What leaves 64 bits wraps.
        if sum.0 < ALL.0 || sum.1 > ALL.1 {
            ALL
        } else {
            sum
        }
    }

    fn sum(&self, form: &Form) -> (i128, i128) {
        let mut sum = (i128::from(form.constant), i128::from(form.constant));
        for (&term, &c) in &form.terms {
            let (lo, hi) = self.range_of(term);
            let (x, y) = (lo.saturating_mul(c.into()), hi.saturating_mul(c.into()));
            sum.0 = sum.0.saturating_add(x.min(y));
            sum.1 = sum.1.saturating_add(x.max(y));
        }
        sum
    }

    fn range_of(&self, term: TermId) -> (i128, i128) {
        if let Some(&range) = self.ranges.borrow().get(&term) {
            return range;
        }
        let data = &self.forms.terms[term as usize];
        let inner = match &data.inside {
            Inside::Opaque | Inside::Grid(_) | Inside::Element(..) => data.range,
            // A divisor of 0 is an error of the program (E0802).
            Inside::Quotient(x, c) if self.range(c).0 >= 0 => {
                let (lo, hi) = self.range(x);
                let least = self.range(c).0.max(1);
                (lo.min(0), (hi / least).max(0))
            }
            Inside::Remainder(_, c) if self.range(c).0 >= 0 => (0, (self.range(c).1 - 1).max(0)),
            Inside::Quotient(..) | Inside::Remainder(..) => data.range,
            Inside::Product(s, t) => self.product_range(*s, *t),
            Inside::Min(x, y) => {
                let (x, y) = (self.range(x), self.range(y));
                (x.0.min(y.0), x.1.min(y.1))
            }
            Inside::Max(x, y) => {
                let (x, y) = (self.range(x), self.range(y));
                (x.0.max(y.0), x.1.max(y.1))
            }
            Inside::Select(x, y) => {
                let (x, y) = (self.range(x), self.range(y));
                (x.0.min(y.0), x.1.max(y.1))
            }
            Inside::Loop(from, until) => {
                let (lo, hi) = (self.range(from).0, self.range(until).1 - 1);
                (lo, hi.max(lo))
            }
        };
        let mut range = (inner.0.max(data.range.0), inner.1.min(data.range.1));
        // A counter in which a block is the last to arrive lies in its view.
        let counted = |access: &Access| {
            let mut indices = access.arrivals.iter().flat_map(|a| &a.indices);
            indices.any(|i| i.as_term() == Some(term))
        };
        if counted(self.a) && counted(self.b) {
            range = (range.0.max(0), range.1.min(MAX_EXTENT));
        }
        self.ranges.borrow_mut().insert(term, range);
        range
    }

    fn product_range(&self, s: TermId, t: TermId) -> (i128, i128) {
        let (x, y) = (self.range_of(s), self.range_of(t));
        let corners = [
            x.0.saturating_mul(y.0),
            x.0.saturating_mul(y.1),
            x.1.saturating_mul(y.0),
            x.1.saturating_mul(y.1),
        ];
        let lo = corners.into_iter().min().unwrap_or(ALL.0);
        let hi = corners.into_iter().max().unwrap_or(ALL.1);
        if lo >= ALL.0 && hi <= ALL.1 {
            return (lo, hi);
        }
        // An index below N times x / N is at most |x| + N away from 0.
        for (s, t) in [(s, t), (t, s)] {
            if let (Inside::Grid(axis), Inside::Quotient(x, n)) =
                (self.forms.inside(s), self.forms.inside(t))
                && self.facts.axes[*axis as usize].1.as_ref() == Some(n)
            {
                let (lo, hi) = self.range(x);
                let most = lo.abs().max(hi.abs()).saturating_add(1 << 31);
                if most < ALL.1 {
                    return (-most, most);
                }
            }
        }
        ALL
    }

    // Steps.

    /// One round over all rules; whether something new was found.
    fn step(&mut self) -> bool {
        let before = self.equal.len();
        let (a, b) = (self.a, self.b);
        for (i, (x, y)) in a.dims.iter().zip(&b.dims).enumerate() {
            self.dimension(i, x, y);
        }
        if let (Some((space, xs)), Some((other, ys))) = (&a.logical, &b.logical)
            && space == other
        {
            for (x, y) in xs.iter().zip(ys) {
                self.common(x, y, None);
            }
        }
        // Under `if f == 0` in both blocks, the sums are equal.
        for guard in &a.guards {
            if b.guards.contains(guard) {
                self.solve(guard, guard, 1);
            }
        }
        self.quotients();
        self.elements();
        self.equal.len() > before
    }

    /// `x` in one block and `y` in the other are less than `window` apart, but for their constants. If all that is not
    /// known of the two is a sum `Σ c·t` with the same coefficients in both, then `|Σ c·Δt| < window`. Ordered by |c|,
    /// let each |c| be at least the window plus what the terms before it can differ, times their coefficients: then the
    /// last Δt that is not 0 would outweigh all others, so that there is none. No sum may wrap around 64 bits, unless
    /// it is one term with |c| = 1 and the two are equal: then it may, for Δt ≡ 0 is Δt = 0.
    fn solve(&mut self, x: &Form, y: &Form, window: i128) {
        if x.terms != y.terms {
            return;
        }
        let mut open: Vec<(TermId, i128)> = Vec::new();
        for (&term, &c) in &x.terms {
            if !self.is_known_term(term) {
                open.push((term, i128::from(c).abs()));
            }
        }
        open.sort_by_key(|&(_, c)| c);
        let exact = window == 1 && matches!(open[..], [(_, 1)]);
        let mut covered = window;
        for &(term, c) in &open {
            if c < covered {
                return;
            }
            let (lo, hi) = self.range_of(term);
            covered = covered.saturating_add(c.saturating_mul(hi - lo));
        }
        if exact || covered <= ALL.1 {
            self.found(open.iter().map(|&(term, _)| term));
        }
    }

    fn found(&mut self, terms: impl Iterator<Item = TermId>) {
        let before = self.equal.len();
        self.equal.extend(terms);
        if self.equal.len() > before {
            self.known.borrow_mut().clear();
        }
    }

    /// What one dimension tells of an element that both touch.
    fn dimension(&mut self, at: usize, x: &Dim, y: &Dim) {
        let last = at + 1 == self.a.dims.len();
        let (mut x, mut y) = (x.clone(), y.clone());
        if self.a.bits != self.b.bits && last {
            // The same memory as elements of two sizes: counted in bits.
            match (x.in_bits(self.a.bits), y.in_bits(self.b.bits)) {
                (Some(p), Some(q)) => (x, y) = (p, q),
                _ => return,
            }
        }
        let extent = self.facts.extents[self.a.param as usize]
            .get(at)
            .cloned()
            .flatten();
        self.common(&x, &y, extent.as_ref());
    }

    /// An index that both touch, of a dimension of which the two take `x` and `y`.
    fn common(&mut self, x: &Dim, y: &Dim, extent: Option<&Form>) {
        if let (Some(s), Some(t)) = (&x.start, &y.start) {
            // s ≤ e < s + n and t ≤ e < t + m.
            self.windows(s, i128::from(x.extent), t, i128::from(y.extent));
        }
        let others = self.ranges(y, extent);
        for range in self.ranges(x, extent) {
            for other in &others {
                self.between(&range, other);
            }
        }
    }

    /// The element lies in `s .. s + n` in one block and `t .. t + m` in the other, so that the sums without their
    /// constants differ by less than the greater of the two distances at which the slices no longer meet.
    fn windows(&mut self, s: &Form, n: i128, t: &Form, m: i128) {
        let (c, d) = (i128::from(s.constant), i128::from(t.constant));
        let window = (d + m - c).max(c + n - d);
        self.solve(s, t, window.max(1));
    }

    /// The ranges in which the elements of a dimension lie that a rule looks at.
    fn ranges(&self, dim: &Dim, extent: Option<&Form>) -> Vec<Range> {
        let (lows, highs) = self.limits(dim, extent);
        let mut out = Vec::new();
        for low in &lows {
            for high in &highs {
                if let Some((p, e)) = self.sorted_range(low, high) {
                    out.push(Range::Neighbours(p, e));
                } else if let Some(length) = high.plus(low, -1) {
                    match length.as_constant() {
                        Some(n) => out.push(Range::Window(low.clone(), n)),
                        None if low.terms.keys().any(|&t| self.is_product(t)) => {
                            out.push(Range::Part(low.clone(), length));
                        }
                        None => {}
                    }
                }
            }
        }
        out
    }

    fn is_product(&self, term: TermId) -> bool {
        matches!(self.forms.inside(term), Inside::Product(..))
    }

    /// The element lies in one range in one block, and in the other in the other.
    fn between(&mut self, range: &Range, other: &Range) {
        match (range, other) {
            (Range::Window(low, n), Range::Window(other_low, m)) => {
                self.windows(low, (*n).into(), other_low, (*m).into());
            }
            // If e < e' in two blocks, e + 1 ≤ e', so that the first range ends before the second begins; outside of p
            // all is 0, which makes ranges empty but for 0 .. p[0] where e = -1.
            (Range::Neighbours(p, e), Range::Neighbours(q, f)) if p == q => {
                self.windows(e, 1, f, 1);
            }
            // No such range is empty, so that q > 0, and two with one q meet only if their t are equal.
            (Range::Part(low, length), Range::Part(other_low, other_length))
                if low == other_low && length == other_length && self.is_known(length) =>
            {
                let open: Vec<(TermId, i64)> = low
                    .terms
                    .iter()
                    .map(|(&t, &c)| (t, c))
                    .filter(|&(t, _)| !self.is_known_term(t))
                    .collect();
                let [(product, c)] = open[..] else {
                    return;
                };
                let Inside::Product(s, t) = *self.forms.inside(product) else {
                    return;
                };
                for (t, q) in [(s, t), (t, s)] {
                    let factor = Form::term(q);
                    let same = [1, -1].iter().any(|sign| {
                        let step = c.checked_mul(*sign);
                        step.and_then(|step| Form::default().plus(&factor, step))
                            .is_some_and(|step| step == *length)
                    });
                    let (lo, hi) = self.range_of(product);
                    let most = (hi - lo).saturating_mul(i128::from(c).abs());
                    if same && self.is_known_term(q) && most < ALL.1 / 2 {
                        self.found([t].into_iter());
                    }
                }
            }
            _ => {}
        }
    }

    /// The view and the e of `p[e] .. p[e + 1]`, if p is sorted.
    fn sorted_range(&self, low: &Form, high: &Form) -> Option<(u32, Form)> {
        match (self.forms.look(low)?, self.forms.look(high)?) {
            (Inside::Element(p, e, pad), Inside::Element(q, f, other_pad)) if p == q => {
                let ([e], [f]) = (&e[..], &f[..]) else {
                    return None;
                };
                let next = f.plus(e, -1)?.as_constant() == Some(1);
                let zero = |pad: &Form| pad.as_constant() == Some(0);
                let sorted = self.forms.view(*p)?.facts.sorted;
                (next && sorted && zero(pad) && zero(other_pad)).then(|| (*p, e.clone()))
            }
            _ => None,
        }
    }

    /// Lower limits (at least) and upper limits (below) of the elements that a dimension touches.
    fn limits(&self, dim: &Dim, extent: Option<&Form>) -> (Vec<Form>, Vec<Form>) {
        if dim.from.is_none() && dim.until.is_none() {
            return (Vec::new(), Vec::new());
        }
        let mut ceilings: Vec<Form> = extent.cloned().into_iter().collect();
        if let Some(until) = &dim.until {
            self.upper(until, &[], &mut ceilings, MAX_DEPTH);
        }
        let mut lows = vec![Form::constant(0)];
        if let Some(from) = &dim.from {
            self.lower(from, &ceilings, &mut lows, MAX_DEPTH);
        }
        let mut highs = Vec::new();
        if let Some(until) = &dim.until {
            self.upper(until, &lows, &mut highs, MAX_DEPTH);
        }
        if let Some(start) = &dim.start {
            lows.push(start.clone());
            highs.extend(start.plus(&Form::constant(dim.extent), 1));
        }
        (lows, highs)
    }

    /// What `element ≥ form` says: of max(x, y) both; of min(x, y), where the element is below y, that it is not below x;
    /// with what is added to them, if nothing wraps.
    fn lower(&self, form: &Form, ceilings: &[Form], out: &mut Vec<Form>, depth: u32) {
        if out.len() >= MAX_LIMITS || out.contains(form) {
            return;
        }
        out.push(form.clone());
        let Some(depth) = depth.checked_sub(1) else {
            return;
        };
        for (inside, x, y) in self.choices(form) {
            match inside {
                Inside::Max(..) => {
                    self.lower(&x, ceilings, out, depth);
                    self.lower(&y, ceilings, out, depth);
                }
                _ => {
                    for (x, y) in [(&x, &y), (&y, &x)] {
                        if ceilings.contains(y) {
                            self.lower(x, ceilings, out, depth);
                        }
                    }
                }
            }
        }
    }

    /// What `element < form` says: of min(x, y) both; of max(x, y), where the element is at least x, that it is below y;
    /// with what is added to them, if nothing wraps.
    fn upper(&self, form: &Form, floors: &[Form], out: &mut Vec<Form>, depth: u32) {
        if out.len() >= MAX_LIMITS || out.contains(form) {
            return;
        }
        out.push(form.clone());
        let Some(depth) = depth.checked_sub(1) else {
            return;
        };
        for (inside, x, y) in self.choices(form) {
            match inside {
                Inside::Min(..) => {
                    self.upper(&x, floors, out, depth);
                    self.upper(&y, floors, out, depth);
                }
                _ => {
                    for (x, y) in [(&x, &y), (&y, &x)] {
                        if floors.contains(x) {
                            self.upper(y, floors, out, depth);
                        }
                    }
                }
            }
        }
    }

    /// Each `rest + min(x, y)` or `rest + max(x, y)` that `form` is, as `rest + x` and `rest + y`.
    fn choices(&self, form: &Form) -> Vec<(&Inside, Form, Form)> {
        let mut out = Vec::new();
        for (&term, &c) in &form.terms {
            let inside = self.forms.inside(term);
            let (Inside::Min(x, y) | Inside::Max(x, y)) = inside else {
                continue;
            };
            let rest = form.plus(&Form::term(term), -1);
            let with = |side: &Form| rest.as_ref()?.plus(side, 1);
            let (1, Some(x), Some(y)) = (c, with(x), with(y)) else {
                continue;
            };
            if rest == Some(Form::default()) || [form, &x, &y].iter().all(|f| self.is_exact(f)) {
                out.push((inside, x, y));
            }
        }
        out
    }

    /// `x / c` and `x % c` that are equal in both blocks, with one `c`, make `x` equal: it is their sum, c times the one.
    fn quotients(&mut self) {
        let mut wholes = Vec::new();
        for &quotient in &self.equal {
            let Inside::Quotient(x, c) = self.forms.inside(quotient) else {
                continue;
            };
            let rest = self.equal.iter().any(
                |&t| matches!(self.forms.inside(t), Inside::Remainder(y, d) if y == x && d == c),
            );
            if rest && self.is_known(c) {
                wholes.push(x.clone());
            }
        }
        for x in wholes {
            self.solve(&x, &x, 1);
        }
    }

    /// A row of a `distinct` view, all of whose columns are equal in both blocks, is one row. That holds inside the view:
    /// outside, all rows read alike.
    fn elements(&mut self) {
        let mut rows = Vec::new();
        for &term in &self.equal {
            let Inside::Element(p, index, _) = self.forms.inside(term) else {
                continue;
            };
            let Some(view) = self.forms.view(*p) else {
                continue;
            };
            if !view.facts.distinct || !self.is_inside(*p, &index[0]) {
                continue;
            }
            let columns = match &view.extents[..] {
                [_] => 1,
                [_, columns] => columns.as_int().unwrap_or(i64::MAX),
                _ => i64::MAX,
            };
            let has = |column: i64| {
                self.equal.iter().any(|&t| match self.forms.inside(t) {
                    Inside::Element(q, other, _) => {
                        q == p
                            && other[0] == index[0]
                            && (other.len() == 1 || other[1].as_constant() == Some(column))
                    }
                    _ => false,
                })
            };
            if columns <= self.equal.len() as i64 && (0..columns).all(has) {
                rows.push(index[0].clone());
            }
        }
        for row in rows {
            self.solve(&row, &row, 1);
        }
    }

    /// Whether `index` is a row of view `param`: a grid index whose axis has the view's extent, or one of no greater range.
    fn is_inside(&self, param: u32, index: &Form) -> bool {
        let Some(view) = self.forms.view(param) else {
            return false;
        };
        if let Some(extent) = view.extents[0].as_int() {
            let (lo, hi) = self.range(index);
            return lo >= 0 && hi < i128::from(extent);
        }
        match self.forms.look(index) {
            Some(Inside::Grid(axis)) => {
                self.forms.kernel.header.axes[*axis as usize].extent == view.extents[0]
            }
            _ => false,
        }
    }
}
