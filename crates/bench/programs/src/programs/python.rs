//! Programs that are Python packages. With `--install` the benchmark installs the packages into a
//! folder of their own; scripts that the benchmark contains (`drivers/*.py`) run these programs.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use super::need::{Lack, program};
use super::run::{Run, text};
use super::{Mode, absolute};
use clap::Args;
use nowait_harness::cache;
use nowait_harness::error::{Context, Failure, Result};
use nowait_harness::launch;
use nowait_harness::metric::Sample;

/// Time beyond that of the run: a script finishes the transfers that it began before the run's end.
const GRACE: Duration = Duration::from_mins(2);
const LOOK: Duration = Duration::from_mins(1);
/// Time limit for the installation of packages: PyTorch has some GB.
const INSTALL: Duration = Duration::from_hours(1);

const DEPTH: u32 = 64;

const CAIO: &str = include_str!("drivers/caio_reads.py");
const NIXL: &str = include_str!("drivers/nixl_transfers.py");

const FOLDER: &str = "nowait-bench-python";

/// The place of Python's packages.
#[derive(Debug, Clone, Args)]
pub struct PythonArgs {
    /// Folder of Python's packages, a virtual environment [default: nowait-bench-python in --dir]
    #[arg(long, value_name = "FOLDER")]
    pub python: Option<PathBuf>,

    /// Install Python's packages into that folder, if they are not there
    #[arg(long)]
    pub install: bool,
}

