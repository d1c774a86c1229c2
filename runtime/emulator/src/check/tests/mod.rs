//! Orderings one by one, and random programs against an oracle that remembers everything.

mod oracle;

use super::{
    Access, Clocks, Conflict, ConflictKind, GlobalShadow, Proxy, SharedShadow, SyncTable, Token,
    cluster_barrier,
};

const ALL: u32 = u32::MAX;

fn kind(done: Result<(), Conflict>) -> Option<ConflictKind> {
    done.err().map(|conflict| conflict.kind)
}

/// A block of two warps and its shared memory, at which instructions are numbered as they come.
struct Block {
    clocks: Clocks,
    shadow: SharedShadow,
    place: u32,
}

impl Block {
    fn new() -> Block {
        Block {
            clocks: Clocks::new(3, 64),
            shadow: SharedShadow::new(256),
            place: 0,
        }
    }

    fn access(&mut self, thread: u32, access: Access, at: u32, bytes: u32) -> Result<(), Conflict> {
        self.place += 1;
        let view = self.clocks.view(thread);
        self.shadow.access(at, bytes, &view, access, self.place)
    }

    fn write(&mut self, thread: u32, at: u32, bytes: u32) -> Option<ConflictKind> {
        kind(self.access(thread, Access::Write, at, bytes))
    }

    fn read(&mut self, thread: u32, at: u32, bytes: u32) -> Option<ConflictKind> {
        kind(self.access(thread, Access::Read, at, bytes))
    }

    fn agent(&mut self, agent: super::Agent, access: Access, at: u32) -> Option<ConflictKind> {
        self.place += 1;
        let view = self.clocks.agent_view(agent);
        kind(self.shadow.access(at, 16, &view, access, self.place))
    }
}

#[test]
fn a_barrier_orders_what_is_before_it_with_what_is_after() {
    let mut b = Block::new();
    assert_eq!(b.write(0, 0, 4), None);
    let raced = b.access(40, Access::Read, 0, 4).unwrap_err();
    assert_eq!(raced.kind, ConflictKind::WriteRead);
    assert_eq!((raced.byte, raced.place), (0, 1));
    assert_eq!((raced.other.block(), raced.other.thread()), (3, 0));

    let mut b = Block::new();
    assert_eq!(b.write(0, 0, 4), None);
    b.clocks.barrier(&[ALL, ALL]);
    assert_eq!(b.read(40, 0, 4), None);
    assert_eq!(b.write(40, 4, 4), None);
    // The read after the barrier and this write are not ordered.
    assert_eq!(b.write(0, 0, 4), Some(ConflictKind::ReadWrite));
    b.clocks.barrier(&[ALL, ALL]);
    assert_eq!(b.write(0, 0, 4), None);
    assert_eq!(b.write(1, 0, 4), Some(ConflictKind::WriteWrite));
}

#[test]
fn a_named_barrier_orders_its_own_threads_only() {
    let mut b = Block::new();
    assert_eq!(b.write(5, 8, 8), None);
    b.clocks.barrier(&[0xFF, 0xF]);
    assert_eq!(b.read(35, 8, 8), None);
    assert_eq!(b.read(8, 8, 8), Some(ConflictKind::WriteRead));
    // Another barrier passes it on.
    b.clocks.barrier(&[0x100, 0x8]);
    assert_eq!(b.read(8, 8, 8), None);
}

#[test]
fn a_thread_that_only_arrives_learns_nothing() {
    let mut b = Block::new();
    let mut token = Token::default();
    assert_eq!(b.write(0, 0, 4), None);
    assert_eq!(b.write(32, 4, 4), None);
    b.clocks.release_into(0, 1, &mut token);
    // Not part of what it released.
    assert_eq!(b.write(0, 8, 4), None);
    b.clocks.release_into(1, 1, &mut token);
    token.seal();
    b.clocks.acquire_lanes(1, 1, &token);
    assert_eq!(b.read(32, 0, 4), None);
    assert_eq!(b.read(32, 8, 4), Some(ConflictKind::WriteRead));
    assert_eq!(b.read(0, 4, 4), Some(ConflictKind::WriteRead));
}

#[test]
fn a_warp_barrier_orders_lanes_of_its_mask() {
    let mut b = Block::new();
    assert_eq!(b.write(1, 0, 4), None);
    b.clocks.warp_sync(0, 0b110);
    assert_eq!(b.read(2, 0, 4), None);
    assert_eq!(b.read(3, 0, 4), Some(ConflictKind::WriteRead));
}

