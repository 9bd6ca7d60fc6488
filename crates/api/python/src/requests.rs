//! The requests of a thread: in flight, or waiting in line for a place.

use crate::{
    error::Failure,
    limits::{Amount, Load},
    memory::Memory,
    transfer::Transfer,
};
use core::{ops::Range, time::Duration};
use nowait::{Completion, Error, File, IoBuffer, Queue, Refused, RequestId};
use pyo3::prelude::*;
use std::{
    collections::{BTreeMap, HashMap},
    os::fd::AsRawFd,
};

/// Most requests of a thread in flight, whatever its limit.
pub(crate) const DEPTH: usize = 4096;

pub(crate) enum Action {
    Read(Destination, u64),
    Write(Memory, u64),
    SyncAll,
    SyncData,
    /// Offset and length; length 0: to the end of the file.
    SyncRange(u64, u64),
}

pub(crate) enum Destination {
    /// Memory of this length, made when the request begins: a request in line has none.
    New(usize),
    Given(Memory),
}

impl Action {
    fn bytes(&self) -> u64 {
        match self {
            Action::Read(Destination::New(len), _) => *len as u64,
            Action::Read(Destination::Given(memory), _) | Action::Write(memory, _) => {
                memory.len() as u64
            }
            _ => 0,
        }
    }
}

/// The end of a request. The caller drops it without the lock: the drop of a buffer may run code of
/// the program, and the drop of the last handle of a file closes the file.
pub(crate) struct Ended<T> {
    pub(crate) target: Option<T>,
    /// `None`: the request moves no bytes.
    pub(crate) transfer: Option<Transfer>,
    pub(crate) result: Result<(), Failure>,
}

pub(crate) struct Requests<T> {
    queue: Queue<u64, Transfer>,
    /// The receiver of each request, and its name in the queue, by key.
    known: HashMap<u64, (T, Option<RequestId>)>,
    line: BTreeMap<u64, (File, Action)>,
    in_flight: Amount,
    next_key: u64,
}

impl<T> Requests<T> {
    pub(crate) fn new(queue: Queue<u64, Transfer>) -> Requests<T> {
        let (known, line) = (HashMap::new(), BTreeMap::new());
        Requests { queue, known, line, in_flight: Amount::default(), next_key: 0 }
    }

    pub(crate) fn new_keys(&mut self, count: usize) -> Range<u64> {
        let first = self.next_key;
        self.next_key += count as u64;
        first..self.next_key
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.queue.is_empty() && self.line.is_empty()
    }

    pub(crate) fn load(&self) -> (Amount, usize) {
        (self.in_flight, self.line.len())
    }

    pub(crate) fn descriptor(&mut self) -> Result<i32, Error> {
        self.queue.event_fd().map(|fd| fd.as_raw_fd())
    }

    pub(crate) fn wait_for_all(&mut self, at_most: Duration) -> Result<usize, Error> {
        self.queue.wait(usize::MAX, Some(at_most))
    }

    /// Makes a read whose data are available without waiting, unless requests are in line. Returns
    /// the end of the read, without a target. `Err`: returns the action, which is no read or must
    /// be submitted.
    pub(crate) fn read_at_once(
        &mut self,
        py: Python<'_>,
        file: &File,
        action: Action,
    ) -> Result<Ended<T>, Action> {
        let Action::Read(destination, offset) = action else { return Err(action) };
        let (memory, len) = match destination {
            destination if !self.line.is_empty() => return Err(Action::Read(destination, offset)),
            Destination::Given(memory) => (memory, None),
            Destination::New(len) => match Memory::for_read(py, len, file.alignment()) {
                Ok(memory) => (memory, Some(len)),
                Err(_) => return Err(Action::Read(Destination::New(len), offset)),
            },
        };
        let mut transfer = Transfer::new(memory, file.clone(), offset, false);
        let result = match self.queue.read_at_once(file, &mut transfer, offset) {
            Some(Ok(count)) => {
                transfer.moved(count);
                Ok(())
            }
            Some(Err(error)) => Err(error.into()),
            None => {
                let given = || Destination::Given(transfer.into_memory());
                let destination = len.map_or_else(given, Destination::New);
                return Err(Action::Read(destination, offset));
            }
        };
        Ok(Ended { target: None, transfer: Some(transfer), result })
    }

    /// Prepares a request, or puts it in line. A request that ends at once goes to `ended`.
    pub(crate) fn take(
        &mut self,
        py: Python<'_>,
        load: &Load,
        (key, target): (u64, T),
        (file, action): (&File, Action),
        ended: &mut impl FnMut(Ended<T>),
    ) {
        self.known.insert(key, (target, None));
        if self.line.is_empty() && self.may_begin(load, action.bytes()) {
            return self.begin(py, load, key, (file, action), ended);
        }
        if self.line.is_empty() {
            load.has_line(true);
        }
        self.line.insert(key, (file.clone(), action));
    }

