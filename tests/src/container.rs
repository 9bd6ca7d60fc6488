//! Runs programs under the seccomp filters of containers, and checks which backend serves them.

use crate::fio::Job;
use crate::harness::{self, Harness};
use crate::program::{Output, Program};
use crate::qemu;
use crate::scratch::Scratch;
use crate::skip;
use crate::subject::{Backend, Library, Subject};

/// A seccomp filter, which a profile names.
#[derive(Debug, Clone, Copy)]
pub struct Container {
    /// The built program that installs the filter and executes another program.
    pub seccomp_run: &'static str,
    /// The name of the profile for that program.
    pub profile: &'static str,
    /// The backend that works under the filter.
    pub left: Backend,
}

impl Container {
    /// A filter that denies `io_uring`, as Docker's filter does.
    pub fn docker(seccomp_run: &'static str) -> Self {
        Self { seccomp_run, profile: "docker", left: Backend::Kaio }
    }

    /// A filter that denies `io_uring` and native AIO.
    pub fn bare(seccomp_run: &'static str) -> Self {
        Self { seccomp_run, profile: "bare", left: Backend::Threads }
    }

    /// Returns the subject with this library and without a fixed backend; `None` if this run
    /// excludes the library. `None` also for the system's library under a filter that denies native
    /// AIO, because the system's library has no fallback.
    pub fn subject(self, library: Library) -> Option<Subject> {
        let subject = Subject::chosen(library, Backend::Auto)?;
        (!subject.is_system() || self.left == Backend::Kaio).then_some(subject)
    }

    /// Prepares a program to run under the filter.
    pub fn launch(self, subject: Subject, program: &str) -> Program {
        subject.launch(self.seccomp_run).args(["--profile", self.profile, "--", program])
    }

    /// Demands that fio reads back what it has written, and that [`Container::left`] served fio.
    pub fn hold_fio(self, subject: Subject) {
        let Some(()) = skip::unless(skip::missing_program(&["fio"])) else { return };
        let scratch = Scratch::new("fio");
        for userspace_reap in [false, true] {
            let job = Job { userspace_reap, ..Job::BASIC };
            let output = job.arguments(self.launch(subject, "fio"), scratch.path()).succeed();
            self.assert_served(subject, &output);
        }
    }

    /// Demands that qemu-io reads back what it has written, and that [`Container::left`] served
    /// qemu-io.
    pub fn hold_qemu_io(self, subject: Subject) {
        let Some(()) = skip::unless(skip::missing_program(&["qemu-io"])) else { return };
        let scratch = Scratch::new("qemu-io");
        let image = scratch.file("image");
        let made = std::fs::File::create(&image).and_then(|it| it.set_len(qemu::IMAGE_BYTES));
        made.expect("an image");
        let output = qemu::arguments(self.launch(subject, "qemu-io"), &image).succeed();
        assert!(!output.stdout.contains("failed"), "{output}");
        self.assert_served(subject, &output);
    }

    /// Demands that the short cases of libaio's own tests pass.
    pub fn hold_harness(self, subject: Subject) {
        let Some(built) = skip::unless(Harness::ready()) else { return };
        let wrapper = [self.seccomp_run, "--profile", self.profile, "--"];
        let verdicts = built.run(subject, &built.short_cases(), &wrapper);
        assert!(verdicts.iter().all(|it| it.passed), "\n{}", harness::table(subject, &verdicts));
    }

    fn assert_served(self, subject: Subject, output: &Output) {
        Subject { backend: self.left, ..subject }.assert_served(output);
    }
}
