//! Compares the models with the figures of their own data sheets.

use nowait_block::{Bio, BioOp, BlockBackend, Segments};
use nowait_sim::{Config, Hardware, Prng, SimDevice};
use nowait_sys::{file::IoVec, time::Deadline};

const FD: i32 = 3;

#[derive(Clone, Copy)]
struct Work {
    op: BioOp,
    random: bool,
    len: usize,
    depth: usize,
    count: u64,
}

impl Work {
    const READ: Work = Work { op: BioOp::Read, random: true, len: 4096, depth: 1, count: 3_000 };
    const SEQUENTIAL: Work =
        Work { op: BioOp::Read, random: false, len: 128 << 10, depth: 32, count: 2_000 };
}

/// Runs `work` on the whole drive; returns operations a second, and a hash of all events.
fn run(name: &str, work: Work) -> (f64, u64) {
    let hardware = Hardware::named(name).expect("known");
    let bytes = hardware.drive_bytes() / 4096 * 4096;
    let config =
        Config { depth: 1024, hardware: Some(hardware), contents: false, ..Config::new(1) };
    let device = SimDevice::new(&config);
    device.create(FD, bytes);
    let mut buffer = vec![0_u8; work.len];
    let (mut prng, mut at, mut sent, mut ended) = (Prng::new(7), 0, 0, 0);
    let mut done = Vec::new();
    while ended < work.count {
        while sent < work.count && sent - ended < work.depth as u64 {
            let slots = bytes / work.len as u64;
            at = if work.random { prng.below(slots) } else { (at + 1) % slots };
            let offset = (at * work.len as u64) as i64;
            let segments = Segments::One(IoVec { base: buffer.as_mut_ptr(), len: work.len });
            // SAFETY: the buffer outlives the device's requests, which touch no memory.
            let bio = unsafe { Bio::new(work.op, FD, segments, offset, sent) };
            device.queue(bio).expect("there is room");
            sent += 1;
        }
        device.commit();
        device.reap(&mut done, 1, Deadline::NEVER).expect("never fails");
        ended += done.drain(..).filter(|one| one.result == Ok(work.len as u32)).count() as u64;
    }
    let seconds = device.clock().now_ns() as f64 / 1e9;
    (work.count as f64 / seconds, device.trace_hash())
}

fn iops(name: &str, work: Work) -> f64 {
    run(name, work).0
}

fn mb_per_s(name: &str, work: Work) -> f64 {
    iops(name, work) * work.len as f64 / 1e6
}

#[track_caller]
fn assert_near(measured: f64, figure: f64, tolerance: f64) {
    let deviation = (measured - figure).abs() / figure;
    assert!(deviation <= tolerance, "{measured:.2} is not {figure:.2} ± {:.0} %", tolerance * 1e2);
}

#[test]
fn every_parameter_file_is_well_formed() {
    for name in Hardware::names() {
        assert_eq!(Hardware::named(name).map(|hardware| hardware.name).as_deref(), Ok(name));
    }
    let unknown = Hardware::named("sim:tape").expect_err("there is none");
    assert!(unknown.contains("sim:u2scsi"), "{unknown}");
    assert!(Hardware::parse("name = 'x'\nabout = 'y'").is_err());
}

#[test]
fn disks_reach_their_sustained_rate() {
    assert_near(mb_per_s("sim:u2scsi", Work::SEQUENTIAL), 36.0, 0.03);
    assert_near(mb_per_s("sim:hdd", Work::SEQUENTIAL), 175.0, 0.03);
    let write = Work { op: BioOp::Write, ..Work::SEQUENTIAL };
    assert_near(mb_per_s("sim:u2scsi", write), 36.0, 0.03);
    // One drive of four disks: the buses have room for all four.
    let wide = Work { len: 1 << 20, ..Work::SEQUENTIAL };
    assert_near(mb_per_s("sim:raid20", wide), 4.0 * 36.0, 0.05);
}

