//! The conformance suite, run on all backends but `Null`. The suite also runs on simulated devices,
//! in `crates/verify/sim`.

#[path = "support/patient.rs"]
mod patient;
#[path = "support/signals.rs"]
mod signals;
mod suite;

use nowait_block::{
    BlockBackend,
    backends::{
        aio::Kaio,
        error::{Error, Fault, When},
        mem::Mem,
        threads::{Threads, ThreadsConfig},
        uring::Uring,
    },
    skip::note_skip_here,
};
use nowait_sys::{Errno, eventfd::EventFd, inspect::O_DIRECT, uring::Issuer};
use patient::Patient;
use std::{
    fs::{File, OpenOptions},
    io::Write,
    os::{fd::AsRawFd, unix::fs::OpenOptionsExt},
    sync::Arc,
};
use suite::{FILE_BYTES, Fixture, Lacks, conformance};

conformance! {
    uring_any => on_file(ring(Issuer::Any, 64));
    uring_in_turn => on_file(ring(Issuer::InTurn, 64));
    uring_single => on_file(ring(Issuer::Single, 64));
    uring_of_depth_one => on_file(ring(Issuer::Any, 1));
    uring_any_by_a_counter => on_file(ring_by_a_counter(Issuer::Any));
    uring_single_by_a_counter => on_file(ring_by_a_counter(Issuer::Single));
    kaio => on_file(Kaio::new(64));
    kaio_of_depth_one => on_file(Kaio::new(1));
    threads => on_file(pool(8));
    single_thread => on_file(pool(1));
    mem => Ok(in_memory(memory()));
    error_over_mem => Ok(in_memory(Error::new(memory(), rules())));
    error_over_threads => on_file(pool(4).map(|inner| Error::new(inner, rules())));
    patient_over_one_that_gives_up => Ok(in_memory(Patient::new(Error::new(memory(), gives_up()))));
}

/// [`Patient`] queues those bios again that the kernel has given up after a signal.
#[test]
fn claims_hold_while_signals_interrupt_the_waits() {
    let makes: [fn() -> Result<Fixture, String>; 2] =
        [|| on_file(ring(Issuer::Any, 1).map(Patient::new)), || on_file(Kaio::new(1))];
    for make in makes {
        match make() {
            Err(why) => note_skip_here(&why),
            Ok(_) => signals::under_signals(signals::nothing, || {
                suite::suite(&|| make().expect("it worked before"));
            }),
        }
    }
}

fn ring(issuer: Issuer, depth: u32) -> Result<Uring, Errno> {
    Uring::new(depth, issuer, None)
}

fn ring_by_a_counter(issuer: Issuer) -> Result<Uring, Errno> {
    Uring::new(64, issuer, Some(Arc::new(EventFd::new()?)))
}

fn pool(max_workers: usize) -> Result<Threads, Errno> {
    Threads::new(ThreadsConfig { max_workers, ..ThreadsConfig::default() })
}

fn memory() -> Mem {
    Mem::new(FILE_BYTES, 64, 7)
}

/// Returns rules that hit no bio: with them `Error` must behave like the wrapped backend.
fn rules() -> Vec<(When, Fault)> {
    vec![(When::Nth(u64::MAX), Fault::Short(0)), (When::EveryNth(0), Fault::Fail(Errno::IO))]
}

fn gives_up() -> Vec<(When, Fault)> {
    vec![(When::EveryNth(3), Fault::Fail(Errno::CANCELED))]
}

fn on_file<B: BlockBackend + 'static>(backend: Result<B, Errno>) -> Result<Fixture, String> {
    let backend = backend.map_err(|errno| errno.to_string())?;
    let file = tempfile::NamedTempFile::new().map_err(|error| error.to_string())?;
    // Writes the bytes instead of only setting the length: in a hole even misaligned direct reads
    // succeed.
    file.as_file().write_all(&vec![0; FILE_BYTES]).map_err(|error| error.to_string())?;
    let direct = OpenOptions::new().read(true).write(true).custom_flags(O_DIRECT).open(&file).ok();
    Ok(Fixture {
        backend: Box::new(backend),
        fd: file.as_raw_fd(),
        direct_fd: direct.as_ref().map(File::as_raw_fd),
        clock: None,
        lacks: Lacks::default(),
        _keep: Box::new((file, direct)),
    })
}

fn in_memory<B: BlockBackend + 'static>(backend: B) -> Fixture {
    let lacks = Lacks {
        descriptors: Some("the device in memory has no descriptors"),
        polls: Some("the device in memory has no descriptors"),
        growth: Some("the device in memory has a fixed size"),
        threads: None,
    };
    Fixture {
        backend: Box::new(backend),
        fd: -1,
        direct_fd: None,
        clock: None,
        lacks,
        _keep: Box::new(()),
    }
}
