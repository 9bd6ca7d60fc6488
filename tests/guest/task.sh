# The actions of the guests of tests/tests/guest.rs on their disks. The serial number of a disk is
# the name of its image, which ends with its file system: nbd-ext4, vhost-xfs. The test reads the
# lines that begin with "guest:".

# Prints the device and the name of each disk.
disks() {
    for disk in /sys/block/vd*; do
        echo "/dev/${disk##*/} $(cat "$disk/serial")"
    done
}

# Prints the device of the disk with this name.
device() {
    disks | while read -r device name; do
        if [ "$name" = "$1" ]; then echo "$device"; fi
    done
}

# Makes a tree of files in this folder, and a list of their checksums.
fill() {
    for i in $(seq 1 24); do
        mkdir -p "d$i/e"
        dd if=/dev/urandom of="d$i/small" bs=1000 count="$i" 2>/dev/null
        dd if=/dev/urandom of="d$i/e/odd" bs=4099 count="$((i % 7 + 1))" 2>/dev/null
    done
    dd if=/dev/urandom of=large bs=64k count=48 conv=fsync 2>/dev/null
    dd if=large of=direct bs=128k oflag=direct 2>/dev/null
    cp -r d1 copy
    mv d2 moved
    rm -r d3
    truncate -s 3000 d10/small
    echo appended >>d5/small
    ln -s d6 link
    sync
    dd if=/dev/urandom of=d7/small bs=1000 count=3 seek=2 conv=notrunc 2>/dev/null
    rm large
    find . -type f ! -name sums -print0 | sort -z | xargs -0 sha256sum >/tmp/sums
    cp /tmp/sums sums
}

# Compares the files in this folder with the checksums in `sums`.
compare() {
    sha256sum -c sums >/tmp/compared
    echo "guest: $1 has $(wc -l <sums) files as they were"
}

check() { # DEVICE NAME
    case $2 in
        *-ext4) e2fsck -f -n "$1" >/tmp/fsck 2>&1 ;;
        *-xfs) xfs_repair -n "$1" >/tmp/fsck 2>&1 ;;
    esac || { cat /tmp/fsck; return 1; }
    echo "guest: $2 is clean"
}

write_all() {
    disks | while read -r device name; do
        case $name in
            *-ext4) mkfs.ext4 -q -F "$device" ;;
            *-xfs) mkfs.xfs -q -f "$device" ;;
        esac
        mkdir -p "/mnt/$name"
        mount "$device" "/mnt/$name"
        case $name in
            # Another guest boots from this disk, so it needs the programs.
            *-ext4) cp -r /bin /sbin /lib /lib64 /task.sh /init "/mnt/$name/" ;;
        esac
        (cd "/mnt/$name" && fill)
        fstrim "/mnt/$name"
        umount "/mnt/$name"
        echo "guest: $name is filled"
    done
}

check_all() { # the name of the root, or nothing
    disks | while read -r device name; do
        if [ "$name" = "$1" ]; then
            (cd / && compare "$name")
            continue
        fi
        check "$device" "$name"
        mkdir -p "/mnt/$name"
        mount -o ro "$device" "/mnt/$name"
        (cd "/mnt/$name" && compare "$name")
        umount "/mnt/$name"
    done
}

# Mounts the disk at /root, to which the first process then changes its root.
boot_from() {
    check "$(device "$1")" "$1"
    mkdir -p /root
    mount "$(device "$1")" /root
    umount /proc /sys /dev
    echo "guest: $1 is the root"
}

# Repairs the file system on a disk of a killed guest, as init systems do at a boot.
recover() {
    e2fsck -f -p "$(device "$1")" >/tmp/fsck 2>&1 || [ $? = 1 ] || { cat /tmp/fsck; return 1; }
    echo "guest: $1 is recovered"
}

# Writes to a disk without a file system while the test kills the server, and checks the data.
endure() {
    device=$(device "$1")
    dd if=/dev/urandom of=/tmp/data bs=64k count=64 2>/dev/null
    expected=$(sha256sum </tmp/data)
    for round in $(seq 0 11); do
        echo "guest: round $round"
        dd if=/tmp/data of="$device" bs=64k seek="$((round * 64))" oflag=direct conv=notrunc \
            2>/dev/null
    done
    sync
    echo 3 >/proc/sys/vm/drop_caches
    for round in $(seq 0 11); do
        found=$(dd if="$device" bs=64k skip="$((round * 64))" count=64 2>/dev/null | sha256sum)
        [ "$found" = "$expected" ] || { echo "guest: round $round is lost"; return 1; }
    done
}

# Runs tests/c_api/numa.c, which prints on which NUMA nodes an engine's memory lies. The kernel must
# not move pages meanwhile.
show_nodes() {
    echo 0 >/proc/sys/kernel/numa_balancing
    mkfs.ext4 -q /dev/vda
    mount /dev/vda /mnt
    numa /mnt >/tmp/nodes
    umount /mnt
    sed 's/^/guest: /' /tmp/nodes
}

# Runs the measurement of `make bare`, which the test has put on the disk.
measure() {
    mount /dev/vda /mnt
    /mnt/nowait/measure --quick /mnt/out >/tmp/said 2>&1 || { cat /tmp/said; return 1; }
    for file in /mnt/out/*; do echo "guest: measured ${file##*/}"; done
    umount /mnt
}

case $1 in
    measure) measure ;;
    numa) show_nodes ;;
    write) write_all ;;
    check) check_all "" ;;
    boot) if [ -e /sums ]; then check_all "$2"; else boot_from "$2"; fi ;;
    recover) recover "$2" ;;
    endure) endure "$2" ;;
    ublk) . /ublk.sh ;;
esac
