//! Runs the examples of the native API as programs, on files made for it.

use std::env;
use std::fs;
use std::path::Path;

use crate::process::{self, Result};

/// Not a multiple of a block, and more than the copy has in flight at a time.
const FILE_BYTES: usize = (9 << 20) + 123;

/// What some of them need; the same for all, so that the library is built once.
pub(crate) const FEATURES: &str = "nowait/futures-io,nowait/tokio";

/// Runs each example, which is built, and checks what it said and did; `line` gets what it says.
///
/// # Errors
/// An example failed, or did something else.
pub(crate) fn run(line: impl Fn(&str)) -> Result {
    let folder = env::temp_dir().join(format!("nowait-examples-{}", std::process::id()));
    fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let outcome = run_in(&folder, line);
    drop(fs::remove_dir_all(&folder));
    outcome
}

fn run_in(folder: &Path, line: impl Fn(&str)) -> Result {
    let [from, to] = ["from", "to"].map(|name| folder.join(name).display().to_string());
    let bytes: Vec<u8> = (0..FILE_BYTES).map(|n| (n / 512 % 251) as u8).collect();
    let lines = bytes.split(|byte| *byte == b'\n').count() - 1;
    fs::write(&from, &bytes).map_err(|error| format!("{from}: {error}"))?;
    let example = |name: &str, args: &[&str], said: &str| -> Result {
        let program = process::target().join("debug/examples").join(name);
        let mut found = false;
        process::stream(process::command(&program.display().to_string(), args), |text| {
            line(&format!("{name}: {text}"));
            found |= text.contains(said);
        })?;
        if found { Ok(()) } else { Err(format!("example {name} did not say `{said}`")) }
    };
    example("read_file", &[&from], &format!("{FILE_BYTES} bytes, {lines} lines"))?;
    example("copy", &[&from, &to], &format!("{FILE_BYTES} bytes in "))?;
    if fs::read(&to).ok().as_ref() != Some(&bytes) {
        return Err(String::from("example copy made a copy that differs"));
    }
    fs::remove_file(&to).map_err(|error| format!("{to}: {error}"))?;
    example("tokio_copy", &[&from, &to], &format!("{FILE_BYTES} bytes in "))?;
    if fs::read(&to).ok().as_ref() != Some(&bytes) {
        return Err(String::from("example tokio_copy made a copy that differs"));
    }
    example("tokio_random", &[&from, "50"], "Direct, pool")?;
    // The last line has no end.
    let all = 2 * (lines + 1);
    example("smol_lines", &[&from, &to], &format!("{all} lines"))?;
    for number in 0..100 {
        let path = folder.join(format!("small-{number}"));
        fs::write(&path, &bytes[..number * 100]).map_err(|e| format!("{}: {e}", path.display()))?;
    }
    let total = 2 * FILE_BYTES + (0..100).map(|number| number * 100).sum::<usize>();
    let folder = folder.display().to_string();
    example("many_files", &[&folder], &format!("102 files, {total} bytes"))
}
