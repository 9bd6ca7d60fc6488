#!/usr/bin/env bash
# Runs programs linked with musl under the two libraries of dist/musl, by musl's loader.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
libraries=dist/musl/lib
work=$(mktemp -d -p target)
trap 'rm -rf "$work"' EXIT

fail() { printf 'test-musl: %s\n' "$*" >&2; exit 1; }

# The kernel's headers do not depend on a C library, but musl-gcc does not search their folder.
mkdir "$work/include"
for folder in linux asm-generic; do ln -s "/usr/include/$folder" "$work/include/"; done
ln -s "/usr/include/$(uname -m)-linux-gnu/asm" "$work/include/asm"
compile() { # PROGRAM OPTION...
    musl-gcc -std=gnu11 -O1 -Wall -Wextra -Werror -idirafter "$work/include" -pthread \
        -o "$work/$1" packaging/musl/program.c "${@:2}"
}
compile libaio -L"$libraries" -l:libaio.so.1
compile syscall -DBY_SYSCALL
for program in libaio syscall; do
    readelf -l "$work/$program" | grep -q 'interpreter: /lib/ld-musl' || fail "not musl's loader"
done
for library in libaio.so.1 libnowait_preload.so; do
    if readelf -d "$libraries/$library" | grep NEEDED | grep -v '\[libc.so\]'; then
        fail "$library needs more than musl"
    fi
done

# Without nowait's libraries the same program shows that it works at all.
"$work/syscall" "$work/file"

run() { # PROGRAM BACKEND VARIABLE=VALUE
    local report=$work/report.json
    env "$3" NOWAIT_BACKEND="$2" NOWAIT_REPORT="$report" "$work/$1" "$work/file"
    grep -q "\"$2\"" "$report" || fail "$1: no report of $2: $(cat "$report")"
    grep -Eq '"requests": *[1-9]' "$report" || fail "$1: nothing went through nowait"
    rm "$report"
}
for backend in uring kaio threads; do
    run libaio "$backend" "LD_LIBRARY_PATH=$libraries"
    run syscall "$backend" "LD_PRELOAD=$libraries/libnowait_preload.so"
    echo "$backend: linked, and by system calls"
done
