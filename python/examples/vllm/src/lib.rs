//! The module `nowait_vllm._blocks`: a folder of blocks in the memory of a Python object.
//!
//! Methods that submit jobs or return results keep the interpreter's lock, because they take less
//! time than acquiring the lock again would. Methods that wait for the disk release the lock.

use core::time::Duration;
use nowait::{BackendChoice, Builder, Nowait};
use nowait_blocks::{BlockFolder as Folder, Config, Direction, Region};
use nowait_engine::Options;
use nowait_sys::{mutex::Mutex, stderr};
use pyo3::{
    buffer::PyUntypedBuffer,
    exceptions::{PyBufferError, PyRuntimeError, PyValueError},
    prelude::*,
    types::PyBytes,
};
use std::path::PathBuf;

/// Time after which a wait checks for signals.
const LOOK: Duration = Duration::from_millis(50);

/// Blocks in files, stored from and loaded into slots of a buffer.
#[pyclass(frozen, module = "nowait_vllm._blocks")]
struct BlockFolder {
    folder: Folder,
    /// Keeps the buffer's memory in place until the folder is closed.
    memory: Mutex<Option<PyUntypedBuffer>>,
}

/// A finished job: its number, `True` for a load, its bytes, the seconds of its transfer, the
/// seconds before the transfer began, and the failed blocks with the reason of each.
type FinishedJob = (i64, bool, u64, f64, f64, Vec<(usize, String)>);

#[pymethods]
impl BlockFolder {
    #[new]
    #[pyo3(signature = (buffer, root, folder, block_bytes, capacity_bytes, in_flight_bytes,
        tells_evictions))]
    #[expect(clippy::too_many_arguments, reason = "one call, which names them")]
    fn new(
        py: Python<'_>,
        buffer: &Bound<'_, PyAny>,
        root: PathBuf,
        folder: PathBuf,
        block_bytes: usize,
        capacity_bytes: Option<u64>,
        in_flight_bytes: u64,
        tells_evictions: bool,
    ) -> PyResult<BlockFolder> {
        let view = PyUntypedBuffer::get(buffer)?;
        if view.readonly() {
            return Err(PyBufferError::new_err("the buffer to read into is read-only"));
        }
        if !view.is_c_contiguous() {
            return Err(PyBufferError::new_err("the buffer is not contiguous"));
        }
        if block_bytes == 0 {
            return Err(PyValueError::new_err("the size of blocks must be more than 0 bytes"));
        }
        // SAFETY: the view keeps the writable memory in place; `close` drops it after the folder
        // has given the memory up. The caller leaves the slots of its jobs alone.
        let region = unsafe { Region::new(view.buf_ptr().cast(), view.len_bytes()) };
        let config =
            Config { root, folder, block_bytes, capacity_bytes, in_flight_bytes, tells_evictions };
        let folder = py.detach(|| Folder::open(&start()?, region, config))?;
        Ok(BlockFolder { folder, memory: Mutex::new(Some(view)) })
    }

    /// Submits a job, which loads the block of each key into its slot of the buffer, or stores it
    /// from there.
    fn submit(
        &self,
        job: i64,
        loads: bool,
        keys: &Bound<'_, PyAny>,
        slots: Vec<i64>,
    ) -> PyResult<()> {
        let (folder, keys) = (self.here()?, bytes_of(keys)?);
        if keys.len() != slots.len() {
            return Err(PyValueError::new_err("a job needs one slot for each key"));
        }
        let direction = if loads { Direction::Load } else { Direction::Store };
        folder.submit(job, direction, keys.into_iter().zip(slots).collect());
        Ok(())
    }

    /// Returns the jobs that have finished since the last call.
    fn finished(&self) -> PyResult<Vec<FinishedJob>> {
        let all = self.here()?.take_finished().into_iter();
        let all = all.map(|job| {
            let failures = job.failures.into_iter().map(|it| (it.index, it.reason)).collect();
            let (transfer, queued) = (job.transfer.as_secs_f64(), job.queued.as_secs_f64());
            let loads = job.direction == Direction::Load;
            (job.job, loads, job.bytes, transfer, queued, failures)
        });
        Ok(all.collect())
    }

    /// Returns `True` for each key whose block is stored. Reads the disk, without the interpreter's
    /// lock.
    fn contains(&self, py: Python<'_>, keys: &Bound<'_, PyAny>) -> PyResult<Vec<bool>> {
        let keys = bytes_of(keys)?;
        Ok(py.detach(|| self.folder.contains(&keys)))
    }

    /// Returns the path of the file of a key, or `None` if the key is too short.
    fn path(&self, key: &[u8]) -> Option<String> {
        Some(self.folder.file_of(key)?.to_string_lossy().into_owned())
    }

    /// Records that blocks were used now, for the order of evictions.
    fn touch(&self, keys: &Bound<'_, PyAny>) -> PyResult<()> {
        self.here()?.touch(bytes_of(keys)?.into_iter());
        Ok(())
    }

    /// Returns the keys of the blocks that this process has evicted since the last call.
    fn evicted<'py>(&self, py: Python<'py>) -> PyResult<Vec<Bound<'py, PyBytes>>> {
        let evicted = self.here()?.take_evicted();
        Ok(evicted.iter().map(|key| PyBytes::new(py, key)).collect())
    }

    /// Waits until all jobs have finished.
    fn wait_idle(&self, py: Python<'_>) -> PyResult<()> {
        let folder = self.here()?;
        while !py.detach(|| folder.wait_idle(LOOK)) {
            py.check_signals()?;
        }
        Ok(())
    }

    /// Fails the jobs that wait, waits for the blocks in flight, and releases the buffer.
    fn close(&self, py: Python<'_>) {
        py.detach(|| self.folder.close());
        let memory = self.memory.lock().take();
        drop(memory); // runs the code of the buffer's owner
    }

    /// Is `True` if the files of blocks bypass the page cache.
    #[getter]
    fn is_direct(&self) -> bool {
        self.folder.is_direct()
    }
}

