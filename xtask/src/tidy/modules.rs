//! The floors of a crate: a module imports only modules of lower floors.

use std::collections::BTreeMap;

use super::Finding;
use super::source::Source;

/// A crate whose modules stand on floors, the ground first. Those of one floor do not import each
/// other, except on the floor that is named as the crate's one circle, if it has one; its reason is
/// in `lib.rs`.
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
            &["error", "failure", "identity", "nbd", "os_text", "say"],
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
            &["environment", "guard", "looks", "memory"],
            &["last_thread", "leaving", "process", "stats"],
        ],
        circle: Some(1),
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
            &["file", "whole"],
        ],
        circle: None,
    },
];

/// Checks the imports of the modules of each house, tests aside.
pub(super) fn floors(sources: &[Source], findings: &mut Vec<Finding>) {
    for house in HOUSES {
        let inside = |source: &&Source| source.is_rust() && source.path.starts_with(house.folder);
        let root = sources.iter().find(|source| source.path == format!("{}lib.rs", house.folder));
        let owners = root.map(|root| reexports(&root.code)).unwrap_or_default();
        for source in sources.iter().filter(inside) {
            house.check(source, &owners, findings);
        }
    }
}

impl House {
    fn check(
        &self,
        source: &Source,
        owners: &BTreeMap<String, String>,
        findings: &mut Vec<Finding>,
    ) {
        let own = module(&source.path[self.folder.len()..]);
        if own == "lib" {
            return;
        }
        let Some(floor) = self.floor(own) else {
            let advice = format!("give `{own}` a floor in xtask/src/tidy/modules.rs");
            return findings.push(source.finding_on(1, advice));
        };
        let tests = source.test_ranges();
        for (offset, name) in imports(&source.code) {
            if tests.iter().any(|range| range.contains(&offset)) {
                continue;
            }
            let other = owners.get(name).map_or(name, String::as_str);
            let Some(below) = self.floor(other) else { continue };
            let in_circle = below == floor && self.circle == Some(floor);
            if other != own && below >= floor && !in_circle {
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

/// Returns the module that a file is of, by its path in the folder of sources.
fn module(path: &str) -> &str {
    path.split(['/', '.']).next().unwrap_or(path)
}

/// Returns which module each name that the crate's root exports comes from.
fn reexports(root: &str) -> BTreeMap<String, String> {
    let mut owners = BTreeMap::new();
    for line in root.split(';') {
        let Some((_, path)) = line.split_once("pub use ") else { continue };
        let owner = path.split("::").next().unwrap_or(path).trim();
        for name in path.split(|c: char| !c.is_alphanumeric() && c != '_') {
            if name.starts_with(char::is_uppercase) {
                owners.insert(name.to_owned(), owner.to_owned());
            }
        }
    }
    owners
}

/// Returns the first names of all paths from the crate's root, and where they stand.
fn imports(code: &str) -> Vec<(usize, &str)> {
    let mut found = Vec::new();
    for (offset, root) in code.match_indices("crate::") {
        let start = offset + root.len();
        let rest = &code[start..];
        if !rest.starts_with('{') {
            found.push((start, word(rest)));
            continue;
        }
        let (mut depth, mut first) = (0, false);
        for (at, c) in rest.char_indices() {
            match c {
                '{' => (depth, first) = (depth + 1, depth == 0),
                '}' => depth -= 1,
                ',' => first = depth == 1,
                _ if first && !c.is_whitespace() => {
                    found.push((start + at, word(&rest[at..])));
                    first = false;
                }
                _ => {}
            }
            if depth == 0 {
                break;
            }
        }
    }
    found
}

fn word(code: &str) -> &str {
    let end = code.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(code.len());
    &code[..end]
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
        assert_eq!(
            check("crates/core/file/src/route/plug.rs", "use crate::{Engine, context};"),
            []
        );
        assert_eq!(check("crates/core/file/src/route/plug.rs", "use crate::submit::A;").len(), 1);
        assert_eq!(check("crates/core/file/src/new.rs", "").len(), 1, "it has no floor");
    }

    #[test]
    fn a_house_without_a_circle_has_none() {
        let text = "use crate::memory::Memory;";
        assert_eq!(check("crates/api/python/src/batch.rs", text).len(), 1);
        assert_eq!(check("crates/api/python/src/requests.rs", text), []);
    }
}
