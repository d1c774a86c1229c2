//! Asynchronous copies of single words (`cp.async`, PTX ISA §9.7.9.25.3) and their groups.

use std::collections::VecDeque;

use super::operands::{Addr, Decoder, Refused, Src32, SrcP, Type};
use crate::{
    check::{Agent, Proxy, Token},
    fault::{Fault, FaultKind},
    machine::{Flow, Step, lanes_of},
    ptx::{Class, Operand, Space},
};

/// Copies of a thread that are waited for together. Empty where order is not checked.
#[derive(Clone, Debug, Default)]
struct Group {
    /// One operation stands for all of them.
    running: Option<Agent>,
    /// Those that an mbarrier was told of.
    done: Option<Token>,
}

/// The groups of a thread's asynchronous copies (PTX ISA §9.7.9.25.1.1).
#[derive(Clone, Debug, Default)]
pub(crate) struct Groups {
    open: Group,
    committed: VecDeque<Group>,
}

/// How many of a copy's bytes are read; the rest becomes zero.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Limit {
    All,
    /// `src-size`.
    Bytes(Src32),
    /// `ignore-src`: none where it holds.
    Ignore(SrcP),
}

#[derive(Clone, Debug)]
pub(crate) enum Op {
    /// `cp.async.{ca,cg}` (§9.7.9.25.3.1).
    Copy {
        to: Addr,
        from: Addr,
        bytes: u32,
        limit: Limit,
    },
    /// `cp.async.commit_group` (§9.7.9.25.3.2).
    Commit,
    /// `cp.async.wait_group` (§9.7.9.25.3.3): all but so many of the latest groups; `wait_all` waits for what is in none, too.
    Wait { groups: Option<u32> },
    /// `cp.async.mbarrier.arrive` (§9.7.13.15.18).
    Arrive {
        mbarrier: Addr,
        space: Space,
        counted: bool,
    },
}

/// `cp.async.…` that is not bulk.
pub(super) fn decode(d: &mut Decoder<'_>) -> Result<Op, Refused> {
    if d.target.sm < 80 {
        return Err("asynchronous copies need sm_80 or later".into());
    }
    let parts: Vec<&str> = d.parts().iter().map(|p| &**p).collect();
    match parts[2..] {
        ["commit_group"] => {
            d.expect_count(0..=0)?;
            Ok(Op::Commit)
        }
        ["wait_all"] => {
            d.expect_count(0..=0)?;
            Ok(Op::Wait { groups: None })
        }
        ["wait_group"] => {
            d.expect_count(1..=1)?;
            let groups = d.constant(d.operand(0)?)?;
            Ok(Op::Wait {
                groups: Some(groups.min(u64::from(u32::MAX)) as u32),
            })
        }
        ["mbarrier", "arrive", ref rest @ ..] => {
            let (uncounted, space) = match rest {
                ["noinc", space @ ..] => (true, space),
                space => (false, space),
            };
            let space = match space {
                ["b64"] => Space::Generic,
                ["shared" | "shared::cta", "b64"] => Space::Shared,
                _ => return Err("".into()),
            };
            d.expect_count(1..=1)?;
            let mbarrier = d.address(d.operand(0)?)?.0;
            Ok(Op::Arrive {
                mbarrier,
                space,
                counted: !uncounted,
            })
        }
        [
            cache @ ("ca" | "cg"),
            "shared" | "shared::cta",
            "global",
            ref hints @ ..,
        ] => {
            let mut policy = false;
            for hint in hints {
                match *hint {
                    "L2::cache_hint" => policy = true,
                    "L2::64B" | "L2::128B" | "L2::256B" => {}
                    other => return Err(Refused(format!("`.{other}` is not known here"))),
                }
            }
            let to = d.address(d.operand(0)?)?.0;
            let from = d.address(d.operand(1)?)?.0;
            let bytes = d.constant(d.operand(2)?)?;
            let legal: &[u64] = if cache == "cg" { &[16] } else { &[4, 8, 16] };
            if !legal.contains(&bytes) {
                return Err(Refused(format!("`.{cache}` does not copy {bytes} bytes")));
            }
            let last = d.count().saturating_sub(usize::from(policy));
            d.expect_count(3 + usize::from(policy)..=4 + usize::from(policy))?;
            let limit = match last {
                3 => Limit::All,
                _ => match d.operand(3)? {
                    operand @ Operand::Register(reg) if reg.class == Class::Predicate => {
                        Limit::Ignore(d.src_predicate(operand)?)
                    }
                    operand @ Operand::NotRegister(_) => Limit::Ignore(d.src_predicate(operand)?),
                    operand => Limit::Bytes(d.src32(operand, Type::U32)?),
                },
            };
            if policy {
                let operand = d.operand(last)?;
                d.src64(operand, Type::B64)?;
            }
            Ok(Op::Copy {
                to,
                from,
                bytes: bytes as u32,
                limit,
            })
        }
        _ => Err("".into()),
    }
}

