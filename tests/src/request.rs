//! A context that owns its requests and their buffers until it has taken their events.

use std::collections::HashMap;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use crate::aio::{self, ContextPointer, Event, Iocb};

const ALIGNMENT: usize = 4096;

/// One request with its buffer.
#[derive(Debug)]
pub struct Request {
    iocb: Iocb,
    memory: Vec<u8>,
    start: usize,
    len: usize,
    /// Parts of the buffer, if the request has a vector.
    parts: Vec<libc::iovec>,
}

// SAFETY: the addresses point into the heap buffers of `memory` and `parts`. Only the request owns
// these buffers, and they stay in place when the request moves.
unsafe impl Send for Request {}

/// A request that completed.
#[derive(Debug)]
pub struct Done {
    /// The request itself.
    pub request: Box<Request>,
    /// The tag of the request.
    pub tag: u64,
    /// Number of bytes, poll mask, or negative errno.
    pub res: i64,
}

/// A context, and the requests in flight on it. A drop destroys the context, and so waits for the
/// requests.
#[derive(Debug)]
pub struct Context {
    pointer: ContextPointer,
    // By the `data` of the iocb: the caller's tag and the request.
    in_flight: Mutex<HashMap<u64, (u64, Box<Request>)>>,
    next: AtomicU64,
}

// SAFETY: any thread may use a libaio context; the rest is behind a lock.
unsafe impl Send for Context {}
// SAFETY: as above.
unsafe impl Sync for Context {}

impl Request {
    fn with_memory(opcode: i16, fd: BorrowedFd<'_>, len: usize, offset: u64) -> Self {
        let mut memory = vec![0u8; len + ALIGNMENT];
        let start = memory.as_ptr().align_offset(ALIGNMENT);
        let iocb = Iocb {
            opcode,
            fd: fd.as_raw_fd(),
            buffer: memory[start..].as_mut_ptr() as u64,
            bytes: len as u64,
            offset: offset as i64,
            ..Iocb::default()
        };
        Self { iocb, memory, start, len, parts: Vec::new() }
    }

    /// Makes a write of `bytes` at `offset`.
    pub fn write(fd: BorrowedFd<'_>, bytes: &[u8], offset: u64) -> Self {
        let mut request = Self::with_memory(aio::PWRITE, fd, bytes.len(), offset);
        request.memory[request.start..][..bytes.len()].copy_from_slice(bytes);
        request
    }

    /// Makes a read of `len` bytes at `offset`.
    pub fn read(fd: BorrowedFd<'_>, len: usize, offset: u64) -> Self {
        Self::with_memory(aio::PREAD, fd, len, offset)
    }

    /// Makes an fsync.
    pub fn fsync(fd: BorrowedFd<'_>) -> Self {
        let mut request = Self::with_memory(aio::FSYNC, fd, 0, 0);
        request.iocb.buffer = 0;
        request
    }

    /// Makes a poll for `events`.
    pub fn poll(fd: BorrowedFd<'_>, events: i16) -> Self {
        let mut request = Self::with_memory(aio::POLL, fd, 0, 0);
        request.iocb.buffer = events as u64;
        request
    }

    /// Sets the request's `RWF_*` flags.
    pub fn flags(mut self, flags: u32) -> Self {
        self.iocb.rw_flags = flags;
        self
    }

    /// Sets the request's I/O priority, as ioprio_set(2) encodes it.
    pub fn priority(mut self, priority: u16) -> Self {
        self.iocb.flags |= aio::FLAG_IOPRIO;
        self.iocb.reqprio = priority as i16;
        self
    }

    /// Fills the request's buffer with `byte`.
    pub fn filled(mut self, byte: u8) -> Self {
        self.memory.fill(byte);
        self
    }

