//! Models of the lock-free parts for loom. Most models have canaries: wrong variants, which must
//! fail.
//!
//! `content` models the content of a folio; the exclusive owner of the folio writes it.

use crate::cache::Cache;
use crate::flush::{Flush, SyncLevel, Turn};
use crate::folio::{Folio, FolioId, LOCKED, UPTODATE, WAITERS};
use crate::mapping::Mapping;
use crate::page_wait::Reason;
use crate::pages::Pages;
use crate::pin::Pin;
use crate::primitives::{Acquire, Arc, AtomicU32, Mutex, Relaxed, Release};
use crate::room::Room;
use crate::tree::Tag;
use loom::thread;
use nowait_retry::WaitEntry;
use nowait_sys::Errno;
use nowait_sys::primitives::{futex_wait, futex_wake};
use nowait_sys::time::Deadline;
use std::task::Wake;

fn fill(mapping: &Mapping, index: u64) -> FolioId {
    let mut created = Vec::new();
    mapping.create_missing(index, index + 1, &mut created).unwrap();
    let folio = mapping.cache().frames.folio(created[0]);
    folio.content.store(content(mapping, index), Relaxed);
    mapping.filled(created[0], Ok(()), &mut Vec::new());
    created[0]
}

fn content(mapping: &Mapping, index: u64) -> u32 {
    mapping.number() * 100 + index as u32
}

fn check(pin: &Pin<'_>, mapping: &Mapping, index: u64) {
    if pin.state().is_uptodate() {
        let found = pin.folio().content.load(Relaxed);
        assert_eq!(found, content(mapping, index), "the content of another page");
    }
}

fn reuse(find: for<'a> fn(&'a Mapping, u64) -> Option<Pin<'a>>) {
    loom::model(move || {
        let cache = Cache::with_frames(1);
        let (old, new) = (Mapping::new(&cache), Mapping::new(&cache));
        let id = fill(&old, 0);
        let reader = old.clone();
        let reader = thread::spawn(move || {
            if let Some(pin) = find(&reader, 0) {
                check(&pin, &reader, 0);
            }
        });
        if cache.evict(id) {
            assert_eq!(fill(&new, 1), id, "the only frame");
        }
        reader.join().unwrap();
    });
}

/// The mistake: trusts the tree, and does not compare the identity after pinning.
fn find_unchecked(mapping: &Mapping, index: u64) -> Option<Pin<'_>> {
    let number = mapping.prefetch(index);
    let id = FolioId::new(number)?;
    mapping.cache().frames.folio(id).try_pin(index)?;
    Some(Pin::adopt(&mapping.cache().frames, id))
}

#[test]
fn loom_a_stale_look_up_never_returns_another_page() {
    reuse(Mapping::find);
}

#[test]
#[should_panic(expected = "the content of another page")]
fn loom_canary_an_identity_that_is_not_compared() {
    reuse(find_unchecked);
}

#[test]
fn loom_a_detached_folio_is_freed_once_by_the_last_pin() {
    loom::model(|| {
        let cache = Cache::with_frames(1);
        let mapping = Mapping::new(&cache);
        fill(&mapping, 0);
        let reader = mapping.clone();
        let reader = thread::spawn(move || {
            if let Some(pin) = reader.find(0) {
                check(&pin, &reader, 0);
            }
        });
        mapping.truncate(0).unwrap();
        reader.join().unwrap();
        assert_eq!(cache.frames.free_frames(), 1);
    });
}

struct Kicked(AtomicU32);

impl Wake for Kicked {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Release);
        futex_wake(&self.0, 1);
    }
}

impl Kicked {
    fn new() -> Arc<Kicked> {
        Arc::new(Kicked(AtomicU32::new(0)))
    }

    fn entry(self: &Arc<Kicked>) -> WaitEntry {
        WaitEntry::from(self.clone())
    }

    fn sleep(&self) {
        while self.0.load(Acquire) == 0 {
            let _ = futex_wait(&self.0, 0, Deadline::NEVER);
        }
    }
}

