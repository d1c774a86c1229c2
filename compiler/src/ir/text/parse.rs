//! Parsing: a cursor over the text, headers, regions. Any text gives a result or an error with a place, never a panic.

use std::{collections::HashMap, sync::Arc};

use cranelift_entity::EntityRef;
use tesserine_set::{
    Access, DType, Fact, Formula, FormulaOp, Param, ParamKind, Signature, Term, ViewFacts,
    ViewParam,
};

use super::Dialect;
use crate::{
    ir::{
        Body, GridAxis, Header, Order, RegionId, Schedule, ValueId,
        role::{BufferId, ChannelId, MapId},
    },
    layout::Layout,
    span::Span,
};

/// What is wrong with a text, and where. Line and column count from 1, columns in characters.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{line}:{column}: {message}")]
pub struct ParseError {
    pub line: u32,
    pub column: u32,
    pub message: String,
}

/// How deep regions and formulas may nest.
const MAX_DEPTH: u32 = 100;

/// A cursor over the text, and what names in it stand for.
pub struct Parser<'a> {
    text: &'a str,
    /// Byte of `text` at which the next token, or blanks before it, begin.
    at: usize,
    depth: u32,
    header: Header,
    layouts: HashMap<u32, Arc<Layout>>,
    values: HashMap<u32, ValueId>,
    /// How many buffers have been declared.
    pub(in crate::ir) buffers: u32,
    /// How many channels have been declared.
    pub(in crate::ir) channels: u32,
    /// How many tensor maps have been declared.
    pub(in crate::ir) maps: u32,
}

impl<'a> Parser<'a> {
    pub fn new(text: &'a str) -> Parser<'a> {
        Parser {
            text,
            at: 0,
            depth: 0,
            header: Header {
                name: String::new(),
                signature: Signature::default(),
                requires: Vec::new(),
                facts: Vec::new(),
                cost: None,
                axes: Vec::new(),
                order: Order::Rows,
                persistent: false,
                dynamic: false,
                schedule: Schedule::default(),
                span: Span::NONE,
            },
            layouts: HashMap::new(),
            values: HashMap::new(),
            buffers: 0,
            channels: 0,
            maps: 0,
        }
    }

    /// The header read.
    pub fn into_header(self) -> Header {
        self.header
    }

    // Tokens.

    fn error_at<T>(&self, at: usize, message: impl Into<String>) -> Result<T, ParseError> {
        let before = &self.text[..at];
        let line = before.matches('\n').count() as u32 + 1;
        let column = before.rsplit('\n').next().unwrap_or("").chars().count() as u32 + 1;
        Err(ParseError {
            line,
            column,
            message: message.into(),
        })
    }

    /// An error at the next token.
    pub fn error<T>(&mut self, message: impl Into<String>) -> Result<T, ParseError> {
        self.skip();
        self.error_at(self.at, message)
    }

    fn expected<T>(&mut self, what: &str) -> Result<T, ParseError> {
        self.skip();
        let found: String = self.text[self.at..]
            .chars()
            .take_while(|c| !c.is_whitespace())
            .take(20)
            .collect();
        if found.is_empty() {
            self.error(format!(
                "expected {what}, found the end of the line or text"
            ))
        } else {
            self.error(format!("expected {what}, found `{found}`"))
        }
    }

    /// Skips blanks and `//` comments.
    fn skip(&mut self) {
        loop {
            let rest = &self.text[self.at..];
            let blank = rest.len() - rest.trim_start().len();
            if blank > 0 {
                self.at += blank;
            } else if rest.starts_with("//") {
                self.at += rest.find('\n').unwrap_or(rest.len());
            } else {
                return;
            }
        }
    }

    /// Nothing is left.
    pub fn at_end(&mut self) -> bool {
        self.skip();
        self.at == self.text.len()
    }

    fn next_is(&mut self, symbol: &str) -> bool {
        self.skip();
        self.text[self.at..].starts_with(symbol)
    }

    /// Takes `symbol` if it is next.
    pub fn eat(&mut self, symbol: &str) -> bool {
        let found = self.next_is(symbol);
        if found {
            self.at += symbol.len();
        }
        found
    }

    pub fn expect(&mut self, symbol: &str) -> Result<(), ParseError> {
        if self.eat(symbol) {
            Ok(())
        } else {
            self.expected(&format!("`{symbol}`"))
        }
    }

    /// The word that is next: a name, perhaps dotted; not taken.
    fn peek_word(&mut self) -> &'a str {
        self.skip();
        let rest = &self.text[self.at..];
        let mut end = 0;
        let mut chars = rest.char_indices().peekable();
        while let Some((i, c)) = chars.next() {
            let start = c.is_alphabetic() || c == '_';
            let inner = end > 0
                && (c.is_alphanumeric()
                    || c == '.'
                        && chars
                            .peek()
                            .is_some_and(|(_, n)| n.is_alphabetic() || *n == '_'));
            if !start && !inner {
                break;
            }
            end = i + c.len_utf8();
        }
        &rest[..end]
    }

