//! Inspects a program's file to decide if nowait can help the program.

use crate::elf::{self, Elf, Image};
use crate::systemd::Place;
use nowait_sys::inspect;
use serde::Serialize;
use std::ffi::{CString, OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

#[derive(Debug)]
pub(crate) struct Program {
    pub(crate) path: PathBuf,
    pub(crate) interpreter: Option<PathBuf>,
    /// The headers of the file or, if the file is a script, of its interpreter.
    pub(crate) image: Result<Image, String>,
    /// The reason why the loader ignores LD_PRELOAD and LD_LIBRARY_PATH (AT_SECURE).
    pub(crate) secure: Option<&'static str>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Help {
    Yes,
    Perhaps,
    No,
}

impl Help {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Help::Yes => "yes",
            Help::Perhaps => "perhaps",
            Help::No => "no",
        }
    }
}

/// The system, the user and the PATH with which a program is executed.
#[derive(Debug)]
pub(crate) struct Setting {
    pub(crate) place: Place,
    pub(crate) path: OsString,
    pub(crate) user: u32,
    pub(crate) group: u32,
    /// PR_SET_NO_NEW_PRIVS: execve(2) grants no privileges.
    pub(crate) no_new_privileges: bool,
}

impl Setting {
    pub(crate) fn here() -> Setting {
        Setting {
            place: Place::system(Path::new("/")),
            path: std::env::var_os("PATH").unwrap_or_else(|| "/bin:/usr/bin".into()),
            user: inspect::user_ids().0,
            group: inspect::group_ids().0,
            no_new_privileges: false,
        }
    }

    /// Finds a program as execvp(3) does. Returns a name with a slash without a check.
    pub(crate) fn find(&self, name: &OsStr) -> Option<PathBuf> {
        if name.as_bytes().contains(&b'/') {
            return Some(PathBuf::from(name));
        }
        let mut files = std::env::split_paths(&self.path).map(|dir| dir.join(name));
        files.find(|file| is_executable(&self.place.follow(file)))
    }

    pub(crate) fn look_at(&self, path: &Path) -> Program {
        let image = elf::inspect(&self.place.follow(path));
        if let Ok(Image::Script(interpreter, argument)) = &image {
            let interpreter = self.real_interpreter(interpreter, argument.as_deref());
            let image = elf::inspect(&self.place.follow(&interpreter));
            let secure = self.secure(&interpreter);
            return Program {
                path: path.to_owned(),
                interpreter: Some(interpreter),
                image,
                secure,
            };
        }
        Program { path: path.to_owned(), interpreter: None, image, secure: self.secure(path) }
    }

    fn real_interpreter(&self, interpreter: &Path, argument: Option<&str>) -> PathBuf {
        let by_env = interpreter.file_name() == Some(OsStr::new("env"));
        let named = argument.filter(|_| by_env).and_then(|name| self.find(OsStr::new(name)));
        named.unwrap_or_else(|| interpreter.to_owned())
    }

    /// Source: ld.so(8), "Secure-execution mode".
    fn secure(&self, path: &Path) -> Option<&'static str> {
        if self.no_new_privileges {
            return None;
        }
        let path = self.place.follow(path);
        let metadata = std::fs::metadata(&path).ok()?;
        let mode = metadata.mode();
        if mode & 0o4000 != 0 && metadata.uid() != self.user {
            return Some("set-user-id");
        }
        if mode & 0o2010 == 0o2010 && metadata.gid() != self.group {
            return Some("set-group-id");
        }
        let path = CString::new(path.as_os_str().as_bytes()).ok()?;
        let gains = self.user != 0 && inspect::has_file_capabilities(&path);
        gains.then_some("given file capabilities")
    }
}

pub(crate) fn find(name: &OsStr) -> Option<PathBuf> {
    Setting::here().find(name)
}

pub(crate) fn look_at(path: &Path) -> Program {
    let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    Setting::here().look_at(&path)
}

/// Returns `true` if `path` is a regular file that its owner, its group or others may execute.
pub(crate) fn is_executable(path: &Path) -> bool {
    let metadata = std::fs::metadata(path);
    metadata.is_ok_and(|it| it.is_file() && it.permissions().mode() & 0o111 != 0)
}

