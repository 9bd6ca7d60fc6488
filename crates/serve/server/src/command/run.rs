//! The main thread of `nowait serve`: opens images and listeners, accepts clients, and handles
//! signals.

use super::{
    ServeArgs, TlsArg, activation,
    args::CacheArg,
    drives, files,
    pid_file::PidFile,
    start::{Failure, Start},
    task::Task,
};
use crate::{
    ServeError,
    access::Access,
    fuse::Mount,
    nbd::{Limits, Security},
    server::{Address, Config, DRAIN_NS, Listener, Server, Tls, TlsFiles, View},
    status::{Endpoint, own_socket, snapshot},
    ublk::Drive,
    vhost::{Front, Socket},
};
use nowait::{CacheMode, Nowait, SubmitMode};
use nowait_device::{Backing, Image, ServerCache};
use nowait_image_store::{Cache as StoreCache, StoreUrl, open::open_all};
use nowait_sys::{
    epoll::{self, Epoll},
    eventfd::EventFd,
    fd,
    signalfd::{self, Signals},
    time::{Deadline, now_ns},
};
use nowait_terminal::say;
use std::{os::fd::AsRawFd, path::Path, sync::Arc, thread, time::Instant};

/// Serves until SIGTERM or SIGINT comes, the last client has gone (with `--exit-with-last-client`),
/// or no client can connect any more.
///
/// # Errors
/// An image, an address or a file cannot be used; a thread has failed; some writes could not be
/// made durable.
pub fn serve(args: &ServeArgs) -> Result<(), ServeError> {
    // Take the listeners before this process opens a file, because the file could get the number of
    // a missing socket.
    let given = activation::listeners()?;
    // Block the signals before the first thread starts, so that all threads inherit the signal
    // mask.
    let taken = (Signals::take(ENDS), Signals::take(&[signalfd::HUP]));
    let (ends, hang_ups) =
        (taken.0.map_err(ServeError::descriptors)?, taken.1.map_err(ServeError::descriptors)?);
    let mut main = match Main::start(&Arc::new(args.clone()), given, ends, hang_ups) {
        Ok(main) => main,
        Err(Failure::Error(error)) => return Err(error),
        Err(Failure::Signal) => {
            say("a signal ended the start: nothing was served");
            return Ok(());
        }
    };
    main.say_what_is_served();
    let served = main.run();
    // Each status thread keeps its listener until the process ends, so remove the names of their
    // sockets here.
    main.status_listeners.unlink();
    served?;
    main.end()
}

fn vhost(
    args: &ServeArgs,
    sockets: Vec<(Socket, Listener)>,
    server: &Server,
    config: &Config,
) -> Result<Option<Front>, ServeError> {
    if sockets.is_empty() {
        return Ok(None);
    }
    let (threads, memory_bytes) = (config.threads, config.memory_bytes);
    Front::serve(&server.view(), sockets, args.queues, threads, memory_bytes).map(Some)
}

fn config(args: &ServeArgs) -> Result<Config, ServeError> {
    let processors = thread::available_parallelism().map_or(1, usize::from);
    // The memory is divided, because each kind of front has memory of its own.
    let others = [args.fuse.is_empty(), args.vhost_user.is_empty(), args.ublk.is_empty()];
    let fronts = 1 + others.iter().filter(|empty| !**empty).count() as u64;
    Ok(Config {
        threads: args.threads.map_or((processors / 2).clamp(1, 4), |count| count as usize),
        // A client needs one descriptor. Images, rings and listeners need descriptors, too.
        clients_max: (args.max_clients as usize).min(fd::nofile_limit() as usize / 2),
        memory_bytes: usize::try_from(args.memory / fronts).unwrap_or(usize::MAX),
        limits: Limits::default(),
        tls: tls_files(args).as_ref().map(Tls::load).transpose()?,
        ..Config::default()
    })
}

fn last_client(server: &Server) -> Result<Arc<EventFd>, ServeError> {
    let bell = Arc::new(EventFd::new().map_err(ServeError::descriptors)?);
    for image in server.view().images() {
        image.stats().tell_when_last_gone(bell.clone());
    }
    Ok(bell)
}

fn tls_files(args: &ServeArgs) -> Option<TlsFiles> {
    let (certificate, key) = args.tls_cert.clone().zip(args.tls_key.clone())?;
    Some(TlsFiles { certificate, key, client_authority: args.tls_client_ca.clone() })
}

