//! The server with epoll and a pool of threads.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Condvar, Mutex};

use nowait_sys::epoll::{self, Epoll};
use nowait_sys::time::Deadline;
use nowait_sys::timer::Timer;

use super::{ASK, BLOCK, TICK_NS, block_of};
use nowait_harness::error::{BenchError, Context as _, Result, failed};
use nowait_harness::interrupt;

/// Requests on their way to the threads.
#[derive(Default)]
struct Jobs {
    queue: Mutex<VecDeque<(usize, u64)>>,
    more: Condvar,
    over: AtomicBool,
}

impl Jobs {
    fn work(&self, sockets: &[UnixStream], file: &File) -> std::io::Result<()> {
        let mut block = vec![0; BLOCK];
        loop {
            let mut queue = self.queue.lock().expect("no panic");
            let (index, at) = loop {
                match queue.pop_front() {
                    Some(job) => break job,
                    None if self.over.load(Relaxed) => return Ok(()),
                    None => queue = self.more.wait(queue).expect("no panic"),
                }
            };
            drop(queue);
            let mut socket = &sockets[index];
            let mut answer = || {
                file.read_exact_at(&mut block, at)?;
                socket.write_all(&block) // there is room: one answer at a time
            };
            if let Err(error) = answer() {
                // Else the client would wait for this answer, and all others for the client.
                let _ = socket.shutdown(Shutdown::Both);
                return Err(error);
            }
        }
    }
}

/// Serves until all clients have hung up; returns how often the timer was seen.
///
/// # Errors
/// A system call failed.
pub(super) fn serve(sockets: &[UnixStream], file: &File, threads: usize) -> Result<u64> {
    let jobs = Jobs::default();
    std::thread::scope(|scope| {
        let workers: Vec<_> =
            (0..threads).map(|_| scope.spawn(|| jobs.work(sockets, file))).collect();
        let served = hand_out(sockets, &jobs);
        jobs.over.store(true, Relaxed);
        drop(jobs.queue.lock());
        jobs.more.notify_all();
        for worker in workers {
            let worked = worker.join().map_err(|_| BenchError::failed("a thread panicked"))?;
            worked.context(|| "a thread of the pool".to_owned())?;
        }
        served
    })
}

/// Gives requests to the threads until all clients have hung up, or the user has asked to stop.
fn hand_out(sockets: &[UnixStream], jobs: &Jobs) -> Result<u64> {
    let epoll = Epoll::new().map_err(failed("epoll"))?;
    let timer = Timer::every_ns(TICK_NS).map_err(failed("a timer"))?;
    for (index, socket) in sockets.iter().enumerate() {
        epoll.add(socket.as_raw_fd(), epoll::IN, index as u64).map_err(failed("epoll"))?;
    }
    epoll.add(timer.raw(), epoll::IN, sockets.len() as u64).map_err(failed("epoll"))?;
    let (mut open, mut ticks, mut ready) = (sockets.len(), 0, Vec::with_capacity(256));
    while open > 0 && !interrupt::happened() {
        let mut found = Vec::new();
        // The timer ends every wait.
        epoll.wait(&mut ready, Deadline::NEVER);
        for event in &ready {
            let index = event.token as usize;
            if index == sockets.len() {
                ticks += 1;
                timer.reset();
                continue;
            }
            let mut request = [0; ASK];
            let bytes = (&sockets[index]).read(&mut request).context(|| "a request".to_owned())?;
            if bytes < ASK {
                epoll.remove(sockets[index].as_raw_fd()).map_err(failed("epoll"))?;
                open -= 1;
            } else {
                found.push((index, block_of(&request)));
            }
        }
        let count = found.len();
        jobs.queue.lock().expect("no panic").extend(found);
        (0..count).for_each(|_| jobs.more.notify_one());
    }
    Ok(ticks)
}
