//! A list of the Rust API in the repository. A review of a commit shows how the commit changes the
//! list.
//!
//! ```text
//!   rustdoc's pages of `nowait` (job doc) ─ rustdoc.rs ─► list ═ crates/api/nowait/api.txt
//!   list, nowait.h ─ released.sh ─► have all that the last release had (tag v*)
//! ```
//!
//! `docs/decisions/0034-lists-of-the-interfaces.md` has the reasons.

use anyhow::{Context, Result};
use xshell::cmd;

use crate::FEATURES;
use crate::{process, rustdoc};

const LIST: &str = "crates/api/nowait/api.txt";

pub(crate) fn check() -> Result<()> {
    let (sh, found) = (process::shell()?, process::target().join("api.txt"));
    sh.write_file(&found, list()?)?;
    process::run(cmd!(sh, "diff -U0 {LIST} {found}"))
        .context("the API has changed: if that is meant, run `cargo x api` and commit the list")?;
    process::run(cmd!(sh, "bash xtask/released.sh"))
}

pub(crate) fn write() -> Result<()> {
    let sh = process::shell()?;
    process::run(cmd!(sh, "cargo doc -p nowait --no-deps --lib --features {FEATURES}"))?;
    Ok(sh.write_file(LIST, list()?)?)
}

fn list() -> Result<String> {
    Ok(rustdoc::list(&process::target().join("doc/nowait"))?.join("\n") + "\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(call: &str) -> Result<String> {
        let sh = process::shell()?;
        let script = sh.read_file("xtask/released.sh")?;
        let (functions, _) = script.split_once("# The functions end here.").context("the mark")?;
        let script = format!("{functions}\n{call}");
        process::output(cmd!(sh, "bash -c {script}"))
    }

    #[test]
    fn a_line_that_is_gone_is_named_and_one_that_stands_twice_is_two() {
        let gone = call("keep $'a\\nb\\nb\\nc' $'c\\nb\\nd\\na'").unwrap_err().to_string();
        assert!(gone.ends_with("promises this:\nb\n"), "{gone}");
        assert_eq!(call("keep $'a\\nb' $'c\\nb\\na'").unwrap(), "");
    }

    #[test]
    fn only_a_new_leading_number_may_break() {
        let versions = "v0.2.0 0.2.7 0.3.0 v1.2.0 1.3.0 10.0.1";
        let leading = call(&format!("for it in {versions}; do leading <<<$it; done")).unwrap();
        assert_eq!(leading, "0.2\n0.2\n0.3\n1\n1\n10\n");
    }

    #[test]
    fn the_header_is_read_as_its_declarations() {
        let header = "/** A; b { */\n#define FLAG 1u\n#define NOWAIT_VERSION_MINOR 2\n\
            enum {\n\tA = 0, /* first,\n of two */\n\tB = 1\n};\n\
            typedef struct range {\n\tint at;\n\tint reserved[2];\n} range;\n";
        let found = call(&format!("declarations <<<'{header}'")).unwrap();
        let range = "range: typedef struct range {\nrange: int at;\n} range;\n";
        assert_eq!(found, format!("#define FLAG 1u\nenum {{\nA = 0\nB = 1\n}};\n{range}"));
        assert_eq!(call("soname <$library").unwrap(), "libnowait.so.0\n");
    }
}
