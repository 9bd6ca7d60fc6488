//! The content of a cache before the clock starts.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::Path;

use crate::buffers::Buffers;
use crate::job::{Job, Transfer, Warm};
use crate::{Engine, Peer, Request};
use nowait_harness::error::{Context, Failure, Result};
use nowait_harness::pattern;

/// For [`Warm::All`] and [`Warm::Pages`], `own_cache` makes reads of at most this size. It keeps at
/// most `WARM_DEPTH` reads in flight.
const WARM_BYTES: usize = 256 << 10;
const WARM_DEPTH: usize = 8;
/// For [`Warm::Half`], the harness reads every other piece of this many bytes.
const HALF_BYTES: usize = 64 << 10;

pub(crate) fn kernel_cache(job: &Job, warm: Warm) -> Result<()> {
    let (bytes, stride) = match warm {
        Warm::Nothing => return Ok(()),
        Warm::All => return nowait_harness::cache::make_cached(&job.paths[0], job.set_bytes),
        Warm::Pages => (pattern::STAMP_BYTES, pattern::STAMP_BYTES),
        Warm::Half => (HALF_BYTES, 2 * HALF_BYTES),
    };
    let what = || format!("read {}", job.paths[0].display());
    let file = File::open(&job.paths[0]).context(what)?;
    // SAFETY: the descriptor is open during the call, which is advice only.
    unsafe { libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_RANDOM) };
    let mut buffer = vec![0; bytes];
    for offset in (0..job.set_bytes).step_by(stride) {
        file.read_at(&mut buffer, offset).context(what)?;
    }
    Ok(())
}

pub(crate) fn own_cache<E: Engine>(engine: &E, job: &Job, transfer: &Transfer) -> Result<()> {
    let (bytes, stride) = match transfer.warm {
        Warm::Nothing => return with_another_file(engine, job, transfer.block_bytes),
        Warm::Half => (HALF_BYTES, 2 * HALF_BYTES),
        Warm::All | Warm::Pages => {
            let bytes = WARM_BYTES.min(job.set_bytes as usize);
            (bytes, bytes)
        }
    };
    let mut peer = engine.peer(Buffers::in_small_pages(bytes, WARM_DEPTH))?;
    let (mut in_flight, mut wrong) = (0, 0);
    let mut reap = |peer: &mut E::Peer, min, in_flight: &mut usize| {
        peer.reap(min, &mut |request, bytes| {
            *in_flight -= 1;
            wrong += u64::from(!pattern::is_in_place(request.offset, bytes));
        })
    };
    for offset in (0..job.set_bytes / bytes as u64 * bytes as u64).step_by(stride) {
        peer.submit(&[Request { offset, ..Request::default() }])?;
        in_flight += 1;
        let min = usize::from(in_flight == WARM_DEPTH);
        reap(&mut peer, min, &mut in_flight)?;
    }
    while in_flight > 0 {
        reap(&mut peer, 1, &mut in_flight)?;
    }
    match wrong {
        0 => Ok(()),
        wrong => Err(Failure::new(format!("{wrong} reads returned wrong bytes"))),
    }
}

/// Without this, runs would pay for the first use of the cache's memory, which costs more than the
/// device. The kernel's cache has used its memory long before.
fn with_another_file<E: Engine>(engine: &E, job: &Job, block_bytes: usize) -> Result<()> {
    if let Some(other) = &job.other {
        return engine.fill(other, job.pool_bytes, block_bytes);
    }
    let on_disk = job.paths[0].parent().filter(|_| job.paths[0].is_file());
    let folder = on_disk.map_or_else(std::env::temp_dir, Path::to_owned);
    let what = || format!("a sparse file in {}", folder.display());
    let file = tempfile::NamedTempFile::new_in(&folder).context(what)?;
    file.as_file().set_len(job.pool_bytes).context(what)?;
    engine.fill(file.path(), job.pool_bytes, block_bytes)
}
