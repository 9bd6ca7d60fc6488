//! The programs of a service, and nowait's verdict on each.

use super::{Findings, resolved};
use crate::enable::Plan;
use crate::program::{Help, Setting, is_executable};
use crate::systemd::{Place, Unit, words};
use serde::Serialize;
use std::ffi::OsStr;
use std::fs;
use std::path::Path;

#[derive(Debug, Serialize)]
pub(in crate::enable) struct Judged {
    pub(in crate::enable) path: String,
    pub(in crate::enable) helps: Help,
    pub(in crate::enable) reason: String,
}

/// The PATH that the system's manager gives to services by default.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
const NOBODY: u32 = 65534;

pub(in crate::enable) fn setting(place: Place, unit: &Unit, of_user: bool) -> Setting {
    if of_user {
        return Setting { place, ..Setting::here() };
    }
    let dynamic = unit.is_on("DynamicUser");
    let ids = |file: &str, name: &str| -> Option<(u32, u32)> {
        let text = fs::read_to_string(place.follow(Path::new(file))).unwrap_or_default();
        let mut lines = text.lines().map(|line| line.split(':').collect::<Vec<_>>());
        let line = lines.find(|line| line.len() > 3 && (line[0] == name || line[2] == name))?;
        Some((line[2].parse().ok()?, line[3].parse().unwrap_or(NOBODY)))
    };
    let (user, group) = match unit.value("User").map(|name| resolved(&unit.name, name)) {
        _ if dynamic => (NOBODY, NOBODY),
        None => (0, 0),
        Some(name) => ids("/etc/passwd", &name).unwrap_or_else(|| {
            let number = name.parse().unwrap_or(NOBODY);
            (number, number)
        }),
    };
    let named = unit.value("Group").map(|name| resolved(&unit.name, name));
    let group = named.and_then(|name| ids("/etc/group", &name)).map_or(group, |ids| ids.0);
    let no_new_privileges = dynamic || unit.is_on("NoNewPrivileges");
    Setting { place, path: PATH.into(), user, group, no_new_privileges }
}

/// Refuses a service without programs, with a missing one, or with none that nowait can help.
pub(super) fn check(plan: &Plan, found: &mut Findings) {
    let commands: Vec<_> = plan.unit.list("ExecStart").into_iter().flat_map(commands).collect();
    if commands.is_empty() {
        found.refuse("the unit has no ExecStart=: there is no program to help");
        return;
    }
    let mut hopeless = Vec::new();
    let mut hope = false;
    for command in commands {
        let Some(path) = file_of(plan, &command[0]) else {
            found.refuse(format!("{}: no such program; install it first", command[0]));
            continue;
        };
        for path in std::iter::once(path).chain(started_by_shell(plan, &command)) {
            let program = plan.setting.look_at(Path::new(&path));
            let (help, reason) = program.verdict();
            match help {
                Help::No => hopeless.push(format!("{path}: nowait has no effect: {reason}")),
                Help::Perhaps | Help::Yes => hope = true,
            }
            found.programs.push(Judged { path, helps: help, reason });
        }
    }
    let advice = "--force writes the drop-in all the same, for programs that these start";
    match (hope, hopeless.is_empty()) {
        (false, false) => found.refuse(format!("{}; {advice}", hopeless.join("; "))),
        _ => hopeless.into_iter().for_each(|line| found.warn(line)),
    }
}

fn file_of(plan: &Plan, name: &str) -> Option<String> {
    let name = resolved(&plan.unit.name, name);
    let path = plan.setting.find(OsStr::new(&name))?;
    // The name still has a specifier that only systemd can resolve: assume that the file exists.
    let there = plan.place().follow(&path).is_file() || name.contains('%');
    there.then(|| path.display().to_string())
}

/// Returns the words of each command of `ExecStart=`, without systemd's prefixes such as `-`.
fn commands(line: &str) -> Vec<Vec<String>> {
    let words = words(line);
    let commands = words.split(|word| word == ";").filter(|command| !command.is_empty());
    let bare = |command: &[String]| {
        let program = command[0].trim_start_matches(['@', '-', ':', '+', '!', '|']).to_owned();
        [&[program], &command[1..]].concat()
    };
    commands.map(bare).collect()
}

/// Finds executable files by their absolute paths in the arguments of a shell or of env.
fn started_by_shell(plan: &Plan, command: &[String]) -> Vec<String> {
    let shells = ["sh", "bash", "dash", "env"];
    let name = Path::new(&command[0]).file_name().and_then(OsStr::to_str);
    if !name.is_some_and(|name| shells.contains(&name)) {
        return Vec::new();
    }
    let mut paths = Vec::new();
    let between = |letter: char| letter.is_whitespace() || "`\"'$();|&=<>{}".contains(letter);
    for path in command[1..].iter().flat_map(|text| text.split(between)) {
        let there = path.starts_with('/') && is_executable(&plan.place().follow(Path::new(path)));
        if there && path != command[0] && !paths.iter().any(|it| it == path) {
            paths.push(path.to_owned());
        }
    }
    paths
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_told_apart_and_their_signs_taken_off() {
        let expected = [vec!["/bin/a", "-x", "b c"], vec!["/bin/d"]];
        assert_eq!(commands("-@!!/bin/a -x \"b c\" ; +/bin/d"), expected);
        assert!(commands("").is_empty());
    }
}
