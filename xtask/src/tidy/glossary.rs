//! Checks that no type has a name that `docs/glossary.md` replaces.
//!
//! The table below the heading `## Names that are not used` has the replaced names in backticks in
//! its first column. Vale checks phrases (`contrib/vale`).

use super::Finding;
use super::source::Source;
use crate::pattern::regex;
use regex_lite::Regex;
use std::sync::LazyLock;

const PAGE: &str = "docs/glossary.md";
const HEADING: &str = "\n## Names that are not used\n";

static TYPE: LazyLock<Regex> = regex!(r"\b(?:struct|enum|trait|type|union)\s+(\w+)");

pub(super) fn check(sources: &[Source], findings: &mut Vec<Finding>) {
    let page = sources.iter().filter(|source| source.path == PAGE);
    let table = page.filter_map(|page| page.text.split_once(HEADING)).map(|(_, table)| table);
    let cells = table.flat_map(str::lines).filter_map(|row| row.split('|').nth(1));
    let names: Vec<&str> = cells.flat_map(|cell| cell.split('`').skip(1).step_by(2)).collect();
    for source in sources.iter().filter(|source| source.is_rust()) {
        for found in TYPE.captures_iter(&source.code).filter(|it| names.contains(&&it[1])) {
            let name = found.get(1).expect("it has one");
            let advice = format!("`{}`: {PAGE} has another name", name.as_str());
            findings.push(source.finding(name.start(), advice));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_type_of_such_a_name_is_caught_and_its_use_is_not() {
        let code = "//! x\npub(crate) struct Owed<T>(T);\nuse other::Eyes; // enum Eyes\n\
            fn a(it: Seat) {}\nenum Door { Eyes }\n";
        let page = Source::new(PAGE, include_str!("../../../docs/glossary.md"));
        let mut findings = Vec::new();
        check(&[Source::new("a.rs", code), page], &mut findings);
        assert_eq!(findings.iter().map(|finding| finding.line).collect::<Vec<_>>(), [2, 5]);
    }
}
