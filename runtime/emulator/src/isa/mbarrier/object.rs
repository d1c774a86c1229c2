//! An mbarrier object as numbers (PTX ISA §9.7.13.15.1 to .5: contents, limits, phases).
//!
//! Invariants: the pending count is at most [`COUNT_LIMIT`], the transaction count at most that in magnitude.

/// The most arrivals and transaction bytes: 2^20 − 1.
pub(crate) const COUNT_LIMIT: u32 = (1 << 20) - 1;

/// What breaks the rules of an object, in words that follow "the mbarrier".
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Broken(pub String);

/// What threads see of an object in the 64 bits that arriving gives: its phase, and the arrivals that were pending.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct State {
    pub phase: u32,
    pub pending: u32,
}

const PHASE_BITS: u32 = 32;

impl State {
    /// The opaque value; its mark tells it from other numbers.
    pub(crate) fn to_bits(self) -> u64 {
        0xa << 60 | u64::from(self.pending) << PHASE_BITS | u64::from(self.phase)
    }

    pub(crate) fn from_bits(bits: u64) -> Option<State> {
        let pending = (bits >> PHASE_BITS) as u32 & 0x0fff_ffff;
        (bits >> 60 == 0xa && pending <= COUNT_LIMIT).then_some(State {
            phase: bits as u32,
            pending,
        })
    }
}

/// The object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Object {
    /// Phases that are over; its parity is what `.parity` waits compare.
    pub phase: u32,
    /// Arrivals that the next phase will expect.
    pub expected: u32,
    /// Arrivals that this phase still waits for.
    pub pending: u32,
    /// Bytes that this phase still waits for; negative where they came before they were announced.
    pub transactions: i32,
}

impl Object {
    /// `mbarrier.init` (§9.7.13.15.9).
    pub(crate) fn new(count: u32) -> Result<Object, Broken> {
        if !(1..=COUNT_LIMIT).contains(&count) {
            return Err(Broken(format!(
                "cannot expect {count} arrivals: 1 to {COUNT_LIMIT} can be"
            )));
        }
        Ok(Object {
            phase: 0,
            expected: count,
            pending: count,
            transactions: 0,
        })
    }

    pub(crate) fn state(&self) -> State {
        State {
            phase: self.phase,
            pending: self.pending,
        }
    }

    /// Whether that ended the phase (§9.7.13.15.5).
    fn ends(&mut self) -> bool {
        if self.pending != 0 || self.transactions != 0 {
            return false;
        }
        self.phase = self.phase.wrapping_add(1);
        self.pending = self.expected;
        true
    }

    fn transact(&mut self, bytes: i64) -> Result<(), Broken> {
        let sum = i64::from(self.transactions) + bytes;
        if sum.unsigned_abs() > u64::from(COUNT_LIMIT) {
            return Err(Broken(format!(
                "would wait for {sum} bytes: it can count {COUNT_LIMIT}"
            )));
        }
        self.transactions = sum as i32;
        Ok(())
    }

    /// `expect-tx` (§9.7.13.15.5.1): more bytes to wait for; whether the phase is over, since these and all arrivals came before.
    pub(crate) fn expect(&mut self, bytes: u32) -> Result<bool, Broken> {
        let waiting = self.transactions != 0;
        self.transact(i64::from(bytes))?;
        Ok(waiting && self.ends())
    }

    /// `complete-tx` (§9.7.13.15.5.2): bytes that came; whether the phase is over.
    pub(crate) fn complete(&mut self, bytes: u32) -> Result<bool, Broken> {
        self.transact(-i64::from(bytes))?;
        Ok(self.ends())
    }

    /// `arrive-on` (§9.7.13.15.12): the state before, and whether the phase is over.
    pub(crate) fn arrive(&mut self, count: u32) -> Result<(State, bool), Broken> {
        let before = self.state();
        if !(1..=COUNT_LIMIT).contains(&count) {
            return Err(Broken(format!(
                "takes 1 to {COUNT_LIMIT} arrivals, not {count}"
            )));
        }
        if count > self.pending {
            return Err(Broken(format!(
                "got {count} arrivals, but phase {} waits for {} of its {} only{}",
                self.phase,
                self.pending,
                self.expected,
                match self.transactions {
                    0 => String::new(),
                    bytes => format!(" (and for {bytes} bytes)"),
                }
            )));
        }
        self.pending -= count;
        Ok((before, self.ends()))
    }

