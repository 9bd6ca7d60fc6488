//! libaio's own tests: fetched as the distribution's source package, built against the system's
//! library.
//!
//! apt changes nothing system-wide: it gets private lists and sources, and its files are in a cache
//! below the build folder.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::{OnceLock, PoisonError, RwLock};
use std::time::Duration;

use crate::cache;
use crate::disturber;
use crate::mount::Mount;
use crate::program::Program;
use crate::scratch::Scratch;
use crate::skip::{self, Skip};
use crate::subject::Subject;

/// The case that counts contexts against `aio-max-nr`. No other case runs in this process
/// meanwhile, because its contexts would count, too.
const COUNTS_CONTEXTS: &str = "20";
/// Cases that take half a minute, and the text to replace so that they run a tenth of the rounds.
/// Case 11 makes two million single requests; case 18 makes a thousand contexts in each of a
/// hundred threads.
const SLOW: [(&str, &str, &str); 2] = [("11", "1000000", "100000"), ("18", "i < 1000", "i < 100")];
/// The suffix of the names of slow cases with a tenth of their rounds.
const SHORTENED: &str = ".short";
/// Cases that take seconds, which `short_cases` leaves out.
const LONG: &[&str] = &["6", "14", "11", "11.short", "18", "18.short", COUNTS_CONTEXTS];

/// Cases that fail under the disturber with the system's library, too: its signals and child
/// processes disturb their counts or waits.
const NOT_DISTURBED: &[&str] = &["17", COUNTS_CONTEXTS, "22"];

/// The built harness.
#[derive(Debug)]
pub struct Harness(PathBuf);

/// The result of one case.
#[derive(Debug)]
pub struct Verdict {
    /// The number of the case.
    pub case: String,
    /// The case passed or was skipped.
    pub passed: bool,
    /// The time that the case took, why its file system could not be mounted, or the output or
    /// stacks of a failed case.
    pub detail: String,
}

impl Harness {
    /// Returns the harness, fetched and built at first use.
    pub fn ready() -> Result<&'static Self, Skip> {
        static READY: OnceLock<Result<Harness, String>> = OnceLock::new();
        READY.get_or_init(|| Self::build().map_err(|Skip(why)| why)).as_ref().map_err(|why| {
            Skip(why.clone()) // the first failure is the reason for all
        })
    }

    /// Returns the names of the cases, in the order of their numbers. A slow case has its short
    /// form, except under `NOWAIT_FULL=1`.
    pub fn cases(&self) -> Vec<String> {
        let mut cases = names_in(&self.0.join("cases"), ".p");
        cases.retain(|case| match crate::full() {
            true => !case.ends_with(SHORTENED),
            false => !SLOW.iter().any(|(slow, ..)| slow == case),
        });
        cases.sort_by_key(|case| case.trim_end_matches(SHORTENED).parse::<u32>().unwrap_or(0));
        cases
    }

    /// Returns the cases of [`Harness::cases`] that take less than a second.
    pub fn short_cases(&self) -> Vec<String> {
        self.cases().into_iter().filter(|case| !LONG.contains(&case.as_str())).collect()
    }

    /// Runs cases one by one; `wrapper` is the command before each (a seccomp filter, for example).
    /// If `subject` has a disturber, leaves out cases that fail under it.
    pub fn run(&self, subject: Subject, cases: &[String], wrapper: &[&str]) -> Vec<Verdict> {
        let work = Scratch::new("harness");
        prepare(&work);
        let disturbed = subject.disturb.is_some();
        let cases = cases.iter().filter(|it| !disturbed || !NOT_DISTURBED.contains(&it.as_str()));
        cases.map(|case| self.run_case(subject, case, wrapper, &work)).collect()
    }

    fn run_case(&self, subject: Subject, case: &str, wrapper: &[&str], work: &Scratch) -> Verdict {
        static CONTEXTS: RwLock<()> = RwLock::new(());
        let (alone, shared);
        if case == COUNTS_CONTEXTS {
            alone = CONTEXTS.write().unwrap_or_else(PoisonError::into_inner);
            let _ = &alone;
        } else {
            shared = CONTEXTS.read().unwrap_or_else(PoisonError::into_inner);
            let _ = &shared;
        }
        let _mounted = match self.mount_for(case, work) {
            Ok(mounted) => mounted,
            Err(Skip(why)) => {
                skip::note(&format!("case {case}: {why}"));
                return Verdict { case: case.to_owned(), passed: true, detail: why };
            }
        };
        let binary = self.0.join(format!("cases/{case}.p"));
        let program = match wrapper.split_first() {
            None => subject.launch(binary),
            Some((first, rest)) => subject.launch(first).args(rest).arg(binary),
        };
        // Some cases do not handle EINTR when they wait for their children. On an emulated
        // processor the hundred threads of case 18 take minutes.
        let program = program.env(disturber::RESTARTS, "1").dir(work.path());
        let program = program.deadline(Duration::from_mins(10));
        let (passed, detail) = match program.try_run() {
            Err(hang) => (false, hang),
            // 3 means "skipped" in the harness.
            Ok(output) if matches!(output.status.code(), Some(0 | 3)) => {
                (true, format!("{:?}", output.elapsed))
            }
            Ok(output) => (false, output.to_string()),
        };
        Verdict { case: case.to_owned(), passed, detail }
    }

    /// Mounts a file system at a fixed place in the folder of the cases, for cases 8 and 10.
    /// Returns `None` for the other cases, which need none.
    fn mount_for(&self, case: &str, work: &Scratch) -> Result<Option<Mount>, Skip> {
        let (image, point) = match case {
            "8" => (work.file("ext2.img"), "testdir.ext2"),
            "10" => (self.0.join("ext2-enospc.img"), "testdir.enospc"),
            _ => return Ok(None),
        };
        if case == "8" {
            skip::missing_program(&["mke2fs"])?;
            File::create(&image).and_then(|file| file.set_len(10 << 20)).expect("an image");
            Program::new("mke2fs")
                .args(["-q", "-F", "-t", "ext2", "-b", "4096"])
                .arg(&image)
                .succeed();
        }
        Mount::of_image("ext2", &image, &work.folder(point)).map(Some)
    }

    fn build() -> Result<Self, Skip> {
        let cache = cache::folder("libaio-harness", "1", |cache| {
            skip::missing_program(&["apt-get", "dpkg-source", "make", "cc"])?;
            fetch(cache)?;
            compile(&sources(cache)?);
            Ok(())
        })?;
        sources(&cache).map(Self)
    }
}

