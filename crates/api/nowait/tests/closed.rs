//! After the last handle of a file in the page cache was closed, no descriptor table has the file
//! open. A handle has only the access that it was opened with: a file that is only read can be
//! executed, and its file system can be remounted.

mod common;

use common::{folder, on_every_engine, open};
use nowait::{CacheMode, File, Nowait, OpenOptions};
use nowait_block::skip::note_skip_here;
use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::Command,
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

const MIB: usize = 1 << 20;

/// Lets one test run at a time: between fork and exec, a child process of another test has all
/// descriptors of this process.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the flags of each descriptor of a file, once for each thread that has the descriptor.
fn opens(path: &Path) -> Vec<u32> {
    let mut found = Vec::new();
    for task in fs::read_dir("/proc/self/task").unwrap().flatten() {
        let Ok(table) = fs::read_dir(task.path().join("fd")) else { continue };
        for fd in table.flatten() {
            if fs::read_link(fd.path()).is_ok_and(|target| target.starts_with(path)) {
                let info = task.path().join("fdinfo").join(fd.file_name());
                let text = fs::read_to_string(info).unwrap_or_default();
                let flags = text.lines().find_map(|line| line.strip_prefix("flags:"));
                found.extend(flags.map(|flags| u32::from_str_radix(flags.trim(), 8).unwrap()));
            }
        }
    }
    found
}

fn is_open_for_writing(path: &Path) -> bool {
    opens(path).iter().any(|flags| flags & 0o3 != 0)
}

fn run(program: &str, args: &[&str]) -> bool {
    Command::new(program).args(args).output().is_ok_and(|output| output.status.success())
}

fn read_only(nowait: &Nowait, path: &Path) -> File {
    OpenOptions::new().read(true).open(nowait, path).unwrap()
}

#[test]
fn a_closed_file_is_open_in_no_table() {
    let _alone = alone();
    on_every_engine(|nowait| {
        let folder = folder();
        let path = folder.path().join("f");
        fs::write(&path, vec![1; 4 * MIB]).unwrap();
        for writes in [false, true] {
            let file = match writes {
                true => open(nowait, CacheMode::User, &path),
                false => read_only(nowait, &path),
            };
            // The reads are sequential, so after the last one a readahead is in flight.
            let mut bytes = vec![0; 64 << 10];
            for at in 0..4 {
                file.read_at(&mut bytes, at << 16).unwrap();
            }
            if writes {
                file.write_all_at(&bytes, 0).unwrap();
            }
            assert!(!opens(&path).is_empty());
            file.close().unwrap();
            assert!(opens(&path).is_empty(), "writes: {writes}: {:?}", opens(&path));
        }
    });
}

#[test]
fn a_future_file_that_is_dropped_is_closed_soon_and_by_itself() {
    let _alone = alone();
    on_every_engine(|nowait| {
        let folder = folder();
        let path = folder.path().join("f");
        fs::write(&path, vec![1; MIB]).unwrap();
        let file = nowait::AsyncFile::from(read_only(nowait, &path));
        let read = file.read_at(vec![0; 64 << 10], 0);
        let (result, _) = futures_lite::future::block_on(read);
        assert_eq!(result.unwrap(), 64 << 10);
        drop(file);
        let begin = Instant::now();
        while !opens(&path).is_empty() {
            assert!(begin.elapsed() < Duration::from_secs(20), "still open: {:?}", opens(&path));
            std::thread::yield_now();
        }
    });
}

struct Mounted(
    PathBuf,
    #[allow(dead_code, reason = "it is there until the end")] tempfile::TempDir,
);

impl Mounted {
    fn new() -> Option<Mounted> {
        let folder = folder();
        let point = folder.path().join("point");
        fs::create_dir(&point).unwrap();
        if !run("mount", &["-t", "tmpfs", "-o", "size=16m", "none", point.to_str().unwrap()]) {
            note_skip_here("no file system can be mounted");
            return None;
        }
        Some(Mounted(point, folder))
    }

    fn name(&self) -> &str {
        self.0.to_str().unwrap()
    }

    fn used_bytes(&self) -> u64 {
        let output = Command::new("df").args(["--output=used", "-B1", self.name()]).output();
        let text = String::from_utf8(output.unwrap().stdout).unwrap();
        text.lines().nth(1).unwrap().trim().parse().unwrap()
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        run("umount", &["-l", self.name()]);
    }
}

