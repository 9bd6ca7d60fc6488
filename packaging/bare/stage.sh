#!/usr/bin/env bash
# Fills a folder with programs that run on any Linux of this architecture, and measure it.
# Usage: stage.sh FOLDER      DIST: where the build is, dist
#
#   dist/ -------------> bin/nowait, bin/nowait-bench, lib/
#   this system's fio -> bin/fio
#   what these link ---> system/: libraries, and glibc with its loader
#   packaging/bare ----> measure, README
#
# A program names its loader by a path. Here that is relative to the current folder: started in
# FOLDER, a program runs on this glibc, and so does what it starts, libraries that are preloaded
# included. Nothing of the host is loaded, wherever FOLDER is.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
to=$1 dist=${DIST:-dist}
programs=("$dist"/bin/nowait "$dist"/bin/nowait-bench "$(command -v fio)")
libraries=("$dist"/lib/libnowait_preload.so "$dist"/lib/libaio.so.1)

# Prints the libraries that the programs load, with their places.
needed() {
    ldd "${programs[@]}" "${libraries[@]}" | awk '$2 == "=>" && $3 ~ /^\// { print $3 }' | sort -u
}

loader=$(patchelf --print-interpreter "$dist/bin/nowait")
mapfile -t needed < <(needed)
mkdir -p "$to"/{bin,lib,system}
install --mode=755 "${programs[@]}" "$to/bin"
install --mode=644 "${libraries[@]}" "$to/lib"
install --mode=644 "${needed[@]}" "$to/system"
install --mode=755 "$loader" "$to/system"
install --mode=755 packaging/bare/measure "$to"
install --mode=644 packaging/bare/README LICENSE-APACHE LICENSE-MIT "$to"

# RPATH, not RUNPATH: also for the libraries of libraries.
patchelf --set-interpreter "system/${loader##*/}" --force-rpath \
    --set-rpath "\$ORIGIN/../system" "$to"/bin/*
for library in "$to"/system/*.so*; do
    [ -z "$(patchelf --print-rpath "$library")" ] ||
        patchelf --force-rpath --set-rpath "\$ORIGIN" "$library"
done

# The licences of what comes from this system, and where its sources are.
for file in "$(command -v fio)" "${needed[@]}" "$loader"; do
    file=$(realpath "$file")
    dpkg-query --search "$file" 2>/dev/null || dpkg-query --search "${file#/usr}"
done | cut -d: -f1 | sort -u >"$to/system/packages"
# shellcheck disable=SC2016 # fields of dpkg-query
shown='${Package} ${Version}, source: ${source:Package} ${source:Version}\n'
while read -r package; do
    install -D --mode=644 "/usr/share/doc/$package/copyright" "$to/system/doc/$package/copyright"
    dpkg-query --show --showformat="$shown" "$package"
done <"$to/system/packages" | sort -u >"$to/system/sources"
rm "$to/system/packages"
