//! The effect of a unit's `SystemCallFilter=` on the calls that nowait adds to a program's own.
//! Source: systemd.exec(5), "System Call Filtering".

use crate::systemd::Unit;
use std::collections::BTreeMap;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Allowed,
    Fails,
    /// The kernel ends the process by SIGSYS.
    Kills,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    All,
    Uring,
    Kaio,
}

/// The calls that nowait adds, from a trace of fio, each with groups of systemd that hold it.
pub(crate) const CALLS: &[(&str, Part, &[&str])] = &[
    ("capget", Part::All, &["@process", "@system-service"]),
    ("clone3", Part::All, &["@process", "@system-service"]),
    ("close_range", Part::All, &["@basic-io", "@system-service"]),
    ("eventfd2", Part::All, &["@io-event", "@system-service"]),
    ("fstatfs", Part::All, &["@file-system", "@system-service"]),
    ("ioprio_get", Part::All, &["@system-service"]),
    ("memfd_create", Part::All, &["@ipc", "@system-service"]),
    ("prctl", Part::All, &["@process", "@system-service"]),
    ("preadv2", Part::All, &["@basic-io", "@system-service"]),
    ("pwritev2", Part::All, &["@basic-io", "@system-service"]),
    ("recvmsg", Part::All, &["@network-io", "@system-service"]),
    ("sendmsg", Part::All, &["@network-io", "@system-service"]),
    ("setfsgid", Part::All, &["@system-service"]),
    ("setfsuid", Part::All, &["@privileged", "@system-service"]),
    ("socketpair", Part::All, &["@network-io", "@system-service"]),
    ("statx", Part::All, &["@file-system", "@system-service"]),
    ("unshare", Part::All, &["@process", "@system-service"]),
    ("io_uring_setup", Part::Uring, &["@aio", "@system-service"]),
    ("io_uring_enter", Part::Uring, &["@aio", "@system-service"]),
    ("io_uring_register", Part::Uring, &["@aio", "@system-service"]),
    ("io_setup", Part::Kaio, &["@aio", "@system-service"]),
    ("io_submit", Part::Kaio, &["@aio", "@system-service"]),
    ("io_getevents", Part::Kaio, &["@aio", "@system-service"]),
    ("io_cancel", Part::Kaio, &["@aio", "@system-service"]),
    ("io_destroy", Part::Kaio, &["@aio", "@system-service"]),
];

#[derive(Debug)]
pub(crate) struct Filter {
    /// If `true`, the filter allows calls that are not listed.
    open: bool,
    listed: BTreeMap<&'static str, Verdict>,
    /// The effect on a refused call for which the filter names no action.
    refusal: Verdict,
}

impl Filter {
    pub(crate) fn of(unit: &Unit) -> Option<Filter> {
        let lines = unit.list("SystemCallFilter");
        let first = lines.first()?;
        let refusal = match unit.value("SystemCallErrorNumber") {
            None | Some("kill") => Verdict::Kills,
            Some(_) => Verdict::Fails,
        };
        let open = first.starts_with('~');
        let mut filter = Filter { open, listed: BTreeMap::new(), refusal };
        lines.iter().for_each(|line| filter.add(line));
        Some(filter)
    }

    /// A line that begins with `~` refuses its calls; any other line allows them.
    fn add(&mut self, line: &str) {
        let (refuses, words) = match line.strip_prefix('~') {
            Some(words) => (true, words),
            None => (false, line),
        };
        for word in words.split_whitespace() {
            let (name, action) = word.split_once(':').unwrap_or((word, ""));
            let verdict = match (refuses, action) {
                (false, _) => Verdict::Allowed,
                (true, "") => self.refusal,
                (true, "kill") => Verdict::Kills,
                (true, _) => Verdict::Fails,
            };
            let named = |call: &&(&'static str, Part, &[&str])| {
                call.0 == name || call.2.contains(&name) || name == "@known"
            };
            for (call, ..) in CALLS.iter().filter(named) {
                self.listed.insert(call, verdict);
            }
        }
    }

    /// Returns the calls of one part that the filter refuses, and the worst effect on them.
    pub(crate) fn refused(&self, part: Part) -> Option<(Verdict, Vec<&'static str>)> {
        let otherwise = if self.open { Verdict::Allowed } else { self.refusal };
        let verdict = |call: &str| self.listed.get(call).copied().unwrap_or(otherwise);
        let of_part = CALLS.iter().filter(|(_, its, _)| *its == part).map(|(call, ..)| *call);
        let refused: Vec<_> = of_part.filter(|call| verdict(call) != Verdict::Allowed).collect();
        let kills = refused.iter().any(|call| verdict(call) == Verdict::Kills);
        let worst = if kills { Verdict::Kills } else { Verdict::Fails };
        (!refused.is_empty()).then_some((worst, refused))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nowait_block::skip::note_skip_here;
    use std::process::Command;

    /// The groups are those of systemd 252; a later version may add calls to a group.
    #[test]
    fn groups_hold_the_calls_that_systemd_says() {
        let Ok(output) = Command::new("systemd-analyze").arg("syscall-filter").output() else {
            return note_skip_here("needs systemd-analyze");
        };
        let text = String::from_utf8_lossy(&output.stdout);
        let mut groups: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        let mut group = "";
        for line in text.lines() {
            match line.strip_prefix("    ") {
                Some(member) => groups.entry(group).or_default().push(member),
                None => group = line,
            }
        }
        fn holds(groups: &BTreeMap<&str, Vec<&str>>, group: &str, call: &str) -> bool {
            groups.get(group).into_iter().flatten().any(|member| {
                *member == call || (member.starts_with('@') && holds(groups, member, call))
            })
        }
        for (call, _, ours) in CALLS {
            let theirs = groups.keys().filter(|it| it.starts_with('@') && **it != "@known");
            let theirs: Vec<_> = theirs.filter(|group| holds(&groups, group, call)).collect();
            assert!(ours.iter().all(|group| theirs.contains(&group)), "{call}: {theirs:?}");
        }
    }
}
