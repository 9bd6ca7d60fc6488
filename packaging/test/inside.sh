#!/usr/bin/env bash
# Runs in a fresh system with packages in /packages, of a higher version in /upgrade, of a lower one
# in /before.
set -euo pipefail

step() { printf '== %s\n' "$*"; }
fail() { printf 'FAILED: %s\n' "$*" >&2; exit 1; }

install() { apt-get install -y -qq --no-install-recommends "$@" >/dev/null; }

# Installs the packages of the programs from a folder.
install_all() { install "$1"/nowait{,-runtime,-serve,-bench}_*.deb; }

# Makes random reads and writes of a buffered file by libaio; prints fio's output.
job() {
    fio --name=job --filename=/var/tmp/job --size=64m --rw=randrw --bs=4k --ioengine=libaio \
        --iodepth=16 --buffered=1 --verify=crc32c --end_fsync=1 --output-format=normal "$@"
}

step "no compiler, none of our files"
if command -v cc; then fail "a compiler is here"; fi
find / -xdev -name '*nowait*' -not -path '/packages/*' -not -path '/upgrade/*' \
    -not -path '/before/*' | grep . &&
    fail "files of ours before the installation"

step "install"
apt-get update -qq
printf '#!/bin/sh\nexit 101\n' >/usr/sbin/policy-rc.d
chmod 755 /usr/sbin/policy-rc.d
install fio mariadb-server systemd
install /before/nowait_*.deb /before/nowait-runtime_*.deb

step "an upgrade from one package with all programs"
tools=(nowait nowait-runtime nowait-serve nowait-bench)
install_all /packages
for program in nowait-serve nowait-bench; do
    [ "$(dpkg -S "/usr/bin/$program")" = "$program: /usr/bin/$program" ] || fail "whose is $program"
    nowait "${program#nowait-}" --version
done
apt-get remove -y -qq nowait-serve nowait-bench >/dev/null
for command in serve image bench; do
    if said=$(nowait "$command" 2>&1); then fail "nowait $command without its program"; fi
    case $said in *"install the package nowait-"*) ;; *) fail "it says: $said" ;; esac
done
install_all /packages

step "doctor"
nowait doctor
nowait doctor --json >/dev/null

step "fio of the distribution, by itself and under nowait"
job >/dev/null
for via in preload libaio; do
    nowait run --via "$via" --report=/tmp/report -- \
        fio --name=job --filename=/var/tmp/job --size=64m --rw=randrw --bs=4k \
        --ioengine=libaio --iodepth=16 --buffered=1 --verify=crc32c --end_fsync=1 >/dev/null
    grep . /tmp/report >/dev/null || fail "no report of what nowait carried ($via)"
    rm /tmp/report
done

step "MariaDB of the distribution under nowait"
mkdir -p /run/mysqld
chown mysql: /run/mysqld
nowait run -- mariadbd --user=mysql --skip-networking --innodb-flush-method=fsync \
    >/tmp/mariadb.log 2>&1 &
server=$!
mariadb-admin --wait=30 ping >/dev/null || { cat /tmp/mariadb.log; fail "MariaDB does not start"; }
grep -q libnowait_preload.so "/proc/$server/maps" ||
    grep -q libnowait_preload.so "/proc/$(pidof mariadbd)/maps" ||
    fail "MariaDB runs without the library"
mariadb -e 'create database t; use t; create table t.t (n int primary key, s char(200));
    insert into t.t select seq, repeat("x", 200) from seq_1_to_20000; checksum table t.t' |
    grep -q t.t || fail "MariaDB wrote nothing"

step "upgrade while it runs"
install_all /upgrade
dpkg-query -W -f '${Version}\n' nowait | grep -q upgrade || fail "not upgraded"
mariadb -e 'select count(*) from t.t' | grep -q 20000 || fail "MariaDB lost its library"
mariadb-admin shutdown
wait "$server"
nowait run -- mariadbd --user=mysql --skip-networking >/tmp/mariadb.log 2>&1 &
mariadb-admin --wait=30 ping >/dev/null || { cat /tmp/mariadb.log; fail "no second start"; }
mariadb -e 'check table t.t' | grep -q OK || fail "the table is damaged"
mariadb-admin shutdown
wait

step "a service"
nowait enable --dry-run mariadb.service
nowait enable mariadb.service
systemd-analyze verify --man=no mariadb.service
nowait status
nowait disable mariadb.service
[ -z "$(find /etc/systemd -name '*nowait*')" ] || fail "disable left its file behind"
systemd-analyze verify --man=no nowait-serve@disk.service nowait-serve@disk.socket

step "remove"
apt-get purge -y -qq "${tools[@]}" >/dev/null
left=$(find / -xdev -name '*nowait*' -not -path '/packages/*' -not -path '/upgrade/*' \
    -not -path '/before/*' -not -path '/var/lib/nowait' -not -path '/var/lib/systemd/*')
[ -z "$left" ] || fail "left behind: $left"
job >/dev/null

step "the Python package"
install /packages/python3-nowait_*.deb python3-fsspec
seq 100000 >/tmp/numbers
python3 -W error - <<'PYTHON'
import asyncio, fsspec, nowait

async def main():
    async with nowait.open("/tmp/numbers", "r") as file:
        assert sum([int(line) async for line in file]) == 5000050000
    async with nowait.open("/tmp/numbers", cache="user") as file:
        assert await file.read_many([(0, 4), (4, 4)]) == [b"1\n2\n", b"3\n4\n"]
    print("read by", nowait.backend().name)

asyncio.run(main())
assert fsspec.filesystem("nowait").cat_file("/tmp/numbers", 0, 4) == b"1\n2\n"
PYTHON
install /upgrade/python3-nowait_*.deb
apt-get purge -y -qq python3-nowait >/dev/null
left=$(find /usr -xdev -path '*dist-packages/nowait*')
[ -z "$left" ] || fail "left behind: $left"

step "the C API"
install /packages/libnowait0_*.deb /packages/libnowait-dev_*.deb gcc libc6-dev pkg-config
for static in "" --static; do
    # shellcheck disable=SC2046
    cc -Wall -Werror -o /tmp/copy /test/copy.c $(pkg-config --cflags --libs $static nowait)
    /tmp/copy /usr/bin/fio /tmp/copied
    cmp /usr/bin/fio /tmp/copied
done
apt-get purge -y -qq libnowait0 libnowait-dev >/dev/null
echo "all steps done"
