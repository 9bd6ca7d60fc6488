//! A context's own queue, which a waiting caller (the poller) reaps, or else the driver.

use super::{
    Place, Plug,
    token::{self, Owner},
};
use crate::{
    Command, Context, Engine, Kind, engine::section::Section, hold, order::Ticket,
    request::direct::Unfinished,
};
use core::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use nowait_block::{BlockBackend, Completion, Refused};
use nowait_retry::Pump;
use nowait_sys::mutex::Mutex;
use nowait_sys::{
    Errno,
    aio::IoEvent,
    cred::Credentials,
    mistake::{self, Mistake},
    time::Deadline,
};
use std::sync::{Arc, Weak};

pub(crate) struct OwnPump {
    queue: Arc<dyn BlockBackend>,
    engine: Arc<Engine>,
    /// Alive as long as a thread may wait for completions of the queue.
    context: Weak<Context>,
    collected: Mutex<Collected>,
    /// The number of completions that the last run has left in `collected`: a run handles only a
    /// few of the page cache's.
    unrun: Arc<AtomicUsize>,
}

impl OwnPump {
    pub(crate) fn new(queue: Arc<dyn BlockBackend>, context: &Arc<Context>) -> OwnPump {
        OwnPump {
            queue,
            engine: context.engine().clone(),
            context: Arc::downgrade(context),
            collected: Mutex::default(),
            unrun: context.own.unrun.clone(),
        }
    }
}

#[derive(Default)]
struct Collected {
    completions: Vec<Completion>,
    events: Vec<IoEvent>,
    tickets: Vec<Ticket>,
    unfinished: Vec<Unfinished>,
}

/// A run stops handling completions when those of the page cache have reached this many bytes. The
/// run copies these bytes to the waiting requests. Between two runs the caller can submit its next
/// requests, so that the device has work. With 64 reads of 64 KiB in flight this gave 20,000 reads
/// a second, and 15,000 without the limit.
pub(crate) const RUN_BYTES_MAX: usize = 128 << 10;

/// The other costs of a request, as the number of bytes that are copied in the same time.
pub(crate) const REQUEST_BYTES: usize = 12 << 10;

impl Pump for OwnPump {
    fn is_busy(&self) -> bool {
        self.queue.in_flight() != 0 || self.unrun.load(Relaxed) != 0
    }

    fn wait(&self, need: usize, deadline: Deadline) -> Result<(), Errno> {
        if hold::in_engine_table() {
            // Bios that the application's threads have queued and not committed name files by
            // numbers of their table, which are wrong in the engine's. So this thread must not
            // commit them.
            self.queue.collect(&mut self.collected.lock().completions);
            return Ok(());
        }
        if self.unrun.load(Relaxed) != 0 {
            return self.queue.reap(&mut self.collected.lock().completions, 0, Deadline::NOW);
        }
        // The end of a bio of the page cache, or of a request for which others wait in the order,
        // may start the next bio or request. So this thread reaps as soon as one bio has ended.
        let engine = &self.engine;
        let starts_others = engine.user_files.cache().is_some()
            || engine.orders.has_writes()
            || !engine.stream_queues.is_empty();
        let need = if starts_others { need.min(1) } else { need };
        self.queue.reap(&mut self.collected.lock().completions, need, deadline)
    }

