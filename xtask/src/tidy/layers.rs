//! The layer rule: a crate depends only on crates of lower layers, except the pairs of
//! [`SAME_LAYER`]. The rule does not apply to `nowait-tests`.

use toml::{Table, Value};

use super::Finding;
use super::source::Source;

const LAYERS: &[&[&str]] = &[
    &["nowait-sys", "nowait-retry", "nowait-terminal"],
    &["nowait-block", "nowait-status"],
    &["nowait-sim", "nowait-cache"],
    &["nowait-file", "nowait-paper", "nowait-image-format"],
    &["nowait-engine"],
    &["nowait", "nowait-blocks", "nowait-process", "nowait-simulator", "nowait-objects"],
    &[
        "nowait-libaio",
        "nowait-posix",
        "nowait-capi",
        "nowait-python",
        "nowait-vllm",
        "nowait-cli",
        "nowait-harness",
        "nowait-device",
        "nowait-image-store",
        "nowait-server",
    ],
    &[
        "nowait-faces",
        "nowait-peers",
        "nowait-programs",
        "nowait-bench-futures",
        "nowait-bench-stores",
        "nowait-serve",
        "nowait-machine",
    ],
    &["nowait-bench"],
];

/// Pairs of one layer where the first may use the second.
const SAME_LAYER: &[(&str, &str)] = &[
    // `nowait-retry` parks threads and reads the clock through `nowait-sys`.
    ("nowait-retry", "nowait-sys"),
    // Blocks are files of the Rust API.
    ("nowait-blocks", "nowait"),
    // An image on a store is a source of a device.
    ("nowait-image-store", "nowait-device"),
    // The server opens an image from the source that the image's name chooses.
    ("nowait-server", "nowait-device"),
    ("nowait-server", "nowait-image-store"),
];

const SYSTEM: &[&str] = &["libc", "io-uring", "rustix", "nix"];

/// The crates that may use the packages of [`SYSTEM`]: the layer for system calls, programs that
/// use the libraries from outside, and simulations that answer system calls.
const SYSTEM_USERS: &[&str] = &[
    "nowait-sys",
    "nowait-harness",
    "nowait-peers",
    "nowait-programs",
    "nowait-bench",
    "nowait-bench-futures",
    "nowait-tests",
    "nowait-machine",
];

pub(super) fn dependencies(source: &Source, findings: &mut Vec<Finding>) {
    let is_ours = ["crates/", "python/", "tests/"].iter().any(|it| source.path.starts_with(it));
    if !is_ours || !source.path.ends_with("/Cargo.toml") {
        return;
    }
    let manifest: Table = source.text.parse().unwrap_or_default();
    let package = manifest.get("package").and_then(|it| it.get("name")).and_then(Value::as_str);
    let Some(package) = package else {
        findings.push(source.finding_on(1, "no package name found"));
        return;
    };
    for (name, is_dev) in named(&manifest) {
        if let Some(advice) =
            judge_system(package, &name, is_dev).or_else(|| judge_layer(package, &name))
        {
            let names_it = |line: &str| {
                line.starts_with(&*name) || line.contains(&format!("dependencies.{name}]"))
            };
            let line = source.text.lines().position(names_it).unwrap_or(0) + 1;
            findings.push(source.finding_on(line, advice));
        }
    }
}

fn named(manifest: &Table) -> Vec<(String, bool)> {
    let targets = manifest.get("target").and_then(Value::as_table);
    let targets = targets.into_iter().flat_map(Table::values).filter_map(Value::as_table);
    let sections = targets.chain([manifest]).flatten();
    let dependencies = sections.filter(|(section, _)| section.ends_with("dependencies"));
    let named = dependencies.flat_map(|(section, named)| {
        let is_dev = section.starts_with("dev-");
        named.as_table().into_iter().flatten().map(move |(name, value)| {
            let renamed = value.get("package").and_then(Value::as_str);
            (renamed.unwrap_or(name).to_owned(), is_dev)
        })
    });
    named.collect()
}

/// Tests may depend on the packages of [`SYSTEM`].
fn judge_system(package: &str, named: &str, is_dev: bool) -> Option<String> {
    let is_wrong = !is_dev && !SYSTEM_USERS.contains(&package) && SYSTEM.contains(&named);
    is_wrong.then(|| format!("{named} is for nowait-sys: add a safe function there"))
}

/// The rule applies to dev-dependencies too.
fn judge_layer(package: &str, dependency: &str) -> Option<String> {
    if package == "nowait-tests" || !(dependency == "nowait" || dependency.starts_with("nowait-")) {
        return None;
    }
    let layer = |package| LAYERS.iter().position(|layer| layer.contains(&package));
    match (layer(package), layer(dependency)) {
        (Some(own), Some(other)) if other < own => None,
        (Some(_), Some(_)) if SAME_LAYER.contains(&(package, dependency)) => None,
        (Some(own), Some(other)) => Some(format!(
            "{package} (layer {own}) must not use {dependency} (layer {other}): turn it round"
        )),
        _ => Some(format!("give {package} and {dependency} a layer in xtask/src/tidy/layers.rs")),
    }
}

#[cfg(test)]
mod tests {
    use super::super::check_text;

    #[test]
    fn dependencies_upwards_without_a_layer_and_a_stray_libc_are_caught() {
        for (package, dependencies, lines) in [
            ("nowait-block", "[dependencies]\nnowait-cache = { path = \"x\" }", &[4][..]),
            ("nowait-block", "[dependencies]\nnowait-cache.workspace = true", &[4]),
            ("nowait-block", "[dev-dependencies.nowait-file]\nversion = \"1\"", &[3]),
            ("nowait-block", "[target.'cfg(x)'.build-dependencies]\nnowait = \"1\"", &[4]),
            ("nowait-block", "[dependencies]\nx = { package = \"nowait-file\" }", &[1]),
            ("nowait-sys", "[dependencies]\nnowait-retry.workspace = true", &[4]),
            ("nowait-retry", "[dependencies]\nnowait-sys.workspace = true\na = \"1\"", &[]),
            ("nowait-libaio", "[dependencies]\nnowait-sys.workspace = true", &[]),
            ("nowait-tests", "[dependencies]\nnowait-sys.workspace = true", &[]),
            ("nowait-new", "[dependencies]\nnowait-sys = \"1\"\nlibc = \"1\"", &[5, 4]),
            ("nowait-cli", "[dev-dependencies]\nlibc.workspace = true", &[]),
        ] {
            let text = format!("[package]\nname = \"{package}\"\n{dependencies}\n");
            let found = check_text(super::dependencies, "crates/a/Cargo.toml", &text);
            let found: Vec<usize> = found.iter().map(|finding| finding.line).collect();
            assert_eq!(found, lines, "{text}");
        }
    }
}
