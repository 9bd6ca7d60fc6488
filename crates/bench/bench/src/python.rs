//! `bench python`: starts the benchmark `nowait.bench` of the Python package. The benchmark
//! compares the package with other ways to read files in an event loop.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use clap::Args;

use crate::error::{Context, Failure, Result};

const EXAMPLES: &str = "\
What it takes is what `python3 -m nowait.bench --help` says. Peers that are not installed are left
out: `pip install -r python/requirements-bench.txt`.

Examples:
  nowait bench python --quick
  nowait bench python --python ./venv/bin/python --case uncached-64 --json python.json";

/// Measures the Python package against other ways to read files in an event loop.
#[derive(Debug, Clone, Args)]
#[command(after_help = EXAMPLES)]
pub struct PythonArgs {
    /// The interpreter that has the package
    #[arg(long, value_name = "PROGRAM", default_value = "python3")]
    pub python: PathBuf,

    /// Options of the Python benchmark
    #[arg(value_name = "OPTIONS", trailing_var_arg = true, allow_hyphen_values = true)]
    pub options: Vec<OsString>,
}

/// The benchmark itself prints its tables and writes its figures.
pub(crate) fn run_python(args: &PythonArgs) -> Result<()> {
    let program = args.python.display();
    let what = || format!("start {program}");
    let mut look = Command::new(&args.python);
    look.args(["-c", "import nowait.bench"]).stdout(Stdio::null()).stderr(Stdio::null());
    if !look.status().context(what)?.success() {
        return Err(Failure::new(format!(
            "{program} has no module nowait.bench; install the wheel (`make wheel`, \
             `pip install dist/wheels/…`) or pass another --python"
        )));
    }
    let mut bench = Command::new(&args.python);
    let status = bench.args(["-m", "nowait.bench"]).args(&args.options).status().context(what)?;
    match status.code() {
        Some(0) => Ok(()),
        // nowait.bench has printed its own message about its command line.
        Some(2) => Err(Failure::usage("nowait.bench did not understand its options")),
        _ => Err(Failure::new(format!("nowait.bench: {status}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::parse;

    #[test]
    fn options_of_the_benchmark_are_passed_on() {
        let args: PythonArgs = parse(&["--python", "py", "--quick", "--case", "files"]);
        assert_eq!((args.python, args.options.len()), (PathBuf::from("py"), 3));
    }

    #[test]
    fn what_is_missing_is_told_with_what_to_do() {
        let with = |python: &str| run_python(&parse(&["--python", python]));
        let error = with("/nonexistent/python").expect_err("no program");
        assert!(error.to_string().contains("/nonexistent/python"), "{error}");
        let error = with("false").expect_err("no package");
        assert!(error.to_string().contains("dist/wheels"), "{error}");
    }
}
