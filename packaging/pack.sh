#!/usr/bin/env bash
# Packs what dist/ holds, by the tools of the distributions, into dist/packages/.
# Usage: pack.sh deb|rpm|tarball|oci|sbom|bare
#
#   python/nowait, its module -+
#   dist/ - install.sh -----+--+ packaging/debian ---- dpkg-buildpackage -> *.deb
#                           +--- packaging/nowait.spec - rpmbuild --------> *.rpm
#                           +--------------------------  tar -------------> *.tar.xz
#   dist/, fio, glibc - bare/stage.sh - tar -------------------> *-bare.tar.xz
#   *.deb and what they depend on - mmdebstrap, umoci --------------------> *.oci.tar
#
# The same dist/ gives the same bytes: all times in a package are those of SOURCE_DATE_EPOCH, or of
# the last commit.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
kind=$1
version=$(sed -n 's/^version = "\(.*\)"$/\1/p' Cargo.toml)
machine=$(uname -m)
staged=$(realpath -m "${CARGO_TARGET_DIR:-target}")/packages/$kind
export SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)} LC_ALL=C.UTF-8 TZ=UTC
time=@$SOURCE_DATE_EPOCH

give_up() {
    printf '%s: %s\n' "$kind" "$1" >&2
    exit 1
}

# Runs a tool that says much; that is shown only where it fails.
quietly() {
    local said
    said=$("$@" 2>&1) || { printf '%s\n' "$said" >&2 && give_up "$1 failed"; }
}

# Copies packages that a tool has made to dist/packages.
keep() {
    cp "$@" dist/packages/
    (cd dist/packages && ls -s --block-size=KiB "${@##*/}")
}

# The archive NAME of what lies in FOLDER. Usage: archive NAME FOLDER OPTION...
archive() {
    tar --create --mtime="$time" --sort=name --owner=0 --group=0 --numeric-owner --format=gnu \
        --file "$staged/$1" --directory "$2" "${@:3}"
    keep "$staged/$1"
}

make_deb() {
    local source=$staged/nowait-$version
    grep -qF "nowait ($version)" packaging/debian/changelog || give_up "no entry for $version"
    mkdir "$source"
    cp -a packaging/debian "$source"
    cargo x python install "$source/python"
    # Where a file is older than the time of all, its own would go into the package.
    find "$source/debian" -exec touch --date="$time" {} +
    # Rust is not one of Debian's packages here: its own check would miss it.
    (
        export TOP=$PWD DEB_BUILD_OPTIONS=nocheck
        cd "$source"
        quietly dpkg-buildpackage --build=binary --no-sign --no-check-builddeps
    )
    keep "$staged"/*.deb
}

make_rpm() {
    local definition definitions=(
        "_topdir $staged" "top $PWD" "nowait_version $version" "debug_package %{nil}"
        # Of a distribution of rpm, also where this one is none.
        "_libdir /usr/lib64"
        "use_source_date_epoch_as_buildtime 1" "clamp_mtime_to_source_date_epoch 1"
        "_buildhost localhost" "_build_id_links none"
    ) options=()
    grep -qF -- "- $version-1" packaging/nowait.spec || give_up "no entry for $version"
    for definition in "${definitions[@]}"; do options+=(--define "$definition"); done
    quietly rpmbuild -bb --quiet "${options[@]}" packaging/nowait.spec
    keep "$staged/RPMS/$machine"/*.rpm
}

# Two archives: what runs anywhere it is unpacked, and the debug information of the programs.
make_tarball() {
    local name=nowait-$version-$machine-linux
    mkdir "$staged/$name"
    cp -a dist/{bin,include,lib,share} README.md LICENSE-APACHE LICENSE-MIT "$staged/$name"
    # With several threads xz(1) cuts the archive into blocks.
    export XZ_OPT=--threads=1
    archive "$name.tar.xz" "$staged" --xz --mode=u=rwX,go=rX --exclude="$name/lib/debug" "$name"
    archive "$name-debug.tar.xz" "$staged" --xz --mode=u=rwX,go=rX "$name/lib/debug"
}

# What measures a machine that has no package manager and no network: packaging/bare/README.
make_bare() {
    local name=nowait-$version-$machine-bare
    bash packaging/bare/stage.sh "$staged/$name"
    export XZ_OPT="--threads=1 -9"
    archive "$name.tar.xz" "$staged" --xz --mode=u=rwX,go=rX "$name"
}

# An image with the tool, the servers and the libraries, for `COPY --from` and for an init
# container.
make_oci() {
    local name debs=() layout=$staged/layout
    for name in nowait nowait-serve nowait-runtime; do
        debs+=("--include=$(realpath dist/packages/"${name}_${version}"_*.deb)") ||
            give_up "run \`make deb\` first"
    done
    # The programs of the image come from this release of Debian.
    quietly mmdebstrap --quiet --variant=minbase --mode=root \
        --hook-dir=/usr/share/mmdebstrap/hooks/file-mirror-automount \
        --dpkgopt='path-exclude=/usr/share/doc/*' --dpkgopt='path-exclude=/usr/share/man/*' \
        "${debs[@]}" bookworm "$staged/base.tar"
    quietly umoci init --layout "$layout"
    quietly umoci new --image "$layout:$version"
    quietly umoci raw add-layer --image "$layout:$version" "$staged/base.tar"
    quietly umoci config --image "$layout:$version" \
        --created "$(date --utc --date="$time" +%Y-%m-%dT%H:%M:%SZ)" \
        --config.entrypoint /usr/bin/nowait --config.cmd doctor
    quietly umoci gc --layout "$layout"
    archive "nowait-$version-$machine.oci.tar" "$layout" .
}

# Lists the crates of the programs and the libraries, as CycloneDX has it.
make_sbom() {
    local tools entry program=cargo-cyclonedx cyclonedx=0.5.9
    tools=$(realpath -m "${CARGO_TARGET_DIR:-target}")/tools
    PATH=$PATH:$tools/bin
    if ! "$program" cyclonedx --version 2>/dev/null | grep -q " $cyclonedx\$"; then
        echo "installing $program $cyclonedx in $tools (some minutes, once)"
        cargo install --locked "$program" --version "$cyclonedx" --root "$tools"
        program=$tools/bin/$program
    fi
    # In a copy: the program writes beside every manifest.
    cp -a Cargo.toml Cargo.lock crates python tests xtask "$staged"
    (
        cd "$staged"
        quietly "$program" cyclonedx --format json --override-filename sbom --no-build-deps
    )
    # Folders of crates, each with the package that holds what is linked from it.
    for entry in cli/nowait:nowait serve/serve:nowait-serve bench/bench:nowait-bench \
        api/faces:nowait-runtime api/capi:libnowait; do
        sed "s|file://$staged|file://.|g" "$staged/crates/${entry%:*}/sbom.json" \
            >"$staged/${entry#*:}-$version.cdx.json"
        keep "$staged/${entry#*:}-$version.cdx.json"
    done
}

for program in nowait nowait-bench nowait-serve; do
    [ -e "dist/bin/$program" ] || give_up "dist/bin/$program is missing; run \`make dist\` first"
done
case $kind in
    deb | rpm | tarball | oci | sbom | bare) ;;
    *) give_up "no such kind of package: deb, rpm, tarball, oci, sbom, bare" ;;
esac
rm -rf "$staged"
mkdir -p "$staged" dist/packages
"make_$kind"