    fn run(&self) {
        let mut collected = self.collected.lock();
        let Collected { completions, events, tickets, unfinished } = &mut *collected;
        if completions.is_empty() {
            return;
        }
        let Some(context) = self.context.upgrade() else { return completions.clear() };
        let engine = context.engine();
        let counts = (&engine.user_files.writes, &engine.orders, context.io().stats());
        let bytes = context.own.direct.end(completions, (events, tickets), unfinished, counts);
        context.dismiss(events.len(), bytes);
        context.io().stats().add(|c| &c.iterations, events.len() as u64);
        if completions.is_empty() && unfinished.is_empty() && tickets.is_empty() {
            context.io().complete_batch(events);
            return events.clear();
        }
        // A request goes on in the driver's queue or with the workers (`request.rs`); only bios of
        // the page cache go on in this queue.
        let section = Section::enter(context.engine());
        // Requests leave the order before their events are visible.
        tickets.drain(..).for_each(|ticket| context.engine().orders.leave(&ticket));
        context.io().complete_batch(events);
        events.clear();
        let mut plug = Plug::take(context.engine(), Place::Caller);
        for (request, result) in unfinished.drain(..) {
            if request.ends_short(result) {
                request.end_short(&context, result);
                continue;
            }
            // The submitter's credentials are not known any more.
            let credentials = match request.command.kind {
                Kind::Write if goes_on(&request.command, result) => {
                    context.engine().known.credentials_of_this_thread()
                }
                _ => Ok(None),
            };
            let (request, result) = request.into_operation(&context, credentials, result);
            request.run(&mut plug, Some(result));
        }
        for Completion { token, result } in completions.drain(..count_of_run(completions)) {
            // A request that was refused or given up moves itself
            // (`FileOperation::resumes_elsewhere`).
            match token::is_of_cache(token) && (gave_up(result) || refused(result)) {
                true => plug.carry_elsewhere(token, result),
                false => plug.complete(token, result),
            }
        }
        let unrun = completions.len();
        self.unrun.store(unrun, Relaxed);
        drop(collected);
        if unrun > 0 {
            // Until `unrun` was set, these completions were counted neither in the queue nor in
            // `unrun`. So the driver may have stopped watching the context, and the poller may have
            // left with its events.
            context.look_after();
        }
        plug.flush(Some(&context));
        plug.run_kicked(Some(&context));
        Plug::put_back(plug);
        drop(section);
    }

    fn interrupt(&self) {
        self.queue.wake();
    }
}

impl Context {
    fn credentials_for(&self, refused: &Refused) -> Result<Option<Arc<Credentials>>, Errno> {
        match refused.bios.is_empty() {
            true => Ok(None),
            false => self.engine().known.credentials_of_this_thread(),
        }
    }

    fn count_refusal(&self, kind: Kind, result: Result<u32, Errno>) {
        let stats = self.io().stats();
        match (result, kind) {
            (Err(Errno::OPNOTSUPP), _) => stats.add(|c| &c.punt_unsupported, 1),
            (Err(Errno::AGAIN), Kind::Write) => stats.add(|c| &c.punt_extend, 1),
            _ => {}
        }
    }

    /// Refused requests go on by other routes, with the credentials of this thread.
    pub(crate) fn commit_own(self: &Arc<Self>, plug: &mut Plug) {
        let refused = self.own.commit();
        let credentials = self.credentials_for(&refused);
        carry_elsewhere(self, refused, &credentials, plug);
    }
}

/// Moves requests to other routes, because the own queue has refused them. Called on the thread
/// that queued them, which is still in submit, so the numbers of their files still mean the same
/// files. `credentials` are those of this thread; a write ends if they could not be read, because
/// the engine's threads would write with their own.
pub(crate) fn carry_elsewhere(
    context: &Arc<Context>,
    refused: Refused,
    credentials: &Result<Option<Arc<Credentials>>, Errno>,
    plug: &mut Plug,
) {
    for (token, result) in refused.bios {
        let Owner::Direct(key) = Owner::of(token) else {
            plug.carry_elsewhere(token, zero_is_refusal(result));
            continue;
        };
        context.own.direct.identify(key);
        let Some(request) = context.own.direct.take(key) else { continue };
        if request.reaches_end(result) {
            request.end_short(context, result);
            continue;
        }
        let result = match zero_is_refusal(result) {
            // The number of the eventfd may name another file by now; the request's file may be
            // good.
            Err(Errno::BADF | Errno::INVAL) if request.counter.is_some() => Err(Errno::AGAIN),
            result => result,
        };
        context.count_refusal(request.command.kind, result);
        match (result, request.command.kind) {
            (Err(Errno::OPNOTSUPP), _) => {
                context.hints.descriptors.refused_as_such(request.command.fd);
            }
            (Err(Errno::AGAIN), Kind::Write) => context.hints.descriptors.miss(request.command.fd),
            _ => {}
        }
        let (obj, cancelled) = (request.obj, request.cancelled);
        let goes_on = !cancelled && goes_on(&request.command, result);
        let credentials = if goes_on { credentials.clone() } else { Ok(None) };
        let (request, result) = request.into_operation(context, credentials, result);
        let result = if cancelled { Err(Errno::CANCELED) } else { result };
        context.register(&request, obj, false);
        if cancelled {
            request.cancel();
        }
        request.run(plug, Some(result));
    }
    for token in refused.undecided {
        if let Owner::Direct(key) = Owner::of(token) {
            context.own.direct.is_undecided(key);
        }
    }
}

