//! The file that `nowait enable` writes: its text, its creation and its removal.

use crate::systemd::{Place, Source, UnitName, quote};
use nowait_terminal::{Failure, Result};
use std::fs::{self, File, Permissions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// systemd reads drop-ins by name, this one late: `override.conf` cannot replace its settings.
pub(crate) const NAME: &str = "zz-nowait.conf";

const HEADER: &str = "# Written by `nowait enable`";

pub(crate) fn path(place: &Place, unit: &UnitName) -> PathBuf {
    place.own().join(format!("{unit}.d")).join(NAME)
}

pub(crate) fn is_ours(source: &Source) -> bool {
    source.path.file_name().is_some_and(|name| name == NAME) && is_our_text(&source.text)
}

pub(crate) fn is_our_text(text: &str) -> bool {
    text.starts_with(HEADER)
}

/// The end of the drop-in's first line if `nowait enable` has also made the drop-in's folder.
const WITH_FOLDER: &str = "removes it and its folder.";

/// systemd resolves specifiers (`%`) in the values.
pub(crate) fn text(unit: &UnitName, found: &Found, variables: &[(&str, String)]) -> String {
    let version = env!("CARGO_PKG_VERSION");
    let line = |(name, value): &(&str, String)| {
        format!("Environment={}\n", quote(&format!("{name}={value}")))
    };
    let lines: String = variables.iter().map(line).collect();
    let removes = if found.has_own_folder() { WITH_FOLDER } else { "removes it." };
    format!("{HEADER} {version}; `nowait disable {unit}` {removes}\n[Service]\n{lines}")
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Found {
    Nothing,
    /// The unit's folder exists, without the file. The folder counts as made by another program.
    Folder,
    /// The text of a file that `nowait enable` has written.
    Ours(String),
}

impl Found {
    /// `nowait disable` removes an empty folder that `nowait enable` has made.
    fn has_own_folder(&self) -> bool {
        match self {
            Found::Nothing => true,
            Found::Folder => false,
            Found::Ours(text) => text.lines().next().unwrap_or_default().ends_with(WITH_FOLDER),
        }
    }
}

pub(crate) fn look(place: &Place, path: &Path) -> Result<Found> {
    let file = outside(place, path);
    let read = match fs::symlink_metadata(&file) {
        Ok(metadata) if !metadata.is_file() => return Err(not_ours(path)),
        Ok(_) => fs::read_to_string(&file),
        Err(error) => Err(error),
    };
    match read {
        Ok(text) if is_our_text(&text) => match other_unit(place, path, &text) {
            Some(unit) => Err(Failure::new(format!(
                "{}: a link to the drop-in of {unit}: `nowait disable {unit}` removes that",
                path.display()
            ))),
            None => Ok(Found::Ours(text)),
        },
        Ok(_) => Err(not_ours(path)),
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
            let folder = fs::symlink_metadata(folder_of(&file));
            Ok(if folder.is_ok() { Found::Folder } else { Found::Nothing })
        }
        Err(error) => Err(failed(path, &error)),
    }
}

/// Returns the unit that `text` names, if it is another unit and the folder of `path` is a link.
fn other_unit<'a>(place: &Place, path: &Path, text: &'a str) -> Option<&'a str> {
    link_to(place, path)?;
    let (_, behind) = text.lines().next()?.split_once("`nowait disable ")?;
    let (unit, _) = behind.split_once('`')?;
    let folder = folder_of(path).file_name().unwrap_or_default();
    (folder != format!("{unit}.d").as_str()).then_some(unit)
}

/// Follows links to folders, but not a link in the place of the drop-in itself.
fn outside(place: &Place, path: &Path) -> PathBuf {
    place.follow(folder_of(path)).join(NAME)
}

fn link_to(place: &Place, path: &Path) -> Option<PathBuf> {
    let folder = folder_of(path);
    let name = folder.file_name().unwrap_or_default();
    fs::read_link(place.follow(folder_of(folder)).join(name)).ok()
}

fn folder_of(path: &Path) -> &Path {
    path.parent().unwrap_or(Path::new("/"))
}

fn not_ours(path: &Path) -> Failure {
    let advice = "move it away, or keep it and set LD_PRELOAD there yourself";
    Failure::new(format!("{}: not written by `nowait enable`; {advice}", path.display()))
}

/// A file written through a link would be in another folder, and apply to other units too.
pub(crate) fn refuse_link(place: &Place, path: &Path) -> Result<()> {
    let Some(target) = link_to(place, path) else { return Ok(()) };
    let (folder, target) = (folder_of(path).display(), target.display());
    let advice = "make it a folder of this unit alone, then enable it again";
    Err(Failure::new(format!("{folder}: a link to {target}, for other units too; {advice}")))
}

/// Writes the file. systemd finds either the old text or the whole new text, even after a crash.
pub(crate) fn write(place: &Place, path: &Path, text: &str) -> Result<()> {
    let file = outside(place, path);
    replace(&file, text).map_err(|error| failed(&file, &error))
}

fn replace(file: &Path, text: &str) -> io::Result<()> {
    let folder = folder_of(file);
    let is_new = make_folder(folder)?;
    // systemd ignores this temporary file: it reads only files whose names end with `.conf`.
    let new = folder.join(format!(".{NAME}.{}", std::process::id()));
    let replaced = write_new(&new, text).and_then(|()| fs::rename(&new, file));
    if replaced.is_err() {
        let _ = fs::remove_file(&new);
        if is_new {
            let _ = fs::remove_dir(folder);
        }
    }
    replaced
}

/// Makes missing folders with mode 0755, whatever the umask. `false`: the folder existed.
fn make_folder(folder: &Path) -> io::Result<bool> {
    match fs::create_dir(folder) {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => return Ok(false),
        Err(error) if error.kind() == ErrorKind::NotFound => {
            make_folder(folder_of(folder))?;
            fs::create_dir(folder)?;
        }
        made => made?,
    }
    fs::set_permissions(folder, Permissions::from_mode(0o755))?;
    Ok(true)
}

fn write_new(path: &Path, text: &str) -> io::Result<()> {
    let mut file = File::create_new(path)?;
    file.write_all(text.as_bytes())?;
    file.set_permissions(Permissions::from_mode(0o644))?;
    file.sync_all()
}

pub(crate) fn remove(place: &Place, path: &Path, found: &Found) -> Result<()> {
    let file = outside(place, path);
    fs::remove_file(&file).map_err(|error| failed(&file, &error))?;
    if found.has_own_folder() && link_to(place, path).is_none() {
        // Fails if the folder has other drop-ins of the unit, which stay.
        let _ = fs::remove_dir(folder_of(&file));
    }
    Ok(())
}

fn failed(path: &Path, error: &io::Error) -> Failure {
    let advice = match error.kind() {
        ErrorKind::PermissionDenied => "; run it as root, or with --user for a service of your own",
        _ => "",
    };
    Failure::new(format!("{}: {error}{advice}", path.display()))
}
