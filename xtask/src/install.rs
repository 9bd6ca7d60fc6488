//! Installs what dist/ holds below a prefix, as a distribution lays it out.
//!
//! ```text
//!   dist/bin, share, include ──────────────────► PREFIX/bin, share, include
//!   dist/lib/libaio.so.1, libnowait_preload.so ─► PREFIX/lib/nowait     (not in the loader's way)
//!   dist/lib/libnowait.*, pkgconfig ───────────► LIBDIR
//!   dist/lib/systemd, sysusers.d, tmpfiles.d ──► PREFIX/lib
//!   dist/lib/debug ────────────────────────────► PREFIX/lib/debug
//! ```

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use crate::dist::{create_folder, missing_program, rename, temporary};
use crate::process::{self, Result};

const LICENSES: &[&str] = &["LICENSE-APACHE", "LICENSE-MIT"];

/// Where everything goes.
struct Places {
    /// Put before every path, and named in no file.
    destdir: PathBuf,
    prefix: PathBuf,
    /// Of the C API's libraries: `PREFIX/lib`, or below that a folder named after the machine.
    libdir: PathBuf,
}

/// Returns where a file of dist/ goes.
fn place(name: &str, places: &Places) -> PathBuf {
    let Some(library) = name.strip_prefix("lib/") else { return places.prefix.join(name) };
    let (first, _) = library.split_once('/').unwrap_or((library, ""));
    match first {
        // A libaio.so.1 where the loader looks would take the place of the system's.
        "libaio.so.1" | "libaio.so.1t64" | "libnowait_preload.so" => {
            places.prefix.join("lib/nowait").join(library)
        }
        "systemd" | "sysusers.d" | "tmpfiles.d" | "debug" => {
            places.prefix.join("lib").join(library)
        }
        _ => places.libdir.join(library),
    }
}

/// Installs, by `--destdir`, `--prefix` and `--libdir`.
///
/// # Errors
/// dist/ has not been built, an option is unknown or its path is not absolute, or a file cannot
/// be written.
pub(crate) fn run(options: &[&str]) -> Result {
    let places = read(options)?;
    let dist = process::root().join("dist");
    if let Some(missing) = missing_program(&dist) {
        return Err(format!("install: dist/{missing} is missing; run `make dist` first"));
    }
    for from in files(&dist)? {
        install_one(&dist, &from, &places)?;
    }
    for license in LICENSES {
        let to = license_place(license, &places);
        copy(&process::root().join(license), &below(&places.destdir, &to))?;
    }
    println!("installed in {}", below(&places.destdir, &places.prefix).display());
    Ok(())
}

/// Removes what [`run`] with the same options has installed from this dist/, and folders of ours
/// that are empty then.
///
/// # Errors
/// As for [`run`]; a file that is not there is none.
pub(crate) fn remove(options: &[&str]) -> Result {
    let places = read(options)?;
    let dist = process::root().join("dist");
    let installed = files(&dist)?.into_iter().map(|file| {
        let name = file.strip_prefix(&dist).unwrap_or(&file).to_string_lossy().into_owned();
        place(&name, &places)
    });
    let licenses = LICENSES.iter().map(|license| license_place(license, &places));
    for file in installed.chain(licenses) {
        let file = below(&places.destdir, &file);
        match fs::remove_file(&file) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                return Err(format!("{}: {error}", file.display()));
            }
            _ => {}
        }
    }
    for folder in ["lib/nowait", "share/doc/nowait"] {
        // One that has files of others stays.
        drop(fs::remove_dir(below(&places.destdir, &places.prefix.join(folder))));
    }
    Ok(())
}

fn read(options: &[&str]) -> Result<Places> {
    let mut places = Places {
        destdir: PathBuf::from("/"),
        prefix: PathBuf::from("/usr/local"),
        libdir: PathBuf::new(),
    };
    for option in options {
        let (name, value) = option.split_once('=').unwrap_or((option, ""));
        let place = match name {
            "--destdir" => &mut places.destdir,
            "--prefix" => &mut places.prefix,
            "--libdir" => &mut places.libdir,
            _ => return Err(format!("install: {option}: no such option")),
        };
        // An empty one is a variable of make that was not given.
        if !value.is_empty() {
            *place = PathBuf::from(value);
        }
        if !place.is_absolute() && !place.as_os_str().is_empty() {
            return Err(format!("install: {option}: give an absolute path"));
        }
    }
    if places.libdir.as_os_str().is_empty() {
        places.libdir = places.prefix.join("lib");
    }
    Ok(places)
}

