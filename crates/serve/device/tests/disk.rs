//! Images on real files, compared with a model in memory: with each kind of cache, and with aligned
//! and unaligned requests.

use nowait::{Errno, Nowait};
use nowait_device::{
    BlockingTask, BlockingTasks, Cache, Disk, Extent, Image, ImageOptions, Mailbox, Medium,
    PIECE_BYTES, RequestEnd, Tag,
};
use nowait_sys::{
    epoll::{self, Epoll},
    time::Deadline,
};
use proptest::{
    prelude::*,
    test_runner::{Config, TestRunner},
};
use std::{ops::Range, os::fd::AsRawFd, sync::Arc};

const SIZE: u64 = 1 << 20;
const BEFORE: u64 = 8192;
const CACHES: [Cache; 3] = [Cache::None, Cache::User, Cache::Host];

struct Rig {
    disk: Disk,
    epoll: Epoll,
    image: Arc<Image>,
    folder: tempfile::TempDir,
}

impl Rig {
    fn new(cache: Cache) -> Rig {
        let folder = tempfile::tempdir_in("/var/tmp").unwrap();
        let path = folder.path().join("image");
        std::fs::write(&path, vec![0xee; (BEFORE + SIZE + 4096) as usize]).unwrap();
        let nowait = Nowait::new().unwrap();
        let options = ImageOptions {
            path,
            name: "image".to_owned(),
            cache,
            offset: BEFORE,
            length: Some(SIZE),
            ..ImageOptions::default()
        };
        let image = Arc::new(Image::open(&nowait, &options).unwrap());
        let mailbox = Mailbox::new().unwrap();
        let epoll = Epoll::new().unwrap();
        epoll.add(mailbox.raw(), epoll::IN, 0).unwrap();
        let disk = Disk::new(&nowait, &BlockingTasks::new(2), mailbox, 64 << 20).unwrap();
        for fd in disk.descriptors().unwrap() {
            epoll.add(fd.as_raw_fd(), epoll::IN, 0).unwrap();
        }
        Rig { disk, epoll, image, folder }
    }

    fn end(&mut self) -> RequestEnd {
        let mut ready = Vec::with_capacity(4);
        loop {
            self.disk.start();
            if let Some(ended) = self.disk.pop() {
                return ended;
            }
            let (epoll, list) = (&self.epoll, &mut ready);
            self.disk.sleep(|| epoll.wait(list, Deadline::NEVER)).unwrap();
        }
    }

    fn read(&mut self, range: Range<u64>) -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut at = range.start;
        while at < range.end {
            let len = (range.end - at).min(PIECE_BYTES as u64);
            let chunk = self.disk.pool().take(len as usize);
            self.disk.read(&self.image, chunk, at, TAG);
            let ended = self.end();
            assert_eq!((ended.tag, ended.result), (TAG, Ok(())));
            let chunk = ended.chunk.unwrap();
            bytes.extend_from_slice(chunk.data());
            self.disk.pool().give_back(chunk);
            at += len;
        }
        bytes
    }

    fn write(&mut self, offset: u64, bytes: &[u8], durable: bool) {
        for (index, part) in bytes.chunks(PIECE_BYTES).enumerate() {
            let mut chunk = self.disk.pool().take(part.len());
            chunk.data_mut().copy_from_slice(part);
            let at = offset + (index * PIECE_BYTES) as u64;
            self.disk.write(&self.image, chunk, at, durable, TAG);
            let ended = self.end();
            assert_eq!(ended.result, Ok(()));
            self.disk.pool().give_back(ended.chunk.unwrap());
        }
    }

    fn run(&mut self, task: BlockingTask) -> Result<Vec<Extent>, Errno> {
        self.disk.run(&self.image, task, TAG);
        let ended = self.end();
        ended.result.map(|()| ended.extents)
    }
}

const TAG: Tag = Tag { owner: 3, slot: 5, part: 7 };