impl Op {
    pub(super) fn execute(&self, step: &mut Step<'_>) -> Result<Flow, Fault> {
        match self {
            Op::Copy {
                to,
                from,
                bytes,
                limit,
            } => copy(step, *to, *from, *bytes, *limit)?,
            // Without checks, all groups are empty.
            Op::Commit if step.checks() => {
                for lane in lanes_of(step.lanes) {
                    let groups = step.copy_groups(lane);
                    let open = std::mem::take(&mut groups.open);
                    groups.committed.push_back(open);
                }
            }
            Op::Wait { groups: keep } if step.checks() => {
                for lane in lanes_of(step.lanes) {
                    let groups = step.copy_groups(lane);
                    let mut done: Vec<Group> = Vec::new();
                    let keep = keep.map_or(0, |k| k as usize);
                    while groups.committed.len() > keep {
                        done.extend(groups.committed.pop_front());
                    }
                    if let Op::Wait { groups: None } = self {
                        done.push(std::mem::take(&mut groups.open));
                    }
                    for group in done {
                        if let Some(agent) = group.running {
                            step.agent_waited(agent, lane);
                        }
                        if let Some(token) = group.done {
                            step.acquire(&token, lane);
                        }
                    }
                }
            }
            Op::Commit | Op::Wait { .. } => {}
            Op::Arrive {
                mbarrier,
                space,
                counted,
            } => {
                let addresses = step.addresses(*mbarrier);
                for lane in lanes_of(step.lanes) {
                    let spot = step.mbarrier_spot(*space, addresses[lane], lane)?;
                    step.check_mbarrier(spot, lane)?;
                    let token = finish(step, lane);
                    let counted = *counted;
                    step.with_mbarrier(spot, lane, |m| {
                        m.gather_asynchronous(&token);
                        // The copies are over, so the arrival that they trigger is now; where it is counted, it comes on top of those
                        // that are pending, and changes nothing.
                        if !counted {
                            m.arrive(1, false)?;
                        }
                        Ok(())
                    })?;
                }
            }
        }
        Ok(Flow::Next)
    }
}

/// Ends all copies of a thread for an mbarrier.
fn finish(step: &mut Step<'_>, lane: usize) -> Token {
    let mut all = Token::default();
    if !step.checks() {
        return all;
    }
    let mut groups = std::mem::take(step.copy_groups(lane));
    for group in groups.committed.iter_mut().chain([&mut groups.open]) {
        if let Some(agent) = group.running.take() {
            let token = step.agent_done(agent);
            match &mut group.done {
                Some(done) => done.merge(&token),
                None => group.done = Some(token),
            }
        }
        if let Some(token) = &group.done {
            all.merge(token);
        }
    }
    *step.copy_groups(lane) = groups;
    all
}

fn copy(step: &mut Step<'_>, to: Addr, from: Addr, bytes: u32, limit: Limit) -> Result<(), Fault> {
    let (targets, sources) = (step.addresses(to), step.addresses(from));
    let ignored = match limit {
        Limit::Ignore(predicate) => step.predicate(predicate),
        _ => 0,
    };
    for lane in lanes_of(step.lanes) {
        let count = match limit {
            Limit::All => bytes,
            Limit::Ignore(_) => {
                if ignored >> lane & 1 != 0 {
                    0
                } else {
                    bytes
                }
            }
            Limit::Bytes(count) => step.word(count)[lane],
        };
        if count > bytes {
            let message = format!("{count} bytes of a source for a copy of {bytes} bytes");
            return Err(step.fault(FaultKind::Operand, message, 1 << lane));
        }
        let width = u64::from(bytes);
        let to = step.resolve(Space::Shared, targets[lane], width, width, lane)?;
        let mut buffer = [0; 16];
        let agent = copy_agent(step, lane);
        if count > 0 {
            let from = step.resolve(Space::Global, sources[lane], u64::from(count), width, lane)?;
            step.agent_load(agent, from, &mut buffer[..count as usize], lane)?;
        }
        step.agent_store(agent, to, &buffer[..bytes as usize], lane)?;
    }
    Ok(())
}

/// The operation of the thread's open group.
fn copy_agent(step: &mut Step<'_>, lane: usize) -> Option<Agent> {
    if !step.checks() {
        return None;
    }
    match step.copy_groups(lane).open.running {
        Some(agent) => {
            step.agent_extend(agent, lane);
            Some(agent)
        }
        None => {
            let agent = step.agent_start(lane, Proxy::Generic);
            step.copy_groups(lane).open.running = agent;
            agent
        }
    }
}
