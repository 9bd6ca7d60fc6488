//! Blocks that are written and flushed before a server is killed, and read after its restart.
//!
//! The client that writes the blocks stays connected until its server is dead. Otherwise a server
//! that ignores flushes, and makes data durable when a client disconnects, would lose nothing.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use nowait_harness::error::{Failure, Result};
use nowait_harness::launch;
use nowait_harness::server::Server;

pub(crate) const BLOCKS: u64 = 500;
const BLOCK_BYTES: u64 = 4096;

/// Time limit for all blocks, without the store's delay.
const PATIENCE: Duration = Duration::from_mins(2);
/// Most round trips to the store of a write with its flush.
const TRIPS_MAX: u32 = 4;

#[derive(Debug, Clone, Copy)]
pub(crate) struct Blocks {
    pub(crate) size_bytes: u64,
    /// Seed of the content, which differs between rounds.
    pub(crate) seed: u64,
    pub(crate) delay: Duration,
}

impl Blocks {
    pub(crate) fn patience(&self) -> Duration {
        let requests = u32::try_from(BLOCKS).unwrap_or(u32::MAX) * TRIPS_MAX;
        PATIENCE + self.delay * requests
    }

    /// Makes the file `written` after the last flush. The returned client is still connected.
    pub(crate) fn write(&self, uri: &str, written: &Path) -> Result<Server> {
        let body = format!(
            "for nth in range({BLOCKS}):\n    h.pwrite(data(nth), at(nth))\n    h.flush()\n\
             open({:?}, 'w').close()\nimport signal\nsignal.pause()\n",
            written.display().to_string()
        );
        Server::start(&mut self.nbdsh(uri, &body), self.patience(), || written.exists())
    }

    /// A block that cannot be read counts as lost.
    pub(crate) fn count_lost(&self, uri: &str) -> Result<u64> {
        let body = format!(
            "def lost(nth):\n    try:\n        return h.pread({BLOCK_BYTES}, at(nth)) != \
             data(nth)\n    except nbd.Error:\n        return True\n\
             print(sum(map(lost, range({BLOCKS}))))\n"
        );
        let finished = launch::run(&mut self.nbdsh(uri, &body), self.patience())?;
        finished.stdout.trim().parse().map_err(|_| {
            let said = finished.stderr.lines().last().unwrap_or("it said nothing");
            Failure::new(format!("nbdsh: {said}"))
        })
    }

    fn nbdsh(&self, uri: &str, body: &str) -> Command {
        let (seed, stride) = (self.seed, self.size_bytes / BLOCKS / BLOCK_BYTES * BLOCK_BYTES);
        let head = format!(
            "import struct\ndef at(nth): return nth * {stride}\n\
             def data(nth): return struct.pack('<QQ', {seed}, nth) * {}\n",
            BLOCK_BYTES / 16
        );
        let mut command = nbdsh();
        command.arg("--uri").arg(uri).arg("--command").arg(head + body);
        command
    }
}

/// The shell of libnbd, run by the Python of the distribution: another Python that comes first in
/// PATH may lack libnbd's module.
fn nbdsh() -> Command {
    let mut command = Command::new("nbdsh");
    launch::inherit_nothing_of_ours(&mut command);
    command.env("PATH", "/usr/bin:/bin");
    command
}

pub(crate) fn lacks_client() -> Option<String> {
    let output = nbdsh().args(["--command", "pass"]).output();
    let works = output.is_ok_and(|output| output.status.success());
    (!works).then(|| "nbdsh, of libnbd, is not installed, or does not work".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn blocks(seed: u64) -> Blocks {
        Blocks { size_bytes: 8 << 20, seed, delay: Duration::ZERO }
    }

    /// A server of another program that loses its image when it ends.
    fn forgetful(socket: &Path) -> Server {
        let _ = std::fs::remove_file(socket);
        let mut command = Command::new("nbdkit");
        command.args(["--foreground", "--unix"]).arg(socket).args(["memory", "8M"]);
        let listens = || std::os::unix::net::UnixStream::connect(socket).is_ok();
        Server::start(&mut command, Duration::from_mins(1), listens).expect("nbdkit serves")
    }

    #[test]
    fn a_server_that_keeps_nothing_has_lost_all_when_it_is_killed_and_nothing_before() {
        let has_nbdkit = Command::new("nbdkit").arg("--version").output().is_ok();
        let lacks = (!has_nbdkit).then(|| "nbdkit is not installed".to_owned());
        if let Some(why) = lacks.or_else(lacks_client) {
            return nowait_block::skip::note_skip_here(&why);
        }
        let folder = tempfile::tempdir().expect("a temporary folder");
        let socket = folder.path().join("nbd");
        let uri = crate::served::uri(&socket, "");
        let server = forgetful(&socket);
        let client = blocks(1).write(&uri, &folder.path().join("written"));
        assert_eq!(blocks(1).count_lost(&uri).expect("a count"), 0);
        assert_eq!(blocks(2).count_lost(&uri).expect("a count"), BLOCKS, "of another round");
        server.kill().expect("it is killed");
        drop(client.expect("a client"));
        let _server = forgetful(&socket);
        assert_eq!(blocks(1).count_lost(&uri).expect("a count"), BLOCKS);
    }
}