    /// Splits the buffer of a read or write into a vector of parts of `len` bytes; the last part
    /// may be shorter.
    pub fn in_parts(mut self, len: usize) -> Self {
        let bytes = &mut self.memory[self.start..][..self.len];
        let part =
            |it: &mut [u8]| libc::iovec { iov_base: it.as_mut_ptr().cast(), iov_len: it.len() };
        self.parts = bytes.chunks_mut(len).map(part).collect();
        self.iocb.opcode = if self.iocb.opcode == aio::PREAD { aio::PREADV } else { aio::PWRITEV };
        (self.iocb.buffer, self.iocb.bytes) = (self.parts.as_ptr() as u64, self.parts.len() as u64);
        self
    }

    /// Makes the request announce its completion on an eventfd.
    pub fn eventfd(mut self, fd: BorrowedFd<'_>) -> Self {
        self.iocb.flags |= aio::FLAG_RESFD;
        self.iocb.eventfd = fd.as_raw_fd() as u32;
        self
    }

    /// Returns the buffer, for system calls without libaio.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.memory[self.start..][..self.len]
    }

    /// Returns the buffer.
    pub fn bytes(&self) -> &[u8] {
        &self.memory[self.start..][..self.len]
    }
}

impl Context {
    /// Makes a context for `depth` requests; `Err` holds a negative errno.
    pub fn new(depth: i32) -> Result<Self, i32> {
        let mut pointer = ptr::null_mut();
        // SAFETY: `pointer` is a live null pointer, filled by the call.
        let rc = unsafe { aio::io_setup(depth, &raw mut pointer) };
        let (in_flight, next) = (Mutex::default(), AtomicU64::new(1));
        if rc == 0 { Ok(Self { pointer, in_flight, next }) } else { Err(rc) }
    }

    /// Returns how many events lie in the ring that the context's address points to.
    pub fn unread(&self) -> u32 {
        let words = self.pointer.cast::<u32>();
        // SAFETY: the ring's header (id, nr, head, tail, …) is mapped as long as the context
        // lives. Reads are volatile because other threads or the kernel change the header.
        let [nr, head, tail] = [1, 2, 3].map(|index| unsafe { words.add(index).read_volatile() });
        (tail + nr - head) % nr
    }

    /// Takes all events out of the ring without a call of libaio, as QEMU does.
    pub fn take_from_ring(&self) -> Vec<Done> {
        const HEADER_WORDS: usize = 8;
        let words = self.pointer.cast::<u32>();
        // SAFETY: the ring's header and events are mapped as long as the context lives; the
        // producer moves `tail` when an event is there, and the only consumer moves `head`.
        let (nr, head, tail) = unsafe {
            let word = |index| AtomicU32::from_ptr(words.add(index));
            (word(1).load(Ordering::Relaxed), word(2), word(3))
        };
        let mut done = Vec::new();
        let mut next = head.load(Ordering::Relaxed);
        while next != tail.load(Ordering::Acquire) {
            // SAFETY: as above; `next` is below `nr`.
            let event =
                unsafe { words.add(HEADER_WORDS).cast::<Event>().add(next as usize).read() };
            next = (next + 1) % nr;
            head.store(next, Ordering::Release);
            done.push(self.take(&event));
        }
        done
    }

    /// Submits all requests in one call, with the tags 0, 1, 2...; returns the number of accepted
    /// requests, or a negative errno.
    pub fn submit(&self, requests: Vec<Request>) -> i32 {
        let tagged = requests.into_iter().enumerate();
        self.submit_tagged(tagged.map(|(tag, request)| (tag as u64, request)).collect())
    }

    /// Submits all requests in one call, with tags of the caller's choice; returns the number of
    /// accepted requests, or a negative errno. Drops the others.
    pub fn submit_tagged(&self, requests: Vec<(u64, Request)>) -> i32 {
        let mut pointers = Vec::with_capacity(requests.len());
        let mut numbers = Vec::with_capacity(requests.len());
        {
            let mut in_flight = self.in_flight.lock().unwrap();
            for (tag, request) in requests {
                let number = self.next.fetch_add(1, Ordering::Relaxed);
                let mut request = Box::new(request);
                request.iocb.data = number;
                pointers.push(&raw mut request.iocb);
                numbers.push(number);
                in_flight.insert(number, (tag, request));
            }
        }
        // SAFETY: each iocb and its buffer is boxed in `in_flight`. They are dropped only if
        // io_submit refuses them, after their event, or after io_destroy has waited for them.
        let rc = unsafe { aio::io_submit(self.pointer, pointers.len() as i64, pointers.as_ptr()) };
        let refused = &numbers[rc.max(0) as usize..];
        let mut in_flight = self.in_flight.lock().unwrap();
        for number in refused {
            in_flight.remove(number);
        }
        rc
    }

