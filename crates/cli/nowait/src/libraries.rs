//! Finds nowait's shared objects, and checks that they load.

use crate::args::Via;
use crate::systemd::Place;
use nowait_terminal::{Failure, Result};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

pub(crate) const LIBDIR: &str = "NOWAIT_LIBDIR";

impl Via {
    pub(crate) fn file_name(self) -> &'static str {
        match self {
            Via::Preload => "libnowait_preload.so",
            Via::Libaio => "libaio.so.1",
        }
    }

    pub(crate) fn variable(self) -> &'static str {
        match self {
            Via::Preload => "LD_PRELOAD",
            Via::Libaio => "LD_LIBRARY_PATH",
        }
    }

    /// Source: ld.so(8).
    pub(crate) fn separators(self) -> &'static [char] {
        match self {
            Via::Preload => &[':', ' '],
            Via::Libaio => &[':', ';'],
        }
    }

    pub(crate) fn value(self, library: &Path, before: Option<OsString>) -> OsString {
        let mut value = match self {
            Via::Preload => library.as_os_str().to_owned(),
            Via::Libaio => library.parent().unwrap_or(Path::new("/")).as_os_str().to_owned(),
        };
        if let Some(before) = before.filter(|before| !before.is_empty()) {
            value.push(":");
            value.push(before);
        }
        value
    }
}

/// Finds the library in `$NOWAIT_LIBDIR`. Without that variable, looks in `lib` and `lib/nowait`
/// beside the folder of this executable.
pub(crate) fn find(via: Via) -> Result<PathBuf> {
    find_in(&Place::system(Path::new("/")), via)
}

pub(crate) fn find_in(place: &Place, via: Via) -> Result<PathBuf> {
    let name = via.file_name();
    let places = match std::env::var_os(LIBDIR).filter(|dir| !dir.is_empty()) {
        Some(dir) => vec![PathBuf::from(dir)],
        None => beside_executable(),
    };
    let places: Vec<_> =
        places.into_iter().map(|dir| std::path::absolute(&dir).unwrap_or(dir)).collect();
    let found = places.iter().map(|dir| dir.join(name)).find(|path| place.follow(path).is_file());
    let Some(path) = found else {
        let places: Vec<_> =
            places.iter().map(|dir| place.outside(dir).display().to_string()).collect();
        let places = places.join(", ");
        return Err(Failure::new(format!("{name} is not in {places}; set {LIBDIR} to its place")));
    };
    // ld.so(8): the loader splits LD_PRELOAD at colons and spaces, LD_LIBRARY_PATH at colons and
    // semicolons; neither variable can have quotes.
    if path.as_os_str().as_bytes().iter().any(|byte| matches!(byte, b' ' | b':' | b';')) {
        return Err(Failure::new(format!(
            "{}: the loader cannot be told a path with a space, colon or semicolon; move it, or \
             set {LIBDIR} to a link",
            path.display()
        )));
    }
    Ok(path)
}

fn beside_executable() -> Vec<PathBuf> {
    let executable = std::env::current_exe().unwrap_or_default();
    let prefix = executable.parent().and_then(Path::parent).unwrap_or(Path::new("/usr"));
    vec![prefix.join("lib"), prefix.join("lib/nowait")]
}

/// Reads the version from the bytes of a library file, which contain `nowait 1.2.3 library`.
pub(crate) fn version(file: &Path) -> Option<String> {
    const BEFORE: &[u8] = b"nowait ";
    const BEHIND: &[u8] = b" library";
    const LONGEST: usize = 64;
    let bytes = std::fs::read(file).ok()?;
    let starts = bytes.windows(BEFORE.len()).enumerate().filter(|(_, it)| *it == BEFORE);
    for (start, _) in starts {
        let rest = &bytes[start + BEFORE.len()..];
        let word = rest.iter().take(LONGEST).take_while(|byte| byte.is_ascii_graphic()).count();
        if rest[..word].first().is_some_and(u8::is_ascii_digit) && rest[word..].starts_with(BEHIND)
        {
            return String::from_utf8(rest[..word].to_vec()).ok();
        }
    }
    None
}

/// Loads the library into a child, which executes this program and has 5 seconds.
pub(crate) fn try_load(library: &Path) -> Result<()> {
    let executable = std::env::current_exe().map_err(|error| Failure::new(error.to_string()))?;
    let mut command = Command::new(executable);
    command.arg("--version").env("LD_PRELOAD", library);
    for (name, _) in std::env::vars_os().filter(|(name, _)| is_ours(name)) {
        command.env_remove(name);
    }
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = command
        .spawn()
        .map_err(|error| Failure::new(format!("cannot start a child process: {error}")))?;
    let deadline = Instant::now() + Duration::from_secs(5);
    while matches!(child.try_wait(), Ok(None)) {
        if Instant::now() > deadline {
            let _ = child.kill();
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    let output = child.wait_with_output().map_err(|error| Failure::new(error.to_string()))?;
    let said = String::from_utf8_lossy(&output.stderr);
    match said.lines().find(|line| line.contains("ld.so")) {
        Some(line) => Err(Failure::new(line.trim().to_owned())),
        None if output.status.success() => Ok(()),
        None => {
            let (library, status) = (library.display(), output.status);
            let text = format!("nowait --version with LD_PRELOAD={library} ended with {status}");
            Err(Failure::new(text))
        }
    }
}

pub(crate) fn is_ours(name: &OsStr) -> bool {
    name.as_bytes().starts_with(b"NOWAIT_") && name != LIBDIR
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ours_comes_first_and_the_rest_stays() {
        let library = Path::new("/opt/nowait/lib/libnowait_preload.so");
        assert_eq!(Via::Preload.value(library, None), library);
        assert_eq!(Via::Preload.value(library, Some(OsString::new())), library);
        let both = Via::Preload.value(library, Some("/lib/a.so b.so".into()));
        assert_eq!(both, "/opt/nowait/lib/libnowait_preload.so:/lib/a.so b.so");
        let folder = Via::Libaio.value(library, Some("/x".into()));
        assert_eq!(folder, "/opt/nowait/lib:/x");
    }

    #[test]
    fn a_library_that_is_none_is_refused_with_the_loader_s_words() {
        let file = tempfile::NamedTempFile::new().unwrap();
        // The test binary itself fails on --version, but the loader prints its message before that.
        let failure = format!("{:?}", try_load(file.path()).unwrap_err());
        assert!(failure.contains("ld.so"), "{failure}");
    }
}
