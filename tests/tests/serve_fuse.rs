//! `nowait serve --fuse` shows the image as a file, on which other programs put loop devices and
//! file systems.

use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

use nowait_tests::fuse::{Shown, missing_fuse, missing_tools};
use nowait_tests::program::Program;
use nowait_tests::scratch::{Scratch, text};
use nowait_tests::server::tool;
use nowait_tests::skip;

const SIZE: u64 = 64 << 20;

fn errno(outcome: std::io::Result<impl Sized>) -> Option<i32> {
    outcome.err().and_then(|error| error.raw_os_error())
}

fn pattern(len: usize, seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state as u8
    };
    (0..len).map(|_| next()).collect()
}

fn seek(file: &File, offset: i64, whence: i32) -> std::io::Result<i64> {
    // SAFETY: no memory is involved.
    let found = unsafe { libc::lseek(file.as_raw_fd(), offset, whence) };
    if found < 0 { Err(std::io::Error::last_os_error()) } else { Ok(found) }
}

fn allocate(file: &File, mode: i32, offset: i64, len: i64) -> std::io::Result<()> {
    // SAFETY: no memory is involved.
    let done = unsafe { libc::fallocate(file.as_raw_fd(), mode, offset, len) };
    if done < 0 { Err(std::io::Error::last_os_error()) } else { Ok(()) }
}

fn plant(root: &Path, count: usize) {
    for number in 0..count {
        let folder = root.join(format!("{}/{}", number % 17, number % 5));
        fs::create_dir_all(&folder).expect("a folder");
        let len = number * 37 % (48 << 10);
        fs::write(folder.join(format!("file-{number}")), pattern(len, number as u64))
            .expect("a file");
    }
}

fn check_ext4(image: &Path) {
    let output = Program::new("e2fsck").args(["-f", "-n", text(image)]).run();
    assert!(output.status.success(), "{output}");
}

#[test]
fn an_ext4_on_the_file_keeps_what_fio_and_cp_put_into_it() {
    let needed = missing_tools().and_then(|()| skip::missing_program(&["fio", "diff", "cp"]));
    let Some(()) = skip::unless(needed) else { return };
    let (files, job) = if nowait_tests::full() { (20_000, "256m") } else { (3_000, "24m") };
    let direct = ["--direct-io=on", "--sector-size=4096"];
    for (cache, losetup) in [("none", &direct[..]), ("user", &direct), ("host", &[])] {
        let scratch = Scratch::new("fuse");
        let disk = scratch.image("disk.img", 1 << 30);
        let arguments = [text(&disk), "--cache", cache, "--threads", "2"];
        let Some(mut shown) = Shown::start(&scratch, &scratch.file("disk"), &arguments) else {
            return;
        };
        let device = shown.attach(losetup);
        Program::new("mkfs.ext4").args(["-q", &device]).succeed();
        let point = scratch.folder("mnt");
        shown.mount(&point);
        Program::new("fio")
            .args(["--name=v", "--ioengine=libaio", "--direct=1", "--rw=randwrite", "--bs=4k"])
            .args(["--iodepth=32", "--verify=crc32c", "--do_verify=1", "--verify_fatal=1"])
            .arg(format!("--size={job}"))
            .arg(format!("--filename={}", point.join("fio").display()))
            .deadline(Duration::from_mins(3))
            .succeed();
        let planted = scratch.folder("tree");
        plant(&planted, files);
        let copied = point.join("tree");
        Program::new("cp").args(["-r", text(&planted), text(&copied)]).succeed();
        // Mount again, so that the data is read from the shown file, not from the page cache.
        shown.umount();
        shown.mount(&point);
        Program::new("diff").args(["-r", text(&planted), text(&copied)]).succeed();
        shown.stop();
        check_ext4(&disk);
    }
}

/// The size of a record in a file on ext4. A record counts when fdatasync(2) has returned.
const RECORD: usize = 4096;
const WRITERS: usize = 4;

