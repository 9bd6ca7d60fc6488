//! Runs the tutorials of `docs/tutorials` word for word, each as a reader would, in a fresh folder.
//!
//! The blocks of a page that are marked as `sh` are one script, which stops at the first command
//! that fails. `NOWAIT` is the folder of the tree; `dist/bin`, and a store that `make setup` has
//! installed, are in PATH.

use std::env;
use std::fs;
use std::path::Path;

use crate::process::{self, Result};

/// How long one may take.
const MINUTES_MAX: &str = "5m";

/// A page that fails leaves no server behind.
const CLEANUP: &str = "trap 'jobs -p | xargs -r kill' EXIT";

/// Runs all of them; `line` gets what they say.
///
/// # Errors
/// A command of one fails.
pub(crate) fn run(line: impl Fn(&str)) -> Result {
    let folder = process::root().join("docs/tutorials");
    let entries = fs::read_dir(&folder).map_err(|error| describe(&folder, &error))?;
    let mut pages: Vec<_> = entries.flatten().map(|entry| entry.path()).collect();
    pages.sort();
    for page in pages {
        let name = page.file_stem().expect("a page").to_string_lossy().into_owned();
        let text = fs::read_to_string(&page).map_err(|error| describe(&page, &error))?;
        let fresh = Path::new("/var/tmp"); // on a disk, unlike /tmp
        let fresh = fresh.join(format!("nowait-tutorial-{}-{name}", std::process::id()));
        fs::create_dir_all(&fresh).map_err(|error| describe(&fresh, &error))?;
        let outcome = run_in(&fresh, &name, &script(&text), &line);
        drop(fs::remove_dir_all(&fresh));
        outcome.map_err(|error| format!("tutorial {name}: {error}"))?;
    }
    Ok(())
}

fn run_in(folder: &Path, name: &str, script: &str, line: impl Fn(&str)) -> Result {
    let (root, path) = (process::root(), env::var_os("PATH").unwrap_or_default());
    let mut paths = vec![root.join("dist/bin"), root.join(".stamps/stores/moto/bin")];
    paths.extend(env::split_paths(&path));
    let script = format!("{CLEANUP}\n{script}");
    let args = [MINUTES_MAX, "bash", "-euo", "pipefail", "-c", &script];
    let mut command = process::command("timeout", &args);
    command
        .current_dir(folder)
        .env("PATH", env::join_paths(paths).map_err(|error| error.to_string())?)
        .env("NOWAIT", &root)
        .env("CARGO_NET_OFFLINE", "true")
        .env("CARGO_TARGET_DIR", process::target().join("tutorials"));
    process::stream(command, |text| line(&format!("{name}: {text}")))
}

/// Returns the commands of a page.
fn script(page: &str) -> String {
    let mut script = String::new();
    let mut inside = false;
    for line in page.lines() {
        match line {
            "```sh" => inside = true,
            "```" => inside = false,
            line if inside => {
                script.push_str(line);
                script.push('\n');
            }
            _ => {}
        }
    }
    script
}

fn describe(path: &Path, error: &std::io::Error) -> String {
    format!("{}: {error}", path.display())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_marked_is_run() {
        let page =
            "# A\n\n```\nmake dist\n```\n\n```sh\ntrue\nfalse\n```\nx\n```rust\nfn a() {}\n```\n";
        assert_eq!(script(page), "true\nfalse\n");
    }
}
