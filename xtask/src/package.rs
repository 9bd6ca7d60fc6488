//! Packs what dist/ holds, by the tools of the distributions, into dist/packages/.
//!
//! ```text
//!   python/nowait, its module ─┐
//!   dist/ ─ cargo x install ─┬─┴ packaging/debian ──── dpkg-buildpackage ─► *.deb
//!                            ├─ packaging/nowait.spec ─ rpmbuild ─────────► *.rpm
//!                            └─────────────────────────  tar ─────────────► *.tar.xz
//!   *.deb and what they depend on ─ mmdebstrap, umoci ────────────────────► *.oci.tar
//! ```
//!
//! The same dist/ gives the same bytes: all times in a package are those of `SOURCE_DATE_EPOCH`,
//! or of the last commit.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::dist::{create_folder, missing_program};
use crate::process::{self, Result};
use crate::python;
use crate::tool::Tool;

const VERSION: &str = env!("CARGO_PKG_VERSION");
/// The Debian release that the programs of the image come from.
const IMAGE_BASE: &str = "bookworm";

const CYCLONEDX: Tool = Tool {
    package: "cargo-cyclonedx",
    version: "0.5.9",
    says: "cargo-cyclonedx-cyclonedx 0.5.9",
    ask: &["cyclonedx", "--version"],
    features: &[],
};
/// Folders of crates, each with the package that holds what is linked from it.
const SBOMS: &[(&str, &str)] = &[
    ("crates/cli/nowait", "nowait"),
    ("crates/serve/serve", "nowait-serve"),
    ("crates/bench/bench", "nowait-bench"),
    ("crates/api/faces", "nowait-runtime"),
    ("crates/api/capi", "libnowait"),
];

/// Makes the packages of one kind: `deb`, `rpm`, `tarball`, `oci` or `sbom`.
///
/// # Errors
/// dist/ has not been built, a tool is missing or fails, or the kind is unknown.
pub(crate) fn run(kind: &str) -> Result {
    let root = process::root();
    if let Some(missing) = missing_program(&root.join("dist")) {
        return Err(format!("{kind}: dist/{missing} is missing; run `make dist` first"));
    }
    let staged = process::target().join("packages").join(kind);
    empty(&staged)?;
    let job = Job { kind, staged, root, epoch: epoch()? };
    create_folder(&job.packages())?;
    match kind {
        "deb" => job.deb(),
        "rpm" => job.rpm(),
        "tarball" => job.tarball(),
        "oci" => job.oci(),
        "sbom" => job.sbom(),
        _ => Err(format!("{kind}: no such kind of package: deb, rpm, tarball, oci, sbom")),
    }
}

struct Job<'a> {
    kind: &'a str,
    /// A folder of this job alone, empty at first.
    staged: PathBuf,
    root: PathBuf,
    /// Seconds since 1970: the time of all files.
    epoch: String,
}