    /// Waits for `min` completions, at most for `limit`, and takes at most `max`; `Err` holds a
    /// negative errno.
    pub fn reap(&self, min: i64, max: usize, limit: Option<Duration>) -> Result<Vec<Done>, i32> {
        self.reap_masked(min, max, limit, None)
    }

    /// Waits like [`Context::reap`], but through `io_pgetevents` if there is a mask.
    pub fn reap_masked(
        &self,
        min: i64,
        max: usize,
        limit: Option<Duration>,
        mask: Option<&libc::sigset_t>,
    ) -> Result<Vec<Done>, i32> {
        let mut events = vec![Event::default(); max];
        let limit = limit.map(timespec);
        let limit = limit.as_ref().map_or(ptr::null(), ptr::from_ref);
        let (room, events_at) = (max as i64, events.as_mut_ptr());
        // SAFETY: `events` has room for `max`; timeout and mask are null or live.
        let rc = unsafe {
            match mask {
                None => aio::io_getevents(self.pointer, min, room, events_at, limit),
                Some(mask) => aio::io_pgetevents(self.pointer, min, room, events_at, limit, mask),
            }
        };
        if rc < 0 {
            return Err(rc);
        }
        Ok(events[..rc as usize].iter().map(|event| self.take(event)).collect())
    }

    /// Reaps exactly `count` completions and sorts them by tag.
    ///
    /// # Panics
    /// io_getevents fails, or returns no completion for 30 s.
    pub fn reap_all(&self, count: usize) -> Vec<Done> {
        let mut done = Vec::new();
        while done.len() < count {
            let left = count - done.len();
            let some = self.reap(1, left, Some(Duration::from_secs(30))).expect("io_getevents");
            assert!(!some.is_empty(), "{left} of {count} completions are missing");
            done.extend(some);
        }
        done.sort_by_key(|done| done.tag);
        done
    }

    /// Submits all requests, reaps their completions, and returns these in the order of submission.
    pub fn run(&self, requests: Vec<Request>) -> Vec<Done> {
        let count = requests.len();
        assert_eq!(self.submit(requests), count as i32, "io_submit of {count}");
        self.reap_all(count)
    }

    /// Cancels the request in flight with this tag; returns the result of `io_cancel`.
    pub fn cancel(&self, tag: u64) -> i32 {
        let mut in_flight = self.in_flight.lock().unwrap();
        let (_, request) = in_flight.values_mut().find(|it| it.0 == tag).expect("in flight");
        let mut event = Event::default();
        // SAFETY: both live during the call.
        unsafe { aio::io_cancel(self.pointer, &raw mut request.iocb, &raw mut event) }
    }

    /// Destroys the context through a shared reference; returns the result of `io_destroy`.
    pub fn destroy(&self) -> i32 {
        // SAFETY: the pointer came from io_setup; a second destroy fails with EINVAL.
        unsafe { aio::io_destroy(self.pointer) }
    }

    /// Returns the context pointer that io_setup has stored.
    pub fn pointer(&self) -> ContextPointer {
        self.pointer
    }

    fn take(&self, event: &Event) -> Done {
        let found = self.in_flight.lock().unwrap().remove(&event.data);
        let (tag, request) = found.expect("an event of a request in flight, exactly once");
        assert_eq!(event.iocb, &raw const request.iocb as u64, "the event names its iocb");
        assert_eq!(event.res2, 0);
        Done { request, tag, res: event.res }
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        self.destroy();
    }
}

fn timespec(duration: Duration) -> libc::timespec {
    libc::timespec { tv_sec: duration.as_secs() as i64, tv_nsec: duration.subsec_nanos().into() }
}
