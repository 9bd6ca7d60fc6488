//! Builds programs with the C API in dist/: through pkg-config, shared and static, in C and C++.

use nowait_tests::{
    program::{Output, Program},
    scratch::Scratch,
    skip,
    subject::built,
};
use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

#[derive(Clone, Copy)]
struct Build {
    compiler: &'static str,
    standard: &'static str,
    is_static: bool,
    address_sanitizer: bool,
}

const C: Build =
    Build { compiler: "cc", standard: "-std=c11", is_static: false, address_sanitizer: false };
const CPP: Build = Build { compiler: "c++", standard: "-std=c++17", ..C };

const BUILDS: &[Build] = &[
    C,
    Build { is_static: true, ..C },
    CPP,
    Build { is_static: true, ..CPP },
    Build { address_sanitizer: true, ..C },
    Build { address_sanitizer: true, is_static: true, ..C },
];

impl Build {
    fn program(self, scratch: &Scratch, source: &str) -> Program {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(source);
        let path = scratch.file("program");
        let mut compiler = Program::new(self.compiler).args([
            self.standard,
            "-Wall",
            "-Wextra",
            "-Werror",
            "-pedantic",
            "-O1",
            "-g",
        ]);
        if self.compiler == "c++" {
            compiler = compiler.args(["-x", "c++"]);
        }
        if self.address_sanitizer {
            compiler = compiler.args(["-fsanitize=address,undefined", "-fno-omit-frame-pointer"]);
        }
        // After `-x c++` the compiler would read a library as a source.
        let compiler = compiler.arg(source).args(["-x", "none", "-o"]).arg(&path);
        compiler.args(self.flags(scratch)).succeed();
        let program = Program::new(path).env("ASAN_OPTIONS", "detect_leaks=1:abort_on_error=0");
        if self.is_static { program } else { program.env("LD_LIBRARY_PATH", libraries()) }
    }

    /// Returns pkg-config's flags. For a static build, pkg-config reads a folder with the static
    /// library and without the shared library.
    fn flags(self, scratch: &Scratch) -> Vec<String> {
        let mut pkg_config = Program::new("pkg-config").args(["--cflags", "--libs", "nowait"]);
        let mut folder = libraries();
        if self.is_static {
            folder = scratch.folder("static/lib");
            let include = scratch.folder("static/include");
            scratch.folder("static/lib/pkgconfig");
            for file in ["libnowait.a", "pkgconfig/nowait.pc"] {
                fs::copy(built(&format!("lib/{file}")), folder.join(file)).unwrap();
            }
            fs::copy(built("include/nowait.h"), include.join("nowait.h")).unwrap();
            pkg_config = pkg_config.arg("--static");
        }
        let output = pkg_config.env("PKG_CONFIG_PATH", folder.join("pkgconfig")).succeed();
        output.stdout.split_whitespace().map(str::to_owned).collect()
    }
}

fn libraries() -> PathBuf {
    built("lib/libnowait.so").parent().unwrap().to_owned()
}

fn each_build(source: &str, claim: impl Fn(&Scratch, &dyn Fn() -> Program)) {
    let needed = ["cc", "c++", "pkg-config"];
    let Some(()) = skip::unless(skip::missing_program(&needed)) else { return };
    for build in BUILDS {
        let scratch = Scratch::new("c-api");
        claim(&scratch, &|| build.program(&scratch, source));
    }
}

fn numbered(scratch: &Scratch, blocks: u32) -> (PathBuf, Vec<u8>) {
    let path = scratch.file("numbered");
    let mut bytes: Vec<u8> = (0..blocks).flat_map(|n| [n as u8; 4096]).collect();
    bytes.extend_from_slice(b"the end");
    fs::write(&path, &bytes).unwrap();
    (path, bytes)
}

#[test]
fn copy_makes_a_copy() {
    each_build("crates/api/capi/examples/copy.c", |scratch, program| {
        let (from, bytes) = numbered(scratch, 2500);
        let to = scratch.file("copy");
        let output = program().arg(from).arg(&to).succeed();
        assert_eq!(output.stdout, format!("{} bytes\n", bytes.len()));
        assert!(fs::read(to).unwrap() == bytes, "the copy differs");
    });
}

#[test]
fn random_read_reads_by_each_cache_mode_and_backend() {
    each_build("crates/api/capi/examples/random_read.c", |scratch, program| {
        let (path, _) = numbered(scratch, 300);
        let program = program();
        program.arg(&path).args(["1000"]).succeed();
        let again = || Program::new(scratch.file("program")).env("LD_LIBRARY_PATH", libraries());
        for mode in ["direct", "host"] {
            for backend in ["uring", "kaio", "threads"] {
                let program = again().env("NOWAIT_BACKEND", backend).arg(&path);
                let output = program.args(["1000", mode]).succeed();
                assert_eq!(output.stdout, "1000 reads, 4096000 bytes\n", "{output}");
            }
        }
    });
}

