//! A request to a server, with its memory and the receiver of its end.

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
    /// `None`: a thread is sending the memory, or filling it.
    pub(super) memory: Option<Memory>,
    /// The request was sent, or is being sent.
    pub(super) is_sent: bool,
    /// The result that the server reported while the request was still being sent.
    pub(super) answer: Option<Result<(), Errno>>,
    /// For a flush: changes with lower numbers were answered before the flush was sent.
    pub(super) covers: u64,
    pub(super) so_far: SoFar,
    pub(super) visit: Option<Visit>,
    pub(super) end: End,
}

/// The chunks that have arrived of an incomplete reply.
#[derive(Debug, Default)]
pub(super) struct SoFar {
    pub(super) bytes: u32,
    pub(super) failure: Option<Errno>,
    pub(super) failures: u32,
}

impl Request {
    pub(super) fn new(command: Command, memory: Memory, end: End) -> Request {
        let (memory, so_far) = (Some(memory), SoFar::default());
        let (is_sent, answer, covers, visit) = (false, None, 0, None);
        Request { command, memory, is_sent, answer, covers, so_far, visit, end }
    }

    pub(super) fn forget_answer(&mut self) {
        self.is_sent = false;
        self.so_far = SoFar::default();
        if let Some(Memory::Extents(extents)) = &mut self.memory {
            extents.clear();
        }
    }

    /// Returns the result; `None`: the chunks do not make a complete reply.
    pub(super) fn outcome(&self) -> Option<Result<(), Errno>> {
        let is_whole = match &self.memory {
            _ if self.so_far.failure.is_some() => true,
            Some(Memory::Extents(extents)) => !extents.is_empty(),
            _ => !self.command.reads() || self.so_far.bytes == self.command.len,
        };
        is_whole.then(|| self.so_far.failure.map_or(Ok(()), Err))
    }

    /// Also offers the data of a successful read or write to the image's cache, if there is one.
    pub(super) fn tell(self, result: Result<(), Errno>, memory: Memory) {
        if let Some(visit) = self.visit
            && result.is_ok()
        {
            visit.end_well(memory.bytes());
        }
        self.end.tell(result, memory);
    }
}

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

#[derive(Debug)]
pub(super) enum End {
    Mail(Arc<Mailbox>, Tag, Option<Shared>),
    Call(mpsc::SyncSender<(Result<(), Errno>, Memory)>),
    /// No receiver: the request is the flush that makes room in the journal.
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
            // A caller that did not wait any longer has dropped its receiver.
            End::Call(sender) => _ = sender.send((result, memory)),
            End::Room => {}
        }
    }
}
