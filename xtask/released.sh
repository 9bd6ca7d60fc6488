#!/usr/bin/env bash
# Fails if a public interface lacks what the last release (tag v*) had: the list of the Rust API, or
# nowait.h. Another leading number of the version, for C another soname, allows that.
set -euo pipefail
export LC_ALL=C
list=crates/api/nowait/api.txt header=crates/api/capi/include/nowait.h library=xtask/src/c_api.rs

# The first number of a version; before 1.0 the first two.
leading() { sed -E 's/^v?(0\.[0-9]+|[0-9]+)\..*/\1/'; }

# The lines of a header: without comments, reserved fields and the version; a field with its struct.
declarations() {
    cc -fpreprocessed -dD -E -P -x c - |
        awk '/^typedef struct.*[{]/ { of = $3 ": " } /^[}]/ { of = "" }
            !/reserved|NOWAIT_VERSION/ { sub(/^ */, of); sub(/,$/, ""); print }'
}

soname() { sed -n 's/.*SONAME: &str = "\(.*\)";/\1/p'; }

# Fails if a text lacks lines of another one, and prints them. Usage: keep OLD NEW
keep() {
    local gone
    gone=$(comm -23 <(sort <<<"$1") <(sort <<<"$2"))
    if [ -n "$gone" ]; then
        printf 'the last release promises this:\n%s\n' "$gone"
        return 1
    fi
}

# The functions end here.
cd "$(dirname "${BASH_SOURCE[0]}")/.."
tag=$(git describe --tags --abbrev=0 --match 'v[0-9]*' 2>/dev/null) ||
    { echo "api: no release before this one is known here" && exit; }
version=$(sed -n 's/^version = "\(.*\)"$/\1/p' Cargo.toml)
old_list=$(git show "$tag:$list") old_header=$(git show "$tag:$header")
old_library=$(git show "$tag:$library")
if [ "$(leading <<<"$tag")" = "$(leading <<<"$version")" ]; then
    keep "$old_list" "$(<"$list")"
fi
if [ "$(soname <<<"$old_library")" = "$(soname <"$library")" ]; then
    keep "$(declarations <<<"$old_header")" "$(declarations <"$header")"
fi
echo "api: nothing is gone that $tag promises"
