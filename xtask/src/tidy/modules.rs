//! Checks the floors of a crate: a module, without its tests, imports only modules of lower floors.
//! On at most one floor, modules may import each other.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use regex_lite::Regex;

use super::Finding;
use super::source::{Source, words};
use crate::pattern::regex;

/// A crate whose modules stand on floors, the lowest first. Modules of one floor do not import each
/// other, except on the floor `circle`; the crate's `lib.rs` has the reason.
struct House {
    folder: &'static str,
    floors: &'static [&'static [&'static str]],
    circle: Option<usize>,
}

const HOUSES: &[House] = &[
    House {
        folder: "crates/core/file/src/",
        floors: &[
            &["command", "failure", "limits", "turn"],
            &["config", "hints", "hold", "order"],
            &["parts"],
            &["cached", "context", "deferred", "engine", "request", "route"],
            &["submit"],
        ],
        circle: Some(3),
    },
    House {
        folder: "crates/core/cache/src/",
        floors: &[
            &["buddy", "mistake", "policy", "primitives", "readahead"],
            &["copy", "flush", "gate", "nodes", "pages", "room", "share"],
            &["folio", "tree"],
            &["frames"],
            &["pin"],
            &["page_wait"],
            &["cache", "file", "io", "mapping"],
            &["memory", "models", "reclaim", "writeback"],
            &["change", "open_file"],
            &["read"],
            &["lend", "write"],
            &["tests"],
        ],
        circle: Some(6),
    },
    House {
        folder: "crates/serve/server/src/",
        floors: &[
            &["error", "failure", "identity", "nbd", "os_text"],
            &["access", "caught"],
            &["fuse", "ublk"],
            &["server"],
            &["status", "vhost"],
            &["command"],
        ],
        circle: None,
    },
    House {
        folder: "crates/api/process/src/",
        floors: &[
            &["environment", "guard", "memory", "named_counters"],
            &["looks"],
            &["last_thread", "leaving", "process", "stats"],
        ],
        circle: Some(2),
    },
    House {
        folder: "crates/api/python/src/",
        floors: &[
            &["error", "event_loop", "limits", "ready"],
            &["batch", "engine", "memory"],
            &["handle", "lent", "lines", "transfer"],
            &["requests"],
            &["thread_queue"],
            &["operation"],
            &["reaper"],
            &["process"],
            &["small", "submit"],
            &["blocks", "file", "whole"],
        ],
        circle: None,
    },
];

/// An export of a crate's root: the module, and the names that it exports.
static REEXPORT: LazyLock<Regex> = regex!(r"\bpub use (\w+)::([^;]*)");

/// A path from the crate's root: its first name, or the content of its braces.
static IMPORT: LazyLock<Regex> =
    regex!(r"\bcrate::(?:(\w+)|\{((?:[^{}]|\{(?:[^{}]|\{[^{}]*\})*\})*)\})");

static BRACES: LazyLock<Regex> = regex!(r"\{(?:[^{}]|\{[^{}]*\})*\}");

pub(super) fn floors(sources: &[Source], findings: &mut Vec<Finding>) {
    for house in HOUSES {
        let root = sources.iter().find(|source| source.path == format!("{}lib.rs", house.folder));
        let owners = root.map(|root| reexports(&root.code)).unwrap_or_default();
        for source in sources.iter().filter(|source| source.is_rust()) {
            let module = source.path.strip_prefix(house.folder).and_then(|it| words(it).next());
            if let Some((_, own)) = module.filter(|(_, own)| *own != "lib") {
                house.check(source, own, &owners, findings);
            }
        }
    }
}

impl House {
    fn check(
        &self,
        source: &Source,
        own: &str,
        owners: &BTreeMap<&str, &str>,
        findings: &mut Vec<Finding>,
    ) {
        let Some(floor) = self.floor(own) else {
            let advice = format!("give `{own}` a floor in xtask/src/tidy/modules.rs");
            return findings.push(source.finding_on(1, advice));
        };
        let tests = source.test_ranges();
        for (offset, name) in imports(&source.code) {
            let other = owners.get(&*name).copied().unwrap_or(&name);
            let Some(below) = self.floor(other) else { continue };
            let in_circle = below == floor && self.circle == Some(floor);
            let in_test = tests.iter().any(|range| range.contains(&offset));
            if other != own && below >= floor && !in_circle && !in_test {
                let advice = format!(
                    "`{own}` must not import `{other}`, which does not stand below it: see lib.rs"
                );
                findings.push(source.finding(offset, advice));
            }
        }
    }

    fn floor(&self, module: &str) -> Option<usize> {
        self.floors.iter().position(|floor| floor.contains(&module))
    }
}

fn reexports(root: &str) -> BTreeMap<&str, &str> {
    let mut owners = BTreeMap::new();
    for export in REEXPORT.captures_iter(root) {
        let [owner, names] = [1, 2].map(|group| export.get(group).expect("a group").as_str());
        let names = words(names).map(|(_, name)| name);
        let types = names.filter(|name| name.starts_with(char::is_uppercase));
        owners.extend(types.map(|name| (name, owner)));
    }
    owners
}

fn imports(code: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    for path in IMPORT.captures_iter(code) {
        let at = path.get(0).expect("all of it").start();
        let inside = path.get(1).or(path.get(2)).expect("one of them").as_str();
        let flat = BRACES.replace_all(inside, "");
        let names = flat.split(',').filter_map(|item| words(item).next());
        found.extend(names.map(|(_, name)| (at, name.to_owned())));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROOT: &str = "pub use engine::Engine;\npub use command::{Command, Kind};";

    fn check(path: &str, text: &str) -> Vec<Finding> {
        let mut findings = Vec::new();
        let root = Source::new("crates/core/file/src/lib.rs", ROOT);
        floors(&[root, Source::new(path, text)], &mut findings);
        findings
    }

    #[test]
    fn an_import_from_a_higher_floor_is_caught_in_every_form() {
        for canary in [
            "use crate::engine::Engine;",
            "use crate::Engine;",
            "use crate::{\n    Command,\n    context::{A, B},\n};",
            "fn a(it: &crate::submit::Submission<'_>) {}",
            "use crate::{hints::A};",
        ] {
            assert_eq!(check("crates/core/file/src/hold/held.rs", canary).len(), 1, "{canary}");
        }
    }

    #[test]
    fn lower_floors_the_circle_and_tests_are_allowed() {
        let hold = "crates/core/file/src/hold.rs";
        assert_eq!(check(hold, "use crate::{Kind, command::Flags, hold::Holds};"), []);
        assert_eq!(check(hold, "#[cfg(test)]\nmod tests {\n    use crate::Engine;\n}\n"), []);
        let plug = "crates/core/file/src/route/plug.rs";
        assert_eq!(check(plug, "use crate::{Engine, context};"), []);
        assert_eq!(check(plug, "use crate::submit::A;").len(), 1);
        assert_eq!(check("crates/core/file/src/new.rs", "").len(), 1, "it has no floor");
    }

    #[test]
    fn a_house_without_a_circle_has_none() {
        let text = "use crate::memory::Memory;";
        assert_eq!(check("crates/api/python/src/batch.rs", text).len(), 1);
        assert_eq!(check("crates/api/python/src/requests.rs", text), []);
    }
}
