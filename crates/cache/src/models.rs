//! Models of the lock-free parts, in all interleavings, each with a canary that must fail.
//!
//! The content of a folio is modelled by `content`, written by whoever owns the folio alone.

use crate::cache::Cache;
use crate::folio::{Folio, FolioId, LOCKED, UPTODATE, WAITERS};
use crate::mapping::Mapping;
use crate::page_wait::Reason;
use crate::pin::Pin;
use crate::sync::{Arc, AtomicU32, Relaxed};
use loom::thread;
use nowait_retry::WaitEntry;
use nowait_retry::wait::Kickable;

/// Puts page `index` in, with its content.
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

/// A reader looks a page up while its frame is given to another file.
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

/// Trusts the tree: no comparison of the identity after pinning.
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

impl Kickable for Kicked {
    fn kick(self: Arc<Self>) {
        self.0.fetch_add(1, Relaxed);
    }
}

type Arm = fn(&Mapping, &Pin<'_>, WaitEntry) -> bool;

/// An operation waits for a page while the read of it ends.
fn wait(arm: Arm) {
    loom::model(move || {
        let cache = Cache::with_frames(1);
        let mapping = Mapping::new(&cache);
        let mut created = Vec::new();
        mapping.create_missing(0, 1, &mut created).unwrap();
        let device = mapping.clone();
        let device = thread::spawn(move || {
            let mut woken = Vec::new();
            device.filled(created[0], Ok(()), &mut woken);
            woken.into_iter().for_each(WaitEntry::kick);
        });
        let kicked = Arc::new(Kicked(AtomicU32::new(0)));
        let pin = mapping.look_up(0).unwrap();
        let armed = arm(&mapping, &pin, WaitEntry::Request(kicked.clone()));
        let uptodate = pin.state().is_uptodate();
        device.join().unwrap();
        let kicks = kicked.0.load(Relaxed);
        assert!(armed || uptodate, "told to look again, and nothing was there");
        assert_eq!(kicks, u32::from(armed), "as many kicks as entries");
    });
}

#[test]
fn loom_a_wake_up_is_not_lost() {
    wait(|mapping, pin, entry| mapping.wait(pin, Reason::Unlocked, || entry));
}

#[test]
#[should_panic(expected = "as many kicks as entries")]
fn loom_canary_looking_before_arming_loses_it() {
    wait(|mapping, pin, entry| mapping.cache().waits.arm_late(pin, Reason::Unlocked, entry));
}

/// Pages are looked up while others come and go, and the tree grows and recycles its nodes.
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

/// A writer wants a folio whose bytes are lent out by `lend`, unless that refuses.
fn lent(lend: fn(&Mapping) -> Option<Pin<'_>>) {
    let mut builder = loom::model::Builder::new();
    // The canary needs as many; the quick form of the job gives fewer.
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
        let kicked = Arc::new(Kicked(AtomicU32::new(0)));
        let mut armed = false;
        let (pin, locked) = mapping.find_to_write(0).unwrap();
        match locked {
            Ok(()) => {
                pin.folio().content.store(7, Relaxed);
                mapping.unlock(id, &mut Vec::new());
            }
            Err(reason) => {
                let entry = WaitEntry::Request(kicked.clone());
                armed = mapping.wait(&pin, reason, || entry);
            }
        }
        reader.join().unwrap();
        assert_eq!(kicked.0.load(Relaxed), u32::from(armed), "as many kicks as entries");
        let free = !pin.state().is_guarded() && !pin.state().has(WAITERS | LOCKED);
        assert!(free, "nobody has it, nobody waits");
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
