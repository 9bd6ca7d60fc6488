//! The file that `nowait enable` writes: its text, and how it comes and goes.

use crate::error::{Failure, Result};
use crate::systemd::{Place, Source, UnitName, quote};
use std::fs::{self, File};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// Its name: behind what an administrator writes (`systemctl edit` makes `override.conf`), so that
/// nothing replaces what it sets.
pub(crate) const NAME: &str = "zz-nowait.conf";

/// How it begins.
const HEADER: &str = "# Written by `nowait enable`";

/// Returns the path for a unit, as the manager sees it.
pub(crate) fn path(place: &Place, unit: &UnitName) -> PathBuf {
    place.own().join(format!("{unit}.d")).join(NAME)
}

/// Tells whether `nowait enable` has written this file.
pub(crate) fn is_ours(source: &Source) -> bool {
    source.path.file_name().is_some_and(|name| name == NAME) && is_our_text(&source.text)
}

/// Tells whether `nowait enable` has written this text.
pub(crate) fn is_our_text(text: &str) -> bool {
    text.starts_with(HEADER)
}

/// Makes the text; a value may have specifiers of systemd.
pub(crate) fn text(unit: &UnitName, variables: &[(&str, String)]) -> String {
    let version = env!("CARGO_PKG_VERSION");
    let line = |(name, value): &(&str, String)| {
        format!("Environment={}\n", quote(&format!("{name}={value}")))
    };
    let lines: String = variables.iter().map(line).collect();
    format!("{HEADER} {version}; `nowait disable {unit}` removes it.\n[Service]\n{lines}")
}

/// What there is at the path.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Found {
    Nothing,
    Ours(String),
}

/// Looks at what there is.
///
/// # Errors
/// A file of another author, or one that cannot be read.
pub(crate) fn look(place: &Place, path: &Path) -> Result<Found> {
    match fs::read_to_string(place.follow(path)) {
        Ok(text) if is_our_text(&text) => Ok(Found::Ours(text)),
        Ok(_) => {
            let advice = "move it away, or keep it and set LD_PRELOAD there yourself";
            Err(Failure::new(format!(
                "{}: not written by `nowait enable`; {advice}",
                path.display()
            )))
        }
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(Found::Nothing),
        Err(error) => Err(failed(path, &error)),
    }
}

/// Writes it: systemd finds the old text or the new one, whatever happens meanwhile.
pub(crate) fn write(place: &Place, path: &Path, text: &str) -> Result<()> {
    let file = place.follow(path);
    replace(&file, text).map_err(|error| failed(&file, &error))
}

fn replace(file: &Path, text: &str) -> io::Result<()> {
    let folder = file.parent().unwrap_or(Path::new("/"));
    fs::create_dir_all(folder)?;
    // systemd reads only what ends with `.conf`.
    let new = folder.join(format!(".{NAME}.{}", std::process::id()));
    let written = File::create(&new).and_then(|mut file| {
        file.write_all(text.as_bytes())?;
        file.set_permissions(fs::Permissions::from_mode(0o644))?;
        file.sync_all()
    });
    let replaced = written.and_then(|()| fs::rename(&new, file));
    if replaced.is_err() {
        let _ = fs::remove_file(&new);
        let _ = fs::remove_dir(folder);
    }
    replaced
}

/// Removes it, and its folder if nothing else is in it.
pub(crate) fn remove(place: &Place, path: &Path) -> Result<()> {
    let file = place.follow(path);
    fs::remove_file(&file).map_err(|error| failed(&file, &error))?;
    // Not empty: other drop-ins of the unit stay.
    let _ = file.parent().map(fs::remove_dir);
    Ok(())
}

fn failed(path: &Path, error: &io::Error) -> Failure {
    let advice = match error.kind() {
        ErrorKind::PermissionDenied => "; run it as root, or with --user for a service of your own",
        _ => "",
    };
    Failure::new(format!("{}: {error}{advice}", path.display()))
}
