//! The accesses to each byte of a stretch of memory, as far as later ones may race with them.
//!
//! Per byte: the last weak write, and a set of the weak reads and strong accesses since. An access that a later one of the set subsumes
//! may be left out. Bytes of an aligned word that were always accessed together share one cell; a word is split into its bytes at the
//! first access of a part, and is one again when all of it is written.
//!
//! Invariants: without a limit, an access gives a conflict if and only if some earlier access of a byte conflicts with it (agents' numbers
//! that were reused too early aside); with one, only if.

use super::order::{Epoch, Proxy, View, lanes};

/// Kinds of accesses. Strong ones are those of PTX ISA §8.3 (volatile, relaxed, acquire, release, atomic), which do not race with each
/// other; bulk reductions are, too.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Access {
    Read,
    Write,
    StrongRead,
    /// Without a read: `st.relaxed`, `st.release`.
    StrongWrite,
    /// Both: `atom`, `red`.
    Atomic,
    /// `ld.global.nc`: nothing may write the byte during the launch.
    ReadOnly,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum ConflictKind {
    /// A write, and a write before it.
    WriteWrite,
    /// A read, and a write before it.
    WriteRead,
    /// A write, and a read before it.
    ReadWrite,
    /// A read of what nothing wrote.
    Uninitialized,
    /// An access of the async proxy, and a write of the generic proxy before it: in order, but with no proxy fence in between.
    MissingProxyFence,
    /// A write of what was read through `.nc`, or such a read of what was written.
    ReadOnly,
}

/// What is wrong with an access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Conflict {
    pub(crate) kind: ConflictKind,
    /// The first byte that it is wrong for: from the start of shared memory, or a global address.
    pub(crate) byte: u64,
    /// When and by whom the other access was made; [`Epoch::NEVER`] for uninitialised memory.
    pub(crate) other: Epoch,
    /// The instruction of the other access.
    pub(crate) place: u32,
}

/// An instruction's number, and how it accessed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Mark(u32);

const MARK_READ: u32 = 0;
const MARK_STRONG_READ: u32 = 1;
const MARK_STRONG_WRITE: u32 = 2;
const MARK_READ_ONLY: u32 = 3;
const MARK_NEAR: u32 = 1 << 28;
const MARK_PLACE: u32 = (1 << 28) - 1;

impl Mark {
    fn new(kind: u32, view: &View<'_>, place: u32) -> Mark {
        let proxy = (view.proxy == Proxy::Async) as u32;
        let near = if view.near { MARK_NEAR } else { 0 };
        Mark(kind << 30 | proxy << 29 | near | place & MARK_PLACE)
    }

    fn is_near(self) -> bool {
        self.0 & MARK_NEAR != 0
    }

    fn kind(self) -> u32 {
        self.0 >> 30
    }

    fn is_async(self) -> bool {
        self.0 >> 29 & 1 != 0
    }

    fn place(self) -> u32 {
        self.0 & MARK_PLACE
    }
}

/// Accesses of lanes of a warp, of one kind, by one instruction and at one clock; none if the mask is 0.
#[derive(Clone, Copy, Debug, Default)]
struct Entry {
    /// As of [`Epoch::of_warp`].
    warp: u64,
    mask: u32,
    mark: Mark,
}

impl Entry {
    fn epochs(self) -> impl Iterator<Item = Epoch> {
        lanes(self.mask).map(move |lane| Epoch::lane_of(self.warp, lane))
    }

    /// One of them that does not precede the view.
    #[inline]
    fn uncovered(self, view: &View<'_>) -> Option<Epoch> {
        self.epochs().find(|e| !view.covers(*e))
    }

    /// Leaves out those that precede the view.
    fn prune(&mut self, view: &View<'_>) {
        for epoch in self.epochs() {
            if view.covers(epoch) {
                self.mask &= !epoch.lane_bit();
            }
        }
    }

