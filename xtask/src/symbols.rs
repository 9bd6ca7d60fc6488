//! Compares the symbols that a shared object exports with lists of the symbols that it must export.

use std::collections::BTreeSet;

use anyhow::{Result, bail, ensure};

use crate::machine::Machine;

/// All symbols of libaio.so.1. Source: `readelf --dyn-syms` of libaio 0.3.113.
const LIBAIO: &str = "
    LIBAIO_0.1 io_queue_init@@LIBAIO_0.1 io_queue_run@@LIBAIO_0.1 io_queue_release@@LIBAIO_0.1
    io_submit@@LIBAIO_0.1 io_cancel@LIBAIO_0.1 io_getevents@LIBAIO_0.1 io_queue_wait@LIBAIO_0.1
    LIBAIO_0.4 io_setup@@LIBAIO_0.4 io_destroy@@LIBAIO_0.4 io_cancel@@LIBAIO_0.4
    io_getevents@@LIBAIO_0.4 io_queue_wait@@LIBAIO_0.4
    LIBAIO_0.5 io_pgetevents@@LIBAIO_0.5";

/// Symbols that the preload library must export, with or without a symbol version.
const PRELOAD: &str = "
    io_setup io_destroy io_submit io_cancel io_getevents io_pgetevents
    close dup2 dup3 close_range closefrom _exit execve syscall";

/// More symbols that the preload library must export if it is built for glibc.
const PRELOAD_OF_GLIBC: &str = "
    sigaction signal sysconf
    aio_read aio_write aio_fsync aio_error aio_return aio_suspend aio_cancel aio_init lio_listio
    aio_read64 aio_write64 aio_fsync64 aio_error64 aio_return64 aio_suspend64 aio_cancel64
    lio_listio64";

/// The beginnings of names that the preload library must not export: names of Rust, and functions
/// that the C files call.
const INTERNAL: &[&str] = &["_R", "_ZN", "__rust", "__rdl", "__rg", "rust_", "nowait_"];

/// `readelf` is the output of `readelf --dyn-syms -W`.
pub(crate) fn check_libaio(_: Machine, readelf: &str) -> Result<()> {
    let (found, expected) = (exports(readelf), LIBAIO.split_whitespace().collect());
    report("libaio.so.1", &(&expected - &found), &(&found - &expected))
}

/// The library may export names beyond its lists, but not internal ones.
pub(crate) fn check_preload(machine: Machine, readelf: &str) -> Result<()> {
    let mut found = exports(readelf);
    let names = found.iter().map(|symbol| symbol.split('@').next().unwrap_or(symbol)).collect();
    let of_glibc = if machine.is_musl() { "" } else { PRELOAD_OF_GLIBC };
    let expected: BTreeSet<&str> =
        PRELOAD.split_whitespace().chain(of_glibc.split_whitespace()).collect();
    found.retain(|symbol| INTERNAL.iter().any(|prefix| symbol.starts_with(prefix)));
    report("libnowait_preload.so", &(&expected - &names), &found)
}

/// `readelf` is the output of `readelf -dW`.
pub(crate) fn check_dynamic(readelf: &str, soname: &str) -> Result<()> {
    const ALLOWED: &[&str] = &["libc.so", "libgcc_s.so", "libpthread.so", "libdl.so", "libm.so"];
    let mut named = false;
    for line in readelf.lines() {
        let value = line.split(['[', ']']).nth(1).unwrap_or_default();
        named |= line.contains("(SONAME)") && value == soname;
        let usual =
            ALLOWED.iter().any(|name| value.starts_with(name)) || value.contains("ld-linux");
        if line.contains("(NEEDED)") && !usual {
            bail!("{soname} needs {value}, which not every program can load");
        }
        ensure!(!line.contains("(TEXTREL)"), "{soname}: something was not built with -fPIC");
    }
    ensure!(named, "the soname is not {soname}");
    Ok(())
}

/// `name@@VERSION` is the default version, `name@VERSION` a hidden one for old programs, and `name`
/// has no version.
fn exports(readelf: &str) -> BTreeSet<&str> {
    let rows = readelf.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let exported = rows.filter_map(|row| {
        let [number, _, _, _, bind, _, index, symbol, ..] = row[..] else { return None };
        let is_row = number.strip_suffix(':').is_some_and(|digits| digits.parse::<u32>().is_ok());
        (is_row && bind != "LOCAL" && index != "UND").then_some(symbol)
    });
    exported.collect()
}

fn report(library: &str, missing: &BTreeSet<&str>, surplus: &BTreeSet<&str>) -> Result<()> {
    let missing = missing.iter().map(|symbol| format!("\n  missing: {symbol}"));
    let surplus = surplus.iter().map(|symbol| format!("\n  must not be exported: {symbol}"));
    let wrong: String = missing.chain(surplus).collect();
    ensure!(wrong.is_empty(), "{library}: wrong exports{wrong}");
    Ok(())
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
        check_libaio(machine::OWN, &table(&symbols)).unwrap();
        symbols.retain(|&symbol| symbol != "io_getevents@@LIBAIO_0.4");
        let error = check_libaio(machine::OWN, &table(&symbols)).unwrap_err();
        assert!(error.to_string().contains("missing: io_getevents@@LIBAIO_0.4"), "{error}");
    }

    #[test]
    fn a_leaked_symbol_is_caught() {
        assert!(check_libaio(machine::OWN, &table(&words(&[LIBAIO, "nowait_io_submit"]))).is_err());
        let musl = Machine::named("musl").unwrap();
        for (machine, lists, is_right) in [
            (machine::OWN, &[PRELOAD, PRELOAD_OF_GLIBC][..], true),
            (machine::OWN, &[PRELOAD], false),
            (musl, &[PRELOAD], true),
            (machine::OWN, &[PRELOAD, PRELOAD_OF_GLIBC, "_ZN3std2io5stdio6_print"], false),
        ] {
            assert_eq!(check_preload(machine, &table(&words(lists))).is_ok(), is_right);
        }
    }

    #[test]
    fn dependencies_and_soname_are_checked() {
        let good = " 0x1 (NEEDED) Shared library: [libc.so.6]\n \
                    0xe (SONAME) Library soname: [libaio.so.1]\n";
        check_dynamic(good, "libaio.so.1").unwrap();
        for bad in [
            good.replace("soname: [libaio.so.1]", "soname: [libaio.so.2]"),
            good.replace("libc.so.6", "libaio.so.1"),
            good.to_owned() + " 0x16 (TEXTREL) 0x0\n",
        ] {
            assert!(check_dynamic(&bad, "libaio.so.1").is_err(), "{bad}");
        }
    }
}
