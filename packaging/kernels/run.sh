#!/usr/bin/env bash
# Runs the tests of the engine and of its faces on other kernels, in QEMU's interpreter.
# Usage: run.sh [KERNEL...]        needs root, for the file systems of the guests
#   PROGRAMS="borders queue"       only these test programs, by the names that the guest prints
#   REUSE=1                        what was built by the run before, as it is
#
#   kernels          packages of Debian: unpacked, not installed
#   root file system Debian 12's programs, a C compiler among them; one for each architecture
#   test programs    built here, put into the guest under the same paths
#   guest.sh         is the first process there; its logs are read back from the guest's disk
#
# Writes target/kernels/KERNEL/ (console, logs, counts) and prints a table. Takes hours.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

# Prints name, architecture, release of Debian, package. The newest kernel comes from the backports.
kernels() {
    cat <<LIST
5.10   amd64 bullseye           linux-image-cloud-amd64
6.1    amd64 bookworm           linux-image-cloud-amd64
6.12   amd64 trixie             linux-image-cloud-amd64
newest amd64 trixie-backports   linux-image-cloud-amd64
arm64  arm64 bookworm           linux-image-arm64
LIST
}

# The crates, and the names of their tests besides the unit tests. Left out: tests that take long on
# any kernel, and tests that need a server, or another program than a compiler and fio.
crates=(nowait-sys nowait-retry nowait-block nowait-file nowait-engine nowait nowait-process
    nowait-libaio nowait-posix nowait-capi nowait-tests)
tests=(
    conformance interrupt size_limit system threads             # the backends
    cancel destroy engine few_descriptors in_memory leaks limits masks storm streams thread_end
    unmount user                                                # the engine
    advice async_file coherence control file queue several_ways vectored api # Rust and C
    libaio_harness differential posix_aio borders lifecycle fd_lifetime process file_systems
    fio_verify setxid                                           # libaio, POSIX AIO, processes
)

guest_packages=bash,coreutils,util-linux,mount,dash,sed,grep,findutils,mawk,diffutils,procps,kmod
guest_packages+=,busybox-static,gcc,libc6-dev,make,libaio-dev,libaio1,fio,stress-ng,strace,gdb
guest_packages+=,iproute2,e2fsprogs,xfsprogs,btrfs-progs,libcap2-bin,perl-base

work=$PWD/target/kernels
# The emulated processor may have to wait for this machine's: the kernel must not disable a timer
# because of that.
quiet="panic=-1 quiet no_timer_check nowatchdog rcupdate.rcu_cpu_stall_suppress=1"
codename=$(sed -n 's/^VERSION_CODENAME=//p' /etc/os-release)
keyring=/usr/share/keyrings/debian-archive-keyring.gpg

say() { printf 'test-kernels: %s\n' "$*" >&2; }
give_up() { say "$*"; exit 2; }

target_of() { case $1 in amd64) echo x86_64 ;; arm64) echo aarch64 ;; esac; }
is_own() { [ "$1" = "$(dpkg --print-architecture)" ]; }

# Sets up cargo for another architecture: a linker, and the one library of the guest that the tests'
# programs are linked with.
cross_environment() { # ARCHITECTURE
    local target library folder=$work/link-$1
    target=$(target_of "$1")
    library=$work/root-$1/usr/lib/$target-linux-gnu/libaio.so.1
    mkdir -p "$folder"
    ln -sf "$library" "$folder/libaio.so"
    target=CARGO_TARGET_${target^^}_UNKNOWN_LINUX_GNU
    export "${target}_LINKER=$(target_of "$1")-linux-gnu-gcc"
    export "${target}_RUSTFLAGS=-Lnative=$folder"
}

# Prints where this machine gets its packages, and the security updates.
mirror_of() { # CODENAME
    # shellcheck disable=SC2016
    apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' 'Component: main' \
        "Codename: $1" 2>/dev/null | head -n 1
}

