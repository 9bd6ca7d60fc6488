//! The steps of a program: parts that a run may leave out.

use crate::interpose::with_machine;
use std::{fmt, fs::File, io::Write};

/// One step of a thread of a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// The thread's name.
    pub thread: String,
    /// Number of earlier steps of this thread.
    pub number: u32,
    /// The step's description.
    pub text: String,
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:<16} {:>3}  {}", self.thread, self.number, self.text)
    }
}

#[derive(Debug, Default)]
pub(crate) struct Steps {
    pub(crate) only: Option<Vec<Step>>,
    /// Receives each step before the thread takes it, as the process may end during the step.
    pub(crate) told_to: Option<File>,
}

impl Steps {
    fn takes(&mut self, step: &Step) -> bool {
        let is_it = |it: &Step| it.thread == step.thread && it.number == step.number;
        let taken = self.only.as_ref().is_none_or(|only| only.iter().any(is_it));
        if let Some(to) = self.told_to.as_mut().filter(|_| taken) {
            let [mark, number] = [crate::process::MARK.to_string(), step.number.to_string()];
            let told = ["step", &step.thread, &number, &step.text, ""].join(&mark);
            to.write_all(told.as_bytes()).expect("the parent reads it");
        }
        taken
    }
}

/// Begins a step of the calling thread; returns `true` if the thread must take this step.
///
/// Random draws for a step must not depend on the steps taken before: shorter runs would not be
/// parts of the first.
pub fn step(text: impl FnOnce() -> String) -> bool {
    with_machine(|world| {
        let (thread, number) = world.next_step();
        let step = Step { thread, number, text: text() };
        let taken = world.steps.takes(&step);
        if taken {
            world.note(|| format!("step {number}: {}", step.text));
        }
        taken
    })
}
