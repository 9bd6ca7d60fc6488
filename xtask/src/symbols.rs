//! Compares what a shared object exports with what it must export.

use std::collections::BTreeSet;

use crate::machine::Machine;
use crate::process::Result;

/// Everything that libaio.so.1 exports, and the only things.
/// Source: `readelf --dyn-syms` of libaio 0.3.113.
const LIBAIO: &str = "
    LIBAIO_0.1 io_queue_init@@LIBAIO_0.1 io_queue_run@@LIBAIO_0.1 io_queue_release@@LIBAIO_0.1
    io_submit@@LIBAIO_0.1 io_cancel@LIBAIO_0.1 io_getevents@LIBAIO_0.1 io_queue_wait@LIBAIO_0.1
    LIBAIO_0.4 io_setup@@LIBAIO_0.4 io_destroy@@LIBAIO_0.4 io_cancel@@LIBAIO_0.4
    io_getevents@@LIBAIO_0.4 io_queue_wait@@LIBAIO_0.4
    LIBAIO_0.5 io_pgetevents@@LIBAIO_0.5";

/// What the preload library exports at least, at any version.
const PRELOAD: &str = "
    io_setup io_destroy io_submit io_cancel io_getevents io_pgetevents
    close dup2 dup3 close_range closefrom _exit execve syscall";

/// And with glibc.
const PRELOAD_OF_GLIBC: &str = "
    sigaction signal sysconf
    aio_read aio_write aio_fsync aio_error aio_return aio_suspend aio_cancel aio_init lio_listio
    aio_read64 aio_write64 aio_fsync64 aio_error64 aio_return64 aio_suspend64 aio_cancel64
    lio_listio64";

/// How names begin that must stay inside: Rust's own, and the functions that the C files call.
const INTERNAL: &[&str] = &["_R", "_ZN", "__rust", "__rdl", "__rg", "rust_", "nowait_"];

/// Checks the exports of libaio.so.1, given as the output of `readelf --dyn-syms -W`.
///
/// # Errors
/// A symbol is missing, or one too many is exported: a program might bind to it by accident.
pub(crate) fn check_libaio(_: Machine, readelf: &str) -> Result {
    let (found, expected) = (exports(readelf), LIBAIO.split_whitespace().collect());
    report("libaio.so.1", &(&expected - &found), &(&found - &expected))
}

/// Checks the exports of the preload library in the same way; it may export more.
///
/// # Errors
/// A symbol is missing, or an internal one is exported.
pub(crate) fn check_preload(machine: Machine, readelf: &str) -> Result {
    let mut found = exports(readelf);
    let names = found.iter().map(|symbol| symbol.split('@').next().unwrap_or(symbol)).collect();
    let of_glibc = if machine.is_musl() { "" } else { PRELOAD_OF_GLIBC };
    let expected: BTreeSet<&str> =
        PRELOAD.split_whitespace().chain(of_glibc.split_whitespace()).collect();
    found.retain(|symbol| INTERNAL.iter().any(|prefix| symbol.starts_with(prefix)));
    report("libnowait_preload.so", &(&expected - &names), &found)
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

/// Reads the defined, visible symbols from the table that `readelf` prints: `name@@VERSION` is the
/// default, `name@VERSION` a hidden one for old programs, `name` has no version.
fn exports(readelf: &str) -> BTreeSet<&str> {
    let rows = readelf.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let exported = rows.filter_map(|row| {
        // Num: Value Size Type Bind Vis Ndx Name
        let [number, _, _, _, bind, _, index, symbol, ..] = row[..] else { return None };
        let is_row = number.strip_suffix(':').is_some_and(|digits| digits.parse::<u32>().is_ok());
        (is_row && bind != "LOCAL" && index != "UND").then_some(symbol)
    });
    exported.collect()
}

fn report(library: &str, missing: &BTreeSet<&str>, surplus: &BTreeSet<&str>) -> Result {
    let missing = missing.iter().map(|symbol| format!("\n  missing: {symbol}"));
    let surplus = surplus.iter().map(|symbol| format!("\n  must not be exported: {symbol}"));
    let wrong: String = missing.chain(surplus).collect();
    if wrong.is_empty() { Ok(()) } else { Err(format!("{library}: wrong exports{wrong}")) }
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

    fn words<'a>(lists: &[&'a str]) -> Vec<&'a str> {
        lists.iter().flat_map(|list| list.split_whitespace()).collect()
    }

    #[test]
    fn the_exact_list_passes_and_a_missing_version_is_caught() {
        let mut symbols = words(&[LIBAIO]);
        assert_eq!(check_libaio(machine::OWN, &table(&symbols)), Ok(()));
        symbols.retain(|&symbol| symbol != "io_getevents@@LIBAIO_0.4");
        let message = check_libaio(machine::OWN, &table(&symbols)).unwrap_err();
        assert!(message.contains("missing: io_getevents@@LIBAIO_0.4"), "{message}");
    }

    #[test]
    fn a_leaked_symbol_is_caught() {
        let symbols = words(&[LIBAIO, "nowait_io_submit"]);
        assert!(check_libaio(machine::OWN, &table(&symbols)).is_err());
        let mut symbols = words(&[PRELOAD, PRELOAD_OF_GLIBC]);
        let check = |symbols: &[&str]| check_preload(machine::OWN, &table(symbols));
        assert_eq!(check(&symbols), Ok(()));
        assert!(check(&symbols[1..]).is_err());
        symbols.push("_ZN3std2io5stdio6_print");
        assert!(check(&symbols).is_err());
        let plain = words(&[PRELOAD]);
        assert!(check(&plain).is_err());
        assert_eq!(check_preload(Machine::named("musl").unwrap(), &table(&plain)), Ok(()));
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
