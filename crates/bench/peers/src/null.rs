//! A peer that does nothing: requests are over when they are reaped, and no byte moves. Its figures
//! show the cost of the harness.

use crate::slots::Slots;
use crate::{Buffers, Engine, Peer, Request};
use nowait_harness::error::Result;

pub(crate) struct Null;

pub(crate) struct NullPeer {
    slots: Slots,
    over: Vec<usize>,
}

impl Engine for Null {
    type Peer = NullPeer;

    fn peer(&self, buffers: Buffers) -> Result<NullPeer> {
        let over = Vec::with_capacity(buffers.depth());
        Ok(NullPeer { slots: Slots::new(buffers), over })
    }

    fn moves_data(&self) -> bool {
        false
    }
}

impl Peer for NullPeer {
    fn submit(&mut self, requests: &[Request]) -> Result<()> {
        let slots = &mut self.slots;
        self.over.extend(requests.iter().map_while(|request| slots.take(*request)));
        Ok(())
    }

    fn reap(&mut self, _min: usize, each: &mut impl FnMut(Request, &[u8])) -> Result<()> {
        for slot in self.over.drain(..) {
            self.slots.give_back(slot, each);
        }
        Ok(())
    }
}
