#!/usr/bin/env bash
# Packs the crates that are published, as cargo would upload them: the crate `nowait` and what it is
# made of. `cargo package` finds a dependency that is not published or has no version, and with a
# build from the packages alone, a file that is missing in one. Clippy finds a manifest without what
# an index asks for.
# Usage: crates.sh [--no-verify]     with it only looks, in a second; else dist/packages gets them
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
published=(nowait-{sys,retry,block,cache,file,engine} nowait)
packages=${CARGO_TARGET_DIR:-target}/package
version=$(sed -n 's/^version = "\(.*\)"$/\1/p' Cargo.toml)

# What is being worked on is packed too: a tree without changes is for who publishes.
pack() { cargo package --quiet --allow-dirty "$@" "${published[@]/#/-p}"; }

# Usually all is here that cargo would look for in the index.
if [ $# = 0 ]; then pack; else pack "$1" --offline 2>/dev/null || pack "$1"; fi
for name in "${published[@]}"; do
    list=$(tar -tf "$packages/$name-$version.crate")
    for license in LICENSE-APACHE LICENSE-MIT; do
        grep -qx "$name-$version/$license" <<<"$list" ||
            { echo "$name: its package lacks $license" >&2 && exit 1; }
    done
    [ $# = 0 ] || continue
    mkdir -p dist/packages
    cp -v "$packages/$name-$version.crate" dist/packages/
done
echo "crates: ${#published[@]} can be published"