#[test]
fn tokens_order_across_blocks_and_through_third_ones() {
    let mut blocks = [Clocks::new(0, 32), Clocks::new(7, 32), Clocks::new(9, 32)];
    let global = GlobalShadow::new([(0x1000, 0x10000), (0x20000, 64)]);
    let table = SyncTable::new();
    let write = |clocks: &Clocks, thread| {
        let view = clocks.view(thread);
        kind(global.access(0x1FFE, 8, &view, Access::Write, 1))
    };
    let read = |clocks: &Clocks, thread| {
        let view = clocks.view(thread);
        global.access(0x1FFE, 8, &view, Access::Read, 2)
    };
    assert_eq!(write(&blocks[0], 4), None);
    let conflict = read(&blocks[1], 4).unwrap_err();
    assert_eq!(conflict.byte, 0x1FFE);
    assert_eq!((conflict.other.block(), conflict.other.thread()), (0, 4));

    let token = blocks[0].release(4);
    table.lock(0x20000).store(Some(token));
    let Some(token) = table.lock(0x20000).token().cloned() else {
        panic!("a token was stored");
    };
    blocks[1].acquire(6, &token);
    assert_eq!(kind(read(&blocks[1], 6)), None);
    assert_eq!(kind(read(&blocks[1], 7)), Some(ConflictKind::WriteRead));
    blocks[1].warp_sync(0, ALL);
    let token = blocks[1].release(9);
    blocks[2].acquire(0, &token);
    assert_eq!(write(&blocks[2], 0), None);
    // What block 9 did is news to the others.
    assert_eq!(kind(read(&blocks[1], 6)), Some(ConflictKind::WriteRead));
    let [a, b, c] = &mut blocks;
    cluster_barrier(&mut [a, b, c]);
    assert_eq!(kind(read(&blocks[0], 31)), None);
    // A relaxed store ends what the address carries.
    table.lock(0x20000).store(None);
    assert!(table.lock(0x20000).token().is_none());
}

#[test]
fn a_read_modify_write_goes_on_with_the_release_before_it() {
    let mut blocks = [Clocks::new(0, 1), Clocks::new(1, 1), Clocks::new(2, 1)];
    let global = GlobalShadow::new([(0, 64)]);
    let table = SyncTable::new();
    for (at, clocks) in (0..).zip(&mut blocks[..2]) {
        let view = clocks.view(0);
        let done = global.access(at * 4, 4, &view, Access::Write, 0);
        assert_eq!(kind(done), None);
        let token = clocks.release(0);
        table.lock(32).update(&token);
    }
    let token = table.lock(32).token().cloned().unwrap_or_default();
    blocks[2].acquire(0, &token);
    let done = global.access(0, 8, &blocks[2].view(0), Access::Read, 1);
    assert_eq!(kind(done), None);
}

#[test]
fn fences_make_relaxed_accesses_release_and_acquire() {
    // Which of the two fences stand there; only both make an order.
    for (first, second) in [(false, false), (true, false), (false, true), (true, true)] {
        let (mut a, mut b) = (Clocks::new(0, 32), Clocks::new(1, 32));
        let global = GlobalShadow::new([(0, 64)]);
        let data = |view: &super::View<'_>, access| kind(global.access(0, 4, view, access, 0));
        assert_eq!(data(&a.view(3), Access::Write), None);
        if first {
            a.fence(0, 1 << 3);
        }
        let flag = |view: &super::View<'_>, access| kind(global.access(8, 4, view, access, 0));
        assert_eq!(flag(&a.view(3), Access::Atomic), None);
        let table = SyncTable::new();
        if let Some(token) = a.fence_token(3) {
            table.lock(8).update(token);
        }
        // Written after the fence, and before the atomic: not released.
        assert_eq!(flag(&b.view(5), Access::StrongRead), None);
        if let Some(token) = table.lock(8).token() {
            b.saw(5, token);
        }
        if second {
            b.fence(0, 1 << 5);
        }
        let expected = (!(first && second)).then_some(ConflictKind::WriteRead);
        assert_eq!(data(&b.view(5), Access::Read), expected);
    }
}

#[test]
fn a_fence_releases_what_is_before_it_only() {
    let (mut a, mut b) = (Clocks::new(0, 32), Clocks::new(1, 32));
    let global = GlobalShadow::new([(0, 64)]);
    a.fence(0, 1);
    let done = global.access(0, 4, &a.view(0), Access::Write, 0);
    assert_eq!(kind(done), None);
    let token = a.fence_token(0).cloned().unwrap_or_default();
    b.saw(0, &token);
    b.fence(0, 1);
    let done = global.access(0, 4, &b.view(0), Access::Read, 0);
    assert_eq!(kind(done), Some(ConflictKind::WriteRead));
}