impl Program {
    pub(crate) fn verdict(&self) -> (Help, String) {
        if let Some(secure) = self.secure {
            let why = "the loader ignores LD_PRELOAD and LD_LIBRARY_PATH for it";
            return (Help::No, format!("it is {secure}: {why}"));
        }
        match &self.image {
            Ok(Image::Elf(elf)) if elf.dynamic => judge(elf),
            Ok(Image::Elf(_)) => {
                (Help::No, "it is statically linked: no library can be put in front".to_owned())
            }
            Ok(Image::Foreign) => (Help::No, "it is not a 64-bit program".to_owned()),
            Ok(Image::Script(..) | Image::Other) => (
                Help::Perhaps,
                "not an ELF executable: check the interpreter that runs it".to_owned(),
            ),
            Err(error) => (Help::Perhaps, format!("it cannot be read: {error}")),
        }
    }

    pub(crate) fn links_liburing(&self) -> bool {
        let Ok(Image::Elf(elf)) = &self.image else { return false };
        elf.needed.iter().any(|name| name.starts_with("liburing"))
    }

    /// Returns a warning if preloading certainly has no effect.
    pub(crate) fn warning(&self) -> Option<String> {
        let (help, why) = self.verdict();
        let dynamic = matches!(&self.image, Ok(Image::Elf(elf)) if elf.dynamic);
        let certain = help == Help::No && (self.secure.is_some() || !dynamic);
        let name = self.interpreter.as_ref().unwrap_or(&self.path).display();
        certain.then(|| format!("{name}: nowait has no effect: {why}"))
    }
}

const POSIX_AIO: [&str; 4] = ["aio_read", "aio_write", "aio_fsync", "lio_listio"];

fn judge(elf: &Elf) -> (Help, String) {
    let libaio = elf.needed.iter().find(|name| name.starts_with("libaio.so"));
    if let Some(name) = libaio {
        return (Help::Yes, format!("it links {name}"));
    }
    let posix = |name: &&String| POSIX_AIO.contains(&name.trim_end_matches("64"));
    if let Some(name) = elf.imports.iter().find(posix) {
        let by = "served by the preload library, the default of `nowait run`";
        return (Help::Yes, format!("it uses POSIX AIO ({name}): {by}"));
    }
    let imports = |wanted: &str| elf.imports.iter().any(|name| name == wanted);
    let why = match (imports("syscall"), imports("dlopen")) {
        (true, _) => "it calls syscall(): nowait serves native AIO called so, the kernel io_uring",
        (_, true) => "it loads libraries at run time, which may use libaio",
        _ => "it links no libaio itself; a library that it links may",
    };
    (Help::Perhaps, why.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn linked(needed: &[&str], imports: &[&str]) -> (Help, String) {
        let owned = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect();
        let elf = Elf { dynamic: true, needed: owned(needed), imports: owned(imports) };
        let image = Ok(Image::Elf(elf));
        Program { path: "/bin/x".into(), interpreter: None, image, secure: None }.verdict()
    }

    #[test]
    fn what_a_program_links_decides() {
        assert_eq!(linked(&["libaio.so.1"], &[]).0, Help::Yes);
        assert_eq!(linked(&["libaio.so.1t64", "libc.so.6"], &[]).0, Help::Yes);
        assert_eq!(linked(&["libc.so.6"], &["aio_read64"]).0, Help::Yes);
        assert_eq!(linked(&["libc.so.6"], &["lio_listio"]).0, Help::Yes);
        let (help, why) = linked(&["liburing.so.2"], &["syscall"]);
        assert_eq!(help, Help::Perhaps);
        assert!(why.contains("syscall()"), "{why}");
    }

    #[test]
    fn static_and_privileged_programs_are_warned_about() {
        let image = Ok(Image::Elf(Elf::default()));
        let mut program = Program { path: "/bin/x".into(), interpreter: None, image, secure: None };
        assert!(program.warning().unwrap().contains("statically linked"));
        program.image = Ok(Image::Elf(Elf { dynamic: true, ..Elf::default() }));
        assert_eq!(program.warning(), None);
        program.secure = Some("set-user-id");
        assert!(program.warning().unwrap().contains("set-user-id"));
    }

    #[test]
    fn a_program_is_found_from_the_current_directory() {
        let program = look_at(Path::new("./src/../Cargo.toml"));
        assert!(program.image.is_ok(), "{program:?}");
    }

    #[test]
    fn a_script_is_judged_by_its_interpreter() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("script");
        std::fs::write(&path, "#!/usr/bin/env sh\n").unwrap();
        let program = look_at(&path);
        assert_eq!(program.interpreter, find(OsStr::new("sh")));
        assert_eq!(program.warning(), None);
    }
}