    pub fn word(&mut self, what: &str) -> Result<&'a str, ParseError> {
        let word = self.peek_word();
        if word.is_empty() {
            return self.expected(what);
        }
        self.at += word.len();
        Ok(word)
    }

    /// Takes the word `keyword` if it is next.
    pub fn eat_word(&mut self, keyword: &str) -> bool {
        let found = self.peek_word() == keyword;
        if found {
            self.at += keyword.len();
        }
        found
    }

    pub fn expect_word(&mut self, keyword: &str) -> Result<(), ParseError> {
        if self.eat_word(keyword) {
            Ok(())
        } else {
            self.expected(&format!("`{keyword}`"))
        }
    }

    fn digits(&mut self) -> Option<i128> {
        self.skip();
        let rest = &self.text[self.at..];
        let len = rest.bytes().take_while(u8::is_ascii_digit).count();
        let value = rest[..len].parse().ok()?;
        self.at += len;
        Some(value)
    }

    /// An integer, perhaps negative, that fits `T`.
    pub fn integer<T: TryFrom<i128>>(&mut self) -> Result<T, ParseError> {
        self.skip();
        let start = self.at;
        let negative = self.eat("-");
        let Some(value) = self.digits() else {
            self.at = start;
            return self.expected("an integer");
        };
        let value = if negative { -value } else { value };
        T::try_from(value)
            .or_else(|_| self.error_at(start, format!("{value} is out of range here")))
    }

    /// A float: decimal, `inf`, `nan` or `nan(0x…)`. With `single`, the decimal is rounded to f32.
    pub fn float(&mut self, single: bool) -> Result<f64, ParseError> {
        self.skip();
        let start = self.at;
        let negative = self.eat("-");
        let sign = if negative { -1.0 } else { 1.0 };
        if self.eat_word("inf") {
            return Ok(sign * f64::INFINITY);
        }
        if !negative && self.eat_word("nan") {
            if !self.eat("(0x") {
                return Ok(f64::NAN);
            }
            let rest = &self.text[self.at..];
            let len = rest.bytes().take_while(u8::is_ascii_hexdigit).count();
            let bits = u64::from_str_radix(&rest[..len], 16).ok();
            let Some(value) = bits.map(f64::from_bits).filter(|v| v.is_nan()) else {
                return self.error("these are not the bits of a NaN");
            };
            self.at += len;
            self.expect(")")?;
            return Ok(value);
        }
        let rest = &self.text[self.at..];
        let mut len = 0;
        for (i, c) in rest.char_indices() {
            let exponent_sign = matches!(c, '+' | '-') && rest[..i].ends_with('e');
            if !(c.is_ascii_digit() || c == '.' || c == 'e' || exponent_sign) {
                break;
            }
            len = i + 1;
        }
        let value = if single {
            rest[..len].parse::<f32>().ok().map(f64::from)
        } else {
            rest[..len].parse::<f64>().ok()
        };
        match value {
            Some(value) => {
                self.at += len;
                Ok(sign * value)
            }
            None => {
                self.at = start;
                self.expected("a number")
            }
        }
    }

    /// A quoted string.
    pub fn string(&mut self) -> Result<String, ParseError> {
        self.expect("\"")?;
        let start = self.at;
        let mut out = String::new();
        let mut chars = self.text[start..].char_indices();
        while let Some((i, c)) = chars.next() {
            match c {
                '"' => {
                    self.at = start + i + 1;
                    return Ok(out);
                }
                '\\' => match chars.next() {
                    Some((_, 'n')) => out.push('\n'),
                    Some((_, c @ ('"' | '\\'))) => out.push(c),
                    _ => return self.error_at(start + i, "an unknown escape"),
                },
                c => out.push(c),
            }
        }
        self.error_at(start, "this string does not end")
    }

    /// `[1, 2, 3]`
    pub fn numbers(&mut self) -> Result<Vec<u32>, ParseError> {
        self.list(|p| p.integer())
    }

    fn list<T>(
        &mut self,
        mut item: impl FnMut(&mut Self) -> Result<T, ParseError>,
    ) -> Result<Vec<T>, ParseError> {
        self.expect("[")?;
        let mut out = Vec::new();
        if self.eat("]") {
            return Ok(out);
        }
        loop {
            out.push(item(self)?);
            if !self.eat(",") {
                self.expect("]")?;
                return Ok(out);
            }
        }
    }

    pub fn dtype(&mut self) -> Result<DType, ParseError> {
        self.skip();
        let start = self.at;
        let word = self.word("an element type")?;
        word.parse()
            .or_else(|e: tesserine_set::UnknownDType| self.error_at(start, e.to_string()))
    }

    /// `out `, `mut ` or nothing.
    pub fn access(&mut self) -> Access {
        if self.eat_word("out") {
            Access::Write
        } else if self.eat_word("mut") {
            Access::ReadWrite
        } else {
            Access::Read
        }
    }

    // Names.

    /// Something of the header by name, or by `#index`.
    fn named(
        &mut self,
        what: &str,
        position: impl Fn(&Header, &str) -> Option<usize>,
    ) -> Result<u32, ParseError> {
        if self.eat("#") {
            return self.integer();
        }
        self.skip();
        let start = self.at;
        let word = self.word(what)?;
        match position(&self.header, word) {
            Some(index) => Ok(index as u32),
            None => self.error_at(start, format!("`{word}` is no {what}")),
        }
    }

    pub fn dim(&mut self) -> Result<u32, ParseError> {
        let position =
            |h: &Header, word: &str| h.signature.dims.iter().position(|name| name == word);
        self.named("dimension of this kernel", position)
    }

    pub fn param(&mut self) -> Result<u32, ParseError> {
        let position =
            |h: &Header, word: &str| h.signature.params.iter().position(|p| p.name == word);
        self.named("parameter of this kernel", position)
    }

    pub fn axis(&mut self) -> Result<u32, ParseError> {
        let position = |h: &Header, word: &str| h.axes.iter().position(|a| a.name == word);
        self.named("axis of this kernel", position)
    }

    /// `%7`, which must have been defined.
    pub fn value(&mut self) -> Result<ValueId, ParseError> {
        self.skip();
        let start = self.at;
        let number = self.value_number()?;
        match self.values.get(&number) {
            Some(&value) => Ok(value),
            None => self.error_at(start, format!("`%{number}` is not defined before here")),
        }
    }

    fn value_number(&mut self) -> Result<u32, ParseError> {
        if !self.eat("%") {
            return self.expected("a value");
        }
        self.integer()
    }

    /// `%1, %2`, or nothing.
    pub fn operands(&mut self) -> Result<Vec<ValueId>, ParseError> {
        let mut operands = Vec::new();
        if self.next_is("%") {
            operands.push(self.value()?);
            while self.eat(",") {
                operands.push(self.value()?);
            }
        }
        Ok(operands)
    }

    /// Reads ahead with `f` and comes back.
    pub fn ahead<T>(&mut self, f: impl FnOnce(&mut Self) -> T) -> T {
        let at = self.at;
        let result = f(self);
        self.at = at;
        result
    }

    /// `shared0`, which must have been declared.
    pub fn buffer(&mut self) -> Result<BufferId, ParseError> {
        let number = self.declared("shared", "buffer", self.buffers)?;
        Ok(BufferId::new(number))
    }

    /// `channel0`, which must have been declared.
    pub fn channel(&mut self) -> Result<ChannelId, ParseError> {
        let number = self.declared("channel", "channel", self.channels)?;
        Ok(ChannelId::new(number))
    }

    /// `channel0` of tile IR, which must have been declared.
    pub fn tile_channel(&mut self) -> Result<super::super::tile::ChannelId, ParseError> {
        let number = self.declared("channel", "channel", self.channels)?;
        Ok(super::super::tile::ChannelId::new(number))
    }

    /// `map0`, which must have been declared.
    pub fn map(&mut self) -> Result<MapId, ParseError> {
        let number = self.declared("map", "tensor map", self.maps)?;
        Ok(MapId::new(number))
    }

    /// The number behind `prefix`, below `count`.
    fn declared(&mut self, prefix: &str, what: &str, count: u32) -> Result<usize, ParseError> {
        self.skip();
        let start = self.at;
        let word = self.word(&format!("a {what}"))?;
        match word
            .strip_prefix(prefix)
            .and_then(|n| n.parse::<u32>().ok())
        {
            Some(n) if n < count => Ok(n as usize),
            _ => self.error_at(start, format!("`{word}` is no {what} of this kernel")),
        }
    }

    /// `#l3`, if a layout is next.
    pub fn layout(&mut self) -> Result<Option<Arc<Layout>>, ParseError> {
        if !self.next_is("#") {
            return Ok(None);
        }
        let start = self.at;
        self.expect("#l")?;
        let number: u32 = self.integer()?;
        match self.layouts.get(&number) {
            Some(layout) => Ok(Some(layout.clone())),
            None => self.error_at(start, format!("`#l{number}` is not defined before here")),
        }
    }

    /// The layouts in front of a kernel.
    pub fn layouts(&mut self) -> Result<(), ParseError> {
        while self.next_is("#") {
            let start = self.at;
            self.expect("#l")?;
            let number: u32 = self.integer()?;
            self.expect("=")?;
            self.expect_word("layout")?;
            let shape = self.numbers()?;
            self.expect_word("register")?;
            let register = self.list(Self::numbers)?;
            self.expect_word("lane")?;
            let lane = self.list(Self::numbers)?;
            self.expect_word("warp")?;
            let warp = self.list(Self::numbers)?;
            self.expect_word("repeat")?;
            let repeat = self.numbers()?;
            let layout = Layout {
                shape,
                register,
                lane,
                warp,
                repeat,
            };
            let bases = layout
                .register
                .iter()
                .chain(&layout.lane)
                .chain(&layout.warp);
            let mut ranks = bases.map(Vec::len).chain([layout.repeat.len()]);
            if !ranks.all(|rank| rank == layout.shape.len()) {
                return self.error_at(start, "a layout has one entry a dimension");
            }
            if !layout.is_bounded() {
                return self.error_at(start, "this layout is larger than any tile");
            }
            if self.layouts.insert(number, Arc::new(layout)).is_some() {
                return self.error_at(start, format!("`#l{number}` is defined twice"));
            }
        }
        Ok(())
    }

    // Formulas.

    /// An infix formula over dimensions and integer scalars.
    pub fn formula(&mut self) -> Result<Formula, ParseError> {
        let mut terms = Vec::new();
        self.formula_level(2, &mut terms)?;
        Ok(Formula(terms))
    }

    /// An operator of at least `level`; levels and spellings as in [`Formula::display`].
    fn infix(&mut self, level: u8) -> Option<(FormulaOp, u8)> {
        const OPS: [(&str, FormulaOp, u8); 13] = [
            ("||", FormulaOp::Or, 2),
            ("&&", FormulaOp::And, 3),
            ("==", FormulaOp::Eq, 5),
            ("!=", FormulaOp::Ne, 5),
            ("<=", FormulaOp::Le, 5),
            (">=", FormulaOp::Ge, 5),
            ("<", FormulaOp::Lt, 5),
            (">", FormulaOp::Gt, 5),
            ("+", FormulaOp::Add, 7),
            ("-", FormulaOp::Sub, 7),
            ("*", FormulaOp::Mul, 8),
            ("/", FormulaOp::Div, 8),
            ("%", FormulaOp::Rem, 8),
        ];
        for (text, op, l) in OPS {
            if l >= level && self.eat(text) {
                return Some((op, l));
            }
        }
        None
    }

    fn nested<T>(
        &mut self,
        f: impl FnOnce(&mut Self) -> Result<T, ParseError>,
    ) -> Result<T, ParseError> {
        if self.depth == MAX_DEPTH {
            return self.error("this is nested too deeply");
        }
        self.depth += 1;
        let result = f(self);
        self.depth -= 1;
        result
    }

    fn formula_level(&mut self, level: u8, out: &mut Vec<Term>) -> Result<(), ParseError> {
        self.nested(|p| {
            p.formula_primary(out)?;
            while let Some((op, l)) = p.infix(level) {
                // Comparisons do not chain, all else groups to the left.
                p.formula_level(l + 1, out)?;
                out.push(Term::Op(op));
            }
            Ok(())
        })
    }

    fn formula_primary(&mut self, out: &mut Vec<Term>) -> Result<(), ParseError> {
        if self.eat("(") {
            self.formula_level(2, out)?;
            return self.expect(")");
        }
        if self.eat("!") {
            self.formula_level(9, out)?;
            out.push(Term::Op(FormulaOp::Not));
            return Ok(());
        }
        if self.ahead(|p| p.integer::<i128>().is_ok()) {
            out.push(Term::Int(self.integer()?));
            return Ok(());
        }
        if self.eat("-") {
            self.formula_level(9, out)?;
            out.push(Term::Op(FormulaOp::Neg));
            return Ok(());
        }
        self.skip();
        let start = self.at;
        let word = self.word("a formula")?;
        if self.eat("(") {
            if word == "given" {
                out.push(Term::Given(self.param()?));
                return self.expect(")");
            }
            let op = match word {
                "ceil_div" => FormulaOp::CeilDiv,
                "round_up" => FormulaOp::RoundUp,
                "min" => FormulaOp::Min,
                "max" => FormulaOp::Max,
                _ => return self.error_at(start, format!("`{word}` is no function of formulas")),
            };
            self.formula_level(2, out)?;
            self.expect(",")?;
            self.formula_level(2, out)?;
            out.push(Term::Op(op));
            return self.expect(")");
        }
        let signature = &self.header.signature;
        let dim = signature.dims.iter().position(|d| d == word);
        let param = signature.params.iter().position(|p| p.name == word);
        match (dim, param) {
            (Some(dim), _) => out.push(Term::Dim(dim as u32)),
            (None, Some(param)) => out.push(Term::Scalar(param as u32)),
            (None, None) if word == "multiprocessors" => out.push(Term::Multiprocessors),
            (None, None) => {
                return self.error_at(start, format!("`{word}` is no dimension or parameter"));
            }
        }
        Ok(())
    }

    // Headers.

    fn fact(&mut self) -> Result<Fact, ParseError> {
        if self.eat_word("aligned") {
            self.expect("(")?;
            let param = self.param()?;
            self.expect(",")?;
            let bytes = self.integer()?;
            self.expect(")")?;
            Ok(Fact::Aligned { param, bytes })
        } else {
            Ok(Fact::Holds(self.formula()?))
        }
    }

    fn declaration(&mut self) -> Result<Param, ParseError> {
        let name = self.word("a parameter's name")?.to_owned();
        let optional = self.eat("?");
        self.expect(":")?;
        let access = self.access();
        let kind = if self.eat_word("view") {
            self.expect("<")?;
            let dtype = self.dtype()?;
            self.expect(">")?;
            let extents = self.list(Self::formula)?;
            let strided = self.eat_word("strided");
            let sorted = self.eat_word("sorted");
            let distinct = self.eat_word("distinct");
            let align = if self.eat_word("align") {
                Some(self.integer()?)
            } else {
                None
            };
            ParamKind::View(ViewParam {
                dtype,
                access,
                extents,
                strided,
                facts: ViewFacts {
                    sorted,
                    distinct,
                    align,
                },
            })
        } else {
            let dtype = self.dtype()?;
            let default = if self.eat("=") {
                Some(self.float(false)?)
            } else {
                None
            };
            ParamKind::Scalar { dtype, default }
        };
        Ok(Param {
            name,
            optional,
            kind,
        })
    }

    /// Everything up to the body, or to what only role IR has.
    pub fn header(&mut self) -> Result<(), ParseError> {
        self.expect_word("kernel")?;
        self.header.name = self.string()?;
        // Extents may mention scalars declared later: parameters are read twice.
        let names = self.ahead(|p| {
            let mut names = Vec::new();
            while !p.at_end() && !p.next_is("{") {
                if p.eat_word("param") {
                    names.push(p.peek_word().to_owned());
                }
                let rest = &p.text[p.at..];
                p.at += rest.find('\n').unwrap_or(rest.len());
            }
            names
        });
        self.header.signature.params = names
            .into_iter()
            .map(|name| Param {
                name,
                optional: false,
                kind: ParamKind::Scalar {
                    dtype: DType::I64,
                    default: None,
                },
            })
            .collect();
        let mut params = Vec::new();
        loop {
            if self.eat_word("dims") {
                loop {
                    let name = self.word("a dimension's name")?.to_owned();
                    self.header.signature.dims.push(name);
                    if !self.eat(",") {
                        break;
                    }
                }
            } else if self.eat_word("param") {
                params.push(self.declaration()?);
            } else if self.eat_word("require") {
                let fact = self.fact()?;
                self.header.requires.push(fact);
            } else if self.eat_word("fact") {
                let fact = self.fact()?;
                self.header.facts.push(fact);
            } else if self.eat_word("cost") {
                self.header.cost = Some(self.formula()?);
            } else if self.eat_word("axis") {
                let name = self.word("an axis's name")?.to_owned();
                self.expect_word("in")?;
                let extent = self.formula()?;
                let (rev, cluster) = (self.eat_word("rev"), self.eat_word("cluster"));
                self.header.axes.push(GridAxis {
                    name,
                    extent,
                    rev,
                    cluster,
                });
            } else if self.eat_word("order") {
                self.expect_word("grouped")?;
                self.expect("(")?;
                let group = self.integer()?;
                self.expect(")")?;
                self.header.order = Order::Grouped { group };
            } else if self.eat_word("persistent") {
                self.header.persistent = true;
                self.header.dynamic = self.eat_word("dynamic");
            } else if self.eat_word("warps") {
                self.header.schedule.warps = Some(self.integer()?);
            } else if self.eat_word("stages") {
                self.header.schedule.stages = Some(self.integer()?);
            } else if self.eat_word("blocks_per_sm") {
                self.header.schedule.blocks_per_sm = Some(self.integer()?);
            } else if self.eat_word("max_regs") {
                self.header.schedule.max_regs = Some(self.integer()?);
            } else if self.eat_word("consumers") {
                self.header.schedule.consumers = Some(self.integer()?);
            } else if self.eat_word("producers") {
                self.header.schedule.producers = Some(self.integer()?);
            } else if self.eat_word("promote") {
                self.header.schedule.promote = Some(self.integer()?);
            } else if self.eat_word("loop") {
                let name = self.word("a loop's name")?.to_owned();
                self.expect_word("stages")?;
                let stages = self.integer()?;
                self.header.schedule.loops.push((name, stages));
            } else if self.eat_word("cluster") {
                let size = self.integer()?;
                self.header.schedule.cluster.push(size);
            } else if self.eat_word("multicast") {
                self.header.schedule.multicast = true;
            } else if self.eat_word("overlap") {
                self.header.schedule.overlap = true;
            } else if self.eat_word("pair") {
                self.header.schedule.pair = true;
            } else {
                self.header.signature.params = params;
                return Ok(());
            }
        }
    }

    // Bodies.

    /// `{ operations }`
    pub fn body<K: Dialect>(&mut self) -> Result<Body<K, K::Type>, ParseError> {
        self.values.clear();
        let mut body = Body::new();
        let root = body.root;
        self.region(&mut body, root)?;
        Ok(body)
    }

    fn define(&mut self, start: usize, number: u32, value: ValueId) -> Result<(), ParseError> {
        match self.values.insert(number, value) {
            None => Ok(()),
            Some(_) => self.error_at(start, format!("`%{number}` is defined twice")),
        }
    }

    fn region<K: Dialect>(
        &mut self,
        body: &mut Body<K, K::Type>,
        region: RegionId,
    ) -> Result<(), ParseError> {
        self.expect("{")?;
        if self.eat("|") {
            loop {
                self.skip();
                let start = self.at;
                let number = self.value_number()?;
                self.expect(":")?;
                let ty = K::parse_type(self)?;
                let value = body.add_argument(region, ty);
                self.define(start, number, value)?;
                if !self.eat(",") {
                    break;
                }
            }
            self.expect("|")?;
        }
        while !self.eat("}") {
            self.nested(|p| p.op(body, region))?;
        }
        Ok(())
    }

    fn op<K: Dialect>(
        &mut self,
        body: &mut Body<K, K::Type>,
        region: RegionId,
    ) -> Result<(), ParseError> {
        self.skip();
        let start = self.at;
        let mut numbers = Vec::new();
        if self.next_is("%") {
            numbers.push(self.value_number()?);
            while self.eat(",") {
                numbers.push(self.value_number()?);
            }
            self.expect("=")?;
        }
        let (kind, operands) = K::parse_op(self)?;
        let mut types = Vec::new();
        if self.eat(":") {
            types.push(K::parse_type(self)?);
            while self.eat(",") {
                types.push(K::parse_type(self)?);
            }
        }
        if types.len() != numbers.len() {
            return self.error_at(
                start,
                format!(
                    "this operation names {} results and gives {} types",
                    numbers.len(),
                    types.len()
                ),
            );
        }
        let mut regions = Vec::new();
        while self.next_is("{") {
            let inner = body.new_region();
            self.region(body, inner)?;
            regions.push(inner);
        }
        let op = body.append(region, kind, operands, types, regions, Span::NONE);
        for (i, number) in numbers.into_iter().enumerate() {
            let value = body.ops[op].results[i];
            self.define(start, number, value)?;
        }
        Ok(())
    }
}
