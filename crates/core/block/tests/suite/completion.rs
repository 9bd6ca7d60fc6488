//! Claims that every accepted bio completes exactly once.

use super::{
    Claim, Fixture,
    fixture::{bio, many, one, pattern},
};
use nowait_block::{Bio, BioOp, Segments, skip::note_skip};
use nowait_sys::{Errno, file::IoVec, time::Deadline};

pub(super) const CLAIMS: &[Claim] = &[
    ("batch_completes_once_each", batch_completes_once_each),
    ("closed_descriptor_is_an_error", closed_descriptor_is_an_error),
    ("wrong_address_is_an_error", wrong_address_is_an_error),
    ("misaligned_direct_is_an_error", misaligned_direct_is_an_error),
    ("failures_do_not_hurt_their_neighbours", failures_do_not_hurt_their_neighbours),
    ("full_backend_gives_the_bio_back", full_backend_gives_the_bio_back),
    ("segment_list_may_go_before_the_end", segment_list_may_go_before_the_end),
    ("tokens_are_the_callers", tokens_are_the_callers),
];

const NO_DESCRIPTOR: i32 = i32::MAX;

fn batch_completes_once_each(fixture: &Fixture) {
    let count = fixture.backend.limits().depth.min(100);
    let mut buffers = vec![[0u8; 64]; count];
    for round in 0..20 {
        for (i, buffer) in buffers.iter_mut().enumerate() {
            let bio = fixture.read(buffer, i as i64 * 64, i as u64);
            assert!(fixture.backend.queue(bio).is_ok());
            if i % 7 == round % 7 {
                fixture.backend.commit();
            }
        }
        assert_eq!(fixture.backend.in_flight(), count);
        fixture.backend.commit();
        let mut tokens: Vec<u64> = fixture.reap(count).iter().map(|done| done.token).collect();
        tokens.sort_unstable();
        assert!(tokens.iter().copied().eq(0..count as u64));
        assert_eq!(fixture.backend.in_flight(), 0);
    }
    nothing_more(fixture);
}

pub(super) fn nothing_more(fixture: &Fixture) {
    let mut more = Vec::new();
    for _ in 0..8 {
        fixture.backend.reap(&mut more, 0, Deadline::NOW).expect("nothing can interrupt this");
    }
    assert_eq!(more, []);
}

fn closed_descriptor_is_an_error(fixture: &Fixture) {
    if !fixture.can("closed_descriptor_is_an_error", fixture.lacks.descriptors) {
        return;
    }
    let mut buffer = [0u8; 16];
    for op in [BioOp::Read, BioOp::Write, BioOp::Fsync, BioOp::Fdatasync, BioOp::Poll(1)] {
        let segments = if matches!(op, BioOp::Read | BioOp::Write) {
            one(&mut buffer)
        } else {
            Segments::NONE
        };
        for fd in [-1, NO_DESCRIPTOR] {
            let bio = bio(op, fd, segments.clone(), 0, 1);
            assert_eq!(fixture.run(bio), Err(Errno::BADF), "{op:?} on {fd}");
        }
    }
    nothing_more(fixture);
}

fn wrong_address_is_an_error(fixture: &Fixture) {
    for op in [BioOp::Read, BioOp::Write] {
        let nowhere = Segments::One(IoVec { base: core::ptr::without_provenance_mut(64), len: 16 });
        assert_eq!(fixture.run(bio(op, fixture.fd, nowhere, 0, 1)), Err(Errno::FAULT), "{op:?}");
    }
    nothing_more(fixture);
}

fn misaligned_direct_is_an_error(fixture: &Fixture) {
    if !fixture.can("misaligned_direct_is_an_error", fixture.lacks.descriptors) {
        return;
    }
    let Some(fd) = fixture.direct_fd else {
        return note_skip("misaligned_direct_is_an_error", "the file system has no O_DIRECT");
    };
    let mut buffer = vec![0u8; 4096];
    let bio = bio(BioOp::Read, fd, one(&mut buffer[..511]), 1, 1);
    assert_eq!(fixture.run(bio), Err(Errno::INVAL));
    nothing_more(fixture);
}

fn failures_do_not_hurt_their_neighbours(fixture: &Fixture) {
    let nowhere = IoVec { base: core::ptr::without_provenance_mut(64), len: 16 };
    let count = fixture.backend.limits().depth.min(8);
    let mut buffers = vec![[0u8; 16]; count];
    for (i, buffer) in buffers.iter_mut().enumerate() {
        let segments = if i % 3 == 1 { Segments::One(nowhere) } else { one(buffer) };
        let bio = bio(BioOp::Read, fixture.fd, segments, 0, i as u64);
        assert!(fixture.backend.queue(bio).is_ok());
    }
    fixture.backend.commit();
    for done in fixture.reap(count) {
        let expected = if done.token % 3 == 1 { Err(Errno::FAULT) } else { Ok(16) };
        assert_eq!(done.result, expected, "bio {}", done.token);
    }
    nothing_more(fixture);
}

fn full_backend_gives_the_bio_back(fixture: &Fixture) {
    let depth = fixture.backend.limits().depth;
    let mut buffer = [0u8; 1];
    for token in 0..depth as u64 {
        let bio = fixture.read(&mut buffer, 0, token);
        assert!(fixture.backend.queue(bio).is_ok(), "bio {token} of {depth}");
    }
    let back = fixture.backend.queue(fixture.read(&mut buffer, 0, 1 << 40));
    let back = back.expect_err("all of the depth is used up");
    assert_eq!((back.token, fixture.backend.in_flight()), (1 << 40, depth));
    fixture.backend.commit();
    let done = fixture.reap_at_least(1).len();
    assert_eq!(fixture.run_among(back, depth - done), Ok(1));
    nothing_more(fixture);
}

impl Fixture {
    fn run_among(&self, bio: Bio, others: usize) -> Result<u32, Errno> {
        let token = bio.token;
        self.start(bio);
        let done = self.reap(others + 1);
        done.iter().find(|done| done.token == token).expect("it completes").result
    }
}

fn segment_list_may_go_before_the_end(fixture: &Fixture) {
    let mut bytes = pattern(64, 3);
    for round in 0..50 {
        // The bio, which the backend consumes, is the only owner of the segment list.
        let segments = many(&mut bytes, &[16, 16, 32]);
        fixture.start(bio(BioOp::Write, fixture.fd, segments, round * 64, 1));
        // If the backend has freed the list too early, this allocation likely gets its memory.
        let overwritten = vec![usize::MAX; 6];
        assert_eq!(fixture.reap(1)[0].result, Ok(64));
        drop(overwritten);
    }
}

fn tokens_are_the_callers(fixture: &Fixture) {
    let mut buffer = [0u8; 1];
    for token in [0, 1, u64::MAX, 1 << 63, 1 << 63 | 1, 1 << 32] {
        assert_eq!(fixture.run(fixture.read(&mut buffer, 0, token)), Ok(1));
    }
    let count = fixture.backend.limits().depth.min(2);
    for _ in 0..count {
        assert!(fixture.backend.queue(fixture.read(&mut buffer, 0, 7)).is_ok());
    }
    fixture.backend.commit();
    assert!(fixture.reap(count).iter().all(|done| done.token == 7));
}
