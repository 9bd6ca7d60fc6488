//! The device while the power is on: time, faults, queues.

use nowait_block::{Bio, BioOp, BlockBackend, Completion, Segments};
use nowait_sim::{Config, Cut, Faults, Model, Prng, SimDevice};
use nowait_sys::{
    Errno,
    file::{IoVec, rwf},
    time::Deadline,
};

const FD: i32 = 3;
const CERTAIN_PPM: u32 = 1_000_000;

fn device(config: &Config) -> SimDevice {
    let device = SimDevice::new(config);
    device.create(FD, 8192);
    device
}

fn with_faults(faults: Faults) -> SimDevice {
    device(&Config { faults, ..Config::new(1) })
}

fn bio(op: BioOp, memory: &mut [u8], offset: i64, token: u64) -> Bio {
    let segments = match memory {
        [] => Segments::NONE,
        _ => Segments::One(IoVec { base: memory.as_mut_ptr(), len: memory.len() }),
    };
    // SAFETY: the tests keep the memory until they have reaped, or never reap again.
    unsafe { Bio::new(op, FD, segments, offset, token) }
}

fn flush(token: u64) -> Bio {
    bio(BioOp::Fsync, &mut [], 0, token)
}

fn start(device: &SimDevice, bio: Bio) {
    assert!(device.queue(bio).is_ok());
    device.commit();
}

fn reap(device: &SimDevice, min: usize) -> Vec<Completion> {
    let mut done = Vec::new();
    device.reap(&mut done, min, Deadline::NEVER).unwrap();
    done
}

fn run(device: &SimDevice, bio: Bio) -> Result<u32, Errno> {
    start(device, bio);
    let done = reap(device, 1);
    assert_eq!(done.len(), 1);
    done[0].result
}

fn write(device: &SimDevice, offset: i64, byte: u8, len: usize) -> Result<u32, Errno> {
    run(device, bio(BioOp::Write, &mut vec![byte; len], offset, 0))
}

#[test]
fn waiting_takes_the_time_of_the_model_and_no_other() {
    let device = device(&Config { model: Model::constant(3_600_000_000_000), ..Config::new(1) });
    assert_eq!(write(&device, 0, 1, 512), Ok(512));
    assert_eq!(device.clock().now_ns(), 3_600_000_000_000);
}

#[test]
fn a_deadline_comes_before_a_later_completion() {
    let device = device(&Config { model: Model::constant(1_000), ..Config::new(1) });
    start(&device, flush(7));
    let mut done = Vec::new();
    device.reap(&mut done, 1, Deadline::at_ns(999)).unwrap();
    assert_eq!((done.len(), device.clock().now_ns()), (0, 999));
    device.reap(&mut done, 1, Deadline::at_ns(1_000)).unwrap();
    assert_eq!((done.len(), device.clock().now_ns()), (1, 1_000));
}

#[test]
fn a_loop_of_looks_gets_on() {
    let device = device(&Config { model: Model::constant(1_000), ..Config::new(1) });
    start(&device, flush(7));
    let looks = (0..100).take_while(|_| reap(&device, 0).is_empty()).count();
    assert_eq!(looks, 10);
}

#[test]
fn a_clock_moved_by_others_brings_what_is_due() {
    let device = device(&Config { model: Model::constant(1_000), ..Config::new(1) });
    start(&device, flush(7));
    device.clock().advance(1_000);
    assert_eq!(reap(&device, 0).len(), 1);
}

#[test]
fn requests_of_one_unit_are_served_one_after_another() {
    let model = Model { units: 1, ..Model::constant(1_000) };
    let device = device(&Config { model, ..Config::new(1) });
    for token in 0..5 {
        assert!(device.queue(flush(token)).is_ok());
    }
    device.commit();
    let tokens: Vec<u64> = reap(&device, 5).iter().map(|done| done.token).collect();
    assert_eq!((tokens, device.clock().now_ns()), (vec![0, 1, 2, 3, 4], 5_000));
}

#[test]
fn completions_at_the_same_time_come_in_an_order_of_the_seed() {
    let order = |seed| {
        let device = device(&Config { model: Model::constant(10), ..Config::new(seed) });
        (0..20).for_each(|token| start(&device, flush(token)));
        reap(&device, 20).iter().map(|done| done.token).collect::<Vec<u64>>()
    };
    assert_eq!(order(1), order(1));
    assert_ne!(order(1), order(2));
}