fn store_cache(args: &ServeArgs) -> Result<Option<Arc<StoreCache>>, ServeError> {
    if !has_any(args, |path| matches!(StoreUrl::of_path(path), Ok(Some(_)))) {
        return match args.cache_dir {
            // Other clients may write to an export of an NBD server before the next server starts.
            Some(_) if has_any(args, is_on_server) => {
                let reason = "--cache-dir works with object stores only, since others can change \
                              an NBD export between two starts: use --cache user";
                Err(ServeError::new(reason))
            }
            Some(_) => Err(ServeError::new(
                "--cache-dir works with object stores only: no image is \
                 on one",
            )),
            None => Ok(None),
        };
    }
    let mode = match args.cache {
        CacheArg::None => CacheMode::Direct,
        CacheArg::User => CacheMode::User,
        CacheArg::Host => CacheMode::Host,
    };
    let say: Option<fn(&str)> = Some(|text| say(text));
    match (&args.cache_dir, args.cache) {
        (Some(folder), _) => {
            // The cache has an engine of its own, so that requests to a stalled disk occupy no
            // worker of other images. Workers also make the first attempt at each request, because
            // a submit blocks while the disk's queue is full, and an image's thread must not block.
            let engine = Nowait::builder().cache_bytes(args.cache_size);
            let nowait = engine.submit(SubmitMode::Offload).build()?;
            StoreCache::in_folder(&nowait, folder, args.cache_dir_size, mode, say)
                .map(Some)
                .map_err(|error| ServeError::new(error.to_string()))
        }
        (None, CacheArg::User) => Ok(Some(StoreCache::in_memory(args.cache_size))),
        (None, _) => Ok(None),
    }
}

fn server_cache(args: &ServeArgs) -> Option<Arc<ServerCache>> {
    let is_used = args.cache == CacheArg::User && has_any(args, is_on_server);
    is_used.then(|| ServerCache::new(args.cache_size))
}

fn is_on_server(path: &Path) -> bool {
    matches!(Backing::of(path), Ok(Backing::Nbd(_)))
}

fn has_any(args: &ServeArgs, is_meant: fn(&Path) -> bool) -> bool {
    args.images().iter().any(|image| is_meant(&image.path))
}

type Opened = (Config, Option<Arc<StoreCache>>, Vec<Arc<Image>>);

/// Blocks as long as files, servers and stores take.
fn open(nowait: &Nowait, args: &ServeArgs) -> Result<Opened, ServeError> {
    let cache = store_cache(args)?;
    let images = open_images(nowait, args, cache.as_ref())?;
    let names: Vec<&str> = images.iter().map(|image| image.name()).collect();
    let access = Access::new(&args.allow, &names, args.tls_client_ca.is_some())?;
    let config = Config { access, ..config(args)? };
    Ok((config, cache, images))
}

fn open_images(
    nowait: &Nowait,
    args: &ServeArgs,
    cache: Option<&Arc<StoreCache>>,
) -> Result<Vec<Arc<Image>>, ServeError> {
    let mut options = args.images();
    for (place, image) in options.iter().enumerate() {
        if options[..place].iter().any(|other| other.name == image.name) {
            return Err(ServeError::new(format!(
                "two images have the name {}: rename one with NAME=IMAGE",
                image.name
            )));
        }
    }
    let server_cache = server_cache(args);
    options.iter_mut().for_each(|image| image.server_cache.clone_from(&server_cache));
    let mut objects = args.objects();
    objects.iter_mut().for_each(|object| object.store.cache = cache.cloned());
    let images = open_all(nowait, &options, &objects)?;
    for (image, options) in images.iter().zip(&options) {
        let (shown, lost) = (options.path.display(), image.cut_off());
        if image.size() == 0 {
            say(format_args!("{shown}: nothing is served: the file has no whole sector"));
        } else if lost > 0 {
            say(format_args!("{shown}: the last {lost} bytes are not served: not a whole sector"));
        }
    }
    Ok(images.into_iter().map(Arc::new).collect())
}

