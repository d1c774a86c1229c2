//! Channels, roles, and what stands in them.

use super::{Said, Writer, access::cached, bare, tuple};
use crate::ir::{
    Op,
    tile::{ChannelId, OpKind, PutSource, RoleHead, RoleOp},
};

impl Writer<'_> {
    /// The declarations; arrays are whole again.
    pub(super) fn channels(&mut self) {
        let channels = &self.kernel.channels;
        let base = |name: &str| name.split('[').next().unwrap_or(name).to_owned();
        let mut lines = Vec::new();
        for (id, channel) in channels {
            let array = channel.name.contains('[');
            if array && !channel.name.ends_with("[0]") {
                continue;
            }
            let name = base(&channel.name);
            // Those that follow it are the rest of its array.
            let rest = channels.iter().skip_while(|(other, _)| *other != id);
            let count = rest.take_while(|(_, c)| array && base(&c.name) == name);
            let size = match array {
                true => format!("[{}]", count.count()),
                false => String::new(),
            };
            let tiles: Vec<String> = channel
                .tiles
                .iter()
                .map(|t| format!("tile<{}>{:?}", t.elem, t.shape))
                .collect();
            let mut text = format!(
                "channel {name}{size}: {} depth {}",
                tuple(&tiles),
                channel.depth
            );
            if let Some(over) = channel.over {
                let below = &channels[over].name;
                text.push_str(&format!(" over {}", base(below)));
            }
            if let Some(axis) = channel.across {
                let axis = &self.kernel.header.axes[axis as usize].name;
                text.push_str(&format!(" across {axis}"));
            }
            lines.push(format!("{text};"));
        }
        for line in lines {
            self.line(&line);
        }
    }

    fn channel(&self, channel: ChannelId) -> &str {
        &self.kernel.channels[channel].name
    }

    pub(super) fn role_op(&mut self, op: &Op<OpKind>, kind: &RoleOp) -> Said<()> {
        let span = op.span;
        match kind {
            RoleOp::Roles(heads) => self.roles(op, heads),
            RoleOp::Put {
                channel,
                sources,
                part,
                within,
            } => {
                let mut at = 0;
                let mut values = Vec::new();
                for source in sources {
                    let (text, used) = match source {
                        PutSource::Value => {
                            let value = self.name(op.operands[at], span)?;
                            (bare(&value).to_owned(), 1)
                        }
                        PutSource::Slice { indices, cache } => {
                            let (slice, used) = self.slice(&op.operands[at..], indices, span)?;
                            let cached = cached(*cache);
                            match cached.is_empty() {
                                true => (slice, used),
                                false => (format!("load({slice}{cached})"), used),
                            }
                        }
                    };
                    values.push(text);
                    at += used;
                }
                let mut text = format!("put {}", self.channel(*channel));
                let mut rest = &op.operands[at..];
                if *within && let Some((held, before)) = rest.split_last() {
                    text.push_str(&format!(" in {}", self.name(*held, span)?));
                    rest = before;
                }
                if *part {
                    text.push_str(&format!(" at [{}]", self.arguments(rest, span)?));
                }
                self.line(&format!("{text} {{ {} }}", values.join(", ")));
                Ok(())
            }
            RoleOp::Get { channel } => {
                let pattern = self.pattern(&op.results);
                let text = format!("let {pattern} = get {};", self.channel(*channel));
                self.line(&text);
                Ok(())
            }
            RoleOp::Release { channel, lag } => {
                let text = format!("release {}{};", self.channel(*channel), lagging(*lag));
                self.line(&text);
                Ok(())
            }
            RoleOp::Mma => {
                let arguments = self.arguments(&op.operands, span)?;
                self.bind(op.results[0], &format!("mma({arguments})"));
                Ok(())
            }
            RoleOp::Await { lag } => {
                let value = self.name(op.operands[0], span)?;
                self.bind(op.results[0], &format!("await {value}{}", lagging(*lag)));
                Ok(())
            }
            RoleOp::Pingpong => {
                let cond = self.name(op.operands[0], span)?;
                let names: Vec<String> = op.results.iter().map(|_| self.fresh()).collect();
                let start = match names.is_empty() {
                    true => String::new(),
                    false => format!("let {} = ", tuple(&names)),
                };
                self.line(&format!("{start}pingpong if {} {{", bare(&cond)));
                self.arm(op.regions[0], span)?;
                self.line(if names.is_empty() { "}" } else { "};" });
                for (&result, name) in op.results.iter().zip(names) {
                    self.call(result, name);
                }
                Ok(())
            }
            RoleOp::Require(feature) => {
                self.line(&format!("require({});", feature.name()));
                Ok(())
            }
        }
    }

    fn roles(&mut self, op: &Op<OpKind>, heads: &[RoleHead]) -> Said<()> {
        self.line("roles {");
        self.indent += 1;
        let mut at = 0;
        while let Some(head) = heads.get(at) {
            let bodies = &op.regions[at..at + head.replicas as usize];
            let (size, unit) = match head.groups {
                true => (head.warps / 4, "warpgroup"),
                false => (head.warps, "warp"),
            };
            let many = if size == 1 { "" } else { "s" };
            let mut text = format!("{}: {size} {unit}{many}", head.name);
            if let Some(axis) = head.split {
                text.push_str(&format!(", split {axis}"));
            }
            let replica = self.fresh();
            if head.replicas > 1 {
                text.push_str(&format!(", replicate {replica} in {}", head.replicas));
            }
            if let Some(registers) = head.registers {
                text.push_str(&format!(", regs {registers}"));
            }
            self.line(&format!("{text} {{"));
            self.indent += 1;
            match bodies {
                [one] => self.whole_region(*one)?,
                many => self.replicas(many, &replica)?,
            }
            self.indent -= 1;
            self.line("}");
            at += bodies.len();
        }
        self.indent -= 1;
        self.line("}");
        Ok(())
    }

    /// The bodies of replicas as one: where they differ, in numbers only, by the replica's number, else each by itself.
    fn replicas(&mut self, bodies: &[crate::ir::RegionId], replica: &str) -> Said<()> {
        let first = self.next;
        let mut last = first;
        let mut texts = Vec::new();
        for &body in bodies {
            self.next = first;
            let before = std::mem::take(&mut self.text);
            let walked = self.whole_region(body);
            texts.push(std::mem::replace(&mut self.text, before));
            walked?;
            last = last.max(self.next);
        }
        self.next = last;
        if let Some(one) = merged(&texts, replica) {
            self.text.push_str(&one);
            return Ok(());
        }
        for (i, text) in texts.iter().enumerate() {
            match i {
                0 => self.line(&format!("if const {replica} == 0 {{")),
                i if i + 1 < texts.len() => {
                    self.line(&format!("}} else if const {replica} == {i} {{"));
                }
                _ => self.line("} else {"),
            }
            for line in text.lines() {
                self.text.push_str("    ");
                self.text.push_str(line);
                self.text.push('\n');
            }
        }
        self.line("}");
        Ok(())
    }
}

