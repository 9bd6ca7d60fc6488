//! The layer rule: a crate depends only on crates of lower layers.

use super::Finding;
use super::source::Source;

/// The layer of each package; `None` in `layer` means that it was forgotten here.
const LAYERS: &[(&str, u8)] = &[
    ("nowait-sys", 1),
    ("nowait-retry", 1),
    ("nowait-block", 2),
    ("nowait-sim", 3),
    ("nowait-cache", 3),
    ("nowait-file", 4),
    ("nowait-paper", 4),
    ("nowait-image-format", 4),
    ("nowait-engine", 5),
    ("nowait", 6),
    ("nowait-process", 6),
    ("nowait-libaio", 7),
    ("nowait-posix", 7),
    ("nowait-faces", 8),
    ("nowait-capi", 7),
    ("nowait-python", 7),
    ("nowait-cli", 7),
    ("nowait-status", 2),
    ("nowait-terminal", 1),
    ("nowait-bench", 7),
    ("nowait-bench-futures", 7),
    ("nowait-bench-stores", 7),
    ("nowait-device", 7),
    ("nowait-image-store", 7),
    ("nowait-server", 7),
    ("nowait-serve", 8),
    ("nowait-simulator", 6),
    ("nowait-objects", 6),
    ("nowait-machine", 8),
];

/// Pairs of one layer where the first may use the second.
const SAME_LAYER: &[(&str, &str)] = &[
    // The engine parks threads and reads the clock.
    ("nowait-retry", "nowait-sys"),
    // An image on a store is a source of a device.
    ("nowait-image-store", "nowait-device"),
    // The frontends of an image, which choose its source by its name.
    ("nowait-server", "nowait-device"),
    ("nowait-server", "nowait-image-store"),
];

/// Packages that talk to the system.
const SYSTEM: &[&str] = &["libc", "io-uring", "rustix", "nix"];

/// The crates that may name those: the layer made for it, what looks from outside, and what
/// answers in simulations.
const SYSTEM_USERS: &[&str] = &[
    "nowait-sys",
    "nowait-bench",
    "nowait-bench-futures",
    "nowait-bench-stores",
    "nowait-tests",
    "nowait-machine",
];

/// Checks the dependencies that a manifest names, those for tests and targets too.
pub(super) fn dependencies(source: &Source, findings: &mut Vec<Finding>) {
    let crates = source.path.starts_with("crates/") || source.path.starts_with("tests/");
    if !crates || !source.path.ends_with("/Cargo.toml") {
        return;
    }
    let Some(package) = package(&source.text) else {
        findings.push(source.finding_on(1, "no package name found"));
        return;
    };
    for named in named(&source.text) {
        let advice = judge_system(package, &named).or_else(|| judge_layer(package, named.name));
        if let Some(advice) = advice {
            findings.push(source.finding_on(named.line, advice));
        }
    }
}

/// A dependency that a manifest names.
struct Named<'a> {
    line: usize,
    name: &'a str,
    /// Only for tests.
    dev: bool,
}

/// Returns what is wrong with `package` talking to the system through `named`. Tests may.
fn judge_system(package: &str, named: &Named<'_>) -> Option<String> {
    let allowed = named.dev || SYSTEM_USERS.contains(&package);
    if allowed || !SYSTEM.contains(&named.name) {
        return None;
    }
    Some(format!("{} is for nowait-sys: add a safe function there", named.name))
}

/// Returns what is wrong with `package` using `dependency`, for tests too.
fn judge_layer(package: &str, dependency: &str) -> Option<String> {
    if package == "nowait-tests" || !(dependency == "nowait" || dependency.starts_with("nowait-")) {
        return None;
    }
    let (Some(own), Some(other)) = (layer(package), layer(dependency)) else {
        return Some(format!(
            "give {package} and {dependency} a layer in xtask/src/tidy/layers.rs"
        ));
    };
    if other < own || SAME_LAYER.contains(&(package, dependency)) {
        return None;
    }
    Some(format!(
        "{package} (layer {own}) must not use {dependency} (layer {other}): turn it round"
    ))
}

fn layer(package: &str) -> Option<u8> {
    LAYERS.iter().find(|entry| entry.0 == package).map(|entry| entry.1)
}

/// Reads the name below `[package]`.
fn package(manifest: &str) -> Option<&str> {
    let section = manifest.split("[package]").nth(1)?;
    let line = section.lines().find(|line| line.trim_start().starts_with("name"))?;
    line.split('"').nth(1)
}

/// Reads the names of the dependencies.
///
/// Knows the forms `a = …`, `a.workspace = true` and `[dependencies.a]`.
fn named(manifest: &str) -> Vec<Named<'_>> {
    let (mut inside, mut dev, mut found) = (false, false, Vec::new());
    for (index, line) in manifest.lines().enumerate() {
        let line = line.split('#').next().unwrap_or_default().trim();
        if let Some(section) = line.strip_prefix('[') {
            let section = section.trim_end_matches(']');
            inside = section.ends_with("dependencies");
            dev = section.contains("dev-dependencies");
            if let Some((_, name)) = section.split_once("dependencies.") {
                found.push(Named { line: index + 1, name, dev });
            }
        } else if let (true, Some((name, _))) = (inside, line.split_once('=')) {
            let name = name.split('.').next().unwrap_or(name).trim();
            found.push(Named { line: index + 1, name, dev });
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::super::check_text;
    use super::*;

    fn manifest(name: &str, rest: &str) -> String {
        format!("[package]\nname = \"{name}\"\n{rest}\n")
    }

    #[test]
    fn a_dependency_upwards_is_caught_in_every_form() {
        for canary in [
            "[dependencies]\nnowait-file.workspace = true",
            "[dependencies]\nnowait-file = { path = \"../file\" }",
            "[dependencies.nowait-file]\nworkspace = true",
            "[dev-dependencies]\nnowait-file.workspace = true",
            "[target.\"cfg(loom)\".dependencies]\nnowait-file = \"1\" # why",
        ] {
            let text = manifest("nowait-block", canary);
            let found = check_text(dependencies, "crates/core/block/Cargo.toml", &text);
            assert_eq!(found.len(), 1, "{canary}");
            assert!(found[0].advice.contains("layer 4"), "{}", found[0]);
        }
    }

    #[test]
    fn downwards_and_the_named_pairs_are_allowed() {
        let text = "[dependencies]\nnowait-sys.workspace = true\nparking_lot = \"1\"";
        for package in ["nowait-retry", "nowait-block", "nowait-libaio", "nowait-tests"] {
            let text = manifest(package, text);
            assert_eq!(check_text(dependencies, "crates/a/Cargo.toml", &text), []);
        }
        let text = manifest("nowait-sys", "[dependencies]\nnowait-retry.workspace = true");
        assert_eq!(check_text(dependencies, "crates/core/sys/Cargo.toml", &text).len(), 1);
    }

    #[test]
    fn a_crate_without_a_layer_and_a_stray_libc_are_caught() {
        let text =
            manifest("nowait-new", "[dependencies]\nnowait-sys.workspace = true\nlibc = \"1\"");
        assert_eq!(check_text(dependencies, "crates/new/Cargo.toml", &text).len(), 2);
        let text = manifest("nowait-cli", "[dev-dependencies]\nlibc.workspace = true");
        assert_eq!(check_text(dependencies, "crates/cli/nowait/Cargo.toml", &text), []);
    }
}