fn listen(
    args: &ServeArgs,
    mut listeners: Vec<Listener>,
    start: &Start<'_>,
) -> Result<Vec<(Listener, Security)>, Failure> {
    for address in &args.nbd {
        listeners.push(bind(address, start)?);
    }
    let others = [args.fuse.len(), args.vhost_user.len(), args.ublk.len()];
    if listeners.is_empty() && others == [0; 3] {
        let reason = "no client can connect: give --nbd unix:PATH, --fuse FILE, \
                      --vhost-user SOCKET or --ublk auto";
        return Err(ServeError::new(reason).into());
    }
    let secured = listeners.into_iter().map(|listener| secure(listener, args));
    secured.collect::<Result<_, _>>().map_err(Failure::Error)
}

/// Begins to listen at `address`, as a step of the start, because that may look up a host name.
fn bind(address: &Address, start: &Start<'_>) -> Result<Listener, Failure> {
    let address = address.clone();
    start.step(move || {
        let failed = |error| ServeError::io(format!("cannot listen on {address}"), &error);
        Listener::bind(&address).map_err(failed)
    })
}

fn listen_for_machines(
    args: &ServeArgs,
    start: &Start<'_>,
) -> Result<Vec<(Socket, Listener)>, Failure> {
    let bind =
        |socket: &Socket| Ok((socket.clone(), bind(&Address::Unix(socket.path.clone()), start)?));
    args.vhost_user.iter().map(bind).collect()
}

fn listen_for_status(
    address: &Address,
    args: &ServeArgs,
    start: &Start<'_>,
) -> Result<Listener, Failure> {
    let listener = bind(address, start)?;
    if listener.is_open_to_other_machines() && !args.expose_status {
        return Err(ServeError::new(format!(
            "--status {address} is open to other hosts: use tcp:127.0.0.1:PORT, or add \
                 --expose-status"
        ))
        .into());
    }
    Ok(listener)
}

/// A loopback address counts like any other TCP address.
fn secure(listener: Listener, args: &ServeArgs) -> Result<(Listener, Security), ServeError> {
    let refuse = |reason: String| Err(ServeError::new(reason));
    let security = match (args.tls, args.tls_cert.is_some()) {
        (None | Some(TlsArg::Require), true) => Security::TlsRequired,
        (Some(TlsArg::On), true) => Security::TlsOffered,
        (Some(TlsArg::Off), false) => Security::Plain,
        (None, false) if !listener.is_tcp() => Security::Plain,
        (None, false) => {
            return refuse(format!("{listener}: TCP needs --tls-cert and --tls-key, or --tls off"));
        }
        (Some(TlsArg::Off), true) => {
            return refuse("--tls off and --tls-cert contradict each other".to_owned());
        }
        (Some(TlsArg::On | TlsArg::Require), false) => {
            return refuse("--tls on and --tls require need --tls-cert and --tls-key".to_owned());
        }
    };
    Ok((listener, security))
}

/// Images opened during a start. If the start fails, dropping this value closes the images, so that
/// images on stores do not count as served.
struct Unserved(Option<View>);

const CLOSE_NS: u64 = 500_000_000;

impl Drop for Unserved {
    fn drop(&mut self) {
        let Some(view) = self.0.take() else { return };
        // If the close fails, no data is lost.
        let _ = Task::begin("nowait-end", move || view.sync()).map(|task| wait(task, CLOSE_NS));
    }
}

fn wait(task: Task<()>, limit_ns: u64) -> Result<(), ServeError> {
    let deadline = Deadline::after_ns(limit_ns);
    task.wait(|| deadline.has_passed()).unwrap_or_else(|| {
        let why = "requests in flight were abandoned: their time to end was over";
        Err(ServeError::new(why))
    })
}

const ENDS: &[i32] = &[signalfd::TERM, signalfd::INT];

/// Listeners of the status threads, which end with the process. Dropping this value removes the
/// names of the sockets.
#[derive(Default)]
struct StatusListeners(Vec<Arc<Listener>>);

impl StatusListeners {
    fn unlink(&self) {
        self.0.iter().for_each(|listener| listener.unlink());
    }
}

impl Drop for StatusListeners {
    fn drop(&mut self) {
        self.unlink();
    }
}

struct Main {
    server: Server,
    listeners: Vec<(Listener, Security)>,
    mounts: Vec<Mount>,
    drives: Vec<Drive>,
    front: Option<Front>,
    tls: Option<TlsFiles>,
    /// Becomes readable when an image has lost its last client; `None`: the server continues
    /// without clients.
    last: Option<Arc<EventFd>>,
    ends: Signals,
    /// SIGHUP, at which the server updates the images' sizes and reloads the TLS files.
    hang_ups: Signals,
    started: Instant,
    status_listeners: StatusListeners,
    cache: Option<Arc<StoreCache>>,
    pid_file: Option<PidFile>,
}

