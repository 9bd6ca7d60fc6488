//! Threads that carry out I/O for others: they take requests from a desk, many at a time.

use std::time::{Duration, Instant};

use crate::buffers::Arena;
use crate::run::joined;
use crate::{Engine, Peer, Request};
use nowait_harness::error::Result;

/// The place where clients leave work, and servers find it.
pub(crate) trait Desk: Sync {
    /// Takes at most `max` requests; `waits` until there are some, or the work is over.
    fn take(&self, max: usize, waits: bool) -> Vec<Request>;

    /// Checks the bytes of a request that is over.
    fn look(&self, _request: Request, _bytes: &[u8]) {}

    /// Gives back requests that are over.
    fn give_back(&self, ended: &[Request]);

    /// Announces that there will be no more work; `failed`: nor answers.
    fn close(&self, failed: bool);
}

/// Servers that have one peer each.
pub(crate) struct Servers<'a, E> {
    pub(crate) engine: &'a E,
    pub(crate) count: usize,
    /// Requests that each has in flight at most, and their size.
    pub(crate) depth: usize,
    pub(crate) block_bytes: usize,
    pub(crate) arena: &'a Arena,
}

impl<E: Engine> Servers<'_, E> {
    /// Runs clients beside the servers, and returns what each has done, and how long they took.
    pub(crate) fn serve<T: Send>(
        &self,
        desk: &impl Desk,
        (clients, client): (usize, impl Fn(usize) -> Result<T> + Sync),
    ) -> Result<(Vec<T>, Duration)> {
        let (start, client) = (Instant::now(), &client);
        std::thread::scope(|scope| {
            let serve = || self.one(desk).inspect_err(|_| desk.close(true));
            let servers: Vec<_> = (0..self.count).map(|_| scope.spawn(serve)).collect();
            let run = |index| scope.spawn(move || client(index).inspect_err(|_| desk.close(true)));
            let clients: Vec<_> = (0..clients).map(run).collect();
            let done = clients.into_iter().map(joined).collect::<Result<Vec<T>>>();
            let wall = start.elapsed();
            desk.close(false);
            let served = servers.into_iter().map(joined).collect::<Result<Vec<()>>>();
            served.and(done).map(|done| (done, wall))
        })
    }

    /// Takes requests as long as there are some, and keeps as many as may be in flight.
    fn one(&self, desk: &impl Desk) -> Result<()> {
        let mut peer = self.engine.peer(self.arena.cut(self.block_bytes, self.depth)?)?;
        let mut in_flight = 0;
        loop {
            let requests = desk.take(self.depth - in_flight, in_flight == 0);
            if requests.is_empty() && in_flight == 0 {
                return Ok(());
            }
            if !requests.is_empty() {
                peer.submit(&requests)?;
                in_flight += requests.len();
            }
            let min = usize::from(requests.is_empty() || in_flight == self.depth);
            let mut ended = Vec::new();
            peer.reap(min, &mut |request, bytes| {
                desk.look(request, bytes);
                ended.push(request);
            })?;
            in_flight -= ended.len();
            desk.give_back(&ended);
        }
    }
}