/// Returns the table of a run, one entry for each case.
pub fn table(subject: Subject, verdicts: &[Verdict]) -> String {
    let line = |it: &Verdict| {
        let word = if it.passed { "pass" } else { "FAIL" };
        format!("{subject} case {:>8} {word} {}\n", it.case, it.detail)
    };
    verdicts.iter().map(line).collect()
}

fn prepare(work: &Scratch) {
    let folder = work.folder("testdir");
    for (name, mode) in [("rofile", 0o400), ("rwfile", 0o600), ("wofile", 0o200)] {
        let path = folder.join(name);
        fs::write(&path, "test\n").expect("a file for the harness");
        let mode = std::os::unix::fs::PermissionsExt::from_mode(mode);
        fs::set_permissions(&path, mode).expect("its mode");
    }
}

/// Downloads and unpacks libaio's source package. apt uses a private list of package sources.
fn fetch(cache: &Path) -> Result<(), Skip> {
    for folder in ["parts", "lists/partial", "archives/partial", "src"] {
        fs::create_dir_all(cache.join(folder)).expect("a folder in the cache");
    }
    write_sources(&cache.join("parts"))?;
    let option = |name: &str, value: &Path| format!("{name}={}", value.display());
    let options = [
        option("Dir::Etc::sourcelist", Path::new("/dev/null")),
        option("Dir::Etc::sourceparts", &cache.join("parts")),
        option("Dir::State::lists", &cache.join("lists")),
        option("Dir::Cache", cache),
        "APT::Sandbox::User=".to_owned(),
        "Acquire::Retries=2".to_owned(),
    ];
    let apt = |command: &[&str]| {
        let options = options.iter().flat_map(|option| ["-o", option.as_str()]);
        let program = Program::new("apt-get").args(options).args(command);
        let output = program.dir(&cache.join("src")).deadline(Duration::from_mins(3)).run();
        let why = output.stderr.lines().last().unwrap_or_default().to_owned();
        output.status.success().then_some(()).ok_or(Skip(format!("apt-get {command:?}: {why}")))
    };
    apt(&["-q", "-y", "update"])?;
    apt(&["-q", "-y", "source", "libaio"])
}

fn write_sources(parts: &Path) -> Result<(), Skip> {
    let mut written = 0;
    let folder = Path::new("/etc/apt/sources.list.d");
    let listed = names_in(folder, "").into_iter().map(|name| folder.join(name));
    for file in listed.chain([PathBuf::from("/etc/apt/sources.list")]) {
        let Ok(text) = fs::read_to_string(&file) else { continue };
        if !(text.contains("debian") || text.contains("ubuntu")) {
            continue; // third parties do not carry libaio
        }
        let replace = |line: &str| match line.split_once(' ') {
            Some(("Types:", _)) => "Types: deb-src\n".to_owned(),
            Some(("deb", rest)) => format!("deb-src {rest}\n"),
            _ => format!("{line}\n"),
        };
        let text: String = text.lines().map(replace).collect();
        let name = file.file_name().expect("a file has a name");
        fs::write(parts.join(name), text).expect("private sources");
        written += 1;
    }
    if written > 0 { Ok(()) } else { Err(Skip("apt has no distribution sources".to_owned())) }
}

fn sources(cache: &Path) -> Result<PathBuf, Skip> {
    let folder = cache.join("src");
    let found = names_in(&folder, "").into_iter().map(|name| folder.join(name).join("harness"));
    found.into_iter().find(|path| path.is_dir()).ok_or(Skip("no harness in libaio".to_owned()))
}

fn compile(harness: &Path) {
    let make = ["MK_CPPFLAGS=", "LIBAIO=-laio", "CFLAGS=-g -O2 -w", "all"];
    Program::new("make").args(make).dir(harness).deadline(Duration::from_mins(3)).succeed();
    for (name, rounds, fewer) in SLOW {
        let case = fs::read_to_string(harness.join(format!("cases/{name}.t"))).expect("a case");
        let shortened = case.replace(rounds, fewer);
        assert_ne!(case, shortened, "case {name} has changed");
        let name = format!("{name}{SHORTENED}");
        fs::write(harness.join(format!("cases/{name}.t")), shortened).expect("a case");
        Program::new("cc")
            .args(["-g", "-O2", "-w", &format!("-DTEST_NAME=\"cases/{name}.t\"")])
            .args(["-o", &format!("cases/{name}.p"), "main.c", "-laio", "-lpthread"])
            .dir(harness)
            .succeed();
    }
}

fn names_in(folder: &Path, ending: &str) -> Vec<String> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    let name =
        |entry: fs::DirEntry| entry.file_name().to_str()?.strip_suffix(ending).map(str::to_owned);
    entries.flatten().filter_map(name).collect()
}