/// The tokens of the epoll set. Signals have `SIGNALS`, the eventfd for the last client has
/// [`LAST`], and a listener has its index. Mounts have their index plus [`MOUNTS`], and block
/// devices their index plus [`DRIVES`].
const SIGNALS: u64 = u64::MAX;
const LAST: u64 = u64::MAX - 1;
const MOUNTS: u64 = 1 << 32;
const DRIVES: u64 = 1 << 33;

impl Main {
    /// Opens the images of `args`, and begins to serve these images. Signals stay pending.
    ///
    /// # Errors
    /// An image, an address or a file cannot be used, or a signal of `ends` has come first. The
    /// start has then removed everything that it made, except the results of a step that it gave
    /// up.
    fn start(
        args: &Arc<ServeArgs>,
        given: Vec<Listener>,
        ends: Signals,
        hang_ups: Signals,
    ) -> Result<Main, Failure> {
        if args.insecure {
            let gone = "--insecure was removed: use --tls off to serve TCP without TLS, or \
                        --expose-status";
            return Err(ServeError::new(gone).into());
        }
        fd::raise_nofile_limit();
        let start = Start::new(&ends);
        let listeners = listen(args, given, &start)?;
        let status = args
            .status
            .as_ref()
            .map(|address| listen_for_status(address, args, &start))
            .transpose()?;
        drives::prepare(args);
        let nowait = Nowait::builder().cache_bytes(args.cache_size).build()?;
        let named = args.clone();
        let points = start.step(move || files::clear(&named))?;
        let (engine, named) = (nowait.clone(), args.clone());
        let (config, cache, images) = start.step(move || open(&engine, &named))?;
        // The following two steps may wait. They come before the first client is served, because a
        // start that is given up might not make writes durable.
        let machines = listen_for_machines(args, &start)?;
        let own = start.step(|| Ok(own_socket::listen()))?;
        let server = Server::start(&nowait, images, &config)?;
        // A client may come and go before the start is over.
        let last = args.exit_with_last_client.then(|| last_client(&server)).transpose()?;
        let mut unserved = Unserved(Some(server.view()));
        // Devices come before all other fronts: if a device fails, no other front has served a
        // client yet.
        let (named, limits) = (args.clone(), config.clone());
        let (server, drives) = start.step(move || {
            let drives = drives::make(&server, &named, &limits)?;
            Ok((server, drives))
        })?;
        let mounts = files::show(&server, args, points)?;
        let front = vhost(args, machines, &server, &config)?;
        let mut main = Main {
            last,
            server,
            listeners,
            mounts,
            drives,
            front,
            tls: tls_files(args),
            ends,
            hang_ups,
            started: Instant::now(),
            status_listeners: StatusListeners::default(),
            cache,
            pid_file: None,
        };
        main.status_listeners = main.answer_status(status.into_iter().chain(own))?;
        main.pid_file = args.pid_file.as_deref().map(PidFile::new).transpose()?;
        unserved.0 = None;
        Ok(main)
    }

    fn say_what_is_served(&self) {
        for image in self.server.view().images() {
            for (listener, _) in &self.listeners {
                let (name, size) = (image.name(), image.size());
                say(format_args!("serving {name} ({size} bytes) on {listener}"));
            }
        }
    }

    fn answer_status(
        &self,
        listeners: impl Iterator<Item = Listener>,
    ) -> Result<StatusListeners, ServeError> {
        let listening = StatusListeners(listeners.map(Arc::new).collect());
        for listener in &listening.0 {
            let (view, started) = (self.server.view(), self.started);
            Endpoint::start(listener.clone(), &self.server.view(), move || {
                snapshot(&view, started)
            })?;
        }
        Ok(listening)
    }

    /// Removes the files and devices, waits for requests in flight until a time limit, and makes
    /// the writes to all images durable.
    fn end(self) -> Result<(), ServeError> {
        let Main { server, listeners, mut mounts, mut drives, front, cache, .. } = self;
        let (view, ends_ns) = (server.view(), now_ns() + DRAIN_NS);
        // The server accepts no new NBD client while it completes the requests of connected
        // clients.
        drop(listeners);
        let machines = Task::begin("nowait-end", move || front.map_or(Ok(()), Front::stop))?;
        let others = Task::begin("nowait-end", move || {
            files::hide(&mut mounts);
            drives::remove(&server, &mut drives);
            server.drain(ends_ns)
        })?;
        let left_ns = || ends_ns.saturating_sub(now_ns());
        let ended = wait(machines, left_ns()).and(wait(others, left_ns()));
        // Sync all images, even if the requests of some did not end in time.
        let ended = ended.and(view.sync());
        cache.iter().for_each(|cache| cache.end());
        ended
    }

