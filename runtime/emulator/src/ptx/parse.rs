//! Tokens to a [`Module`]: directives outside functions, and the heads of functions (PTX ISA §11).
//!
//! `constant` evaluates constant expressions, `variable` reads declarations, `body` reads statements and resolves names.
//!
//! Invariants: the parser takes time and memory that is linear in the text, but for registers and initial values, which have limits of their
//! own; recursion is bounded by [`DEPTH_LIMIT`].

mod body;
mod constant;
mod variable;

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use super::{
    Class, Function, Module, ParseError, Reg, Space, Variable,
    lex::{Placed, Token, lex},
};

/// Of nested scopes, parentheses and braces.
const DEPTH_LIMIT: u32 = 64;
/// Registers of a module.
const REGISTER_LIMIT: u32 = 1 << 21;
/// Bytes of initial values of a module.
const INITIAL_LIMIT: u64 = 1 << 28;

/// Parses a module.
pub fn parse(text: &str) -> Result<Module, ParseError> {
    let mut parser = Parser {
        tokens: lex(text)?,
        at: 0,
        depth: 0,
        module: Module::default(),
        words: HashMap::new(),
        symbols: HashMap::new(),
        function_names: HashSet::new(),
        registers_left: REGISTER_LIMIT,
        initial_left: INITIAL_LIMIT,
    };
    parser.module()?;
    Ok(parser.module)
}

type Result<T, E = ParseError> = std::result::Result<T, E>;

/// What a name outside functions is.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Global {
    /// By its index.
    Variable(usize),
    Function,
}

struct Parser<'a> {
    tokens: Vec<Placed<'a>>,
    at: usize,
    depth: u32,
    module: Module,
    /// Words that occur again and again: modifiers, symbols.
    words: HashMap<&'a str, Arc<str>>,
    symbols: HashMap<Arc<str>, Global>,
    /// Of functions that have a body.
    function_names: HashSet<Arc<str>>,
    registers_left: u32,
    initial_left: u64,
}

impl<'a> Parser<'a> {
    fn error<T>(&self, message: impl Into<String>) -> Result<T> {
        error_at(self.line(), message)
    }

    fn unexpected<T>(&self, wanted: &str) -> Result<T> {
        let found = self.peek().describe();
        self.error(format!("expected {wanted}, found {found}"))
    }

