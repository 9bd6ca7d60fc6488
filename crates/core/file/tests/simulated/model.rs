//! The results that requests may have: the files change as if overlapping requests took effect one
//! after another, in the order of their submission.

use nowait_block::Segments;
use nowait_file::{Command, Kind, command::open_for};
use nowait_sys::{
    Errno,
    file::{IoVec, rwf},
};
use std::{fmt, fs::File, ops::Range, os::fd::AsRawFd};

pub(crate) struct Op {
    pub(crate) file: usize,
    pub(crate) kind: Kind,
    pub(crate) direct: bool,
    /// `true`: the write is durable when it ends.
    pub(crate) durable: bool,
    pub(crate) offset: u64,
    /// For a read, only the number of these bytes counts.
    data: Vec<u8>,
    memory: Vec<u8>,
    pub(crate) result: Option<i64>,
    pub(crate) cancelled: bool,
    pub(crate) refused: bool,
}

impl Op {
    pub(crate) fn new(file: usize, kind: Kind, direct: bool, offset: u64, data: Vec<u8>) -> Op {
        let memory = if kind == Kind::Read { vec![0; data.len()] } else { data.clone() };
        let (durable, result, cancelled, refused) = (false, None, false, false);
        Op { file, kind, direct, durable, offset, data, memory, result, cancelled, refused }
    }

    /// Another program makes the hole, at this moment.
    pub(crate) fn hole(file: usize, range: &Range<u64>) -> Op {
        let data = vec![0; (range.end - range.start) as usize];
        let result = Some(data.len() as i64);
        Op { result, ..Op::new(file, Kind::Write, false, range.start, data) }
    }

    pub(crate) fn data(&self) -> &[u8] {
        &self.data
    }

    pub(crate) fn range(&self) -> Range<u64> {
        self.offset..self.offset + self.data.len() as u64
    }

    pub(crate) fn overlaps(&self, other: &Op) -> bool {
        let (a, b) = (self.range(), other.range());
        self.file == other.file && a.start < b.end && b.start < a.end
    }

    /// The memory must stay until the event has been taken.
    pub(crate) fn command(&mut self, file: &File) -> Command {
        let fd = file.as_raw_fd();
        let segments =
            Segments::One(IoVec { base: self.memory.as_mut_ptr(), len: self.memory.len() });
        let flags = open_for(fd).unwrap();
        // SAFETY: a run keeps its requests until the engine is gone.
        let mut command =
            unsafe { Command::new(self.kind, (fd, flags), segments, self.offset as i64) };
        command.rw_flags |= if self.durable { rwf::DSYNC } else { 0 };
        command
    }
}

impl fmt::Debug for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Op { kind, direct, file, result, cancelled, .. } = self;
        let (range, direct) = (self.range(), if *direct { "direct " } else { "" });
        let durable = if self.durable { "durable " } else { "" };
        write!(f, "{direct}{durable}{kind:?} of file {file} at {range:?}: {result:?}")?;
        if *cancelled { write!(f, ", cancelled") } else { Ok(()) }
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct May {
    pub(crate) fail: bool,
    pub(crate) be_short: bool,
}

/// The bytes of a file; `None`: not known, because a write has failed.
pub(crate) struct Model(Vec<Option<u8>>);

impl Model {
    pub(crate) fn new(size: u64) -> Model {
        Model(vec![Some(0); size as usize])
    }

    /// All requests that were submitted before `op` must have taken effect.
    pub(crate) fn apply(&mut self, op: &Op, may: May) -> Result<(), String> {
        let result = op.result.ok_or("it has no event")?;
        let failed = |errno: Errno| result == -i64::from(errno.raw());
        let excused = failed(Errno::IO) && may.fail || failed(Errno::CANCELED) && op.cancelled;
        // A caller that gets EAGAIN repeats the same write, so some bytes may be written.
        let excused = excused || failed(Errno::AGAIN) && op.refused;
        if result < 0 && !excused {
            return Err("it failed".to_owned());
        }
        if matches!(op.kind, Kind::Fsync | Kind::Fdatasync) {
            return Ok(());
        }
        let len = op.data.len();
        let done = if result < 0 { 0 } else { result as usize };
        if done > len || done < len && result >= 0 && !may.be_short && !op.cancelled {
            return Err(format!("it moved {done} of {len} bytes"));
        }
        let bytes = &mut self.0[op.offset as usize..][..len];
        if op.kind == Kind::Write {
            bytes[..done].iter_mut().zip(&op.data).for_each(|(at, byte)| *at = Some(*byte));
            bytes[done..].fill(None);
            return Ok(());
        }
        compare(&mut bytes[..done], &op.memory)
    }

    pub(crate) fn judge(&mut self, contents: &[u8]) -> Result<(), String> {
        compare(&mut self.0, contents)
    }
}

/// The bytes that were not known become those of `seen`.
fn compare(known: &mut [Option<u8>], seen: &[u8]) -> Result<(), String> {
    for (index, (known, seen)) in known.iter_mut().zip(seen).enumerate() {
        if *known.get_or_insert(*seen) != *seen {
            return Err(format!("byte {index} is {seen}, and should be {}", known.unwrap_or(0)));
        }
    }
    Ok(())
}