#[test]
fn each_queue_gets_its_own_completions() {
    let first = device(&Config::new(1));
    let second = first.another_queue(2);
    start(&first, flush(1));
    start(&second, flush(2));
    start(&second, flush(2));
    assert!(second.queue(flush(2)).is_err(), "its depth is its own");
    // A reap of one queue may finish requests of the other queue, which keeps their completions.
    assert_eq!(reap(&second, 2).iter().map(|done| done.token).collect::<Vec<_>>(), [2, 2]);
    assert_eq!((first.in_flight(), second.in_flight()), (1, 0));
    assert_eq!(reap(&first, 1)[0].token, 1);
}

#[test]
#[should_panic(expected = "would hang: 1 in flight here, 0 of them not committed, 1 stuck")]
fn waiting_for_a_stuck_request_is_reported() {
    let device = with_faults(Faults { stuck_ppm: CERTAIN_PPM, ..Faults::none() });
    start(&device, flush(1));
    reap(&device, 1);
}

#[test]
#[should_panic(expected = "would hang: 1 in flight here, 1 of them not committed, 0 stuck")]
fn waiting_for_what_was_not_committed_is_reported() {
    let device = with_faults(Faults::none());
    assert!(device.queue(flush(1)).is_ok());
    reap(&device, 1);
}

#[test]
fn a_stuck_request_ends_when_cancelled_or_released() {
    let device = with_faults(Faults { stuck_ppm: CERTAIN_PPM, ..Faults::none() });
    let mut memory = [1; 512];
    start(&device, bio(BioOp::Write, &mut memory, 0, 1));
    start(&device, flush(2));
    let mut done = Vec::new();
    device.reap(&mut done, 1, Deadline::at_ns(1 << 40)).unwrap();
    assert_eq!(done, []);
    device.cancel(1);
    assert_eq!(reap(&device, 1), [Completion { token: 1, result: Err(Errno::CANCELED) }]);
    device.release_stuck();
    assert_eq!(reap(&device, 1), [Completion { token: 2, result: Ok(0) }]);
    assert!(device.contents(FD).unwrap().iter().all(|byte| *byte == 0));
}

#[test]
fn a_request_that_cannot_be_cancelled_completes_as_usual() {
    let device = with_faults(Faults { uncancelled_ppm: CERTAIN_PPM, ..Faults::none() });
    start(&device, flush(1));
    device.cancel(1);
    assert_eq!(reap(&device, 1)[0].result, Ok(0));
}

#[test]
fn a_poll_of_a_file_is_ready_and_one_for_nothing_waits() {
    let device = with_faults(Faults::none());
    assert_eq!(run(&device, bio(BioOp::Poll(0x1 | 0x2), &mut [], 0, 1)), Ok(1));
    start(&device, bio(BioOp::Poll(0), &mut [], 0, 2));
    device.release_stuck();
    device.cancel(2);
    device.cancel(2);
    assert_eq!(reap(&device, 1)[0].result, Err(Errno::CANCELED));
}

#[test]
fn bad_sectors_stay_bad_and_end_what_comes_before_them() {
    let device = with_faults(Faults { bad_sector_ppm: 100_000, ..Faults::none() });
    let is_bad: Vec<bool> = (0..16).map(|n| write(&device, n * 512, 1, 512).is_err()).collect();
    let first = is_bad.iter().position(|bad| *bad).expect("some are bad");
    assert!(is_bad.contains(&false) && first > 0, "{is_bad:?}");
    for _ in 0..3 {
        let mut memory = vec![0; 8192];
        let result = run(&device, bio(BioOp::Read, &mut memory, 0, 0));
        assert_eq!(result, Ok(first as u32 * 512));
        let mut sector = vec![0; 512];
        let result = run(&device, bio(BioOp::Read, &mut sector, first as i64 * 512, 0));
        assert_eq!(result, Err(Errno::IO));
    }
}

