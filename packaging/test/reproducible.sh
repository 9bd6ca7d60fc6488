#!/usr/bin/env bash
# Builds dist/ and packages twice, in different places and surroundings, and compares all bytes.
# Usage: reproducible.sh [KIND...]      deb, rpm, tarball; the first two and dist/ if none is named
# The variables of cargo's profiles count, for a quicker build: CARGO_PROFILE_RELEASE_LTO=off.
# Exit 1: something differs; its name and the first part of it that does are printed.
# shellcheck disable=SC2030,SC2031 # each build has surroundings of its own
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
kinds=("$@")
[ "${#kinds[@]}" -gt 0 ] || kinds=(deb tarball)
place=$PWD/target/reproducible
export SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}
rm -rf "$place"
mkdir -p "$place"

# Copies what git knows of this tree, with the times of now.
# Usage: copy FOLDER
copy() {
    mkdir -p "$place/$1"
    git ls-files -z | tar --create --null --files-from=- |
        tar --extract --touch --directory "$place/$1"
}

# Builds in a copy, and keeps dist/ only.
# Usage: build NUMBER FOLDER
build() {
    (
        cd "$place/$2"
        unset CARGO_TARGET_DIR
        cargo x dist
        for kind in "${kinds[@]}"; do bash packaging/pack.sh "$kind"; done
    )
    mv "$place/$2/dist" "$place/$1"
    rm -rf "${place:?}/${2%%/*}"
}

# Both copies at once: the tree may change while they are built.
copy a
copy another-name/and/deeper
(
    umask 022
    export TZ=UTC LC_ALL=C.UTF-8
    build 1 a
)
(
    # Another name, depth, mask, time zone, language, and a cargo folder without unpacked sources.
    umask 077
    export TZ=Asia/Kolkata LC_ALL=POSIX
    home=$place/home own=${CARGO_HOME:-$HOME/.cargo}
    mkdir -p "$home/registry"
    for path in "$own"/* "$own"/registry/*; do
        case ${path#"$own"/} in
            registry | registry/src) ;;
            *) ln -s "$path" "$home/${path#"$own"/}" ;;
        esac
    done
    export CARGO_HOME=$home
    build 2 another-name/and/deeper
)

# Prints the first difference of two files, or of what is in them.
# Usage: first_difference FILE FILE NAME
first_difference() {
    local one two section
    one=$(mktemp -d "$place/one.XXXX") two=$(mktemp -d "$place/two.XXXX")
    case $3 in
        *.deb) dpkg-deb -R "$1" "$one" && dpkg-deb -R "$2" "$two" ;;
        *.tar.xz) tar -xf "$1" -C "$one" && tar -xf "$2" -C "$two" ;;
        *.rpm)
            rpm2cpio "$1" | (cd "$one" && cpio -idm --quiet)
            rpm2cpio "$2" | (cd "$two" && cpio -idm --quiet)
            ;;
        *.a) (cd "$one" && ar xo "$1") && (cd "$two" && ar xo "$2") ;;
        *)
            if ! readelf -h "$1" >/dev/null 2>&1; then
                printf '%s: %s\n' "$3" "$(cmp "$1" "$2" 2>&1 | sed 's/.*differ/differ/')"
                return
            fi
            # The build ID differs if anything does: name it last.
            while read -r section; do
                cmp -s <(readelf -x "$section" "$1") <(readelf -x "$section" "$2") && continue
                printf '%s: section %s\n' "$3" "$section"
                diff <(readelf -p "$section" "$1" 2>/dev/null) \
                    <(readelf -p "$section" "$2" 2>/dev/null) | head -n 5 || true
                return
            done < <(readelf -SW "$1" | sed -n 's/^ *\[ *[0-9]*\] \(\.[^ ]*\) .*/\1/p' |
                grep -v '^.note.gnu.build-id$')
            printf '%s: the build ID, or outside of all sections\n' "$3"
            return
            ;;
    esac
    compare "$one" "$two" "$3: " && printf '%s: as an archive only\n' "$3"
}

# Lists what is in a folder, in an archive with modes and times.
# Usage: names FOLDER ARCHIVE
names() {
    if [ -z "$2" ]; then
        (cd "$1" && find . -mindepth 1 -printf '%P %y %l\n')
    else
        (cd "$1" && find . -mindepth 1 -type f -printf '%P %m %T@\n' -o -printf '%P %y %m %l\n')
    fi | sort
}

# Compares two folders, of an archive or dist/ itself; prints what differs.
# Usage: compare FOLDER FOLDER PREFIX
compare() {
    local name same=0
    if ! diff <(names "$1" "$3") <(names "$2" "$3") >"$place/names"; then
        printf '%snames, modes or times:\n' "$3"
        head -n 4 "$place/names"
        same=1
    fi
    while read -r name; do
        [ -f "$2/$name" ] || continue
        cmp -s "$1/$name" "$2/$name" && continue
        same=1
        first_difference "$1/$name" "$2/$name" "$3$name"
    done < <(cd "$1" && find . -type f -printf '%P\n' | sort)
    return "$same"
}

if compare "$place/1" "$place/2" ""; then
    (cd "$place/1" && find . -type f -printf '%P\n' | sort | xargs sha256sum)
    echo "test-reproducible: twice the same bytes"
    rm -rf "$place"
else
    echo "test-reproducible: the two builds differ; both are in $place" >&2
    exit 1
fi