type Arm = fn(&Mapping, &Pin<'_>, WaitEntry) -> bool;

fn wait(arm: Arm, kick: fn(Vec<WaitEntry>)) {
    loom::model(move || {
        let cache = Cache::with_frames(1);
        let mapping = Mapping::new(&cache);
        let mut created = Vec::new();
        mapping.create_missing(0, 1, &mut created).unwrap();
        let device = mapping.clone();
        let device = thread::spawn(move || {
            let mut woken = Vec::new();
            device.filled(created[0], Ok(()), &mut woken);
            kick(woken);
        });
        let kicked = Kicked::new();
        let pin = mapping.look_up(0).unwrap();
        let armed = arm(&mapping, &pin, kicked.entry());
        let uptodate = pin.state().is_uptodate();
        device.join().unwrap();
        let kicks = kicked.0.load(Relaxed);
        assert!(armed || uptodate, "told to look again, and nothing was there");
        assert_eq!(kicks, u32::from(armed), "as many kicks as entries");
    });
}

#[test]
fn loom_a_wake_up_is_not_lost() {
    wait(in_order, kick_all);
}

#[test]
#[should_panic(expected = "as many kicks as entries")]
fn loom_canary_looking_before_arming_loses_it() {
    let late: Arm =
        |mapping, pin, entry| mapping.cache().waits.arm_late(pin, Reason::Unlocked, entry);
    wait(late, kick_all);
}

#[test]
#[should_panic(expected = "as many kicks as entries")]
fn loom_canary_a_release_that_kicks_no_entry() {
    wait(in_order, drop);
}

fn in_order(mapping: &Mapping, pin: &Pin<'_>, entry: WaitEntry) -> bool {
    mapping.wait(pin, Reason::Unlocked, || entry)
}

fn kick_all(woken: Vec<WaitEntry>) {
    woken.into_iter().for_each(WaitEntry::wake);
}

fn a_frame_is_freed(find: fn(&Room, &Mutex<bool>, &Arc<Kicked>) -> bool, notice: fn(&Room)) {
    loom::model(move || {
        let shared = Arc::new((Room::default(), Mutex::new(false)));
        let other = shared.clone();
        let other = thread::spawn(move || {
            *other.1.lock() = true;
            notice(&other.0);
        });
        let kicked = Kicked::new();
        if !find(&shared.0, &shared.1, &kicked) {
            kicked.sleep();
            assert!(*shared.1.lock(), "kicked for nothing");
        }
        other.join().unwrap();
    });
}

fn arm_and_look(room: &Room, free: &Mutex<bool>, kicked: &Arc<Kicked>) -> bool {
    room.arm(kicked.entry());
    *free.lock()
}

#[test]
fn loom_a_freed_frame_is_noticed() {
    a_frame_is_freed(arm_and_look, Room::notice);
}

#[test]
#[should_panic(expected = "deadlock")]
fn loom_canary_a_frame_freed_in_silence() {
    a_frame_is_freed(arm_and_look, |_| {});
}

#[test]
#[should_panic(expected = "deadlock")]
fn loom_canary_looking_for_a_frame_before_arming() {
    let look_and_arm = |room: &Room, free: &Mutex<bool>, kicked: &Arc<Kicked>| {
        let found = *free.lock();
        room.arm(kicked.entry());
        found
    };
    a_frame_is_freed(look_and_arm, Room::notice);
}

/// A sync that finds a flush running needs the next flush.
fn two_syncs(kick: fn(Vec<WaitEntry>)) {
    loom::model(move || {
        let flush = Arc::new(Flush::default());
        let sync = move |flush: &Flush| {
            let mut ticket = None;
            loop {
                let kicked = Kicked::new();
                match flush.join(&mut ticket, SyncLevel::Data, || kicked.entry()) {
                    Turn::Over(result) => return result.unwrap(),
                    Turn::Wait => kicked.sleep(),
                    Turn::Start(op) => {
                        let mut woken = Vec::new();
                        flush.end(op, Ok(()), &mut woken);
                        kick(woken);
                    }
                }
            }
        };
        let other = flush.clone();
        let other = thread::spawn(move || sync(&other));
        sync(&flush);
        other.join().unwrap();
    });
}

#[test]
fn loom_a_shared_flush_ends_all_that_joined_it() {
    two_syncs(kick_all);
}

#[test]
#[should_panic(expected = "deadlock")]
fn loom_canary_a_flush_that_ends_in_silence() {
    two_syncs(drop);
}

fn churn(find: for<'a> fn(&'a Mapping, u64) -> Option<Pin<'a>>) {
    loom::model(move || {
        let cache = Cache::with_frames(2);
        let mapping = Mapping::new(&cache);
        fill(&mapping, 0);
        let reader = mapping.clone();
        let reader = thread::spawn(move || {
            let pin = reader.find(0).expect("a page that stays is found without the lock");
            check(&pin, &reader, 0);
            drop(pin);
            if let Some(pin) = find(&reader, 2) {
                check(&pin, &reader, 2);
            }
        });
        let id = fill(&mapping, 2);
        if cache.evict(id) {
            fill(&mapping, 5);
        }
        reader.join().unwrap();
    });
}

#[test]
fn loom_look_ups_survive_growth_and_recycling() {
    churn(Mapping::find);
}

#[test]
#[should_panic(expected = "the content of another page")]
fn loom_canary_a_recycled_node_leads_to_another_page() {
    churn(find_unchecked);
}