impl Job<'_> {
    fn packages(&self) -> PathBuf {
        self.root.join("dist/packages")
    }

    fn command(&self, program: &str, args: &[&str]) -> Command {
        let mut command = process::command(program, args);
        command.env("SOURCE_DATE_EPOCH", &self.epoch).env("LC_ALL", "C.UTF-8").env("TZ", "UTC");
        command
    }

    fn deb(&self) -> Result {
        let source = self.staged.join(format!("nowait-{VERSION}"));
        copy_folder(&self.root.join("packaging/debian"), &source.join("debian"))?;
        same_version(
            &self.root.join("packaging/debian/changelog"),
            &format!("nowait ({VERSION})"),
        )?;
        python::install(&source.join("python"))?;
        // Where a file is older than the time of all, its own would go into the package.
        let time = format!("--date=@{}", self.epoch);
        let debian = source.join("debian").display().to_string();
        let args = [&debian, "-exec", "touch", &time, "{}", "+"];
        process::output(self.command("find", &args))?;
        // Rust is not one of Debian's packages here: its own check would miss it.
        let args = ["--build=binary", "--no-sign", "--no-check-builddeps"];
        let mut build = self.command("dpkg-buildpackage", &args);
        build.current_dir(&source).env("TOP", &self.root).env("DEB_BUILD_OPTIONS", "nocheck");
        run_quietly(build)?;
        self.keep(&self.staged, ".deb")
    }

    fn rpm(&self) -> Result {
        let spec = self.root.join("packaging/nowait.spec");
        same_version(&spec, &format!("- {VERSION}-1"))?;
        let define = |name: &str, value: &str| format!("{name} {value}");
        let topdir = define("_topdir", &self.staged.display().to_string());
        let top = define("top", &self.root.display().to_string());
        let version = define("nowait_version", VERSION);
        let definitions = [
            topdir.as_str(),
            top.as_str(),
            version.as_str(),
            "debug_package %{nil}",
            // Of a distribution of rpm, also where this one is none.
            "_libdir /usr/lib64",
            "use_source_date_epoch_as_buildtime 1",
            "clamp_mtime_to_source_date_epoch 1",
            "_buildhost localhost",
            "_build_id_links none",
        ];
        let mut build = self.command("rpmbuild", &["-bb", "--quiet"]);
        build.args(definitions.iter().flat_map(|definition| ["--define", definition]));
        build.arg(&spec);
        run_quietly(build)?;
        self.keep(&self.staged.join("RPMS").join(env::consts::ARCH), ".rpm")
    }

    /// Two archives: what runs anywhere it is unpacked, and the debug information of the programs.
    fn tarball(&self) -> Result {
        let name = format!("nowait-{VERSION}-{}-linux", env::consts::ARCH);
        let tree = self.staged.join(&name);
        for part in ["bin", "include", "lib", "share"] {
            copy_folder(&self.root.join("dist").join(part), &tree.join(part))?;
        }
        for text in ["README.md", "LICENSE-APACHE", "LICENSE-MIT"] {
            copy(&self.root.join(text), &tree.join(text))?;
        }
        let debug = format!("{name}/lib/debug");
        let apart = format!("--exclude={debug}");
        self.tar(&format!("{name}.tar.xz"), &[&apart, &name])?;
        self.tar(&format!("{name}-debug.tar.xz"), &[&debug])
    }

    fn tar(&self, name: &str, what: &[&str]) -> Result {
        let file = self.packages().join(name);
        let time = format!("--mtime=@{}", self.epoch);
        let options = ["--sort=name", "--owner=0", "--group=0", "--numeric-owner", "--format=gnu"];
        let mut tar = self.command("tar", &["--create", "--xz", &time]);
        // With several threads xz(1) cuts the archive into blocks.
        tar.env("XZ_OPT", "--threads=1");
        tar.args(options).arg("--mode=u=rwX,go=rX").arg("--file").arg(&file);
        run_quietly({
            tar.arg("--directory").arg(&self.staged).args(what);
            tar
        })?;
        said(&file);
        Ok(())
    }

    /// An image with the tool, the servers and the libraries, for `COPY --from` and for an init
    /// container.
    fn oci(&self) -> Result {
        let debs: Vec<PathBuf> = ["nowait", "nowait-serve", "nowait-runtime"]
            .iter()
            .map(|name| find(&self.packages(), &format!("{name}_{VERSION}_"), ".deb"))
            .collect::<Result<_>>()
            .map_err(|error| format!("{error}; run `make deb` first"))?;
        let base = self.staged.join("base.tar");
        let mut root = self.command("mmdebstrap", &["--quiet", "--variant=minbase", "--mode=root"]);
        root.arg("--hook-dir=/usr/share/mmdebstrap/hooks/file-mirror-automount")
            .arg("--dpkgopt=path-exclude=/usr/share/doc/*")
            .arg("--dpkgopt=path-exclude=/usr/share/man/*");
        for deb in &debs {
            root.arg(format!("--include={}", deb.display()));
        }
        root.arg(IMAGE_BASE).arg(&base);
        run_quietly(root)?;
        let layout = self.staged.join("layout");
        let image = format!("{}:{VERSION}", layout.display());
        let layout_text = layout.display().to_string();
        run_quietly(self.command("umoci", &["init", "--layout", &layout_text]))?;
        run_quietly(self.command("umoci", &["new", "--image", &image]))?;
        let base = base.display().to_string();
        run_quietly(self.command("umoci", &["raw", "add-layer", "--image", &image, &base]))?;
        let created = self.created()?;
        let config = [
            "config",
            "--image",
            &image,
            "--created",
            &created,
            "--config.entrypoint",
            "/usr/bin/nowait",
            "--config.cmd",
            "doctor",
        ];
        run_quietly(self.command("umoci", &config))?;
        run_quietly(self.command("umoci", &["gc", "--layout", &layout_text]))?;
        let file = self.packages().join(format!("nowait-{VERSION}-{}.oci.tar", env::consts::ARCH));
        let time = format!("--mtime=@{}", self.epoch);
        let mut tar = self.command("tar", &["--create", &time, "--sort=name", "--owner=0"]);
        tar.args(["--group=0", "--numeric-owner", "--format=gnu", "--file"]).arg(&file);
        tar.arg("--directory").arg(&layout).arg(".");
        run_quietly(tar)?;
        said(&file);
        Ok(())
    }

    /// Lists the crates of the programs and the libraries, as CycloneDX has it.
    fn sbom(&self) -> Result {
        // In a copy: the program writes beside every manifest.
        for part in ["Cargo.toml", "Cargo.lock", "crates", "tests", "xtask"] {
            copy_folder(&self.root.join(part), &self.staged.join(part))?;
        }
        let program = CYCLONEDX.program()?;
        let args = ["cyclonedx", "--format", "json", "--override-filename", "sbom"];
        let mut describe = self.command(&program, &args);
        describe.current_dir(&self.staged).arg("--no-build-deps");
        run_quietly(describe)?;
        let here = format!("file://{}", self.staged.display());
        for (folder, name) in SBOMS {
            let from = self.staged.join(folder).join("sbom.json");
            let text = fs::read_to_string(&from)
                .map_err(|error| format!("{}: {error}", from.display()))?;
            let to = self.packages().join(format!("{name}-{VERSION}.cdx.json"));
            fs::write(&to, text.replace(&here, "file://."))
                .map_err(|error| format!("{}: {error}", to.display()))?;
            said(&to);
        }
        Ok(())
    }

    /// The time of all files as RFC 3339 has it.
    fn created(&self) -> Result<String> {
        let at = format!("--date=@{}", self.epoch);
        let text = process::output(self.command("date", &["--utc", &at, "+%Y-%m-%dT%H:%M:%SZ"]))?;
        Ok(text.trim().to_owned())
    }

    /// Moves the packages that a tool has left in `folder` to dist/packages/.
    fn keep(&self, folder: &Path, ending: &str) -> Result {
        let built = entries(folder, ending)?;
        if built.is_empty() {
            return Err(format!("{}: no *{ending} in {}", self.kind, folder.display()));
        }
        for from in built {
            let to = self.packages().join(from.file_name().unwrap_or_default());
            copy(&from, &to)?;
            said(&to);
        }
        Ok(())
    }
}

