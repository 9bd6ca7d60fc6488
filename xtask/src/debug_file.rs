//! Debug information in files of its own, where debuggers look for it.
//!
//! Debug information is four fifths of the size of `nowait`. gdb, perf and the backtraces of a
//! panic find it by the build ID of the program, in `/usr/lib/debug/.build-id`. Packages install
//! `dist/lib/debug` as `/usr/lib/debug`.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use xshell::{Shell, cmd};

use crate::dist::{rename, temporary};
use crate::machine::Machine;
use crate::process;

/// Installs `program` as `to`, and its debug information in a file below `debug`.
pub(crate) fn install(
    sh: &Shell,
    machine: Machine,
    program: &Path,
    to: &Path,
    debug: &Path,
) -> Result<()> {
    let place = place(&process::output(cmd!(sh, "readelf -n {program}"))?)
        .with_context(|| format!("{}: no build ID: link with --build-id", program.display()))?;
    let keep = ["--only-keep-debug", "--compress-debug-sections=zlib"];
    for (options, file) in [(&keep[..], &*debug.join(place)), (&["--strip-debug"], to)] {
        sh.create_dir(file.parent().unwrap_or(debug))?;
        let temporary = temporary(file);
        process::run(machine.tool(sh, "objcopy").args(options).arg(program).arg(&temporary))?;
        rename(&temporary, file)?;
    }
    Ok(())
}

fn place(notes: &str) -> Option<PathBuf> {
    let id = notes.lines().find_map(|line| line.trim().strip_prefix("Build ID: "))?;
    let (folder, file) = id.split_at_checked(2)?;
    Some(Path::new(".build-id").join(folder).join(format!("{file}.debug")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_debug_file_lies_where_debuggers_look() {
        let notes = "  GNU   0x14\tNT_GNU_BUILD_ID\n    Build ID: f6ab12\n";
        assert_eq!(place(notes), Some(PathBuf::from(".build-id/f6/ab12.debug")));
        assert_eq!(place("  GNU\n"), None);
    }
}