    /// Whether accesses of this kind may be forgotten for one of that kind which they precede: all that races with the one races with
    /// the other.
    fn subsumed_by(self, mark: Mark) -> bool {
        let kind = mark.kind();
        match self.mark.kind() {
            MARK_READ => kind == MARK_READ,
            MARK_STRONG_READ => {
                kind == MARK_READ
                    || kind != MARK_READ_ONLY && (!self.mark.is_near() || mark.is_near())
            }
            // What follows one of the async proxy in order may still want a proxy fence after one of the generic proxy.
            MARK_STRONG_WRITE => {
                kind == MARK_STRONG_WRITE
                    && (self.mark.is_async() || !mark.is_async())
                    && (!self.mark.is_near() || mark.is_near())
            }
            _ => false,
        }
    }
}

/// A byte, or the four of a word.
#[derive(Clone, Copy, Debug, Default)]
struct Cell {
    /// The last weak write.
    write: Epoch,
    write_mark: Mark,
    /// Flags and an index.
    state: u32,
    /// The first of the set.
    first: Entry,
}

/// Something was written here.
const WRITTEN: u32 = 1 << 31;
/// The cell stands for a word whose bytes differ; the index is of them.
const SPLIT: u32 = 1 << 30;
/// The set has more entries; the index is of them.
const MORE: u32 = 1 << 29;
/// Something was read through `.nc`.
const CONSTANT: u32 = 1 << 28;
/// The set has strong writes, so that reads have to look at it.
const STRONG: u32 = 1 << 27;
const INDEX: u32 = STRONG - 1;

/// Where sets lie that have more than one entry.
#[derive(Debug, Default)]
struct Sets {
    sets: Vec<Vec<Entry>>,
    free: Vec<u32>,
    /// Entries that a set may have besides the first.
    limit: usize,
}

impl Sets {
    fn take(&mut self) -> Option<u32> {
        if let Some(at) = self.free.pop() {
            return Some(at);
        }
        let at = self.sets.len() as u32;
        if at > INDEX {
            return None;
        }
        self.sets.push(Vec::new());
        Some(at)
    }

    fn give(&mut self, at: u32) {
        self.sets[at as usize].clear();
        self.free.push(at);
    }
}

/// The kind of a conflict, the other access and its instruction.
type Found = (ConflictKind, Epoch, u32);

impl Cell {
    fn is_split(&self) -> bool {
        self.state & SPLIT != 0
    }