fn write_records(folder: &Path, acknowledged: &Mutex<Vec<(usize, u64)>>, count: &AtomicUsize) {
    thread::scope(|scope| {
        for writer in 0..WRITERS {
            scope.spawn(move || {
                let path = folder.join(format!("records-{writer}"));
                let Ok(mut file) = File::create(path) else { return };
                for record in 0u64.. {
                    let bytes = pattern(RECORD, record << 8 | writer as u64);
                    if file.write_all(&bytes).and_then(|()| file.sync_data()).is_err() {
                        return; // the server was killed
                    }
                    acknowledged.lock().expect("a list").push((writer, record));
                    count.fetch_add(1, Relaxed);
                }
            });
        }
    });
}

#[test]
fn what_was_fsynced_into_ext4_survives_a_server_that_is_killed() {
    let Some(()) = skip::unless(missing_tools()) else { return };
    let enough = if nowait_tests::full() { 2_000 } else { 200 };
    for cache in ["none", "user"] {
        let scratch = Scratch::new("fuse");
        let disk = scratch.image("disk.img", 256 << 20);
        let (file, arguments) = (scratch.file("disk"), [text(&disk), "--cache", cache]);
        let Some(mut shown) = Shown::start(&scratch, &file, &arguments) else { return };
        let device = shown.attach(&["--direct-io=on"]);
        Program::new("mkfs.ext4").args(["-q", &device]).succeed();
        let point = scratch.folder("mnt");
        shown.mount(&point);
        let (acknowledged, count) = (Mutex::new(Vec::new()), AtomicUsize::new(0));
        thread::scope(|scope| {
            let writing = scope.spawn(|| write_records(&point, &acknowledged, &count));
            while count.load(Relaxed) < enough && !writing.is_finished() {
                thread::yield_now();
            }
            shown.kill();
        });
        shown.give_up();
        let acknowledged = acknowledged.into_inner().expect("a list");
        assert!(acknowledged.len() >= enough, "{cache}: {} records", acknowledged.len());
        // The mount of the killed server is still there, and the new server recognises it.
        assert_eq!(errno(fs::metadata(&file)), Some(libc::ENOTCONN));
        let Some(mut shown) = Shown::start(&scratch, &file, &arguments) else { return };
        let device = shown.attach(&["--direct-io=on"]);
        let output = Program::new("e2fsck").args(["-f", "-p", &device]).run();
        // Status 1: fsck has changed something, as by replaying the journal.
        assert!(matches!(output.status.code(), Some(0 | 1)), "{cache}\n{output}");
        shown.mount(&point);
        for (writer, record) in acknowledged {
            let file = File::open(point.join(format!("records-{writer}"))).expect("its file");
            let mut bytes = vec![0; RECORD];
            file.read_exact_at(&mut bytes, record * RECORD as u64).expect("its bytes");
            let expected = pattern(RECORD, record << 8 | writer as u64);
            assert!(bytes == expected, "{cache}: record {record} of writer {writer} is lost");
        }
        let output = shown.stop();
        assert!(output.stderr.contains("left mounted by a killed server: unmounted"), "{output}");
        check_ext4(&disk);
    }
}

