#!/usr/bin/env bash
# Installs, uses, upgrades and removes the deb packages in fresh systems, one for each release.
# Usage: run.sh [RELEASE...]       needs root; the systems lie in target/packages/systems
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
releases=("$@")
[ "${#releases[@]}" -gt 0 ] || releases=(bookworm trixie)
[ "$(id -u)" = 0 ] || { echo "test-packages: needs root, for chroot and mounts" >&2; exit 2; }

lintian --fail-on error,warning dist/packages/*.deb
rpmlint -c packaging/rpmlint.toml dist/packages/*.rpm

# Packs the same files with another version, for an upgrade to or from it. Usage: repack FROM TO
# SUFFIX
repack() {
    local deb tree
    mkdir -p "$2"
    for deb in "$1"/*.deb; do
        tree=$(mktemp -d)
        dpkg-deb -R "$deb" "$tree"
        sed -i -E "s/^Version: (.*)/Version: \\1$3/; s/\\(= ([^)]*)\\)/(= \\1$3)/g" \
            "$tree/DEBIAN/control"
        dpkg-deb -b "$tree" "$2/$(basename "$deb")" >/dev/null
        rm -rf "$tree"
    done
}

# Packs all three programs into one package, as before 0.3.0. Usage: unsplit FOLDER
unsplit() {
    local tree name
    tree=$(mktemp -d)
    dpkg-deb -R "$1"/nowait_*.deb "$tree"
    for name in nowait-serve nowait-bench; do
        dpkg-deb -x "$1/$name"_*.deb "$tree"
        rm "$1/$name"[-_]*.deb
    done
    sed -i -E '/^(Recommends|Suggests):/d' "$tree/DEBIAN/control"
    dpkg-deb -b "$tree" "$1"/nowait_*.deb >/dev/null
    rm -rf "$tree"
}

# The tool in the image must run.
image=$(mktemp -d)
tar -xf dist/packages/nowait-*.oci.tar -C "$image"
version=$(basename dist/packages/nowait-*.oci.tar | cut -d- -f2)
umoci unpack --image "$image:$version" "$image/bundle"
chroot "$image/bundle/rootfs" /usr/bin/nowait --version
chroot "$image/bundle/rootfs" /usr/bin/nowait serve --version
test -f "$image/bundle/rootfs/usr/lib/nowait/libnowait_preload.so"
rm -rf "$image"

# A system gets packages from the same place as this machine.
mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' 'Component: main' |
    head -n 1)
systems=target/packages/systems
for release in "${releases[@]}"; do
    root=$systems/$release
    rm -rf --one-file-system "$root"
    mkdir -p "$systems"
    mmdebstrap --quiet --variant=minbase --mode=root \
        --include=ca-certificates "$release" "$root" "$mirror"
    mkdir -p "$root/packages" "$root/test"
    cp dist/packages/*.deb "$root/packages/"
    repack dist/packages "$root/upgrade" +upgrade
    repack dist/packages "$root/before" "~before"
    unsplit "$root/before"
    cp packaging/test/inside.sh crates/api/capi/examples/copy.c "$root/test/"
    # Mounts and processes end with it, so that removing the system later cannot reach through them.
    unshare --mount --pid --fork --propagation private bash -euc '
        mount --rbind /dev "$0/dev"
        mount -t proc proc "$0/proc"
        mount --rbind /sys "$0/sys"
        exec chroot "$0" env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin DEBIAN_FRONTEND=noninteractive \
            LC_ALL=C.UTF-8 bash /test/inside.sh' "$root"
    rm -rf --one-file-system "$root"
    echo "test-packages: $release: ok"
done
