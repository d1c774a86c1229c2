//! Bodies of functions: scopes, labels, instructions and operands (PTX ISA §4.3, §6).
//!
//! Names of registers and variables are declared before they are used, in a scope or one around it; labels are seen in all of their scope, so
//! their uses are resolved when it closes.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use super::{DEPTH_LIMIT, Global, Parser, Result, error_at};
use crate::ptx::{
    Address, Class, Function, Guard, Instruction, Location, Operand, Reg, Space, Variable,
    lex::Token,
};

/// Labels that all uses of tables of targets stand for.
const TARGET_LIMIT: usize = 1 << 20;

/// What a name in a body is.
#[derive(Clone, Debug)]
pub(super) enum Binding {
    Register(Reg),
    /// The registers of a `.v2` or `.v4` one.
    Vector(Arc<[Reg]>),
    /// The name by which the function or module lists it.
    Variable(Arc<str>),
}

/// What a label's name stands for.
#[derive(Clone, Debug)]
enum Target {
    Instruction(u32),
    /// Uses, of the labels that `.branchtargets` lists.
    Table(Arc<[u32]>),
}

#[derive(Default)]
struct Scope<'a> {
    names: HashMap<Arc<str>, Binding>,
    labels: HashMap<&'a str, Target>,
    /// Indices of uses that are not resolved.
    pending: Vec<u32>,
}

/// A name that was used as a label.
struct Use<'a> {
    name: &'a str,
    line: u32,
    target: Option<Target>,
    /// A symbol of the module, if no label has the name.
    symbol: Option<Arc<str>>,
}

/// What is known of a body while it is read.
pub(super) struct Body<'a> {
    /// The innermost last. The first is the function's: parameters and the body itself.
    scopes: Vec<Scope<'a>>,
    uses: Vec<Use<'a>>,
    /// Instructions with label operands: those hold a use's index.
    to_patch: Vec<usize>,
    /// Names of the function's variables.
    taken: HashSet<Arc<str>>,
    location: Option<Location>,
    /// Of the next instruction.
    used_bytes: u32,
}