#[test]
fn the_file_has_the_bytes_holes_and_limits_of_the_image() {
    let Some(()) = skip::unless(missing_fuse()) else { return };
    for cache in ["none", "user", "host"] {
        let scratch = Scratch::new("fuse");
        let disk = scratch.image("disk.img", SIZE);
        let arguments = [text(&disk), "--cache", cache];
        let Some(shown) = Shown::start(&scratch, &scratch.file("disk"), &arguments) else {
            return;
        };
        let file = OpenOptions::new().read(true).write(true).open(shown.file()).expect("the file");
        assert_eq!(file.metadata().expect("its size").len(), SIZE);
        let written = pattern(8 << 20, 1);
        file.write_all_at(&written, 4 << 20).expect("a write");
        // The write does not consist of whole sectors.
        file.write_all_at(b"hello", (4 << 20) + 4093).expect("a short write");
        let expected = [&written[..4093], b"hello", &written[4098..]].concat();
        let mut read = vec![0; expected.len()];
        file.read_exact_at(&mut read, 4 << 20).expect("a read");
        assert!(read == expected, "{cache}");
        assert_eq!(seek(&file, 0, libc::SEEK_DATA).expect("data"), 4 << 20);
        assert_eq!(seek(&file, 4 << 20, libc::SEEK_HOLE).expect("a hole"), 12 << 20);
        assert_eq!(errno(seek(&file, 12 << 20, libc::SEEK_DATA)), Some(libc::ENXIO));
        let punch = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
        allocate(&file, punch, 6 << 20, 2 << 20).expect("a hole");
        assert_eq!(seek(&file, 4 << 20, libc::SEEK_HOLE).expect("a hole"), 6 << 20);
        let blocks = fs::metadata(&disk).expect("the image").blocks();
        assert!(blocks <= (7 << 20) / 512, "{cache}: {blocks} blocks of 512 bytes");
        // Neither range consists of whole blocks.
        allocate(&file, punch, (4 << 20) + 100, 5000).expect("a part of a block");
        allocate(&file, libc::FALLOC_FL_ZERO_RANGE, (5 << 20) + 1, 70_000).expect("zeroes");
        let mut expected = expected;
        for range in [100..5100, (1 << 20) + 1..(1 << 20) + 70_001, 2 << 20..4 << 20] {
            expected[range].fill(0);
        }
        file.read_exact_at(&mut read, 4 << 20).expect("a read");
        assert!(read == expected, "{cache}: zeroed");
        assert_eq!(errno(file.set_len(1)), Some(libc::EPERM));
        assert_eq!(errno(file.write_at(b"x", SIZE)), Some(libc::ENOSPC));
        assert_eq!(file.write_at(b"xyz", SIZE - 1).expect("what fits"), 1);
        assert_eq!(file.read_at(&mut [0; 9], SIZE - 1).expect("what is there"), 1);
        assert_eq!(errno(allocate(&file, 0, 0, 4096)), Some(libc::EOPNOTSUPP));
        file.sync_all().expect("a sync");
        drop(file);
        shown.stop();
        let bytes = fs::read(&disk).expect("the image");
        assert!(bytes[4 << 20..12 << 20] == expected[..], "{cache}: in the image");
        assert_eq!((bytes.len() as u64, bytes[SIZE as usize - 1]), (SIZE, b'x'));
    }
}

#[test]
fn a_file_that_may_only_be_read_is_not_written() {
    let Some(()) = skip::unless(missing_fuse()) else { return };
    let scratch = Scratch::new("fuse");
    let disk = scratch.file("disk.img");
    let bytes = pattern(1 << 20, 3);
    fs::write(&disk, &bytes).expect("an image");
    let part = format!("{},read-only,offset=64K,length=512K", disk.display());
    let Some(shown) = Shown::start(&scratch, &scratch.file("disk"), &[&part]) else { return };
    assert!(fs::read(shown.file()).expect("its bytes") == bytes[64 << 10..576 << 10]);
    let opened = OpenOptions::new().write(true).open(shown.file());
    assert_eq!(errno(opened), Some(libc::EROFS));
    shown.stop();
}

#[test]
fn the_file_is_gone_after_the_end_and_one_that_was_there_is_as_before() {
    let Some(()) = skip::unless(missing_fuse()) else { return };
    let scratch = Scratch::new("fuse");
    let disk = scratch.image("disk.img", SIZE);
    let (new, old) = (scratch.file("new"), scratch.file("old"));
    fs::write(&old, "as before").expect("a file");
    let Some(shown) = Shown::start(&scratch, &new, &[text(&disk), "--fuse", text(&old)]) else {
        return;
    };
    assert_eq!(fs::metadata(&old).expect("the second").len(), SIZE);
    shown.stop();
    assert!(!new.exists());
    assert_eq!(fs::read_to_string(&old).expect("the file"), "as before");
    // The image is mounted over its own file, so that no other program can use it directly.
    let Some(shown) = Shown::start(&scratch, &disk, &[text(&disk)]) else { return };
    let file = OpenOptions::new().read(true).write(true).open(&disk).expect("the file");
    file.write_all_at(b"through", 4096).expect("a write");
    // This program has the shown file open: the server ends nevertheless, and further requests get
    // errors.
    let output = shown.stop();
    assert!(output.stderr.contains("is in use"), "{output}");
    assert_eq!(errno(file.read_at(&mut [0; 9], 0)), Some(libc::ENOTCONN));
    assert_eq!(&fs::read(&disk).expect("the image")[4096..][..7], b"through");
}

