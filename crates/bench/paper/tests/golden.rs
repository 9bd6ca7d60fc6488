//! Compares the rows that are judged with lists of their figures, so that a change of behaviour
//! shows here.
//!
//! `PAPER_GOLDEN=write cargo test -p nowait-paper --test golden` writes the lists anew. The commit
//! that changes a list must explain the difference.

use std::fmt::Write;
use std::fs;
use std::path::Path;

use nowait_paper::{Row, Scale, tables};
use nowait_sim::Hardware;

/// A small scale where the results have the same pattern as with the sources' sizes. M9 and M13
/// need larger sizes for that.
const SCALE: Scale = Scale { randrw_file_bytes: 200 << 20, transactions: 4_000, ..Scale::SMALL };

/// Figures have six digits, because mathematical libraries may differ in the last bits.
fn list(device: &str) -> String {
    let hardware = Hardware::named(device).expect("known");
    let mut text = String::new();
    for table in tables(&hardware, SCALE, 1, |_| true) {
        for row in &table.rows {
            let verdict = match row.is_met() {
                Some(true) => "met   ",
                Some(false) => "missed",
                None => continue,
            };
            let Row { what, unit, baseline, nowait, .. } = row;
            let name = table.row;
            let _ = writeln!(text, "{verdict} {name} {what}: {baseline:.5e} → {nowait:.5e} {unit}");
        }
    }
    text
}

fn check(device: &str) {
    let name = device.trim_start_matches("sim:");
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/golden/{name}.txt"));
    let found = list(device);
    if std::env::var_os("PAPER_GOLDEN").is_some_and(|value| value == "write") {
        fs::write(&path, &found).expect("the list can be written");
    }
    let golden = fs::read_to_string(&path).expect("a list of this device");
    let differ = golden.lines().zip(found.lines()).filter(|(golden, found)| golden != found);
    let differ: Vec<String> =
        differ.map(|(golden, found)| format!("- {golden}\n+ {found}")).collect();
    assert!(differ.is_empty(), "{device}:\n{}", differ.join("\n"));
    assert_eq!(golden.lines().count(), found.lines().count(), "{device}");
}

#[test]
fn one_disk_gives_the_figures_that_it_gave() {
    check("sim:u2scsi");
}

#[test]
fn eighty_disks_give_the_figures_that_they_gave() {
    check("sim:raid20");
}