/// Clients would take zeroes in place of unreadable bytes for data.
#[test]
fn a_read_that_comes_short_inside_the_image_fails() {
    for cache in [Cache::None, Cache::Host] {
        let mut rig = Rig::new(cache);
        let path = rig.folder.path().join("image");
        let file = std::fs::OpenOptions::new().write(true).open(path).unwrap();
        file.set_len(BEFORE + 4096).unwrap();
        for (offset, result) in [(0, Ok(())), (2048, Err(Errno::IO)), (8192, Err(Errno::IO))] {
            let chunk = rig.disk.pool().take(4096);
            rig.disk.read(&rig.image, chunk, offset, TAG);
            assert_eq!(rig.end().result, result, "{cache:?}, at {offset}");
        }
        assert_eq!(rig.image.resize().unwrap(), (SIZE, 4096));
    }
}

#[derive(Clone, Debug)]
enum Op {
    Write(Range<u64>, u8, bool),
    Zero(Range<u64>, bool, bool),
    Discard(Range<u64>),
    Read(Range<u64>),
    Flush,
}

fn range() -> impl Strategy<Value = Range<u64>> {
    let aligned = (0..256u64, 1..64u64).prop_map(|(at, len)| at * 4096..(at + len) * 4096);
    let any = (0..SIZE, 1..300_000u64).prop_map(|(at, len)| at..at + len);
    let small = (0..SIZE, 1..5000u64).prop_map(|(at, len)| at..at + len);
    prop_oneof![aligned, any, small].prop_map(|range| range.start..range.end.min(SIZE))
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        4 => (range(), any::<u8>(), any::<bool>()).prop_map(|(r, byte, d)| Op::Write(r, byte, d)),
        2 => (range(), any::<bool>(), any::<bool>()).prop_map(|(r, a, d)| Op::Zero(r, a, d)),
        1 => range().prop_map(Op::Discard),
        3 => range().prop_map(Op::Read),
        1 => Just(Op::Flush),
    ]
}

fn index(range: &Range<u64>) -> Range<usize> {
    range.start as usize..range.end as usize
}

fn agree(rig: &mut Rig, model: &mut [u8], op: Op) {
    match op {
        Op::Write(range, byte, durable) => {
            let bytes: Vec<u8> = range.clone().map(|at| byte ^ (at >> 9) as u8).collect();
            rig.write(range.start, &bytes, durable);
            model[index(&range)].copy_from_slice(&bytes);
        }
        Op::Zero(range, allocated, durable) => {
            model[index(&range)].fill(0);
            rig.run(BlockingTask::Zero { range, allocated, fast: false, durable }).unwrap();
        }
        Op::Discard(range) => {
            rig.run(BlockingTask::Discard { range: range.clone(), durable: false }).unwrap();
            // Each byte is zero or unchanged; from now on it must stay as it is.
            let left = rig.read(range.clone());
            let was = &model[index(&range)];
            assert!(left.iter().zip(was).all(|(now, was)| *now == 0 || now == was));
            model[index(&range)].copy_from_slice(&left);
        }
        Op::Read(range) => assert!(rig.read(range.clone()) == model[index(&range)], "{range:?}"),
        Op::Flush => {
            rig.disk.flush(&rig.image, &rig.image.join(), TAG);
            assert_eq!(rig.end().result, Ok(()));
        }
    }
}

#[test]
fn an_image_agrees_with_a_model() {
    for cache in CACHES {
        let mut runner = TestRunner::new(Config { cases: 12, ..Config::default() });
        let checked = runner.run(&prop::collection::vec(op(), 1..40), |ops| {
            let mut rig = Rig::new(cache);
            let mut model = vec![0xee; SIZE as usize];
            ops.into_iter().for_each(|op| agree(&mut rig, &mut model, op));
            assert!(rig.read(0..SIZE) == model, "{cache:?}");
            assert_eq!(rig.disk.pool().used_bytes(), 0);
            rig.disk.flush(&rig.image, &rig.image.join(), TAG);
            assert_eq!(rig.end().result, Ok(()));
            let file = std::fs::read(rig.image.file().path()).unwrap();
            assert!(file[..BEFORE as usize].iter().all(|byte| *byte == 0xee));
            assert!(file[(BEFORE + SIZE) as usize..].iter().all(|byte| *byte == 0xee));
            Ok(())
        });
        checked.unwrap();
    }
}

