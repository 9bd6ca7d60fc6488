//! A read, write or sync of a file in the engine's page cache, run by a request or by a thread that
//! sleeps until it is done.

use super::{
    Opened, UserFile,
    exclusion::{leave, wait_for_turn},
};
use crate::{Command, Engine, Kind, engine::parker::sleep_through, order::Access};
use nowait_block::{Bio, Segments};
use nowait_cache::{
    FRAME_BYTES, ReadOperation, SyncLevel, SyncOperation, WriteOperation, WriteStart, copy::User,
};
use nowait_retry::{Step, WaitEntry};
use nowait_sys::{
    Errno,
    mistake::{self, Mistake},
};
use std::sync::Arc;

/// A request to a user file.
#[derive(Debug)]
pub struct UserOperation {
    kind: CachedKind,
    file: Arc<UserFile>,
}

#[derive(Debug)]
enum CachedKind {
    Read(ReadOperation),
    Write(WriteOperation),
    Sync(SyncOperation),
}

impl UserOperation {
    pub(crate) fn rest_of_read(
        Opened { file, reads }: Opened<'_>,
        offset: u64,
        done: usize,
        user: User,
    ) -> UserOperation {
        let read = ReadOperation::resume(file.cached.clone(), offset, done, user);
        let read = read.with_readahead(reads.clone(), true);
        UserOperation::new(file, CachedKind::Read(read))
    }

    pub(crate) fn rest_of_write(
        file: &Arc<UserFile>,
        offset: u64,
        begun: WriteStart,
        user: User,
    ) -> UserOperation {
        let write = WriteOperation::resume(file.cached.clone(), offset, begun, user);
        UserOperation::new(file, CachedKind::Write(write))
    }

    fn new(file: &Arc<UserFile>, kind: CachedKind) -> UserOperation {
        UserOperation { kind, file: file.clone() }
    }

    /// Makes a read from byte `offset` into all segments.
    ///
    /// # Safety
    /// The segments are valid for writing until the operation is dropped.
    pub unsafe fn read<'a>(
        opened: impl Into<Opened<'a>>,
        offset: u64,
        segments: Segments,
    ) -> UserOperation {
        let Opened { file, reads } = opened.into();
        // SAFETY: promised above.
        let user = unsafe { User::new(segments) };
        let read = ReadOperation::new(file.cached.clone(), offset, user);
        let read = read.with_readahead(reads.clone(), false);
        UserOperation::new(file, CachedKind::Read(read))
    }

    /// Makes a write of all segments at byte `offset`. The write ends when the data are durable as
    /// `durable` says; `None`: when cached.
    ///
    /// # Safety
    /// The segments are valid until the operation is dropped.
    pub unsafe fn write(
        file: &Arc<UserFile>,
        offset: u64,
        segments: Segments,
        durable: Option<SyncLevel>,
    ) -> UserOperation {
        // SAFETY: promised above.
        let user = unsafe { User::new(segments) };
        let write = WriteOperation::new(file.cached.clone(), offset, user, durable);
        UserOperation::new(file, CachedKind::Write(write))
    }

    /// Makes a write of all segments at the end of the file. Between its first iteration and its
    /// end no other append may run: a request holds a place in the file's order for that, and
    /// [`UserOperation::run`] takes one.
    ///
    /// # Safety
    /// The segments are valid until the operation is dropped.
    pub unsafe fn append(
        file: &Arc<UserFile>,
        segments: Segments,
        durable: Option<SyncLevel>,
    ) -> UserOperation {
        // SAFETY: promised above.
        let user = unsafe { User::new(segments) };
        let write = WriteOperation::append(file.cached.clone(), user, durable);
        UserOperation::new(file, CachedKind::Write(write))
    }

    /// Makes a sync of the whole file.
    pub fn sync(file: &Arc<UserFile>, durable: SyncLevel) -> UserOperation {
        let kind = CachedKind::Sync(SyncOperation::whole(file.cached.clone(), durable));
        UserOperation::new(file, kind)
    }

    /// Makes a sync of the data of `len` bytes from `offset` on; if `len` is 0, to the end of the
    /// file.
    pub fn sync_range(file: &Arc<UserFile>, offset: u64, len: u64) -> UserOperation {
        let page = |at: u64| at / FRAME_BYTES as u64;
        let last = match len {
            0 => u64::MAX,
            _ => page(offset.saturating_add(len - 1)),
        };
        let sync = SyncOperation::new(file.cached.clone(), page(offset), last, SyncLevel::Data);
        UserOperation::new(file, CachedKind::Sync(sync))
    }

    /// Runs an iteration; see [`ReadOperation::iterate`].
    pub fn iterate(&mut self, plug: &mut Vec<Bio>, wait: &dyn Fn() -> WaitEntry) -> Step {
        match &mut self.kind {
            CachedKind::Read(read) => read.iterate(plug, wait),
            CachedKind::Write(write) => write.iterate(plug, wait),
            CachedKind::Sync(sync) => {
                let step = sync.iterate(plug, wait);
                if mistake::makes(Mistake::SeenAfterSync) {
                    self.file.see();
                }
                step
            }
        }
    }

    /// Makes the operation that carries out `command`.
    ///
    /// # Errors
    /// `EINVAL`: the command is a poll.
    /// # Safety
    /// The segments are valid until the operation is dropped.
    pub unsafe fn of<'a>(
        opened: impl Into<Opened<'a>>,
        command: &Command,
    ) -> Result<UserOperation, Errno> {
        let opened = opened.into();
        let file = opened.file;
        let (segments, offset) = command.rest();
        let durable = command.durable();
        // SAFETY: promised above.
        Ok(unsafe {
            match command.kind {
                Kind::Read => UserOperation::read(opened, offset, segments),
                Kind::Write if command.is_append() => {
                    UserOperation::append(file, segments, durable)
                }
                Kind::Write => UserOperation::write(file, offset, segments, durable),
                Kind::Fsync => UserOperation::sync(file, SyncLevel::All),
                Kind::Fdatasync => UserOperation::sync_range(file, offset, command.sync_bytes),
                Kind::Poll(_) => return Err(Errno::INVAL),
            }
        })
    }

    pub(crate) fn is_write(&self) -> bool {
        matches!(self.kind, CachedKind::Write(_))
    }

    fn appends(&self) -> bool {
        matches!(&self.kind, CachedKind::Write(write) if write.appends())
    }

    /// Runs the operation to its end on the calling thread, which sleeps between iterations. An
    /// append first waits for its turn in the file's order.
    ///
    /// # Errors
    /// The errors of the operation.
    pub fn run(mut self, engine: &Arc<Engine>) -> Result<u32, Errno> {
        let whole = 0..u64::MAX;
        let turn = self.appends().then(|| wait_for_turn(engine, &self.file, whole, Access::Write));
        let result = sleep_through(engine, |bios, wait| self.iterate(bios, wait));
        let is_write = self.is_write();
        drop(self);
        if let Some(turn) = turn {
            leave(engine, &turn);
        }
        if is_write {
            engine.threads.driver.dirtied();
        }
        result
    }
}

impl Drop for UserOperation {
    fn drop(&mut self) {
        if self.is_write() {
            self.file.keep();
        }
    }
}
