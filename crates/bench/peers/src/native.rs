//! nowait's Rust API, through its own page cache, the kernel's, or none.

use std::path::Path;
use std::sync::OnceLock;

use nowait::{
    Advice, AlignedBuffer, BackendChoice, CacheMode, File, Nowait, OpenOptions, Queue, SubmitMode,
};

use crate::buffers::{Buffer, Buffers};
use crate::job::{Backend, Job};
use crate::{Engine, Peer, Request};
use nowait_harness::error::{Failure, Result};
use nowait_harness::order::{Access, Order};
use nowait_harness::pattern;

const FILL_DEPTH: usize = 32;

pub(crate) struct Native {
    nowait: Nowait,
    files: Vec<File>,
    cache: CacheMode,
    /// The file whose pages fill the pool: closing this file would empty the pool.
    other: OnceLock<File>,
}

pub(crate) struct NativePeer {
    queue: Queue<Request, Buffer>,
    files: Vec<File>,
    block_bytes: usize,
    spare: Vec<nowait::Buffers<Buffer>>,
}

impl Native {
    pub(crate) fn open(job: &Job, cache: CacheMode, submit: SubmitMode) -> Result<Self> {
        let backend = match job.backend {
            Backend::Auto => BackendChoice::Auto,
            Backend::Uring => BackendChoice::Uring,
            Backend::Kaio => BackendChoice::Kaio,
            Backend::Threads => BackendChoice::Threads,
        };
        let builder = Nowait::builder().backend(backend).submit(submit);
        let builder = builder.cache_bytes(job.pool_bytes);
        // The suite leaves an engine that cannot start out of all cases.
        let nowait = builder.build().map_err(|error| Failure::usage(error.to_string()))?;
        let options = OpenOptions::new().read(true).write(job.work.writes()).sync(job.sync);
        let options = options.cache(cache);
        let files = job.paths.iter().map(|path| options.open(&nowait, path).map_err(explain));
        Ok(Self { files: files.collect::<Result<_>>()?, nowait, cache, other: OnceLock::new() })
    }
}

impl Native {
    pub(crate) fn file(&self) -> &File {
        &self.files[0]
    }
}

impl Engine for Native {
    type Peer = NativePeer;

    fn peer(&self, buffers: Buffers) -> Result<NativePeer> {
        let queue = self.nowait.queue(buffers.depth()).map_err(explain)?;
        let Buffers { block_bytes, segments, list } = buffers;
        let spare = list.into_iter().map(|buffer| match segments {
            1 => nowait::Buffers::One(buffer),
            _ => nowait::Buffers::Many(buffer.split(block_bytes)),
        });
        let (files, spare) = (self.files.clone(), spare.collect());
        Ok(NativePeer { queue, files, block_bytes, spare })
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
        let order = Order::new(Access::Random, bytes, block_bytes as u64, 1);
        let mut left = order.blocks();
        while left > 0 || spare.len() < FILL_DEPTH {
            while left > 0
                && let Some(buffer) = spare.pop()
            {
                left -= 1;
                let read = queue.read(file, buffer, order.at(left), ());
                read.map_err(|refused| explain(refused.into()))?;
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
    /// Returns `false` if all buffers are in use.
    fn prepare(&mut self, request: &Request) -> Result<bool> {
        let (offset, file) = (request.offset, &self.files[request.file as usize]);
        let write = request.generation > 0;
        let (stamp, len) = (request.generation, self.block_bytes as u64);
        let queue = &mut self.queue;
        let taken = match self.spare.pop() {
            None | Some(nowait::Buffers::None) => return Ok(false),
            Some(nowait::Buffers::One(mut buffer)) if write => {
                pattern::stamp(offset, &mut buffer, stamp);
                queue.write(file, buffer, offset, *request)
            }
            Some(nowait::Buffers::One(buffer)) => queue.read(file, buffer, offset, *request),
            Some(nowait::Buffers::Many(mut list)) if write => {
                let segments = list.iter_mut().zip(0u64..);
                segments.for_each(|(part, i)| pattern::stamp(offset + i * len, part, stamp));
                queue.write_vectored(file, list, offset, *request)
            }
            Some(nowait::Buffers::Many(list)) => queue.read_vectored(file, list, offset, *request),
        };
        taken.map_err(|refused| explain(refused.into())).map(|_| true)
    }
}

impl Peer for NativePeer {
    fn submit(&mut self, requests: &[Request]) -> Result<()> {
        for request in requests {
            if !self.prepare(request)? {
                break;
            }
        }
        self.queue.submit();
        Ok(())
    }

    fn reap(&mut self, min: usize, each: &mut impl FnMut(Request, &[u8])) -> Result<()> {
        let mut wrong = None;
        let (spare, block_bytes) = (&mut self.spare, self.block_bytes as u64);
        let reaped = self.queue.reap(min, None, |completion| {
            let segments = match &completion.buffers {
                nowait::Buffers::None => &[],
                nowait::Buffers::One(buffer) => std::slice::from_ref(buffer),
                nowait::Buffers::Many(list) => list.as_slice(),
            };
            let wanted: usize = segments.iter().map(|segment| segment.len()).sum();
            match completion.result {
                Ok(bytes) if bytes == wanted => {
                    for (segment, index) in segments.iter().zip(0u64..) {
                        let offset = completion.tag.offset + index * block_bytes;
                        each(Request { offset, ..completion.tag }, segment);
                    }
                }
                Ok(bytes) => wrong = Some(format!("{bytes} of {wanted} bytes were moved")),
                Err(error) => wrong = Some(error.to_string()),
            }
            spare.push(completion.buffers);
        });
        reaped.map_err(explain)?;
        wrong.map_or(Ok(()), |message| Err(Failure::new(message)))
    }

    fn sync(&mut self) -> Result<()> {
        self.files.iter().try_for_each(|file| file.sync_all().map_err(explain))
    }
}

#[expect(clippy::needless_pass_by_value, reason = "for map_err")]
pub(crate) fn explain(error: nowait::Error) -> Failure {
    Failure::new(error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::{Transfer, Work};
    use std::path::PathBuf;

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
        let job = Job {
            engine: String::new(),
            backend: Backend::Auto,
            work: Work::Transfer(Transfer::SINGLE),
            sync: false,
            paths: vec![file.path().to_owned()],
            pristine: true,
            other: None,
            set_bytes: POOL,
            pool_bytes: POOL,
            runtime_ms: 0,
            seed: 1,
            generation: 1,
            outcome: PathBuf::new(),
        };
        let native = Native::open(&job, CacheMode::User, SubmitMode::Auto).unwrap();
        native.fill(other.path(), POOL, BLOCK).unwrap();
        let filler = native.other.get().expect("kept open");
        let is_cached = |offset: &u64| filler.lend(*offset, BLOCK).unwrap().is_some();
        let blocks = (0..POOL).step_by(BLOCK).filter(is_cached).count() as u64;
        // The page cache keeps some frames free.
        assert!(blocks * BLOCK as u64 >= POOL / 4 * 3, "{blocks} blocks are cached");
    }
}
