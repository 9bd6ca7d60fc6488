//! Tables of facts, and the plan that follows from them.

use super::*;
use Reason::{Driver, Extend, Large, Miss, Offload, Order, Sync, Unsupported};

const REGULAR: File = File::Regular { extends: false, has_holes: false };
const END: File = File::Regular { extends: true, has_holes: false };
const HOLES: File = File::Regular { extends: false, has_holes: true };

/// The facts of a libaio program with callers, on a machine with io_uring.
fn facts() -> Facts {
    let load = Load {
        answers_as_aio: true,
        has_callers: true,
        has_budget: true,
        driver: Queue::Ring,
        ..Load::default()
    };
    Facts { load, ..Facts::default() }
}

fn read() -> Facts {
    facts()
}

fn write() -> Facts {
    let ask = Ask { is_write: true, ..Ask::default() };
    Facts { ask, ..facts() }
}

fn direct(facts: Facts) -> Facts {
    let ask = Ask { is_direct: true, ..facts.ask };
    let (in_memory, must_wait) = (Some(false), Some(false));
    Facts { ask, in_memory, must_wait, own: Some(Queue::Aio), ..facts }
}

fn asking(facts: Facts, change: impl FnOnce(&mut Ask)) -> Facts {
    let mut facts = facts;
    change(&mut facts.ask);
    facts
}

fn loaded(facts: Facts, change: impl FnOnce(&mut Load)) -> Facts {
    let mut facts = facts;
    change(&mut facts.load);
    facts
}

fn free() -> Facts {
    Facts { must_wait: Some(false), ..read() }
}

fn alone(facts: Facts) -> Facts {
    loaded(facts, |load| load.has_callers = false)
}

fn offload(facts: Facts) -> Facts {
    loaded(alone(facts), |load| load.offloads = true)
}

fn linked(facts: Facts) -> Facts {
    asking(facts, |it| it.is_linked = true)
}

fn blocked(facts: Facts) -> Facts {
    Facts { must_wait: Some(true), file: Some(REGULAR), ..facts }
}

fn no_queue(facts: Facts) -> Facts {
    Facts { own: Some(Queue::None), ..facts }
}

fn look(fact: Fact) -> Plan {
    Plan::Look(fact)
}

fn request(route: Route, is_deferred: bool, in_turn: bool, reason: Reason) -> Plan {
    Plan::Request(Carry { route, is_deferred, in_turn, enters: false, reason })
}

fn check(table: Vec<(&str, Facts, Plan)>) {
    for (what, facts, expected) in table {
        assert_eq!(plan(&facts), expected, "{what}: {facts:?}");
    }
}

#[test]
fn reads_are_attempted() {
    let free = free();
    let plain = Facts { in_memory: Some(true), seems_in_memory: true, ..free };
    check(vec![
        ("nothing is known", read(), look(Fact::Order)),
        ("nothing is in the way", free, Plan::Attempt { plain: false }),
        ("in memory", plain, Plan::Attempt { plain: true }),
        (
            "in memory, RWF_NOWAIT",
            asking(plain, |it| it.wants_nowait = true),
            Plan::Attempt { plain: false },
        ),
        ("it was in memory", Facts { in_memory: None, ..plain }, look(Fact::Memory)),
        (
            "an earlier request",
            Facts { must_wait: Some(true), file: Some(REGULAR), ..read() },
            request(Route::Driver, true, false, Order),
        ),
        ("no callers: is it worth it?", alone(free), look(Fact::History)),
        ("it is", Facts { is_worth_it: Some(true), ..alone(free) }, Plan::Attempt { plain: false }),
        ("offload", offload(free), look(Fact::Memory)),
        (
            "offload, on a device",
            Facts {
                in_memory: Some(false),
                own: Some(Queue::None),
                file: Some(REGULAR),
                ..offload(free)
            },
            request(Route::Driver, false, false, Offload),
        ),
        (
            "offload, in memory",
            Facts { in_memory: Some(true), ..offload(free) },
            Plan::Attempt { plain: true },
        ),
    ]);
}

