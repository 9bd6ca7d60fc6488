#!/usr/bin/env bash
# Installs what dist/ holds below a prefix, as a distribution lays it out, or removes it again.
# Usage: install.sh install|uninstall [DESTDIR [PREFIX [LIBDIR]]]     an empty one is not given
# DESTDIR: put before every path, and named in no file. LIBDIR: where the libraries of the C API go.
# DIST: the folder that `make dist` has filled, if it is another one.
#
#   dist/bin, share, include -------------------> PREFIX/bin, share, include     (/usr/local)
#   dist/lib/libaio.so.1, libnowait_preload.so -> PREFIX/lib/nowait    (not in the loader's way)
#   dist/lib/libnowait.*, pkgconfig ------------> LIBDIR                         (PREFIX/lib)
#   dist/lib/systemd, sysusers.d, tmpfiles.d ---> PREFIX/lib
#   dist/lib/debug -----------------------------> PREFIX/lib/debug
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
dist=${DIST:-dist} destdir=${2:-/} prefix=${3:-/usr/local}
libdir=${4:-$prefix/lib}
for path in "$destdir" "$prefix" "$libdir"; do
    [[ $path = /* ]] || { echo "install: $path: give an absolute path" >&2 && exit 1; }
done
for program in nowait nowait-serve nowait-bench; do
    [ -e "$dist/bin/$program" ] && continue
    echo "install: $dist/bin/$program is missing; run \`make dist\` first" >&2
    exit 1
done

# Prints where a file of dist/ goes.
place() {
    case $1 in
        # A libaio.so.1 where the loader looks would take the place of the system's.
        lib/libaio.so.1 | lib/libaio.so.1t64 | lib/libnowait_preload.so)
            echo "$prefix/lib/nowait/${1#lib/}"
            ;;
        lib/systemd/* | lib/sysusers.d/* | lib/tmpfiles.d/* | lib/debug/*) echo "$prefix/$1" ;;
        lib/*) echo "$libdir/${1#lib/}" ;;
        LICENSE-*) echo "$prefix/share/doc/nowait/$1" ;;
        *) echo "$prefix/$1" ;;
    esac
}

# install(1) writes a new file: a program that has the old one mapped keeps it. In what pkg-config
# and systemd read the places are named.
install_one() {
    case $1 in
        *.pc | *.service)
            # shellcheck disable=SC2016 # variables of pkg-config
            sed -e 's|^prefix=${pcfiledir}/../..|prefix='"$prefix|" \
                -e 's|^libdir=${prefix}/lib$|libdir='"$libdir|" \
                -e "s|=/usr/bin/nowait|=$prefix/bin/nowait|" "$1" |
                install -D -m 644 /dev/stdin "$2"
            ;;
        "$dist"/bin/*) install -D -m 755 "$1" "$2" ;;
        *)
            if [ -L "$1" ]; then
                mkdir -p "$(dirname "$2")" && cp -P --remove-destination "$1" "$2"
            else
                install -D -m 644 "$1" "$2"
            fi
            ;;
    esac
}

# Packages and the book are not installed, nor is what a build that was killed left behind.
files=$(cd "$dist" && find bin include lib share ! -type d ! -name '.*')
for file in $files LICENSE-*; do
    from=$dist/$file
    case $file in LICENSE-*) from=$file ;; esac
    to=${destdir%/}$(place "$file")
    case $1 in
        install) install_one "$from" "$to" ;;
        uninstall) rm -f "$to" ;;
    esac
done
case $1 in
    install) echo "installed in ${destdir%/}$prefix" ;;
    # One that has files of others stays.
    uninstall) rmdir "${destdir%/}$prefix"/{lib,share/doc}/nowait 2>/dev/null || true ;;
esac
