//! Debug information apart from the program, where debuggers look for it.
//!
//! The lines of the source take four fifths of the tool. Below `lib/debug/.build-id` they are found
//! by the number that the linker gave the program, by gdb, perf and the backtraces of a panic, if
//! that folder is copied to `/usr/lib/debug`.

use std::path::{Path, PathBuf};

use crate::dist::{create_folder, rename, temporary};
use crate::machine::Machine;
use crate::process::{self, Result};

/// Installs `program` as `to` without its debug information, and that below `debug`.
///
/// # Errors
/// The program has no build ID, or binutils cannot read it.
pub(crate) fn install(machine: Machine, program: &Path, to: &Path, debug: &Path) -> Result {
    let notes = process::output(process::command("readelf", &["-n", &program.to_string_lossy()]))?;
    let place = place(&notes)
        .ok_or_else(|| format!("{}: no build ID: link with --build-id", program.display()))?;
    let keep: &[&str] = &["--only-keep-debug", "--compress-debug-sections=zlib"];
    for (options, file) in [(keep, &debug.join(place)), (&["--strip-debug"], &to.to_path_buf())] {
        create_folder(file.parent().unwrap_or(debug))?;
        let temporary = temporary(file);
        let mut command = machine.tool("objcopy", options);
        command.arg(program).arg(&temporary);
        process::output(command)?;
        rename(&temporary, file)?;
    }
    Ok(())
}

/// Returns where the debug file of a program with these notes lies, as readelf(1) prints them.
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
        let notes =
            "  GNU   0x14\tNT_GNU_BUILD_ID (unique build ID bitstring)\n    Build ID: f6ab12\n";
        assert_eq!(place(notes), Some(PathBuf::from(".build-id/f6/ab12.debug")));
        assert_eq!(place("  GNU\n"), None);
    }
}
