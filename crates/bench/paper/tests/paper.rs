//! Checks that equal seeds give equal tables, and that another seed gives other tables.

use nowait_paper::{Scale, Table, tables};
use nowait_sim::Hardware;

fn small(device: &str, seed: u64) -> Vec<Table> {
    tables(&Hardware::named(device).expect("known"), Scale::SMALL, seed, |_| true)
}

#[test]
fn two_runs_of_one_seed_are_the_same_to_the_last_bit() {
    for device in ["sim:u2scsi", "sim:raid20"] {
        assert_eq!(small(device, 17), small(device, 17), "{device}");
    }
    assert_ne!(small("sim:u2scsi", 17), small("sim:u2scsi", 18), "the seed has a say");
}
