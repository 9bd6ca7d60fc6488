//! Files besides the one of whole pages: one of any size, and one that another program changes.

use crate::{files::Setup, model::PAGE, spawn, swarm};
use nowait::{Advice, AlignedBuffer, CacheMode, File, OpenOptions};
use nowait_machine::{process, step};
use nowait_sim::Prng;
use nowait_sys::inspect::{self, O_CREAT, O_RDWR};
use std::{sync::Arc, thread::JoinHandle};

#[derive(Clone, Copy, Debug)]
enum Kind {
    Write,
    Read,
    SetLen,
    Forget,
    Sync,
    Open,
}

const KINDS: [(Kind, u32); 6] = [
    (Kind::Write, 3),
    (Kind::Read, 3),
    (Kind::SetLen, 2),
    (Kind::Forget, 2),
    (Kind::Sync, 1),
    (Kind::Open, 1),
];

fn open(setup: &Setup, path: &str, mode: CacheMode) -> Option<File> {
    let options = OpenOptions::new().read(true).write(true).create(true).cache(mode);
    setup.expected(options.open(&setup.nowait, path))
}

/// A file of which each byte is known; when the file grows, the new bytes are zeroes.
struct AnySize<'s> {
    setup: &'s Setup,
    file: File,
    expected: Vec<u8>,
}

impl AnySize<'_> {
    const PATH: &'static str = "/bytes";
    const SIZE_MAX: u64 = 4 * PAGE;

    /// Returns `None` if a request fails as `expected` allows.
    fn act(setup: &Setup, prng: &mut Prng) -> Option<()> {
        let weights = swarm(&KINDS, prng);
        let file = open(setup, Self::PATH, CacheMode::User)?;
        let mut any = AnySize { setup, file, expected: Vec::new() };
        for number in 1..=40 {
            let mut prng = prng.fork();
            let (kind, _) = KINDS[prng.weighted(&weights)];
            let from = prng.below(Self::SIZE_MAX);
            let len_max = [8, 600, 2 * PAGE][prng.index(3)];
            let len = prng.range(1..=len_max);
            if step(|| format!("{kind:?}: {from} +{len}")) {
                any.work(kind, (from as usize, len as usize), &mut prng, number)?;
            }
        }
        setup.expected(any.file.sync_all())?;
        drop(any.file);
        // Compares the content without a read: devices may still fail reads.
        assert!(
            process::contents(Self::PATH) == any.expected,
            "what was written to a file of any size"
        );
        Some(())
    }

    fn work(
        &mut self,
        kind: Kind,
        (from, len): (usize, usize),
        prng: &mut Prng,
        number: u8,
    ) -> Option<()> {
        let size = self.expected.len();
        match kind {
            Kind::Write => {
                self.setup.expected(self.file.write_all_at(&vec![number; len], from as u64))?;
                self.expected.resize(size.max(from + len), 0);
                self.expected[from..from + len].fill(number);
            }
            Kind::Read => {
                let from = from.min(size);
                let mut bytes = vec![0xff; len.min(size - from)];
                self.setup.expected(self.file.read_exact_at(&mut bytes, from as u64))?;
                let wrong = bytes.iter().zip(&self.expected[from..]).position(|(a, b)| a != b);
                assert_eq!(wrong, None, "a byte from {from} on");
            }
            Kind::SetLen => {
                let to = if prng.chance(500_000) { from } else { size.saturating_sub(len) };
                self.setup.expected(self.file.set_len(to as u64))?;
                self.expected.resize(to, 0);
            }
            Kind::Forget => self.file.advise(0..2 * Self::SIZE_MAX, Advice::DontNeed).unwrap(),
            Kind::Sync => self.setup.expected(self.file.sync_data())?,
            Kind::Open => {
                let mode = [CacheMode::User, CacheMode::Host][prng.index(2)];
                self.file = open(self.setup, Self::PATH, mode)?;
            }
        }
        assert_eq!(self.setup.expected(self.file.size())?, self.expected.len() as u64);
        Some(())
    }
}

const TOUCHED: &str = "/touched";

/// Appends to a file that another program changes and other threads open: appended data must stay.
fn append(setup: &Setup, prng: &mut Prng) -> Option<()> {
    let file = open(setup, TOUCHED, CacheMode::User)?;
    let mut end = PAGE;
    for number in 1..=20 {
        let mut prng = prng.fork();
        if !step(|| format!("append at {end}")) {
            continue;
        }
        let mut bytes = AlignedBuffer::zeroed(PAGE as usize);
        bytes.fill(number);
        setup.expected(file.write_all_at(&bytes, end))?;
        end += PAGE;
        setup.expected(file.sync_data())?;
        (0..prng.index(4)).for_each(|_| std::thread::yield_now());
        assert_eq!(file.size().unwrap(), end, "what was appended");
        let mut back = AlignedBuffer::zeroed(PAGE as usize);
        setup.expected(file.read_exact_at(&mut back, end - PAGE))?;
        assert_eq!(*back, *bytes, "what was appended");
    }
    Some(())
}

fn open_again(setup: &Setup) {
    for _ in 0..8 {
        if step(|| "open the touched file".to_owned()) {
            drop(open(setup, TOUCHED, CacheMode::User));
        }
    }
    let many = |number: usize| {
        let opens = step(|| format!("open file {number} of many"));
        opens.then(|| open(setup, &format!("/many{number}"), CacheMode::User))
    };
    drop((0..20).map(many).collect::<Vec<_>>());
}

/// Acts as another program: rewrites the zeroes of the first page, which no other thread writes.
fn touch(prng: &mut Prng) {
    let file = inspect::open(c"/touched", O_RDWR, 0).unwrap();
    let zeroes = AlignedBuffer::zeroed(PAGE as usize);
    let part = nowait_sys::file::IoVec { base: zeroes.as_ptr().cast_mut(), len: zeroes.len() };
    for _ in 0..20 {
        (0..prng.index(6)).for_each(|_| std::thread::yield_now());
        if step(|| "another program touches the file".to_owned()) {
            // SAFETY: the bytes are live.
            let _ = unsafe { nowait_sys::file::pwritev2(file.raw(), &[part], 0, 0) };
        }
    }
}

pub(crate) fn spawn_some(setup: &Arc<Setup>, prng: &mut Prng) -> Vec<JoinHandle<()>> {
    let mut thread = |name: &str, act: fn(&Setup, &mut Prng)| {
        let (setup, mut prng) = (setup.clone(), prng.fork());
        spawn(name, move || act(&setup, &mut prng))
    };
    match setup.beside {
        0 => vec![thread("any size", |setup, prng| _ = AnySize::act(setup, prng))],
        1 => {
            let file = inspect::open(c"/touched", O_RDWR | O_CREAT, 0o600).unwrap();
            nowait_sys::file::set_len(file.raw(), PAGE).unwrap();
            vec![
                thread("append", |setup, prng| _ = append(setup, prng)),
                thread("open", |setup, _| open_again(setup)),
                thread("touch", |_, prng| touch(prng)),
            ]
        }
        _ => vec![],
    }
}