#[test]
fn the_async_proxy_wants_a_proxy_fence_after_generic_writes() {
    // A fence by the writer before the barrier, by the issuer after it, and by neither.
    for fence in [Some(true), Some(false), None] {
        let mut b = Block::new();
        assert_eq!(b.write(1, 0, 16), None);
        if fence == Some(true) {
            b.clocks.proxy_fence(0, 2);
        }
        b.clocks.barrier(&[ALL, ALL]);
        if fence == Some(false) {
            b.clocks.proxy_fence(1, 1);
        }
        let agent = b.clocks.spawn(32, Proxy::Async);
        let expected = fence.is_none().then_some(ConflictKind::MissingProxyFence);
        assert_eq!(b.agent(agent, Access::Read, 0), expected);
    }
    // A fence before the write does not help.
    let mut b = Block::new();
    b.clocks.proxy_fence(0, 1);
    assert_eq!(b.write(0, 0, 16), None);
    let agent = b.clocks.spawn(0, Proxy::Async);
    let missing = Some(ConflictKind::MissingProxyFence);
    assert_eq!(b.agent(agent, Access::Read, 0), missing);
    // A copy of the generic proxy needs none.
    let agent = b.clocks.spawn(0, Proxy::Generic);
    assert_eq!(b.agent(agent, Access::Read, 0), None);
}

#[test]
fn an_asynchronous_write_is_seen_by_those_that_waited_for_it() {
    let mut b = Block::new();
    let agent = b.clocks.spawn(0, Proxy::Async);
    assert_eq!(b.agent(agent, Access::Write, 0), None);
    // Not even by its issuer before it waits.
    assert_eq!(b.read(0, 0, 4), Some(ConflictKind::WriteRead));
    let mut token = b.clocks.complete(agent);
    token.seal();
    b.clocks.acquire_lanes(1, 3, &token);
    assert_eq!(b.read(32, 0, 4), None);
    assert_eq!(b.read(0, 4, 4), Some(ConflictKind::WriteRead));
    // The next copy to the same bytes comes after the readers said that they are done; generic reads want no proxy fence.
    let mut empty = Token::default();
    b.clocks.release_into(1, 3, &mut empty);
    empty.seal();
    b.clocks.acquire(0, &empty);
    let next = b.clocks.spawn(0, Proxy::Async);
    assert_eq!(next, agent, "its number is free again");
    assert_eq!(b.agent(next, Access::Write, 0), None);
    b.clocks.complete_for(next, 0);
    assert_eq!(b.read(0, 0, 4), None);
    assert_eq!(b.read(32, 0, 4), Some(ConflictKind::WriteRead));
}

#[test]
fn numbers_of_agents_run_out_without_false_conflicts() {
    let mut b = Block::new();
    let issued: Vec<_> = (0..6000)
        .map(|_| b.clocks.spawn(0, Proxy::Generic))
        .collect();
    for agent in &issued {
        b.clocks.complete_for(*agent, 0);
    }
    assert_eq!(b.agent(issued[0], Access::Write, 0), None);
    assert_eq!(b.read(0, 0, 4), None);
}

#[test]
fn one_reader_of_three_that_is_not_ordered_is_found() {
    let mut b = Block::new();
    assert_eq!(b.write(0, 0, 4), None);
    b.clocks.barrier(&[ALL, ALL]);
    for reader in [3, 40, 50] {
        assert_eq!(b.read(reader, 0, 4), None);
    }
    b.clocks.barrier(&[1 << 3 | 1, 1 << 18]);
    let raced = b.access(0, Access::Write, 0, 4).unwrap_err();
    assert_eq!(raced.kind, ConflictKind::ReadWrite);
    assert_eq!((raced.other.thread(), raced.place), (40, 3));
}

#[test]
fn neighbours_in_a_word_are_apart() {
    let mut b = Block::new();
    for half in 0..64 {
        assert_eq!(b.write(half, half * 2, 2), None);
    }
    assert_eq!(b.read(5, 10, 2), None);
    assert_eq!(b.read(5, 8, 2), Some(ConflictKind::WriteRead));
    b.clocks.barrier(&[ALL, ALL]);
    assert_eq!(b.read(9, 0, 16), None);
    assert_eq!(b.write(9, 0, 16), None);
    assert_eq!(b.write(10, 3, 1), Some(ConflictKind::WriteWrite));
}