#[test]
fn reads_that_have_to_wait() {
    let free = free();
    let missed = |reason| Facts { missed: Some(reason), file: Some(REGULAR), ..free };
    let own = |own| Facts { own: Some(own), ..alone(missed(Miss)) };
    let by = |route| request(route, false, false, Miss);
    check(vec![
        (
            "it is not",
            Facts { is_worth_it: Some(false), ..alone(missed(Offload)) },
            look(Fact::Own),
        ),
        ("a miss, not looked at", Facts { missed: Some(Miss), ..free }, look(Fact::File)),
        ("a miss", missed(Miss), request(Route::Driver, true, false, Miss)),
        (
            "a miss, native AIO",
            loaded(missed(Miss), |it| it.driver = Queue::Aio),
            request(Route::Workers, true, false, Miss),
        ),
        ("a miss, a ring of its own", own(Queue::Ring), by(Route::Own)),
        ("a miss, a full one", own(Queue::None), by(Route::Driver)),
        (
            "no attempt is possible",
            Facts { own: Some(Queue::None), ..missed(Unsupported) },
            request(Route::Driver, false, false, Unsupported),
        ),
        (
            "more than submit copies",
            loaded(Facts { file: Some(REGULAR), ..free }, |it| {
                it.has_budget = false;
            }),
            request(Route::Driver, true, false, Large),
        ),
        (
            "the same, with a ring",
            Facts { own: Some(Queue::Ring), ..alone(missed(Large)) },
            request(Route::Driver, false, false, Large),
        ),
        (
            "remembered flags, a miss",
            asking(missed(Miss), |it| it.is_hinted = true),
            look(Fact::Flags),
        ),
        ("no bytes", asking(free, |it| it.is_empty = true), look(Fact::File)),
        (
            "a folder",
            Facts { file: Some(File::Folder), ..missed(Miss) },
            Plan::Refuse(Errno::INVAL),
        ),
        ("a stream", Facts { file: Some(File::Stream), ..missed(Miss) }, Plan::Stream),
        (
            "after another",
            asking(missed(Miss), |it| it.begins_later = true),
            request(Route::Driver, true, false, Order),
        ),
        (
            "a stream after another",
            asking(Facts { file: Some(File::Stream), ..free }, |it| {
                it.begins_later = true;
            }),
            Plan::Refuse(Errno::OPNOTSUPP),
        ),
    ]);
}

#[test]
fn buffered_writes() {
    let known =
        Facts { file: Some(REGULAR), in_memory: Some(false), must_wait: Some(false), ..write() };
    let calm = |is_calm| Facts { is_calm: Some(is_calm), ..known };
    let hinted = asking(write(), |it| it.is_hinted = true);
    let durable = asking(known, |it| it.is_durable = true);
    check(vec![
        ("remembered flags", hinted, Plan::WriteUnseen),
        ("a stream", Facts { file: Some(File::Stream), ..hinted }, look(Fact::Flags)),
        ("in vain", Facts { missed: Some(Miss), ..hinted }, look(Fact::Flags)),
        ("nothing is known", write(), look(Fact::File)),
        ("the file is", Facts { file: Some(REGULAR), ..write() }, look(Fact::Memory)),
        ("is it calm?", known, look(Fact::Calm)),
        ("it is", calm(true), Plan::Write),
        ("it is not: is it worth it?", calm(false), look(Fact::History)),
        (
            "an attempt",
            Facts { is_worth_it: Some(true), ..calm(false) },
            Plan::Attempt { plain: false },
        ),
        (
            "none",
            Facts { is_worth_it: Some(false), ..calm(false) },
            request(Route::Workers, true, true, Reason::Write),
        ),
        ("a part is done", asking(known, |it| it.has_begun = true), look(Fact::History)),
        ("in memory", Facts { in_memory: Some(true), ..known }, Plan::Attempt { plain: true }),
        ("durable", durable, request(Route::Workers, false, false, Sync)),
        (
            "durable, and no other",
            loaded(durable, |it| it.is_alone = true),
            request(Route::Workers, true, false, Sync),
        ),
        (
            "durable, in memory",
            Facts { in_memory: Some(true), ..durable },
            Plan::Attempt { plain: true },
        ),
        (
            "an earlier request",
            Facts { must_wait: Some(true), ..known },
            request(Route::Workers, true, true, Order),
        ),
        (
            "another face",
            Facts {
                is_worth_it: Some(true),
                ..loaded(known, |it| {
                    it.answers_as_aio = false;
                })
            },
            Plan::Attempt { plain: false },
        ),
        ("offload", offload(known), request(Route::Workers, false, true, Reason::Write)),
        ("a block device", Facts { file: Some(File::Device), ..known }, look(Fact::History)),
        ("a folder", Facts { file: Some(File::Folder), ..write() }, Plan::Refuse(Errno::INVAL)),
        ("a stream", Facts { file: Some(File::Stream), ..write() }, Plan::Stream),
        (
            "after another",
            asking(known, |it| it.begins_later = true),
            request(Route::Workers, true, true, Order),
        ),
    ]);
}

