//! The cache writes back only the pages that a write has changed.

use super::*;

const PAGES: u64 = 64;
const PAGE: u64 = FRAME_BYTES as u64;

fn page(bytes: &[u8], at: u64) -> &[u8] {
    &bytes[(at * PAGE) as usize..][..FRAME_BYTES]
}

#[test]
#[cfg_attr(miri, ignore = "megabytes")]
fn one_byte_written_writes_one_page() {
    let mut rig = rig(&patterned((PAGES * PAGE) as usize), 64, 1);
    ok(&rig.run(vec![read(0, (PAGES * PAGE) as usize)]));
    let before = rig.counts().pages_written;
    let (mut tasks, _) = rig.submit(vec![write(5 * PAGE + 1, vec![1])]);
    rig.finish(&mut tasks);
    let (mut tasks, bytes) = rig.submit(vec![Do::Sync(SyncLevel::All)]);
    assert_eq!(bytes, [FRAME_BYTES]);
    rig.finish(&mut tasks);
    assert_eq!(rig.counts().pages_written - before, 1);
}

#[test]
#[cfg_attr(miri, ignore = "megabytes")]
fn adjoining_dirty_pages_of_several_folios_are_one_bio() {
    let mut rig = rig(&patterned((PAGES * PAGE) as usize), 512, 1);
    for half in 0..2 {
        ok(&rig.run(vec![read(half * 32 * PAGE, 32 * FRAME_BYTES)]));
    }
    for (from, pages) in [(3, 1), (30, 4), (60, 2)] {
        ok(&rig.run(vec![write(from * PAGE, vec![1; pages * FRAME_BYTES])]));
    }
    let (mut tasks, bytes) = rig.submit(vec![Do::Sync(SyncLevel::All)]);
    assert_eq!(bytes, [1, 4, 2].map(|pages| pages * FRAME_BYTES));
    rig.finish(&mut tasks);
    assert_eq!(rig.cache.dirty_frames(), 0);
}

#[test]
#[cfg_attr(miri, ignore = "megabytes")]
fn what_another_process_wrote_beside_a_dirty_page_stays() {
    for seed in 1..=24 {
        let contents = patterned((PAGES * PAGE) as usize);
        let mut rig = rig(&contents, 64, seed);
        ok(&rig.run(vec![read(0, contents.len())]));
        let owners: Vec<u64> = (0..PAGES).map(|_| rig.random.below(3)).collect();
        for (at, owner) in (0..).zip(&owners) {
            match owner {
                0 => ok(&rig.run(vec![write(at * PAGE + 100, vec![9; 1000])])),
                1 => rig.zero_device(at * PAGE, (at + 1) * PAGE),
                _ => {}
            }
        }
        ok(&rig.run(vec![Do::Sync(SyncLevel::Data)]));
        let device = rig.device.contents();
        for (at, owner) in (0..).zip(&owners) {
            let mut expected = page(&contents, at).to_vec();
            match owner {
                0 => expected[100..1100].fill(9),
                1 => expected.fill(0),
                _ => {}
            }
            assert!(page(&device, at) == expected, "seed {seed}, page {at}: {owner}");
        }
    }
}

#[test]
#[cfg_attr(miri, ignore = "megabytes")]
fn what_failed_of_a_folio_is_written_again_and_nothing_else() {
    let apart = [2, 5, 9];
    for n in 0..apart.len() {
        let rules = vec![(When::Nth(1 + n as u64), Fault::Fail(Errno::NOSPC))];
        let mut rig = Rig::new(Error::new(Mem::new(DEVICE, DEPTH, 1), rules), 64, 16 * PAGE, 1);
        ok(&rig.run(vec![read(0, 16 * FRAME_BYTES)]));
        for at in apart {
            ok(&rig.run(vec![write(at * PAGE, vec![at as u8; FRAME_BYTES])]));
        }
        let first = rig.run(vec![Do::Sync(SyncLevel::Data)])[0].result;
        assert_eq!(first, Some(Err(Errno::NOSPC)), "bio {n}");
        let before = rig.counts().pages_written;
        ok(&rig.run(vec![Do::Sync(SyncLevel::Data)]));
        assert_eq!(rig.counts().pages_written - before, 1, "bio {n}");
        let device = rig.device.inner().contents();
        for at in apart {
            let written = page(&device, at);
            assert!(written.iter().all(|byte| *byte == at as u8), "page {at} of bio {n}");
        }
        assert_eq!(rig.cache.dirty_frames(), 0);
    }
}

#[test]
fn pages_that_are_cut_off_are_not_written_when_the_file_grows_again() {
    let mut rig = rig(&patterned((16 * PAGE) as usize), 64, 1);
    ok(&rig.run(vec![read(0, 16 * FRAME_BYTES)]));
    ok(&rig.run(vec![write(10 * PAGE, vec![1; FRAME_BYTES])]));
    let mut model = patterned((16 * PAGE) as usize);
    cut(&mut rig, &mut model, 4 * PAGE + 5);
    assert_eq!(rig.cache.dirty_frames(), 0, "its only dirty page is gone");
    ok(&rig.run(vec![write(15 * PAGE, vec![2; FRAME_BYTES])]));
    let before = rig.counts().pages_written;
    ok(&rig.run(vec![Do::Sync(SyncLevel::Data)]));
    assert_eq!(rig.counts().pages_written - before, 1);
}
