//! Changes of a file that bypass its cache: truncations, and writes by others.

use crate::rig::{KIB, Kicks, MIB, Rig, entry_of};
use nowait_cache::{Change, OpenFile};
use nowait_retry::Step;
use std::sync::Arc;

const PAGE: u64 = 4096;
const READY: Step = Step::Done(Ok(0));

struct Changing {
    change: Change,
    kicks: Arc<Kicks>,
}

impl Changing {
    fn new(change: Change) -> Changing {
        Changing { change, kicks: Arc::default() }
    }

    fn iterate(&mut self, rig: &mut Rig) -> Step {
        let mut plug = Vec::new();
        let step = self.change.iterate(&mut plug, &entry_of(&self.kicks));
        rig.queue(plug);
        step
    }
}

#[test]
fn a_change_waits_for_what_is_being_read_ahead_and_lets_no_more_be_read() {
    let mut rig = Rig::new(4 * MIB, 2 * MIB);
    let (open, mut plug) = (OpenFile::new(64), Vec::new());
    open.will_need(&rig.file, 0..64 * KIB, &mut plug);
    rig.queue(plug);
    let mut changing = Changing::new(Change::outside(&rig.file));
    assert_eq!(changing.iterate(&mut rig), Step::Retry, "the device reads what was there before");
    rig.complete_all();
    assert!(changing.kicks.count() > 0);
    assert_eq!(changing.iterate(&mut rig), READY);
    assert!(!rig.is_there(0), "nothing of it stays");

    let mut read = rig.read(0, PAGE);
    assert_eq!(rig.iterate(&mut read), None);
    open.will_need(&rig.file, 0..64 * KIB, &mut Vec::new());
    assert!(rig.file.mapping().look_up(0).is_none(), "nothing brings it in again");
    rig.write_device(0, vec![9; PAGE as usize]);
    changing.change.finish(2 * MIB);
    assert_eq!(read.kicks.count(), 1);
    assert_eq!(rig.iterate(&mut read), None, "now it is read");
    rig.complete_all();
    assert_eq!(rig.iterate(&mut read), Some(PAGE as u32));
    assert!(read.buffer.iter().all(|byte| *byte == 9));
}

#[test]
fn a_change_writes_what_is_dirty_first() {
    let mut rig = Rig::new(4 * MIB, 2 * MIB);
    rig.run_write(0, rig.pattern(0, PAGE).to_vec());
    let mut changing = Changing::new(Change::outside(&rig.file));
    assert_eq!(changing.iterate(&mut rig), Step::Retry);
    rig.complete_all();
    assert_eq!(changing.iterate(&mut rig), READY);
    assert_eq!(rig.cache.dirty_frames(), 0);
    changing.change.finish(100);
    assert_eq!((rig.file.size(), rig.is_there(0)), (100, false));
}

#[test]
fn the_pages_of_a_cut_stay_until_the_file_is_shorter_and_if_that_fails() {
    let mut rig = Rig::new(4 * MIB, 2 * MIB);
    rig.run_write(0, vec![5; 3 * PAGE as usize]);
    let mut cut = Changing::new(Change::cut(&rig.file, PAGE + 100));
    assert_eq!(cut.iterate(&mut rig), READY);
    let mut write = rig.write(2 * PAGE, vec![6; 10]);
    assert_eq!(rig.iterate_write(&mut write), None, "it takes place behind the cut");
    let dirty = rig.cache.dirty_frames();
    drop(cut);
    assert_eq!((rig.file.size(), rig.cache.dirty_frames()), (2 * MIB, dirty));
    assert_eq!(write.kicks.count(), 1);
    assert_eq!(rig.iterate_write(&mut write), Some(10));

    let mut cut = Changing::new(Change::cut(&rig.file, PAGE + 100));
    assert_eq!(cut.iterate(&mut rig), READY);
    cut.change.finish(PAGE + 100);
    assert_eq!((rig.file.size(), rig.file.disk_size()), (PAGE + 100, PAGE + 100));
    rig.run_write(2 * PAGE, vec![7; 10]);
    let lent = rig.file.pin_range(PAGE, 5000).unwrap();
    let bytes: Vec<u8> = lent.chunks().flatten().copied().collect();
    let expected = [vec![5; 100], vec![0; 3996], vec![7; 10]].concat();
    assert!(bytes == expected, "zero behind the cut");
}

/// The cut has locked every frame that is in use. The read finds no frame, and no I/O will end.
#[test]
fn a_cut_that_fails_kicks_the_operations_that_wait_for_a_frame() {
    let mut rig = Rig::new(4 * MIB, 16 * MIB);
    for offset in (MIB..8 * MIB).step_by(64 * KIB as usize) {
        rig.run(None, offset, 64 * KIB);
    }
    let mut cut = Changing::new(Change::cut(&rig.file, 64 * KIB));
    assert_eq!(cut.iterate(&mut rig), READY);
    let mut reads: Vec<_> = (0..16).map(|index| rig.read(index * PAGE, PAGE)).collect();
    let blocked = reads.iter_mut().find_map(|read| {
        let before = rig.in_flight_bytes();
        let waits = rig.iterate(read).is_none() && rig.in_flight_bytes() == before;
        waits.then_some(read)
    });
    let blocked = blocked.expect("a read without a frame");
    rig.complete_all();
    assert_eq!((rig.iterate(blocked), rig.in_flight_bytes()), (None, 0));
    let before = blocked.kicks.count();
    drop(cut);
    assert!(blocked.kicks.count() > before, "nothing else will kick it");
    assert_eq!((rig.iterate(blocked), rig.in_flight_bytes() > 0), (None, true));
    rig.complete_all();
    assert_eq!(rig.iterate(blocked), Some(PAGE as u32));
}

#[test]
fn a_write_that_meets_a_cut_takes_place_behind_it_as_a_whole() {
    let mut rig = Rig::new(4 * MIB, 2 * MIB);
    rig.run(None, 0, PAGE);
    let mut write = rig.write(0, vec![8; 6000]);
    assert_eq!(rig.iterate_write(&mut write), None);
    let mut cut = Changing::new(Change::cut(&rig.file, 0));
    assert_eq!(cut.iterate(&mut rig), Step::Retry);
    rig.complete_all();
    assert_eq!(cut.iterate(&mut rig), READY);
    assert_eq!(rig.iterate_write(&mut write), None, "it waits for the end of the cut");
    cut.change.finish(0);
    assert_eq!(rig.iterate_write(&mut write), Some(6000));
    let lent = rig.file.pin_range(0, 10_000).unwrap();
    assert_eq!((lent.len(), rig.file.size()), (6000, 6000));
    assert!(lent.chunks().flatten().all(|byte| *byte == 8), "all of it");
}

#[test]
fn changes_take_turns() {
    let mut rig = Rig::new(4 * MIB, 2 * MIB);
    let [mut first, mut second] = [0, 100].map(|size| Changing::new(Change::cut(&rig.file, size)));
    assert_eq!(first.iterate(&mut rig), READY);
    assert_eq!(second.iterate(&mut rig), Step::Retry);
    first.change.finish(0);
    assert_eq!((second.kicks.count(), second.iterate(&mut rig)), (1, READY));
    second.change.finish(100);
    assert_eq!(rig.file.size(), 100);
}
