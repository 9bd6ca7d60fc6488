//! Names that would control a terminal are printed escaped.

mod support;

use support::{nowait, outcome};

const RED: &str = "\x1b[31mred\r\nnowait: all is well";

fn is_shown(text: &str) -> bool {
    text.lines().count() == 1 && !text.trim_end_matches('\n').contains(char::is_control)
}

#[test]
fn an_argument_is_escaped_in_a_refusal() {
    let (code, _, err) = outcome(&mut nowait(&["disable", &format!("{RED}.service")]));
    assert_eq!(code, 2);
    assert!(is_shown(&err), "{err:?}");
}

#[test]
fn a_report_has_no_control_characters_but_ends_of_lines() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().join("\x1b[31mred");
    let units = root.join("etc/systemd/system/a.service.d");
    std::fs::create_dir_all(&units).unwrap();
    std::fs::write(units.join("zz-nowait.conf"), "# Written by `nowait enable`\n").unwrap();
    let mut command = nowait(&["disable", "a", "--root"]);
    let (code, out, err) = outcome(command.arg(&root));
    assert_eq!((code, err.as_str()), (0, ""));
    assert!(is_shown(&out) && out.contains("\\u{1b}[31mred"), "{out:?}");
}

#[test]
fn a_report_in_json_stays_json_and_says_what_a_file_is_called() {
    let folder = tempfile::tempdir().unwrap();
    let name = "\x1b[31mred\x7f\u{9b}2J\u{200f}.service.d";
    let units = folder.path().join("etc/systemd/system").join(name);
    std::fs::create_dir_all(&units).unwrap();
    let mut command = nowait(&["doctor", "--json"]);
    let (_, out, err) = outcome(command.arg(&units));
    assert!(!out.contains(|c: char| c.is_control() && c != '\n' || c == '\u{200f}'), "{out:?}");
    let report: serde_json::Value = serde_json::from_str(&out).unwrap();
    let said = |it: &serde_json::Value| it.to_string().contains("\u{9b}2J\u{200f}");
    assert!(said(&report), "{report} {err}");
}
