//! Walks: a table with a column `file` names each file once, so that its reader never turns back.

use super::Finding;
use super::source::Source;
use std::collections::HashSet;

/// Checks the tables of a document.
pub(super) fn check(source: &Source, findings: &mut Vec<Finding>) {
    if source.extension() != "md" {
        return;
    }
    let (mut inside, mut column, mut met) = (false, None, HashSet::new());
    for (index, line) in source.text.lines().enumerate() {
        let begins = !inside;
        inside = line.starts_with('|');
        if !inside {
            continue;
        }
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        if begins {
            met.clear();
            column = cells.iter().position(|header| *header == "file");
        }
        let cell = column.and_then(|column| cells.get(column)).copied().unwrap_or_default();
        for file in cell.split('`').skip(1).step_by(2) {
            if !met.insert(file) {
                findings.push(source.finding_on(index + 1, format!("{file} was passed before")));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::check_text;
    use super::*;

    #[test]
    fn a_walk_that_turns_back_is_caught() {
        let walk = "| | file | what |\n|---|---|---|\n| 1 | `a.rs` | `b.rs` |\n| 2 | `b.rs` | |\n";
        assert_eq!(check_text(check, "docs/a.md", walk), []);
        let two = format!("{walk}\n{walk}");
        assert_eq!(check_text(check, "docs/a.md", &two), []);
        let back = format!("{walk}| 3 | `a.rs` | |\n");
        let found = check_text(check, "docs/a.md", &back);
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].line, 5);
    }
}
