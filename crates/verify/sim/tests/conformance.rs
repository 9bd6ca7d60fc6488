//! The conformance suite of all backends, on devices without faults.

#[path = "../../../core/block/tests/suite/mod.rs"]
mod suite;

use nowait_sim::{Config, Model, SimDevice};
use suite::{FILE_BYTES, Fixture, Lacks, conformance};

conformance! {
    any_order => Ok(simulated(&Config::new(1)));
    at_once => Ok(simulated(&Config { model: Model::constant(0), ..Config::new(2) }));
    depth_one => Ok(simulated(&Config { depth: 1, ..Config::new(3) }));
    large_sectors => Ok(simulated(&Config { sector_bytes: 4096, ..Config::new(4) }));
    flash => Ok(simulated(&Config { model: Model::flash(), ..Config::new(5) }));
    disk => Ok(simulated(&Config { model: Model::disk(), ..Config::new(6) }));
}

fn simulated(config: &Config) -> Fixture {
    let device = SimDevice::new(config);
    device.create(3, FILE_BYTES as u64);
    device.open_direct(3, 4);
    let lacks = Lacks {
        polls: Some("the simulated device has files only"),
        threads: Some("in virtual time there is one thread: a wait for another would hang"),
        ..Lacks::default()
    };
    Fixture {
        clock: Some(device.clock()),
        backend: Box::new(device),
        fd: 3,
        direct_fd: Some(4),
        lacks,
        _keep: Box::new(()),
    }
}
