//! The native API, through our page cache, the kernel's, or none.

use std::path::Path;
use std::sync::OnceLock;

use nowait::{Advice, AlignedBuffer, CacheMode, File, Nowait, OpenOptions, Queue};

use super::buffers::Buffer;
use super::{Buffers, Engine, Peer, Place, Request};
use crate::error::{BenchError, Result};
use crate::offsets::{Access, Offsets};
use crate::pattern;

/// Reads in flight that fill the pool.
const FILL_DEPTH: usize = 32;

/// An engine of ours and the file.
pub(crate) struct Native {
    nowait: Nowait,
    file: File,
    cache: CacheMode,
    /// The file whose pages fill the pool: without it the pool would be empty again.
    other: OnceLock<File>,
}

/// A queue with its spare buffers.
pub(crate) struct NativePeer {
    queue: Queue<Request, Buffer>,
    files: Vec<File>,
    spare: Vec<Buffer>,
}

impl Native {
    pub(crate) fn open(place: &Place, cache: CacheMode) -> Result<Self> {
        let builder = Nowait::builder().backend(place.backend).submit(place.submit);
        let builder = builder.cache_bytes(place.pool_bytes);
        let nowait = builder.build().map_err(explain)?;
        let options = OpenOptions::new().read(true).write(place.write).sync(place.sync);
        let file = options.cache(cache).open(&nowait, &place.path).map_err(explain)?;
        Ok(Self { nowait, file, cache, other: OnceLock::new() })
    }
}

impl Engine for Native {
    type Peer = NativePeer;

    fn peer(&self, buffers: Buffers) -> Result<NativePeer> {
        NativePeer::new(&self.nowait, vec![self.file.clone()], buffers)
    }

    fn has_own_cache(&self) -> bool {
        self.cache == CacheMode::User
    }

    fn fill(&self, other: &Path, bytes: u64, block_bytes: usize) -> Result<()> {
        let file = File::open(&self.nowait, other).map_err(explain)?;
        file.advise(0..bytes, Advice::Random).map_err(explain)?;
        let file = self.other.get_or_init(|| file);
        let mut queue: Queue<(), AlignedBuffer> = self.nowait.queue(FILL_DEPTH).map_err(explain)?;
        let buffers = (0..FILL_DEPTH).map(|_| AlignedBuffer::zeroed(block_bytes));
        let mut spare: Vec<_> = buffers.collect();
        let mut offsets = Offsets::new(Access::Random, bytes, block_bytes as u64, 1);
        let mut left = offsets.blocks();
        while left > 0 || spare.len() < FILL_DEPTH {
            while left > 0
                && let Some(buffer) = spare.pop()
            {
                let read = queue.read(file, buffer, offsets.next(), ());
                read.map_err(|refused| explain(refused.into()))?;
                left -= 1;
            }
            queue.submit();
            queue.wait(1, None).map_err(explain)?;
            while let Some(done) = queue.pop() {
                done.result.map_err(explain)?;
                spare.extend(done.buffers.one());
            }
        }
        Ok(())
    }
}

impl NativePeer {
    /// Makes a queue for one file or several.
    pub(crate) fn new(nowait: &Nowait, files: Vec<File>, buffers: Buffers) -> Result<Self> {
        let queue = nowait.queue(buffers.depth()).map_err(explain)?;
        Ok(Self { queue, files, spare: buffers.list })
    }
}

impl Peer for NativePeer {
    fn submit(&mut self, requests: &[Request]) -> Result<()> {
        for request in requests {
            let Some(mut buffer) = self.spare.pop() else { break };
            let (offset, generation) = (request.offset, request.generation);
            let file = &self.files[request.file as usize];
            let taken = if generation > 0 {
                pattern::stamp(offset, &mut buffer, generation);
                self.queue.write(file, buffer, offset, *request)
            } else {
                self.queue.read(file, buffer, offset, *request)
            };
            taken.map_err(|refused| explain(refused.into()))?;
        }
        self.queue.submit();
        Ok(())
    }

    fn reap(&mut self, min: usize, each: &mut impl FnMut(Request, &[u8])) -> Result<()> {
        let mut wrong = None;
        let spare = &mut self.spare;
        let reaped = self.queue.reap(min, None, |completion| {
            let Some(buffer) = completion.buffers.one() else { return };
            match completion.result {
                Ok(bytes) if bytes == buffer.len() => each(completion.tag, &buffer),
                Ok(bytes) => wrong = Some(format!("{bytes} bytes were moved")),
                Err(error) => wrong = Some(error.to_string()),
            }
            spare.push(buffer);
        });
        reaped.map_err(explain)?;
        wrong.map_or(Ok(()), |message| Err(BenchError::failed(message)))
    }

    fn sync(&mut self) -> Result<()> {
        self.files.iter().try_for_each(|file| file.sync_all().map_err(explain))
    }
}

#[expect(clippy::needless_pass_by_value, reason = "for map_err")]
pub(crate) fn explain(error: nowait::Error) -> BenchError {
    BenchError::failed(error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use nowait::{BackendChoice, SubmitMode};

    #[test]
    fn the_pool_stays_full_of_the_other_file() {
        const POOL: u64 = 8 << 20;
        const BLOCK: usize = 64 << 10;
        let sparse = || {
            let file = tempfile::NamedTempFile::new_in("/var/tmp").unwrap();
            file.as_file().set_len(POOL).unwrap();
            file
        };
        let [file, other] = [sparse(), sparse()];
        let place = Place {
            path: file.path().to_owned(),
            write: false,
            direct: false,
            sync: false,
            set_bytes: POOL,
            pool_bytes: POOL,
            backend: BackendChoice::Auto,
            submit: SubmitMode::Auto,
        };
        let native = Native::open(&place, CacheMode::User).unwrap();
        native.fill(other.path(), POOL, BLOCK).unwrap();
        let filler = native.other.get().expect("kept open");
        let is_cached = |offset: &u64| filler.lend(*offset, BLOCK).unwrap().is_some();
        let blocks = (0..POOL).step_by(BLOCK).filter(is_cached).count() as u64;
        // Some frames are kept free.
        assert!(blocks * BLOCK as u64 >= POOL / 4 * 3, "{blocks} blocks are cached");
    }
}
