//! One run of a secondary tier of vLLM's: its folder, and the driver that plays the scheduler.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use nowait_harness::error::{Context, Result};
use nowait_harness::metric::{Metric, Sample};
use serde_json::{Map, Value};

use super::Direction;
use crate::programs::python::Script;
use crate::programs::run::{Run, text};
use crate::programs::{Mode, Way};

const DRIVER: &str = include_str!("drivers/kv_tier.py");

/// The tier of a run, and what it is asked.
pub(super) struct Tier<'a> {
    pub(super) config: &'a Map<String, Value>,
    pub(super) block_bytes: u64,
    pub(super) in_flight: u32,
}

/// Says how the process of a tier is run.
pub(super) fn way(forbids_uring: bool) -> Way {
    Way { mode: Mode::Threads, preloads: false, forbids_uring }
}

/// Removes the blocks that the previous case has left.
pub(super) fn begin(folder: &Path) -> Result<()> {
    remove(&blocks_in(folder))
}

impl Tier<'_> {
    /// Makes a run. Loads find the blocks of the first run that needed some: the tiers measured
    /// have the same files. A run removes the blocks that it stores, so that no run finds them.
    pub(super) fn run(&self, run: &Run<'_>, direction: Direction) -> Result<Sample> {
        let blocks = blocks_in(&run.tools.folder);
        let script = Script::new(run, "kv_tier.py", DRIVER)?;
        if direction != Direction::Load {
            remove(&blocks)?;
        }
        let is_new = !blocks.exists();
        fs::create_dir_all(&blocks).context(|| format!("create {}", blocks.display()))?;
        if is_new && direction != Direction::Store {
            let prepared = script.run(run, &blocks, &self.arguments(run, &blocks, "prepare"));
            // Half of the blocks would be taken for all of them by the next run.
            prepared.inspect_err(|_| drop(remove(&blocks)))?;
        }
        let name = match direction {
            Direction::Load => "load",
            Direction::Store => "store",
            Direction::Mixed => "mixed",
        };
        let mut sample = script.run(run, &blocks, &self.arguments(run, &blocks, name))?;
        // Zero, or what the sum of both says as well.
        if direction != Direction::Mixed {
            sample.retain(|metric, _| !is_of_one_direction(*metric));
        }
        Ok(sample)
    }

    fn arguments(&self, run: &Run<'_>, blocks: &Path, direction: &str) -> Vec<String> {
        let config = Value::from(self.config.clone()).to_string();
        let numbers = [self.block_bytes, u64::from(self.in_flight), run.size_bytes];
        let words = [config, text(blocks), direction.to_owned()];
        words.into_iter().chain(numbers.map(|it| it.to_string())).collect()
    }
}

fn is_of_one_direction(metric: Metric) -> bool {
    matches!(metric, Metric::LoadedBytesPerS | Metric::StoredBytesPerS)
}

/// Returns the folder of the blocks of a case.
fn blocks_in(folder: &Path) -> PathBuf {
    folder.join("kv")
}

fn remove(folder: &Path) -> Result<()> {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(error).context(|| format!("remove {}", folder.display()))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_figure_of_the_driver_is_a_metric() {
        let (_, behind) = DRIVER.split_once("    return {\n").expect("figures");
        let (figures, _) = behind.split_once("    }\n").expect("an end");
        for key in figures.lines().map(|line| line.split('"').nth(1).unwrap_or_default()) {
            assert!(Metric::named(key).is_some(), "{key}");
        }
    }
}
