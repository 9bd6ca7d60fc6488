//! The two threads that transfer blocks, one for each direction. So a load never waits while the
//! file system makes, renames or removes files for stores.

use crate::{
    admission::Direction,
    board::{Board, Task},
    evictor::Evictor,
    folder::Region,
    names::{file_of, temporary},
    usage::make_private,
};
use nowait::{CacheMode, Completion, File, IoBuffer, IoBufferMut, Nowait, OpenOptions, Queue};
use nowait_sys::{Errno, sparse};
use std::{
    fs,
    io::{self, ErrorKind},
    os::fd::{AsFd, AsRawFd},
    path::{Path, PathBuf},
    sync::Arc,
};

/// Attempts to make the folder of a new file: an eviction may remove the empty folder again.
const FOLDER_TRIES: usize = 4;

/// The queue of one of the two threads.
pub(crate) type BlockQueue = Queue<Started, Slot>;

/// The state of one of the two threads.
pub(crate) struct Carrier {
    pub(crate) direction: Direction,
    pub(crate) nowait: Nowait,
    pub(crate) board: Arc<Board>,
    pub(crate) evictor: Arc<Evictor>,
    pub(crate) folder: PathBuf,
    pub(crate) memory: Region,
    pub(crate) block_bytes: usize,
    pub(crate) cache: CacheMode,
    pub(crate) queue: BlockQueue,
}

/// A block in flight.
#[derive(Debug)]
pub(crate) struct Started {
    task: Task,
    path: PathBuf,
    /// The temporary name of a new file; `None` for a load.
    temporary: Option<PathBuf>,
}

/// The memory of one block.
#[derive(Debug)]
pub(crate) struct Slot {
    at: *mut u8,
    len: usize,
}

// SAFETY: the memory belongs to no thread; see `Region`.
unsafe impl Send for Slot {}

// SAFETY: the maker of the `Region` keeps the memory in place until the folder is closed, which
// drops the queue first. The program touches no block of a job in flight.
unsafe impl IoBuffer for Slot {
    fn as_ptr(&self) -> *const u8 {
        self.at
    }

    fn len(&self) -> usize {
        self.len
    }
}

// SAFETY: as above; the memory of a `Region` may be written.
unsafe impl IoBufferMut for Slot {
    fn as_mut_ptr(&mut self) -> *mut u8 {
        self.at
    }
}

impl Carrier {
    /// Runs one of the two threads until the board closes.
    pub(crate) fn run(mut self) {
        while let Some(tasks) = self.board.next(self.direction, !self.queue.is_empty()) {
            for task in tasks {
                self.start(task);
            }
            self.queue.submit();
            if !self.queue.is_empty() && self.queue.wait(1, None).is_err() {
                return; // a forked child: nothing ends here
            }
            while let Some(completion) = self.queue.pop() {
                self.complete(completion);
            }
        }
    }

    fn start(&mut self, task: Task) {
        match (file_of(&self.folder, &task.key), self.direction) {
            (None, _) => {
                let reason = "cannot name the file of a block: its key is too short";
                self.end(&task, Err(reason.into()));
            }
            (Some(path), Direction::Load) => self.start_load(task, path),
            (Some(path), Direction::Store) => self.start_store(task, path),
        }
    }

    fn slot(&self, task: &Task) -> Slot {
        Slot { at: self.memory.address(task.offset), len: self.block_bytes }
    }

    fn start_load(&mut self, task: Task, path: PathBuf) {
        let opened = OpenOptions::new().read(true).cache(self.cache).open(&self.nowait, &path);
        let file = match opened {
            Ok(file) => file,
            Err(error) => return self.end(&task, Err(format!("cannot load a block: {error}"))),
        };
        let slot = self.slot(&task);
        let started = Started { task, path, temporary: None };
        if let Err(refused) = self.queue.read(&file, slot, 0, started) {
            let reason = format!("cannot load a block: {}", refused.error);
            self.end(&refused.tag.task, Err(reason));
        }
    }

    fn start_store(&mut self, task: Task, path: PathBuf) {
        if is_whole(&path, self.block_bytes) {
            return self.end(&task, Ok(0));
        }
        if let Err(error) = self.evictor.reserve() {
            return self.end(&task, Err(no_room(&path, &error)));
        }
        let (file, temporary) = match self.create(&path) {
            Ok(made) => made,
            Err(reason) => {
                self.evictor.give_back();
                return self.end(&task, Err(reason));
            }
        };
        let slot = self.slot(&task);
        let started = Started { task, path, temporary: Some(temporary.clone()) };
        if let Err(refused) = self.queue.write(&file, slot, 0, started) {
            let reason = format!("cannot store a block: {}", refused.error);
            self.discard(&temporary);
            self.end(&refused.tag.task, Err(reason));
        }
    }