# Unpacks a kernel and its modules, and prepares them for any loader.
fetch_kernel() { # NAME ARCHITECTURE RELEASE PACKAGE
    local folder=$work/$1 tree=$work/$1/tree arch=$2 release=$3 package=$4 mirror name version
    if compgen -G "$tree/lib/modules/*/modules.dep.bin" >/dev/null; then return; fi
    rm -rf "$folder"
    mkdir -p "$folder"/apt/lists/partial "$folder"/apt/cache/archives/partial "$tree"
    mirror=$(mirror_of "$codename")
    printf 'deb [signed-by=%s] %s %s main\n' "$keyring" "$mirror" "$release" >"$folder/apt/list"
    mirror=$(mirror_of "$codename-security")
    case $release in
        *-backports) ;;
        *) [ -z "$mirror" ] || printf 'deb [signed-by=%s] %s %s-security main\n' "$keyring" \
            "$mirror" "$release" >>"$folder/apt/list" ;;
    esac
    cat >"$folder/apt/conf" <<CONF
Dir::Etc::sourcelist "$folder/apt/list";
Dir::Etc::sourceparts "-";
Dir::State::lists "$folder/apt/lists";
Dir::State::status "/dev/null";
Dir::Cache "$folder/apt/cache";
APT::Architecture "$arch";
APT::Architectures "$arch";
APT::Sandbox::User "";
CONF
    export APT_CONFIG=$folder/apt/conf
    apt-get update -qq
    # The kernel packages that the newest version depends on, directly or through others.
    local found=("$package") all=()
    while [ "${#found[@]}" -gt 0 ]; do
        mapfile -t found < <(apt-cache depends "${found[@]}" |
            sed -n 's/.*Depends: \(linux-\(image\|binary\|modules\|base\)-[0-9].*\)/\1/p' | sort -u)
        for name in "${found[@]}"; do
            case " ${all[*]} " in *" $name "*) found=() ;; *) all+=("$name") ;; esac
        done
    done
    (cd "$folder/apt/cache/archives" && apt-get download -qq "${all[@]}")
    for name in "$folder"/apt/cache/archives/*.deb; do dpkg-deb -x "$name" "$tree"; done
    unset APT_CONFIG
    rm -rf "$folder/apt"
    mkdir -p "$tree/lib"
    if [ -d "$tree/usr/lib/modules" ]; then mv "$tree/usr/lib/modules" "$tree/lib/"; fi
    find "$tree/lib/modules" -name '*.ko.xz' -exec unxz {} +
    version=$(basename "$tree"/lib/modules/*)
    # Beside the modules from Linux 7.3 on.
    if [ ! -d "$tree/boot" ]; then
        mkdir "$tree/boot"
        mv "$tree/lib/modules/$version/vmlinuz" "$tree/boot/vmlinuz-$version"
    fi
    depmod -b "$tree" "$version"
}

# Unpacks programs of Debian 12; no package script runs, so that any architecture works.
fetch_root() { # ARCHITECTURE
    local root=$work/root-$1
    [ -e "$root/ready" ] && return
    rm -rf --one-file-system "$root"
    mmdebstrap --quiet --variant=extract --mode=root --architectures="$1" \
        --include="$guest_packages" bookworm "$root" "$(mirror_of bookworm)"
    printf 'root:x:0:0:root:/root:/bin/bash\nnobody:x:65534:65534::/:/bin/false\n' \
        >"$root/etc/passwd"
    printf 'root:x:0:\nnogroup:x:65534:\n' >"$root/etc/group"
    ln -sf gcc "$root/usr/bin/cc"
    ln -sf mawk "$root/usr/bin/awk"
    touch "$root/ready"
}

# Builds the test programs of an architecture, and lists them: name, path.
build_tests() { # ARCHITECTURE
    local list=$work/programs-$1 options=() name path
    if ! is_own "$1"; then
        options=(--target "$(target_of "$1")-unknown-linux-gnu")
        cross_environment "$1"
    fi
    for name in "${crates[@]}"; do options+=(-p "$name"); done
    for name in "${tests[@]}"; do options+=(--test "$name"); done
    cargo test --no-run --lib "${options[@]}" 2>&1 | tee "$list.log" >&2
    sed -n 's/^ *Executable .*(\(.*\))$/\1/p' "$list.log" | while read -r path; do
        name=$(basename "$path")
        printf '%s %s\n' "${name%-*}" "$path"
    done >"$list"
    [ -s "$list" ] || give_up "no test programs for $1"
}

# Copies the files that the tests read into the root: programs, sources, the output of `make dist`.
fill_root() { # ARCHITECTURE
    local root=$work/root-$1 own=$work/root-$1$PWD profile=target/debug dist=dist strip=strip path
    if ! is_own "$1"; then
        profile=target/$(target_of "$1")-unknown-linux-gnu/debug
        dist=dist/$1
        strip=$(target_of "$1")-linux-gnu-strip
    fi
    rm -rf "$root/tests" "$own"
    mkdir -p "$root/tests" "$own/$profile/deps" "$own/dist"
    git ls-files -z tests crates/api crates/core docs contrib |
        tar -c --null -T - | tar -x -C "$own"
    cp -a "$dist/bin" "$dist/lib" "$dist/include" "$own/dist/"
    rm -rf "$own/dist/lib/debug"
    cut -d' ' -f2 "$work/programs-$1" | while read -r path; do
        "$strip" --strip-debug -o "$own/$path" "$path"
    done
    # The programs that the tests of the whole stack start.
    find "$profile" -maxdepth 1 -type f -executable -not -name '*.so' -not -name '*.a' |
        while read -r path; do "$strip" --strip-debug -o "$own/$path" "$path"; done
    copy_harness "$1" "$profile" "$own"
    ln -sfn "$PWD" "$root/project"
}

# Chooses the programs of the guest: all that were built, or those that PROGRAMS names.
choose_programs() { # ARCHITECTURE
    local tests=$work/root-$1/tests
    awk -v "wanted= ${PROGRAMS:-} " -v "folder=$PWD/" '
        wanted ~ /^ *$/ || index(wanted, " " $1 " ") { print $1, folder $2 }
    ' "$work/programs-$1" >"$work/chosen"
    [ -s "$work/chosen" ] || give_up "no such programs: ${PROGRAMS:-}"
    cmp -s "$work/chosen" "$tests/programs" || cp "$work/chosen" "$tests/programs"
    cmp -s packaging/kernels/guest.sh "$tests/guest.sh" || cp packaging/kernels/guest.sh "$tests/"
}

# libaio's own tests, which the test of that name has fetched and built on this machine.
copy_harness() { # ARCHITECTURE PROFILE OWN
    if [ ! -e target/debug/libaio-harness.version ]; then
        cargo test -q -p nowait-tests --test libaio_harness -- --exact \
            cases_that_pass_with_the_system_pass::libaio::threads >&2 || true
    fi
    [ -e target/debug/libaio-harness.version ] || { say "libaio's tests are not here"; return; }
    cp -a target/debug/libaio-harness target/debug/libaio-harness.version "$3/$2/"
    is_own "$1" && return
    local machine harness name include=$work/root-$1/usr/include
    machine=$(target_of "$1")-linux-gnu
    harness=$(echo "$3/$2"/libaio-harness/src/*/harness)
    for name in "$harness"/cases/*.t; do
        "$machine-gcc" -g -O2 -w -DTEST_NAME="\"$name\"" -idirafter "$include" \
            -o "${name%.t}.p" "$harness/main.c" -L"$work/link-$1" -laio -lpthread
    done
}

# Makes the file system of a guest, with its modules and its first programs.
make_disks() { # NAME ARCHITECTURE
    local folder=$work/$1 version first=$work/$1/first module image=$work/root-$2.ext4
    version=$(basename "$folder"/tree/lib/modules/*)
    if [ ! -e "$image" ] || [ -n "$(find "$work/root-$2/tests" -newer "$image")" ]; then
        rm -f "$image"
        mke2fs -q -t ext4 -d "$work/root-$2" "$image" 8G
    fi
    cp --sparse=always "$image" "$folder/disk"
    rm -f "$folder/modules"
    mke2fs -q -t ext4 -d "$folder/tree/lib/modules" "$folder/modules" 2G
    rm -rf "$first"
    mkdir -p "$first"/{bin,modules,proc,sys,dev,root}
    cp "$work/root-$2/bin/busybox" "$first/bin/"
    for module in virtio_pci virtio_mmio virtio_blk ext4 crc32c_generic; do
        modprobe -d "$folder/tree" -S "$version" --show-depends "$module" 2>/dev/null || true
    done | sed -n 's/^insmod \([^ ]*\).*/\1/p' | awk '!seen[$0]++' | while read -r module; do
        cp "$module" "$first/modules/"
        basename "$module" >>"$first/modules/order"
    done
    cat >"$first/init" <<'INIT'
