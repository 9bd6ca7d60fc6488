//! Files of the page cache on devices that are full, fail, do not answer, are read-only, or have
//! large blocks: the results of requests on these files; and meanwhile a file on another device,
//! whose requests must continue. docs/borders.md has the table.

mod common;

use common::{folder, open};
use nowait::{BackendChoice, CacheMode, Errno, File, Nowait, OpenOptions};
use nowait_block::skip::note_skip_here;
use std::{
    env, fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::mpsc,
    thread,
    time::{Duration, Instant},
};

const MIB: usize = 1 << 20;
/// A length larger than the device and smaller than the cache.
const LARGE: usize = 12 * MIB;
const SOON: Duration = Duration::from_secs(10);

fn run(program: &str, args: &[&str]) -> Option<String> {
    let output = Command::new(program).args(args).stderr(Stdio::null()).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

fn engine(backend: BackendChoice) -> Option<Nowait> {
    let built = Nowait::builder().backend(backend).cache_bytes(64 << 20).build();
    built.inspect_err(|error| note_skip_here(&error.to_string())).ok()
}

fn each_engine(claim: impl Fn(&Nowait)) {
    common::BACKENDS.into_iter().filter_map(engine).for_each(|nowait| claim(&nowait));
}

struct Device {
    point: PathBuf,
    under: Option<String>,
    /// The mount that holds the image of the loop device. `drop` unmounts the loop device first.
    outer: Option<Box<Device>>,
    folders: Vec<tempfile::TempDir>,
}

impl Device {
    fn tmpfs(size: &str) -> Option<Device> {
        Device::mounted(&["-t", "tmpfs", "-o", &format!("size={size}")], "none")
    }

    fn mounted(options: &[&str], what: &str) -> Option<Device> {
        let folder = folder();
        let point = folder.path().join("point");
        fs::create_dir(&point).unwrap();
        let args = [options, &[what, point.to_str().unwrap()]].concat();
        if run("mount", &args).is_none() {
            note_skip_here("no file system can be mounted");
            return None;
        }
        Some(Device { point, under: None, outer: None, folders: vec![folder] })
    }

    fn in_loop(image: &Path, loop_options: &[&str], make: &[&str]) -> Option<Device> {
        let args = [&["-f", "--show"], loop_options, &[image.to_str().unwrap()]].concat();
        let Some(under) = run("losetup", &args) else {
            note_skip_here("no such loop device can be made");
            return None;
        };
        let args = [&make[1..], &[&under]].concat();
        let made = run(make[0], &args).and_then(|_| Device::mounted(&[], &under));
        let Some(mut device) = made else {
            run("losetup", &["-d", &under]);
            note_skip_here(&format!("{} makes no such file system here", make[0]));
            return None;
        };
        device.under = Some(under);
        Some(device)
    }

    /// The file system that holds the disk's image is full, so the disk cannot store as much as its
    /// size.
    fn failing() -> Option<Device> {
        let outer = Device::tmpfs("8m")?;
        let image = outer.point.join("image");
        fs::File::create(&image).unwrap().set_len(64 << 20).unwrap();
        let make = ["mkfs.ext4", "-q", "-F", "-O", "^has_journal", "-E", "nodiscard"];
        let mut device = Device::in_loop(&image, &[], &make)?;
        device.outer = Some(Box::new(outer));
        Some(device)
    }

    fn ext4() -> Option<Device> {
        let folder = folder();
        let image = folder.path().join("image");
        fs::File::create(&image).unwrap().set_len(64 << 20).unwrap();
        let mut device = Device::in_loop(&image, &[], &["mkfs.ext4", "-q", "-F"])?;
        device.folders.push(folder);
        Some(device)
    }

    fn name(&self) -> &str {
        self.point.to_str().unwrap()
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        run("umount", &["-l", self.name()]);
        if let Some(under) = &self.under {
            run("losetup", &["-d", under]);
        }
        drop(self.outer.take());
    }
}

/// Runs `work` on a thread. If `work` is not over within `limit`, returns the channel on which its
/// result will come.
fn within<T: Send + 'static>(
    limit: Duration,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, mpsc::Receiver<T>> {
    let (over, wait) = mpsc::channel();
    thread::spawn(move || over.send(work()));
    wait.recv_timeout(limit).map_err(|_| wait)
}

fn other_files_go_on(nowait: &Nowait, folder: &Path) {
    let begin = Instant::now();
    let file = open(nowait, CacheMode::User, &folder.join("healthy"));
    for round in 0..20u64 {
        file.write_all_at(&vec![round as u8; MIB], round * MIB as u64).unwrap();
    }
    file.sync_data().unwrap();
    let mut queue: nowait::Queue<u64> = nowait.queue(8).unwrap();
    for at in 0..8 {
        assert!(queue.read(&file, vec![0; 4096], at * MIB as u64, at).is_ok());
    }
    queue.submit();
    let read = |done: nowait::Completion<u64>| {
        assert_eq!((done.buffers.one().unwrap()[0], done.result.unwrap()), (done.tag as u8, 4096));
    };
    assert_eq!(queue.reap(8, Some(SOON), read).unwrap(), 8);
    file.close().unwrap();
    assert!(begin.elapsed() < SOON, "{:?}", begin.elapsed());
}

fn fill(file: &File, bytes: usize) -> Result<(), Errno> {
    let chunk = vec![7; MIB];
    let write = |at: usize| file.write_all_at(&chunk, at as u64).map_err(|error| error.errno());
    (0..bytes).step_by(MIB).try_for_each(write)
}

/// The writes may fit into the cache, but the sync after them and the close return an error.
fn refuses(device: &Device, errnos: &[Errno]) {
    each_engine(|nowait| {
        let beside = folder();
        let file = open(nowait, CacheMode::User, &device.point.join("own"));
        let written = fill(&file, LARGE);
        assert!(written.is_ok() || errnos.contains(&written.unwrap_err()), "{written:?}");
        let synced = file.sync_data().unwrap_err();
        assert!(errnos.contains(&synced.errno()), "{synced}");
        other_files_go_on(nowait, beside.path());
        let again = file.sync_all().unwrap_err();
        assert!(errnos.contains(&again.errno()), "still: {again}");
        // The engine need not write truncated data.
        file.set_len(0).unwrap();
        assert_eq!(file.size().unwrap(), 0);
        let room = file.write_all_at(&[1; 4096], 0).and_then(|()| file.sync_data());
        assert!(room.is_ok() || errnos.contains(&Errno::IO), "there is room again: {room:?}");
        let _ = fill(&file, LARGE);
        let closed = within(SOON, move || file.close()).expect("ends soon");
        assert!(errnos.contains(&closed.unwrap_err().errno()));
        fs::remove_file(device.point.join("own")).unwrap();
    });
}

#[test]
fn a_full_disk_is_told_to_its_own_file_and_no_other() {
    let Some(device) = Device::tmpfs("4m") else { return };
    refuses(&device, &[Errno::NOSPC]);
    ends(&device, "No space left");
}

#[test]
fn a_disk_that_fails_is_told_to_its_own_file_and_no_other() {
    let Some(device) = Device::failing() else { return };
    refuses(&device, &[Errno::IO, Errno::NOSPC]);
}

fn ends(device: &Device, what: &str) {
    let name = "a_program_that_drops_its_file";
    let child = Command::new(env::current_exe().unwrap())
        .args(["--exact", name, "--nocapture", "--test-threads=1"])
        .env("NOWAIT_SICK_FILE", device.point.join("dropped"))
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&child.stderr).into_owned();
    assert!(child.status.success(), "{said}");
    assert!(said.contains("written data are lost") && said.contains(what), "{said}");
}