    /// Makes a file with a temporary name beside `path`, and the folders that it needs.
    fn create(&self, path: &Path) -> Result<(File, PathBuf), String> {
        let temporary = temporary(path);
        let mut options = OpenOptions::new().write(true).create_new(true);
        options = options.mode(0o600).cache(self.cache);
        let mut made = options.open(&self.nowait, &temporary);
        for _ in 0..FOLDER_TRIES {
            if !made.as_ref().is_err_and(|error| error.kind() == ErrorKind::NotFound) {
                break;
            }
            // If the folder cannot be made, the next open fails too.
            let _ = path.parent().map(make_private);
            made = options.open(&self.nowait, &temporary);
        }
        let file = made.map_err(|error| format!("cannot store a block: {error}"))?;
        if let Err(errno) = self.allocate(&file) {
            let _ = fs::remove_file(&temporary);
            let path = path.display();
            return Err(format!("cannot store a block: no space for {path}: {errno}"));
        }
        Ok((file, temporary))
    }

    /// Allocates the blocks of a new file for direct I/O, because a direct write that extends its
    /// file would occupy a worker thread. Does nothing in the page cache: after a power cut an
    /// allocated file could have its full size and only zeroes.
    fn allocate(&self, file: &File) -> Result<(), Errno> {
        if self.cache != CacheMode::Direct {
            return Ok(());
        }
        match sparse::allocate(file.as_fd().as_raw_fd(), self.block_bytes as u64) {
            Err(Errno::OPNOTSUPP) => Ok(()),
            result => result,
        }
    }

    fn complete(&self, completion: Completion<Started, Slot>) {
        let Started { task, path, temporary } = completion.tag;
        let (moved, whole) = (completion.result, self.block_bytes);
        match (temporary, moved) {
            (None, Ok(bytes)) if bytes == whole => {
                self.evictor.note(std::iter::once(task.key.clone()));
                self.end(&task, Ok(bytes as u64));
            }
            (None, Ok(bytes)) => {
                // A store makes a file appear with its whole content. So this file was damaged, and
                // every load of it would fail.
                let _ = fs::remove_file(&path);
                self.end(&task, Err(too_short(&path, bytes, whole)));
            }
            (None, Err(error)) => self.end(&task, Err(format!("cannot load a block: {error}"))),
            (Some(temporary), moved) => {
                let stored = match moved {
                    Ok(bytes) if bytes == whole => publish(&temporary, &path),
                    Ok(bytes) => Err(too_short(&temporary, bytes, whole)),
                    Err(error) => Err(format!("cannot store a block: {error}")),
                };
                if stored.is_err() {
                    self.discard(&temporary);
                }
                self.end(&task, stored.map(|()| whole as u64));
            }
        }
    }

    /// Removes a new file, and gives its reserved bytes back.
    fn discard(&self, temporary: &Path) {
        if fs::remove_file(temporary).is_ok() {
            self.evictor.give_back();
        }
    }

    fn end(&self, task: &Task, result: Result<u64, String>) {
        self.board.end(self.direction, task, result);
    }
}

/// Returns `true` if the file at `path` holds a whole block.
pub(crate) fn is_whole(path: &Path, block_bytes: usize) -> bool {
    fs::metadata(path).is_ok_and(|file| file.is_file() && file.len() == block_bytes as u64)
}

/// Renames a complete file from its temporary name to `path`.
fn publish(temporary: &Path, path: &Path) -> Result<(), String> {
    match fs::rename(temporary, path) {
        Ok(()) => Ok(()),
        // Some shared file systems do not replace a file. The existing file has the same content,
        // because its name is the hash of the content.
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {
            let _ = fs::remove_file(temporary);
            Ok(())
        }
        Err(error) => Err(format!("cannot store a block: rename to {}: {error}", path.display())),
    }
}

fn too_short(path: &Path, bytes: usize, whole: usize) -> String {
    format!("the block {} has {bytes} of {whole} bytes: treated as missing", path.display())
}

fn no_room(path: &Path, error: &io::Error) -> String {
    format!("cannot store a block: no room in the folder for {}: {error}", path.display())
}
