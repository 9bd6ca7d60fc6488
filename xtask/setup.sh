#!/usr/bin/env bash
# Installs every system package and toolchain component that the other make targets need. With
# `build`, `demo`, `bare`, `packages`, `arm64`, `musl`, `kernels`, `kernels-arm64` or `wheel
# TARGET...`, installs only the packages of that purpose. Does nothing if all are installed. Exit 2:
# something is missing and cannot be installed by this script; with `demo` that is only a message.
set -euo pipefail

# Each entry: packages, then their purpose. "a|b": the first one that the distribution has (the name
# in Debian 12, then that in later releases).
build_packages=(
    "gcc libc6-dev: links programs and libraries"
)
demo_packages=(
    "gcc libc6-dev: links programs and libraries"
    "fio: the program that the demo measures"
    "libaio1|libaio1t64: the system's libaio, which fio uses by itself"
)
bare_packages=(
    "${demo_packages[@]}"
    "patchelf dpkg xz-utils: programs with a C library of their own, in an archive"
)
test_packages=(
    "gcc g++ libc6-dev make pkg-config: compile and link"
    "libaio1|libaio1t64 libaio-dev: the system's libaio, beside which ours is tested"
    "dpkg-dev: says what machine this is"
    "fio stress-ng mariadb-server sysbench: programs that run under nowait"
    "qemu-utils libnbd-bin python3-libnbd nbdkit: clients and servers of images, beside ours"
    "curl openssl: ask object stores, make certificates"
    "xfsprogs btrfs-progs e2fsprogs util-linux fuse3: file systems, loop devices, FUSE"
    "systemd: reads the units of services"
    "strace gdb jq libcap2-bin: look at programs and reports, drop rights"
    "python3 python3-venv: the Python package, an object store"
    "qemu-system-x86 busybox-static: guests with other kernels"
    "patchelf: programs with a C library of their own"
    "llvm: llvm-symbolizer, since thread.suppressions goes by functions' names"
    "chromium: runs the script of a report's page"
)
# Only for `make deb rpm tarball oci` and `make test-packages`.
packaging_packages=(
    "debhelper lintian binutils: deb"
    "elfutils: puts the debug information of programs back for deb"
    "dh-python python3: the Python package as deb"
    "rpm rpmlint: rpm"
    "xz-utils: the archive"
    "mmdebstrap umoci: the image, and the fresh systems of the test"
)
# Only for `make dist ARCH=arm64`, `make dist LIBC=musl` and `make test-kernels`.
arm64_packages=("gcc-aarch64-linux-gnu libc6-dev-arm64-cross: compile and link for arm64")
musl_packages=("musl musl-dev musl-tools: compile and link for musl")
kernels_packages=(
    "qemu-system-x86 mmdebstrap e2fsprogs kmod cpio xz-utils: guests with other kernels"
)
kernels_arm64_packages=("qemu-system-arm: guests on arm64")
components=(rustfmt clippy)          # of the default toolchain: required
nightly_components=(miri rust-src)   # of nightly: for `make miri` and `make sanitize`, optional

say() { printf 'setup: %s\n' "$*" >&2; }

installed() {
    [ "$(dpkg-query -W -f='${db:Status-Status}' "$1" 2>/dev/null)" = installed ]
}

