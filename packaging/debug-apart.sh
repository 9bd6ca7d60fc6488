#!/bin/sh
# Moves the debug information of libraries below ROOT to where debuggers look for it by build ID.
# Usage: debug-apart.sh ROOT FILE...
set -eu
root=$1
shift
for file in "$@"; do
    id=$(readelf -n "$root$file" | sed -n 's/^ *Build ID: //p')
    folder=$root/usr/lib/debug/.build-id/$(printf %.2s "$id")
    mkdir -p "$folder"
    objcopy --only-keep-debug "$root$file" "$folder/${id#??}.debug"
    chmod 644 "$folder/${id#??}.debug"
    strip --strip-unneeded "$root$file"
done
