#!/bin/bash
# The first process of the guests of run.sh: runs each test program, and ends the guest. Its logs
# are in /results: NAME.log and NAME.skips of each program, doctor's output, the kernel's log.
export PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root TMPDIR=/tmp LC_ALL=C
mkdir -p /proc /sys /dev /tmp /run /results /root
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs dev /dev
mkdir -p /dev/pts /dev/shm
mount -t devpts devpts /dev/pts
mount -t tmpfs shm /dev/shm
chmod 1777 /tmp /dev/shm
ln -sf /proc/self/fd /dev/fd
mkdir -p /lib/modules
mount -o ro /dev/vdb /lib/modules
for module in loop xfs btrfs overlay fuse; do modprobe "$module"; done
ip link set lo up
ulimit -n 20000 -l unlimited
cd /project || exit 1

say() { printf 'guest: %s\n' "$*" >/dev/console; }

say "$(uname -srm)"
uname -r >/results/uname
dist/bin/nowait doctor >/results/doctor 2>&1
dist/bin/nowait doctor --json >/results/doctor.json
usable=""
for backend in uring kaio threads; do
    if grep -A1 "\"name\": \"$backend\"" /results/doctor.json | grep -q '"usable": true'; then
        usable+="${usable:+,}$backend"
    fi
done
printf '%s\n' "$usable" >/results/backends
say "usable: $usable"
sync

while read -r name path; do
    start=$SECONDS
    log=/results/$name.log
    while [ -e "$log" ]; do log=${log%.log}+.log; done
    # The allocator does not depend on the kernel, and takes minutes in an emulator. An emulator is
    # some thirty times slower than a processor.
    NOWAIT_TEST_BACKENDS=$usable NOWAIT_SKIPS=${log%.log}.skips NOWAIT_TEST_SLOWNESS=10 \
        timeout --kill-after=10 2400 "$path" --test-threads=2 --skip allocator \
        >"$log" 2>&1 </dev/null
    code=$?
    printf '%s\n' "$code" >"${log%.log}.code"
    say "$name: $code after $((SECONDS - start)) s: $(grep '^test result' "$log")"
    grep -E '^test .*FAILED$' "$log" >/dev/console
    sync
done </tests/programs
dmesg >/results/dmesg
say "done"
sync
mount -o remount,ro /
echo o >/proc/sysrq-trigger
sleep 60
