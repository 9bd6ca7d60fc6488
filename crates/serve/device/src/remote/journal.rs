//! Changes that the server has answered and that no later flush covers yet: a server that restarts
//! may lose them.

use super::wire::{self, Command, Part};
use core::ops::Range;
use nowait::Errno;
use std::{
    collections::VecDeque,
    io::{self, Read, Write},
};

#[derive(Debug)]
pub(super) struct Change {
    pub(super) command: Command,
    pub(super) bytes: Vec<u8>,
}

/// Changes in the order in which the server answered them. The client never had overlapping changes
/// in flight at the same time, so the server also carried out overlapping changes in this order.
#[derive(Debug, Default)]
pub(super) struct Journal {
    changes: VecDeque<Change>,
    /// The number of changes that [`Journal::forget`] has removed.
    gone: u64,
    bytes: usize,
    bytes_max: usize,
}

/// Bytes that the journal counts for a change beside its data.
const CHANGE_BYTES: usize = 128;
/// The most changes in flight while the client repeats the journal.
const BATCH: usize = 64;

pub(super) fn cost(command: &Command) -> usize {
    CHANGE_BYTES + if command.kind == wire::Kind::Write { command.len as usize } else { 0 }
}

impl Journal {
    pub(super) fn new(bytes_max: usize) -> Journal {
        Journal { bytes_max, ..Journal::default() }
    }

    pub(super) fn keeps(&self) -> bool {
        self.bytes_max > 0
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(super) fn has_room(&self, more: usize) -> bool {
        self.bytes + more <= self.bytes_max
    }

    pub(super) fn is_half_full(&self) -> bool {
        self.bytes > self.bytes_max / 2
    }

    pub(super) fn add(&mut self, change: Change) {
        self.bytes += cost(&change.command);
        self.changes.push_back(change);
    }

    /// A flush sent now covers all changes with numbers below the returned one.
    pub(super) fn end(&self) -> u64 {
        self.gone + self.changes.len() as u64
    }

    /// Removes the changes with numbers below `end`: a flush has made them durable, or the image
    /// has failed.
    pub(super) fn forget(&mut self, end: u64) {
        while self.gone < end
            && let Some(change) = self.changes.pop_front()
        {
            self.bytes -= cost(&change.command);
            self.gone += 1;
        }
    }

    /// Sends all changes again and waits for the answers, for overlapping changes one after the
    /// other. Returns the number of changes.
    pub(super) fn repeat(
        &self,
        stream: &mut (impl Read + Write),
        chunks: bool,
    ) -> Result<u64, Failure> {
        let mut batch: Vec<&Change> = Vec::new();
        for change in &self.changes {
            let range = change.command.range();
            if batch.len() == BATCH || batch.iter().any(|other| overlap(other, &range)) {
                repeat_batch(&batch, stream, chunks)?;
                batch.clear();
            }
            batch.push(change);
        }
        repeat_batch(&batch, stream, chunks)?;
        Ok(self.changes.len() as u64)
    }
}

#[derive(Debug)]
pub(super) enum Failure {
    /// A later attempt may succeed.
    Passing(io::Error),
    /// The server refuses an acknowledged change, or the export has changed.
    Final(String),
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Failure {
        Failure::Passing(error)
    }
}

fn overlap(change: &Change, range: &Range<u64>) -> bool {
    let its = change.command.range();
    its.start < range.end && range.start < its.end
}

fn repeat_batch(
    batch: &[&Change],
    stream: &mut (impl Read + Write),
    chunks: bool,
) -> Result<(), Failure> {
    for (cookie, change) in batch.iter().enumerate() {
        stream.write_all(&change.command.header(cookie as u64))?;
        stream.write_all(&change.bytes)?;
    }
    let mut answered = vec![false; batch.len()];
    for _ in batch {
        let reply = wire::reply(stream, chunks)?;
        let place = usize::try_from(reply.cookie).ok().and_then(|place| answered.get_mut(place));
        match place {
            Some(answered) if !*answered => *answered = true,
            _ => return Err(wire::strange().into()),
        }
        let result = match reply.part {
            Part::All(result) => result,
            Part::Nothing => Ok(()),
            // The client gives up this connection, so it need not read the rest of the reply.
            Part::Failed(errno) => Err(errno),
            Part::Data(..) | Part::Hole(..) | Part::Extents(..) => {
                return Err(wire::strange().into());
            }
        };
        match result {
            Ok(()) => {}
            Err(Errno::SHUTDOWN) => {
                return Err(io::Error::other("the NBD server is shutting down").into());
            }
            Err(errno) => {
                let reason = format!(
                    "the NBD server refuses a write that it had acknowledged: \
                                      {errno}"
                );
                return Err(Failure::Final(reason));
            }
        }
    }
    Ok(())
}
