//! thin_check of the thin-provisioning tools, which reads metadata through libaio.

use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::run::{Run, Tools, plain};
use nowait_harness::cache;
use nowait_harness::error::{Context, Result};
use nowait_harness::launch;
use nowait_harness::metric::{Metric, Sample};
use nowait_harness::order::Offsets;

/// Time limit for making the metadata, and for checking it.
const PATIENCE: Duration = Duration::from_mins(10);

/// The metadata has one mapped block for this many bytes of the requested size.
const BYTES_PER_MAPPING: u64 = 1024;
/// Most bytes of a mapping in the metadata: 16 in a leaf, which may be half empty, and a share of
/// the inner nodes.
const MAPPING_BYTES_MAX: u64 = 40;
const METADATA_BYTES_MIN: u64 = 8 << 20;

/// Makes the metadata of a pool with one device, whose blocks are in random order, unless the
/// metadata exists.
pub(crate) fn prepare(tools: &Tools, size_bytes: u64) -> Result<()> {
    let path = metadata_in(tools);
    if path.exists() {
        return Ok(());
    }
    let described = tools.folder.join("thin.xml");
    let what = || format!("write {}", described.display());
    let mut file = BufWriter::new(File::create(&described).context(what)?);
    describe(&mut file, size_bytes / BYTES_PER_MAPPING)
        .and_then(|()| file.flush())
        .context(what)?;
    let bytes = (size_bytes / BYTES_PER_MAPPING * MAPPING_BYTES_MAX).max(METADATA_BYTES_MIN);
    let what = || format!("create {}", path.display());
    File::create(&path).and_then(|file| file.set_len(bytes & !0xfff)).context(what)?;
    let mut restore = plain("thin_restore")?;
    restore.arg("--input").arg(&described).arg("--output").arg(&path);
    let restored = launch::succeed(&mut restore, PATIENCE);
    let _ = fs::remove_file(&described);
    if restored.is_err() {
        let _ = fs::remove_file(&path);
    }
    restored.map(drop)
}

pub(crate) fn run(run: &Run<'_>) -> Result<Sample> {
    let path = metadata_in(run.tools);
    cache::make_cold(&path, run.tools.drop_caches)?;
    let mut check = run.timed("thin_check")?;
    let usage = launch::succeed(check.arg(&path), PATIENCE)?.usage;
    let bytes = used_bytes(&path)?;
    let mut sample = Sample::from([
        (Metric::BytesPerS, bytes * 1e6 / usage.wall_us),
        (Metric::LatencyUsP99, usage.wall_us),
        (Metric::CpuUsPerOperation, usage.cpu_us),
    ]);
    if let Some(timer) = &run.tools.timer {
        sample.extend(timer.times()?.held_up_sample());
    }
    Ok(sample)
}

fn describe(file: &mut impl Write, mappings: u64) -> std::io::Result<()> {
    writeln!(
        file,
        "<superblock uuid=\"\" time=\"0\" transaction=\"1\" flags=\"0\" version=\"2\" \
         data_block_size=\"128\" nr_data_blocks=\"{mappings}\">\n<device dev_id=\"1\" \
         mapped_blocks=\"{mappings}\" transaction=\"0\" creation_time=\"0\" snap_time=\"0\">"
    )?;
    let mut places = Offsets::shuffled(mappings, 1, 1);
    for origin in 0..mappings {
        let data = places.next();
        let blocks = format_args!("origin_block=\"{origin}\" data_block=\"{data}\"");
        writeln!(file, "<single_mapping {blocks} time=\"0\"/>")?;
    }
    writeln!(file, "</device>\n</superblock>")
}

fn metadata_in(tools: &Tools) -> PathBuf {
    tools.folder.join("thin.metadata")
}

/// Returns the number of bytes that the blocks of a file occupy, without its holes.
fn used_bytes(path: &Path) -> Result<f64> {
    use std::os::unix::fs::MetadataExt;
    let about = fs::metadata(path).context(|| format!("look at {}", path.display()))?;
    Ok(about.blocks() as f64 * 512.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_block_of_the_pool_is_mapped_once() {
        let mut text = Vec::new();
        describe(&mut text, 300).expect("in memory");
        let text = String::from_utf8(text).expect("text");
        assert!(text.contains("nr_data_blocks=\"300\"") && text.ends_with("</superblock>\n"));
        assert_eq!(text.matches("<single_mapping").count(), 300);
        let numbers = text.split("data_block=\"").skip(1).filter_map(|it| it.split('"').next());
        let mut numbers: Vec<u64> = numbers.flat_map(str::parse).collect();
        assert!(!numbers.is_sorted(), "in no order");
        numbers.sort_unstable();
        assert_eq!(numbers, (0..300).collect::<Vec<_>>());
    }
}
