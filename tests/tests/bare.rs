//! The archive of `make bare`. Its script `measure` needs few other programs on the machine.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Duration;

use nowait_tests::bare::{self, source, stage};
use nowait_tests::program::{Output, Program};
use nowait_tests::scratch::{Scratch, text};
use nowait_tests::skip::{self, Skip};

const DEADLINE: Duration = Duration::from_mins(4);

fn assert_whole(out: &Path, output: &Output) {
    let mut found: Vec<String> = fs::read_dir(out)
        .expect("a folder")
        .map(|entry| entry.expect("a file").file_name().to_string_lossy().into_owned())
        .collect();
    found.sort_unstable();
    assert_eq!(found, bare::files(), "{output}");
}

fn subjects(out: &Path, part: &str) -> Vec<String> {
    let json = fs::read_to_string(out.join(format!("{part}.json"))).expect("figures");
    let json: serde_json::Value = serde_json::from_str(&json).expect("JSON");
    assert_eq!(json["partial"], false, "{part}");
    let rows = json["rows"].as_array().expect("a list");
    let mut names: Vec<String> =
        rows.iter().filter_map(|row| Some(row["engine"].as_str()?.to_owned())).collect();
    names.sort_unstable();
    names.dedup();
    names
}

struct Root {
    scratch: Scratch,
}

impl Root {
    fn make() -> Result<Root, Skip> {
        skip::missing_root()?;
        skip::missing_program(&["busybox", "unshare", "chroot"])?;
        let scratch = Scratch::new("bare");
        for folder in ["bin", "proc", "dev", "out"] {
            scratch.folder(folder);
        }
        stage(&scratch.file("nowait"))?;
        let busybox = Program::new("sh").args(["-c", "command -v busybox"]).succeed().stdout;
        fs::copy(busybox.trim(), scratch.file("bin/busybox")).expect("busybox");
        fs::write(scratch.file("dev/null"), "").expect("a place for /dev/null");
        let mode = |path: &Path, mode| {
            fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("a mode");
        };
        mode(scratch.path(), 0o755);
        mode(&scratch.file("out"), 0o777);
        Ok(Root { scratch })
    }

    fn run(&self, user: &str, filter: &[&str], script: &str) -> Output {
        const ENTER: &str = "mount -t proc proc \"$1/proc\" && \
            mount --bind /dev/null \"$1/dev/null\" && \
            mount -t tmpfs -o size=16m tmpfs \"$1/dev/shm\" && \
            exec chroot --userspec=\"$2\" \"$1\" \
            /bin/busybox env -i PATH=/bin /bin/busybox sh -c \"$3\"";
        self.scratch.folder("dev/shm");
        let program = Program::new(env!("CARGO_BIN_EXE_seccomp-run")).args(filter).arg("--");
        let program = program.args(["unshare", "--mount", "--pid", "--fork"]);
        let program = program.args(["sh", "-c", ENTER, "sh", text(self.scratch.path()), user]);
        program
            .arg(format!("/bin/busybox --install -s /bin 2>/dev/null; {script}"))
            .deadline(DEADLINE)
            .run()
    }
}

#[test]
fn it_measures_in_a_root_with_nothing_but_busybox_and_without_rights() {
    let Some(root) = skip::unless(Root::make()) else { return };
    let out = |name: &str| root.scratch.file("out").join(name);
    let output = root.run("0:0", &[], "/nowait/measure --quick /out/root");
    assert!(output.status.success(), "{output}");
    assert_whole(&out("root"), &output);
    for part in ["submit", "direct"] {
        assert_eq!(subjects(&out("root"), part), ["nowait", "system"], "{output}");
    }
    assert_eq!(subjects(&out("root"), "cached"), ["nowait", "psync", "system"]);
    let growth = subjects(&out("root"), "growth");
    assert!(growth.contains(&"libaio".to_owned()) && growth.len() > 1, "{growth:?}");
    let output = root.run(
        "65534:65534",
        &["--profile", "docker"],
        "cd /out && /nowait/measure --quick user",
    );
    assert!(output.status.success(), "{output}");
    assert_whole(&out("user"), &output);
    assert_eq!(subjects(&out("user"), "growth"), ["libaio", "nowait-kaio"], "{output}");
    let output = root.run("0:0", &[], "/nowait/measure --quick /dev/shm/out");
    assert_told(&output, "200 are needed");
    // Programs that the archive's tools start use the archive's C library, too.
    let fio = "cd /nowait && bin/nowait run --report bin/fio --name=x --ioengine=libaio --thread \
        --filename=/out/x --size=1M --rw=randread";
    let output = root.run("0:0", &[], fio);
    assert!(output.status.success() && output.stderr.contains("requests"), "{output}");
}

