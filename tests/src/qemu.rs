//! qemu-io with native AIO. qemu-io reads completions from the user-mapped ring.

use std::path::Path;

use crate::program::Program;

/// Size of the image for qemu-io's commands.
pub const IMAGE_BYTES: u64 = 64 << 20;

/// Commands that write, overwrite, flush, and read back. qemu-io reports a pattern that does not
/// match.
const COMMANDS: [&str; 16] = [
    "aio_write -P 0x11 0 1M",
    "aio_write -P 0x22 1M 1M",
    "aio_write -P 0x33 8M 64k",
    "aio_flush",
    "aio_write -P 0x44 512k 4k",
    "aio_flush",
    "flush",
    "read -P 0x11 0 512k",
    "read -P 0x44 512k 4k",
    "read -P 0x22 1M 1M",
    "read -P 0 4M 1M",
    "aio_read -P 0x33 8M 64k",
    "aio_flush",
    "writev -P 0x55 16M 4k 8k 16k",
    "write -z 1M 64k",
    "readv -P 0x55 16M 4k 8k 16k",
];

/// Adds qemu-io's arguments: all commands, on a raw image that qemu-io opens with `O_DIRECT`.
pub fn arguments(qemu_io: Program, image: &Path) -> Program {
    let commands = COMMANDS.iter().flat_map(|command| ["-c", command]);
    qemu_io.args(["-f", "raw", "-n", "-i", "native"]).args(commands).arg(image)
}

/// Returns qemu-io's output without the times.
pub fn without_times(output: &str) -> String {
    let lines = output.lines().filter(|line| !line.contains("ops;"));
    lines.flat_map(|line| [line, "\n"]).collect()
}
