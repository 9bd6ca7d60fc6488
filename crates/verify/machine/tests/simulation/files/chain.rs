//! Linked requests of a queue: each begins when the one before it has succeeded, and is cancelled
//! if the one before it fails. One of them may be cancelled, or have a time limit.

use super::Actor;
use crate::model::PAGE;
use nowait::{AlignedBuffer, Completion, Error, Queue, RequestId};
use nowait_sys::Errno;
use std::time::Duration;

#[derive(Clone, Copy, Debug)]
enum Link {
    Write(u64, usize),
    /// Must find the chain's earlier write.
    Read(u64, usize),
    Sync,
}

type Ended = Completion<usize, AlignedBuffer>;

struct Chain {
    links: Vec<Link>,
    stopped: Option<usize>,
}

impl Actor {
    pub(super) fn chain(&mut self) {
        let mut queue: Queue<usize, AlignedBuffer> = self.setup.nowait.queue(16).unwrap();
        let (mut links, mut ids): (Vec<Link>, Vec<RequestId>) = (Vec::new(), Vec::new());
        for tag in 0..2 + self.prng.index(5) {
            let (link, id) = self.prepare(&mut queue, &links, tag);
            if let Some(before) = ids.last() {
                queue.link(*before, id).unwrap();
            }
            links.push(link);
            ids.push(id);
        }
        let stopped = self.prng.chance(300_000).then(|| self.prng.index(ids.len()));
        let early = self.prng.chance(300_000);
        if !early {
            queue.submit();
        }
        stopped.into_iter().for_each(|place| self.stop(&mut queue, ids[place]));
        queue.submit();
        let mut ended: Vec<Option<Ended>> = links.iter().map(|_| None).collect();
        while !queue.is_empty() {
            queue
                .reap(1, None, |it| {
                    let tag = it.tag;
                    assert!(ended[tag].replace(it).is_none(), "each ends once");
                })
                .unwrap();
        }
        self.judge_chain(&Chain { links, stopped }, ended.into_iter().flatten().collect());
    }

    fn stop(&mut self, queue: &mut Queue<usize, AlignedBuffer>, id: RequestId) {
        if self.prng.chance(500_000) {
            queue.cancel(id); // it may be over
        } else {
            let after = Duration::from_nanos(self.prng.below(10_000_000));
            queue.timeout(id, after).unwrap();
        }
    }

    fn prepare(
        &mut self,
        queue: &mut Queue<usize, AlignedBuffer>,
        chain: &[Link],
        tag: usize,
    ) -> (Link, RequestId) {
        let written = chain.iter().rev().find_map(|link| match link {
            Link::Write(page, version) => Some((*page, *version)),
            _ => None,
        });
        let (link, taken) = match (self.prng.index(4), written) {
            (0, Some((page, version))) => {
                let memory = AlignedBuffer::zeroed(PAGE as usize);
                let taken = queue.read(&self.file, memory, page * PAGE, tag);
                (Link::Read(page, version), taken)
            }
            (1, Some(_)) => (Link::Sync, queue.sync_data(&self.file, tag)),
            _ => {
                let page = self.page_of_own();
                let bytes = self.setup.model.begin_write(page);
                let version = self.setup.model.newest(page);
                let taken = queue.write(&self.file, bytes, page * PAGE, tag);
                (Link::Write(page, version), taken)
            }
        };
        (link, taken.unwrap_or_else(|_| panic!("there is room")))
    }

    fn judge_chain(&mut self, chain: &Chain, ended: Vec<Ended>) {
        let mut written = Vec::new();
        let mut goes_on = true;
        for (place, Completion { buffers, result, .. }) in ended.into_iter().enumerate() {
            let link = chain.links[place];
            let errno = result.as_ref().err().map(Error::errno);
            let was_stopped = chain.stopped == Some(place)
                && [Some(Errno::CANCELED), Some(Errno::TIMEDOUT)].contains(&errno);
            if !goes_on {
                let no_room = self.setup.limits.is_some() && errno == Some(Errno::AGAIN);
                let ended = was_stopped || no_room || errno == Some(Errno::CANCELED);
                assert!(ended, "{link:?} after one that has failed: {errno:?}");
                continue;
            }
            goes_on = match link {
                _ if was_stopped => false,
                Link::Sync => {
                    let synced = self.synced(result, None);
                    if synced {
                        let model = &self.setup.model;
                        let durable = |(page, version)| model.is_durable(page, version);
                        written.drain(..).for_each(durable);
                        self.setup.judge_cut();
                    }
                    synced
                }
                Link::Write(page, version) => {
                    let done = self.setup.expected(result);
                    if done.is_some() {
                        assert_eq!(done, Some(PAGE as usize));
                        self.setup.model.is_written(page, version);
                        written.push((page, version));
                    }
                    done.is_some()
                }
                Link::Read(page, version) => {
                    let done = self.setup.expected(result);
                    if done.is_some() {
                        let bytes = buffers.one().expect("one buffer");
                        self.setup.model.judge_version(page, version, &bytes);
                    }
                    done.is_some()
                }
            };
        }
    }
}
