//! Compares what a shared object exports with what it must export.

use std::collections::BTreeSet;

use crate::machine::Machine;
use crate::process::Result;

/// A dynamic symbol as `readelf` writes it: `name@@VERSION` is the default, `name@VERSION` a
/// hidden one for old programs, `name` has no version.
type Exports = BTreeSet<String>;

/// Everything that libaio.so.1 exports, and the only things.
/// Source: `readelf --dyn-syms` of libaio 0.3.113.
const LIBAIO: &[&str] = &[
    "io_queue_init@@LIBAIO_0.1",
    "io_queue_run@@LIBAIO_0.1",
    "io_queue_release@@LIBAIO_0.1",
    "io_submit@@LIBAIO_0.1",
    "io_cancel@LIBAIO_0.1",
    "io_getevents@LIBAIO_0.1",
    "io_queue_wait@LIBAIO_0.1",
    "io_setup@@LIBAIO_0.4",
    "io_destroy@@LIBAIO_0.4",
    "io_cancel@@LIBAIO_0.4",
    "io_getevents@@LIBAIO_0.4",
    "io_queue_wait@@LIBAIO_0.4",
    "io_pgetevents@@LIBAIO_0.5",
];

/// The version nodes of libaio.so.1.
const LIBAIO_NODES: &[&str] = &["LIBAIO_0.1", "LIBAIO_0.4", "LIBAIO_0.5"];

/// What the preload library exports at least, at any version.
const PRELOAD: &[&str] = &[
    "io_setup",
    "io_destroy",
    "io_submit",
    "io_cancel",
    "io_getevents",
    "io_pgetevents",
    "close",
    "dup2",
    "dup3",
    "close_range",
    "closefrom",
    "_exit",
    "execve",
    "syscall",
];

/// And with glibc.
const PRELOAD_OF_GLIBC: &[&str] = &[
    "sigaction",
    "signal",
    "aio_read",
    "aio_write",
    "aio_fsync",
    "aio_error",
    "aio_return",
    "aio_suspend",
    "aio_cancel",
    "aio_init",
    "lio_listio",
    "aio_read64",
    "aio_write64",
    "aio_fsync64",
    "aio_error64",
    "aio_return64",
    "aio_suspend64",
    "aio_cancel64",
    "lio_listio64",
    "sysconf",
];

/// How names begin that must stay inside: Rust's own, and the functions that the C files call.
const INTERNAL: &[&str] = &["_R", "_ZN", "__rust", "__rdl", "__rg", "rust_", "nowait_"];

/// Checks the exports of libaio.so.1, given as the output of `readelf --dyn-syms -W`.
///
/// # Errors
/// A symbol is missing, or one too many is exported: a program might bind to it by accident.
pub(crate) fn check_libaio(_: Machine, readelf: &str) -> Result {
    let found = exports(readelf);
    let expected: Exports =
        LIBAIO.iter().chain(LIBAIO_NODES).map(|&name| name.to_owned()).collect();
    let missing: Vec<_> = expected.difference(&found).cloned().collect();
    let surplus: Vec<_> = found.difference(&expected).cloned().collect();
    report("libaio.so.1", &missing, &surplus)
}

/// Checks the exports of the preload library in the same way; it may export more.
///
/// # Errors
/// A symbol is missing, or an internal one is exported.
pub(crate) fn check_preload(machine: Machine, readelf: &str) -> Result {
    let found = exports(readelf);
    let names: BTreeSet<&str> = found.iter().map(|symbol| name(symbol)).collect();
    let of_glibc = if machine.is_musl() { &[] } else { PRELOAD_OF_GLIBC };
    let missing: Vec<_> = PRELOAD
        .iter()
        .chain(of_glibc)
        .filter(|&wanted| !names.contains(wanted))
        .map(|&wanted| wanted.to_owned())
        .collect();
    let internal = |name: &str| INTERNAL.iter().any(|prefix| name.starts_with(prefix));
    let surplus: Vec<_> = found.iter().filter(|symbol| internal(symbol)).cloned().collect();
    report("libnowait_preload.so", &missing, &surplus)
}

/// Checks that a library exports exactly what its version script names, at those versions.
///
/// # Errors
/// A symbol is missing, or one too many is exported.
pub(crate) fn check_script(library: &str, readelf: &str, script: &Script) -> Result {
    let expected: Exports = script
        .iter()
        .flat_map(|(node, names)| {
            let versioned = names.iter().map(move |name| format!("{name}@@{node}"));
            versioned.chain([node.clone()])
        })
        .collect();
    let found = exports(readelf);
    let missing: Vec<_> = expected.difference(&found).cloned().collect();
    let surplus: Vec<_> = found.difference(&expected).cloned().collect();
    report(library, &missing, &surplus)
}

/// The nodes of a version script, each with its symbols.
pub(crate) type Script = Vec<(String, Vec<String>)>;

/// Reads a version script with one version for each symbol.
pub(crate) fn read_script(text: &str) -> Script {
    let code: String =
        text.split("/*").map(|part| part.split_once("*/").map_or(part, |(_, code)| code)).collect();
    let mut script = Script::new();
    for node in code.split('}') {
        let Some((name, body)) = node.split_once('{') else { continue };
        // What stands before the name is the parent of the node before.
        let name = name.rsplit(';').next().unwrap_or(name).trim().to_owned();
        let global = body.split("local:").next().unwrap_or(body).replace("global:", "");
        let symbols = global.split(';').map(str::trim).filter(|symbol| !symbol.is_empty());
        script.push((name, symbols.map(str::to_owned).collect()));
    }
    script
}

