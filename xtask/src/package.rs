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

use anyhow::{Context, Result, bail, ensure};
use xshell::{Cmd, Shell, cmd};

use crate::dist::check_built;
use crate::process::{self, root};
use crate::python;
use crate::tool::Tool;

const VERSION: &str = env!("CARGO_PKG_VERSION");
/// The Debian release that the programs of the image come from.
const IMAGE_BASE: &str = "bookworm";
const PACKAGES: &str = "dist/packages";

const CYCLONEDX: Tool = Tool {
    package: "cargo-cyclonedx",
    version: "0.5.9",
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

/// Makes the packages of one kind.
pub(crate) fn run(kind: &str) -> Result<()> {
    check_built()?;
    let (sh, staged) = (process::shell()?, process::target().join("packages").join(kind));
    sh.remove_path(&staged)?;
    sh.create_dir(&staged)?;
    sh.create_dir(PACKAGES)?;
    let epoch = epoch(&sh)?;
    for (name, value) in [("SOURCE_DATE_EPOCH", &*epoch), ("LC_ALL", "C.UTF-8"), ("TZ", "UTC")] {
        sh.set_var(name, value);
    }
    let job = Job { sh, staged, time: format!("@{epoch}") };
    match kind {
        "deb" => job.deb(),
        "rpm" => job.rpm(),
        "tarball" => job.tarball(),
        "oci" => job.oci(),
        "sbom" => job.sbom(),
        _ => bail!("{kind}: no such kind of package: deb, rpm, tarball, oci, sbom"),
    }
}

/// Returns the seconds since 1970 that all files are dated with.
fn epoch(sh: &Shell) -> Result<String> {
    let given = match env::var("SOURCE_DATE_EPOCH") {
        Ok(given) => given,
        Err(_) => process::output(cmd!(sh, "git log -1 --format=%ct"))
            .context("set SOURCE_DATE_EPOCH to the seconds since 1970")?,
    };
    let seconds: u64 =
        given.trim().parse().with_context(|| format!("SOURCE_DATE_EPOCH={given}"))?;
    Ok(seconds.to_string())
}

struct Job {
    sh: Shell,
    /// A folder of this job alone, empty at first.
    staged: PathBuf,
    /// The time of all files, as date(1) reads it.
    time: String,
}

impl Job {
    fn deb(&self) -> Result<()> {
        self.same_version("packaging/debian/changelog", &format!("nowait ({VERSION})"))?;
        let (sh, time) = (&self.sh, &self.time);
        let source = sh.create_dir(self.staged.join(format!("nowait-{VERSION}")))?;
        process::run(cmd!(sh, "cp -a packaging/debian {source}"))?;
        python::install(sh, &source.join("python"))?;
        // Where a file is older than the time of all, its own would go into the package.
        process::run(cmd!(sh, "find {source}/debian -exec touch --date={time}").args(["{}", "+"]))?;
        let _folder = sh.push_dir(&source);
        // Rust is not one of Debian's packages here: its own check would miss it.
        let build = cmd!(sh, "dpkg-buildpackage --build=binary --no-sign --no-check-builddeps");
        process::output(build.env("TOP", root()).env("DEB_BUILD_OPTIONS", "nocheck"))?;
        self.keep(&self.staged, ".deb")
    }

    fn rpm(&self) -> Result<()> {
        const SPEC: &str = "packaging/nowait.spec";
        self.same_version(SPEC, &format!("- {VERSION}-1"))?;
        let definitions = [
            &format!("_topdir {}", self.staged.display()),
            &format!("top {}", root().display()),
            &format!("nowait_version {VERSION}"),
            "debug_package %{nil}",
            // Of a distribution of rpm, also where this one is none.
            "_libdir /usr/lib64",
            "use_source_date_epoch_as_buildtime 1",
            "clamp_mtime_to_source_date_epoch 1",
            "_buildhost localhost",
            "_build_id_links none",
        ];
        let definitions = definitions.iter().flat_map(|definition| ["--define", definition]);
        process::output(cmd!(self.sh, "rpmbuild -bb --quiet").args(definitions).arg(SPEC))?;
        self.keep(&self.staged.join("RPMS").join(env::consts::ARCH), ".rpm")
    }

    /// Two archives: what runs anywhere it is unpacked, and the debug information of the programs.
    fn tarball(&self) -> Result<()> {
        let (sh, name) = (&self.sh, format!("nowait-{VERSION}-{}-linux", env::consts::ARCH));
        let tree = sh.create_dir(self.staged.join(&name))?;
        let parts = ["bin", "include", "lib", "share"].map(|part| format!("dist/{part}"));
        process::run(cmd!(sh, "cp -a {parts...} {tree}"))?;
        process::run(cmd!(sh, "cp README.md LICENSE-APACHE LICENSE-MIT {tree}"))?;
        let debug = format!("{name}/lib/debug");
        // With several threads xz(1) cuts the archive into blocks.
        let xz = |ending: &str| {
            let tar = self.tar(&format!("{name}{ending}.tar.xz"), &self.staged);
            tar.args(["--xz", "--mode=u=rwX,go=rX"]).env("XZ_OPT", "--threads=1")
        };
        process::run(xz("").arg(format!("--exclude={debug}")).arg(&name))?;
        process::run(xz("-debug").arg(&debug))
    }

    /// Prepares an archive of what lies in `folder`.
    fn tar(&self, name: &str, folder: &Path) -> Cmd<'_> {
        let (sh, time, file) = (&self.sh, &self.time, Path::new(PACKAGES).join(name));
        println!("{}", file.display());
        cmd!(sh, "tar --create --mtime={time} --sort=name --owner=0 --group=0 --numeric-owner")
            .args(["--format=gnu", "--file"])
            .arg(root().join(file))
            .arg("--directory")
            .arg(folder)
    }

    /// An image with the tool, the servers and the libraries, for `COPY --from` and for an init
    /// container.
    fn oci(&self) -> Result<()> {
        let (sh, time, layout) = (&self.sh, &self.time, self.staged.join("layout"));
        let (base, image) =
            (self.staged.join("base.tar"), format!("{}:{VERSION}", layout.display()));
        let debs = ["nowait", "nowait-serve", "nowait-runtime"].map(|name| {
            let wanted = format!("{PACKAGES}/{name}_{VERSION}_");
            let debs = files(sh, Path::new(PACKAGES), ".deb")?;
            let found = debs.iter().find(|deb| deb.to_string_lossy().contains(&wanted));
            let found = found.with_context(|| format!("no {wanted}*.deb; run `make deb` first"))?;
            Ok(format!("--include={}", found.display()))
        });
        let debs = debs.into_iter().collect::<Result<Vec<_>>>()?;
        let created = process::output(cmd!(sh, "date --utc --date={time} +%Y-%m-%dT%H:%M:%SZ"))?;
        let created = created.trim();
        let system = cmd!(sh, "mmdebstrap --quiet --variant=minbase --mode=root")
            .arg("--hook-dir=/usr/share/mmdebstrap/hooks/file-mirror-automount")
            .arg("--dpkgopt=path-exclude=/usr/share/doc/*")
            .arg("--dpkgopt=path-exclude=/usr/share/man/*");
        for command in [
            system.args(debs).arg(IMAGE_BASE).arg(&base),
            cmd!(sh, "umoci init --layout {layout}"),
            cmd!(sh, "umoci new --image {image}"),
            cmd!(sh, "umoci raw add-layer --image {image} {base}"),
            cmd!(sh, "umoci config --image {image} --created {created}").args([
                "--config.entrypoint",
                "/usr/bin/nowait",
                "--config.cmd",
                "doctor",
            ]),
            cmd!(sh, "umoci gc --layout {layout}"),
            self.tar(&format!("nowait-{VERSION}-{}.oci.tar", env::consts::ARCH), &layout).arg("."),
        ] {
            process::output(command)?;
        }
        Ok(())
    }

    /// Lists the crates of the programs and the libraries, as CycloneDX has it.
    fn sbom(&self) -> Result<()> {
        let (sh, staged, program) = (&self.sh, &self.staged, CYCLONEDX.program()?);
        // In a copy: the program writes beside every manifest.
        process::run(cmd!(sh, "cp -a Cargo.toml Cargo.lock crates tests xtask {staged}"))?;
        let folder = sh.push_dir(staged);
        process::output(
            cmd!(sh, "{program} cyclonedx --format json --override-filename sbom")
                .arg("--no-build-deps"),
        )?;
        drop(folder);
        let here = format!("file://{}", staged.display());
        for (folder, name) in SBOMS {
            let text = sh.read_file(staged.join(folder).join("sbom.json"))?;
            let to = format!("{PACKAGES}/{name}-{VERSION}.cdx.json");
            sh.write_file(&to, text.replace(&here, "file://."))?;
            println!("{to}");
        }
        Ok(())
    }

    /// Copies the packages that a tool has left in `folder` to dist/packages/.
    fn keep(&self, folder: &Path, ending: &str) -> Result<()> {
        let built = files(&self.sh, folder, ending)?;
        ensure!(!built.is_empty(), "no *{ending} in {}", folder.display());
        for from in built {
            fs::copy(&from, root().join(PACKAGES).join(from.file_name().unwrap_or_default()))?;
            println!("{PACKAGES}/{}", from.file_name().unwrap_or_default().display());
        }
        Ok(())
    }

    fn same_version(&self, file: &str, wanted: &str) -> Result<()> {
        let is_there = self.sh.read_file(file)?.contains(wanted);
        ensure!(is_there, "{file}: no entry for version {VERSION}");
        Ok(())
    }
}

fn files(sh: &Shell, folder: &Path, ending: &str) -> Result<Vec<PathBuf>> {
    let mut found = sh.read_dir(folder)?;
    found.retain(|path| path.to_string_lossy().ends_with(ending));
    Ok(found)
}