#[test]
fn direct_reads() {
    let read = direct(read());
    let bio = Plan::Bio { may_block: false };
    let familiar = |facts| asking(facts, |it| (it.is_hinted, it.is_familiar) = (true, true));
    check(vec![
        ("remembered flags", asking(read, |it| it.is_hinted = true), look(Fact::Flags)),
        ("familiar", familiar(read), Plan::BioUnseen { may_block: false }),
        ("familiar, no queue", no_queue(familiar(read)), look(Fact::Flags)),
        (
            "familiar, by a ring",
            Facts { own: Some(Queue::Ring), ..familiar(read) },
            look(Fact::Flags),
        ),
        ("familiar, behind another", blocked(familiar(read)), look(Fact::Flags)),
        (
            "familiar, and refused",
            Facts { missed: Some(Driver), ..familiar(read) },
            look(Fact::Flags),
        ),
        ("where is the file?", Facts { in_memory: None, ..read }, look(Fact::Memory)),
        ("in memory", Facts { in_memory: Some(true), ..read }, Plan::Attempt { plain: true }),
        ("who is free?", Facts { own: None, ..read }, look(Fact::Own)),
        ("is it in order?", Facts { must_wait: None, ..read }, look(Fact::Order)),
        ("a read", read, bio),
        ("a long one", asking(read, |it| it.is_long = true), look(Fact::File)),
        (
            "a long one by a ring",
            asking(Facts { own: Some(Queue::Ring), ..read }, |it| {
                it.is_long = true;
            }),
            bio,
        ),
        ("a read, no queue", no_queue(read), look(Fact::File)),
        (
            "the same",
            Facts { file: Some(REGULAR), ..no_queue(read) },
            request(Route::Driver, false, false, Driver),
        ),
        (
            "a linked read",
            Facts { file: Some(REGULAR), ..linked(read) },
            request(Route::Own, false, false, Driver),
        ),
        ("a read behind another", blocked(read), request(Route::Driver, false, false, Order)),
        ("of a pipe", Facts { file: Some(File::Stream), ..read }, Plan::Stream),
    ]);
}

#[test]
fn direct_writes() {
    let write = Facts { file: Some(REGULAR), ..direct(write()) };
    let end = Facts { file: Some(END), ..write };
    let bio = Plan::Bio { may_block: false };
    check(vec![
        ("a write, not looked at", Facts { file: None, ..write }, look(Fact::File)),
        ("a write", write, bio),
        ("a linked write", linked(write), request(Route::Own, false, false, Driver)),
        ("a write behind another", blocked(write), request(Route::Driver, false, false, Order)),
        (
            "no driver",
            loaded(blocked(write), |it| it.driver = Queue::None),
            request(Route::Workers, false, false, Order),
        ),
        (
            "refused",
            Facts { missed: Some(Driver), ..write },
            request(Route::Own, false, false, Driver),
        ),
        (
            "counted by the kernel",
            loaded(write, |it| it.counts_by_kernel = true),
            Plan::Bio { may_block: true },
        ),
        ("at the end", end, request(Route::Workers, false, true, Extend)),
        (
            "at the end, and no other",
            loaded(end, |it| it.is_alone = true),
            request(Route::Workers, true, true, Extend),
        ),
        (
            "after another",
            asking(write, |it| it.begins_later = true),
            request(Route::Workers, false, false, Order),
        ),
        (
            "a read after another",
            asking(Facts { file: Some(REGULAR), ..direct(read()) }, |it| {
                it.begins_later = true;
            }),
            request(Route::Driver, false, false, Order),
        ),
    ]);
}

