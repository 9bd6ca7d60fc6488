//! A thread that uses POSIX AIO. Each request ends once, and has the notification that the thread
//! asked for.

use crate::{
    accepted::{Known, Legal, Promise, Version},
    faces::{OWN_PAGES, Opened, Setup, waits},
    model::PAGE,
    signals,
};
use libc::{aiocb, c_int, sigevent, sigval, timespec};
use nowait_libaio::exports as libaio;
use nowait_machine::{note, step};
use nowait_posix as _; // which the C part calls
use nowait_sim::Prng;
use nowait_sys::{Fd, aligned::AlignedBuffer, file};
use std::{
    ops::{Deref, DerefMut, Range},
    ptr::{null, null_mut},
    sync::{Arc, Condvar, Mutex},
};

unsafe extern "C" {
    fn aio_read(block: *mut aiocb) -> c_int;
    fn aio_write(block: *mut aiocb) -> c_int;
    fn aio_fsync(operation: c_int, block: *mut aiocb) -> c_int;
    fn aio_error(block: *const aiocb) -> c_int;
    pub(crate) fn aio_return(block: *mut aiocb) -> isize;
    fn aio_cancel(number: c_int, block: *mut aiocb) -> c_int;
    pub(crate) fn aio_suspend(
        list: *const *const aiocb,
        len: c_int,
        timeout: *const timespec,
    ) -> c_int;
    fn lio_listio(mode: c_int, list: *const *mut aiocb, len: c_int, event: *mut sigevent) -> c_int;
}

const LIO_READ: c_int = 0;
const LIO_WRITE: c_int = 1;
const LIO_NOP: c_int = 2;
const LIO_WAIT: c_int = 0;
const LIO_NOWAIT: c_int = 1;
const AIO_CANCELED: c_int = 0;
const AIO_NOTCANCELED: c_int = 1;
const AIO_ALLDONE: c_int = 2;

const IN_FLIGHT_MAX: usize = 6;
const STEPS: usize = 20;

/// A notification, which must come once, when all requests of `blocks` have ended.
struct Notice {
    blocks: Vec<usize>,
    came: Mutex<u32>,
    news: Condvar,
}

impl Notice {
    fn new(blocks: Vec<usize>) -> Arc<Notice> {
        Arc::new(Notice { blocks, came: Mutex::new(0), news: Condvar::new() })
    }

    /// The sigevent holds a reference to the notice.
    fn event(self: &Arc<Notice>, by_signal: bool) -> sigevent {
        // SAFETY: plain data, for which zeroes are valid.
        let mut event: sigevent = unsafe { core::mem::zeroed() };
        event.sigev_notify = libc::SIGEV_THREAD;
        if by_signal {
            event.sigev_notify = libc::SIGEV_SIGNAL;
            event.sigev_signo = signals::of_notices();
        }
        event.sigev_value = sigval { sival_ptr: Arc::into_raw(self.clone()).cast_mut().cast() };
        let function = (&raw mut event).cast::<usize>();
        // SAFETY: the function's address is behind value, number and way.
        unsafe { function.add(2).write(comes as *const () as usize) };
        event
    }

    fn wait(&self) {
        // Leaves out the states of the requests: ended ones may be freed.
        note(|| format!("waits for a notice of {} requests", self.blocks.len()));
        let came = self.came.lock().unwrap();
        drop(self.news.wait_while(came, |came| *came == 0).unwrap());
    }
}

/// Counts a notice, which must come once and only after its requests have ended.
pub(crate) extern "C" fn comes(value: sigval) {
    // SAFETY: `event` has counted the reference; a notification comes once, or the second is a
    // failure found below.
    let notice = unsafe { Arc::from_raw(value.sival_ptr.cast::<Notice>()) };
    for block in &notice.blocks {
        // SAFETY: the submitting thread keeps the block until the notification has come.
        let error = unsafe { aio_error(*block as *const aiocb) };
        assert_ne!(error, libc::EINPROGRESS, "a notice comes after the end");
    }
    note(|| format!("a notice of {} comes", notice.blocks.len()));
    let mut came = notice.came.lock().unwrap();
    *came += 1;
    assert_eq!(*came, 1, "a notice comes once");
    notice.news.notify_all();
}

pub(crate) fn error_of(block: usize) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { aio_error(block as *const aiocb) }
}

#[derive(Debug)]
enum What {
    Read(Legal),
    Write(Version),
    Sync(Promise),
    /// A read at the end of the file.
    End,
    /// A read of a pipe that is empty.
    Stream,
}

const PLACES: usize = 48;

