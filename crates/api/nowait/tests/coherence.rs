//! One file, several ways to access it: which way sees the writes of which other way, and when, in
//! each cache mode. docs/rust.md has the same table.

mod common;

use common::{BLOCK, folder, on_every_engine};
use nowait::{Advice, AlignedBuffer, CacheMode, File, Nowait, OpenOptions};
use std::{
    fs,
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    process::Command,
    sync::mpsc,
    thread,
    time::{Duration, Instant},
};

const MODES: [CacheMode; 3] = [CacheMode::User, CacheMode::Host, CacheMode::Direct];
const BLOCKS: usize = 4;
const O_APPEND: i32 = 0o2000;

/// The moment when a reader sees a change.
#[derive(Clone, Copy, Debug, PartialEq)]
enum When {
    Now,
    /// After a sync by the writer.
    Synced,
    /// When the engine opens the file again.
    Opened,
}
use When::{Now, Opened, Synced};

struct World<'n> {
    nowait: &'n Nowait,
    path: PathBuf,
    file: File,
    mode: CacheMode,
    plain: fs::File,
}

fn filled(byte: u8) -> AlignedBuffer {
    AlignedBuffer::from(&[byte; BLOCK][..])
}

fn all() -> OpenOptions {
    OpenOptions::new().read(true).write(true).create(true)
}

fn open(nowait: &Nowait, mode: CacheMode, path: &Path) -> File {
    all().cache(mode).open(nowait, path).unwrap()
}

fn blocks_of(file: &File) -> Vec<u8> {
    let mut bytes = AlignedBuffer::zeroed(2 * BLOCKS * BLOCK);
    let count = file.read_at(&mut bytes, 0).unwrap();
    bytes[..count].chunks(BLOCK).map(|block| block[0]).collect()
}

fn firsts(bytes: &[u8]) -> Vec<u8> {
    bytes.chunks(BLOCK).map(|block| block[0]).collect()
}

impl World<'_> {
    fn new<'n>(nowait: &'n Nowait, folder: &Path, mode: CacheMode, name: &str) -> World<'n> {
        let path = folder.join(format!("{name} {mode:?}").replace('/', " "));
        fs::write(&path, [1; BLOCKS * BLOCK]).unwrap();
        let plain = fs::File::options().read(true).write(true).open(&path).unwrap();
        let file = open(nowait, mode, &path);
        // Read the whole file, so that it is cached as far as possible.
        assert_eq!(blocks_of(&file), [1; BLOCKS]);
        World { nowait, path, file, mode, plain }
    }
}