fn show_and_kill(scratch: &Scratch, disk: &Path, file: &Path) -> Option<()> {
    let mut shown = Shown::start(scratch, file, &[text(disk)])?;
    let open = OpenOptions::new().write(true).open(file).expect("the file");
    open.write_all_at(b"durable", 4096).and_then(|()| open.sync_all()).expect("a write");
    drop(open);
    shown.kill();
    assert_eq!(errno(fs::metadata(file)), Some(libc::ENOTCONN));
    Some(())
}

#[test]
fn a_server_over_the_image_itself_is_started_again_after_a_kill() {
    let Some(()) = skip::unless(missing_fuse()) else { return };
    let scratch = Scratch::new("fuse");
    let disk = scratch.image("disk.img", SIZE);
    // Twice: the second server removes the mount of the first, and is then killed, too.
    for _ in 0..2 {
        let Some(()) = show_and_kill(&scratch, &disk, &disk) else { return };
    }
    let Some(shown) = Shown::start(&scratch, &disk, &[text(&disk)]) else { return };
    let mut bytes = [0; 7];
    File::open(&disk).and_then(|it| it.read_exact_at(&mut bytes, 4096)).expect("a read");
    assert_eq!(&bytes, b"durable");
    let output = shown.stop();
    assert!(output.stderr.contains("left mounted by a killed server: unmounted"), "{output}");
    assert_eq!(fs::read(&disk).expect("the image").len() as u64, SIZE);
}

#[test]
fn a_file_that_was_there_before_the_server_stays() {
    let Some(()) = skip::unless(missing_fuse()) else { return };
    let scratch = Scratch::new("fuse");
    let disk = scratch.image("disk.img", SIZE);
    // A killed server leaves the file that it has made as its mount point, here `left`; `old`
    // existed before.
    let (left, old) = (scratch.file("left, with:signs"), scratch.file("old"));
    fs::write(&old, "").expect("an empty file");
    for file in [&left, &old] {
        for _ in 0..2 {
            let Some(()) = show_and_kill(&scratch, &disk, file) else { return };
        }
        let Some(shown) = Shown::start(&scratch, file, &[text(&disk)]) else { return };
        shown.stop();
        assert_eq!(fs::read(file).expect("the file below"), b"");
    }
}

#[test]
fn a_mount_that_is_alive_is_left_alone() {
    let Some(()) = skip::unless(missing_fuse()) else { return };
    let scratch = Scratch::new("fuse");
    let (disk, file) = (scratch.image("disk.img", SIZE), scratch.file("disk"));
    let Some(shown) = Shown::start(&scratch, &file, &[text(&disk)]) else { return };
    // The first server's mount belongs to another image, so the second server does not replace it.
    let other = scratch.image("other.img", SIZE);
    let again = tool().expect("asked before").env("XDG_RUNTIME_DIR", scratch.path());
    let again = again.args(["serve", text(&other), "--fuse", text(&file)]).run();
    assert_eq!(again.status.code(), Some(1), "{again}");
    assert!(again.stderr.contains("is mounted there: umount"), "{again}");
    for (wrong, reason) in [(scratch.path(), "regular file"), (Path::new("/x/y/z"), "/x/y/z")] {
        let refused = tool().expect("asked before").env("XDG_RUNTIME_DIR", scratch.path());
        let refused = refused.args(["serve", text(&other), "--fuse", text(wrong)]).run();
        assert_eq!(refused.status.code(), Some(1), "{refused}");
        assert!(refused.stderr.contains(reason), "{refused}");
    }
    shown.stop();
}