#[test]
fn space_is_free_and_a_file_system_unmounted_after_the_close() {
    let _alone = alone();
    let Some(mounted) = Mounted::new() else { return };
    on_every_engine(|nowait| {
        let path = mounted.0.join("f");
        let before = mounted.used_bytes();
        fs::write(&path, vec![1; 4 * MIB]).unwrap();
        let file = read_only(nowait, &path);
        file.read_at(&mut vec![0; 4096], 0).unwrap();
        file.close().unwrap();
        fs::remove_file(&path).unwrap();
        assert_eq!(mounted.used_bytes(), before, "the space of a file without a name");
        assert!(run("umount", &[mounted.name()]), "closed, and busy");
        assert!(run("mount", &["-t", "tmpfs", "-o", "size=16m", "none", mounted.name()]));
    });
}

#[test]
fn a_file_that_is_read_can_be_executed_and_its_file_system_be_read_only() {
    let _alone = alone();
    let Some(mounted) = Mounted::new() else { return };
    on_every_engine(|nowait| {
        let path = mounted.0.join("program");
        fs::copy("/bin/true", &path).unwrap();
        let reader = read_only(nowait, &path);
        reader.read_at(&mut vec![0; 4096], 0).unwrap();
        assert!(!is_open_for_writing(&path));
        assert!(Command::new(&path).status().unwrap().success());
        let remount = |mode| run("mount", &["-o", &format!("remount,{mode}"), mounted.name()]);
        assert!(remount("ro"), "nothing of it is open for writing");
        assert!(remount("rw"));
        drop(reader);
        fs::remove_file(&path).unwrap();
    });
}

#[test]
fn a_program_can_be_executed_once_its_writer_has_closed_it() {
    let _alone = alone();
    on_every_engine(|nowait| {
        let folder = folder();
        let path = folder.path().join("program");
        let writer = File::create(nowait, &path).unwrap();
        let reader = read_only(nowait, &path);
        writer.write_all_at(&fs::read("/bin/true").unwrap(), 0).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        assert!(is_open_for_writing(&path));
        writer.close().unwrap();
        assert!(!is_open_for_writing(&path));
        assert!(Command::new(&path).status().unwrap().success());
        assert!(reader.size().unwrap() > 0);
    });
}

#[test]
fn a_file_is_opened_for_writing_when_a_writer_comes() {
    let _alone = alone();
    on_every_engine(|nowait| {
        let folder = folder();
        let path = folder.path().join("f");
        fs::write(&path, vec![1; 8192]).unwrap();
        let reader = read_only(nowait, &path);
        let first = |file: &File| {
            let mut byte = [0];
            file.read_at(&mut byte, 0).unwrap();
            byte[0]
        };
        assert_eq!(first(&reader), 1);
        let writer = open(nowait, CacheMode::User, &path);
        writer.write_all_at(&[2; 100], 0).unwrap();
        assert_eq!((first(&reader), first(&writer)), (2, 2));
        writer.close().unwrap();
        assert_eq!(fs::read(&path).unwrap()[0], 2, "the last writer has written");
        // A handle in another mode writes through the reader's cache.
        for (mode, byte) in [(CacheMode::Host, 3), (CacheMode::Direct, 4)] {
            let other = open(nowait, mode, &path);
            let block = nowait::AlignedBuffer::from(&[byte; 4096][..]);
            other.write_all_at(&block, 0).unwrap();
            assert_eq!(first(&reader), byte, "{mode:?}");
            other.set_len(4096).unwrap();
            assert_eq!(reader.size().unwrap(), 4096);
            other.close().unwrap();
            assert!(!is_open_for_writing(&path), "{mode:?}: the reader is left");
            assert_eq!(fs::read(&path).unwrap(), [byte; 4096], "and its write is on the disk");
            fs::write(&path, vec![byte; 8192]).unwrap();
        }
        let refused = reader.write_at(&[0], 0).unwrap_err();
        assert_eq!(refused.errno(), nowait::Errno::BADF);
    });
}

#[test]
fn a_loan_does_not_keep_a_file_open() {
    let _alone = alone();
    on_every_engine(|nowait| {
        let folder = folder();
        let path = folder.path().join("f");
        fs::write(&path, vec![6; MIB]).unwrap();
        for writes in [false, true] {
            let file = match writes {
                true => open(nowait, CacheMode::User, &path),
                false => read_only(nowait, &path),
            };
            file.read_at(&mut vec![0; 8192], 0).unwrap();
            let lent = file.lend(100, 5000).unwrap().expect("it was just read");
            let begin = Instant::now();
            file.close().unwrap();
            assert!(opens(&path).is_empty(), "{:?}", opens(&path));
            assert!(begin.elapsed() < Duration::from_millis(900), "{:?}", begin.elapsed());
            assert!(lent.chunks().flatten().all(|byte| *byte == 6));
        }
    });
}