/// A child process, for which NOWAIT_SICK_FILE is set, runs this part of the tests above.
#[test]
fn a_program_that_drops_its_file() {
    let Some(path) = env::var_os("NOWAIT_SICK_FILE") else { return };
    let nowait = engine(BackendChoice::Auto).unwrap();
    let file = open(&nowait, CacheMode::User, Path::new(&path));
    let _ = fill(&file, LARGE);
}

#[test]
fn a_disk_that_stands_still_holds_up_its_own_files_only() {
    let Some(device) = Device::ext4() else { return };
    each_engine(|nowait| {
        let beside = folder();
        let path = device.point.join("own");
        let file = open(nowait, CacheMode::User, &path);
        file.write_all_at(&vec![3; 8 * MIB], 0).unwrap();
        file.sync_all().unwrap();
        if run("fsfreeze", &["-f", device.name()]).is_none() {
            return note_skip_here("a file system cannot be frozen");
        }
        let thaw = Thaw(device.name());
        // The write is copied to the cache and does not wait: only writes beyond this disk's share
        // of the cache wait.
        file.write_all_at(&[4; 8192], 0).unwrap();
        // The pages are separate, so that each needs a write of its own: more writes than the
        // engine has threads to wait in.
        for page in (4..2048).step_by(2) {
            file.write_all_at(&[4; 100], page * 4096).unwrap();
        }
        let sync = file.clone();
        let stuck = within(Duration::from_millis(300), move || sync.sync_data());
        let stuck = stuck.expect_err("nothing is written while it stands still");
        let mut byte = [0];
        file.read_exact_at(&mut byte, 100).unwrap();
        assert_eq!(byte, [4]);
        other_files_go_on(nowait, beside.path());
        let (path_too, other) = (device.point.join("own"), nowait.clone());
        let opened = within(Duration::from_millis(300), move || {
            let again = OpenOptions::new().read(true).open(&other, path_too);
            again.and_then(|file| file.read_at(&mut [0; 10], 0))
        });
        drop(thaw);
        stuck.recv_timeout(SOON).expect("goes on").expect("is written");
        // The second open of the file may have waited for the disk, because an open checks if the
        // file has changed.
        let opened = opened.or_else(|wait| wait.recv_timeout(SOON));
        assert_eq!(opened.unwrap().unwrap(), 10);
        file.close().unwrap();
        assert_eq!(fs::read(&path).unwrap()[..10], [4; 10]);
        fs::remove_file(&path).unwrap();
    });
}