    /// The next token.
    fn peek(&self) -> Token<'a> {
        self.ahead(0)
    }

    fn ahead(&self, count: usize) -> Token<'a> {
        let placed = self.tokens.get(self.at + count);
        placed.map_or(Token::End, |placed| placed.token)
    }

    /// The next token's line.
    fn line(&self) -> u32 {
        let last = self.tokens.len() - 1;
        self.tokens[self.at.min(last)].line
    }

    fn next(&mut self) -> Token<'a> {
        let token = self.peek();
        if self.at + 1 < self.tokens.len() {
            self.at += 1;
        }
        token
    }

    /// Takes the mark if it is next.
    fn eat(&mut self, mark: u8) -> bool {
        let is_next = self.peek() == Token::Mark(mark);
        if is_next {
            self.next();
        }
        is_next
    }

    fn expect(&mut self, mark: u8) -> Result<()> {
        match self.eat(mark) {
            true => Ok(()),
            false => self.unexpected(&format!("`{}`", char::from(mark))),
        }
    }

    fn eat_dot(&mut self, word: &str) -> bool {
        let is_next = self.peek() == Token::Dot(word);
        if is_next {
            self.next();
        }
        is_next
    }

    fn name(&mut self, of: &str) -> Result<&'a str> {
        match self.peek() {
            Token::Name(name) => {
                self.next();
                Ok(name)
            }
            _ => self.unexpected(of),
        }
    }

    /// A literal that fits 32 bits.
    fn small(&mut self, of: &str) -> Result<u32> {
        let Token::Integer(value, _) = self.peek() else {
            return self.unexpected(of);
        };
        let Ok(value) = u32::try_from(value) else {
            return self.error(format!("{value} is too large for {of}"));
        };
        self.next();
        Ok(value)
    }

    fn word(&mut self, text: &'a str) -> Arc<str> {
        self.words
            .entry(text)
            .or_insert_with(|| text.into())
            .clone()
    }

    fn enter(&mut self) -> Result<()> {
        self.depth += 1;
        match self.depth > DEPTH_LIMIT {
            true => self.error(format!("more than {DEPTH_LIMIT} levels of nesting")),
            false => Ok(()),
        }
    }

    fn leave(&mut self) {
        self.depth -= 1;
    }

    fn module(&mut self) -> Result<()> {
        self.version()?;
        loop {
            match self.peek() {
                Token::End => break,
                Token::Dot(word) => self.item(word)?,
                _ => return self.unexpected("a directive"),
            }
        }
        match self.module.target.is_empty() {
            true => self.error("a module without `.target`"),
            false => Ok(()),
        }
    }

    /// `.version 8.0` (PTX ISA §11.1.1), which comes first.
    fn version(&mut self) -> Result<()> {
        if !self.eat_dot("version") {
            return self.unexpected("`.version`");
        }
        let Token::Decimal(text) = self.peek() else {
            return self.unexpected("a version as `8.0`");
        };
        let parts = text.split_once('.');
        let parts = parts.and_then(|(a, b)| Some((a.parse().ok()?, b.parse().ok()?)));
        let Some(version) = parts else {
            return self.unexpected("a version as `8.0`");
        };
        self.next();
        self.module.version = version;
        Ok(())
    }

    /// A directive outside functions.
    fn item(&mut self, word: &'a str) -> Result<()> {
        match word {
            "target" => {
                self.next();
                let first = self.name("a target")?;
                while self.eat(b',') {
                    self.name("a target")?;
                }
                self.module.target = first.into();
                Ok(())
            }
            "address_size" => {
                self.next();
                match self.small("an address size")? {
                    64 => Ok(()),
                    size => self.error(format!("addresses of {size} bits; only 64 are known")),
                }
            }
            "file" => self.file(),
            "loc" => self.location().map(drop),
            "section" => self.section(),
            "pragma" | "alias" => self.skip_statement(),
            _ => self.linked(),
        }
    }

    /// `.file 1 "path"[, timestamp, size]` (PTX ISA §11.5.3).
    fn file(&mut self) -> Result<()> {
        self.next();
        let number = self.small("a file's number")?;
        let Token::Text(path) = self.next() else {
            return self.error("a `.file` without a path");
        };
        for _ in 0..2 {
            if self.eat(b',') {
                let Token::Integer(..) = self.next() else {
                    return self.error("a `.file`'s time and size are numbers");
                };
            }
        }
        self.module.files.push((number, path.into()));
        Ok(())
    }

    /// `.loc file line column[, function_name label[+n], inlined_at file line column]` (PTX ISA §11.5.4).
    fn location(&mut self) -> Result<Option<super::Location>> {
        self.next();
        let place = super::Location {
            file: self.small("a file's number")?,
            line: self.small("a line")?,
            column: self.small("a column")?,
        };
        while self.peek() == Token::Mark(b',') {
            match self.ahead(1) {
                Token::Name("function_name") => {
                    self.at += 2;
                    match self.next() {
                        Token::Name(_) | Token::Dot(_) => {}
                        _ => return self.error("`function_name` needs a label"),
                    }
                    if self.eat(b'+') {
                        self.small("an offset")?;
                    }
                }
                Token::Name("inlined_at") => {
                    self.at += 2;
                    for part in ["a file's number", "a line", "a column"] {
                        self.small(part)?;
                    }
                }
                _ => return self.unexpected("`function_name` or `inlined_at`"),
            }
        }
        Ok((place.file != 0 && place.line != 0).then_some(place))
    }

    /// `.section .debug_info { … }` (PTX ISA §11.5.2), which is skipped.
    fn section(&mut self) -> Result<()> {
        self.next();
        match self.next() {
            Token::Dot(_) | Token::Name(_) => {}
            _ => return self.error("a `.section` without a name"),
        }
        self.expect(b'{')?;
        let mut open = 1u32;
        while open > 0 {
            match self.peek() {
                Token::Mark(b'{') => open += 1,
                Token::Mark(b'}') => open -= 1,
                Token::End => return self.error("a `.section` that does not end"),
                _ => {}
            }
            self.next();
        }
        Ok(())
    }

    /// Skips to after the semicolon.
    fn skip_statement(&mut self) -> Result<()> {
        let line = self.line();
        loop {
            match self.next() {
                Token::Mark(b';') => return Ok(()),
                Token::End => return error_at(line, "a directive without a semicolon"),
                _ => {}
            }
        }
    }

    /// A function or variables, with what says how they are linked (PTX ISA §11.6).
    fn linked(&mut self) -> Result<()> {
        let mut external = false;
        loop {
            match self.peek() {
                Token::Dot("extern") => external = true,
                Token::Dot("visible" | "weak" | "common") => {}
                Token::Dot("entry") => return self.function(true),
                Token::Dot("func") => return self.function(false),
                Token::Dot("global" | "const" | "shared" | "local") => break,
                Token::Dot(_) => {
                    let found = self.peek().describe();
                    return self.error(format!("the directive {found} is unknown here"));
                }
                _ => return self.unexpected("a function or a variable"),
            }
            self.next();
        }
        for variable in self.variables(external)? {
            self.define(variable)?;
        }
        Ok(())
    }

    /// Adds a variable outside functions. A definition may follow a declaration.
    fn define(&mut self, variable: Variable) -> Result<()> {
        match self.symbols.get(&variable.name) {
            None => {
                let index = self.module.variables.len();
                let name = variable.name.clone();
                self.symbols.insert(name, Global::Variable(index));
                self.module.variables.push(variable);
            }
            Some(&Global::Variable(index)) if variable.external => {
                let earlier = &mut self.module.variables[index];
                if earlier.external && variable.align > earlier.align {
                    *earlier = variable;
                }
            }
            Some(&Global::Variable(index)) if self.module.variables[index].external => {
                self.module.variables[index] = variable;
            }
            Some(_) => {
                let message = format!("`{}` is defined twice", variable.name);
                return error_at(variable.line, message);
            }
        }
        Ok(())
    }

    /// `.entry` and `.func` (PTX ISA §11.2).
    fn function(&mut self, entry: bool) -> Result<()> {
        self.next();
        self.skip_attribute()?;
        let mut body = body::Body::new();
        let mut function = Function {
            entry,
            ..Function::default()
        };
        if !entry && self.peek() == Token::Mark(b'(') {
            function.variables = self.parameters(&mut function, &mut body)?;
        }
        function.line = self.line();
        let name = self.name("a function's name")?;
        function.name = name.into();
        if self.peek() == Token::Mark(b'(') {
            function.parameters = self.parameters(&mut function, &mut body)?;
        }
        self.head(&mut function)?;
        let name = self.word(name);
        match self.symbols.get(&name) {
            None | Some(Global::Function) => self.symbols.insert(name.clone(), Global::Function),
            Some(_) => return error_at(function.line, format!("`{name}` is defined twice")),
        };
        if self.eat(b';') {
            return Ok(());
        }
        if !self.function_names.insert(name.clone()) {
            return error_at(function.line, format!("`{name}` is defined twice"));
        }
        self.expect(b'{')?;
        self.body(&mut function, body)?;
        self.module.functions.push(function);
        Ok(())
    }

    /// `(.param .u64 a, .reg .b32 b)`: gives the variables, and declares names.
    fn parameters(
        &mut self,
        function: &mut Function,
        body: &mut body::Body<'a>,
    ) -> Result<Vec<Variable>> {
        let mut variables = Vec::new();
        self.expect(b'(')?;
        if self.eat(b')') {
            return Ok(variables);
        }
        loop {
            match self.peek() {
                Token::Dot("reg") => self.register_list(function, body, false)?,
                Token::Dot("param") => {
                    let variable = self.parameter()?;
                    body.declare_variable(&variable)?;
                    variables.push(variable);
                }
                _ => return self.unexpected("a parameter"),
            }
            if self.eat(b')') {
                return Ok(variables);
            }
            self.expect(b',')?;
        }
    }

    /// A pragma of a body (PTX ISA §11.8.4); gives the mask of `used_bytes_mask`, and passes over others.
    fn pragma(&mut self) -> Result<Option<u32>> {
        let line = self.line();
        let mut mask = None;
        loop {
            match self.next() {
                Token::Mark(b';') => return Ok(mask),
                Token::Text(text) => {
                    let Some(word) = text.trim().strip_prefix("used_bytes_mask") else {
                        continue;
                    };
                    let word = word.trim();
                    let parsed = match word.strip_prefix("0x") {
                        Some(hex) => u32::from_str_radix(hex, 16),
                        None => word.parse(),
                    };
                    match parsed {
                        Ok(bits) => mask = Some(bits),
                        Err(_) => return error_at(line, format!("`{word}` is no mask of bytes")),
                    }
                }
                Token::End => return error_at(line, "a directive without a semicolon"),
                _ => {}
            }
        }
    }

    /// Directives between parameters and the body (PTX ISA §11.3, §11.4).
    fn head(&mut self, function: &mut Function) -> Result<()> {
        while let Token::Dot(word) = self.peek() {
            match word {
                "pragma" => {
                    self.skip_statement()?;
                    continue;
                }
                "attribute" => {
                    self.skip_attribute()?;
                    continue;
                }
                _ => {}
            }
            self.next();
            match word {
                "reqntid" => function.required_block = Some(self.extents()?),
                "maxntid" => function.largest_block = Some(self.extents()?),
                "reqnctapercluster" => function.required_cluster = Some(self.extents()?),
                "maxnreg" => function.largest_registers = Some(self.small("a count")?),
                "minnctapersm" | "maxnctapersm" | "maxclusterrank" => {
                    self.small("a count")?;
                }
                "explicitcluster" | "noreturn" | "blocksareclusters" => {}
                _ => return self.error(format!("the directive `.{word}` is unknown here")),
            }
        }
        Ok(())
    }

    /// One to three counts; those that are missing are 1.
    fn extents(&mut self) -> Result<[u32; 3]> {
        let mut extents = [1; 3];
        for (axis, extent) in extents.iter_mut().enumerate() {
            if axis > 0 && !self.eat(b',') {
                break;
            }
            *extent = self.small("a count")?;
            if *extent == 0 {
                return self.error("a count of 0 threads or blocks");
            }
        }
        Ok(extents)
    }

    /// `.attribute(.managed)` (PTX ISA §5.4.8).
    fn skip_attribute(&mut self) -> Result<()> {
        if !self.eat_dot("attribute") {
            return Ok(());
        }
        self.expect(b'(')?;
        let mut open = 1u32;
        while open > 0 {
            match self.next() {
                Token::Mark(b'(') => open += 1,
                Token::Mark(b')') => open -= 1,
                Token::End => return self.error("an `.attribute` that does not end"),
                _ => {}
            }
        }
        Ok(())
    }

    /// A new register of a function.
    fn new_register(
        &mut self,
        function: &mut Function,
        class: Class,
        name: Arc<str>,
    ) -> Result<Reg> {
        if self.registers_left == 0 {
            return self.error(format!("a module of more than {REGISTER_LIMIT} registers"));
        }
        self.registers_left -= 1;
        let count = &mut function.registers[class as usize];
        let index = *count;
        *count += 1;
        function.register_names[class as usize].push(name);
        Ok(Reg { class, index })
    }
}

fn error_at<T>(line: u32, message: impl Into<String>) -> Result<T> {
    Err(ParseError {
        line,
        message: message.into(),
    })
}

/// The space of a variable's directive.
fn space_of(word: &str) -> Option<Space> {
    Some(match word {
        "global" => Space::Global,
        "const" => Space::Constant,
        "shared" | "shared::cta" => Space::Shared,
        "local" => Space::Local,
        "param" => Space::Parameter,
        _ => return None,
    })
}
