//! The main thread: opens images and listeners, takes clients and signals.

use super::ServeArgs;
use crate::{
    ServeError,
    nbd::{Limits, Security},
    server::{Config, Listener, Server},
};
use nowait::{File, Nowait};
use nowait_export::Image;
use nowait_sys::{
    epoll::{self, Epoll, ReadyList},
    fd,
    signal::{self, Signals},
    time::Deadline,
};
use std::{sync::Arc, thread};

/// Serves until a signal ends it.
///
/// # Errors
/// An image or an address cannot be used; what was written could not be made durable.
pub fn serve(args: &ServeArgs) -> Result<(), ServeError> {
    fd::raise_nofile_limit();
    // Before the first thread: it must inherit the block.
    let signals = Signals::take(&[signal::TERM, signal::INT, signal::HUP])
        .map_err(ServeError::descriptors)?;
    let nowait = Nowait::builder().cache_bytes(args.cache_size).build()?;
    let images = open_images(&nowait, args)?;
    let listeners = listen(args)?;
    let server = Server::start(&nowait, images, &config(args))?;
    let mut main = Main { server, listeners, signals };
    main.say_what_is_served();
    main.run()?;
    let Main { server, listeners, .. } = main;
    // Nobody new comes while those who are there are answered.
    drop(listeners);
    server.stop()
}

fn config(args: &ServeArgs) -> Config {
    const MEMORY_MIN: u64 = 64 << 20;
    let processors = thread::available_parallelism().map_or(1, usize::from);
    Config {
        threads: args.threads.map_or((processors / 2).clamp(1, 4), |count| count as usize),
        clients_max: args.max_clients as usize,
        memory_bytes: usize::try_from(args.memory.max(MEMORY_MIN)).unwrap_or(usize::MAX),
        limits: Limits::default(),
        ..Config::default()
    }
}

fn open_images(nowait: &Nowait, args: &ServeArgs) -> Result<Vec<Arc<Image<File>>>, ServeError> {
    let mut images: Vec<Arc<Image<File>>> = Vec::new();
    for options in args.images() {
        if images.iter().any(|image| image.name() == options.name) {
            return Err(ServeError::new(format!(
                "two images are called {}: give one another name with NAME=IMAGE",
                options.name
            )));
        }
        let image = Image::open(nowait, &options)?;
        let lost = image.cut_off();
        if lost > 0 {
            eprintln!(
                "nowait: {}: its last {lost} bytes are no whole sector and are not served",
                options.path.display()
            );
        }
        images.push(Arc::new(image));
    }
    Ok(images)
}

fn listen(args: &ServeArgs) -> Result<Vec<(Listener, Security)>, ServeError> {
    if args.nbd.is_empty() {
        return Err(ServeError::new("nothing to listen on: say --nbd unix:PATH"));
    }
    let mut listeners = Vec::new();
    for address in &args.nbd {
        let failed = |error| ServeError::io(format!("cannot listen on {address}"), &error);
        listeners.push((Listener::bind(address).map_err(failed)?, Security::Plain));
    }
    Ok(listeners)
}

struct Main {
    server: Server,
    listeners: Vec<(Listener, Security)>,
    signals: Signals,
}

/// The mark of the signals; listeners have their number.
const SIGNALS: u64 = u64::MAX;

impl Main {
    fn say_what_is_served(&self) {
        for image in self.server.images() {
            for (listener, _) in &self.listeners {
                let (name, size) = (image.name(), image.size());
                eprintln!("nowait: serving {name} ({size} bytes) on {listener}");
            }
        }
    }

    fn run(&mut self) -> Result<(), ServeError> {
        let epoll = Epoll::new().map_err(ServeError::descriptors)?;
        let watch = |fd, token| epoll.add(fd, epoll::IN, token).map_err(ServeError::descriptors);
        watch(self.signals.raw(), SIGNALS)?;
        for (index, (listener, _)) in self.listeners.iter().enumerate() {
            watch(listener.raw(), index as u64)?;
        }
        let mut ready = ReadyList::new(16);
        loop {
            epoll.wait(&mut ready, Deadline::NEVER);
            for event in ready.iter() {
                if let Some((listener, security)) = self.listeners.get(event.token as usize) {
                    self.server.accept(listener, *security);
                }
            }
            while let Some(signal) = self.signals.next() {
                if signal != signal::HUP {
                    return Ok(());
                }
                self.resize();
            }
        }
    }

    /// Takes the sizes of the files as they are now.
    fn resize(&self) {
        for image in self.server.images() {
            match image.resize() {
                Ok((before, after)) if before != after => {
                    let name = image.name();
                    eprintln!("nowait: {name} has {after} bytes now, before {before}");
                }
                Ok(_) => {}
                Err(error) => eprintln!("nowait: {error}"),
            }
        }
    }
}