/// Memory of one block, aligned so that its place alone determines the lower bits of its address.
#[repr(C, align(8192))]
struct Places([aiocb; PLACES]);

/// The block of a request. The library distinguishes notices by the lower bits of their blocks'
/// addresses, which must not depend on earlier allocations.
struct Block {
    memory: Box<Places>,
    place: usize,
}

impl Block {
    fn zeroed(place: usize) -> Block {
        // SAFETY: plain data, for which zeroes are valid.
        Block { memory: Box::new(unsafe { core::mem::zeroed() }), place: place % PLACES }
    }
}

impl Deref for Block {
    type Target = aiocb;

    fn deref(&self) -> &aiocb {
        &self.memory.0[self.place]
    }
}

impl DerefMut for Block {
    fn deref_mut(&mut self) -> &mut aiocb {
        &mut self.memory.0[self.place]
    }
}

struct Request {
    block: Block,
    memory: AlignedBuffer,
    what: What,
    pages: Range<u64>,
    notices: Vec<Arc<Notice>>,
    is_doubtful: bool,
}

impl Request {
    fn address(&self) -> usize {
        (&raw const *self.block) as usize
    }

    fn error(&self) -> c_int {
        // SAFETY: the block is there.
        unsafe { aio_error(&raw const *self.block) }
    }

    /// Returns `true` if the engine refused the request, which then has no notice of its own.
    fn is_refused(&self) -> bool {
        self.error() == libc::EAGAIN
    }