#!/bin/busybox sh
/bin/busybox mount -t proc proc /proc
/bin/busybox mount -t devtmpfs dev /dev
for module in $(/bin/busybox cat /modules/order); do
    /bin/busybox insmod "/modules/$module" || /bin/busybox echo "first: no $module"
done
/bin/busybox mount -t ext4 -o noatime /dev/vda /root || exec /bin/busybox poweroff -f
/bin/busybox umount /dev /proc
exec /bin/busybox switch_root /root /tests/guest.sh
INIT
    chmod 755 "$first/init"
    (cd "$first" && find . | cpio -o -H newc --quiet) >"$folder/first.cpio"
}

# Runs a guest to its end, and reads its logs back.
run_guest() { # NAME ARCHITECTURE
    local folder=$work/$1 console=ttyS0 machine
    machine=(qemu-system-x86_64 -machine pc -accel "tcg,thread=multi" -cpu "qemu64,-cx16")
    case $2 in
        arm64)
            console=ttyAMA0
            machine=(qemu-system-aarch64 -machine virt -accel "tcg,thread=multi" -cpu neoverse-n1)
            ;;
    esac
    rm -rf "$folder/results" "$folder/console"
    timeout "${GUEST_SECONDS:-10800}" "${machine[@]}" -smp 2 -m 6144 -nodefaults -display none \
        -no-reboot -serial "file:$folder/console" \
        -kernel "$(echo "$folder"/tree/boot/vmlinu[xz]-*)" -initrd "$folder/first.cpio" \
        -append "console=$console $quiet" \
        -drive "file=$folder/disk,if=virtio,format=raw,cache=unsafe" \
        -drive "file=$folder/modules,if=virtio,format=raw,cache=unsafe,readonly=on" ||
        say "$1: QEMU ended with $?"
    # Replay the journal of a guest that was killed.
    e2fsck -fy "$folder/disk" >/dev/null 2>&1 || true
    debugfs -R "rdump /results $folder" "$folder/disk" 2>/dev/null
    [ -s "$folder/results/doctor" ] || { tail -n 20 "$folder/console" >&2; say "$1: no results"; }
}

main() {
    local wanted=("$@") name arch release package
    [ "$(id -u)" = 0 ] || give_up "needs root"
    # The arm64 kernel runs only by name.
    [ "${#wanted[@]}" -gt 0 ] || mapfile -t wanted < <(kernels | awk '$2 != "arm64" { print $1 }')
    mkdir -p "$work"
    for name in "${wanted[@]}"; do
        read -r _ arch release package < <(kernels | grep "^$name ") || give_up "no kernel $name"
        fetch_kernel "$name" "$arch" "$release" "$package"
        fetch_root "$arch"
        if [ ! -e "$work/programs-$arch" ] || [ -z "${REUSE:-}" ]; then
            build_tests "$arch"
            fill_root "$arch"
        fi
        choose_programs "$arch"
        make_disks "$name" "$arch"
        run_guest "$name" "$arch"
    done
    packaging/kernels/table.sh "${wanted[@]}"
}

[ "${BASH_SOURCE[0]}" != "$0" ] || main "$@"
