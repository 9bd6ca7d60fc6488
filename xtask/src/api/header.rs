//! Lists the declarations of a C header, one line each: functions, constants, macros, and the
//! fields of structures, each with the name of its structure.
//!
//! Reserved fields are left out, because they may get another name and use; so is the version,
//! which differs in each release.

use std::sync::LazyLock;

use regex_lite::Regex;

use crate::pattern::regex;

/// Comments, and line ends inside of macros.
static NO_CODE: LazyLock<Regex> = regex!(r"(?s)/\*.*?\*/|\\\n");

/// A line of the preprocessor, or the `extern "C"` for C++.
static LINES: LazyLock<Regex> = regex!(r#"(?m)^(?:#.*|extern "C" \{)$"#);

/// A structure, a list of constants, another declaration with the body that it may have.
static DECLARATIONS: LazyLock<Regex> = regex!(
    r"\s*(?:typedef struct (\w+)\s*\{([^{}]*)\}\s*\w+;|enum\s*\{([^{}]*)\};",
    r"|([^;{}]+)(?:;|\{(?:[^{}]|\{(?:[^{}]|\{[^{}]*\})*\})*\}))"
);

/// Returns the declarations of a header that has no functions but inline ones.
pub(super) fn list(text: &str) -> Vec<String> {
    let text = NO_CODE.replace_all(text, " ");
    let macros = LINES.find_iter(&text).map(|line| one_line(line.as_str()));
    let mut found: Vec<String> = macros
        .filter(|line| line.starts_with("#define ") && !line.starts_with("#define NOWAIT_VERSION"))
        .collect();
    let code = LINES.replace_all(&text, "");
    for item in DECLARATIONS.captures_iter(&code) {
        let part = |group| item.get(group).map_or("", |part| part.as_str());
        let fields = part(2).split(';').map(one_line).filter(|field| !field.is_empty());
        let fields = fields.filter(|field| !field.contains("reserved"));
        found.extend(fields.map(|field| format!("{}: {field}", part(1))));
        let others = part(3).split(',').chain([part(4)]).map(one_line);
        found.extend(others.filter(|line| !line.is_empty()));
    }
    found
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_declaration_is_a_line() {
        let header = "/** A; b { */\n#ifndef H\n#define NOWAIT_VERSION_MINOR 2\n\
            #ifdef __cplusplus\nextern \"C\" {\n#endif\n#define FLAG \\\n  1u\n\
            typedef struct engine engine;\n\
            enum {\n\tA = 0, /* first, of two */\n\tB = 1\n};\n\
            typedef struct range {\n\tuint64_t offset;\n\tuint64_t reserved[2];\n} range;\n\
            int open(engine *e,\n\t int flags);\n\
            static inline void prep(range *r)\n{\n\tif (r) { r->offset = 0; }\n}\n\
            void close(engine *e);\n#ifdef __cplusplus\n}\n#endif\n#endif\n";
        let expected = [
            "#define FLAG 1u",
            "typedef struct engine engine",
            "A = 0",
            "B = 1",
            "range: uint64_t offset",
            "int open(engine *e, int flags)",
            "static inline void prep(range *r)",
            "void close(engine *e)",
        ];
        assert_eq!(list(header), expected);
    }

    #[test]
    fn this_header_is_read_to_its_end() {
        let found = list(include_str!("../../../crates/api/capi/include/nowait.h"));
        for line in ["NOWAIT_OP_READ = 1", "nowait_request: uint16_t op", "#define NOWAIT_LINK 1u"]
        {
            assert!(found.iter().any(|it| it == line), "{line}: {found:#?}");
        }
        let code = || found.iter().filter(|line| !line.starts_with('#'));
        assert!(code().filter(|line| line.ends_with(')')).count() > 40, "{found:#?}");
        assert!(!code().any(|line| line.ends_with(['{', '}'])), "{found:#?}");
    }
}