    fn is_over(&self) -> bool {
        self.error() != libc::EINPROGRESS
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Kind {
    Start,
    List,
    ListAndWait,
    Suspend,
    Cancel,
    Sync,
    Exec,
    Reopen,
    Reap,
}

pub(crate) const KINDS: [(Kind, u32); 9] = [
    (Kind::Start, 4),
    (Kind::List, 1),
    (Kind::ListAndWait, 1),
    (Kind::Suspend, 2),
    (Kind::Cancel, 1),
    (Kind::Sync, 1),
    (Kind::Exec, 1),
    (Kind::Reopen, 1),
    (Kind::Reap, 1),
];

struct Actor {
    setup: Arc<Setup>,
    /// Each step forks its generator from this one, so a step left out changes no other step.
    source: Prng,
    prng: Prng,
    file: Opened,
    pipe: (Fd, Fd),
    own: Range<u64>,
    in_flight: Vec<Request>,
    /// Refused requests of lists, kept because the notices of their lists refer to them.
    refused: Vec<Request>,
    /// Number of calls of `by_signal`: even with signals, every third call chooses a thread.
    notices: u32,
}

pub(crate) fn act(setup: Arc<Setup>, prng: Prng, number: u64) {
    let mut actor = Actor::new(setup, prng, number);
    for _ in 0..STEPS {
        actor.step();
    }
    actor.finish();
}

impl Actor {
    fn new(setup: Arc<Setup>, mut prng: Prng, number: u64) -> Actor {
        let file = setup.open(&mut prng);
        let own = number * OWN_PAGES..(number + 1) * OWN_PAGES;
        let pipe = nowait_sys::pipe::packets().unwrap();
        let (source, in_flight, refused) = (prng.fork(), Vec::new(), Vec::new());
        Actor { setup, source, prng, file, pipe, own, in_flight, refused, notices: 0 }
    }

    fn step(&mut self) {
        self.prng = self.source.fork();
        let (kind, _) = KINDS[self.prng.weighted(&self.setup.posix_weights)];
        if !step(|| format!("{kind:?}, {} in flight", self.in_flight.len())) {
            return;
        }
        match kind {
            Kind::Start => self.start(),
            Kind::List => self.list(LIO_NOWAIT),
            Kind::ListAndWait => self.list(LIO_WAIT),
            Kind::Suspend => self.suspend(),
            Kind::Cancel => self.cancel(),
            Kind::Sync => self.sync(),
            Kind::Exec if self.prng.chance(200_000) => self.setup.fail_to_exec(),
            Kind::Reopen if self.in_flight.is_empty() => self.reopen(),
            Kind::Exec | Kind::Reopen | Kind::Reap => self.reap(),
        }
    }

    /// Closes the descriptor like a watched close, and opens another.
    fn reopen(&mut self) {
        assert_eq!(libaio::nowait_closing(self.file.fd.raw()), 0);
        self.file = self.setup.open(&mut self.prng);
    }

    fn sync(&mut self) {
        let fd = self.file.fd.raw();
        let promise = self.setup.model.begin_sync(0..0);
        let sync = if self.prng.chance(500_000) { file::fsync } else { file::fdatasync };
        sync(fd).unwrap();
        self.setup.model.end_sync(&promise);
        self.setup.judge_cut();
    }

    /// Returns `true` if a request conflicts with an unfinished one, and their order is not kept.
    fn is_in_the_way(&self, drawn: &[Request], pages: &Range<u64>, write: bool) -> bool {
        let conflicts = |it: &Request| {
            let writes = write || matches!(it.what, What::Write(_));
            writes && it.pages.start < pages.end && pages.start < it.pages.end
        };
        !self.setup.is_ordered() && self.in_flight.iter().chain(drawn).any(conflicts)
    }

    fn draw_what(&mut self, drawn: &[Request], in_list: bool) -> (What, AlignedBuffer, Range<u64>) {
        let memory = |pages: u64| AlignedBuffer::zeroed((pages * PAGE) as usize);
        loop {
            match self.prng.index(if in_list { 8 } else { 10 }) {
                0..=3 => {
                    // One page, which a device writes completely or not at all.
                    let page = self.own.start + self.prng.below(OWN_PAGES);
                    if !self.is_in_the_way(drawn, &(page..page + 1), true) {
                        let (memory, version) = self.setup.model.begin_write(page);
                        return (What::Write(version), memory, page..page + 1);
                    }
                }
                4..=6 => {
                    let first = self.prng.below(self.setup.pages);
                    let pages = first..(first + self.prng.range(1..=3)).min(self.setup.pages);
                    if !self.is_in_the_way(drawn, &pages, false) {
                        let own = self.setup.is_ordered().then_some(&self.own);
                        let legal = self.setup.model.begin_read(pages.clone(), own);
                        return (What::Read(legal), memory(pages.end - pages.start), pages);
                    }
                }
                7 => {
                    let pages = self.setup.pages..self.setup.pages + 1;
                    return (What::End, memory(1), pages);
                }
                8 => {
                    let promise = self.setup.model.begin_sync(self.setup.synced(&self.own));
                    return (What::Sync(promise), memory(0), 0..0);
                }
                _ => return (What::Stream, AlignedBuffer::zeroed(8), 0..0),
            }
        }
    }

    fn by_signal(&mut self) -> bool {
        self.notices += 1;
        self.setup.signals && !self.notices.is_multiple_of(3)
    }

    fn draw(&mut self, drawn: &[Request], in_list: bool) -> Request {
        let (what, memory, pages) = self.draw_what(drawn, in_list);
        let mut block = Block::zeroed(self.own.start as usize + self.in_flight.len() + drawn.len());
        block.aio_fildes = match what {
            What::Stream => self.pipe.0.raw(),
            _ => self.file.fd.raw(),
        };
        block.aio_lio_opcode = if matches!(what, What::Write(_)) { LIO_WRITE } else { LIO_READ };
        block.aio_reqprio = self.prng.index(3) as c_int;
        block.aio_nbytes = memory.len();
        block.aio_offset = (pages.start * PAGE) as i64;
        block.aio_sigevent.sigev_notify = libc::SIGEV_NONE;
        let mut request =
            Request { block, memory, what, pages, notices: Vec::new(), is_doubtful: false };
        request.block.aio_buf = request.memory.as_mut_ptr().cast();
        if self.prng.chance(300_000) {
            let notice = Notice::new(vec![request.address()]);
            request.block.aio_sigevent = notice.event(self.by_signal());
            request.notices.push(notice);
        }
        request
    }

    fn accepted(&mut self, request: Request) {
        note(|| format!("accepted: {:?}", request.what));
        if let What::Write(version) = request.what {
            self.setup.model.learn(version, Known::Accepted);
        }
        self.in_flight.push(request);
        self.tell_handlers();
    }

    fn start(&mut self) {
        if self.in_flight.len() >= IN_FLIGHT_MAX {
            return self.reap();
        }
        let mut request = self.draw(&[], false);
        let block = &raw mut *request.block;
        // SAFETY: block and memory are kept until the request has ended.
        let begun = unsafe {
            match request.what {
                What::Write(_) => aio_write(block),
                What::Read(_) | What::End | What::Stream => aio_read(block),
                What::Sync(_) => {
                    let data_only = self.prng.chance(500_000);
                    aio_fsync(if data_only { libc::O_DSYNC } else { libc::O_SYNC }, block)
                }
            }
        };
        if begun != 0 {
            let errno = std::io::Error::last_os_error().raw_os_error();
            let refused = self.setup.may_refuse() && errno == Some(libc::EAGAIN);
            assert!(refused && request.is_refused(), "{:?}: {errno:?}", request.what);
            return;
        }
        self.accepted(request);
    }

    fn list(&mut self, mode: c_int) {
        let count = self.prng.index(4);
        let mut requests: Vec<Request> = Vec::new();
        for _ in 0..count {
            requests.push(self.draw(&requests, true));
        }
        let mut blocks: Vec<*mut aiocb> =
            requests.iter_mut().map(|it| &raw mut *it.block).collect();
        // SAFETY: plain data, for which zeroes are valid.
        let mut nothing: aiocb = unsafe { core::mem::zeroed() };
        nothing.aio_lio_opcode = LIO_NOP;
        let place = self.prng.index(count + 1);
        blocks.insert(place, [null_mut(), &raw mut nothing][self.prng.index(2)]);
        let group = (mode == LIO_NOWAIT && self.prng.chance(600_000))
            .then(|| Notice::new(requests.iter().map(Request::address).collect()));
        let by_signal = self.by_signal();
        let mut event = group.as_ref().map(|group| group.event(by_signal));
        let event = event.as_mut().map_or(null_mut(), |it| &raw mut *it);
        let setup = self.setup.clone();
        // SAFETY: as in `start`.
        let list = || unsafe { lio_listio(mode, blocks.as_ptr(), blocks.len() as c_int, event) };
        let listed = waits("lio_listio", list);
        let errno = std::io::Error::last_os_error().raw_os_error();
        if listed != 0 && !self.is_interrupted(errno) {
            let some = setup.may_refuse() && requests.iter().any(Request::is_refused);
            assert!(errno == Some(libc::EAGAIN) && some, "lio_listio: {errno:?}");
        }
        for mut request in requests {
            // An interrupted call returns EINTR, or EAGAIN for requests without room.
            let may_go_on = mode == LIO_NOWAIT || listed != 0 && self.setup.signals;
            assert!(may_go_on || request.is_over(), "lio_listio waits for all");
            if request.is_refused() {
                request.notices = group.iter().cloned().collect();
                self.refused.push(request);
            } else {
                request.notices.extend(group.clone());
                self.accepted(request);
            }
        }
        if let Some(group) = group.filter(|group| group.blocks.is_empty()) {
            group.wait();
        }
    }

    fn suspend(&mut self) {
        let count = self.in_flight.len();
        let mut blocks: Vec<*const aiocb> = Vec::new();
        for index in 0..count {
            if self.prng.chance(500_000) {
                blocks.push(&raw const *self.in_flight[index].block);
            }
        }
        let chosen = blocks.clone();
        blocks.insert(self.prng.index(blocks.len() + 1), null());
        // A wait for requests that never end would sleep for ever.
        let may_sleep = chosen.iter().any(|block| {
            let request = self.in_flight.iter().find(|it| &raw const *it.block == *block);
            !matches!(request.unwrap().what, What::Stream)
        });
        let ns = [0, 1, 1_000_000, 20_000_000][self.prng.index(4)];
        let timeout = timespec { tv_sec: 0, tv_nsec: ns };
        let timeout =
            if may_sleep && self.prng.chance(500_000) { null() } else { &raw const timeout };
        // SAFETY: the blocks are there, and so is the time.
        let suspend = || unsafe { aio_suspend(blocks.as_ptr(), blocks.len() as c_int, timeout) };
        let suspended = waits("aio_suspend", suspend);
        // SAFETY: the blocks are there.
        let is_over = |block: &*const aiocb| unsafe { aio_error(*block) } != libc::EINPROGRESS;
        if suspended == 0 {
            assert!(chosen.is_empty() || chosen.iter().any(is_over), "aio_suspend returns early");
        } else {
            let errno = std::io::Error::last_os_error().raw_os_error();
            let late = errno == Some(libc::EAGAIN) && !timeout.is_null();
            assert!(late || self.is_interrupted(errno), "aio_suspend: {errno:?}");
        }
    }

    fn is_interrupted(&self, errno: Option<c_int>) -> bool {
        self.setup.signals && errno == Some(libc::EINTR)
    }

    fn tell_handlers(&self) {
        signals::in_flight(self.in_flight.iter().map(Request::address));
    }

    fn doubt(&mut self, index: usize) {
        let request = &mut self.in_flight[index];
        request.is_doubtful = true;
        if let What::Write(version) = request.what {
            self.setup.model.learn(version, Known::Doubtful);
        }
    }

    fn cancel(&mut self) {
        let count = self.in_flight.len();
        if count == 0 {
            return;
        }
        let one = self.prng.chance(600_000).then(|| self.prng.index(count));
        let number = one.map_or(self.file.fd.raw(), |it| self.in_flight[it].block.aio_fildes);
        let asked: Vec<usize> = (0..count)
            .filter(|it| one.is_none_or(|one| one == *it))
            .filter(|it| self.in_flight[*it].block.aio_fildes == number)
            .filter(|it| !self.in_flight[*it].is_over())
            .collect();
        asked.iter().for_each(|index| self.doubt(*index));
        let block = one.map_or(null_mut(), |it| &raw mut *self.in_flight[it].block);
        // SAFETY: the block is there.
        let said = waits("aio_cancel", || unsafe { aio_cancel(number, block) });
        note(|| format!("aio_cancel of {one:?}: {said}"));
        let errors = || asked.iter().map(|it| self.in_flight[*it].error());
        match said {
            _ if self.setup.exits() => {}
            AIO_CANCELED => {
                assert!(errors().all(|it| it != libc::EINPROGRESS), "cancelled is over");
                let cancelled = errors().any(|it| it == libc::ECANCELED);
                assert!(cancelled, "one was cancelled: {:?}", errors().collect::<Vec<_>>());
            }
            AIO_ALLDONE => {
                let done = errors().all(|it| it != libc::EINPROGRESS && it != libc::ECANCELED);
                assert!(done, "all were done: {:?}", errors().collect::<Vec<_>>());
            }
            AIO_NOTCANCELED => {
                let is_stream = |it: &usize| matches!(self.in_flight[*it].what, What::Stream);
                assert!(!asked.iter().all(is_stream), "what waits for nothing can be cancelled");
            }
            other => panic!("aio_cancel: {other}, {}", std::io::Error::last_os_error()),
        }
    }

    fn reap(&mut self) {
        let mut index = 0;
        while index < self.in_flight.len() {
            match self.in_flight[index].is_over() {
                true => {
                    let request = self.in_flight.remove(index);
                    self.tell_handlers();
                    self.end(request);
                }
                false => index += 1,
            }
        }
    }

    fn end(&mut self, mut request: Request) {
        let error = request.error();
        note(|| format!("over: {:?}, {error}", request.what));
        // SAFETY: the block is there.
        let value = unsafe { aio_return(&raw mut *request.block) };
        let model = &self.setup.model;
        if error == libc::ECANCELED {
            assert!(request.is_doubtful && value == -1, "{:?}: {value}", request.what);
        } else {
            let len = request.memory.len();
            // A device may transfer fewer bytes than asked for, in whole pages.
            let done = match request.what {
                What::Read(_) => (1..=len as isize).contains(&value),
                What::End => value == 0,
                _ => value == len as isize,
            };
            assert!(error == 0 && done, "{:?}: {error}, {value}", request.what);
            match &request.what {
                What::Read(legal) => model.end_read(legal, &request.memory[..value as usize]),
                What::Write(version) => {
                    model.learn(*version, Known::Ended);
                    if self.file.durable {
                        model.is_durable(*version);
                        self.setup.judge_cut();
                    }
                }
                What::Sync(promise) => {
                    model.end_sync(promise);
                    self.setup.judge_cut();
                }
                What::End | What::Stream => {}
            }
        }
        request.notices.iter().for_each(|notice| notice.wait());
    }

    /// Cancels the reads of the pipe, which might never end, and waits for all requests.
    fn finish(&mut self) {
        let is_stream = |it: &Request| matches!(it.what, What::Stream);
        if self.in_flight.iter().any(is_stream) {
            (0..self.in_flight.len())
                .filter(|it| is_stream(&self.in_flight[*it]))
                .collect::<Vec<_>>()
                .into_iter()
                .for_each(|index| self.doubt(index));
            // SAFETY: no block is named.
            let said = unsafe { aio_cancel(self.pipe.0.raw(), null_mut()) };
            assert!(said == AIO_CANCELED || said == AIO_ALLDONE, "{said}");
        }
        while let Some(request) = self.in_flight.pop() {
            self.tell_handlers();
            while !request.is_over() {
                let block = &raw const *request.block;
                // SAFETY: the block is there.
                let suspend = || unsafe { aio_suspend(&raw const block, 1, null()) };
                let failed = waits("aio_suspend", suspend) != 0;
                let errno = std::io::Error::last_os_error().raw_os_error();
                assert!(!failed || self.is_interrupted(errno), "aio_suspend: {errno:?}");
            }
            self.end(request);
        }
        self.refused.iter().flat_map(|it| &it.notices).for_each(|notice| notice.wait());
    }
}
