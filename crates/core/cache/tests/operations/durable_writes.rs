//! Durable writes: by durable bios of their own if possible, else by a shared flush.

use crate::rig::{KIB, MIB, Made, PAGE, Rig};
use nowait_block::BioOp;
use nowait_cache::SyncLevel;
use nowait_retry::Step;
use nowait_sys::{Errno, file::rwf};

fn rig() -> Rig {
    Rig::new(2 * MIB, MIB)
}

fn page(byte: u8) -> Vec<u8> {
    vec![byte; PAGE as usize]
}

fn write_unflushed(rig: &mut Rig, offset: u64) {
    rig.run_write(offset, page(7));
    rig.clean();
    rig.complete_all();
}

#[test]
fn a_durable_write_is_one_bio_and_no_flush() {
    for (durable, flags) in [(SyncLevel::Data, rwf::DSYNC), (SyncLevel::All, rwf::SYNC)] {
        let mut rig = rig();
        let (offset, len) = (64 * KIB, 96 * KIB);
        let mut write = rig.write_until(offset, vec![1; len as usize], Some(durable));
        assert_eq!(rig.iterate_write(&mut write), None);
        assert_eq!(rig.made, [Made { op: BioOp::Write, offset, len, flags }]);
        rig.complete_all();
        assert_eq!(rig.iterate_write(&mut write), Some(len as u32));
        assert_eq!((rig.made.len(), rig.cache.dirty_frames()), (1, 0));
    }
}

#[test]
fn durable_writes_end_in_the_order_of_their_own_bios() {
    let mut rig = rig();
    let offsets = [0, 256 * KIB, 128 * KIB];
    let mut writes = offsets.map(|at| rig.write_until(at, page(3), Some(SyncLevel::Data)));
    for write in &mut writes {
        assert_eq!(rig.iterate_write(write), None);
    }
    for write in &mut writes {
        rig.complete_oldest();
        assert_eq!(rig.iterate_write(write), Some(PAGE as u32), "the others are in flight");
    }
}

#[test]
fn a_large_durable_write_is_followed_by_one_flush() {
    let mut rig = Rig::new(8 * MIB, 4 * MIB);
    let mut write = rig.write_until(0, vec![1; 3 << 20], Some(SyncLevel::Data));
    while rig.iterate_write(&mut write).is_none() {
        rig.complete_all();
    }
    assert!(rig.made.iter().all(|made| made.flags == 0));
    assert_eq!(rig.cache.io_counts().flushes, 1);
}

#[test]
fn a_page_that_another_writes_makes_a_durable_write_wait_for_a_flush() {
    let mut rig = rig();
    rig.run_write(PAGE, page(1));
    rig.clean();
    let mut write = rig.write_until(0, vec![2; 2 * PAGE as usize], Some(SyncLevel::Data));
    assert_eq!(rig.iterate_write(&mut write), None, "its second page is being written");
    rig.clean();
    rig.complete_all();
    assert_eq!(rig.iterate_write(&mut write), None, "its first page was written by the cleaner");
    rig.complete_all();
    assert_eq!(rig.iterate_write(&mut write), None);
    assert_eq!(rig.made.last().unwrap().op, BioOp::Fdatasync);
    rig.complete_all();
    assert_eq!(rig.iterate_write(&mut write), Some(2 * PAGE as u32));
}

#[test]
fn a_page_beside_one_that_is_dirty_again_makes_a_durable_write_wait_for_a_flush() {
    let mut rig = rig();
    for folio in 0..2 {
        rig.run(None, folio * 2 * PAGE, 2 * PAGE);
    }
    rig.run_write(3 * PAGE, page(1));
    rig.clean();
    let mut write = rig.write_until(0, vec![2; 4 * PAGE as usize], Some(SyncLevel::Data));
    assert_eq!(rig.iterate_write(&mut write), None, "its second folio is being written");
    rig.clean();
    rig.complete_all();
    // `clean` has written the folio's other pages without making them durable, so the durable write
    // needs a flush.
    rig.run_write(0, page(3));
    assert_eq!(rig.iterate_write(&mut write), None);
    rig.complete_all();
    assert_eq!(rig.iterate_write(&mut write), None);
    assert_eq!(rig.made.last().unwrap().op, BioOp::Fdatasync);
    rig.complete_all();
    assert_eq!(rig.iterate_write(&mut write), Some(4 * PAGE as u32));
}

#[test]
fn a_failed_durable_write_says_so_and_a_later_sync_repairs_it() {
    let mut rig = rig();
    let mut write = rig.write_until(0, page(1), Some(SyncLevel::Data));
    assert_eq!(rig.iterate_write(&mut write), None);
    rig.fail_oldest(Errno::IO);
    assert_eq!(rig.step_write(&mut write), Step::Done(Err(Errno::IO)));
    assert_eq!(rig.sync(), Ok(0), "nothing else was at stake");
    assert_eq!(rig.cache.dirty_frames(), 0);
}

#[test]
fn a_failed_durable_write_that_the_cleaner_repeats_waits_for_a_flush() {
    let mut rig = rig();
    let mut write = rig.write_until(0, page(1), Some(SyncLevel::Data));
    assert_eq!(rig.iterate_write(&mut write), None);
    rig.fail_oldest(Errno::IO);
    rig.clean();
    rig.complete_all();
    assert_eq!(rig.iterate_write(&mut write), None, "it is written, but by a bio without a flush");
    assert_eq!(rig.made.last().unwrap().op, BioOp::Fdatasync);
    rig.complete_all();
    assert_eq!(rig.iterate_write(&mut write), Some(PAGE as u32));
}

#[test]
fn the_flush_of_a_durable_write_may_have_lost_what_others_wrote() {
    let mut rig = rig();
    write_unflushed(&mut rig, 512 * KIB);
    let mut write = rig.write_until(0, page(1), Some(SyncLevel::Data));
    assert_eq!(rig.iterate_write(&mut write), None);
    rig.fail_oldest(Errno::IO);
    assert_eq!(rig.step_write(&mut write), Step::Done(Err(Errno::IO)));
    assert_eq!(rig.sync(), Err(Errno::IO), "the page at 512 KiB may be lost");
    rig.file.forgive();
    assert_eq!(rig.sync(), Ok(0));
}

#[test]
fn a_durable_write_that_finds_no_room_has_lost_nothing_of_others() {
    let mut rig = rig();
    write_unflushed(&mut rig, 512 * KIB);
    let mut write = rig.write_until(0, page(1), Some(SyncLevel::Data));
    assert_eq!(rig.iterate_write(&mut write), None);
    rig.fail_oldest(Errno::NOSPC);
    assert_eq!(rig.step_write(&mut write), Step::Done(Err(Errno::NOSPC)));
    assert_eq!(rig.sync(), Ok(0));
}
