//! The thread that writes pages into the file of a cache, and then the rows of these pages in the
//! table.

use super::folder::{Folder, ROWS};
use super::{Page, State};
use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use nowait_sys::Errno;
use nowait_sys::mutex::Mutex;
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, mpsc};
use std::time::Duration;
use std::{io, thread};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

const WRITES_AT_ONCE: usize = 32;

/// The most changed blocks of the table that wait while there are pages to write.
const CHANGED_MAX: usize = 256;

#[derive(Debug)]
pub(super) struct Write {
    pub(super) slot: u32,
    pub(super) page: Page,
    pub(super) bytes: Bytes,
}

/// The handle of the writing thread. Dropping it lets the thread write the pending pages and end.
#[derive(Debug)]
pub(super) struct Writer {
    queue: UnboundedSender<Order>,
    ended: Mutex<mpsc::Receiver<()>>,
    has_ended: AtomicBool,
}

#[derive(Debug)]
enum Order {
    Write(Write),
    End,
}

const END: Duration = Duration::from_secs(5);

impl Writer {
    pub(super) fn start(
        folder: Arc<Folder>,
        state: Arc<Mutex<State>>,
        say: Option<fn(&str)>,
    ) -> io::Result<Writer> {
        let (queue, orders) = unbounded_channel();
        let (end, ended) = mpsc::sync_channel(1);
        let runtime = tokio::runtime::Builder::new_current_thread().build()?;
        let named = thread::Builder::new().name("nowait-cache".to_owned());
        named.spawn(move || {
            let tasks = Tasks { folder, state, say, is_said: [false; 2], changed: BTreeSet::new() };
            runtime.block_on(tasks.run(orders));
            drop(end);
        })?;
        Ok(Writer { queue, ended: Mutex::new(ended), has_ended: AtomicBool::new(false) })
    }

    pub(super) fn put(&self, write: Write) {
        // An error means that the thread takes no further pages, because it is to end.
        let _ = self.queue.send(Order::Write(write));
    }

    /// Lets the thread write all pending pages and end. Blocks, for [`END`] at most.
    pub(super) fn end(&self) {
        if !self.has_ended.swap(true, Relaxed) {
            let _ = self.queue.send(Order::End);
            let _ = self.ended.lock().recv_timeout(END);
        }
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.end();
    }
}

struct Tasks {
    folder: Arc<Folder>,
    state: Arc<Mutex<State>>,
    say: Option<fn(&str)>,
    /// Two reports that come once: a page could not be stored; the disk is full.
    is_said: [bool; 2],
    changed: BTreeSet<u32>,
}

impl Tasks {
    async fn run(mut self, mut queue: UnboundedReceiver<Order>) {
        let mut running = FuturesUnordered::new();
        let mut is_open = true;
        loop {
            if running.is_empty() && queue.is_empty() || self.changed.len() > CHANGED_MAX {
                self.write_rows().await;
            }
            tokio::select! {
                Some((slot, page, bytes, written)) = running.next() => {
                    self.end((slot, page, &bytes), &written);
                }
                order = queue.recv(), if is_open && running.len() < WRITES_AT_ONCE => match order {
                    Some(Order::Write(Write { slot, page, bytes })) => {
                        let folder = self.folder.clone();
                        running.push(async move {
                            let written = folder.write(slot, &bytes).await;
                            (slot, page, bytes, written)
                        });
                    }
                    Some(Order::End) | None => {
                        is_open = false;
                        queue.close();
                    }
                },
                else => {
                    self.write_rows().await;
                    // Without a sync, pages that are only in nowait's own page cache would be lost.
                    return self.folder.sync().await;
                }
            }
        }
    }

    fn end(
        &mut self,
        (slot, page, bytes): (u32, Page, &Bytes),
        written: &Result<(), nowait::Error>,
    ) {
        let mut state = self.state.lock();
        // Meanwhile a newer version of the page may have come, or the cache has removed the page.
        let is_latest = |now: &Bytes| now.as_ptr() == bytes.as_ptr();
        if !state.writes.get(&page.key).is_some_and(is_latest) {
            return state.pages.give_up(slot);
        }
        state.writes.remove(&page.key);
        let Err(error) = written else {
            state.pages.put(slot, page);
            self.changed.insert(slot / ROWS);
            return;
        };
        state.pages.give_up(slot);
        let is_full = matches!(error.errno(), Errno::NOSPC | Errno::DQUOT | Errno::FBIG);
        if is_full {
            state.pages.stop_growing();
        }
        // Release the lock before the report, because the output of the report may have to wait.
        drop(state);
        let is_said = std::mem::replace(&mut self.is_said[usize::from(is_full)], true);
        if let (false, Some(say)) = (is_said, self.say) {
            let so = if is_full { "the cache stopped growing" } else { "a page was not stored" };
            say(&format!("{}: {so}: {error}", self.folder.shown()));
        }
    }

    async fn write_rows(&mut self) {
        while let Some(number) = self.changed.pop_first() {
            let block = Folder::block(number, &self.state.lock().pages);
            self.folder.write_block(number, block).await;
        }
    }
}