#[test]
fn direct_writes_into_holes() {
    let holes = Facts { file: Some(HOLES), ..direct(write()) };
    let bio = Plan::Bio { may_block: false };
    let by = |driver| loaded(alone(no_queue(holes)), |it| it.driver = driver);
    let entering = Plan::Request(Carry {
        route: Route::Driver,
        is_deferred: false,
        in_turn: false,
        enters: true,
        reason: Extend,
    });
    check(vec![
        ("into holes", holes, Plan::Bio { may_block: true }),
        (
            "into holes, another face",
            loaded(holes, |it| it.answers_as_aio = false),
            request(Route::Driver, false, false, Extend),
        ),
        (
            "into holes, familiar",
            asking(holes, |it| {
                (it.is_hinted, it.is_familiar, it.finds_blocks) = (true, true, true);
            }),
            Plan::BioUnseen { may_block: true },
        ),
        ("into holes, by a ring", Facts { own: Some(Queue::Ring), ..holes }, bio),
        ("into holes, no queue", no_queue(holes), request(Route::Driver, false, false, Extend)),
        ("into holes, no ring", by(Queue::Aio), entering),
        (
            "into holes, no ring, another face",
            loaded(by(Queue::Aio), |it| it.answers_as_aio = false),
            request(Route::Workers, false, false, Extend),
        ),
        (
            "into holes behind another, no ring",
            Facts { must_wait: Some(true), ..by(Queue::Aio) },
            request(Route::Workers, false, false, Extend),
        ),
        ("into holes, no driver", by(Queue::None), request(Route::Workers, false, false, Extend)),
    ]);
}

/// Planning ends, whatever facts are known: each look adds a fact, and no fact is looked up twice.
#[test]
fn no_fact_is_looked_at_twice() {
    for bits in 0..1u32 << 15 {
        let bit = |index: u32| bits >> index & 1 == 1;
        let ask = Ask {
            is_write: bit(0),
            is_direct: bit(1),
            is_hinted: bit(2),
            wants_nowait: bit(3),
            is_durable: bit(4),
            is_empty: bit(5),
            is_long: bit(6),
            begins_later: bit(7),
            is_familiar: bit(3),
            ..Ask::default()
        };
        let load = Load {
            offloads: bit(8),
            answers_as_aio: bit(9),
            has_callers: bit(10),
            has_budget: bit(11),
            driver: if bit(12) { Queue::Ring } else { Queue::None },
            ..Load::default()
        };
        let mut facts = Facts { ask, load, seems_in_memory: bit(13), ..Facts::default() };
        for step in 0.. {
            assert!(step < 10, "{facts:?}");
            match plan(&facts) {
                Plan::Look(Fact::Flags) if facts.ask.is_hinted => {
                    facts.ask.is_hinted = false;
                    if facts.ask.is_write {
                        (facts.missed, facts.file) = (None, None);
                    }
                }
                Plan::Look(Fact::File) if facts.file.is_none() => {
                    facts.file = Some(if bit(14) { File::Stream } else { HOLES });
                }
                Plan::Look(Fact::Memory) if facts.in_memory.is_none() => {
                    facts.in_memory = Some(bit(4));
                }
                Plan::Look(Fact::Order) if facts.must_wait.is_none() => {
                    facts.must_wait = Some(bit(6));
                }
                Plan::Look(Fact::Calm) if facts.is_calm.is_none() => facts.is_calm = Some(false),
                Plan::Look(Fact::History) if facts.is_worth_it.is_none() => {
                    facts.is_worth_it = Some(bit(5));
                }
                Plan::Look(Fact::Own) if facts.own.is_none() => facts.own = Some(Queue::Aio),
                Plan::Look(fact) => panic!("{fact:?} once more: {facts:?}"),
                Plan::Attempt { .. } | Plan::WriteUnseen if bit(14) => {
                    facts.file = Some(File::Stream);
                }
                Plan::Attempt { .. } | Plan::WriteUnseen | Plan::BioUnseen { .. } => {
                    facts.missed = Some(Miss);
                }
                Plan::Refuse(_)
                | Plan::Stream
                | Plan::Write
                | Plan::Bio { .. }
                | Plan::Request(_) => break,
            }
        }
    }
}