#[test]
fn a_server_of_files_only_ends_when_they_are_taken_down() {
    let needed = missing_fuse().and_then(|()| skip::missing_root());
    let Some(()) = skip::unless(needed) else { return };
    let scratch = Scratch::new("fuse");
    let (disk, file) = (scratch.image("disk.img", SIZE), scratch.file("disk"));
    let Some(tool) = tool() else { return };
    let tool = tool.env("XDG_RUNTIME_DIR", scratch.path());
    let mut running = tool.args(["serve", text(&disk), "--fuse", text(&file)]).spawn();
    while !running.stderr().contains("as /") {
        assert!(!running.ended(), "{}", running.stderr());
        thread::yield_now();
    }
    Program::new("umount").arg(&file).succeed();
    let output = running.wait(Duration::from_mins(1));
    assert!(output.status.success() && output.stderr.contains("was unmounted"), "{output}");
    assert!(!file.exists());
}

#[test]
fn a_hang_up_shows_in_the_size_of_the_file() {
    let Some(()) = skip::unless(missing_fuse()) else { return };
    let scratch = Scratch::new("fuse");
    let disk = scratch.image("disk.img", SIZE);
    let Some(mut shown) = Shown::start(&scratch, &scratch.file("disk"), &[text(&disk)]) else {
        return;
    };
    let open = OpenOptions::new().read(true).write(true).open(shown.file()).expect("the file");
    let grown = OpenOptions::new().write(true).open(&disk);
    grown.and_then(|file| file.set_len(2 * SIZE)).expect("grown");
    shown.server().signal(libc::SIGHUP);
    while fs::metadata(shown.file()).expect("the file").len() != 2 * SIZE {}
    open.write_all_at(b"behind", 2 * SIZE - 6).expect("a write into the new part");
    drop(open);
    shown.stop();
}

#[test]
fn a_file_is_counted_as_other_clients_are() {
    let needed = missing_fuse().and_then(|()| skip::missing_program(&["curl"]));
    let Some(()) = skip::unless(needed) else { return };
    let scratch = Scratch::new("fuse");
    let (disk, status) = (scratch.image("disk.img", SIZE), scratch.file("status"));
    let address = format!("unix:{}", status.display());
    let arguments = [text(&disk), "--cache", "user", "--status", &address];
    let Some(mut shown) = Shown::start(&scratch, &scratch.file("disk"), &arguments) else {
        return;
    };
    shown.server().wait_until_it_says("serving");
    let open = File::open(shown.file()).expect("the file");
    for _ in 0..2 {
        open.read_exact_at(&mut [0; 4096], 0).expect("a read");
    }
    let get = |path: &str| {
        let url = format!("http://localhost{path}");
        Program::new("curl").args(["-sS", "--unix-socket", text(&status), &url]).succeed().stdout
    };
    let json: serde_json::Value = serde_json::from_str(&get("/status")).expect("JSON");
    let export = &json["exports"][0];
    assert_eq!(export["files"][0], text(shown.file()));
    assert_eq!((&export["connections"], &export["kinds"][0]["kind"]), (&1.into(), &"read".into()));
    assert_eq!(export["kinds"][0]["requests"], 2);
    assert_eq!((&json["cache"]["hits"], &json["cache"]["misses"]), (&1.into(), &1.into()));
    let metrics = get("/metrics");
    for line in [
        "nowait_serve_files{export=\"disk.img\"} 1",
        "nowait_serve_cache_hits_total 1",
        "nowait_serve_requests_total{export=\"disk.img\",kind=\"read\"} 2",
    ] {
        assert!(metrics.lines().any(|found| found == line), "{line}\n{metrics}");
    }
    drop(open);
    let top = tool().expect("asked before").env("XDG_RUNTIME_DIR", scratch.path());
    let top = top.args(["top", "--json"]).succeed();
    let all: serde_json::Value = serde_json::from_str(&top.stdout).expect("JSON");
    assert_eq!(all[0]["exports"][0]["kinds"][0]["requests"], 2);
    shown.stop();
}

/// The number of a user without privileges.
const OTHER_USER: &str = "65534";

fn as_other_user(program: &str) -> Program {
    let become_other_user = [&format!("--reuid={OTHER_USER}"), "--regid=65534", "--clear-groups"];
    Program::new("setpriv").args(become_other_user).arg(program)
}