#[test]
fn a_full_device_comes_short_and_then_fails() {
    let device = with_faults(Faults { capacity_bytes: Some(1024), ..Faults::none() });
    assert_eq!(write(&device, 512, 1, 2048), Ok(1024));
    assert_eq!(write(&device, 4096, 1, 1), Err(Errno::NOSPC));
    assert_eq!(write(&device, 600, 2, 900), Ok(900), "no new sector is needed");
    device.punch(FD, 512..1024).unwrap();
    assert_eq!(write(&device, 4096, 1, 1), Ok(1));
}

#[test]
fn a_failed_write_may_have_changed_whole_sectors() {
    let faults =
        Faults { write_error_ppm: CERTAIN_PPM, partial_ppm: CERTAIN_PPM, ..Faults::none() };
    let device = with_faults(faults);
    let mut seen = [false; 2];
    for _ in 0..20 {
        assert_eq!(write(&device, 0, 9, 1024), Err(Errno::IO));
        for sector in device.contents(FD).unwrap().chunks(512) {
            assert!(sector.iter().all(|byte| *byte == sector[0]));
            seen[usize::from(sector[0] == 9)] = true;
        }
    }
    assert_eq!(seen, [true, true]);
}

#[test]
fn a_flush_that_began_before_a_write_ended_does_not_cover_it() {
    // The device serves one request at a time: first the write, then the flush.
    let model = Model { units: 1, ..Model::constant(1_000) };
    let device = device(&Config { model, ..Config::new(1) });
    let mut memory = [1; 512];
    start(&device, bio(BioOp::Write, &mut memory, 0, 1));
    start(&device, flush(2));
    assert!(reap(&device, 2).iter().all(|done| done.result.is_ok()));
    assert_eq!(device.contents(FD).unwrap()[0], 1);
    assert_eq!(device.durable_contents(FD).unwrap()[0], 0);
    run(&device, flush(3)).unwrap();
    assert_eq!(device.durable_contents(FD).unwrap()[0], 1);
}

#[test]
fn the_data_of_a_write_is_taken_when_it_is_performed_and_a_change_is_noticed() {
    let device = with_faults(Faults::none());
    let mut memory = [1; 512];
    start(&device, bio(BioOp::Write, &mut memory, 0, 1));
    memory.fill(2);
    assert_eq!(device.unstable(), 0);
    reap(&device, 1);
    assert_eq!((device.contents(FD).unwrap()[0], device.unstable()), (2, 1));
    start(&device, bio(BioOp::Write, &mut memory, 0, 1));
    reap(&device, 1);
    assert_eq!(device.unstable(), 1);
}

#[test]
fn flags_are_honoured_or_refused() {
    let device = with_faults(Faults::none());
    let run_flags = |flags, offset| {
        let mut memory = [5; 512];
        let mut bio = bio(BioOp::Write, &mut memory, offset, 0);
        bio.rw_flags = flags;
        run(&device, bio)
    };
    assert_eq!(run_flags(rwf::APPEND | rwf::SYNC, 0), Ok(512));
    assert_eq!(device.size(FD), Ok(8192 + 512));
    assert_eq!(device.durable_contents(FD).unwrap()[8192..], [5; 512]);
    assert_eq!(run_flags(1 << 20, 0), Err(Errno::OPNOTSUPP));
    assert_eq!(run_flags(0, -1), Err(Errno::INVAL));
    assert_eq!(run_flags(0, i64::MAX - 5), Err(Errno::INVAL));
}

#[test]
fn a_sweep_fails_every_request_once() {
    let mut n = 0;
    loop {
        let device = with_faults(Faults::fail_nth(n, Errno::IO));
        let results: Vec<_> = (0..6).map(|i| write(&device, i * 512, 1, 512)).collect();
        if device.fired() == 0 {
            break;
        }
        let failed: Vec<usize> = (0..6).filter(|i| results[*i] == Err(Errno::IO)).collect();
        assert_eq!(failed, [n as usize]);
        n += 1;
    }
    assert_eq!(n, 6);
}