#[test]
fn loom_freeze_and_pin_exclude_each_other() {
    loom::model(|| {
        let folio = Arc::new(Folio::new());
        folio.publish(1, 0, UPTODATE);
        let other = folio.clone();
        let pinner = thread::spawn(move || match other.try_pin(0) {
            Some(before) => {
                assert!(!before.is_frozen());
                let _ = other.unpin();
                true
            }
            None => false,
        });
        let frozen = folio.freeze(0, LOCKED | WAITERS);
        let pinned = pinner.join().unwrap();
        assert!(frozen || pinned, "one of the two gets it");
    });
}

fn failed_writeback(end: fn(&Mapping, FolioId)) {
    loom::model(move || {
        let cache = Cache::with_frames(1);
        let mapping = Mapping::new(&cache);
        let id = fill(&mapping, 0);
        mapping.find_to_write(0).unwrap().1.unwrap();
        mapping.changed(id, Pages::range(0, 1), &mut Vec::new());
        let mut run = Vec::new();
        let _ = mapping.start_writeback(0, 0, Tag::Dirty, 1, &mut run);
        let before = cache.frames.folio(id).written();
        let device = mapping.clone();
        let device = thread::spawn(move || end(&device, id));
        if cache.frames.folio(id).written() != before {
            assert_eq!(mapping.write_error(0, 0), Some(Errno::IO), "the sync misses the error");
        }
        device.join().unwrap();
        assert_eq!(mapping.write_error(0, 0), Some(Errno::IO));
    });
}

#[test]
fn loom_a_sync_that_sees_the_end_of_a_writeback_sees_how_it_ended() {
    failed_writeback(|mapping, id| {
        _ = mapping.written(id, Pages::ALL, Err(Errno::IO), &mut Vec::new())
    });
}

#[test]
fn loom_a_sync_that_sees_an_older_failure_sees_why() {
    loom::model(|| {
        let cache = Cache::with_frames(1);
        let mapping = Mapping::new(&cache);
        let id = fill(&mapping, 0);
        mapping.find_to_write(0).unwrap().1.unwrap();
        mapping.changed(id, Pages::range(0, 1), &mut Vec::new());
        for result in [Err(Errno::IO), Ok(())] {
            let _ = mapping.start_writeback(0, 0, Tag::Dirty, 1, &mut Vec::new());
            let device = mapping.clone();
            let device =
                thread::spawn(move || device.written(id, Pages::ALL, result, &mut Vec::new()));
            let error = mapping.write_error(0, 0);
            assert!(matches!(error, None | Some(Errno::IO)), "{error:?}");
            device.join().unwrap();
        }
        assert_eq!(mapping.write_error(0, 0), None);
    });
}

#[test]
#[should_panic(expected = "the sync misses the error")]
fn loom_canary_an_end_that_is_counted_before_its_error() {
    failed_writeback(|mapping, id| mapping.written_early(id, Err(Errno::IO)));
}

fn lent(lend: fn(&Mapping) -> Option<Pin<'_>>) {
    let mut builder = loom::model::Builder::new();
    // The canary fails only with 3 preemptions or more; the quick form of the CI job allows 2.
    builder.preemption_bound = Some(3);
    builder.check(move || {
        let cache = Cache::with_frames(1);
        let mapping = Mapping::new(&cache);
        let id = fill(&mapping, 0);
        let reader = mapping.clone();
        let reader = thread::spawn(move || {
            let Some(pin) = lend(&reader) else { return };
            let seen = pin.folio().content.load(Relaxed);
            assert_eq!(seen, pin.folio().content.load(Relaxed), "lent bytes changed");
            reader.give_back_guard(pin);
        });
        let kicked = Kicked::new();
        let mut armed = false;
        let (pin, locked) = mapping.find_to_write(0).unwrap();
        match locked {
            Ok(()) => {
                pin.folio().content.store(7, Relaxed);
                mapping.unlock(id, &mut Vec::new());
            }
            Err(reason) => {
                armed = mapping.wait(&pin, reason, || kicked.entry());
            }
        }
        reader.join().unwrap();
        assert_eq!(kicked.0.load(Relaxed), u32::from(armed), "as many kicks as entries");
        let free = !pin.state().is_guarded() && !pin.state().has(WAITERS | LOCKED);
        assert!(free, "it has no owner, no operation waits");
    });
}

#[test]
fn loom_lent_bytes_do_not_change_and_the_writer_is_kicked() {
    lent(|mapping| mapping.find_guarded(0));
}

#[test]
#[should_panic(expected = "lent bytes changed")]
fn loom_canary_lending_what_is_being_changed() {
    lent(|mapping| {
        let pin = mapping.look_up(0)?;
        pin.folio().guard_unchecked().then_some(pin)
    });
}