# Prints the missing packages of the list, one a line, with their alternatives; reports their
# purpose.
missing_packages() {
    local entry package name
    for entry in "${packages[@]}"; do
        for package in ${entry%%: *}; do
            for name in ${package//|/ }; do
                if installed "$name"; then continue 2; fi
            done
            say "missing: ${package%%|*} (${entry#*: })"
            printf '%s\n' "$package"
        done
    done
}

# Prints the first alternative that the package lists know.
choose() {
    local name
    for name in ${1//|/ }; do
        if apt-cache show "$name" >/dev/null 2>&1; then printf '%s\n' "$name"; return; fi
    done
    printf '%s\n' "${1%%|*}"
}

give_up() {
    say "$1"
    say "as root, run: apt-get update && apt-get install --no-install-recommends $2"
    exit 2
}

# Runs a command as root; fails if that is not possible.
as_root() {
    if [ "$(id -u)" = 0 ]; then "$@"; else sudo "$@"; fi
}

can_be_root() {
    [ "$(id -u)" = 0 ] && return
    command -v sudo >/dev/null || return
    sudo -n true 2>/dev/null || { [ -t 0 ] && sudo -v; }
}

# A database server among the packages must not start, so a policy forbids services during the call.
install() {
    local policy=/usr/sbin/policy-rc.d own_policy="" status=0
    if [ ! -e "$policy" ]; then
        own_policy=1
        printf '#!/bin/sh\nexit 101\n' | as_root tee "$policy" >/dev/null
        as_root chmod 755 "$policy"
    fi
    as_root env DEBIAN_FRONTEND=noninteractive RUNLEVEL=1 \
        apt-get install -y -qq --no-install-recommends "$@" </dev/null >&2 || status=$?
    if [ -n "$own_policy" ]; then as_root rm -f "$policy"; fi
    return "$status"
}

setup_packages() {
    local missing names=() entry
    if ! command -v dpkg-query >/dev/null; then
        say "this is no Debian: install the likes of:"
        printf 'setup:   %s\n' "${packages[@]}" >&2
        say "then mark it as done: NOWAIT_SETUP=done make ..."
        [ "${NOWAIT_SETUP:-}" = "done" ] && return
        exit 2
    fi
    mapfile -t missing < <(missing_packages)
    [ "${#missing[@]}" = 0 ] && return
    can_be_root || give_up "missing, and neither root nor sudo here: ${missing[*]}" \
        "${missing[*]%%|*}"
    say "installing ${missing[*]}"
    as_root apt-get update -qq </dev/null >&2 || say "apt-get update failed: the old lists are used"
    for entry in "${missing[@]}"; do names+=("$(choose "$entry")"); done
    install "${names[@]}" || give_up "apt-get install failed" "${names[*]}"
}

# Installs the missing packages of the demo if that is possible, otherwise only names them: the
# programs may have been installed under other names, or from elsewhere.
setup_demo() {
    if command -v dpkg-query >/dev/null; then
        [ -n "$(missing_packages 2>/dev/null)" ] || return 0
        if can_be_root; then (setup_packages) && return; else missing_packages >/dev/null; fi
    fi
    say "the demo needs a C compiler (gcc), fio and libaio (libaio1): install what is missing"
}

need_cargo() {
    command -v cargo >/dev/null || { say "no cargo: install Rust 1.95 or later first"; exit 2; }
}

setup_toolchain() {
    need_cargo
    local component
    for component in "${components[@]}"; do
        case $component in rustfmt) cargo fmt --version ;; *) cargo "$component" --version ;; esac \
            >/dev/null 2>&1 && continue
        say "installing $component"
        rustup component add "$component" >&2 || {
            say "missing: run rustup component add $component"
            exit 2
        }
    done
    setup_nightly
}

# A missing part of nightly is only reported: the jobs that need it count as skipped.
setup_nightly() {
    command -v rustup >/dev/null || { say "no rustup: no nightly checks"; return; }
    rustup toolchain list | grep -q '^nightly' ||
        { say "no nightly: no miri, sanitize or fuzz"; return; }
    local have component
    have=$(rustup component list --toolchain nightly --installed)
    for component in "${nightly_components[@]}"; do
        grep -q "^$component" <<<"$have" && continue
        timeout 300 rustup component add --toolchain nightly "$component" >&2 ||
            say "nightly has no $component: the jobs that need it are skipped"
    done
}

# The kernel of the guests in the tests is unpacked, not installed. Without it, the tests with
# guests are skipped.
setup_kernel() {
    local folder name
    folder=$(dirname "$0")/../.stamps/guest-kernel
    compgen -G "$folder/boot/vmlinuz-*" >/dev/null && return
    name=$(apt-cache depends linux-image-cloud-amd64 2>/dev/null |
        sed -n 's/.*Depends: \(linux-image-[0-9].*\)/\1/p' | head -n 1)
    [ -n "$name" ] || { say "no kernel for guests in the package lists"; return; }
    mkdir -p "$folder"
    (
        cd "$folder"
        apt-get download -qq "$name" && dpkg-deb -x "$name"_*.deb . && rm -f "$name"_*.deb
    ) >&2 || say "no kernel for guests: their tests are skipped"
}

# A kernel with ublk for a guest, if the kernel above lacks it (Debian 12). It comes from the
# backports of the same mirror, by separate package lists.
setup_kernel_with_ublk() {
    local stamps folder codename mirror name
    stamps=$(cd "$(dirname "$0")/.." && pwd)/.stamps
    grep -qs '^CONFIG_BLK_DEV_UBLK=[ym]' "$stamps"/guest-kernel/boot/config-* && return
    folder=$stamps/guest-kernel-ublk
    compgen -G "$folder/boot/vmlinuz-*" >/dev/null && return
    codename=$(. /etc/os-release && printf '%s' "${VERSION_CODENAME:-}")
    mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' \
        "Codename: $codename" 'Component: main' 2>/dev/null | head -n 1)
    [ -n "$mirror" ] || { say "no mirror of $codename: no guests with ublk"; return; }
    mkdir -p "$folder/apt/lists/partial" "$folder/apt/cache/archives/partial"
    printf 'deb [signed-by=%s] %s %s-backports main\n' \
        /usr/share/keyrings/debian-archive-keyring.gpg "$mirror" "$codename" >"$folder/apt/list"
    cat >"$folder/apt/conf" <<CONF
Dir::Etc::sourcelist "$folder/apt/list";
Dir::Etc::sourceparts "-";
Dir::State::lists "$folder/apt/lists";
Dir::Cache "$folder/apt/cache";
CONF
    (
        cd "$folder"
        export APT_CONFIG=$folder/apt/conf
        apt-get update -qq
        name=$(apt-cache depends linux-image-cloud-amd64 |
            sed -n 's/.*Depends: \(linux-image-[0-9].*\)/\1/p' | head -n 1)
        apt-get download -qq "$name" && dpkg-deb -x "$name"_*.deb . && rm -rf "$name"_*.deb apt
    ) >&2 || say "no kernel with ublk for guests: their test is skipped"
}