    fn more<'a>(&self, sets: &'a Sets) -> &'a [Entry] {
        if self.state & MORE != 0 {
            &sets.sets[(self.state & INDEX) as usize]
        } else {
            &[]
        }
    }

    fn clear_set(&mut self, sets: &mut Sets) {
        if self.state & MORE != 0 {
            sets.give(self.state & INDEX);
        }
        self.state &= WRITTEN | CONSTANT;
        self.first.mask = 0;
    }

    /// The write before it that the access conflicts with.
    #[inline]
    fn after_write(
        view: &View<'_>,
        write: Epoch,
        mark: Mark,
        kind: ConflictKind,
    ) -> Result<(), Found> {
        if !view.covers(write) {
            return Err((kind, write, mark.place()));
        }
        let crosses = view.proxy == Proxy::Async && !mark.is_async();
        if crosses && !view.covers_fenced(write) {
            return Err((ConflictKind::MissingProxyFence, write, mark.place()));
        }
        Ok(())
    }

    #[inline]
    fn after_entry(
        view: &View<'_>,
        access: Access,
        entry: Entry,
        kind: ConflictKind,
    ) -> Result<(), Found> {
        let strong = matches!(
            access,
            Access::StrongRead | Access::StrongWrite | Access::Atomic
        );
        // Each must have the other in its scope (PTX ISA §8.7.1, Morally strong operations).
        let apart = entry.warp >> 32 != u64::from(view.epoch.block());
        let strong = strong && !(apart && (view.near || entry.mark.is_near()));
        let writes = matches!(access, Access::Write | Access::StrongWrite | Access::Atomic);
        let place = entry.mark.place();
        match entry.mark.kind() {
            MARK_STRONG_WRITE | MARK_STRONG_READ if strong => {}
            MARK_STRONG_WRITE => {
                for epoch in entry.epochs() {
                    Cell::after_write(view, epoch, entry.mark, kind)?;
                }
            }
            _ if writes => {
                if let Some(epoch) = entry.uncovered(view) {
                    return Err((ConflictKind::ReadWrite, epoch, place));
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// Checks an access of all that the cell stands for, and records it.
    #[inline]
    fn touch(
        &mut self,
        sets: &mut Sets,
        view: &View<'_>,
        access: Access,
        place: u32,
    ) -> Result<(), Found> {
        let (kind, writes) = match access {
            Access::Read => (MARK_READ, false),
            Access::ReadOnly => (MARK_READ_ONLY, false),
            Access::StrongRead => (MARK_STRONG_READ, false),
            Access::StrongWrite | Access::Atomic | Access::Write => (MARK_STRONG_WRITE, true),
        };
        let conflict = if writes {
            ConflictKind::WriteWrite
        } else {
            ConflictKind::WriteRead
        };
        if self.state & CONSTANT != 0 && writes {
            return Err(self.constant_read(sets));
        }
        if self.write != Epoch::NEVER {
            if access == Access::ReadOnly {
                let place = self.write_mark.place();
                return Err((ConflictKind::ReadOnly, self.write, place));
            }
            Cell::after_write(view, self.write, self.write_mark, conflict)?;
        }
        if self.first.mask != 0 && (writes || self.state & STRONG != 0) {
            if access == Access::ReadOnly {
                self.unwritten(sets)?;
            }
            Cell::after_entry(view, access, self.first, conflict)?;
            for entry in self.more(sets) {
                Cell::after_entry(view, access, *entry, conflict)?;
            }
        }
        if access == Access::Write {
            self.clear_set(sets);
            self.write = view.epoch();
            self.write_mark = Mark::new(0, view, place);
            self.state |= WRITTEN;
            return Ok(());
        }
        let mark = Mark::new(kind, view, place);
        if writes {
            self.state |= WRITTEN | STRONG;
        }
        if access == Access::ReadOnly {
            if self.state & CONSTANT != 0 {
                // One is enough: it conflicts with any write.
                return Ok(());
            }
            self.state |= CONSTANT;
        }
        self.record(sets, view, mark);
        Ok(())
    }

    /// The read through `.nc` that a write comes after.
    #[cold]
    fn constant_read(&self, sets: &Sets) -> Found {
        let mut entries = std::iter::once(&self.first).chain(self.more(sets));
        let read = entries.find(|e| e.mask != 0 && e.mark.kind() == MARK_READ_ONLY);
        let first = read.and_then(|e| Some((e.epochs().next()?, e.mark.place())));
        let (epoch, place) = first.unwrap_or((Epoch::NEVER, 0));
        (ConflictKind::ReadOnly, epoch, place)
    }

    /// That no strong access wrote it.
    fn unwritten(&self, sets: &Sets) -> Result<(), Found> {
        for entry in std::iter::once(&self.first).chain(self.more(sets)) {
            if entry.mark.kind() == MARK_STRONG_WRITE
                && let Some(epoch) = entry.epochs().next()
            {
                return Err((ConflictKind::ReadOnly, epoch, entry.mark.place()));
            }
        }
        Ok(())
    }

    /// Adds an access to the set.
    #[inline]
    fn record(&mut self, sets: &mut Sets, view: &View<'_>, mark: Mark) {
        let epoch = view.epoch();
        let entry = Entry {
            warp: epoch.of_warp(),
            mask: epoch.lane_bit(),
            mark,
        };
        let first = &mut self.first;
        if first.mask == 0 && self.state & MORE == 0 {
            *first = entry;
            return;
        }
        if first.warp == entry.warp && first.mark == mark {
            first.mask |= entry.mask;
            return;
        }
        if self.state & MORE == 0 {
            if first.subsumed_by(mark) {
                first.prune(view);
                if first.mask == 0 {
                    *first = entry;
                    return;
                }
            }
            // Without room for sets of their own, later accesses of a byte are forgotten.
            if let Some(at) = sets.take() {
                sets.sets[at as usize].push(entry);
                self.state |= MORE | at;
            }
            return;
        }
        let limit = sets.limit;
        let set = &mut sets.sets[(self.state & INDEX) as usize];
        let same = |e: &&mut Entry| e.warp == entry.warp && e.mark == mark;
        // Lanes of a warp come one after another.
        if let Some(same) = set.iter_mut().rev().find(same) {
            same.mask |= entry.mask;
            return;
        }
        let count = set.len();
        if count < limit && count >= 4 && count.is_power_of_two() {
            for old in set.iter_mut() {
                if old.subsumed_by(mark) {
                    old.prune(view);
                }
            }
            set.retain(|e| e.mask != 0);
        }
        if set.len() >= limit {
            // Forget one of a block that another is left of: any other block's write races with that one as well.
            let block = |e: &Entry| e.warp >> 32;
            let kept = |e: &Entry| e.mark.kind() == MARK_READ_ONLY;
            let crowded = (0..set.len()).find(|at| {
                let old = &set[*at];
                let others = set[*at + 1..].iter().chain([&entry, &*first]);
                let mut others = others.filter(|e| e.mark.kind() == old.mark.kind());
                !kept(old) && others.any(|e| block(e) == block(old))
            });
            let any = || set.iter().position(|e| !kept(e)).unwrap_or(0);
            set.remove(crowded.unwrap_or_else(any));
        }
        set.push(entry);
    }
}

/// Accesses to a stretch of memory.
#[derive(Debug)]
pub(super) struct Shadow {
    /// By word.
    cells: Vec<Cell>,
    /// The bytes of split words.
    parts: Vec<[Cell; 4]>,
    free_parts: Vec<u32>,
    sets: Sets,
    /// Whether reads want something written before.
    initialised: bool,
}

impl Shadow {
    /// `limit`: how many accesses a byte may remember besides its last write (and one more).
    pub(super) fn new(bytes: usize, limit: usize, initialised: bool) -> Shadow {
        Shadow {
            cells: vec![Cell::default(); bytes.div_ceil(4)],
            parts: Vec::new(),
            free_parts: Vec::new(),
            sets: Sets {
                limit,
                ..Sets::default()
            },
            initialised,
        }
    }

    fn split(&mut self, word: usize) -> usize {
        let cell = self.cells[word];
        if cell.is_split() {
            return (cell.state & INDEX) as usize;
        }
        let mut parts = [cell; 4];
        if cell.state & MORE != 0 {
            let entries = self.sets.sets[(cell.state & INDEX) as usize].clone();
            for part in &mut parts[1..] {
                part.state &= !(MORE | INDEX);
                if let Some(at) = self.sets.take() {
                    self.sets.sets[at as usize].extend_from_slice(&entries);
                    part.state |= MORE | at;
                }
            }
        }
        let at = match self.free_parts.pop() {
            Some(at) => {
                self.parts[at as usize] = parts;
                at as usize
            }
            None => {
                self.parts.push(parts);
                self.parts.len() - 1
            }
        };
        self.cells[word] = Cell {
            state: SPLIT | at as u32,
            ..Cell::default()
        };
        at
    }

    /// Checks an access and records it. Bytes beyond the end are left out.
    #[inline]
    pub(super) fn access(
        &mut self,
        at: usize,
        bytes: usize,
        view: &View<'_>,
        access: Access,
        place: u32,
    ) -> Result<(), Conflict> {
        let end = (at + bytes).min(self.cells.len() * 4);
        let mut from = at;
        while from < end {
            let word = from / 4;
            let to = (word * 4 + 4).min(end);
            if to - from == 4 && !self.cells[word].is_split() {
                let cell = &mut self.cells[word];
                let written = cell.state & WRITTEN != 0;
                let done = cell.touch(&mut self.sets, view, access, place);
                done.map_err(|found| conflict(found, from))?;
                if !written {
                    self.wants_value(access, from)?;
                }
            } else {
                self.access_bytes(from, to, view, access, place)?;
            }
            from = to;
        }
        Ok(())
    }

    /// Accesses some bytes of one word.
    fn access_bytes(
        &mut self,
        from: usize,
        to: usize,
        view: &View<'_>,
        access: Access,
        place: u32,
    ) -> Result<(), Conflict> {
        let word = from / 4;
        let parts = self.split(word);
        for byte in from..to {
            let cell = &mut self.parts[parts][byte % 4];
            let written = cell.state & WRITTEN != 0;
            let done = cell.touch(&mut self.sets, view, access, place);
            done.map_err(|found| conflict(found, byte))?;
            if !written {
                self.wants_value(access, byte)?;
            }
        }
        if to - from == 4 && access == Access::Write {
            // All four are as the first is: just written.
            self.cells[word] = self.parts[parts][0];
            self.free_parts.push(parts as u32);
        }
        Ok(())
    }

    fn wants_value(&self, access: Access, byte: usize) -> Result<(), Conflict> {
        if self.initialised || matches!(access, Access::Write | Access::StrongWrite) {
            return Ok(());
        }
        let found = (ConflictKind::Uninitialized, Epoch::NEVER, 0);
        Err(conflict(found, byte))
    }

    /// Forgets all.
    #[cfg(test)]
    fn clear(&mut self) {
        self.cells.fill(Cell::default());
        self.parts.clear();
        self.free_parts.clear();
        self.sets.sets.clear();
        self.sets.free.clear();
    }
}

#[cold]
fn conflict((kind, other, place): Found, byte: usize) -> Conflict {
    Conflict {
        kind,
        byte: byte as u64,
        other,
        place,
    }
}

/// The accesses to a block's shared memory, remembered exactly. One host thread at a time.
#[derive(Debug)]
pub(crate) struct SharedShadow {
    shadow: Shadow,
}

impl SharedShadow {
    /// Of so many bytes, none of them written.
    pub(crate) fn new(bytes: u32) -> SharedShadow {
        SharedShadow {
            shadow: Shadow::new(bytes as usize, usize::MAX, false),
        }
    }

    /// As new, for another block.
    #[cfg(test)]
    pub(crate) fn clear(&mut self) {
        self.shadow.clear();
    }

    /// Checks an access of `bytes` bytes from `at` on by a thread or agent with that view ([`super::Clocks::view`],
    /// [`super::Clocks::agent_view`]), at the instruction number `place` (below 2^28), and records it.
    ///
    /// The view may be of another block, where shared memory of a cluster is accessed. After a conflict, some bytes are recorded and
    /// some are not.
    #[inline]
    pub(crate) fn access(
        &mut self,
        at: u32,
        bytes: u32,
        view: &View<'_>,
        access: Access,
        place: u32,
    ) -> Result<(), Conflict> {
        let (at, bytes) = (at as usize, bytes as usize);
        self.shadow.access(at, bytes, view, access, place)
    }

    /// The first byte of these that nothing has written, whoever asks.
    #[cfg(test)]
    pub(crate) fn unwritten(&self, at: u32, bytes: u32) -> Option<u32> {
        (at..at.saturating_add(bytes)).find(|byte| {
            let Some(cell) = self.shadow.cells.get(*byte as usize / 4) else {
                return true;
            };
            let cell = match cell.is_split() {
                true => &self.shadow.parts[(cell.state & INDEX) as usize][*byte as usize % 4],
                false => cell,
            };
            cell.state & WRITTEN == 0
        })
    }
}
