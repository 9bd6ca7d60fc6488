"""Makes a device of ZeroFS: a file in its folder .nbd, by 9P2000.L, durably.

Usage: make_device.py SOCKET NAME BYTES
"""
import os
import socket
import struct
import sys

LCREATE, SETATTR, FSYNC, VERSION, ATTACH, WALK = 14, 26, 50, 100, 104, 110
NO_FID, NO_TAG = 0xFFFFFFFF, 0xFFFF


def text(value):
    return struct.pack("<H", len(value)) + value.encode()


def ask(server, kind, body, tag=0):
    """Sends a request; the type of its answer is kind + 1, or 7 with an errno."""
    server.write(struct.pack("<IBH", 7 + len(body), kind, tag) + body)
    server.flush()
    length, answer, _ = struct.unpack("<IBH", server.read(7))
    rest = server.read(length - 7)
    if answer != kind + 1:
        sys.exit(f"9P request {kind}: {os.strerror(*struct.unpack('<I', rest))}")


def main():
    path, name, size = sys.argv[1:]
    connection = socket.socket(socket.AF_UNIX)
    connection.settimeout(60)
    connection.connect(path)
    with connection.makefile("rwb") as server:
        # The root is file 0; file 1 is the folder, and then the file that is made in it.
        ask(server, VERSION, struct.pack("<I", 8192) + text("9P2000.L"), NO_TAG)
        ask(server, ATTACH, struct.pack("<II", 0, NO_FID) + text("root") + text("") + bytes(4))
        ask(server, WALK, struct.pack("<IIH", 0, 1, 1) + text(".nbd"))
        ask(server, LCREATE, struct.pack("<I", 1) + text(name) + struct.pack("<III", 2, 0o600, 0))
        # Sets the size, and no other attribute.
        ask(server, SETATTR, struct.pack("<II12xQ32x", 1, 8, int(size)))
        ask(server, FSYNC, struct.pack("<II", 1, 0))


main()