# Object-store servers of other projects, for the tests of images on an object store. S3: one in
# Python, in memory, and one in Go, in files. Google: one in Go. Azure: one in JavaScript. The
# servers in Go need a go command, the one in JavaScript npm. Tests of a missing server are skipped.
moto=("moto[s3]==5.2.1" flask==3.1.3 flask-cors==6.0.2)
go_stores=(
    github.com/versity/versitygw/cmd/versitygw@v1.8.0
    github.com/fsouza/fake-gcs-server@v1.56.1
)
azurite=azurite@3.35.0               # the last for Node.js before 21

# The linter of prose, built by the go command, which compares its sources with the checksum
# database. Without the go command `make lint` skips the prose.
vale=github.com/errata-ai/vale/v3/cmd/vale@v3.17.1

setup_vale() {
    local folder
    folder=$(cd "$(dirname "$0")/.." && pwd)/.stamps/vale
    if grep -qsxF "$vale" "$folder/made-of"; then return; fi
    command -v go >/dev/null || { say "no go: no Vale, prose is not checked"; return; }
    say "installing $vale"
    {
        GOBIN=$folder go install -gcflags='all=-N -l' "$vale" &&
            printf '%s\n' "$vale" >"$folder/made-of"
    } >&2 || say "no Vale: prose is not checked"
}

setup_stores() {
    local folder
    folder=$(cd "$(dirname "$0")/.." && pwd)/.stamps/stores
    if ! grep -qsxF "${moto[*]}" "$folder/moto/made-of"; then
        say "installing ${moto[0]}"
        rm -rf "$folder/moto"
        {
            python3 -m venv "$folder/moto" &&
                "$folder/moto/bin/python" -m pip install -q --disable-pip-version-check \
                    "${moto[@]}" &&
                printf '%s\n' "${moto[*]}" >"$folder/moto/made-of"
        } >&2 || say "no moto: the tests that need it are skipped"
    fi
    setup_azurite "$folder"
    setup_go_stores "$folder"
}

setup_azurite() {
    local folder=$1/azurite
    grep -qsxF "$azurite" "$folder/made-of" && return
    command -v npm >/dev/null || { say "no npm: no $azurite, its tests are skipped"; return; }
    say "installing $azurite"
    rm -rf "$folder"
    mkdir -p "$folder"
    {
        npm install --silent --no-audit --no-fund --ignore-scripts --prefix "$folder" "$azurite" &&
            printf '%s\n' "$azurite" >"$folder/made-of"
    } >&2 || say "no $azurite: its tests are skipped"
}

setup_go_stores() {
    local module name
    for module in "${go_stores[@]}"; do
        name=${module##*/} name=${name%@*}
        [ -x "$1/$name" ] && continue
        command -v go >/dev/null || { say "no go: no $name, its tests are skipped"; continue; }
        say "installing $module"
        # Without optimization the build takes a third less time.
        GOBIN=$1 go install -gcflags='all=-N -l' "$module" >&2 ||
            say "no $name: its tests are skipped"
    done
}

# The standard library of Rust for another machine. The C compiler for it is one of the packages.
setup_target() {
    rustup target list --installed | grep -qx "$1" && return
    rustup target add "$1" >&2 || { say "missing: run rustup target add $1"; exit 2; }
}

# The targets of wheels of the Python package, as in xtask/src/wheels.rs.
wheel_targets=({x86_64,aarch64}-unknown-linux-{gnu,musl})

setup_wheels() {
    local target
    [ $# -gt 0 ] || set -- "${wheel_targets[@]}"
    for target in "$@"; do setup_target "$target"; done
}

packages=("${test_packages[@]}")
case ${1:-} in
    build) packages=("${build_packages[@]}") && need_cargo ;;
    demo) packages=("${demo_packages[@]}") && need_cargo && setup_demo && exit ;;
    bare) packages=("${bare_packages[@]}") && need_cargo ;;
    packages) packages=("${packaging_packages[@]}") ;;
    arm64) packages=("${arm64_packages[@]}") && setup_target aarch64-unknown-linux-gnu ;;
    musl) packages=("${musl_packages[@]}") && setup_target x86_64-unknown-linux-musl ;;
    kernels) packages=("${kernels_packages[@]}") ;;
    kernels-arm64) packages=("${kernels_arm64_packages[@]}") ;;
    wheel) packages=() && setup_wheels "${@:2}" ;;
esac
if [ -n "${1:-}" ]; then
    setup_packages
    exit
fi
say "what the tests need; make demo and make dist need less"
setup_packages
setup_kernel
setup_kernel_with_ublk
setup_stores
setup_vale
setup_toolchain