/// 5,000 requests are more than the queue of a disk takes.
#[test]
fn every_request_of_a_burst_ends() {
    for cache in CACHES {
        let mut rig = Rig::new(cache);
        rig.write(0, &[7; 4096], true);
        for count in [1, 7, 8, 33, 5000] {
            for slot in 0..count {
                let chunk = rig.disk.pool().take(512);
                let offset = u64::from(slot % 8) * 512;
                rig.disk.read(&rig.image, chunk, offset, Tag { slot, ..TAG });
            }
            let mut slots = Vec::new();
            for _ in 0..count {
                let ended = rig.end();
                assert_eq!(ended.result, Ok(()));
                let chunk = ended.chunk.unwrap();
                assert_eq!(chunk.data(), [7; 512]);
                rig.disk.pool().give_back(chunk);
                slots.push(ended.tag.slot);
            }
            slots.sort_unstable();
            assert!(slots.into_iter().eq(0..count), "{cache:?}, {count}");
            assert!(rig.disk.is_idle());
        }
    }
}

#[test]
fn extents_are_holes_and_data() {
    for cache in CACHES {
        let mut rig = Rig::new(cache);
        let zero =
            |range| BlockingTask::Zero { range, allocated: false, fast: true, durable: true };
        rig.run(zero(65_536..131_072)).unwrap();
        let extents = |range, max| BlockingTask::Extents { range, max };
        let found = rig.run(extents(0..SIZE, 100)).unwrap();
        let hole = |len| Extent { len, hole: true };
        let data = |len| Extent { len, hole: false };
        assert_eq!(found, [data(65_536), hole(65_536), data(SIZE - 131_072)], "{cache:?}");
        assert_eq!(rig.run(extents(66_000..70_000, 1)).unwrap(), [hole(4000)]);
        assert_eq!(rig.run(extents(0..SIZE, 2)).unwrap(), [data(65_536), hole(65_536)]);
    }
}

#[test]
fn options_that_do_not_fit_are_refused_with_a_reason() {
    let folder = tempfile::tempdir_in("/var/tmp").unwrap();
    let path = folder.path().join("image");
    std::fs::write(&path, vec![1; 10_000]).unwrap();
    let nowait = Nowait::new().unwrap();
    let open = |change: &dyn Fn(&mut ImageOptions)| {
        let mut options = ImageOptions { path: path.clone(), ..ImageOptions::default() };
        change(&mut options);
        Image::open(&nowait, &options).map_err(|error| error.to_string())
    };
    let image = open(&|_| {}).unwrap();
    assert_eq!((image.size(), image.cut_off()), (9728, 272));
    for (change, word) in [
        (&|o: &mut ImageOptions| o.offset = 100, "multiples of the sector"),
        (&|o: &mut ImageOptions| o.offset = 1 << 20, "outside the file"),
        (&|o: &mut ImageOptions| o.length = Some(1 << 20), "outside the file"),
        (&|o: &mut ImageOptions| o.sector_bytes = Some(1000), "power of two"),
        (&|o: &mut ImageOptions| o.path = "/nonexistent".into(), "No such file"),
    ] as [(&dyn Fn(&mut ImageOptions), &str); 5]
    {
        let error = open(change).unwrap_err();
        assert!(error.contains(word), "{error}");
    }
}

#[test]
fn a_write_of_whole_blocks_is_not_undone_by_one_of_parts_of_them() {
    const BLOCK: usize = 4096;
    const PARTS: usize = 8;
    let mut rig = Rig::new(Cache::None);
    let part = |index: usize| index * 512 + 10..index * 512 + 110;
    for round in 1..=200u8 {
        for index in 0..PARTS {
            let mut chunk = rig.disk.pool().take(100);
            chunk.data_mut().fill(255);
            rig.disk.write(&rig.image, chunk, part(index).start as u64, false, TAG);
            if index == PARTS / 2 {
                let mut whole = rig.disk.pool().take(BLOCK);
                whole.data_mut().fill(round);
                rig.disk.write(&rig.image, whole, 0, false, TAG);
            }
        }
        for _ in 0..=PARTS {
            let ended = rig.end();
            assert_eq!(ended.result, Ok(()));
            rig.disk.pool().give_back(ended.chunk.unwrap());
        }
        let block = rig.read(0..BLOCK as u64);
        let between = (0..BLOCK).filter(|at| !(0..PARTS).any(|index| part(index).contains(at)));
        let lost = between.filter(|at| block[*at] != round).count();
        assert_eq!(lost, 0, "bytes of the whole block were undone, in round {round}");
    }
}
