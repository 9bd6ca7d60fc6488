//! The possible contents of a thread's files, and the data that its requests must find.

use super::{FILES, SECTOR};
use nowait_sys::{
    Errno,
    aio::{IoEvent, Iocb},
    aligned::AlignedBuffer,
};
use std::{
    collections::BTreeMap,
    ffi::{CStr, CString},
    time::{Duration, Instant},
};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Access {
    Read,
    Write,
    Sync,
}

/// The stamps that a sector may have: one, unless a write of the sector is in doubt.
pub(super) type Legal = Vec<u64>;

pub(super) struct Request {
    pub(super) iocb: Box<Iocb>,
    pub(super) memory: AlignedBuffer,
    pub(super) access: Access,
    pub(super) file: usize,
    pub(super) at: usize,
    /// The legal stamps of the request's sectors at its submission.
    pub(super) before: Vec<Legal>,
    pub(super) begun: Instant,
    pub(super) is_accepted: bool,
    pub(super) is_doubtful: bool,
}

pub(super) struct State {
    pub(super) paths: [CString; FILES],
    pub(super) models: [Vec<Legal>; FILES],
    pub(super) in_flight: BTreeMap<u64, Request>,
    /// Time limit for the end of each request, if threads wait all the time; `None`: they do not.
    pub(super) bound: Option<Duration>,
}

impl State {
    /// Records that a request may or may not have been done.
    pub(super) fn doubt(&mut self, name: u64) {
        let Some(request) = self.in_flight.get_mut(&name) else { return };
        request.is_doubtful = true;
        if request.access != Access::Write {
            return;
        }
        let (file, at, before) = (request.file, request.at, request.before.clone());
        let widen = |legal: &mut Legal, sector: usize| {
            let was = sector.checked_sub(at).and_then(|index| before.get(index));
            if let Some(was) = was.filter(|_| legal.contains(&name)) {
                legal.extend(was.iter().filter(|it| **it != name));
            }
        };
        self.models[file].iter_mut().enumerate().for_each(|(sector, it)| widen(it, sector));
        for other in self.in_flight.values_mut().filter(|other| other.file == file) {
            let at = other.at;
            other.before.iter_mut().enumerate().for_each(|(index, it)| widen(it, at + index));
        }
    }

    pub(super) fn begin(&mut self, name: u64, mut request: Request) {
        let len = request.memory.len() / SECTOR;
        let sectors = &mut self.models[request.file][request.at..][..len];
        request.before = sectors.to_vec();
        if request.access == Access::Write {
            sectors.iter_mut().for_each(|it| *it = vec![name]);
        }
        self.in_flight.insert(name, request);
    }

    pub(super) fn end(&mut self, event: IoEvent) {
        let request = self.in_flight.remove(&event.data).expect("an event comes once");
        let what = format!("{}: {:?}", event.data, request.access);
        assert_eq!(event.obj, (&raw const *request.iocb) as u64, "{what}");
        if let Some(bound) = self.bound {
            let took = request.begun.elapsed();
            assert!(took < bound, "{what} took {took:?}, although threads wait");
        }
        let len = request.memory.len();
        if request.is_doubtful {
            let is_cancelled = event.res == -i64::from(Errno::CANCELED.raw());
            assert!(is_cancelled || (0..=len as i64).contains(&event.res), "{what}: {}", event.res);
        } else {
            assert_eq!(event.res, len as i64, "{what}");
        }
        request.judge(&what, event.res.max(0) as usize);
    }

    pub(super) fn judge(&mut self, read: impl Fn(&CStr) -> Vec<u8>) {
        for (path, model) in self.paths.iter().zip(&self.models) {
            judge(&format!("{path:?} at the end"), model, &read(path));
        }
    }
}

impl Request {
    pub(super) fn judge(&self, what: &str, len: usize) {
        if self.access == Access::Read {
            let sectors = len / SECTOR;
            judge(what, &self.before[..sectors], &self.memory[..sectors * SECTOR]);
        }
    }
}

fn judge(what: &str, expected: &[Legal], found: &[u8]) {
    assert_eq!(found.len(), expected.len() * SECTOR, "{what}: bytes");
    for (index, (legal, sector)) in expected.iter().zip(found.chunks_exact(SECTOR)).enumerate() {
        let stamp = sector.first_chunk().map_or(0, |word| u64::from_le_bytes(*word));
        let is_whole = sector.chunks_exact(8).all(|word| word == stamp.to_le_bytes());
        assert!(
            is_whole && legal.contains(&stamp),
            "{what}: sector {index} has {stamp}: {legal:?}"
        );
    }
}