#[test]
fn random_read_says_what_is_wrong_in_a_line() {
    let Some(()) = skip::unless(skip::missing_program(&["cc", "pkg-config"])) else { return };
    let scratch = Scratch::new("c-api");
    let program = C.program(&scratch, "crates/api/capi/examples/random_read.c");
    let output = program.args(["/nonexistent", "1"]).run();
    assert_eq!(output.status.code(), Some(1));
    assert!(output.stderr.starts_with("open of /nonexistent: No such file"), "{output}");
    assert_eq!(output.stderr.lines().count(), 1, "{output}");
}

#[test]
fn lend_gives_the_bytes_out() {
    each_build("crates/api/capi/examples/lend.c", |scratch, program| {
        let (path, bytes) = numbered(scratch, 200);
        let Output { stderr, .. } = program().arg(&path).succeed();
        let script = "exec \"$0\" \"$1\" > \"$2\"";
        let out = scratch.file("out");
        let shell = Program::new("sh").args(["-c", script]).arg(scratch.file("program"));
        shell.arg(&path).arg(&out).env("LD_LIBRARY_PATH", libraries()).succeed();
        assert!(fs::read(out).unwrap() == bytes, "the bytes differ");
        // Readahead has cached the next blocks, so the library lends its memory instead of copying.
        let numbers: Vec<u32> = stderr.split(' ').filter_map(|word| word.parse().ok()).collect();
        assert!(numbers[1] < numbers[0], "nothing was lent: {stderr}");
    });
}

#[test]
fn event_loop_answers_every_line() {
    each_build("crates/api/capi/examples/event_loop.c", |scratch, program| {
        let (path, _) = numbered(scratch, 100);
        program();
        let script = "seq 0 100 | \"$0\" \"$1\"";
        let shell = Program::new("sh").args(["-c", script]).arg(scratch.file("program"));
        let output = shell.arg(&path).env("LD_LIBRARY_PATH", libraries()).succeed();
        let mut lines: Vec<&str> = output.stdout.lines().collect();
        lines.sort_by_key(|line| line.split(' ').next().unwrap().parse::<u32>().unwrap());
        assert_eq!(lines.len(), 101, "{output}");
        let sum = |bytes: &[u8]| {
            bytes.iter().fold(0u32, |sum, byte| sum.wrapping_mul(31).wrapping_add((*byte).into()))
        };
        for (number, line) in lines.iter().enumerate() {
            let bytes = if number == 100 { b"the end".to_vec() } else { vec![number as u8; 4096] };
            assert_eq!(*line, format!("{number} {:08x}", sum(&bytes)));
        }
    });
}

#[test]
fn cancel_gives_up_when_its_input_is_silent_and_loses_nothing() {
    each_build("crates/api/capi/examples/cancel.c", |scratch, program| {
        program();
        let run = |script: &str| {
            let shell = Program::new("sh").args(["-c", script]).arg(scratch.file("program"));
            let fifo = scratch.file("fifo");
            shell.arg(fifo).env("LD_LIBRARY_PATH", libraries()).succeed()
        };
        let ended = run("seq 1 3000 | \"$0\" 100000");
        let numbers: Vec<String> = (1..=3000).map(|number: u32| number.to_string()).collect();
        let numbers = numbers.join("\n") + "\n";
        assert!(ended.stdout == numbers, "{ended}");
        assert_eq!(ended.stderr, format!("{} bytes, then the end\n", numbers.len()));
        // The shell also opens the FIFO for writing, so that the program never reads an end of
        // file.
        let silent = run("mkfifo \"$1\" && exec 3<>\"$1\" && echo hello >&3 && \"$0\" 300 <&3");
        assert_eq!(silent.stdout, "hello\n");
        assert_eq!(silent.stderr, "6 bytes, then silence\n");
    });
}

#[test]
fn links_counts_what_is_written_and_nothing_after_a_failure() {
    each_build("crates/api/capi/examples/links.c", |scratch, program| {
        let log = scratch.file("log");
        assert_eq!(program().arg(&log).arg("9").succeed().stdout, "9 records\n");
        let bytes = fs::read(&log).unwrap();
        assert_eq!((bytes.len(), &bytes[..8]), (10 * 4096, &9u64.to_ne_bytes()[..]));
        for (number, record) in bytes.chunks(4096).enumerate().skip(1) {
            assert!(record.iter().all(|byte| usize::from(*byte) == number), "{number}");
        }
        // The limit of 24 blocks of 512 bytes has room for the mark's block and two records.
        let script = "ulimit -f 24; trap '' XFSZ; exec \"$0\" \"$1\" 9";
        let shell = Program::new("sh").args(["-c", script]).arg(scratch.file("program"));
        let output = shell.arg(&log).env("LD_LIBRARY_PATH", libraries()).run();
        assert_eq!(output.status.code(), Some(1), "{output}");
        assert!(output.stderr.starts_with("record 3: 3 steps were not begun\n"), "{output}");
        assert_eq!(fs::read(&log).unwrap()[..8], 2u64.to_ne_bytes(), "the third is not counted");
    });
}

