//! What a C header declares, one line each: functions, constants, macros, and the fields of
//! structures, each with the name of its structure.
//!
//! Fields that are reserved may get another name and another use, and the version is another in
//! each release.

/// Returns the declarations of a header that has no functions but inline ones.
pub(super) fn list(text: &str) -> Vec<String> {
    let text = without_comments(text).replace("\\\n", " ");
    let mut found = Vec::new();
    let mut code = String::new();
    for line in text.lines() {
        match line.strip_prefix("#define ") {
            Some(macro_) if !macro_.starts_with("NOWAIT_VERSION") => found.push(one_line(line)),
            Some(_) => {}
            None if line.starts_with('#') || line.starts_with("extern \"C\"") => {}
            None => {
                code.push_str(line);
                code.push('\n');
            }
        }
    }
    while let Some(end) = code.find([';', '{']) {
        let before = one_line(&code[..end]);
        let is_block = code[end..].starts_with('{');
        let rest = code.split_off(end + 1);
        code = rest;
        if !is_block {
            found.push(before);
            continue;
        }
        let body: String = take_block(&mut code);
        if let Some(name) = before.strip_prefix("typedef struct ") {
            let fields = body.split(';').map(one_line);
            let fields = fields.filter(|field| !field.is_empty() && !field.contains("reserved"));
            found.extend(fields.map(|field| format!("{name}: {field}")));
        } else if before == "enum" {
            found.extend(body.split(',').map(one_line).filter(|constant| !constant.is_empty()));
        } else {
            found.push(before);
        }
    }
    found.retain(|line| !line.is_empty() && !line.starts_with('}'));
    found
}

/// Cuts the rest of a block, to its closing brace, from the front of `code`.
fn take_block(code: &mut String) -> String {
    let mut depth = 1;
    let end = code.find(|c| {
        depth += match c {
            '{' => 1,
            '}' => -1,
            _ => 0,
        };
        depth == 0
    });
    let end = end.unwrap_or(code.len());
    let rest = code.split_off(code.len().min(end + 1));
    let mut body = std::mem::replace(code, rest);
    body.truncate(end);
    // The name of a type behind its structure, and the semicolon.
    let trimmed = code.trim_start();
    if let Some((name, after)) = trimmed.split_once(';')
        && name.chars().all(|c| c.is_alphanumeric() || c == '_')
    {
        *code = after.to_owned();
    }
    body
}

fn without_comments(text: &str) -> String {
    let mut code = String::new();
    let mut rest = text;
    while let Some((before, comment)) = rest.split_once("/*") {
        code.push_str(before);
        rest = comment.split_once("*/").map_or("", |(_, rest)| rest);
    }
    code + rest
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
        let header = include_str!("../../../crates/api/capi/include/nowait.h");
        let found = list(header);
        for line in ["NOWAIT_OP_READ = 1", "nowait_request: uint16_t op", "#define NOWAIT_LINK 1u"]
        {
            assert!(found.iter().any(|it| it == line), "{line}: {found:#?}");
        }
        let functions = found.iter().filter(|line| line.ends_with(')') && !line.starts_with('#'));
        assert!(functions.count() > 40, "{found:#?}");
        assert!(
            !found.iter().any(|line| line.ends_with(['{', '}']) && !line.starts_with('#')),
            "{found:#?}"
        );
    }
}