#[test]
fn without_power_everything_ends_with_an_error() {
    let device = with_faults(Faults::none());
    let mut memory = [1; 512];
    device.cut_at(Cut::Queued(2));
    assert_eq!(write(&device, 0, 1, 512), Ok(512));
    start(&device, bio(BioOp::Write, &mut memory, 512, 1));
    assert!(!device.is_off());
    start(&device, flush(2));
    assert!(device.is_off());
    start(&device, flush(3));
    let done = reap(&device, 3);
    assert_eq!(done.iter().map(|done| done.token).collect::<Vec<_>>(), [1, 2, 3]);
    assert!(done.iter().all(|done| done.result == Err(Errno::IO)));
    assert_eq!(device.set_len(FD, 0), Err(Errno::IO));
    assert_eq!(device.in_flight(), 0);
}

#[test]
fn the_last_request_before_a_cut_completes() {
    let device = with_faults(Faults::none());
    device.cut_at(Cut::Completed(1));
    assert_eq!(write(&device, 0, 1, 512), Ok(512));
    assert_eq!(run(&device, flush(1)), Ok(0));
    assert!(device.is_off());
    assert_eq!(run(&device, flush(2)), Err(Errno::IO));
}

#[test]
fn a_write_being_served_at_a_cut_may_be_torn_and_may_have_grown_the_file() {
    let config = Config { faults: Faults::volatile_cache(), ..Config::new(1) };
    let device = device(&config);
    let mut memory = [1; 1024];
    start(&device, bio(BioOp::Write, &mut memory, 8192 - 512, 1));
    device.cut_power();
    assert_eq!(reap(&device, 1)[0].result, Err(Errno::IO));
    let mut prng = Prng::new(1);
    let mut seen: Vec<(u8, Option<u8>)> = Vec::new();
    for _ in 0..200 {
        let left = device.reboot(&config, &mut prng).contents(FD).unwrap();
        seen.push((left[8192 - 512], left.get(8192).copied()));
    }
    seen.sort_unstable();
    seen.dedup();
    let expected = [0, 1].map(|first| [(first, None), (first, Some(0)), (first, Some(1))]).concat();
    assert_eq!(seen, expected);
}

#[test]
fn what_was_never_served_leaves_nothing() {
    let model = Model { units: 1, ..Model::constant(1_000) };
    let config = Config { model, faults: Faults::volatile_cache(), ..Config::new(1) };
    let device = device(&config);
    let mut memory = [1; 512];
    start(&device, flush(0));
    start(&device, bio(BioOp::Write, &mut memory, 0, 1));
    assert!(device.queue(bio(BioOp::Write, &mut memory, 512, 2)).is_ok());
    device.cut_power();
    device.commit();
    assert_eq!(reap(&device, 3).len(), 3);
    let mut prng = Prng::new(1);
    for _ in 0..50 {
        let left = device.reboot(&config, &mut prng).contents(FD).unwrap();
        assert!(left.iter().all(|byte| *byte == 0));
    }
}

#[test]
fn a_cancelled_write_may_have_changed_whole_sectors() {
    let device = with_faults(Faults { partial_ppm: CERTAIN_PPM, ..Faults::none() });
    let mut memory = [9; 1024];
    let mut seen = [false; 2];
    for _ in 0..20 {
        start(&device, bio(BioOp::Write, &mut memory, 0, 1));
        device.cancel(1);
        assert_eq!(reap(&device, 1)[0].result, Err(Errno::CANCELED));
        seen[usize::from(device.contents(FD).unwrap()[0] == 9)] = true;
    }
    assert_eq!(seen, [true, true]);
}

#[test]
fn what_a_failed_flush_forgot_no_later_one_makes_durable() {
    let faults = Faults { fail: Some((1, Errno::IO)), forget_ppm: CERTAIN_PPM, ..Faults::none() };
    let device = with_faults(faults);
    assert_eq!(write(&device, 0, 1, 512), Ok(512));
    assert_eq!(run(&device, flush(1)), Err(Errno::IO));
    assert_eq!(run(&device, flush(2)), Ok(0));
    assert_eq!(device.contents(FD).unwrap()[0], 1);
    assert_eq!(device.durable_contents(FD).unwrap()[0], 0);
    assert_eq!(write(&device, 0, 1, 512), Ok(512));
    assert_eq!(run(&device, flush(3)), Ok(0));
    assert_eq!(device.durable_contents(FD).unwrap()[0], 1);
}
