//! One run of a secondary tier of vLLM: its folder, and the driver that acts as the scheduler.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use nowait_harness::error::{Context, Result};
use nowait_harness::metric::{Metric, Sample};
use serde::Deserialize;
use serde_json::Value;

use crate::programs::Way;
use crate::programs::python::{Package, Script};
use crate::programs::run::{Run, text};

/// The packages that vLLM's tiers import, without compilers and kernels for GPUs, codecs,
/// telemetry.
const IMPORTED: &str = "\
    torch==2.14.0 transformers==5.20.0 xgrammar==0.2.8 llguidance~=1.7.0 aiohttp cachetools \
    cbor2 cloudpickle fastapi huggingface_hub msgspec openai oss-harmony partial-json-parser \
    pillow prometheus_client psutil py-cpuinfo pybase64 pydantic pyyaml pyzmq regex requests \
    safetensors tokenizers uvloop";

pub(crate) const VLLM: Package =
    Package { first: IMPORTED, with: "numpy==2.4.6", ..Package::new("vllm", "0.33.0") };
pub(crate) const OURS: Package =
    Package { is_ours: true, ..Package::new("nowait-vllm", env!("CARGO_PKG_VERSION")) };

pub(crate) const DRIVER: &str = include_str!("drivers/kv_tier.py");

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Direction {
    Load,
    Store,
    Mixed,
}

/// The work of a tier: `in_flight` requests at a time, of eight blocks each.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Tier {
    direction: Direction,
    block_bytes: u64,
    in_flight: u32,
}

pub(crate) fn is_ours(way: &Way) -> bool {
    way.tier.get("module_path").is_some_and(|path| path == "nowait_vllm.tier")
}

/// Removes the blocks of the previous case.
pub(crate) fn begin(folder: &Path) -> Result<()> {
    remove(&blocks_in(folder))
}

impl Tier {
    /// Makes a run. In a case that only loads, the first run writes the blocks to load, and later
    /// runs find them: all measured tiers have the same files. Other runs first remove the blocks
    /// of earlier runs.
    pub(crate) fn run(&self, run: &Run<'_>) -> Result<Sample> {
        let direction = self.direction;
        let blocks = blocks_in(&run.tools.folder);
        let script = Script::new(run, "kv_tier.py", DRIVER)?;
        if direction != Direction::Load {
            remove(&blocks)?;
        }
        let is_new = !blocks.exists();
        fs::create_dir_all(&blocks).context(|| format!("create {}", blocks.display()))?;
        if is_new && direction != Direction::Store {
            let prepared = script.run(run, &blocks, &self.arguments(run, &blocks, "prepare"));
            // The next run would take an incomplete set of blocks for the whole.
            prepared.inspect_err(|_| drop(remove(&blocks)))?;
        }
        let name = format!("{direction:?}").to_lowercase();
        let mut sample = script.run(run, &blocks, &self.arguments(run, &blocks, &name))?;
        // If blocks move in one direction, one figure is zero; the other equals the figure of both
        // directions.
        if direction != Direction::Mixed {
            sample.retain(|metric, _| !is_of_one_direction(*metric));
        }
        Ok(sample)
    }

    fn arguments(&self, run: &Run<'_>, blocks: &Path, direction: &str) -> Vec<String> {
        let config = Value::from(run.way.tier.clone()).to_string();
        let numbers = [self.block_bytes, u64::from(self.in_flight), run.size_bytes];
        let words = [config, text(blocks), direction.to_owned()];
        words.into_iter().chain(numbers.map(|it| it.to_string())).collect()
    }
}

fn is_of_one_direction(metric: Metric) -> bool {
    matches!(metric, Metric::LoadedBytesPerS | Metric::StoredBytesPerS)
}

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