#[test]
fn the_code_on_the_page_about_the_c_api_runs() {
    let needed = ["cc", "c++", "pkg-config"];
    let Some(()) = skip::unless(skip::missing_program(&needed)) else { return };
    for build in [C, CPP] {
        let scratch = Scratch::new("c-api");
        let (path, _) = numbered(&scratch, 4);
        let program = build.program(&scratch, "tests/c_api/pages.c");
        assert_eq!(program.arg(path).succeed().stdout, "done\n");
    }
}

#[test]
fn handles_outlive_what_they_were_made_from_and_fork_leaves_them_alone() {
    each_build("tests/c_api/lifetime.c", |scratch, program| {
        let (path, _) = numbered(scratch, 32);
        assert_eq!(program().arg(path).succeed().stdout, "done\n");
    });
}

#[test]
fn setuid_and_its_like_are_not_hindered() {
    each_build("tests/c_api/setuid.c", |scratch, program| {
        let (path, _) = numbered(scratch, 32);
        assert_eq!(program().arg(path).succeed().stdout, "done\n");
    });
}

#[test]
fn a_shortage_is_not_for_ever() {
    each_build("tests/c_api/shortage.c", |scratch, program| {
        let (path, _) = numbered(scratch, 32);
        assert_eq!(program().arg(path).succeed().stdout, "done\n");
    });
}

/// The program is not linked with the library, but loads it by dlopen(3).
#[test]
fn the_library_may_go_and_come_with_requests_in_flight() {
    let Some(()) = skip::unless(skip::missing_program(&["cc"])) else { return };
    let scratch = Scratch::new("c-api");
    let (path, _) = numbered(&scratch, 32);
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("c_api/plugin.c");
    let include = built("include/nowait.h");
    let compiler = Program::new("cc").args(["-std=gnu11", "-Wall", "-Wextra", "-Werror", "-I"]);
    let compiler = compiler.arg(include.parent().unwrap()).arg(source);
    compiler.arg("-o").arg(scratch.file("program")).succeed();
    for backend in ["uring", "kaio", "threads"] {
        let program = Program::new(scratch.file("program")).env("LD_LIBRARY_PATH", libraries());
        let output = program.env("NOWAIT_BACKEND", backend).arg(&path).succeed();
        assert_eq!(output.stdout, "done\n");
    }
}

fn declared() -> BTreeSet<String> {
    let header = fs::read_to_string(built("include/nowait.h")).unwrap();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates/api/capi/nowait.map");
    let script = fs::read_to_string(script).unwrap();
    let words = script.split(|c: char| !c.is_alphanumeric() && c != '_');
    let names: BTreeSet<String> =
        words.filter(|word| word.starts_with("nowait_")).map(str::to_owned).collect();
    for name in &names {
        assert!(header.contains(&format!("{name}(")), "{name} is not in the header");
    }
    names
}

#[test]
fn the_libraries_show_the_functions_of_the_header_and_nothing_else() {
    let Some(()) = skip::unless(skip::missing_program(&["readelf", "nm"])) else { return };
    let shared = built("lib/libnowait.so");
    let table = Program::new("readelf").args(["-W", "--dyn-syms"]).arg(&shared).succeed().stdout;
    let mut found = BTreeSet::new();
    for line in table.lines() {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let [_, _, _, "FUNC", "GLOBAL" | "WEAK", _, index, symbol] = fields[..] else { continue };
        if index != "UND" {
            let (name, version) = symbol.split_once("@@").expect(symbol);
            assert_eq!(version, "NOWAIT_0.1", "{symbol}");
            found.insert(name.to_owned());
        }
    }
    assert_eq!(found, declared());
    let dynamic = Program::new("readelf").args(["-W", "-d"]).arg(&shared).succeed().stdout;
    assert!(dynamic.contains("soname: [libnowait.so.0]"), "{dynamic}");
    assert_eq!(fs::read_link(shared).unwrap(), Path::new("libnowait.so.0"));

    let nm = Program::new("nm").args(["--defined-only", "--extern-only", "-P"]);
    let table = nm.arg(built("lib/libnowait.a")).succeed().stdout;
    let symbols = table.lines().filter(|line| !line.ends_with(':'));
    let found: BTreeSet<String> =
        symbols.filter_map(|line| line.split(' ').next()).map(str::to_owned).collect();
    assert_eq!(found, declared());
}

#[test]
fn a_mapping_and_a_file_in_each_cache_mode_see_each_other_when_they_should() {
    let scratch = Scratch::new("mapped");
    let program = C.program(&scratch, "tests/c_api/mapped.c");
    let blocks: Vec<u8> = (0..4).flat_map(|block| [block; 4096]).collect();
    let file = |name: &str| {
        let path = scratch.file(name);
        fs::write(&path, &blocks).unwrap();
        path
    };
    let program = program.arg(file("user")).arg(file("host")).arg(file("direct"));
    assert_eq!(program.succeed().stdout, "done\n");
}