fn said(file: &Path) {
    let length = fs::metadata(file).map_or(0, |metadata| metadata.len());
    println!("{:<72} {:>6} KiB", file.display(), length.div_ceil(1024));
}

/// Runs a tool that says much; that is shown only where it fails.
fn run_quietly(command: Command) -> Result {
    let mut lines = Vec::new();
    process::stream(command, |line| lines.push(line.to_owned()))
        .map_err(|error| format!("{}\n{error}", lines.join("\n")))
}

fn same_version(file: &Path, wanted: &str) -> Result {
    let text = fs::read_to_string(file).map_err(|error| format!("{}: {error}", file.display()))?;
    match text.contains(wanted) {
        true => Ok(()),
        false => Err(format!("{}: no entry for version {VERSION}", file.display())),
    }
}

fn epoch() -> Result<String> {
    if let Ok(given) = env::var("SOURCE_DATE_EPOCH") {
        return match given.parse::<u64>() {
            Ok(_) => Ok(given),
            Err(_) => Err(format!("SOURCE_DATE_EPOCH={given}: not a number of seconds")),
        };
    }
    let commit = process::output(process::command("git", &["log", "-1", "--format=%ct"]))
        .map_err(|error| format!("{error}\nset SOURCE_DATE_EPOCH to the seconds since 1970"))?;
    Ok(commit.trim().to_owned())
}

fn empty(folder: &Path) -> Result {
    if folder.exists() {
        fs::remove_dir_all(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    }
    create_folder(folder)
}

fn entries(folder: &Path, ending: &str) -> Result<Vec<PathBuf>> {
    let describe = |error| format!("{}: {error}", folder.display());
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).map_err(describe)? {
        let path = entry.map_err(describe)?.path();
        if path.to_string_lossy().ends_with(ending) {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}

fn find(folder: &Path, beginning: &str, ending: &str) -> Result<PathBuf> {
    let named = |path: &PathBuf| {
        path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(beginning))
    };
    entries(folder, ending)?
        .into_iter()
        .find(named)
        .ok_or_else(|| format!("{}: no {beginning}*{ending}", folder.display()))
}

/// Copies with links, modes and times as they are.
fn copy_folder(from: &Path, to: &Path) -> Result {
    create_folder(to.parent().unwrap_or(to))?;
    let mut command = process::command("cp", &["-a"]);
    command.arg(from).arg(to);
    process::output(command).map(drop)
}

fn copy(from: &Path, to: &Path) -> Result {
    fs::copy(from, to).map(drop).map_err(|error| format!("{}: {error}", to.display()))
}