type Look = fn(&World<'_>) -> Vec<u8>;

fn plain_read(world: &World<'_>) -> Vec<u8> {
    let mut bytes = vec![0; 2 * BLOCKS * BLOCK];
    let count = world.plain.read_at(&mut bytes, 0).unwrap();
    firsts(&bytes[..count])
}

fn another_process(world: &World<'_>) -> Vec<u8> {
    firsts(&Command::new("cat").arg(&world.path).output().unwrap().stdout)
}

fn another_engine(world: &World<'_>) -> Vec<u8> {
    let other = Nowait::builder().cache_bytes(4 << 20).build().unwrap();
    blocks_of(&open(&other, CacheMode::User, &world.path))
}

/// A way to read a file, and the moment when it sees writes in the modes user, host and direct.
const LOOKS: [(&str, Look, [When; 3]); 7] = [
    ("itself", |w| blocks_of(&w.file), [Now; 3]),
    ("an open in user", |w| blocks_of(&open(w.nowait, CacheMode::User, &w.path)), [Now; 3]),
    ("an open in host", |w| blocks_of(&open(w.nowait, CacheMode::Host, &w.path)), [Now; 3]),
    ("an open in direct", |w| blocks_of(&open(w.nowait, CacheMode::Direct, &w.path)), [Now; 3]),
    ("a plain read", plain_read, [Synced, Now, Now]),
    ("another process", another_process, [Synced, Now, Now]),
    ("an open by another engine", another_engine, [Synced, Now, Now]),
];

#[test]
fn what_a_file_has_written_is_seen_when_the_table_says() {
    on_every_engine(|nowait| {
        let folder = folder();
        for (name, look, when) in LOOKS {
            for (mode, when) in MODES.into_iter().zip(when) {
                let world = World::new(nowait, folder.path(), mode, name);
                world.file.write_all_at(&filled(2), BLOCK as u64).unwrap();
                world.file.write_all_at(&filled(3), (BLOCKS * BLOCK) as u64).unwrap();
                let seen = [1, 2, 1, 1, 3];
                if when == Now {
                    assert_eq!(look(&world), seen, "{name}, {mode:?}");
                }
                world.file.sync_data().unwrap();
                assert_eq!(look(&world), seen, "{name}, {mode:?}, synced");
            }
        }
    });
}

type Change = fn(&World<'_>);

fn plain_write(world: &World<'_>) {
    world.plain.write_all_at(&[2; BLOCK], BLOCK as u64).unwrap();
}

fn another_process_writes(world: &World<'_>) {
    let twos = world.path.with_extension("twos");
    fs::write(&twos, [2; BLOCK]).unwrap();
    let mut dd = Command::new("dd");
    dd.arg(format!("if={}", twos.display())).arg(format!("of={}", world.path.display()));
    dd.args(["bs=4096", "seek=1", "count=1", "conv=notrunc", "status=none"]);
    assert!(dd.status().unwrap().success());
}

fn write_by(world: &World<'_>, mode: CacheMode) {
    open(world.nowait, mode, &world.path).write_all_at(&filled(2), BLOCK as u64).unwrap();
}

fn another_engine_writes(world: &World<'_>) {
    let other = Nowait::builder().cache_bytes(4 << 20).build().unwrap();
    write_by(&World { nowait: &other, ..world.parts() }, CacheMode::User);
}

impl<'n> World<'n> {
    fn parts(&self) -> World<'n> {
        let (path, file, plain) =
            (self.path.clone(), self.file.clone(), self.plain.try_clone().unwrap());
        World { nowait: self.nowait, path, file, mode: self.mode, plain }
    }
}

const WRITTEN: &[u8] = &[1, 2, 1, 1];
const CUT: &[u8] = &[1, 1];

/// A way to change the file, its bytes afterwards, and the moment when a file opened before in the
/// modes user, host and direct sees them.
const CHANGES: [(&str, Change, &[u8], [When; 3]); 9] = [
    ("a write in user", |w| write_by(w, CacheMode::User), WRITTEN, [Now; 3]),
    ("a write in host", |w| write_by(w, CacheMode::Host), WRITTEN, [Now; 3]),
    ("a write in direct", |w| write_by(w, CacheMode::Direct), WRITTEN, [Now; 3]),
    ("set_len", |w| open(w.nowait, w.mode, &w.path).set_len(8192).unwrap(), CUT, [Now; 3]),
    ("a plain write", plain_write, WRITTEN, [Opened, Now, Now]),
    ("a plain truncation", |w| w.plain.set_len(8192).unwrap(), CUT, [Opened, Now, Now]),
    ("another process", another_process_writes, WRITTEN, [Opened, Now, Now]),
    ("another engine", another_engine_writes, WRITTEN, [Opened, Now, Now]),
    ("its own open that truncates", |w| drop(File::create(w.nowait, &w.path)), &[], [Now; 3]),
];

#[test]
fn what_others_have_done_to_a_file_is_seen_when_the_table_says() {
    on_every_engine(|nowait| {
        let folder = folder();
        for (name, change, expected, when) in CHANGES {
            for (mode, when) in MODES.into_iter().zip(when) {
                let world = World::new(nowait, folder.path(), mode, name);
                change(&world);
                if when == Opened {
                    drop(File::open(nowait, &world.path).unwrap());
                }
                assert_eq!(blocks_of(&world.file), expected, "{name}, {mode:?}");
                assert_eq!(world.file.size().unwrap(), (expected.len() * BLOCK) as u64, "{name}");
            }
        }
    });
}

/// Actions of this program on the file after another program has written a block. After each
/// action, the next open must read the other program's block, not the cached one.
const BETWEEN: [(&str, Change); 8] = [
    ("nothing", |_| {}),
    ("a sync of nothing", |w| w.file.sync_all().unwrap()),
    ("a write", |w| w.file.write_all_at(&filled(5), 3 * BLOCK as u64).unwrap()),
    ("a write and a sync", |w| {
        w.file.write_all_at(&filled(5), 3 * BLOCK as u64).unwrap();
        w.file.sync_data().unwrap();
    }),
    ("a durable write", |w| {
        let durable = all().cache(w.mode).sync(true).open(w.nowait, &w.path).unwrap();
        durable.write_all_at(&filled(5), 3 * BLOCK as u64).unwrap();
    }),
    ("set_len to what it is", |w| w.file.set_len((BLOCKS * BLOCK) as u64).unwrap()),
    ("the close of another handle", |w| drop(open(w.nowait, w.mode, &w.path))),
    ("a write before, and its sync", |w| w.file.sync_data().unwrap()),
];

#[test]
fn what_others_wrote_is_never_taken_for_seen() {
    on_every_engine(|nowait| {
        let folder = folder();
        for (name, between) in BETWEEN {
            for mode in MODES {
                let world = World::new(nowait, folder.path(), mode, name);
                let writes_before = name.starts_with("a write before");
                if writes_before {
                    world.file.write_all_at(&filled(5), 3 * BLOCK as u64).unwrap();
                }
                another_process_writes(&world);
                between(&world);
                let last = if name.contains("write") { 5 } else { 1 };
                let opened = open(nowait, CacheMode::User, &world.path);
                assert_eq!(blocks_of(&opened), [1, 2, 1, last], "{name}, {mode:?}");
                drop(opened);
                world.file.sync_data().unwrap();
                assert_eq!(another_process(&world), [1, 2, 1, last], "{name}, {mode:?}");
            }
        }
    });
}

/// The state of a page of a file in `User`: the table of docs/internals/cache.md, row by row. Block
/// 1 is the page, block 2 the next one; both are in one folio.
#[derive(Clone, Copy, Debug)]
enum Held {
    Nothing,
    Clean,
    /// Another program has written the page since it was cached.
    Old,
    Dirty,
    /// Dirty, and another program has written the page, too.
    DirtyBeaten,
    /// Dirty, and another program has written the next page.
    DirtyBeside,
}

#[derive(Clone, Copy, Debug)]
enum Event {
    Read,
    Open,
    Sync,
    Close,
    /// The program cuts the file off before both pages, and extends it to its old size.
    Cut,
    Written,
}

/// The bytes of blocks 1 and 2: 1 is the first content, 2 that of the other program, 5 that of this
/// program, 0 are zeroes.
type Pair = [u8; 2];

/// The data that the handle reads after an event, and the data on disk.
type After = (Event, Pair, Pair);

const STATES: [(Held, [After; 6]); 6] = {
    use Event::{Close, Cut, Open, Read, Sync, Written};
    use Held::{Clean, Dirty, DirtyBeaten, DirtyBeside, Nothing, Old};
    const ZERO: Pair = [0, 0];
    [
        (
            Nothing,
            [
                (Read, [1, 1], [1, 1]),
                (Open, [1, 1], [1, 1]),
                (Sync, [1, 1], [1, 1]),
                (Close, [1, 1], [1, 1]),
                (Cut, ZERO, ZERO),
                (Written, [2, 1], [2, 1]),
            ],
        ),
        (
            Clean,
            [
                (Read, [1, 1], [1, 1]),
                (Open, [1, 1], [1, 1]),
                (Sync, [1, 1], [1, 1]),
                (Close, [1, 1], [1, 1]),
                (Cut, ZERO, ZERO),
                (Written, [1, 1], [2, 1]),
            ],
        ),
        (
            Old,
            [
                (Read, [1, 1], [2, 1]),
                (Open, [2, 1], [2, 1]),
                (Sync, [1, 1], [2, 1]),
                (Close, [2, 1], [2, 1]),
                (Cut, ZERO, ZERO),
                (Written, [1, 1], [2, 1]),
            ],
        ),
        (
            Dirty,
            [
                (Read, [5, 1], [1, 1]),
                (Open, [5, 1], [5, 1]),
                (Sync, [5, 1], [5, 1]),
                (Close, [5, 1], [5, 1]),
                (Cut, ZERO, ZERO),
                (Written, [5, 1], [2, 1]),
            ],
        ),
        (
            DirtyBeaten,
            [
                (Read, [5, 1], [2, 1]),
                (Open, [5, 1], [5, 1]),
                (Sync, [5, 1], [5, 1]),
                (Close, [5, 1], [5, 1]),
                (Cut, ZERO, ZERO),
                (Written, [5, 1], [2, 1]),
            ],
        ),
        (
            DirtyBeside,
            [
                (Read, [5, 1], [1, 2]),
                (Open, [5, 2], [5, 2]),
                (Sync, [5, 1], [5, 2]),
                (Close, [5, 2], [5, 2]),
                (Cut, ZERO, ZERO),
                (Written, [5, 1], [2, 2]),
            ],
        ),
    ]
};

fn write_plainly(world: &World<'_>, block: usize) {
    world.plain.write_all_at(&[2; BLOCK], (block * BLOCK) as u64).unwrap();
}

fn bring_to(world: &World<'_>, held: Held) {
    match held {
        Held::Nothing | Held::Clean => {}
        Held::Old => write_plainly(world, 1),
        Held::Dirty => world.file.write_all_at(&filled(5), BLOCK as u64).unwrap(),
        Held::DirtyBeaten => {
            bring_to(world, Held::Dirty);
            write_plainly(world, 1);
        }
        Held::DirtyBeside => {
            bring_to(world, Held::Dirty);
            write_plainly(world, 2);
        }
    }
}

/// The driver writes back pages that have been dirty for a second: so a slow run may have left its
/// state before the event.
#[test]
fn a_page_beside_another_program_goes_from_state_to_state_as_the_table_says() {
    on_every_engine(|nowait| {
        let folder = folder();
        for (held, events) in STATES {
            for (event, read, left) in events {
                let name = format!("{held:?} {event:?}");
                let begin = Instant::now();
                let mut world = World::new(nowait, folder.path(), CacheMode::User, &name);
                if let Held::Nothing = held {
                    world.file = open(nowait, CacheMode::User, &world.path);
                    world.file.set_len((BLOCKS * BLOCK) as u64).unwrap();
                    world.file.advise(0..u64::MAX >> 1, Advice::DontNeed).unwrap();
                }
                bring_to(&world, held);
                let whole = (BLOCKS * BLOCK) as u64;
                match event {
                    Event::Read => {}
                    Event::Open => drop(open(nowait, CacheMode::User, &world.path)),
                    Event::Sync => world.file.sync_data().unwrap(),
                    Event::Close => {
                        let path = world.path.clone();
                        let other = open(nowait, CacheMode::Host, &path);
                        core::mem::replace(&mut world.file, other).close().unwrap();
                    }
                    Event::Cut => {
                        world.file.set_len(BLOCK as u64).unwrap();
                        world.file.set_len(whole).unwrap();
                    }
                    Event::Written => write_plainly(&world, 1),
                }
                let (seen, disk) = (blocks_of(&world.file), plain_read(&world));
                if begin.elapsed() < Duration::from_millis(700) {
                    assert_eq!(seen[1..3], read, "{name}: read");
                    assert_eq!(disk[1..3], left, "{name}: on the disk");
                }
            }
        }
    });
}

/// Only the kernel knows the end of a file to which several programs append.
#[test]
fn what_two_programs_append_is_all_there() {
    on_every_engine(|nowait| {
        let folder = folder();
        for mode in [CacheMode::User, CacheMode::Host] {
            let path = folder.path().join(format!("log {mode:?}"));
            let append = all().flags(O_APPEND).cache(mode).open(nowait, &path).unwrap();
            let other = format!("printf b >> '{}'", path.display());
            for _ in 0..10 {
                append.write_all_at(b"a", 0).unwrap();
                assert!(Command::new("sh").args(["-c", &other]).status().unwrap().success());
            }
            append.close().unwrap();
            assert_eq!(fs::read_to_string(&path).unwrap(), "ab".repeat(10), "{mode:?}");
        }
    });
}

fn wait_until_asleep(thread: i32) {
    let stat = format!("/proc/self/task/{thread}/stat");
    while !fs::read_to_string(&stat).unwrap().contains(") S ") {
        thread::yield_now();
    }
}

/// A loan of the last page stops every append after it has looked up the end of the file.
#[test]
fn what_threads_and_a_queue_append_to_a_cached_file_is_all_there() {
    const RECORD: usize = 100;
    on_every_engine(|nowait| {
        let folder = folder();
        let path = folder.path().join("log");
        fs::write(&path, [1; RECORD]).unwrap();
        let reader = File::open(nowait, &path).unwrap();
        reader.read_exact_at(&mut [0; RECORD], 0).unwrap();
        let append = all().flags(O_APPEND).open(nowait, &path).unwrap();
        let mut queue = nowait.queue(1).unwrap();
        let loan = reader.lend(0, RECORD).unwrap().expect("the page is cached");
        queue.write(&append, vec![2; RECORD], 0, ()).unwrap();
        queue.submit();
        let (begun, threads) = mpsc::channel();
        thread::scope(|scope| {
            for byte in [3, 4] {
                let (append, begun) = (append.clone(), begun.clone());
                scope.spawn(move || {
                    // SAFETY: gettid takes no arguments and cannot fail.
                    begun.send(unsafe { libc::gettid() }).unwrap();
                    append.write_all_at(&[byte; RECORD], 0).unwrap();
                });
            }
            threads.iter().take(2).for_each(wait_until_asleep);
            drop(loan);
        });
        queue.wait(1, None).unwrap();
        assert_eq!(queue.pop().unwrap().result.unwrap(), RECORD);
        let mut bytes = vec![0; 5 * RECORD];
        let count = reader.read_at(&mut bytes, 0).unwrap();
        let mut records: Vec<_> = bytes[..count].chunks(RECORD).collect();
        records.sort_unstable();
        assert!(records == [1, 2, 3, 4].map(|byte| [byte; RECORD]), "{count} bytes");
    });
}

#[test]
fn a_file_goes_on_under_another_name_and_without_one() {
    on_every_engine(|nowait| {
        let folder = folder();
        for mode in MODES {
            let world = World::new(nowait, folder.path(), mode, "named");
            world.file.write_all_at(&filled(2), 0).unwrap();
            let moved = folder.path().join(format!("moved {mode:?}"));
            fs::rename(&world.path, &moved).unwrap();
            let again = open(nowait, mode, &moved);
            assert_eq!(blocks_of(&again), [2, 1, 1, 1], "{mode:?}, renamed");
            let new = open(nowait, mode, &world.path);
            assert_eq!(new.size().unwrap(), 0, "another file has its name now");
            new.write_all_at(&filled(7), 0).unwrap();
            again.write_all_at(&filled(3), BLOCK as u64).unwrap();
            fs::remove_file(&moved).unwrap();
            assert_eq!(blocks_of(&world.file), [2, 3, 1, 1], "{mode:?}, without a name");
            world.file.write_all_at(&filled(4), 2 * BLOCK as u64).unwrap();
            world.file.sync_all().unwrap();
            assert_eq!(plain_read(&world), [2, 3, 4, 1], "{mode:?}, through a descriptor");
            drop(new);
            assert_eq!(firsts(&fs::read(&world.path).unwrap()), [7]);
        }
    });
}

#[test]
fn others_see_what_was_written_after_the_last_close() {
    on_every_engine(|nowait| {
        let folder = folder();
        let mut world = World::new(nowait, folder.path(), CacheMode::User, "closed");
        world.file.write_all_at(&filled(2), 0).unwrap();
        let second = open(nowait, CacheMode::User, &world.path);
        world.file = open(nowait, CacheMode::Host, &world.path);
        drop(second);
        assert_eq!(another_process(&world), [2, 1, 1, 1]);
    });
}