/// ` lag 1`, or nothing.
fn lagging(lag: Option<u32>) -> String {
    lag.map_or(String::new(), |lag| format!(" lag {lag}"))
}

/// One text for all replicas, if theirs differ only in integers that grow by equal steps.
fn merged(texts: &[String], replica: &str) -> Option<String> {
    let all: Vec<Vec<&str>> = texts.iter().map(|t| pieces(t)).collect();
    let (first, rest) = all.split_first()?;
    if rest.iter().any(|other| other.len() != first.len()) {
        return None;
    }
    let mut out = String::new();
    for (i, &piece) in first.iter().enumerate() {
        if rest.iter().all(|other| other[i] == piece) {
            out.push_str(piece);
            continue;
        }
        let numbers: Option<Vec<i64>> = all.iter().map(|t| t[i].parse().ok()).collect();
        let numbers = numbers?;
        let (start, step) = (numbers[0], numbers[1] - numbers[0]);
        let mut steps = numbers.windows(2).map(|w| w[1] - w[0]);
        // A number that has a point before or behind it is a piece of a float or of a range.
        let after = first.get(i + 1).copied().unwrap_or_default();
        let alone = (!out.ends_with('.') || out.ends_with(".."))
            && (!after.starts_with('.') || after.starts_with(".."));
        if !alone || !steps.all(|s| s == step) {
            return None;
        }
        let term = match step.abs() {
            1 => replica.to_owned(),
            n => format!("{n} * {replica}"),
        };
        let bare = match (start, step > 0) {
            (0, true) => term,
            (start, true) => format!("{start} + {term}"),
            (start, false) => format!("{start} - {term}"),
        };
        let index = out.ends_with('[') && after.starts_with(']');
        out.push_str(&match index {
            true => bare,
            false => format!("({bare})"),
        });
    }
    Some(out)
}

/// Integers that are words of their own, and what is between them.
fn pieces(text: &str) -> Vec<&str> {
    let bytes = text.as_bytes();
    let word = |b: u8| b.is_ascii_alphanumeric() || b == b'_';
    let (mut out, mut from, mut at) = (Vec::new(), 0, 0);
    while at < bytes.len() {
        if !word(bytes[at]) {
            at += 1;
            continue;
        }
        let end = (at..bytes.len())
            .find(|&i| !word(bytes[i]))
            .unwrap_or(bytes.len());
        if bytes[at..end].iter().all(u8::is_ascii_digit) {
            out.extend([&text[from..at], &text[at..end]]);
            from = end;
        }
        at = end;
    }
    out.push(&text[from..]);
    out
}