impl BlockFolder {
    /// Returns the folder, for calls that take a lock.
    ///
    /// # Errors
    /// `RuntimeError` in a forked child: a thread of the parent may have held the lock at the fork.
    fn here(&self) -> PyResult<&Folder> {
        if self.folder.is_the_parents() {
            let text = "the folder of blocks belongs to the process that has opened it";
            return Err(PyRuntimeError::new_err(text));
        }
        Ok(&self.folder)
    }
}

impl Drop for BlockFolder {
    fn drop(&mut self) {
        // The folder closes before the buffer is released, because its threads use the buffer's
        // memory.
        self.folder.close();
    }
}

/// Returns copies of the keys that an iterable yields.
fn bytes_of(keys: &Bound<'_, PyAny>) -> PyResult<Vec<Vec<u8>>> {
    keys.try_iter()?.map(|key| Ok(key?.cast::<PyBytes>()?.as_bytes().to_vec())).collect()
}

/// Starts an engine with the options from the environment. If the chosen backend does not work, the
/// engine uses another. The threads of a folder hold the engine, and it ends with them.
fn start() -> Result<Nowait, nowait::Error> {
    let options = Options::from_env();
    let say = |line: &str| stderr::say(&format!("nowait: {line}\n"));
    options.complaints.iter().for_each(|line| say(line));
    let asked = options.config.backend;
    Builder::from_config(options.config.clone()).build().or_else(|error| {
        if asked == BackendChoice::Auto {
            return Err(error);
        }
        say(&format!("{error}; another backend is used"));
        Builder::from_config(options.config).backend(BackendChoice::Auto).build()
    })
}

/// The Python module.
#[pymodule(gil_used = false)]
mod _blocks {
    #[pymodule_export]
    use super::BlockFolder;
}
