//! A request to a server: its memory, and where its end goes.

use super::{
    cache::Visit,
    wire::{Command, Extent},
};
use crate::{Chunk, Mailbox, RequestEnd, Tag, stripes::Shared};
use nowait::Errno;
use std::sync::{Arc, mpsc};

#[derive(Debug)]
pub(super) struct Request {
    pub(super) command: Command,
    /// `None`: it is being sent, or filled.
    pub(super) memory: Option<Memory>,
    /// It was sent, or is being sent.
    pub(super) is_sent: bool,
    /// Came while the request was being sent.
    pub(super) answer: Option<Result<(), Errno>>,
    /// Of a flush: how many changes had been answered when it was sent.
    pub(super) covers: u64,
    /// Of a reply in chunks.
    pub(super) so_far: SoFar,
    /// To the pages of a cache, if there is one.
    pub(super) visit: Option<Visit>,
    pub(super) end: End,
}

/// What has come of a reply whose last chunk has not.
#[derive(Debug, Default)]
pub(super) struct SoFar {
    /// Bytes of a read.
    pub(super) bytes: u32,
    pub(super) failure: Option<Errno>,
    /// How many chunks said that it has failed.
    pub(super) failures: u32,
}

impl Request {
    pub(super) fn new(command: Command, memory: Memory, end: End) -> Request {
        let (memory, so_far) = (Some(memory), SoFar::default());
        let (is_sent, answer, covers, visit) = (false, None, 0, None);
        Request { command, memory, is_sent, answer, covers, so_far, visit, end }
    }

    /// Makes it one that was not sent.
    pub(super) fn forget_answer(&mut self) {
        self.is_sent = false;
        self.so_far = SoFar::default();
        if let Some(Memory::Extents(extents)) = &mut self.memory {
            extents.clear();
        }
    }

    /// Returns how it has ended, when all chunks of its reply have come; `None`: some have not.
    pub(super) fn outcome(&self) -> Option<Result<(), Errno>> {
        let is_whole = match &self.memory {
            _ if self.so_far.failure.is_some() => true,
            Some(Memory::Extents(extents)) => !extents.is_empty(),
            _ => !self.command.reads() || self.so_far.bytes == self.command.len,
        };
        is_whole.then(|| self.so_far.failure.map_or(Ok(()), Err))
    }

    /// Tells how it has ended; a cache knows of it before.
    pub(super) fn tell(self, result: Result<(), Errno>, memory: Memory) {
        if let Some(visit) = self.visit
            && result.is_ok()
        {
            visit.end_well(memory.bytes());
        }
        self.end.tell(result, memory);
    }
}

/// What is sent with a request, or filled by its answer.
#[derive(Debug)]
pub(super) enum Memory {
    Nothing,
    Chunk(Chunk),
    Bytes(Vec<u8>),
    Extents(Vec<Extent>),
}

impl Memory {
    pub(super) fn bytes(&self) -> &[u8] {
        match self {
            Memory::Nothing | Memory::Extents(_) => &[],
            Memory::Chunk(chunk) => chunk.whole(),
            Memory::Bytes(bytes) => bytes,
        }
    }

    pub(super) fn bytes_mut(&mut self) -> &mut [u8] {
        match self {
            Memory::Nothing | Memory::Extents(_) => &mut [],
            Memory::Chunk(chunk) => chunk.whole_mut(),
            Memory::Bytes(bytes) => bytes,
        }
    }
}

/// Where the end of a request goes.
#[derive(Debug)]
pub(super) enum End {
    Mail(Arc<Mailbox>, Tag, Option<Shared>),
    Call(mpsc::SyncSender<(Result<(), Errno>, Memory)>),
    /// To no client: it makes room in the journal.
    Room,
}

impl End {
    pub(super) fn tell(self, result: Result<(), Errno>, memory: Memory) {
        match self {
            End::Mail(mailbox, tag, blocks) => {
                drop(blocks);
                let chunk = if let Memory::Chunk(chunk) = memory { Some(chunk) } else { None };
                mailbox.put(RequestEnd { tag, result, chunk, extents: Vec::new() });
            }
            // The caller waits for it.
            End::Call(sender) => _ = sender.send((result, memory)),
            End::Room => {}
        }
    }
}
