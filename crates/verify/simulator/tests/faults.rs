//! The n-th request fails, for every n.

use nowait_cache::{Cache, SyncLevel};
use nowait_sim::{Config, Faults, SimDevice};
use nowait_simulator::medium::{FD, prepare};
use nowait_simulator::scenario::Below;
use nowait_simulator::{Executor, Op, Profile, Scenario, What, run, shrink::explain};
use nowait_sys::Errno;

/// More requests than any scenario here has.
const REQUESTS_MAX: u64 = 10_000;

#[test]
fn no_error_is_lost_whichever_request_fails() {
    for (seed, errno) in (0..24).zip([Errno::IO, Errno::NOSPC].into_iter().cycle()) {
        let scenario = Scenario::draw(seed, 60, Profile::Power);
        for n in 0..=REQUESTS_MAX {
            assert!(n < REQUESTS_MAX, "the sweep does not end");
            let mut failing = scenario.clone();
            let Below::Sim(config) = &mut failing.setup.below else { unreachable!("a device") };
            config.faults = Faults::fail_nth(n, errno);
            match run::run(&failing) {
                Err(failure) => panic!("request {n} fails with {errno:?}: {failure}"),
                Ok(report) if report.fired == 0 => break,
                Ok(_) => {}
            }
        }
    }
}

fn result(executor: &mut Executor<'_>, op: &Op) -> Result<u32, Errno> {
    executor.submit(op);
    executor.drain().expect("nothing hangs");
    let ended = |what| match what {
        What::Ended(result, _) => Some(result),
        _ => None,
    };
    let mut events = executor.take_events().into_iter().rev();
    events.find_map(|event| ended(event.what)).expect("it has ended")
}

#[test]
fn a_device_that_writes_nothing_hangs_no_caller() {
    let faults = |read_error_ppm, flush_error_ppm| Faults {
        read_error_ppm,
        write_error_ppm: 1_000_000,
        flush_error_ppm,
        ..Faults::none()
    };
    for seed in 0..100 {
        for faults in [faults(0, 0), faults(300_000, 300_000), faults(1_000_000, 1_000_000)] {
            let mut scenario = Scenario::draw(seed, 300, Profile::Faulty);
            let Below::Sim(config) = &mut scenario.setup.below else { unreachable!("a device") };
            config.faults = faults;
            if let Err(text) = explain(&scenario) {
                panic!("{text}");
            }
        }
    }
}

#[test]
fn a_full_device_hangs_no_caller_and_is_reported() {
    let mut reported = 0;
    for seed in 0..100 {
        let mut scenario = Scenario::draw(seed, 300, Profile::Faulty);
        let Below::Sim(config) = &mut scenario.setup.below else { unreachable!("a device") };
        config.faults = Faults { capacity_bytes: Some(16 << 10), ..Faults::none() };
        match explain(&scenario) {
            Ok(report) => reported += u64::from(report.sync_errors > 0),
            Err(text) => panic!("{text}"),
        }
    }
    assert!(reported > 50, "{reported} of 100");
}

#[test]
fn an_fsync_reports_the_write_or_flush_that_failed() {
    let fsync = Op::Sync { from: 0, last: u64::MAX, durable: SyncLevel::All };
    for n in 0..REQUESTS_MAX {
        let config = Config { faults: Faults::fail_nth(n, Errno::IO), ..Config::new(n) };
        let device = SimDevice::new(&config);
        prepare(&device, 0);
        let cache = Cache::with_frames(256);
        let mut executor = Executor::new(&device, &cache, 0, 512, n);
        for run in 0..5 {
            let (offset, len) = (Some(run * 100_000), 50_000);
            let write = Op::Write { offset, len, pieces: 1, durable: None };
            assert!(result(&mut executor, &write).is_ok() || device.fired() == 1);
        }
        let reported = result(&mut executor, &fsync);
        if device.fired() == 0 {
            assert_eq!(reported, Ok(0));
            assert!(n > 5, "only {n} requests");
            return;
        }
        assert_eq!(reported, Err(Errno::IO), "request {n} failed in silence");
        // The sync writes the page of a failed write again; only the error of a flush may stay.
        if result(&mut executor, &fsync).is_err() {
            executor.file().forgive();
            assert_eq!(result(&mut executor, &fsync), Ok(0));
        }
        assert_eq!(device.durable_contents(FD), device.contents(FD));
        assert_eq!(cache.dirty_frames(), 0);
    }
    panic!("the sweep does not end");
}