#[test]
fn what_nothing_wrote_is_uninitialised_byte_by_byte() {
    let mut b = Block::new();
    assert_eq!(b.write(0, 16, 2), None);
    let read = b.access(0, Access::Read, 16, 4).unwrap_err();
    assert_eq!((read.kind, read.byte), (ConflictKind::Uninitialized, 18));
    assert_eq!(b.shadow.unwritten(16, 2), None);
    assert_eq!(b.shadow.unwritten(16, 4), Some(18));
    assert_eq!(
        kind(b.access(0, Access::Atomic, 32, 4)),
        Some(ConflictKind::Uninitialized)
    );
    assert_eq!(kind(b.access(0, Access::StrongWrite, 36, 4)), None);
    assert_eq!(kind(b.access(1, Access::StrongRead, 36, 4)), None);
    b.shadow.clear();
    assert_eq!(b.read(0, 16, 2), Some(ConflictKind::Uninitialized));
}

#[test]
fn strong_accesses_race_with_weak_ones_only() {
    let mut b = Block::new();
    assert_eq!(b.write(0, 0, 4), None);
    b.clocks.barrier(&[ALL, ALL]);
    for thread in 0..64 {
        assert_eq!(kind(b.access(thread, Access::Atomic, 0, 4)), None);
    }
    // Its own atomic is before it, those of others are not.
    assert_eq!(b.read(63, 0, 4), Some(ConflictKind::WriteRead));
    b.clocks.barrier(&[ALL, ALL]);
    assert_eq!(b.read(63, 0, 4), None);
    assert_eq!(kind(b.access(62, Access::StrongRead, 0, 4)), None);
    assert_eq!(
        kind(b.access(62, Access::Atomic, 0, 4)),
        Some(ConflictKind::ReadWrite)
    );
}

#[test]
fn nothing_may_write_what_was_read_as_constant() {
    let clocks = Clocks::new(0, 32);
    let global = GlobalShadow::new([(256, 256)]);
    let access = |thread, at, access, place| {
        global.access(256u64 + at, 4, &clocks.view(thread), access, place)
    };
    assert_eq!(kind(access(3, 0, Access::ReadOnly, 5)), None);
    assert_eq!(kind(access(4, 0, Access::Read, 6)), None);
    let wrong = access(3, 0, Access::Write, 7).unwrap_err();
    assert_eq!(wrong.kind, ConflictKind::ReadOnly);
    assert_eq!((wrong.other.thread(), wrong.place), (3, 5));
    assert_eq!(kind(access(3, 8, Access::Write, 8)), None);
    let wrong = access(3, 8, Access::ReadOnly, 9).unwrap_err();
    assert_eq!((wrong.kind, wrong.place), (ConflictKind::ReadOnly, 8));
    assert_eq!(kind(access(3, 16, Access::Atomic, 10)), None);
    let wrong = access(3, 16, Access::ReadOnly, 11).unwrap_err();
    assert_eq!((wrong.kind, wrong.place), (ConflictKind::ReadOnly, 10));
}

#[test]
fn what_lies_outside_is_left_out() {
    let mut small = Clocks::new(0, 33);
    small.barrier(&[ALL, ALL, ALL]);
    small.proxy_fence(1, ALL);
    small.barrier(&[ALL, ALL, ALL]);
    small.fence(u32::MAX, ALL);
    let clocks = Clocks::new(0, 32);
    let global = GlobalShadow::new([(256, 6)]);
    for (at, bytes) in [
        (0, 4),
        (255, 4),
        (256, 64),
        (u64::MAX, 4),
        (1 << 40, u64::MAX),
    ] {
        let done = global.access(at, bytes, &clocks.view(0), Access::Write, 0);
        assert_eq!(kind(done), None);
    }
    let mut shared = SharedShadow::new(6);
    let done = shared.access(u32::MAX - 4, 4, &clocks.view(0), Access::Write, 0);
    assert_eq!(kind(done), None);
    assert_eq!(shared.unwritten(4, 100), Some(4));
}

#[test]
fn of_blocks_side_by_side_that_race_one_sees_it() {
    for round in 0..50 {
        let global = GlobalShadow::new([(0, 4096)]);
        let at = round * 32;
        let found: usize = std::thread::scope(|scope| {
            let block = |number| {
                let global = &global;
                move || {
                    let clocks = Clocks::new(number, 32);
                    let done = global.access(at, 4, &clocks.view(0), Access::Write, 0);
                    done.is_err() as usize
                }
            };
            let spawned = [scope.spawn(block(0)), scope.spawn(block(1))];
            spawned.into_iter().map(|s| s.join().unwrap_or(0)).sum()
        });
        assert_eq!(found, 1);
    }
}
