//! Installs what dist/ holds below a prefix, as a distribution lays it out.
//!
//! ```text
//!   dist/bin, share, include ──────────────────► PREFIX/bin, share, include
//!   dist/lib/libaio.so.1, libnowait_preload.so ─► PREFIX/lib/nowait     (not in the loader's way)
//!   dist/lib/libnowait.*, pkgconfig ───────────► LIBDIR
//!   dist/lib/systemd, sysusers.d, tmpfiles.d ──► PREFIX/lib
//!   dist/lib/debug ────────────────────────────► PREFIX/lib/debug
//! ```

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use walkdir::WalkDir;
use xshell::cmd;

use crate::dist::check_built;
use crate::process::{self, root};

const LICENSES: &[&str] = &["LICENSE-APACHE", "LICENSE-MIT"];

/// Where everything goes.
struct Places {
    /// Put before every path, and named in no file.
    destdir: PathBuf,
    prefix: PathBuf,
    /// Of the C API's libraries: `PREFIX/lib`, or below that a folder named after the machine.
    libdir: PathBuf,
}

/// Installs, by `--destdir`, `--prefix` and `--libdir`, what `make dist` has built.
///
/// install(1) writes new files: a program that has the old one mapped keeps it.
pub(crate) fn run(options: &[&str]) -> Result<()> {
    check_built()?;
    let (sh, places) = (process::shell()?, Places::read(options)?);
    for (from, to) in places.files()? {
        let to = places.below_destdir(&to);
        let mode = if from.parent().is_some_and(|it| it.ends_with("bin")) { "755" } else { "644" };
        let ending = from.extension().unwrap_or_default();
        if from.is_symlink() {
            sh.create_dir(to.parent().unwrap_or(&to))?;
            process::run(cmd!(sh, "cp --no-dereference --remove-destination {from} {to}"))?;
            continue;
        }
        process::run(cmd!(sh, "install -D --mode={mode} {from} {to}"))?;
        if ending == "pc" || ending == "service" {
            sh.write_file(&to, places.fill_in(&sh.read_file(&from)?))?;
        }
    }
    println!("installed in {}", places.below_destdir(&places.prefix).display());
    Ok(())
}

/// Removes what [`run`] with the same options has installed from this dist/, and folders of ours
/// that are empty then.
pub(crate) fn remove(options: &[&str]) -> Result<()> {
    let (sh, places) = (process::shell()?, Places::read(options)?);
    let files = places.files()?.into_iter().map(|(_, to)| places.below_destdir(&to));
    process::run(cmd!(sh, "rm -f").args(files))?;
    for folder in ["lib/nowait", "share/doc/nowait"] {
        // One that has files of others stays.
        drop(std::fs::remove_dir(places.below_destdir(&places.prefix.join(folder))));
    }
    Ok(())
}

impl Places {
    fn read(options: &[&str]) -> Result<Places> {
        let [mut destdir, mut prefix, mut libdir] = ["/", "/usr/local", ""].map(PathBuf::from);
        for option in options {
            let (name, value) = option.split_once('=').unwrap_or((option, ""));
            let place = match name {
                "--destdir" => &mut destdir,
                "--prefix" => &mut prefix,
                "--libdir" => &mut libdir,
                _ => bail!("install: {option}: no such option"),
            };
            // An empty one is a variable of make that was not given.
            if !value.is_empty() {
                *place = PathBuf::from(value);
                ensure!(place.is_absolute(), "install: {option}: give an absolute path");
            }
        }
        if libdir.as_os_str().is_empty() {
            libdir = prefix.join("lib");
        }
        Ok(Places { destdir, prefix, libdir })
    }

    /// Returns all files and links of dist/ that are installed, and the licenses, each with its
    /// place; packages and the book are not among them, nor hidden files, which a build that was
    /// killed left behind.
    fn files(&self) -> Result<Vec<(PathBuf, PathBuf)>> {
        let licenses = LICENSES
            .iter()
            .map(|name| (root().join(name), self.prefix.join("share/doc/nowait").join(name)));
        let (mut found, dist) = (licenses.collect::<Vec<_>>(), root().join("dist"));
        for folder in ["bin", "include", "lib", "share"] {
            for entry in WalkDir::new(dist.join(folder)).sort_by_file_name() {
                let entry = entry.context("run `make dist` first")?;
                let hidden = entry.file_name().to_string_lossy().starts_with('.');
                let name = entry.path().strip_prefix(&dist)?;
                if !entry.file_type().is_dir() && !hidden {
                    found.push((entry.path().to_owned(), self.place(name)));
                }
            }
        }
        Ok(found)
    }

    /// Returns where a file of dist/ goes.
    fn place(&self, name: &Path) -> PathBuf {
        let Ok(library) = name.strip_prefix("lib") else { return self.prefix.join(name) };
        let first = library.iter().next().unwrap_or_default().to_string_lossy();
        match &*first {
            // A libaio.so.1 where the loader looks would take the place of the system's.
            "libaio.so.1" | "libaio.so.1t64" | "libnowait_preload.so" => {
                self.prefix.join("lib/nowait").join(library)
            }
            "systemd" | "sysusers.d" | "tmpfiles.d" | "debug" => self.prefix.join(name),
            _ => self.libdir.join(library),
        }
    }

    /// Names the places in what pkg-config and systemd read.
    fn fill_in(&self, text: &str) -> String {
        let (prefix, libdir) = (self.prefix.display(), self.libdir.display());
        text.replace("prefix=${pcfiledir}/../..", &format!("prefix={prefix}"))
            .replace("libdir=${prefix}/lib\n", &format!("libdir={libdir}\n"))
            .replace("=/usr/bin/nowait", &format!("={prefix}/bin/nowait"))
    }

    fn below_destdir(&self, path: &Path) -> PathBuf {
        self.destdir.join(path.strip_prefix("/").unwrap_or(path))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_file_has_the_place_that_distributions_give_it() {
        let options = ["--destdir=/stage", "--prefix=/usr", "--libdir=/usr/lib/x"];
        let places = Places::read(&options).unwrap();
        for (name, place) in [
            ("bin/nowait", "/usr/bin/nowait"),
            ("lib/libaio.so.1t64", "/usr/lib/nowait/libaio.so.1t64"),
            ("lib/libnowait.so.0", "/usr/lib/x/libnowait.so.0"),
            ("lib/pkgconfig/nowait.pc", "/usr/lib/x/pkgconfig/nowait.pc"),
            ("lib/systemd/system/a.service", "/usr/lib/systemd/system/a.service"),
        ] {
            assert_eq!(places.place(Path::new(name)), Path::new(place));
        }
        assert_eq!(places.below_destdir(Path::new("/usr/bin")), Path::new("/stage/usr/bin"));
    }

    #[test]
    fn pkg_config_and_systemd_are_told_the_places() {
        let places = Places::read(&["--prefix=/opt/nowait", "--libdir="]).unwrap();
        let file = "prefix=${pcfiledir}/../..\nlibdir=${prefix}/lib\n";
        assert_eq!(places.fill_in(file), "prefix=/opt/nowait\nlibdir=/opt/nowait/lib\n");
        let unit = places.fill_in("ExecStart=/usr/bin/nowait-serve serve x\n");
        assert_eq!(unit, "ExecStart=/opt/nowait/bin/nowait-serve serve x\n");
    }

    #[test]
    fn a_relative_path_is_refused() {
        assert!(Places::read(&["--prefix=usr"]).is_err());
        assert!(Places::read(&["--root=/"]).is_err());
    }
}