#[test]
fn a_file_is_for_the_users_that_are_named_and_no_others() {
    let needed = missing_fuse()
        .and_then(|()| skip::missing_root())
        .and_then(|()| skip::missing_program(&["setpriv", "dd"]));
    let Some(()) = skip::unless(needed) else { return };
    let scratch = Scratch::new("fuse");
    let everybody = fs::Permissions::from_mode(0o755);
    fs::set_permissions(scratch.path(), everybody).expect("a folder for all");
    let (disk, file) = (scratch.image("disk.img", SIZE), scratch.file("disk"));
    let copy = |program: Program| {
        let from = format!("if={}", file.display());
        program.arg(from).args(["of=/dev/null", "bs=1M", "count=4"])
    };
    let Some(shown) = Shown::start(&scratch, &file, &[text(&disk)]) else { return };
    let refused = copy(as_other_user("dd")).run();
    assert!(!refused.status.success(), "{refused}");
    copy(Program::new("dd")).succeed();
    shown.stop();
    let allow = format!("uid:{OTHER_USER}");
    let Some(shown) = Shown::start(&scratch, &file, &[text(&disk), "--allow", &allow]) else {
        return;
    };
    copy(as_other_user("dd")).succeed();
    assert_eq!(File::open(&file).expect_err("not listed").kind(), ErrorKind::PermissionDenied);
    shown.stop();
}

/// A script that runs in a new mount namespace. There it lets all users open `/dev/fuse`, as udev
/// does.
const WITHOUT_ROOT: &str = r#"
set -eu
mknod "$FOLDER/fuse" c 10 229
chmod 666 "$FOLDER/fuse"
mount --bind "$FOLDER/fuse" /dev/fuse
exec setpriv --reuid=65534 --regid=65534 --clear-groups sh -euc '
    "$TOOL" serve "$FOLDER/disk.img" --fuse "$FOLDER/disk" 2>"$FOLDER/said" &
    until grep -qs serving "$FOLDER/said"; do kill -0 $!; done
    cmp "$FOLDER/disk" "$FOLDER/disk.img"
    dd if=/dev/zero of="$FOLDER/disk" bs=4096 count=1 conv=notrunc,fsync
    kill -9 $!
    wait $! || true
    "$TOOL" serve "$FOLDER/disk.img" --fuse "$FOLDER/disk" 2>"$FOLDER/said-again" &
    until grep -qs serving "$FOLDER/said-again"; do kill -0 $!; done
    grep "left mounted by a killed server" "$FOLDER/said-again"
    kill $!
    wait $!
    head -c 4096 "$FOLDER/disk.img" | cmp -n 4096 - /dev/zero
    ! mountpoint -q "$FOLDER/disk"
'
"#;

#[test]
fn a_user_without_rights_mounts_by_fusermount() {
    let needed = missing_fuse()
        .and_then(|()| skip::missing_root())
        .and_then(|()| skip::missing_program(&["fusermount3", "setpriv", "unshare", "mknod"]));
    let Some(()) = skip::unless(needed) else { return };
    let Some(_) = tool() else { return };
    let scratch = Scratch::new("fuse");
    let disk = scratch.file("disk.img");
    fs::write(&disk, pattern(1 << 20, 9)).expect("an image");
    for path in [scratch.path(), &disk] {
        std::os::unix::fs::chown(path, Some(65534), Some(65534)).expect("a new owner");
    }
    // The user may have no access to the build folder, so run copies of the programs.
    for name in ["nowait", "nowait-serve"] {
        let built = nowait_tests::subject::built(&format!("bin/{name}"));
        fs::copy(built, scratch.file(name)).expect("a copy of a program");
    }
    let copy = scratch.file("nowait");
    Program::new("unshare")
        .args(["--mount", "sh", "-c", WITHOUT_ROOT])
        .env("FOLDER", scratch.path())
        .env("TOOL", &copy)
        .env("XDG_RUNTIME_DIR", scratch.path())
        .succeed();
}