impl PythonArgs {
    /// `files` is the folder of the test files.
    pub(crate) fn folder(&self, files: &Path) -> Result<PathBuf> {
        absolute(&self.python.clone().unwrap_or_else(|| files.join(FOLDER)))
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Package {
    pub(crate) name: &'static str,
    pub(crate) version: &'static str,
    /// Packages that are installed before this one, with their dependencies.
    pub(crate) first: &'static str,
    /// Packages that are installed together with this one, without their dependencies.
    pub(crate) with: &'static str,
    /// The package comes from the folder of wheels, not from the registry.
    pub(crate) is_ours: bool,
}

impl Package {
    pub(crate) const fn new(name: &'static str, version: &'static str) -> Self {
        Self { name, version, first: "", with: "", is_ours: false }
    }
}

pub(crate) const CAIO_PACKAGE: Package = Package::new("caio", "0.12.10");
/// NIXL also depends on PyTorch, which its plugin for files does not use.
pub(crate) const NIXL_PACKAGE: Package =
    Package { with: "numpy==2.4.6", ..Package::new("nixl-cu12", "1.5.1") };

#[derive(Debug)]
pub(crate) struct Packages {
    pub(crate) folder: PathBuf,
    wheels: PathBuf,
    install: bool,
    /// For each package that was needed so far, the reason why it cannot be used, if any.
    known: BTreeMap<&'static str, Option<Lack>>,
}

#[derive(Debug)]
pub(crate) struct Script {
    python: PathBuf,
    path: PathBuf,
}

impl Packages {
    pub(crate) fn new(folder: PathBuf, wheels: PathBuf, install: bool) -> Self {
        Self { folder, wheels, install, known: BTreeMap::new() }
    }

    /// Returns the reason why a package cannot be used, if any; checks each package once. With
    /// `--install`, installs a missing package first, and a wheel of nowait in any case, because
    /// two builds of one version differ.
    pub(crate) fn lack(&mut self, package: Package) -> Option<Lack> {
        if let Some(known) = self.known.get(package.name) {
            return known.clone();
        }
        let lack = self.look(package);
        self.known.insert(package.name, lack.clone());
        lack
    }

    fn look(&self, package: Package) -> Option<Lack> {
        if self.has(package) && !(self.install && package.is_ours) {
            return None;
        }
        let why = match self.install.then(|| self.install(package)) {
            Some(Ok(())) => return None,
            Some(Err(error)) => error.to_string(),
            None => {
                format!("{} {} is not in {}", package.name, package.version, self.folder.display())
            }
        };
        let steps: Vec<String> = self.steps(package).iter().map(|step| step.join(" ")).collect();
        Some(Lack { why, install: format!("--install, or {}", steps.join(" && ")) })
    }

    fn has(&self, package: Package) -> bool {
        let version = "import importlib.metadata as m, sys; print(m.version(sys.argv[1]))";
        let mut python = Command::new(python_in(&self.folder));
        let found = python.args(["-c", version, package.name]).output();
        found.is_ok_and(|output| String::from_utf8_lossy(&output.stdout).trim() == package.version)
    }

    fn steps(&self, package: Package) -> Vec<Vec<String>> {
        let environment = ["python3", "-m", "venv", &text(&self.folder)].map(str::to_owned);
        let pip = [text(&self.folder.join("bin/pip")), "install".to_owned()];
        let mut own = [&pip[..], &["--no-deps".to_owned()]].concat();
        if package.is_ours {
            own.extend(["--force-reinstall", "--no-index", "--find-links"].map(str::to_owned));
            own.push(text(&self.wheels));
        }
        own.push(format!("{}=={}", package.name, package.version));
        own.extend(package.with.split_whitespace().map(str::to_owned));
        let first = package.first.split_whitespace().map(str::to_owned);
        let first = pip.iter().cloned().chain(first).collect();
        let first = (!package.first.is_empty()).then_some(first);
        [environment.to_vec()].into_iter().chain(first).chain([own]).collect()
    }

    fn install(&self, package: Package) -> Result<()> {
        for step in self.steps(package) {
            let path = program(&step[0]).unwrap_or_else(|| PathBuf::from(&step[0]));
            launch::succeed(Command::new(path).args(&step[1..]), INSTALL)?;
        }
        Ok(())
    }
}

pub(crate) fn caio(run: &Run<'_>, block_bytes: u64) -> Result<Sample> {
    let mode = match run.way.mode {
        Mode::Uring => "uring",
        Mode::Threads => "thread",
        Mode::Aio | Mode::PosixAio => "linux",
    };
    let numbers = [block_bytes, run.size_bytes, u64::from(DEPTH)].map(|it| it.to_string());
    let mut arguments = vec![mode.to_owned(), text(run.data.path())];
    arguments.extend(numbers);
    Script::new(run, "caio_reads.py", CAIO)?.run(run, run.data.path(), &arguments)
}

pub(crate) fn nixl(run: &Run<'_>, direction: &str, block_bytes: u64, count: u64) -> Result<Sample> {
    let mode = match run.way.mode {
        Mode::Uring => "use_uring",
        Mode::PosixAio => "use_posix_aio",
        Mode::Aio | Mode::Threads => "use_aio",
    };
    let numbers = [block_bytes, count, run.size_bytes].map(|it| it.to_string());
    let mut arguments = vec![mode.to_owned(), direction.to_owned(), text(run.data.path())];
    arguments.extend(numbers);
    Script::new(run, "nixl_transfers.py", NIXL)?.run(run, run.data.path(), &arguments)
}

impl Script {
    pub(crate) fn new(run: &Run<'_>, name: &str, source: &str) -> Result<Self> {
        let path = run.tools.folder.join(name);
        fs::write(&path, source).context(|| format!("write {}", path.display()))?;
        Ok(Self { python: python_in(&run.tools.packages.folder), path })
    }

    /// Drops `file` from the page cache, and runs the script with `arguments`, followed by the run
    /// time, the seed and the path of its output. Returns the figures that the script has written
    /// to its output.
    pub(crate) fn run(&self, run: &Run<'_>, file: &Path, arguments: &[String]) -> Result<Sample> {
        cache::make_cold(file, run.tools.drop_caches)?;
        let output = run.tools.folder.join("figures.json");
        let mut command = run.command(&self.python);
        command.arg(&self.path).args(arguments);
        command.arg(run.runtime.as_secs_f64().to_string()).arg(run.seed.to_string()).arg(&output);
        // Logs of NIXL and vLLM would hide the error message, which is the last line.
        command.env("NIXL_LOG_LEVEL", "ERROR").env("VLLM_LOGGING_LEVEL", "ERROR");
        let finished = launch::run(&mut command, LOOK + run.runtime + GRACE)?;
        if !finished.status.success() {
            // The last line of a traceback is the error message.
            let last = finished.stderr.lines().rfind(|line| !line.trim().is_empty());
            let last = last.unwrap_or("it said nothing");
            return Err(Failure::new(format!("{}: {last}", finished.status)));
        }
        let text = fs::read_to_string(&output).context(|| "read the figures".to_owned())?;
        let _ = fs::remove_file(&output);
        figures(&text)
    }
}

fn figures(text: &str) -> Result<Sample> {
    serde_json::from_str(text)
        .map_err(|error| Failure::new(format!("figures are not understood: {error}")))
}

fn python_in(folder: &Path) -> PathBuf {
    folder.join("bin/python3")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kv::tier;
    use nowait_harness::metric::Metric;

    #[test]
    fn what_is_missing_comes_with_the_commands_that_install_it() {
        let mut packages = Packages::new("/nonexistent/python".into(), "/wheels".into(), false);
        let lack = packages.lack(NIXL_PACKAGE).expect("not there");
        assert!(lack.why.contains("nixl-cu12 1.5.1"), "{lack:?}");
        let pip = "/nonexistent/python/bin/pip install --no-deps nixl-cu12==1.5.1 numpy==2.4.6";
        let expected = format!("--install, or python3 -m venv /nonexistent/python && {pip}");
        assert_eq!(lack.install, expected);
        let ours = Package { is_ours: true, ..Package::new("nowait", "1") };
        let ours = packages.lack(ours).expect("not there").install;
        assert!(ours.contains("--no-index --find-links /wheels nowait==1"), "{ours}");
    }

    #[test]
    fn figures_are_found_by_the_names_of_metrics() {
        let sample = figures(r#"{"iops": 5, "held_up_us_max": 2.5}"#).expect("metrics");
        assert_eq!(sample, Sample::from([(Metric::Iops, 5.0), (Metric::HeldUpUsMax, 2.5)]));
        for wrong in ["", "[]", r#"{"iops": "many"}"#, r#"{"colour": 1}"#] {
            assert!(figures(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn every_figure_of_the_scripts_is_a_metric() {
        for (name, source) in [("caio", CAIO), ("NIXL", NIXL), ("vLLM", tier::DRIVER)] {
            let (_, behind) = source.split_once("    return {\n").expect("figures");
            let (figures, _) = behind.split_once("    }\n").expect("an end");
            for key in figures.lines().map(|line| line.split('"').nth(1).unwrap_or_default()) {
                assert!(Metric::named(key).is_some(), "{name}: {key}");
            }
        }
    }
}
