//! Claims on reads and writes.

use super::{
    Claim, FILE_BYTES, Fixture,
    fixture::{bio, many, pattern},
};
use nowait_block::{BioOp, Segments};

pub(super) const CLAIMS: &[Claim] = &[
    ("reads_see_writes", reads_see_writes),
    ("many_segments_are_one_transfer", many_segments_are_one_transfer),
    ("end_of_file_comes_short_and_then_zero", end_of_file_comes_short_and_then_zero),
    ("empty_transfers_succeed", empty_transfers_succeed),
    ("writes_beyond_the_end_make_the_file_longer", writes_beyond_the_end),
    ("fsync_succeeds", fsync_succeeds),
];

fn reads_see_writes(fixture: &Fixture) {
    for (seed, offset, len) in [(1, 0, 4096), (2, 5, 1), (3, 8192, 16384), (4, 65_535, 1)] {
        let mut written = pattern(len, seed);
        assert_eq!(fixture.run(fixture.write(&mut written, offset, 1)), Ok(len as u32));
        let mut read = vec![0; len];
        assert_eq!(fixture.run(fixture.read(&mut read, offset, 2)), Ok(len as u32));
        assert_eq!(read, written);
    }
}

fn many_segments_are_one_transfer(fixture: &Fixture) {
    let thousand: Vec<usize> = (0..1024).map(|i| i % 5).collect();
    for lengths in [&[100, 0, 4096, 1][..], &[0, 7], &[3, 0, 0], &thousand] {
        let len: usize = lengths.iter().sum();
        let mut written = pattern(len, lengths.len());
        let segments = many(&mut written, lengths);
        let result = fixture.run(bio(BioOp::Write, fixture.fd, segments, 10, 1));
        assert_eq!(result, Ok(len as u32));
        let mut read = vec![0; len];
        let backwards: Vec<usize> = lengths.iter().rev().copied().collect();
        let segments = many(&mut read, &backwards);
        let result = fixture.run(bio(BioOp::Read, fixture.fd, segments, 10, 2));
        assert_eq!((result, read), (Ok(len as u32), written));
    }
}

fn end_of_file_comes_short_and_then_zero(fixture: &Fixture) {
    let end = FILE_BYTES as i64;
    let mut buffer = vec![1; 4096];
    assert_eq!(fixture.run(fixture.read(&mut buffer, end - 10, 1)), Ok(10));
    assert_eq!(buffer[..11], [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]);
    assert_eq!(fixture.run(fixture.read(&mut buffer, end, 2)), Ok(0));
    assert_eq!(fixture.run(fixture.read(&mut buffer, end + 4096, 3)), Ok(0));
}

fn empty_transfers_succeed(fixture: &Fixture) {
    for op in [BioOp::Read, BioOp::Write] {
        let mut nothing = Vec::new();
        assert_eq!(fixture.run(bio(op, fixture.fd, Segments::NONE, 0, 1)), Ok(0));
        let segments = many(&mut nothing, &[0, 0]);
        assert_eq!(fixture.run(bio(op, fixture.fd, segments, 0, 2)), Ok(0));
    }
}

fn writes_beyond_the_end(fixture: &Fixture) {
    if !fixture.can("writes_beyond_the_end_make_the_file_longer", fixture.lacks.growth) {
        return;
    }
    let mut written = pattern(4096, 9);
    let offset = FILE_BYTES as i64 + 8192;
    assert_eq!(fixture.run(fixture.write(&mut written, offset, 1)), Ok(4096));
    let mut read = vec![1; 8192];
    assert_eq!(fixture.run(fixture.read(&mut read, offset - 4096, 2)), Ok(8192));
    assert!(read[..4096].iter().all(|byte| *byte == 0), "the hole is zero");
    assert_eq!(read[4096..], written);
}

fn fsync_succeeds(fixture: &Fixture) {
    let mut written = pattern(4096, 1);
    assert_eq!(fixture.run(fixture.write(&mut written, 0, 1)), Ok(4096));
    for op in [BioOp::Fsync, BioOp::Fdatasync] {
        assert_eq!(fixture.run(bio(op, fixture.fd, Segments::NONE, 0, 2)), Ok(0));
    }
}
