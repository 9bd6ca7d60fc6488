//! The end of a writer: its last head names the end of the log, and says that no segment follows.

use super::Serving;
use crate::head::Head;
use crate::outbox::{Outbox, Over, Purpose};
use crate::request::{Failure, RequestId};

#[derive(Debug)]
pub(super) struct Closing {
    id: RequestId,
    head_is_sent: bool,
}

impl Closing {
    pub(super) fn id(&self) -> RequestId {
        self.id
    }

    pub(super) fn head_is_not_put(&mut self) {
        self.head_is_sent = false;
    }
}

impl Serving {
    pub(super) fn close(&mut self, id: RequestId, out: &mut Outbox) {
        match self.closing {
            None => self.closing = Some(Closing { id, head_is_sent: false }),
            Some(_) => out.end(id, Err(Failure::Invalid)),
        }
    }

    pub(super) fn close_head(&mut self, out: &mut Outbox) {
        let is_durable = self.tail.open_is_empty() && self.tail.nothing_is_sealed();
        let is_idle = self.flushes.is_empty() && self.parked.is_empty() && self.shrink.is_none();
        let is_over = is_durable && is_idle && self.publication.checkpoint().is_none();
        let Some(closing) = self.closing.as_mut().filter(|it| is_over && !it.head_is_sent) else {
            return;
        };
        closing.head_is_sent = true;
        let (revision, end) = (self.head.revision + 1, self.tail.next());
        let (is_closed, is_quiet) = (true, out.now_ns >= self.alone_ns);
        let head = Head { revision, end, is_closed, is_quiet, ..self.head.clone() };
        out.put_head(Purpose::CloseHead, head.encode(), &self.tag);
    }

    pub(super) fn closed(&mut self, out: &mut Outbox) -> Over {
        if let Some(closing) = self.closing.take() {
            out.end(closing.id, Ok(Vec::new()));
        }
        Over::Closed
    }
}