fn assert_told(output: &Output, words: &str) {
    assert!(!output.status.success(), "{output}");
    let line = output.stderr.trim_end();
    assert!(line.starts_with("measure: ") && line.contains(words), "{words}\n{output}");
    assert_eq!(line.lines().count(), 1, "{output}");
}

#[test]
fn when_it_is_interrupted_no_test_file_stays() {
    let scratch = Scratch::new("bare");
    let Some(()) = skip::unless(stage(&scratch.file("nowait"))) else { return };
    let out = scratch.file("out");
    let mut running =
        Program::new(scratch.file("nowait/measure")).args(["--quick", text(&out)]).spawn();
    while !out.join("submit.txt").exists() {
        assert!(!running.ends_within(Duration::from_millis(50)), "{}", running.stderr());
    }
    // If a shell has started the tests in the background, the script ignores SIGINT, so this is
    // SIGTERM.
    // SAFETY: takes numbers; the process is a child that has not been waited for.
    unsafe { libc::kill(running.pid(), libc::SIGTERM) };
    let output = running.wait(DEADLINE);
    assert_eq!(output.status.code(), Some(130), "{output}");
    assert!(output.stderr.contains("measure: stopped; "), "{output}");
    let left: Vec<_> = fs::read_dir(&out).expect("a folder").flatten().collect();
    assert!(left.iter().all(|entry| entry.path().is_file()), "{left:?}");
    assert!(!out.join("index.html").exists(), "{output}");
}

#[test]
fn wrong_usage_is_told_in_one_line() {
    let scratch = Scratch::new("bare");
    let file = scratch.patterned("file", 1);
    let done = scratch.folder("done");
    fs::write(done.join("index.html"), "").expect("a page");
    let spaced = scratch.folder("a b");
    let (file, done, new) = (text(&file), text(&done), scratch.file("new"));
    let (here, there) = (source("measure"), spaced.join("measure"));
    fs::copy(&here, &there).expect("the script");
    for (script, words, status, told) in [
        (&here, vec![], 2, "no OUT, a folder on the disk to be measured"),
        (&here, vec!["--fast", "x"], 2, "unknown option --fast"),
        (&here, vec!["x", "y"], 2, "two folders, x and y"),
        (&here, vec![file], 1, "cannot make OUT: "),
        (&here, vec!["/proc/x"], 1, "cannot make OUT: "),
        (&here, vec![done], 1, "holds a measurement (name another folder)"),
        (&here, vec![text(&new)], 1, "cannot run bin/nowait-bench: "),
        (&there, vec![text(&new)], 1, "(move the folder)"),
    ] {
        let output = Program::new("sh").arg(script).args(words).run();
        assert_eq!(output.status.code(), Some(status), "{output}");
        assert_told(&output, told);
    }
    let left = fs::read_dir(&new).expect("a folder").count();
    assert_eq!(left, 0, "nothing stays of a measurement that did not begin");
}

#[test]
fn threads_double_up_to_the_processors_and_are_five_numbers_at_most() {
    const COUNTS: [(&str, &str); 7] = [
        ("1", "1,16"),
        ("2", "1,2,16"),
        ("6", "1,2,4,6,16"),
        ("8", "1,2,4,8,16"),
        ("16", "1,2,4,8,16"),
        ("24", "1,4,16,24"),
        ("128", "1,4,16,64,128"),
    ];
    let function = "eval \"$(sed -n '/^thread_counts/,/^}/p' \"$1\")\"; thread_counts \"$2\"";
    for (processors, expected) in COUNTS {
        let shell = Program::new("sh").args(["-c", function, "sh"]).arg(source("measure"));
        let output = shell.arg(processors).succeed();
        assert_eq!(output.stdout.trim(), expected, "{processors}");
    }
}