/// Checks the dynamic section, given as the output of `readelf -dW`.
///
/// # Errors
/// The name is not `soname`, or a library is needed that not every host program can load.
pub(crate) fn check_dynamic(readelf: &str, soname: &str) -> Result {
    const ALLOWED: &[&str] = &["libc.so", "libgcc_s.so", "libpthread.so", "libdl.so", "libm.so"];
    let mut named = false;
    for line in readelf.lines() {
        let Some(value) = line.split('[').nth(1).and_then(|rest| rest.split(']').next()) else {
            continue;
        };
        if line.contains("(SONAME)") {
            named = value == soname;
        }
        let usual =
            ALLOWED.iter().any(|name| value.starts_with(name)) || value.contains("ld-linux");
        if line.contains("(NEEDED)") && !usual {
            return Err(format!("{soname} needs {value}, which not every program can load"));
        }
    }
    if readelf.contains("(TEXTREL)") {
        return Err(format!("{soname} has text relocations: something was not built with -fPIC"));
    }
    if named { Ok(()) } else { Err(format!("the soname is not {soname}")) }
}

/// Reads the defined, visible symbols from the table that `readelf` prints.
fn exports(readelf: &str) -> Exports {
    let mut exports = Exports::new();
    for line in readelf.lines() {
        let fields: Vec<&str> = line.split_whitespace().collect();
        // Num: Value Size Type Bind Vis Ndx Name
        let [number, _, _, _, bind, _, index, symbol, ..] = fields[..] else { continue };
        let row = number.strip_suffix(':').is_some_and(|digits| digits.parse::<u32>().is_ok());
        if row && bind != "LOCAL" && index != "UND" {
            exports.insert(symbol.to_owned());
        }
    }
    exports
}

fn name(symbol: &str) -> &str {
    symbol.split('@').next().unwrap_or(symbol)
}

fn report(library: &str, missing: &[String], surplus: &[String]) -> Result {
    if missing.is_empty() && surplus.is_empty() {
        return Ok(());
    }
    let mut message = format!("{library}: wrong exports");
    for symbol in missing {
        message.extend(["\n  missing: ", symbol]);
    }
    for symbol in surplus {
        message.extend(["\n  must not be exported: ", symbol]);
    }
    Err(message)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine;

    fn table(symbols: &[&str]) -> String {
        let mut text = String::from("   Num:    Value  Size Type Bind Vis Ndx Name\n");
        text += "     1: 0000000000000000 0 FUNC GLOBAL DEFAULT UND syscall@GLIBC_2.2.5 (5)\n";
        text += "     2: 0000000000000000 0 FUNC LOCAL DEFAULT 13 helper\n";
        for symbol in symbols {
            text.extend(["     3: 0000000000001540 76 FUNC GLOBAL DEFAULT 13 ", symbol, "\n"]);
        }
        text
    }

    fn libaio() -> Vec<&'static str> {
        LIBAIO.iter().chain(LIBAIO_NODES).copied().collect()
    }

    #[test]
    fn the_exact_list_passes() {
        assert_eq!(check_libaio(machine::OWN, &table(&libaio())), Ok(()));
    }

    #[test]
    fn a_missing_version_is_caught() {
        let mut symbols = libaio();
        symbols.retain(|&symbol| symbol != "io_getevents@@LIBAIO_0.4");
        let message = check_libaio(machine::OWN, &table(&symbols)).unwrap_err();
        assert!(message.contains("missing: io_getevents@@LIBAIO_0.4"), "{message}");
    }

    #[test]
    fn a_leaked_symbol_is_caught() {
        let mut symbols = libaio();
        symbols.push("nowait_io_submit");
        assert!(check_libaio(machine::OWN, &table(&symbols)).is_err());
        let mut symbols = [PRELOAD, PRELOAD_OF_GLIBC].concat();
        let check = |symbols: &[&str]| check_preload(machine::OWN, &table(symbols));
        assert_eq!(check(&symbols), Ok(()));
        assert!(check(&symbols[1..]).is_err());
        symbols.push("_ZN3std2io5stdio6_print");
        assert!(check(&symbols).is_err());
        assert!(check(PRELOAD).is_err());
        assert_eq!(check_preload(Machine::named("musl").unwrap(), &table(PRELOAD)), Ok(()));
    }

    #[test]
    fn exports_are_compared_with_the_version_script() {
        let text = "/* c */ V_1 {\n global: a; b;\n local: *;\n};\nV_2 { global: c; } V_1;\n";
        let script = read_script(text);
        let expected = [("V_1", vec!["a", "b"]), ("V_2", vec!["c"])];
        let owned = |(node, names): (&str, Vec<&str>)| {
            (node.to_owned(), names.into_iter().map(str::to_owned).collect())
        };
        assert_eq!(script, expected.map(owned));
        let exported = ["a@@V_1", "b@@V_1", "c@@V_2", "V_1", "V_2"];
        assert_eq!(check_script("x", &table(&exported), &script), Ok(()));
        assert!(check_script("x", &table(&exported[1..]), &script).is_err());
        let leaked = [&exported[..], &["d"]].concat();
        assert!(check_script("x", &table(&leaked), &script).is_err());
    }

    #[test]
    fn dependencies_and_soname_are_checked() {
        let good = " 0x1 (NEEDED) Shared library: [libc.so.6]\n \
                    0xe (SONAME) Library soname: [libaio.so.1]\n";
        assert_eq!(check_dynamic(good, "libaio.so.1"), Ok(()));
        assert!(check_dynamic(good, "libaio.so.2").is_err());
        let bad = good.replace("libc.so.6", "libaio.so.1");
        assert!(check_dynamic(&bad, "libaio.so.1").is_err_and(|text| text.contains("needs")));
    }
}
