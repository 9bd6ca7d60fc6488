//! `nowait serve`, `image` and `bench` execute their companions.

mod support;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};
use support::outcome;
use tempfile::TempDir;

const SCRIPT: &str = "#!/bin/sh\necho \"${0##*/} $$ $*\"\nexit 7\n";

/// Only one test runs at a time: a child of another test may have inherited a script that is open
/// for writing, and executing the script would then fail (execve(2): ETXTBSY).
static TURN: Mutex<()> = Mutex::new(());

struct Place {
    _turn: MutexGuard<'static, ()>,
    folder: TempDir,
    nowait: PathBuf,
}

impl Place {
    fn new() -> Place {
        let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        let folder = tempfile::tempdir().unwrap();
        let nowait = folder.path().join("bin/nowait");
        fs::create_dir(folder.path().join("bin")).unwrap();
        fs::copy(env!("CARGO_BIN_EXE_nowait"), &nowait).unwrap();
        Place { _turn: turn, folder, nowait }
    }

    fn script(&self, place: &str, text: &str) -> PathBuf {
        let path = self.folder.path().join(place);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        path
    }

    fn nowait(&self, path: Option<&Path>, words: &[&str]) -> Command {
        let mut command = Command::new(&self.nowait);
        let folder = path.unwrap_or(Path::new("/nowhere"));
        command.args(words).env("PATH", folder);
        command
    }
}

#[test]
fn a_companion_beside_it_is_taken_before_one_in_path() {
    let place = Place::new();
    place.script("elsewhere/nowait-serve", "#!/bin/sh\necho another\n");
    let elsewhere = place.folder.path().join("elsewhere");
    let words = ["serve", "a b", "--nbd", "--", "-x"];
    let (code, out, err) = outcome(&mut place.nowait(Some(&elsewhere), &words));
    assert_eq!((code, out.as_str(), err.as_str()), (0, "another\n", ""));
    place.script("bin/nowait-serve", SCRIPT);
    let mut child = place.nowait(Some(&elsewhere), &words);
    let child = child.stdout(std::process::Stdio::piped()).spawn().unwrap();
    let pid = child.id();
    let ended = child.wait_with_output().unwrap();
    assert_eq!(ended.status.code(), Some(7));
    let said = String::from_utf8(ended.stdout).unwrap();
    assert_eq!(said, format!("nowait-serve {pid} serve a b --nbd -- -x\n"), "the same process");
}

#[test]
fn one_line_names_the_package_of_a_companion_that_is_not_installed() {
    let place = Place::new();
    for (words, package) in [
        (&["serve", "disk.img"][..], "nowait-serve"),
        (&["image", "ls", "s3://disks"], "nowait-serve"),
        (&["bench", "demo"], "nowait-bench"),
        (&["help", "serve"], "nowait-serve"),
    ] {
        let (code, out, err) = outcome(&mut place.nowait(None, words));
        assert_eq!((code, out.as_str(), err.lines().count()), (1, "", 1), "{words:?}: {err}");
        assert!(err.ends_with(&format!("(install the package {package})\n")), "{err}");
    }
}

#[test]
fn completions_and_manual_pages_do_without_companions_and_ask_those_that_are_there() {
    let place = Place::new();
    let complete = |words: &[&str]| outcome(&mut place.nowait(None, words));
    let (code, alone, err) = complete(&["completions", "fish"]);
    assert_eq!((code, err.as_str()), (0, ""));
    assert!(alone.contains("-a \"serve\"") && !alone.contains("-l nbd"), "{alone}");
    let describes = r#"#!/bin/sh
echo '[{"name": "serve", "about": "Serve images", "aliases": [], "commands": [],
"arguments": [{"id": "nbd", "long": "nbd", "aliases": [], "short": null, "help": "An address",
"value_names": [], "values": [], "hint": "Unknown", "count": [1, 1], "is_required": false,
"is_repeated": true, "is_hidden": false, "conflicts": []}]}]'
"#;
    place.script("bin/nowait-serve", describes);
    let (_, whole, _) = complete(&["completions", "fish"]);
    assert!(whole.contains("-l nbd -d 'An address'"), "{whole}");
    place.script("bin/nowait-serve", "#!/bin/sh\necho \"$1\" >\"$2/nowait-serve.1\"\n");
    let pages = place.folder.path().join("pages");
    let (code, _, err) = complete(&["man", pages.to_str().unwrap()]);
    assert_eq!((code, err.as_str()), (0, ""));
    assert_eq!(fs::read_to_string(pages.join("nowait-serve.1")).unwrap(), "man\n");
    assert!(pages.join("nowait-run.1").exists() && !pages.join("nowait-bench.1").exists());
}
