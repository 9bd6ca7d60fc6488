//! Programs under the seccomp filters of containers, and the backend that is left there.

use crate::fio::Job;
use crate::harness::{self, Harness};
use crate::program::{Output, Program};
use crate::qemu;
use crate::scratch::Scratch;
use crate::skip;
use crate::subject::{Backend, Library, Subject};

/// A filter, by its profile.
#[derive(Debug, Clone, Copy)]
pub struct Container {
    /// The built program that installs it and becomes another.
    pub seccomp_run: &'static str,
    /// Its name there.
    pub profile: &'static str,
    /// What works under it.
    pub left: Backend,
}

impl Container {
    /// Docker's: no `io_uring`.
    pub fn docker(seccomp_run: &'static str) -> Self {
        Self { seccomp_run, profile: "docker", left: Backend::Kaio }
    }

    /// Neither `io_uring` nor native AIO.
    pub fn bare(seccomp_run: &'static str) -> Self {
        Self { seccomp_run, profile: "bare", left: Backend::Threads }
    }

    /// A library that is left to choose by itself. The system's has nothing to fall back to: where
    /// native AIO is denied, it is not a subject.
    pub fn subject(self, library: Library) -> Option<Subject> {
        let subject = Subject::chosen(library, Backend::Auto)?;
        (!subject.is_system() || self.left == Backend::Kaio).then_some(subject)
    }

    /// Prepares a program to run under it.
    pub fn launch(self, subject: Subject, program: &str) -> Program {
        subject.launch(self.seccomp_run).args(["--profile", self.profile, "--", program])
    }

    /// Demands that fio finds what it has written.
    ///
    /// # Panics
    /// It does not, or another backend was at work.
    pub fn hold_fio(self, subject: Subject) {
        let Some(()) = skip::unless(skip::missing_program(&["fio"])) else { return };
        let scratch = Scratch::new("fio");
        for userspace_reap in [false, true] {
            let job = Job { userspace_reap, ..Job::BASIC };
            let output = job.arguments(self.launch(subject, "fio"), scratch.path()).succeed();
            self.assert_served(subject, &output);
        }
    }

    /// Demands that QEMU finds what it has written.
    ///
    /// # Panics
    /// It does not, or another backend was at work.
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

    /// Demands that libaio's own cases pass.
    ///
    /// # Panics
    /// One fails.
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