    fn run(&mut self) -> Result<(), ServeError> {
        let epoll = Epoll::new().map_err(ServeError::descriptors)?;
        let watch = |fd, token| epoll.add(fd, epoll::IN, token).map_err(ServeError::descriptors);
        watch(self.ends.raw(), SIGNALS)?;
        watch(self.hang_ups.raw(), SIGNALS)?;
        self.last.iter().try_for_each(|bell| watch(bell.raw(), LAST))?;
        for (index, (listener, _)) in self.listeners.iter().enumerate() {
            watch(listener.as_raw_fd(), index as u64)?;
        }
        for (index, mount) in self.mounts.iter().enumerate() {
            watch(mount.raw(), MOUNTS + index as u64)?;
        }
        for (index, drive) in self.drives.iter().enumerate() {
            watch(drive.raw(), DRIVES + index as u64)?;
        }
        let mut ready = Vec::with_capacity(16);
        loop {
            epoll.wait(&mut ready, Deadline::NEVER);
            for event in &ready {
                if let Some((listener, security)) = self.listeners.get(event.token as usize) {
                    self.server.accept(listener, *security);
                }
                if event.token < LAST && event.token >= MOUNTS {
                    let _ = epoll.remove(self.lose(event.token));
                }
            }
            if !self.has_clients() || self.last_has_gone() || self.ends.next().is_some() {
                return Ok(());
            }
            while self.hang_ups.next().is_some() {
                self.resize();
                self.reload_tls();
            }
        }
    }

    /// Returns `true` if a client can still connect: there is a listener, a socket for VMMs, a
    /// mounted file, or a block device.
    fn has_clients(&self) -> bool {
        !self.listeners.is_empty()
            || self.front.is_some()
            || self.mounts.iter().any(Mount::is_up)
            || self.drives.iter().any(Drive::is_up)
    }

    fn last_has_gone(&self) -> bool {
        let Some(bell) = &self.last else { return false };
        let view = self.server.view();
        bell.drain() > 0 && view.images().iter().all(|image| image.stats().connections() == 0)
    }

    /// Forgets a file that another program has unmounted, or removes a block device that another
    /// program has stopped, and reports that. Returns the descriptor that has become readable for
    /// this reason.
    fn lose(&mut self, token: u64) -> i32 {
        if let Some(index) = token.checked_sub(DRIVES) {
            let drive = &mut self.drives[index as usize];
            if drive.is_up() {
                say(format_args!("{} was stopped", drive.path().display()));
                self.server.unmounted(drive.path());
                drive.forget();
            }
            return drive.raw();
        }
        let mount = &mut self.mounts[(token - MOUNTS) as usize];
        if mount.is_up() {
            say(format_args!("{} was unmounted", mount.path().display()));
            self.server.unmounted(mount.path());
            mount.forget();
        }
        mount.raw()
    }

    fn resize(&mut self) {
        for image in self.server.view().images() {
            match image.resize() {
                Ok((before, after)) if before != after => {
                    let name = image.name();
                    say(format_args!("{name} has {after} bytes now, {before} before"));
                }
                Ok(_) => {}
                Err(error) => say(error),
            }
        }
        self.front.iter().for_each(Front::resized);
        for drive in self.drives.iter_mut().filter(|drive| drive.is_up()) {
            match drive.resized() {
                Ok(true) => say(format_args!("{} has the new size", drive.path().display())),
                Ok(false) => {}
                Err(error) => say(error),
            }
        }
    }

    /// New TLS connections use the new files. If loading them fails, the server keeps the earlier
    /// settings.
    fn reload_tls(&self) {
        match self.tls.as_ref().map(Tls::load) {
            None => {}
            Some(Ok(tls)) => {
                self.server.set_tls(tls);
                say("certificate and key were read again");
            }
            Some(Err(error)) => say(format_args!("{error}; the earlier certificate stays in use")),
        }
    }
}
