//! The state that the threads of a server share.

use super::{inbox::Clients, tls::Tls};
use crate::{access::Access, caught::caught, nbd::Limits};
use nowait::Nowait;
use nowait_device::{BlockingTasks, Image};
use nowait_sys::mistake::{self, Mistake};
use nowait_sys::mutex::{Mutex, RwLock};
use nowait_sys::time::now_ns;
use std::{path::PathBuf, sync::Arc};

/// The threads for VMMs and status requests use this state, too.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) nowait: Nowait,
    pub(crate) exports: Arc<[Arc<Image>]>,
    pub(crate) tasks: Arc<BlockingTasks>,
    pub(crate) clients: Clients,
    pub(crate) files: Mutex<Vec<(Arc<Image>, PathBuf)>>,
    pub(crate) limits: Limits,
    /// The TLS settings for clients that start TLS from now on.
    pub(crate) tls: RwLock<Option<Tls>>,
    pub(crate) access: Arc<Access>,
    /// The bytes for the transfers of one thread.
    pub(crate) memory_bytes: usize,
    pub(crate) handshake_ns: u64,
    pub(crate) stall_ns: u64,
}

/// How long blocking tasks other than writes may continue when the server ends.
const TASKS_NS: u64 = 5_000_000_000;

impl Shared {
    pub(crate) fn caught<T>(&self, doing: &str, work: impl FnOnce() -> T) -> Option<T> {
        caught(&self.nowait, doing, work)
    }

    pub(crate) fn ends(&self) {
        if !mistake::makes(Mistake::EndWithAll) {
            self.tasks.end_at(now_ns() + TASKS_NS);
        }
    }
}
