//! Where reports go.

use std::fs;
use std::io::{self, Write};
use std::path::Path;

use serde::Serialize;

use super::json::Document;
use super::page;
use super::saved::Saved;
use crate::error::{Context, Result};

/// The name of a report that goes to standard output.
const STDOUT: &str = "-";

/// Tells whether the figures as JSON are all that is printed.
fn is_stdout(json: Option<&Path>) -> bool {
    json == Some(Path::new(STDOUT))
}

/// Prints the figures for people, unless those for programs take their place.
///
/// Goes on if standard output cannot take them, and says so on stderr: what took minutes to measure
/// is still to be written to its files.
pub(crate) fn say(json: Option<&Path>, text: &str) {
    if !is_stdout(json)
        && let Err(error) = print(text)
    {
        eprintln!("{error}");
    }
}

/// Prints a text and the end of its line; a reader that has gone away (`| head`) is no failure.
///
/// # Errors
/// Standard output cannot be written, as on a disk that is full.
pub(crate) fn print(text: &str) -> Result<()> {
    let mut out = io::stdout().lock();
    match writeln!(out, "{text}").and_then(|()| out.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(error).context(|| "standard output".to_owned())
        }
        _ => Ok(()),
    }
}

/// Makes the folders of reports to be, so that a long measurement does not end in an error.
pub(crate) fn prepare<'a>(paths: impl IntoIterator<Item = &'a Path>) -> Result<()> {
    for folder in paths.into_iter().filter_map(Path::parent) {
        fs::create_dir_all(folder).context(|| format!("create {}", folder.display()))?;
    }
    Ok(())
}

/// Writes the reports asked for, and says where they are; `-` is standard output.
///
/// After Ctrl-C they say that they are partial.
///
/// # Errors
/// A file cannot be written.
pub(crate) fn write<P: Serialize>(
    document: &Document<'_, P>,
    json: Option<&Path>,
    html: Option<&Path>,
) -> Result<()> {
    write_text(&document.text()?, json, html)
}

/// The same with the JSON as text.
///
/// # Errors
/// Those of [`write`].
pub(crate) fn write_text(text: &str, json: Option<&Path>, html: Option<&Path>) -> Result<()> {
    prepare([json, html].into_iter().flatten())?;
    match json {
        None => {}
        Some(_) if is_stdout(json) => print(text.trim_end())?,
        Some(path) => {
            fs::write(path, text).context(|| format!("write {}", path.display()))?;
            say(json, &format!("Figures: {}", path.display()));
        }
    }
    if let Some(path) = html {
        page::write_page(&Saved::parse(text)?, path)?;
        say(json, &format!("Report:  {}", path.display()));
    }
    Ok(())
}