#[test]
fn a_disk_at_depth_one_takes_its_average_seek_and_half_a_turn() {
    // In milliseconds: the command, the average seek, half a turn, and 4 KiB at the mean rate.
    assert_near(iops("sim:u2scsi", Work::READ), 1e3 / (0.15 + 4.9 + 2.99 + 0.14), 0.05);
    assert_near(iops("sim:hdd", Work::READ), 1e3 / (0.1 + 8.5 + 4.16 + 0.03), 0.05);
    let write = Work { op: BioOp::Write, ..Work::READ };
    assert_near(iops("sim:u2scsi", write), 1e3 / (0.15 + 5.5 + 2.99 + 0.14), 0.05);
    assert_near(iops("sim:hdd", write), 1e3 / (0.1 + 9.5 + 4.16 + 0.03), 0.05);
}

#[test]
fn a_disk_orders_its_queue() {
    let deep = Work { depth: 32, ..Work::READ };
    for name in ["sim:u2scsi", "sim:hdd"] {
        let gain = iops(name, deep) / iops(name, Work::READ);
        assert!((1.8..3.2).contains(&gain), "{name}: {gain:.2} times the depth-1 figure");
    }
    // Four arms, and a queue for each.
    let gain = iops("sim:raid20", deep) / iops("sim:raid20", Work::READ);
    assert!((4.0..8.0).contains(&gain), "sim:raid20: {gain:.2} times the depth-1 figure");
}

#[test]
fn a_write_in_sequence_that_comes_late_waits_for_a_turn() {
    let late = Work { op: BioOp::Write, len: 64 << 10, depth: 1, ..Work::SEQUENTIAL };
    // A turn of 6 ms and 1.82 ms of transfer for each 64 KiB.
    assert_near(mb_per_s("sim:u2scsi", late), 65.536 / (6.0 + 1.82), 0.02);
    // A sequential read finds its data read ahead.
    let read = Work { op: BioOp::Read, ..late };
    assert!(mb_per_s("sim:u2scsi", read) > 28.0);
}

#[test]
fn flash_meets_its_data_sheet() {
    let write = Work { op: BioOp::Write, ..Work::READ };
    let deep = |work| Work { depth: 32, count: 20_000, ..work };
    let sequential_write = Work { op: BioOp::Write, ..Work::SEQUENTIAL };
    assert_near(iops("sim:sata-ssd", Work::READ), 13_000.0, 0.02);
    assert_near(iops("sim:sata-ssd", write), 36_000.0, 0.02);
    assert_near(iops("sim:sata-ssd", deep(Work::READ)), 98_000.0, 0.03);
    assert_near(iops("sim:sata-ssd", deep(write)), 88_000.0, 0.03);
    assert_near(mb_per_s("sim:sata-ssd", Work::SEQUENTIAL), 560.0, 0.03);
    assert_near(mb_per_s("sim:sata-ssd", sequential_write), 530.0, 0.03);
    assert_near(iops("sim:nvme", Work::READ), 19_000.0, 0.02);
    assert_near(iops("sim:nvme", write), 60_000.0, 0.02);
    // The sheet's depth is 32 in each of four threads.
    let deepest = |work| Work { depth: 128, count: 60_000, ..work };
    assert_near(iops("sim:nvme", deepest(Work::READ)), 600_000.0, 0.03);
    assert_near(iops("sim:nvme", deepest(write)), 550_000.0, 0.03);
    assert!(iops("sim:nvme", deep(Work::READ)) > 500_000.0);
    assert_near(mb_per_s("sim:nvme", Work::SEQUENTIAL), 3500.0, 0.03);
    assert_near(mb_per_s("sim:nvme", sequential_write), 3300.0, 0.03);
}

#[test]
fn two_runs_are_the_same_event_for_event() {
    for name in Hardware::names() {
        let work = Work { depth: 16, ..Work::READ };
        assert_eq!(run(name, work), run(name, work), "{name}");
    }
}