/// Returns all files and links of dist/ that are installed, in order; packages and the book are
/// not.
fn files(dist: &Path) -> Result<Vec<PathBuf>> {
    let mut folders: Vec<PathBuf> =
        ["bin", "include", "lib", "share"].iter().map(|folder| dist.join(folder)).collect();
    let mut found = Vec::new();
    while let Some(folder) = folders.pop() {
        let describe = |error| format!("{}: {error}", folder.display());
        for entry in fs::read_dir(&folder).map_err(describe)? {
            let entry = entry.map_err(describe)?;
            let hidden = entry.file_name().to_string_lossy().starts_with('.');
            match entry.file_type().map_err(describe)?.is_dir() {
                true => folders.push(entry.path()),
                // What a build that was killed left behind.
                false if hidden => {}
                false => found.push(entry.path()),
            }
        }
    }
    found.sort();
    Ok(found)
}

fn install_one(dist: &Path, from: &Path, places: &Places) -> Result {
    let name = from.strip_prefix(dist).unwrap_or(from).to_string_lossy().into_owned();
    let to = below(&places.destdir, &place(&name, places));
    if let Ok(target) = fs::read_link(from) {
        return link(&target, &to);
    }
    let ending = from.extension().unwrap_or_default();
    if ending != "pc" && ending != "service" {
        return copy(from, &to);
    }
    let text = fs::read_to_string(from).map_err(|error| format!("{name}: {error}"))?;
    replace(&to, |temporary| fs::write(temporary, with_places(&text, places)), 0o644)
}

fn license_place(license: &str, places: &Places) -> PathBuf {
    places.prefix.join("share/doc/nowait").join(license)
}

/// Names the places in what pkg-config and systemd read.
fn with_places(text: &str, places: &Places) -> String {
    let (prefix, libdir) = (places.prefix.display(), places.libdir.display());
    text.replace("prefix=${pcfiledir}/../..", &format!("prefix={prefix}"))
        .replace("libdir=${prefix}/lib\n", &format!("libdir={libdir}\n"))
        .replace("=/usr/bin/nowait", &format!("={prefix}/bin/nowait"))
}

/// Returns `path`, which is absolute, below another folder.
fn below(destdir: &Path, path: &Path) -> PathBuf {
    destdir.join(path.strip_prefix("/").unwrap_or(path))
}

/// Copies a file; programs are executable for all, the rest is readable.
fn copy(from: &Path, to: &Path) -> Result {
    let executes = from.parent().is_some_and(|folder| folder.ends_with("bin"));
    let mode = if executes { 0o755 } else { 0o644 };
    replace(to, |temporary| fs::copy(from, temporary).map(drop), mode)
}

fn link(target: &Path, to: &Path) -> Result {
    create_folder(to.parent().unwrap_or(to))?;
    let temporary = temporary(to);
    drop(fs::remove_file(&temporary));
    symlink(target, &temporary).map_err(|error| format!("{}: {error}", to.display()))?;
    rename(&temporary, to)
}

/// Writes a file under another name first: a program that has the old one mapped keeps it.
fn replace(to: &Path, write: impl FnOnce(&Path) -> std::io::Result<()>, mode: u32) -> Result {
    create_folder(to.parent().unwrap_or(to))?;
    let temporary = temporary(to);
    let written = write(&temporary)
        .and_then(|()| fs::set_permissions(&temporary, fs::Permissions::from_mode(mode)));
    written.map_err(|error| {
        drop(fs::remove_file(&temporary));
        format!("{}: {error}", to.display())
    })?;
    rename(&temporary, to)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_file_has_the_place_that_distributions_give_it() {
        let places = read(&["--destdir=/stage", "--prefix=/usr", "--libdir=/usr/lib/x"]).unwrap();
        let go = |name| place(name, &places).display().to_string();
        assert_eq!(go("bin/nowait"), "/usr/bin/nowait");
        assert_eq!(go("lib/libaio.so.1t64"), "/usr/lib/nowait/libaio.so.1t64");
        assert_eq!(go("lib/libnowait.so.0"), "/usr/lib/x/libnowait.so.0");
        assert_eq!(go("lib/pkgconfig/nowait.pc"), "/usr/lib/x/pkgconfig/nowait.pc");
        assert_eq!(go("lib/systemd/system/a.service"), "/usr/lib/systemd/system/a.service");
        assert_eq!(below(&places.destdir, Path::new("/usr/bin")), Path::new("/stage/usr/bin"));
    }

    #[test]
    fn pkg_config_and_systemd_are_told_the_places() {
        let places = read(&["--prefix=/opt/nowait", "--libdir="]).unwrap();
        let file = "prefix=${pcfiledir}/../..\nlibdir=${prefix}/lib\n";
        assert_eq!(with_places(file, &places), "prefix=/opt/nowait\nlibdir=/opt/nowait/lib\n");
        let unit = with_places("ExecStart=/usr/bin/nowait-serve serve x\n", &places);
        assert_eq!(unit, "ExecStart=/opt/nowait/bin/nowait-serve serve x\n");
    }

    #[test]
    fn a_relative_path_is_refused() {
        assert!(read(&["--prefix=usr"]).is_err_and(|message| message.contains("--prefix=usr")));
        assert!(read(&["--root=/"]).is_err());
    }
}