struct Thaw<'a>(&'a str);

impl Drop for Thaw<'_> {
    fn drop(&mut self) {
        run("fsfreeze", &["-u", self.0]);
    }
}

#[test]
fn a_read_only_disk_is_read_and_not_opened_for_writing() {
    let Some(device) = Device::tmpfs("4m") else { return };
    let path = device.point.join("own");
    fs::write(&path, vec![5; MIB]).unwrap();
    run("mount", &["-o", "remount,ro", device.name()]).expect("nothing is open");
    each_engine(|nowait| {
        let file = OpenOptions::new().read(true).open(nowait, &path).unwrap();
        let mut bytes = vec![0; MIB];
        file.read_exact_at(&mut bytes, 0).unwrap();
        assert!(bytes.iter().all(|byte| *byte == 5));
        let refused = OpenOptions::new().write(true).open(nowait, &path).unwrap_err();
        assert_eq!(refused.errno(), Errno::ROFS);
        file.sync_all().unwrap();
        file.close().unwrap();
    });
}

/// This disk needs direct requests that are aligned to 16 KiB, so the cache uses the kernel's cache
/// for the file.
#[test]
fn a_disk_with_large_blocks_is_read_and_written() {
    let folder = folder();
    let image = folder.path().join("image");
    fs::File::create(&image).unwrap().set_len(512 << 20).unwrap();
    let make = ["mkfs.xfs", "-q", "-f", "-s", "size=16384", "-b", "size=16384"];
    let Some(device) = Device::in_loop(&image, &["-b", "16384"], &make) else { return };
    each_engine(|nowait| {
        let path = device.point.join("own");
        let file = open(nowait, CacheMode::User, &path);
        let bytes: Vec<u8> = (0..300_000).map(|at| (at / 7) as u8).collect();
        file.write_all_at(&bytes, 1000).unwrap();
        file.sync_data().unwrap();
        file.write_all_at(&[9; 10], 100_000).unwrap();
        file.close().unwrap();
        let mut expected = [vec![0; 1000], bytes].concat();
        expected[100_000..100_010].fill(9);
        assert!(fs::read(&path).unwrap() == expected);
        let file = OpenOptions::new().read(true).open(nowait, &path).unwrap();
        let mut read = vec![0; expected.len()];
        file.read_exact_at(&mut read, 0).unwrap();
        assert!(read == expected);
        fs::remove_file(&path).unwrap();
    });
}