    /// `mbarrier.arrive_drop` (§9.7.13.15.14): the same, and that many fewer are expected from the next phase on.
    pub(crate) fn drop(&mut self, count: u32) -> Result<(State, bool), Broken> {
        if count > self.expected {
            return Err(Broken(format!(
                "expects {} arrivals a phase, of which {count} cannot be dropped",
                self.expected
            )));
        }
        let mut next = *self;
        next.expected -= count;
        let arrived = next.arrive(count)?;
        *self = next;
        Ok(arrived)
    }

    /// Whether the phase of a state is over (`mbarrier.test_wait`, §9.7.13.15.16); the state must be of this phase or the one before.
    pub(crate) fn is_over(&self, state: State) -> Result<bool, Broken> {
        match self.phase.wrapping_sub(state.phase) {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(Broken(format!(
                "is in phase {}: a state of phase {} cannot be tested any more",
                self.phase, state.phase
            ))),
        }
    }

    /// Whether the latest phase of that parity is over (`.parity`): the phase before this one has the other parity than this.
    pub(crate) fn parity_is_over(&self, odd: bool) -> bool {
        (self.phase % 2 == 1) != odd
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(count: u32) -> Object {
        Object::new(count).expect("a legal count")
    }

    #[test]
    fn a_phase_ends_with_the_last_arrival() {
        let mut b = object(3);
        assert!(!b.parity_is_over(false));
        // The phase before the first counts as over, and has parity 1.
        assert!(b.parity_is_over(true));
        let (first, over) = b.arrive(1).expect("first");
        assert_eq!((first.phase, first.pending, over), (0, 3, false));
        let (second, over) = b.arrive(2).expect("the others");
        assert_eq!((second.pending, over), (2, true));
        assert_eq!(b.is_over(first), Ok(true));
        assert!(b.parity_is_over(false) && !b.parity_is_over(true));
        assert_eq!(b.is_over(b.state()), Ok(false));
        assert_eq!(
            b.state(),
            State {
                phase: 1,
                pending: 3
            }
        );
        b.arrive(3).expect("phase 1");
        assert!(b.is_over(first).is_err());
        assert!(b.arrive(4).is_err() && b.arrive(0).is_err());
    }

    #[test]
    fn bytes_keep_a_phase_open_and_may_come_early() {
        let mut b = object(1);
        b.expect(64).expect("room");
        assert!(!b.arrive(1).expect("one").1);
        assert!(b.arrive(1).is_err(), "nothing is pending but bytes");
        assert!(!b.complete(48).expect("some"));
        assert!(b.complete(16).expect("the rest"));
        // In the next phase the bytes come first.
        assert!(!b.complete(32).expect("early"));
        b.expect(32).expect("announced");
        assert!(b.arrive(1).expect("one").1);
        assert_eq!(b.phase, 2);
        // Or even before all arrivals.
        b.complete(32).expect("early");
        assert!(!b.arrive(1).expect("one").1);
        assert_eq!(b.expect(32), Ok(true));
    }

    #[test]
    fn dropped_arrivals_are_not_expected_again() {
        let mut b = object(4);
        b.arrive(2).expect("two");
        let (state, over) = b.drop(2).expect("two leave");
        assert_eq!((state.pending, over), (2, true));
        assert_eq!((b.expected, b.pending), (2, 2));
        assert!(b.drop(3).is_err());
        assert_eq!(b.expected, 2, "a refused drop changes nothing");
        assert!(b.arrive(2).expect("two").1);
    }

    #[test]
    fn limits() {
        assert!(Object::new(0).is_err() && Object::new(1 << 20).is_err());
        let mut b = object(COUNT_LIMIT);
        b.expect(COUNT_LIMIT).expect("the most");
        assert!(b.expect(1).is_err());
        assert!(b.arrive(COUNT_LIMIT).is_ok());
        let mut early = object(1);
        early.complete(COUNT_LIMIT).expect("the most");
        assert!(early.complete(1).is_err());
        assert!(early.expect(u32::MAX).is_err());
    }

    #[test]
    fn states_are_told_from_other_numbers() {
        for state in [
            State {
                phase: 0,
                pending: 1,
            },
            State {
                phase: u32::MAX,
                pending: COUNT_LIMIT,
            },
        ] {
            assert_eq!(State::from_bits(state.to_bits()), Some(state));
        }
        for bits in [0, 1, u64::MAX, 0xa << 60 | 1 << 52] {
            assert_eq!(State::from_bits(bits), None, "{bits:#x}");
        }
        // Phases wrap around.
        let old = Object {
            phase: 0,
            ..object(1)
        };
        assert_eq!(
            old.is_over(State {
                phase: u32::MAX,
                pending: 1
            }),
            Ok(true)
        );
    }
}
