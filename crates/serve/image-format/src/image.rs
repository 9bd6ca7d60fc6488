//! An image on a store, as a state machine. Each call that may act gets the time in nanoseconds,
//! which never goes back.

use crate::Geometry;
use crate::outbox::{Outbox, Over};
use crate::recovery::{Origin, Recovery};
use crate::request::{Failure, Request, RequestEnd, RequestId};
use crate::serving::Serving;
use crate::settings::{Settings, Usage};
use crate::stamp::ImageId;
use crate::store::{Answer, Costs, Operation, Ticket};

/// An image on a store.
#[derive(Debug)]
pub struct Image {
    out: Outbox,
    phase: Phase,
    early: Vec<(RequestId, Request)>,
}

#[derive(Debug)]
enum Phase {
    Opening(Box<Recovery>, Settings),
    Serving(Box<Serving>),
    Over(Over),
}

/// The status of an image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Status {
    /// The writer is opening the image; requests wait.
    Opening,
    /// The writer has the image.
    Serving {
        /// The epoch of the writer.
        epoch: u64,
        /// The block size, size and encryption of the image.
        geometry: Geometry,
    },
    /// The writer does not have the image, or not any more: all requests fail.
    Over(Over),
}

impl Image {
    /// Begins to make or to take over an image.
    pub fn open(settings: Settings, origin: Origin, now_ns: u64) -> Image {
        let mut out = Outbox::new(now_ns);
        let (writer, key) = (settings.writer.clone(), settings.key.clone());
        let phase = match Recovery::begin(writer, key, origin, &mut out) {
            Ok(recovery) => Phase::Opening(Box::new(recovery), settings),
            Err(over) => Phase::Over(over),
        };
        Image { out, phase, early: Vec::new() }
    }

    /// Returns the status.
    pub fn status(&self) -> Status {
        match &self.phase {
            Phase::Opening(..) => Status::Opening,
            Phase::Serving(serving) => {
                let head = serving.head();
                Status::Serving { epoch: head.epoch, geometry: head.geometry }
            }
            Phase::Over(over) => Status::Over(over.clone()),
        }
    }

    /// Returns the counts of the operations so far.
    pub fn costs(&self) -> Costs {
        self.out.errands.costs
    }

    /// Returns the number of bytes in segments that are not durable; waiting requests do not count.
    pub fn unflushed_bytes(&self) -> usize {
        match &self.phase {
            Phase::Serving(serving) => serving.unflushed_bytes(),
            _ => 0,
        }
    }

    /// Returns how many superfluous objects the writer knows and has not deleted yet.
    pub fn deletions(&self) -> usize {
        match &self.phase {
            Phase::Serving(serving) => serving.deletions(),
            _ => 0,
        }
    }

    /// Returns the image's number; `None` while the writer does not have the image.
    pub fn id(&self) -> Option<ImageId> {
        match &self.phase {
            Phase::Serving(serving) => Some(serving.head().image),
            _ => None,
        }
    }

    /// Returns the place of this writer's first segment; `None` while it does not have the image.
    pub fn first_sequence(&self) -> Option<u64> {
        match &self.phase {
            Phase::Serving(serving) => Some(serving.first_sequence()),
            _ => None,
        }
    }

    /// Returns the space that the image takes; `None` while the writer does not have the image.
    pub fn usage(&self) -> Option<Usage> {
        match &self.phase {
            Phase::Serving(serving) => Some(serving.usage()),
            _ => None,
        }
    }

    /// Begins a request. The request waits while the image is being opened, and fails if the writer
    /// does not have the image.
    pub fn submit(&mut self, id: RequestId, request: Request, now_ns: u64) {
        self.out.now_ns = now_ns;
        match &mut self.phase {
            Phase::Opening(..) => self.early.push((id, request)),
            Phase::Serving(serving) => serving.submit(id, request, &mut self.out),
            Phase::Over(_) => self.out.end(id, Err(Failure::Io)),
        }
    }

    /// Continues with the store's answer. A second answer to an operation has no effect.
    pub fn answer(&mut self, ticket: Ticket, answer: Answer, now_ns: u64) {
        self.out.now_ns = now_ns;
        let Some(errand) = self.out.errands.answered(ticket) else { return };
        let result = match &mut self.phase {
            Phase::Opening(recovery, settings) => {
                match recovery.answer(errand, answer, &mut self.out) {
                    Ok(Some(found)) => {
                        let serving = Serving::new(settings.clone(), found);
                        self.serve(serving);
                        Ok(())
                    }
                    Ok(None) => Ok(()),
                    Err(over) => Err(over),
                }
            }
            Phase::Serving(serving) => serving.answer(errand, answer, &mut self.out),
            Phase::Over(_) => Ok(()),
        };
        if let Err(over) = result {
            self.end(over);
        }
    }

    /// Does what is due at `now_ns`; see [`Image::next_ns`].
    pub fn turn(&mut self, now_ns: u64) {
        self.out.now_ns = now_ns;
        self.out.errands.turn(now_ns);
        if let Phase::Serving(serving) = &mut self.phase {
            serving.go_on(&mut self.out);
        }
    }

    /// Returns when to call [`Image::turn`] if nothing else happens before; `None`: never.
    pub fn next_ns(&self) -> Option<u64> {
        let serving = match &self.phase {
            Phase::Serving(serving) => serving.next_ns(),
            _ => None,
        };
        serving.into_iter().chain(self.out.errands.next_ns()).min()
    }

    /// Takes the next operation that the caller must carry out on the store.
    pub fn pop_operation(&mut self) -> Option<(Ticket, Operation)> {
        self.out.errands.pop()
    }

    /// Takes the end of a request.
    pub fn pop_end(&mut self) -> Option<RequestEnd> {
        self.out.ends.pop_front()
    }

    /// Takes a report of a segment with lost data: image, place, problem. Each segment comes once.
    pub fn pop_loss(&mut self) -> Option<(ImageId, u64, &'static str)> {
        self.out.losses.pop_front()
    }

    fn serve(&mut self, serving: Serving) {
        // Forgets operations that only the recovery needed.
        self.out.errands.forget(|_| true);
        let mut serving = Box::new(serving);
        for (id, request) in self.early.drain(..) {
            serving.submit(id, request, &mut self.out);
        }
        self.phase = Phase::Serving(serving);
    }

    fn end(&mut self, over: Over) {
        self.out.errands.forget(|_| true);
        let mut ids: Vec<RequestId> = self.early.drain(..).map(|(id, _)| id).collect();
        if let Phase::Serving(serving) = &mut self.phase {
            ids.extend(serving.unfinished());
        }
        ids.into_iter().for_each(|id| self.out.end(id, Err(Failure::Io)));
        self.phase = Phase::Over(over);
    }
}
