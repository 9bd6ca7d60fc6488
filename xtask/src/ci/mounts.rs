//! Mounts of a run that go with it.

use std::env;
use std::os::unix::process::CommandExt;
use std::process::Command;

use anyhow::{Context, Result, bail};
use xshell::cmd;

use crate::process;

/// Starts this program again in a mount namespace of its own, where that is allowed.
///
/// Its mounts go with its last process, so a run that is killed leaves none. Mounts that an earlier
/// run has left are not in it: if the server of a FUSE mount is gone, mkfs.btrfs(8) gives up.
pub(super) fn take_own() -> Result<()> {
    const TAKEN: &str = "NOWAIT_OWN_MOUNTS";
    let prefix = prefix()?;
    if prefix.is_empty() || env::var_os(TAKEN).is_some() {
        return Ok(());
    }
    let mut again = Command::new(prefix[0]);
    again.args(&prefix[1..]).arg(env::current_exe()?).args(env::args_os().skip(1));
    bail!("unshare: {}", again.env(TAKEN, "1").exec());
}

/// Returns what a command is prefixed with to see mounts of its own; nothing where that is not
/// allowed, or not needed, because only root mounts.
fn prefix() -> Result<Vec<&'static str>> {
    const SCRIPT: &str = "findmnt -rno TARGET | grep /nowait- | sort -r | \
        xargs -r -n 1 umount --lazy; exec \"$@\"";
    let sh = process::shell().context("a shell")?;
    Ok(match process::output(cmd!(sh, "unshare --mount true")) {
        Ok(_) => vec!["unshare", "--mount", "sh", "-c", SCRIPT, "sh"],
        Err(_) => Vec::new(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mounts_of_a_run_go_with_it() {
        let prefix = prefix().unwrap();
        if prefix.is_empty() {
            return; // it may not, and then nothing is mounted
        }
        let folder = env::temp_dir().join(format!("nowait-mounts-{}", std::process::id()));
        let sh = process::shell().unwrap();
        sh.create_dir(&folder).unwrap();
        let outer = "mount -t tmpfs outer \"$0\"; exec \"$@\"";
        let inner = "! mountpoint -q \"$0\" && mount -t tmpfs inner \"$0\"";
        let outer = cmd!(sh, "unshare --mount sh -c {outer} {folder} {prefix...}");
        process::output(outer.args(["sh", "-c", inner]).arg(&folder)).unwrap();
        let mounts = sh.read_file("/proc/self/mounts").unwrap();
        assert!(!mounts.contains(folder.to_str().unwrap()));
        sh.remove_path(&folder).unwrap();
    }
}
