//! Runs the examples of the native API as programs, on files made for it.

use std::env;

use anyhow::{Result, ensure};
use xshell::Shell;

use crate::process;

/// Not a multiple of a block, and more than the copy has in flight at a time.
const FILE_BYTES: usize = (9 << 20) + 123;

/// What some of them need; the same for all, so that the library is built once.
pub(crate) const FEATURES: &str = "nowait/futures-io,nowait/tokio";

/// Runs each example, which is built, and checks what it said and did.
pub(crate) fn run() -> Result<()> {
    let sh = process::shell()?;
    let folder = env::temp_dir().join(format!("nowait-examples-{}", std::process::id()));
    sh.change_dir(sh.create_dir(&folder)?);
    let outcome = run_in(&sh, &folder.display().to_string());
    sh.remove_path(&folder)?;
    outcome
}

/// Runs them in the folder of the shell.
fn run_in(sh: &Shell, folder: &str) -> Result<()> {
    let bytes: Vec<u8> = (0..FILE_BYTES).map(|n| (n / 512 % 251) as u8).collect();
    let lines = bytes.split(|byte| *byte == b'\n').count() - 1;
    let example = |name: &str, args: &[&str], said: &str| -> Result<()> {
        let program = process::target().join("debug/examples").join(name);
        let mut found = false;
        process::stream(sh.cmd(program).args(args), |text| {
            println!("{name}: {text}");
            found |= text.contains(said);
        })?;
        ensure!(found, "example {name} did not say `{said}`");
        Ok(())
    };
    sh.write_file("from", &bytes)?;
    example("read_file", &["from"], &format!("{FILE_BYTES} bytes, {lines} lines"))?;
    for name in ["copy", "tokio_copy"] {
        sh.remove_path("to")?;
        example(name, &["from", "to"], &format!("{FILE_BYTES} bytes in "))?;
        ensure!(sh.read_binary_file("to")? == bytes, "example {name} made a copy that differs");
    }
    example("tokio_random", &["from", "50"], "Direct, pool")?;
    // The last line has no end.
    let all = 2 * (lines + 1);
    example("smol_lines", &["from", "to"], &format!("{all} lines"))?;
    for number in 0..100 {
        sh.write_file(format!("small-{number}"), &bytes[..number * 100])?;
    }
    let total = 2 * FILE_BYTES + (0..100).map(|number| number * 100).sum::<usize>();
    example("many_files", &[folder], &format!("102 files, {total} bytes"))
}