    /// Requests that end at once go to `ended`. Returns `true` if requests have ended at once while
    /// others are in line: the requests in line then need a turn, because no completion may come to
    /// start them.
    pub(crate) fn submit(&mut self, load: &Load, ended: &mut impl FnMut(Ended<T>)) -> bool {
        let begun = self.in_flight.requests;
        loop {
            let (in_flight, known) = (&mut self.in_flight, &mut self.known);
            let mut rests = Vec::new();
            self.queue.submit_and_pop(|completion| {
                let Completion { tag: key, buffers, result } = completion;
                let mut transfer = buffers.one();
                let goes_on = match (&mut transfer, &result) {
                    (Some(transfer), Ok(count)) => transfer.moved(*count),
                    _ => false,
                };
                if goes_on {
                    return rests.extend(transfer.map(|rest| (key, rest)));
                }
                load.leave(in_flight, size(transfer.as_ref()));
                let target = known.remove(&key).map(|(target, _)| target);
                let result = result.map(drop).map_err(Failure::from);
                ended(Ended { target, transfer, result });
            });
            if rests.is_empty() {
                return !self.line.is_empty() && self.in_flight.requests < begun;
            }
            for (key, rest) in rests {
                self.prepare_transfer(load, key, rest, ended);
            }
        }
    }

    /// Takes the requests that have ended, and begins requests in line that then have a place.
    /// Returns `true` if requests begun here have ended at once while others are in line: more may
    /// then begin in the event loop's next turn.
    pub(crate) fn reap(
        &mut self,
        py: Python<'_>,
        load: &Load,
        ended: &mut impl FnMut(Ended<T>),
    ) -> Result<bool, Error> {
        self.queue.wait(0, Some(Duration::ZERO))?;
        self.submit(load, ended);
        if self.line.is_empty() {
            return Ok(false);
        }
        while let Some((_, (_, action))) = self.line.first_key_value() {
            let bytes = action.bytes();
            if !self.may_begin(load, bytes) {
                break;
            }
            if let Some((key, (file, action))) = self.line.pop_first() {
                self.begin(py, load, key, (&file, action), ended);
            }
        }
        let has_turn = self.submit(load, ended);
        if self.line.is_empty() {
            load.has_line(false);
        }
        Ok(has_turn)
    }

    /// Asks for an early end of a request; a request that was in line goes to `left`, with its
    /// receiver.
    pub(crate) fn cancel(
        &mut self,
        load: &Load,
        key: u64,
        left: &mut impl FnMut((File, Action, Option<T>)),
    ) {
        if let Some((file, action)) = self.line.remove(&key) {
            if self.line.is_empty() {
                load.has_line(false);
            }
            left((file, action, self.known.remove(&key).map(|(target, _)| target)));
        } else if let Some((_, Some(id))) = self.known.get(&key) {
            self.queue.cancel(*id);
        }
    }

    fn may_begin(&mut self, load: &Load, bytes: u64) -> bool {
        let is_in_line = !self.line.is_empty();
        !self.queue.is_full() && load.enter(&mut self.in_flight, bytes, is_in_line)
    }

    fn begin(
        &mut self,
        py: Python<'_>,
        load: &Load,
        key: u64,
        (file, action): (&File, Action),
        ended: &mut impl FnMut(Ended<T>),
    ) {
        let bytes = action.bytes();
        let transfer =
            |memory, offset, is_write| Transfer::new(memory, file.clone(), offset, is_write);
        let prepared = match action {
            Action::Read(destination, offset) => {
                let memory = match destination {
                    Destination::Given(memory) => Ok(memory),
                    Destination::New(len) => Memory::for_read(py, len, file.alignment()),
                };
                let Ok(memory) = memory else {
                    load.leave(&mut self.in_flight, bytes);
                    return self.end(key, None, Failure::Memory, ended);
                };
                return self.prepare_transfer(load, key, transfer(memory, offset, false), ended);
            }
            Action::Write(memory, offset) => {
                return self.prepare_transfer(load, key, transfer(memory, offset, true), ended);
            }
            Action::SyncAll => self.queue.sync_all(file, key),
            Action::SyncData => self.queue.sync_data(file, key),
            Action::SyncRange(offset, len) => self.queue.sync_range(file, offset, len, key),
        };
        self.prepared(load, key, prepared, ended);
    }

    fn prepare_transfer(
        &mut self,
        load: &Load,
        key: u64,
        transfer: Transfer,
        ended: &mut impl FnMut(Ended<T>),
    ) {
        let (file, offset) = (transfer.file.clone(), transfer.offset());
        let prepared = match transfer.is_write {
            true => self.queue.write(&file, transfer, offset, key),
            false => self.queue.read(&file, transfer, offset, key),
        };
        self.prepared(load, key, prepared, ended);
    }

    fn prepared(
        &mut self,
        load: &Load,
        key: u64,
        prepared: Result<RequestId, Refused<u64, Transfer>>,
        ended: &mut impl FnMut(Ended<T>),
    ) {
        match prepared {
            Ok(id) => {
                if let Some((_, name)) = self.known.get_mut(&key) {
                    *name = Some(id);
                }
            }
            Err(Refused { error, tag, buffers }) => {
                let transfer = buffers.one();
                load.leave(&mut self.in_flight, size(transfer.as_ref()));
                self.end(tag, transfer, error.into(), ended);
            }
        }
    }

    fn end(
        &mut self,
        key: u64,
        transfer: Option<Transfer>,
        failure: Failure,
        ended: &mut impl FnMut(Ended<T>),
    ) {
        let target = self.known.remove(&key).map(|(target, _)| target);
        ended(Ended { target, transfer, result: Err(failure) });
    }
}

fn size(transfer: Option<&Transfer>) -> u64 {
    transfer.map_or(0, |transfer| transfer.size() as u64)
}
