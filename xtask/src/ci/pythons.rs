//! The tests of the Python package: with one interpreter, or with each that is here.

use super::{Context, End, PYTHON, count};
use crate::interpreter::Interpreter;
use crate::outcome::Outcome;
use crate::process::Result;
use crate::{examples, python};

/// The tests of the Python package, in an environment of their own.
pub(super) fn python_job(context: &Context) -> Result<End> {
    context.test_python(&Interpreter::chosen()?).map(End::Tests)
}

/// The same with each interpreter that is here, and what came of it.
pub(super) fn pythons(context: &Context) -> Result<End> {
    let (mut total, mut rows) = (Outcome::default(), Vec::new());
    for interpreter in Interpreter::all() {
        context.log.line(&format!("\n{interpreter}"));
        let outcome = context.test_python(&interpreter).unwrap_or_else(|message| {
            context.log.line(&message);
            Outcome { failed: 1, ..Outcome::default() }
        });
        rows.push(format!("{interpreter}: {outcome}"));
        total.add(outcome);
    }
    if rows.is_empty() {
        return Err(String::from("no CPython of those that the package is for"));
    }
    rows.iter().for_each(|row| context.log.line(row));
    Ok(End::Tests(total))
}

impl Context {
    /// Tests the Python package with an interpreter.
    fn test_python(&self, interpreter: &Interpreter) -> Result<Outcome> {
        self.build(PYTHON)?;
        let module = ["build", "--features", examples::FEATURES, "-p", "nowait-python"];
        let mut module = self.cargo(&module);
        interpreter.fit(&mut module);
        self.plain(module)?;
        let mut command = python::tests(interpreter, |line| self.log.line(line))?;
        if !self.quick {
            command.env("NOWAIT_FULL", "1");
        }
        count(command, &self.log)
    }
}
