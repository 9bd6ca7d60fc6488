//! A request to a server: its memory, and where its end goes.

use super::{cache::Visit, wire::Command};
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
    /// To the pages of a cache, if there is one.
    pub(super) visit: Option<Visit>,
    pub(super) end: End,
}

impl Request {
    pub(super) fn new(command: Command, memory: Memory, end: End) -> Request {
        let (memory, visit) = (Some(memory), None);
        Request { command, memory, is_sent: false, answer: None, covers: 0, visit, end }
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
}

impl Memory {
    pub(super) fn bytes(&self) -> &[u8] {
        match self {
            Memory::Nothing => &[],
            Memory::Chunk(chunk) => chunk.whole(),
            Memory::Bytes(bytes) => bytes,
        }
    }

    pub(super) fn bytes_mut(&mut self) -> &mut [u8] {
        match self {
            Memory::Nothing => &mut [],
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
