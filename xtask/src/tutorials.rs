//! Runs the tutorials of `docs/tutorials` word for word, each as a reader would, in a fresh folder.
//!
//! The blocks of a page that are marked as `sh` are one script, which stops at the first command
//! that fails. `NOWAIT` is the folder of the tree; `dist/bin`, and a store that `make setup` has
//! installed, are in PATH.

use std::env;
use std::sync::LazyLock;

use anyhow::{Context, Result};
use regex_lite::Regex;
use xshell::cmd;

use crate::pattern::regex;
use crate::process::{self, root};

/// How long one may take.
const MINUTES_MAX: &str = "5m";

/// A page that fails leaves no server behind.
const CLEANUP: &str = "trap 'jobs -p | xargs -r kill' EXIT";

static SCRIPT: LazyLock<Regex> = regex!(r"(?ms)^```sh\n(.*?)^```$");

/// Runs all of them.
pub(crate) fn run() -> Result<()> {
    let sh = process::shell()?;
    let mut paths = vec![root().join("dist/bin"), root().join(".stamps/stores/moto/bin")];
    paths.extend(env::split_paths(&env::var_os("PATH").unwrap_or_default()));
    let (paths, target) = (env::join_paths(paths)?, process::target().join("tutorials"));
    for page in sh.read_dir("docs/tutorials")? {
        let name = page.file_stem().context("a page")?.to_string_lossy().into_owned();
        let text = format!("{CLEANUP}\n{}", script(&sh.read_file(&page)?));
        // On a disk, unlike /tmp.
        let fresh = format!("/var/tmp/nowait-tutorial-{}-{name}", std::process::id());
        let folder = sh.push_dir(sh.create_dir(&fresh)?);
        let run = cmd!(sh, "timeout {MINUTES_MAX} bash -euo pipefail -c {text}")
            .env("PATH", &paths)
            .env("NOWAIT", root())
            .env("CARGO_NET_OFFLINE", "true")
            .env("CARGO_TARGET_DIR", &target);
        let outcome = process::stream(run, |line| println!("{name}: {line}"));
        drop(folder);
        sh.remove_path(&fresh)?;
        outcome.with_context(|| format!("tutorial {name}"))?;
    }
    Ok(())
}

/// Returns the commands of a page.
fn script(page: &str) -> String {
    SCRIPT.captures_iter(page).map(|block| block[1].to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_marked_is_run() {
        let page = "# A\n\n```\nmake dist\n```\n\n```sh\ntrue\nfalse\n```\nx\n```rust\nfn a() {}\n\
                    ```\n```sh\nls\n```\n";
        assert_eq!(script(page), "true\nfalse\nls\n");
    }
}
