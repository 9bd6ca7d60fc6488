//! Compares the header with the library: functions, structures, constants, versions.

use nowait_capi::{Completion, LINK, Options, Range, Request, op};
use std::{collections::BTreeSet, fmt::Write, fs, mem::offset_of, path::PathBuf, process::Command};

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

fn header() -> String {
    fs::read_to_string(folder().join("include/nowait.h")).unwrap()
}

fn compile(name: &str, source: &str) {
    let scratch = tempfile::tempdir().unwrap();
    for (compiler, standard, file) in
        [("cc", "-std=c11", "test.c"), ("c++", "-std=c++17", "test.cc")]
    {
        let path = scratch.path().join(file);
        fs::write(&path, format!("#include <nowait.h>\n{source}")).unwrap();
        let mut command = Command::new(compiler);
        command.args([standard, "-Wall", "-Wextra", "-Werror", "-pedantic-errors"]);
        command.arg("-fsyntax-only").arg("-I").arg(folder().join("include")).arg(&path);
        let output = command.output().unwrap_or_else(|error| panic!("{compiler}: {error}"));
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{name}, {compiler} {standard}:\n{said}");
    }
}

fn exported() -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for file in sources() {
        let text = fs::read_to_string(&file).unwrap();
        for part in text.split("#[unsafe(no_mangle)]").skip(1) {
            let (_, rest) = part.split_once("fn ").unwrap();
            names.insert(rest.split('(').next().unwrap().to_owned());
        }
    }
    names
}

fn sources() -> Vec<PathBuf> {
    let entries = fs::read_dir(folder().join("src")).unwrap();
    entries.map(|entry| entry.unwrap().path()).collect()
}

fn declared(header: &str) -> Vec<(String, &str)> {
    let (mut found, mut rest) = (Vec::new(), header);
    while let Some((comment, after)) = rest.split_once("*/\n") {
        let comment = comment.rsplit_once("/**").map_or("", |(_, comment)| comment);
        rest = after;
        let statement = after.split([';', '{']).next().unwrap_or_default();
        let before = statement.split('(').next().unwrap_or_default();
        let name = before.rsplit([' ', '*']).next().unwrap_or_default();
        let is_function = statement.contains('(') && name.starts_with("nowait_");
        if is_function && !statement.contains("#define") && !statement.contains("/*") {
            found.push((name.to_owned(), comment));
        }
    }
    found
}

#[test]
fn the_header_stands_alone_in_c_and_in_cpp() {
    compile("alone", "int main(void) { return NOWAIT_VERSION == 0; }\n");
}

#[test]
fn every_exported_function_is_declared_documented_and_in_the_version_script() {
    let text = header();
    let declared = declared(&text);
    for (name, comment) in &declared {
        assert!(comment.trim().len() > 20, "{name} has no comment");
    }
    let names: BTreeSet<String> = declared.into_iter().map(|(name, _)| name).collect();
    let inline: BTreeSet<String> =
        names.iter().filter(|name| name.starts_with("nowait_prep")).cloned().collect();
    let exported = exported();
    assert_eq!(names.difference(&inline).cloned().collect::<BTreeSet<_>>(), exported);
    // `declared` does not find a function without a comment: check that it has found each name.
    for word in text.split(|c: char| !c.is_alphanumeric() && c != '_') {
        let called = word.starts_with("nowait_") && text.contains(&format!(" {word}("));
        assert!(!called || names.contains(word), "{word} is declared without a comment");
    }
    let script = fs::read_to_string(folder().join("nowait.map")).unwrap();
    let versioned: BTreeSet<String> = script
        .split(|c: char| !c.is_alphanumeric() && c != '_')
        .filter(|word| word.starts_with("nowait_"))
        .map(str::to_owned)
        .collect();
    assert_eq!(versioned, exported);
}

/// The compiler compares two declarations of each function: the header's, and the one that cbindgen
/// makes from the sources.
#[test]
fn the_declarations_are_those_of_the_library() {
    let renamed = [
        ("Engine", "nowait_engine"),
        ("File", "nowait_file"),
        ("Loan", "nowait_loan"),
        ("Queue", "nowait_queue"),
        ("Options", "nowait_options"),
        ("Request", "nowait_request"),
        ("Completion", "nowait_completion"),
        ("Range", "nowait_range"),
        ("IoVec", "iovec_t"),
    ];
    let mut config = cbindgen::Config {
        language: cbindgen::Language::C,
        usize_is_size_t: true,
        style: cbindgen::Style::Type,
        ..cbindgen::Config::default()
    };
    config.export.item_types = vec![cbindgen::ItemType::Functions];
    let names = renamed.map(|(from, to)| (from.to_owned(), to.to_owned()));
    config.export.rename = names.into_iter().collect();
    let mut builder = cbindgen::Builder::new().with_config(config);
    for source in sources() {
        builder = builder.with_src(source);
    }
    let mut generated = Vec::new();
    builder.generate().unwrap().write(&mut generated);
    let generated = String::from_utf8(generated).unwrap();
    for name in exported() {
        assert!(generated.contains(&name), "cbindgen has not found {name}:\n{generated}");
    }
    let source = "typedef struct iovec iovec_t;\n#ifdef __cplusplus\nextern \"C\" {\n#endif\n";
    compile("cbindgen", &format!("{source}{generated}\n#ifdef __cplusplus\n}}\n#endif\n"));
}

#[test]
fn structures_and_constants_are_those_of_the_library() {
    let mut source =
        String::from("#ifndef __cplusplus\n#define static_assert _Static_assert\n#endif\n");
    let mut assert_equal = |expression: &str, value: usize| {
        writeln!(source, "static_assert({expression} == {value}, \"{expression}\");").unwrap();
    };
    macro_rules! layout {
        ($name:literal, $type:ty, $($field:ident)*) => {
            assert_equal(concat!("sizeof(", $name, ")"), size_of::<$type>());
            $(assert_equal(
                concat!("offsetof(", $name, ", ", stringify!($field), ")"),
                offset_of!($type, $field),
            );)*
        };
    }
    layout!("nowait_options", Options,
        size backend submit workers flags cache_bytes max_requests max_bytes);
    layout!("nowait_request", Request,
        op flags fd file buffer length offset events reserved_events user_data timeout_ns
        reserved);
    layout!("nowait_range", Range, offset length);
    layout!("nowait_completion", Completion, user_data result reserved);
    for (name, value) in [
        ("NOWAIT_OP_READ", op::READ),
        ("NOWAIT_OP_WRITE", op::WRITE),
        ("NOWAIT_OP_READV", op::READV),
        ("NOWAIT_OP_WRITEV", op::WRITEV),
        ("NOWAIT_OP_SYNC", op::SYNC),
        ("NOWAIT_OP_DATASYNC", op::DATASYNC),
        ("NOWAIT_OP_POLL", op::POLL),
        ("NOWAIT_OP_READ_STREAM", op::READ_STREAM),
        ("NOWAIT_OP_WRITE_STREAM", op::WRITE_STREAM),
        ("NOWAIT_OP_SYNC_RANGE", op::SYNC_RANGE),
        ("NOWAIT_OP_READV_STREAM", op::READV_STREAM),
        ("NOWAIT_OP_WRITEV_STREAM", op::WRITEV_STREAM),
        ("NOWAIT_LINK", LINK),
    ] {
        assert_equal(name, value.into());
    }
    assert_equal("NOWAIT_VERSION", nowait_capi::nowait_version() as usize);
    compile("layout", &source);
}
