# The actions of the guest with ublk: `nowait serve` in the guest serves images, which are files on
# the guest's disk, as /dev/ublkb0. task.sh includes this file.

drive=/dev/ublkb0

# Starts `nowait serve` with these arguments, and waits until /dev/ublkb0 exists.
serve() {
    rm -f /tmp/said
    mkfifo /tmp/said
    nowait serve "$@" 2>/tmp/said &
    server=$!
    exec 3</tmp/said
    while read -r line <&3; do
        case $line in *"requests continue") echo "guest: it goes on" ;; esac
        case $line in *"as $drive") return 0 ;; esac
        echo "nowait: $line"
    done
    echo "guest: it is not served: $*"
    return 1
}

# Ends the server by SIGTERM, and checks that /dev/ublkb0 no longer exists.
stop() {
    kill -TERM "$server"
    wait "$server"
    [ ! -e "$drive" ]
}

setting() { # NAME VALUE
    found=$(cat "/sys/block/ublkb0/queue/$1")
    [ "$found" = "$2" ] || { echo "guest: $1 is $found, not $2"; return 1; }
}

# Checks that a command fails with this text in its output.
refuses() { # TEXT COMMAND...
    expected=$1
    shift
    if "$@" >/tmp/refused 2>&1; then echo "guest: it is possible: $*"; return 1; fi
    grep -q "$expected" /tmp/refused || { cat /tmp/refused; return 1; }
}

used_kib() { du -k "$1" | cut -f 1; }

# Makes a file system with files on the disk, and checks the files on the next server, which is
# read-only.
keep_files() {
    truncate -s 192M /data/files
    serve vm=/data/files --ublk vm=0 --threads 2
    setting logical_block_size 512
    setting write_cache "write back"
    setting fua 1
    setting discard_granularity 4096
    [ "$(ls /sys/block/ublkb0/mq | wc -l)" = 2 ]
    mkfs.ext4 -q "$drive"
    mount "$drive" /mnt
    (cd /mnt && fill)
    umount /mnt
    stop
    e2fsck -f -n /data/files >/tmp/fsck 2>&1 || { cat /tmp/fsck; return 1; }
    serve /data/files --ublk auto --read-only
    [ "$(cat /sys/block/ublkb0/ro)" = 1 ]
    refuses . dd if=/dev/zero of="$drive" bs=4k count=1 conv=notrunc
    mount -o ro "$drive" /mnt
    (cd /mnt && compare files)
    umount /mnt
    stop
}

# A discard frees space of the image, and the discarded blocks read as zeroes.
give_back() {
    truncate -s 64M /data/raw
    serve /data/raw --ublk auto --sector-size 4096
    setting logical_block_size 4096
    dd if=/dev/urandom of="$drive" bs=1M count=32 oflag=direct 2>/dev/null
    before=$(used_kib /data/raw)
    blkdiscard -o 1048576 -l 25165824 "$drive"
    after=$(used_kib /data/raw)
    [ $((before - after)) -ge 24000 ] || { echo "guest: $before KiB, then $after"; return 1; }
    dd if="$drive" bs=1M skip=1 count=24 iflag=direct 2>/dev/null | tr -d '\0' >/tmp/rest
    [ ! -s /tmp/rest ]
    # When the server ends, data that is only in the kernel's page cache of the disk reaches the
    # image.
    dd if=/dev/urandom of=/tmp/data bs=64k count=16 2>/dev/null
    dd if=/tmp/data of="$drive" bs=64k conv=notrunc 2>/dev/null
    stop
    cmp -n 1048576 /tmp/data /data/raw
}

# Makes the image larger. The disk grows, too, if the kernel supports that (Linux 6.16).
grow() {
    truncate -s 48M /data/grown
    serve grown=/data/grown --ublk auto
    truncate -s 64M /data/grown
    kill -HUP "$server"
    while read -r line <&3; do
        case $line in
            *"$drive has the new size") size=64 ;;
            *"$drive keeps its size"*) size=48 ;;
            *) continue ;;
        esac
        break
    done
    [ "$(cat /sys/block/ublkb0/size)" = $((size * 2048)) ]
    echo "guest: the disk has $size MiB"
    dd if=/dev/urandom of="$drive" bs=1M seek=$((size - 1)) count=1 oflag=direct 2>/dev/null
    stop
}

# Kills the server twice while a process writes files to a file system on the disk. The next server
# continues, and the files are complete.
outlive() {
    truncate -s 128M /data/killed
    truncate -s 128M /data/other
    serve vm=/data/killed --ublk vm=0 --threads 2
    mkfs.ext4 -q "$drive"
    mount "$drive" /mnt
    mkfifo /tmp/rounds
    (
        cd /mnt
        for round in $(seq 1 12); do
            echo "$round"
            dd if=/dev/urandom of="r$round" bs=32k count=24 conv=fsync 2>/dev/null
            dd if="r$round" of="d$round" bs=128k oflag=direct 2>/dev/null
        done
        sync
        find . -type f ! -name sums -print0 | sort -z | xargs -0 sha256sum >/tmp/sums
        cp /tmp/sums sums
    ) >/tmp/rounds &
    writer=$!
    exec 4</tmp/rounds
    while read -r round <&4; do
        case $round in
            3 | 8)
                kill -KILL "$server"
                wait "$server" || true
                refuses "belongs to another image" nowait serve /data/other --ublk 0
                serve vm=/data/killed --ublk vm=0 --threads 1
                ;;
        esac
    done
    wait "$writer"
    umount /mnt
    e2fsck -f -n "$drive" >/tmp/fsck 2>&1 || { cat /tmp/fsck; return 1; }
    mount -o ro "$drive" /mnt
    (cd /mnt && compare killed)
    umount /mnt
    refuses "serves it" nowait serve /data/other --ublk 0
    stop
}

mkfs.ext4 -q -F /dev/vda
mkdir -p /data
mount /dev/vda /data
export XDG_RUNTIME_DIR=/tmp
keep_files
give_back
grow
outlive
umount /data