/// Treats a transfer of 0 bytes as a refusal: before Linux 5.11 it need not mean the end of the
/// file.
fn zero_is_refusal(result: Result<u32, Errno>) -> Result<u32, Errno> {
    if result == Ok(0) { Err(Errno::AGAIN) } else { result }
}

/// Returns `true` if `result` is that of a request which a ring has given up, because the thread
/// that had entered the ring has ended. The kernel has then transferred nothing; after a partial
/// transfer the result is a number of bytes.
pub(crate) fn gave_up(result: Result<u32, Errno>) -> bool {
    matches!(result, Err(Errno::CANCELED | Errno::FAULT | Errno::INTR))
        && !mistake::makes(Mistake::LeaveGivenUp)
}

/// Returns `true` if the kernel refused a request that would have waited in submit. The request
/// then begins again on another route.
pub(crate) fn refused(result: Result<u32, Errno>) -> bool {
    matches!(result, Err(Errno::AGAIN | Errno::OPNOTSUPP))
}

fn goes_on(command: &Command, result: Result<u32, Errno>) -> bool {
    let is_refused = refused(result) && !command.wants_nowait();
    is_refused || gave_up(result) || result.is_ok_and(|bytes| bytes > 0)
}

fn count_of_run(completions: &[Completion]) -> usize {
    let mut bytes = 0;
    let full = completions.iter().position(|completion| {
        if token::is_of_cache(completion.token) {
            bytes += completion.result.unwrap_or(0) as usize + REQUEST_BYTES;
        }
        bytes >= RUN_BYTES_MAX
    });
    full.map_or(completions.len(), |last| last + 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        BackendChoice, Command, Config, Kind, Parts, UserFile, UserOperation,
        command::{Flags, open_for},
        failure::RefusedCredentials,
        order::{Access, FileState, Reach},
        parts::Executor,
        request::direct::DirectRequest,
        submit::{EventTarget, Started, Submission},
    };
    use nowait_block::{Bio, Segments, backends::null::Null};
    use nowait_cache::SyncLevel;
    use nowait_retry::{Step, WaitOptions};
    use nowait_sys::{
        aligned::AlignedBuffer,
        eventfd::EventFd,
        file::{self, IoVec, O_DIRECT},
    };
    use std::os::{fd::AsRawFd, unix::fs::OpenOptionsExt};

    fn completions(token: u64, bytes: u32) -> Vec<Completion> {
        vec![Completion { token, result: Ok(bytes) }; 100]
    }

    #[test]
    fn a_run_is_short_only_where_pages_are_copied() {
        assert_eq!(count_of_run(&completions(1, 1 << 20)), 1);
        assert_eq!(count_of_run(&completions(1, 64 << 10)), 2);
        assert_eq!(count_of_run(&completions(1, 4 << 10)), 8);
        assert_eq!(count_of_run(&completions(4, 1 << 20)), 100, "a request's own bio");
    }

    /// The bytes of the requests in these tests: more than a block, so that the kernel may end them
    /// short.
    const BYTES: i64 = 8192;
    const HALF: u32 = 4096;

    fn given_up(kind: Kind, known: bool) -> (i64, Vec<u8>) {
        ended_early(kind, known, Err(Errno::CANCELED), Context::new)
    }

    fn fill_the_way(engine: &Arc<Engine>) {
        let file = std::fs::File::open("/proc/self/exe").unwrap();
        let send = || engine.holds.hold_afresh(file.as_raw_fd()).ok();
        assert!(core::iter::from_fn(send).count() > 1);
    }

    type MakeContext = fn(&Arc<Engine>, u32, u32) -> Result<Arc<Context>, Errno>;

    fn ended_early(
        kind: Kind,
        known: bool,
        first: Result<u32, Errno>,
        make: MakeContext,
    ) -> (i64, Vec<u8>) {
        ended(kind, (known, false, None), make, end_with(first))
    }

    fn end_with(first: Result<u32, Errno>) -> impl FnOnce(&Arc<Context>, Arc<Null>, &Command) {
        move |context, queue, _| {
            queue.commit();
            let pump = OwnPump::new(queue, context);
            pump.wait(1, Deadline::NOW).unwrap();
            let mut collected = pump.collected.lock();
            assert_eq!(collected.completions.len(), 1);
            collected.completions.iter_mut().for_each(|it| it.result = first);
            drop(collected);
            pump.run();
        }
    }

    fn ended(
        kind: Kind,
        (known, is_in_order, counter): (bool, bool, Option<i32>),
        make: MakeContext,
        end: impl FnOnce(&Arc<Context>, Arc<Null>, &Command),
    ) -> (i64, Vec<u8>) {
        let config = Config { backend: BackendChoice::Threads, ..Config::default() };
        let engine = Engine::on_machine(config, "test".to_owned()).unwrap();
        let context = make(&engine, 0, 1).unwrap();
        let folder = tempfile::tempdir_in("/var/tmp").unwrap();
        let path = folder.path().join("file");
        std::fs::write(&path, [1; BYTES as usize]).unwrap();
        let mut options = std::fs::OpenOptions::new();
        let file = options.read(true).write(true).custom_flags(O_DIRECT).open(&path).unwrap();
        let mut memory = AlignedBuffer::zeroed(BYTES as usize);
        let segment = IoVec { base: memory.as_mut_ptr(), len: BYTES as usize };
        let (fd, segments) = (file.as_raw_fd(), Segments::One(segment));
        // SAFETY: the event is taken before the memory is freed.
        let command = unsafe { Command::new(kind, (fd, open_for(fd).unwrap()), segments, 0) };
        let file = file::stat(fd).ok().filter(|_| known).map(|stat| FileState::of(&stat));
        let write = None;
        let request = DirectRequest {
            command: command.clone(),
            data: 7,
            obj: 7,
            file,
            cancelled: false,
            counter,
            write,
            is_in_order,
            ticket: None,
        };
        context.io().reserve(1).unwrap();
        let queue = Arc::new(Null::new(1));
        let own = &context.own.direct;
        let given = own.start((&command, 0), counter, || request, |bio| queue.queue(bio));
        assert!(given.is_some());
        end(&context, queue, &command);
        let result = result_of(&context);
        context.destroy().unwrap();
        engine.shutdown();
        (result, std::fs::read(path).unwrap())
    }

    fn result_of(context: &Context) -> i64 {
        let (mut result, wanted) = (0, WaitOptions::new(1, 1, Deadline::NEVER));
        let taken = context.io().wait_events(&wanted, |_, event| {
            result = event.res;
            Ok(())
        });
        assert_eq!(taken, Ok(1));
        result
    }

    #[test]
    fn what_a_ring_gave_up_is_asked_again_unseen() {
        assert_eq!(given_up(Kind::Write, true), (BYTES, vec![0; BYTES as usize]));
        assert_eq!(given_up(Kind::Read, true), (BYTES, vec![1; BYTES as usize]));
    }

    #[test]
    fn what_the_kernel_refused_is_carried_elsewhere() {
        for errno in [Errno::AGAIN, Errno::OPNOTSUPP] {
            let ended = |kind| ended_early(kind, true, Err(errno), Context::new);
            assert_eq!(ended(Kind::Write), (BYTES, vec![0; BYTES as usize]));
            assert_eq!(ended(Kind::Read), (BYTES, vec![1; BYTES as usize]));
        }
    }

    fn refuse(
        (context, queue): (&Arc<Context>, &Null),
        errno: Errno,
        credentials: &Result<Option<Arc<Credentials>>, Errno>,
    ) {
        let bios = vec![(take_one(queue).token, Err(errno))];
        let refused = Refused { bios, ..Refused::default() };
        let _section = Section::enter(context.engine());
        let mut plug = Plug::take(context.engine(), Place::Caller);
        carry_elsewhere(context, refused, credentials, &mut plug);
        plug.flush(Some(context));
        Plug::put_back(plug);
    }

    fn take_one(queue: &Null) -> Completion {
        queue.commit();
        let mut done = Vec::new();
        queue.reap(&mut done, 1, Deadline::NOW).unwrap();
        done.remove(0)
    }

    /// The kernel may have refused the write; then it is written again, after later writes.
    #[test]
    fn a_later_write_waits_for_one_that_may_be_refused() {
        let undecided = |context: &Arc<Context>, queue: Arc<Null>, command: &Command| {
            let done = take_one(&queue);
            let refused = Refused { undecided: vec![done.token], ..Refused::default() };
            let mut plug = Plug::take(context.engine(), Place::Caller);
            carry_elsewhere(context, refused, &Ok(None), &mut plug);
            Plug::put_back(plug);
            let (engine, mut ordered) = (context.engine(), Vec::new());
            engine.unordered.take_places_before((command, u64::MAX), context, &mut ordered);
            assert_eq!((ordered.len(), engine.orders.is_empty()), (1, false));
            let pump = OwnPump::new(queue, context);
            pump.collected.lock().completions.push(done);
            pump.run();
            assert!(engine.orders.is_empty() && engine.unordered.is_empty());
        };
        ended(Kind::Write, (true, true, None), Context::new, undecided);
    }

    /// The kernel carries out the write before later ones, but fsync(2) does not wait for it.
    #[test]
    fn a_later_sync_of_an_api_waits_for_a_write_in_order() {
        let makes: [(MakeContext, bool); 3] =
            [(Context::new, false), (Context::over_open_files, true), (Context::in_turn, true)];
        for (make, covers) in makes {
            let in_flight = |context: &Arc<Context>, queue: Arc<Null>, command: &Command| {
                let engine = context.engine();
                for (kind, waits) in [(Kind::Write, false), (Kind::Fsync, covers)] {
                    let (later, mut ordered) = (Command { kind, ..command.clone() }, Vec::new());
                    engine.unordered.take_places_before((&later, u64::MAX), context, &mut ordered);
                    assert_eq!((!ordered.is_empty(), !engine.orders.is_empty()), (waits, waits));
                }
                end_with(Ok(BYTES as u32))(context, queue, command);
                assert!(engine.orders.is_empty());
            };
            ended(Kind::Write, (true, true, None), make, in_flight);
        }
    }

    #[test]
    fn a_later_write_waits_for_a_read_that_goes_on() {
        let goes_on = |context: &Arc<Context>, queue: Arc<Null>, _: &Command| {
            let (engine, mut collected) = (context.engine(), Collected::default());
            let again = Completion { result: Err(Errno::AGAIN), ..take_one(&queue) };
            collected.completions.push(again);
            let Collected { completions, events, tickets, unfinished } = &mut collected;
            let counts = (&engine.user_files.writes, &engine.orders, context.io().stats());
            context.own.direct.end(completions, (events, tickets), unfinished, counts);
            let (request, _) = unfinished.remove(0);
            let (key, write) = (request.file.unwrap().key, Reach::new(0..1, Access::Write));
            assert!(engine.orders.conflicts(key, &write));
            request.end_short(context, Ok(BYTES as u32));
            assert!(!engine.orders.conflicts(key, &write));
        };
        ended(Kind::Read, (true, false, None), Context::new, goes_on);
    }

    #[test]
    fn the_eventfd_of_what_the_kernel_refused_is_signalled_once() {
        for (errno, result) in [(Errno::AGAIN, BYTES), (Errno::IO, -i64::from(Errno::IO.raw()))] {
            let counter = EventFd::new().unwrap();
            let asked = (true, true, Some(counter.raw()));
            let ended = ended(Kind::Read, asked, Context::new, |context, queue, _| {
                context.engine().holds.hold_counter(counter.raw()).unwrap();
                refuse((context, &queue), errno, &Ok(None));
            });
            assert_eq!((ended.0, counter.drain()), (result, 1));
        }
    }

    #[test]
    fn a_write_that_is_refused_and_whose_rights_cannot_be_had_is_not_done() {
        let refused = |context: &Arc<Context>, queue: Arc<Null>, _: &Command| {
            refuse((context, &queue), Errno::AGAIN, &Err(Errno::PERM));
        };
        let ended = |kind| ended(kind, (true, true, None), Context::new, refused);
        assert_eq!(ended(Kind::Write), (-i64::from(Errno::PERM.raw()), vec![1; BYTES as usize]));
        assert_eq!(ended(Kind::Read), (BYTES, vec![1; BYTES as usize]));
    }

    #[test]
    fn what_is_left_of_a_write_is_not_done_where_its_rights_cannot_be_had() {
        let ended = |kind, first| {
            let _filter = RefusedCredentials::begin();
            ended_early(kind, true, first, Context::new)
        };
        let refused = -i64::from(Errno::PERM.raw());
        assert_eq!(
            ended(Kind::Write, Ok(HALF)),
            (i64::from(HALF), vec![1; BYTES as usize]),
            "by the engine's rights"
        );
        for first in [Errno::AGAIN, Errno::OPNOTSUPP, Errno::CANCELED] {
            assert_eq!(ended(Kind::Write, Err(first)), (refused, vec![1; BYTES as usize]));
        }
        assert_eq!(ended(Kind::Write, Err(Errno::IO)).0, -i64::from(Errno::IO.raw()), "its own");
        assert_eq!(ended(Kind::Read, Ok(HALF)).0, BYTES);
    }

    #[test]
    fn what_a_ring_gave_up_is_asked_again_when_there_is_room_on_the_way() {
        let make: MakeContext = |engine, id, nr| {
            fill_the_way(engine);
            Context::new(engine, id, nr)
        };
        for first in [Err(Errno::CANCELED), Ok(HALF)] {
            assert_eq!(ended_early(Kind::Write, true, first, make).0, BYTES);
        }
    }

    #[test]
    fn a_write_that_comes_short_late_does_not_go_on_over_later_ones() {
        let end = || end_with(Ok(HALF));
        let result = ended(Kind::Write, (true, true, None), Context::new, end());
        assert_eq!(
            result,
            (i64::from(HALF), vec![1; BYTES as usize]),
            "nothing is written after it"
        );
        let result = ended(Kind::Write, (true, false, None), Context::new, end());
        assert_eq!(result.0, BYTES, "others wait for it");
    }

    #[test]
    fn a_short_read_of_a_file_that_stays_open_goes_on() {
        let (make, half) = (Context::over_open_files as MakeContext, Ok(HALF));
        let (result, _) = ended_early(Kind::Read, false, half, make);
        assert_eq!(result, BYTES);
        assert_eq!(ended_early(Kind::Read, false, Err(Errno::CANCELED), make).0, BYTES);
        let (result, _) = ended_early(Kind::Read, false, half, Context::new);
        assert_eq!(result, i64::from(HALF), "the number may mean another file by now");
    }

    struct Cached {
        engine: Arc<Engine>,
        context: Arc<Context>,
        folder: tempfile::TempDir,
        user: Arc<UserFile>,
    }

    impl Cached {
        fn new() -> Cached {
            let (backend, cache_bytes) = (BackendChoice::Threads, 8 << 20);
            let config = Config { backend, cache_bytes, ..Config::default() };
            let engine = Engine::on_machine(config, "test".to_owned()).unwrap();
            let context = Context::new(&engine, 0, 1).unwrap();
            let folder = tempfile::tempdir_in("/var/tmp").unwrap();
            std::fs::write(folder.path().join("file"), [1; 4096]).unwrap();
            let mut options = std::fs::OpenOptions::new();
            let path = folder.path().join("file");
            let file = options.read(true).write(true).open(path).unwrap();
            let user = UserFile::open(&engine, file.as_raw_fd()).unwrap();
            Cached { engine, context, folder, user }
        }

        fn gives_up(&self, bios: &[Bio]) {
            assert_eq!(bios.len(), 1);
            let pump = OwnPump::new(Arc::new(Null::new(1)), &self.context);
            let completion = Completion { token: bios[0].token, result: Err(Errno::CANCELED) };
            pump.collected.lock().completions.push(completion);
            pump.run();
        }
    }

    #[test]
    fn a_fill_that_a_ring_gave_up_is_carried_elsewhere() {
        let it = Cached::new();
        let (mut bios, file) = (Vec::new(), it.user.cached());
        UserFile::new_open().will_need(file, 0..4096, &mut bios);
        let mut memory = AlignedBuffer::zeroed(4096);
        let segment = IoVec { base: memory.as_mut_ptr(), len: 4096 };
        // SAFETY: the event is taken before the memory is freed.
        let read =
            unsafe { Command::new(Kind::Read, (-1, Flags::Read(0)), Segments::One(segment), 0) };
        it.context.io().reserve(1).unwrap();
        let mut submission = Submission::new(&it.context);
        let target = EventTarget { data: 7, obj: 7, eventfd: None };
        assert_eq!(submission.start_on(&it.user, &read, &target), Ok(Started::Queued), "it waits");
        submission.finish();
        it.gives_up(&bios);
        assert_eq!(result_of(&it.context), 4096);
        assert_eq!(*memory, [1; 4096]);
        it.engine.shutdown();
    }

    #[test]
    fn the_writeback_of_a_sync_that_a_ring_gave_up_is_carried_elsewhere() {
        let it = Cached::new();
        let mut bios = Vec::new();
        let data = [2; 4096];
        let segment = IoVec { base: data.as_ptr().cast_mut(), len: data.len() };
        // SAFETY: `run` returns when the operation is over.
        let write = unsafe { UserOperation::write(&it.user, 0, Segments::One(segment), None) };
        assert_eq!(write.run(&it.engine), Ok(4096));
        let mut sync = UserOperation::sync(&it.user, SyncLevel::All);
        let entry = || std::task::Waker::noop().clone();
        assert!(!matches!(sync.iterate(&mut bios, &entry), Step::Done(_)), "it waits");
        it.gives_up(&bios);
        assert_eq!(sync.run(&it.engine), Ok(0));
        assert_eq!(std::fs::read(it.folder.path().join("file")).unwrap(), data);
        it.engine.shutdown();
    }

    /// The number of the request's file may name another file by now.
    #[test]
    fn what_is_known_by_its_number_only_is_not_asked_again() {
        let cancelled = -i64::from(Errno::CANCELED.raw());
        assert_eq!(given_up(Kind::Read, false), (cancelled, vec![1; BYTES as usize]));
    }

    /// If the driver checks between the queue and the run, it counts no completion and stops
    /// watching.
    #[test]
    fn what_a_run_leaves_is_looked_after() {
        let config = Config { backend: BackendChoice::Threads, ..Config::default() };
        let machine = Parts::of_machine(&config, "test".to_owned());
        let engine = Engine::start(config, Parts { executor: Executor::Owner, ..machine }).unwrap();
        let context = Context::new(&engine, 0, 1).unwrap();
        let pump = OwnPump::new(Arc::new(Null::new(1)), &context);
        pump.collected.lock().completions = completions(1, 1 << 20);
        assert!(!context.checks.watch.is_on());
        pump.run();
        assert_eq!(context.own.unrun.load(Relaxed), 99);
        assert!(context.checks.watch.is_on(), "no thread comes for the rest");
        engine.shutdown();
    }
}