impl<'a> Body<'a> {
    pub(super) fn new() -> Body<'a> {
        Body {
            scopes: vec![Scope::default()],
            uses: Vec::new(),
            to_patch: Vec::new(),
            taken: HashSet::new(),
            location: None,
            used_bytes: u32::MAX,
        }
    }

    fn scope(&mut self) -> &mut Scope<'a> {
        let last = self.scopes.len() - 1;
        &mut self.scopes[last]
    }

    pub(super) fn declare(&mut self, name: Arc<str>, binding: Binding, line: u32) -> Result<()> {
        match self.scope().names.insert(name.clone(), binding) {
            None => Ok(()),
            Some(_) => error_at(line, format!("`{name}` is declared twice")),
        }
    }

    /// Declares a parameter under its own name; `_` is a parameter without one.
    pub(super) fn declare_variable(&mut self, variable: &Variable) -> Result<()> {
        if &*variable.name == "_" {
            return Ok(());
        }
        self.taken.insert(variable.name.clone());
        let binding = Binding::Variable(variable.name.clone());
        self.declare(variable.name.clone(), binding, variable.line)
    }

    fn lookup(&self, name: &str) -> Option<&Binding> {
        let scopes = self.scopes.iter().rev();
        scopes.into_iter().find_map(|scope| scope.names.get(name))
    }

    fn define_label(&mut self, name: &'a str, target: Target, line: u32) -> Result<()> {
        match self.scope().labels.insert(name, target) {
            None => Ok(()),
            Some(_) => error_at(line, format!("the label `{name}` is defined twice")),
        }
    }

    fn use_label(&mut self, name: &'a str, line: u32, symbol: Option<Arc<str>>) -> Operand {
        let index = self.uses.len() as u32;
        self.uses.push(Use {
            name,
            line,
            target: None,
            symbol,
        });
        self.scope().pending.push(index);
        Operand::Label(index)
    }

    /// Leaves the innermost scope; what it does not resolve is left to the one around it.
    fn close(&mut self) -> Result<()> {
        let Some(scope) = self.scopes.pop() else {
            return Ok(());
        };
        for index in scope.pending {
            let used = &mut self.uses[index as usize];
            match (scope.labels.get(used.name), self.scopes.last_mut()) {
                (Some(target), _) => used.target = Some(target.clone()),
                (None, Some(outer)) => outer.pending.push(index),
                (None, None) if used.symbol.is_some() => {}
                (None, None) => {
                    let kind = match used.name.starts_with('%') {
                        true => "register",
                        false => "label or name",
                    };
                    return error_at(used.line, format!("unknown {kind} `{}`", used.name));
                }
            }
        }
        Ok(())
    }

    /// Puts indices of instructions, or symbols, where uses stood.
    fn patch(&self, body: &mut [Instruction]) -> Result<()> {
        let mut left = TARGET_LIMIT;
        for &index in &self.to_patch {
            let instruction = &mut body[index];
            for operand in &mut instruction.operands {
                self.patch_operand(operand, &mut left)?;
            }
        }
        Ok(())
    }

    fn patch_operand(&self, operand: &mut Operand, left: &mut usize) -> Result<()> {
        match operand {
            Operand::Label(index) => *operand = self.resolved(*index, left)?,
            Operand::Vector(parts) => {
                for part in parts {
                    self.patch_operand(part, left)?;
                }
            }
            Operand::Pair(pair) => {
                self.patch_operand(&mut pair.0, left)?;
                self.patch_operand(&mut pair.1, left)?;
            }
            Operand::Address(address) => {
                self.patch_operand(&mut address.base, left)?;
                for part in &mut address.more {
                    self.patch_operand(part, left)?;
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn resolved(&self, index: u32, left: &mut usize) -> Result<Operand> {
        let used = &self.uses[index as usize];
        match (&used.target, &used.symbol) {
            (Some(Target::Instruction(at)), _) => Ok(Operand::Label(*at)),
            (Some(Target::Table(entries)), _) => {
                if entries.len() > *left {
                    return error_at(used.line, "tables of branch targets that are too long");
                }
                *left -= entries.len();
                let entry = |entry: &u32| match self.uses[*entry as usize] {
                    Use {
                        target: Some(Target::Instruction(at)),
                        ..
                    } => Ok(Operand::Label(at)),
                    Use { name, line, .. } => error_at(line, format!("`{name}` is no label")),
                };
                let labels: Result<Vec<Operand>> = entries.iter().map(entry).collect();
                Ok(Operand::Vector(labels?))
            }
            (None, Some(symbol)) => Ok(Operand::Symbol(symbol.clone(), 0)),
            (None, None) => error_at(used.line, format!("unknown label `{}`", used.name)),
        }
    }
}

impl<'a> Parser<'a> {
    /// Statements up to the function's closing brace; the opening one was taken.
    pub(super) fn body(&mut self, function: &mut Function, mut body: Body<'a>) -> Result<()> {
        loop {
            match self.peek() {
                Token::Mark(b'{') => {
                    if body.scopes.len() as u32 == DEPTH_LIMIT {
                        return self.error(format!("more than {DEPTH_LIMIT} levels of nesting"));
                    }
                    self.next();
                    body.scopes.push(Scope::default());
                }
                Token::Mark(b'}') => {
                    self.next();
                    body.close()?;
                    if body.scopes.is_empty() {
                        break;
                    }
                }
                Token::Mark(b';') => {
                    self.next();
                }
                Token::Dot(word) => self.directive(word, function, &mut body)?,
                Token::Name(name) if self.ahead(1) == Token::Mark(b':') => {
                    let line = self.line();
                    self.at += 2;
                    if self.peek() == Token::Dot("branchtargets") {
                        self.branch_targets(name, line, &mut body)?;
                    } else {
                        let at = function.body.len() as u32;
                        body.define_label(name, Target::Instruction(at), line)?;
                    }
                }
                Token::Name(_) | Token::Mark(b'@') => self.instruction(function, &mut body)?,
                Token::End => {
                    return self.error(format!("the body of `{}` does not end", function.name));
                }
                _ => return self.unexpected("a statement"),
            }
        }
        body.patch(&mut function.body)
    }

    fn directive(
        &mut self,
        word: &str,
        function: &mut Function,
        body: &mut Body<'a>,
    ) -> Result<()> {
        match word {
            "reg" => self.register_list(function, body, true),
            "loc" => {
                body.location = self.location()?;
                Ok(())
            }
            "file" => self.file(),
            "section" => self.section(),
            "pragma" => {
                if let Some(mask) = self.pragma()? {
                    body.used_bytes = mask;
                }
                Ok(())
            }
            "callprototype" | "calltargets" | "alias" => self.skip_statement(),
            "extern" | "visible" | "weak" => {
                self.next();
                match self.peek() {
                    Token::Dot("shared" | "global" | "const") => {
                        self.body_variables(function, body, word == "extern")
                    }
                    _ => self.unexpected("a variable"),
                }
            }
            "shared" | "local" | "global" | "const" | "param" => {
                self.body_variables(function, body, false)
            }
            _ => self.error(format!("the directive `.{word}` is unknown here")),
        }
    }

    /// Variables of a body. Those whose name is taken get another one, which no PTX can spell.
    fn body_variables(
        &mut self,
        function: &mut Function,
        body: &mut Body<'a>,
        external: bool,
    ) -> Result<()> {
        for mut variable in self.variables(external)? {
            let written = variable.name.clone();
            let lasting = matches!(variable.space, Space::Global | Space::Constant);
            let mut taken = self.symbols.contains_key(&written) || body.taken.contains(&written);
            if taken {
                variable.name = format!("{written}#{}", variable.line).into();
                taken = self.symbols.contains_key(&variable.name)
                    || body.taken.contains(&variable.name);
            }
            if taken {
                return error_at(variable.line, format!("`{written}` is declared twice"));
            }
            let binding = Binding::Variable(variable.name.clone());
            body.declare(written, binding, variable.line)?;
            if lasting {
                self.define(variable)?;
            } else {
                body.taken.insert(variable.name.clone());
                function.variables.push(variable);
            }
        }
        Ok(())
    }

    /// `table: .branchtargets a, b;` (PTX ISA §11.2.3).
    fn branch_targets(&mut self, name: &'a str, line: u32, body: &mut Body<'a>) -> Result<()> {
        self.next();
        let mut entries = Vec::new();
        loop {
            let line = self.line();
            let label = self.name("a label")?;
            if let Operand::Label(index) = body.use_label(label, line, None) {
                entries.push(index);
            }
            if !self.eat(b',') {
                break;
            }
        }
        self.expect(b';')?;
        body.define_label(name, Target::Table(entries.into()), line)
    }

    fn instruction(&mut self, function: &mut Function, body: &mut Body<'a>) -> Result<()> {
        let line = self.line();
        let guard = match self.eat(b'@') {
            true => {
                let negated = self.eat(b'!');
                let predicate = self.predicate(body)?;
                Some(Guard { predicate, negated })
            }
            false => None,
        };
        let name = self.name("an instruction")?;
        if name.starts_with(['%', '$', '_']) {
            return error_at(line, format!("`{name}` is no instruction"));
        }
        let mut opcode = vec![self.word(name)];
        while let Token::Dot(part) = self.peek() {
            self.next();
            opcode.push(self.word(part));
        }
        let uses = body.uses.len();
        let mut operands = Vec::new();
        if !self.eat(b';') {
            loop {
                let operand = match self.peek() {
                    Token::Mark(b'(') if name == "call" => self.arguments(body)?,
                    _ => self.operand(body)?,
                };
                operands.push(operand);
                if self.eat(b';') {
                    break;
                }
                if !self.eat(b',') {
                    return self.unexpected("`,` or `;`");
                }
            }
        }
        if body.uses.len() > uses {
            body.to_patch.push(function.body.len());
        }
        function.body.push(Instruction {
            guard,
            opcode,
            operands,
            line,
            location: body.location,
            used_bytes: std::mem::replace(&mut body.used_bytes, u32::MAX),
        });
        Ok(())
    }

    fn predicate(&mut self, body: &Body<'a>) -> Result<Reg> {
        let line = self.line();
        let name = self.name("a predicate")?;
        match body.lookup(name) {
            Some(Binding::Register(reg)) if reg.class == Class::Predicate => Ok(*reg),
            Some(_) => error_at(line, format!("`{name}` is no predicate")),
            None => error_at(line, format!("unknown register `{name}`")),
        }
    }

    /// The parenthesized lists of `call`.
    fn arguments(&mut self, body: &mut Body<'a>) -> Result<Operand> {
        self.expect(b'(')?;
        self.operands_until(b')', body).map(Operand::Vector)
    }

    /// Operands up to that mark, which is taken.
    fn operands_until(&mut self, mark: u8, body: &mut Body<'a>) -> Result<Vec<Operand>> {
        let mut operands = Vec::new();
        if self.eat(mark) {
            return Ok(operands);
        }
        loop {
            operands.push(self.operand(body)?);
            if self.eat(mark) {
                return Ok(operands);
            }
            if !self.eat(b',') {
                return self.unexpected(&format!("`,` or `{}`", char::from(mark)));
            }
        }
    }

    fn operand(&mut self, body: &mut Body<'a>) -> Result<Operand> {
        self.enter()?;
        let first = self.primary(body)?;
        let paired = matches!(
            first,
            Operand::Register(_) | Operand::Sink | Operand::Vector(_)
        );
        let operand = match paired && self.eat(b'|') {
            true => Operand::Pair(Box::new((first, self.primary(body)?))),
            false => first,
        };
        self.leave();
        Ok(operand)
    }

    fn primary(&mut self, body: &mut Body<'a>) -> Result<Operand> {
        if self.constant_begins() {
            return self.constant().map(|constant| constant.operand());
        }
        match self.peek() {
            Token::Mark(b'{') => {
                self.next();
                self.operands_until(b'}', body).map(Operand::Vector)
            }
            Token::Mark(b'[') => self.address(body),
            Token::Mark(b'!') => {
                self.next();
                self.predicate(body).map(Operand::NotRegister)
            }
            Token::Name("_") => {
                self.next();
                Ok(Operand::Sink)
            }
            Token::Name(name) => self.named(name, body),
            _ => self.unexpected("an operand"),
        }
    }

    /// A register, variable, special register, symbol or label.
    fn named(&mut self, name: &'a str, body: &mut Body<'a>) -> Result<Operand> {
        let line = self.line();
        self.next();
        match body.lookup(name) {
            Some(Binding::Register(reg)) => return Ok(Operand::Register(*reg)),
            Some(Binding::Vector(registers)) => {
                let registers = registers.clone();
                let Token::Dot(part) = self.peek() else {
                    let parts = registers.iter().map(|reg| Operand::Register(*reg));
                    return Ok(Operand::Vector(parts.collect()));
                };
                self.next();
                return match lane(part).and_then(|lane| registers.get(lane)) {
                    Some(reg) => Ok(Operand::Register(*reg)),
                    None => error_at(line, format!("`{name}` has no `.{part}`")),
                };
            }
            Some(Binding::Variable(symbol)) => {
                let symbol = symbol.clone();
                return Ok(Operand::Symbol(symbol, self.offset()?));
            }
            None => {}
        }
        if name.starts_with('%') {
            return match special(name) {
                Some(true) => match self.peek() {
                    Token::Dot(part) if lane(part).is_some() => {
                        self.next();
                        Ok(Operand::Special(format!("{name}.{part}").into()))
                    }
                    _ => Ok(Operand::Special(self.word(name))),
                },
                Some(false) => Ok(Operand::Special(self.word(name))),
                None => error_at(line, format!("unknown register `{name}`")),
            };
        }
        let symbol = match self.symbols.get_key_value(name) {
            Some((key, Global::Variable(_))) => {
                let key = key.clone();
                return Ok(Operand::Symbol(key, self.offset()?));
            }
            Some((key, Global::Function)) => Some(key.clone()),
            None => None,
        };
        Ok(body.use_label(name, line, symbol))
    }

    /// `[base+offset, more]` (PTX ISA §6.4.1).
    fn address(&mut self, body: &mut Body<'a>) -> Result<Operand> {
        self.expect(b'[')?;
        if matches!(self.peek(), Token::Mark(b'[' | b'{')) {
            return self.unexpected("a register, a variable or an integer");
        }
        let (base, offset) = match self.primary(body)? {
            Operand::Symbol(name, offset) => (Operand::Symbol(name, 0), offset),
            base @ Operand::Register(_) => (base, self.offset()?),
            base @ Operand::Integer(_) => (base, 0),
            _ => return self.error("an address is a register, a variable or an integer"),
        };
        let more = match self.eat(b',') {
            true => self.operands_until(b']', body)?,
            false => {
                self.expect(b']')?;
                Vec::new()
            }
        };
        Ok(Operand::Address(Box::new(Address { base, offset, more })))
    }
}

/// The element that `.x` names.
fn lane(part: &str) -> Option<usize> {
    match part {
        "x" | "r" => Some(0),
        "y" | "g" => Some(1),
        "z" | "b" => Some(2),
        "w" | "a" => Some(3),
        _ => None,
    }
}

/// Whether a special register has elements; none for other names (PTX ISA §10).
fn special(name: &str) -> Option<bool> {
    let name = name.strip_prefix('%')?;
    Some(match name {
        "tid" | "ntid" | "ctaid" | "nctaid" | "clusterid" | "nclusterid" | "cluster_ctaid"
        | "cluster_nctaid" => true,
        "laneid"
        | "warpid"
        | "nwarpid"
        | "smid"
        | "nsmid"
        | "gridid"
        | "is_explicit_cluster"
        | "cluster_ctarank"
        | "cluster_nctarank"
        | "lanemask_eq"
        | "lanemask_le"
        | "lanemask_lt"
        | "lanemask_ge"
        | "lanemask_gt"
        | "clock"
        | "clock_hi"
        | "clock64"
        | "globaltimer"
        | "globaltimer_lo"
        | "globaltimer_hi"
        | "total_smem_size"
        | "aggr_smem_size"
        | "dynamic_smem_size"
        | "current_graph_exec"
        | "reserved_smem_offset_begin"
        | "reserved_smem_offset_end"
        | "reserved_smem_offset_cap"
        | "reserved_smem_offset_0"
        | "reserved_smem_offset_1" => false,
        _ => {
            let numbered = |prefix: &str, limit: u32| {
                let digits = name.strip_prefix(prefix)?;
                let digits = digits.strip_suffix("_64").unwrap_or(digits);
                digits.parse::<u32>().ok().filter(|n| *n < limit)
            };
            numbered("pm", 8).or_else(|| numbered("envreg", 32))?;
            false
        }
    })
}
