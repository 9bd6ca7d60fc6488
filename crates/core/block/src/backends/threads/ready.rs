//! The work that waits until a worker takes it.

use crate::Lane;
use crate::{Completion, bio::Bio, fair::Fair};
use nowait_sys::Errno;
use rustc_hash::FxHashMap;
use std::sync::Arc;

/// The flow in which a lane waits for its next turn, after a turn that has left bios in it.
const LANES: u64 = 1;

pub(super) enum Work {
    Bio(Bio),
    Lane(Arc<Lane>),
    Poll(Bio, u64),
    Poke,
    /// The worker must call the receiver without completions.
    Wake,
    /// A completion that a worker must deliver: of a cancelled bio, or from `Threads::deliver`.
    Done(Completion),
}

enum Place {
    Flow(u64, u64),
    Lane(Arc<Lane>, u64),
}

/// [`Ready::take`] finds a bio by its token without a search.
#[derive(Default)]
pub(super) struct Ready {
    work: Fair<Work>,
    /// The places of waiting bios by token. A bio that a worker has taken from a lane stays in this
    /// map until the lane's turn ends.
    places: FxHashMap<u64, Place>,
    /// The lanes whose bios workers run now.
    lanes: Vec<Arc<Lane>>,
}

/// A bio that was taken from a lane: its token and its number in the lane.
pub(super) type LaneEntry = (u64, u64);

impl Ready {
    pub(super) fn add(&mut self, mut bio: Bio) {
        let (token, flow) = (bio.token, bio.flow);
        let place = match bio.hints.lane.take() {
            None => Place::Flow(flow, self.work.push(flow, Work::Bio(bio))),
            Some(lane) => {
                let (number, must_run) = lane.push(bio);
                if must_run {
                    self.work.push(flow, Work::Lane(lane.clone()));
                }
                Place::Lane(lane, number)
            }
        };
        self.places.insert(token, place);
    }

    pub(super) fn add_urgent(&mut self, work: Work) {
        self.work.push_urgent(work);
    }

    pub(super) fn next(&mut self) -> Option<Work> {
        let work = self.work.pop()?;
        match &work {
            Work::Bio(bio) => drop(self.places.remove(&bio.token)),
            Work::Lane(lane) => self.lanes.push(lane.clone()),
            _ => {}
        }
        Some(work)
    }

    pub(super) fn next_done(&mut self) -> Option<Completion> {
        match self.work.pop_urgent_if(|work| matches!(work, Work::Done(_)))? {
            Work::Done(completion) => Some(completion),
            _ => None,
        }
    }

    /// If `again`, the lane has more bios and waits for another turn.
    pub(super) fn end_turn(&mut self, lane: &Arc<Lane>, had: &[LaneEntry], again: bool) {
        if let Some(index) = self.lanes.iter().position(|running| Arc::ptr_eq(running, lane)) {
            self.lanes.swap_remove(index);
        }
        for (token, number) in had {
            // A later bio of the same request may be in the map with the same token.
            let is_it = |place: &Place| match place {
                Place::Lane(its, at) => at == number && Arc::ptr_eq(its, lane),
                Place::Flow(..) => false,
            };
            if self.places.get(token).is_some_and(is_it) {
                self.places.remove(token);
            }
        }
        if again {
            self.work.push(LANES, Work::Lane(lane.clone()));
        }
    }

    pub(super) fn take(&mut self, token: u64) -> Option<Bio> {
        match self.places.remove(&token)? {
            Place::Lane(lane, number) => lane.take(number),
            Place::Flow(flow, number) => match self.work.take(flow, number)? {
                Work::Bio(bio) => Some(bio),
                _ => None,
            },
        }
    }

    /// Turns into cancelled completions the `pending` bios, and the ready bios that no worker has
    /// begun.
    pub(super) fn cancel_all(&mut self, pending: &mut Vec<Bio>) {
        let mut bios = core::mem::take(pending);
        let mut kept = Vec::new();
        for work in self.work.take_all() {
            match work {
                Work::Bio(bio) => bios.push(bio),
                // No worker runs bios of this lane, which was in `work`, not in `lanes`.
                Work::Lane(lane) => {
                    take_all(&lane, &mut bios);
                    lane.pause();
                }
                work => kept.push(work),
            }
        }
        self.lanes.iter().for_each(|lane| take_all(lane, &mut bios));
        self.places.clear();
        kept.extend(bios.iter().map(|bio| cancelled(bio.token)));
        kept.into_iter().for_each(|work| self.work.push_urgent(work));
    }

    pub(super) fn is_empty(&self) -> bool {
        self.work.is_empty()
    }
}

fn take_all(lane: &Lane, bios: &mut Vec<Bio>) {
    bios.extend(core::iter::from_fn(|| lane.take_first()));
}

pub(super) fn cancelled(token: u64) -> Work {
    Work::Done(Completion { token, result: Err(Errno::CANCELED) })
}
