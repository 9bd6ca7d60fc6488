//! The packages of Python that each way to move blocks needs.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::Mover;
use crate::programs::need::{Lack, program};
use crate::programs::python::{NIXL_PACKAGE, Package};

/// The modules that vLLM's tiers import, directly or not. All others that vLLM names are left out:
/// compilers and kernels for GPUs, codecs, telemetry.
const IMPORTED: [&str; 27] = [
    "torch==2.14.0",
    "transformers==5.20.0",
    "xgrammar==0.2.8",
    "llguidance~=1.7.0",
    "aiohttp",
    "cachetools",
    "cbor2",
    "cloudpickle",
    "fastapi",
    "huggingface_hub",
    "msgspec",
    "openai",
    "oss-harmony",
    "partial-json-parser",
    "pillow",
    "prometheus_client",
    "psutil",
    "py-cpuinfo",
    "pybase64",
    "pydantic",
    "pyyaml",
    "pyzmq",
    "regex",
    "requests",
    "safetensors",
    "tokenizers",
    "uvloop",
];

const VLLM: Package<'_> = Package {
    name: "vllm",
    version: "0.33.0",
    first: &IMPORTED,
    with: &["numpy==2.4.6"],
    wheels: None,
};

/// Looks for packages, for each once.
pub(super) struct Needs {
    python: PathBuf,
    wheels: PathBuf,
    install: bool,
    /// The lack of each package looked for, if there is one.
    known: BTreeMap<&'static str, Option<String>>,
}

impl Needs {
    pub(super) fn new(python: &Path, wheels: &Path, install: bool) -> Self {
        let (python, wheels) = (python.to_owned(), wheels.to_owned());
        Self { python, wheels, install, known: BTreeMap::new() }
    }

    /// Returns the package that a way lacks here, with the command that installs it.
    pub(super) fn lack(&mut self, mover: &Mover) -> Option<String> {
        match mover {
            Mover::Nixl(_) => self.package("nixl"),
            Mover::Tier(config) if is_ours(config) => {
                self.package("vllm").or_else(|| self.package("nowait-vllm"))
            }
            Mover::Tier(_) => self.package("vllm"),
        }
    }

    fn package(&mut self, name: &'static str) -> Option<String> {
        if let Some(known) = self.known.get(name) {
            return known.clone();
        }
        let lack = self.look(name).map(|Lack { why, install }| format!("{why}; {install}"));
        self.known.insert(name, lack.clone());
        lack
    }

    fn look(&self, name: &str) -> Option<Lack> {
        if program("python3").is_none() {
            let why = "python3 is not installed".to_owned();
            return Some(Lack { why, install: "apt install python3-venv".to_owned() });
        }
        let ours = Package {
            name: "nowait-vllm",
            version: env!("CARGO_PKG_VERSION"),
            first: &[],
            with: &[],
            wheels: Some(&self.wheels),
        };
        let package = match name {
            "nixl" => NIXL_PACKAGE,
            "vllm" => VLLM,
            _ => ours,
        };
        package.lack(&self.python, self.install)
    }
}

/// Returns `true` if a tier is the example of our package.
fn is_ours(config: &serde_json::Map<String, serde_json::Value>) -> bool {
    config.get("module_path").is_some_and(|path| path == "nowait_vllm.tier")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tier_needs_vllm_and_ours_its_wheel() {
        let mut needs = Needs::new("/nonexistent".as_ref(), "/wheels".as_ref(), false);
        let mut lack = |config: &str| {
            let config = serde_json::from_str(config).expect("an object");
            needs.lack(&Mover::Tier(config)).expect("nothing is there")
        };
        let first = lack(r#"{"type": "fs"}"#);
        assert!(first.contains("/nonexistent/bin/pip install torch==2.14.0 "), "{first}");
        needs.known.insert("vllm", None);
        let ours = needs.package("nowait-vllm").expect("not there");
        assert!(ours.contains("--no-index --find-links /wheels nowait-vllm=="), "{ours}");
    }
}
