//! The project's conformance program for POSIX AIO, which the system's compiler builds from
//! `tests/posix` and the system's headers. Each case of the program checks one rule.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use crate::disturber;
use crate::program::Program;
use crate::scratch::Scratch;
use crate::skip::{self, Skip};
use crate::subject::Subject;

const SKIPPED: i32 = 77;

/// The built program.
#[derive(Debug)]
pub struct Conformance {
    program: PathBuf,
    cases: Vec<Case>,
    _folder: Scratch,
}

/// A case of the program.
#[derive(Debug, Clone)]
pub struct Case {
    /// The page of the standard, or the call, that the case is about.
    pub page: String,
    /// The name of the case, which states the rule.
    pub name: String,
    /// glibc passes the case, too.
    pub glibc: bool,
}

/// The symbols that the program binds to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Symbols {
    /// `aio_read` and similar, in the current version of the C library.
    Usual,
    /// `aio_read64` and similar.
    Large,
    /// `aio_read` and similar, in the version of librt before glibc 2.34; on x86-64 only.
    Old,
}

impl Conformance {
    /// Returns the program. The first call for each kind of symbols builds it.
    pub fn built(symbols: Symbols) -> Result<&'static Self, Skip> {
        static USUAL: OnceLock<Conformance> = OnceLock::new();
        static LARGE: OnceLock<Conformance> = OnceLock::new();
        static OLD: OnceLock<Conformance> = OnceLock::new();
        skip::missing_program(&["cc"])?;
        Ok(match symbols {
            Symbols::Usual => USUAL.get_or_init(|| Self::build(&[])),
            Symbols::Large => LARGE.get_or_init(|| Self::build(&["-D_FILE_OFFSET_BITS=64"])),
            Symbols::Old => OLD.get_or_init(|| Self::build(&["-DOLD_SYMBOLS"])),
        })
    }

    fn build(options: &[&str]) -> Self {
        let folder = Scratch::new("posix");
        let program = folder.file("conformance");
        let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("posix");
        let entries = std::fs::read_dir(&sources).expect("the folder of the sources");
        let paths = entries.flatten().map(|entry| entry.path());
        let c_files = paths.filter(|path| path.extension().is_some_and(|it| it == "c"));
        Program::new("cc")
            .args(["-std=gnu11", "-O1", "-g", "-Wall", "-Wextra", "-Werror", "-pthread"])
            .args(options)
            .args(c_files)
            .arg("-o")
            .arg(&program)
            .succeed();
        let listed = Program::new(&program).arg("--list").succeed();
        let cases = listed.stdout.lines().map(Case::parse).collect();
        Self { program, cases, _folder: folder }
    }

    /// Returns the cases of a page, or all cases if `page` is `*`.
    pub fn cases(&self, page: &str) -> Vec<&Case> {
        let wanted = |case: &&Case| page == "*" || case.page == page;
        let cases: Vec<&Case> = self.cases.iter().filter(wanted).collect();
        assert!(!cases.is_empty(), "no case of {page}");
        cases
    }

    /// Returns the pages, each once.
    pub fn pages(&self) -> Vec<&str> {
        let mut pages: Vec<&str> = self.cases.iter().map(|case| case.page.as_str()).collect();
        pages.sort_unstable();
        pages.dedup();
        pages
    }

    /// Runs a case in a folder of its own; `wrapper` is the command before it (a seccomp filter,
    /// for example). `Err` describes the failure; a skipped case is `Ok`.
    fn run(&self, subject: Subject, case: &Case, wrapper: &[&str]) -> Result<(), String> {
        let scratch = Scratch::new("posix-case");
        let program = match wrapper {
            [] => subject.launch(&self.program),
            [first, rest @ ..] => subject.launch(first).args(rest).arg(&self.program),
        };
        let program = program.arg(&case.page).arg(&case.name);
        let what = format!("{} {} by {subject}", case.page, case.name);
        let program = program.env(disturber::RESTARTS, "1");
        let output = program.arg(scratch.path()).try_run();
        let output = output.map_err(|hang| format!("{what}\n{hang}"))?;
        match output.status.code() {
            Some(0) => Ok(()),
            Some(SKIPPED) => {
                skip::note(&format!("{what}: {}", output.stdout.trim()));
                Ok(())
            }
            _ => Err(format!("{what}\n{output}")),
        }
    }

    /// Runs cases, and demands that none fails.
    pub fn demand(&self, subject: Subject, cases: &[&Case]) {
        self.demand_under(subject, cases, &[]);
    }

    /// Runs cases behind `wrapper`, and demands that none fails.
    pub fn demand_under(&self, subject: Subject, cases: &[&Case], wrapper: &[&str]) {
        let failed: Vec<String> =
            cases.iter().filter_map(|case| self.run(subject, case, wrapper).err()).collect();
        let (failures, all) = (failed.len(), cases.len());
        assert!(failed.is_empty(), "{failures} of {all} do not hold\n{}", failed.join("\n"));
    }
}

impl Case {
    fn parse(line: &str) -> Self {
        let mut words = line.split(' ').map(str::to_owned);
        let mut next = || words.next().unwrap_or_else(|| panic!("not a case: {line}"));
        let (page, name, who) = (next(), next(), next());
        Self { page, name, glibc: who == "conforming" }
    }
}
