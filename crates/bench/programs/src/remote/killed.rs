//! Blocks that are written before a server is killed, each with a flush, and looked for after it.
//!
//! The client that has written them stays connected until its server is dead: one that makes all
//! durable when a client leaves would have lost nothing otherwise.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use super::client::{self, Target};
use nowait_harness::error::{BenchError, Context, Result};
use nowait_harness::launch;
use nowait_harness::server::Server;

/// Number of blocks written.
pub(crate) const BLOCKS: u64 = 500;
const BLOCK_BYTES: u64 = 4096;

/// How long all of it may take, without the store's delay.
const PATIENCE: Duration = Duration::from_mins(2);
/// How many round trips to the store a write with its flush may take.
const TRIPS_MAX: u32 = 4;

/// The blocks of an image.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Blocks {
    pub(crate) size_bytes: u64,
    /// The number that makes the content of one round different from that of others.
    pub(crate) seed: u64,
    /// The delay of each request to the store.
    pub(crate) delay: Duration,
}

/// The client that has written them, and is still connected.
#[derive(Debug)]
#[expect(dead_code, reason = "they are there until they are dropped")]
pub(crate) enum Client {
    Nbd(Server),
    File(File),
}

impl Blocks {
    /// Returns how long it may take to write or to read them all.
    pub(crate) fn patience(&self) -> Duration {
        let requests = u32::try_from(BLOCKS).unwrap_or(u32::MAX) * TRIPS_MAX;
        PATIENCE + self.delay * requests
    }

    /// Writes all blocks and flushes each; makes the file `written` when it is done.
    pub(crate) fn write(&self, target: &Target, written: &Path) -> Result<Client> {
        match target {
            Target::Nbd(socket) => {
                let body = format!(
                    "for nth in range({BLOCKS}):\n    h.pwrite(data(nth), at(nth))\n    h.flush()\n\
                     open({:?}, 'w').close()\nimport signal\nsignal.pause()\n",
                    written.display().to_string()
                );
                let mut command = self.nbdsh(socket, &body);
                Server::start(&mut command, self.patience(), || written.exists()).map(Client::Nbd)
            }
            Target::File(path) => {
                let what = || path.display().to_string();
                let file = OpenOptions::new().write(true).open(path).context(what)?;
                for nth in 0..BLOCKS {
                    file.write_all_at(&self.data(nth), self.at(nth)).context(what)?;
                    file.sync_data().context(what)?;
                }
                Ok(Client::File(file))
            }
        }
    }

    /// Returns how many do not have what was written.
    pub(crate) fn count_lost(&self, target: &Target) -> Result<u64> {
        match target {
            Target::Nbd(socket) => {
                // A block that cannot be read is lost as well.
                let body = format!(
                    "def lost(nth):\n    try:\n        return h.pread({BLOCK_BYTES}, at(nth)) != \
                     data(nth)\n    except nbd.Error:\n        return True\n\
                     print(sum(map(lost, range({BLOCKS}))))\n"
                );
                let finished = launch::run(&mut self.nbdsh(socket, &body), self.patience())?;
                let count = finished.stdout.trim().parse();
                count.map_err(|_| {
                    let said = finished.stderr.lines().last().unwrap_or("it said nothing");
                    BenchError::failed(format!("nbdsh: {said}"))
                })
            }
            Target::File(path) => {
                let file = File::open(path).context(|| path.display().to_string())?;
                let mut found = [0; BLOCK_BYTES as usize];
                let mut is_lost = |nth: &u64| {
                    let read = file.read_exact_at(&mut found, self.at(*nth));
                    read.is_err() || found != self.data(*nth)[..]
                };
                Ok((0..BLOCKS).filter(&mut is_lost).count() as u64)
            }
        }
    }

    fn nbdsh(&self, socket: &Path, body: &str) -> Command {
        let (stride, seed) = (self.stride(), self.seed);
        let head = format!(
            "import struct\ndef at(nth): return nth * {stride}\n\
             def data(nth): return struct.pack('<QQ', {seed}, nth) * {}\n",
            BLOCK_BYTES / 16
        );
        let mut command = nbdsh();
        command.arg("--uri").arg(client::uri(socket));
        command.arg("--command").arg(head + body);
        command
    }

    /// Returns the bytes from one written block to the next: the blocks are spread over the image.
    fn stride(&self) -> u64 {
        self.size_bytes / BLOCKS / BLOCK_BYTES * BLOCK_BYTES
    }

    fn at(&self, nth: u64) -> u64 {
        nth * self.stride()
    }

    fn data(&self, nth: u64) -> Vec<u8> {
        let words = [self.seed.to_le_bytes(), nth.to_le_bytes()].concat();
        words.repeat(BLOCK_BYTES as usize / words.len())
    }
}

/// The shell of libnbd, with the Python that its package was made for: another that comes first on
/// the path knows nothing of libnbd.
fn nbdsh() -> Command {
    let mut command = Command::new("nbdsh");
    launch::inherit_nothing_of_ours(&mut command);
    command.env("PATH", "/usr/bin:/bin");
    command
}

/// Says why blocks cannot be written to an NBD server and looked for, if they cannot.
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

    fn file() -> (tempfile::TempDir, Target, std::path::PathBuf) {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("image");
        File::create(&path).and_then(|file| file.set_len(8 << 20)).expect("a file");
        (folder, Target::File(path.clone()), path)
    }

    #[test]
    fn what_was_written_and_stayed_is_not_lost() {
        let (folder, target, _) = file();
        let client = blocks(1).write(&target, &folder.path().join("written"));
        drop(client.expect("a client"));
        assert_eq!(blocks(1).count_lost(&target).expect("a count"), 0);
    }

    #[test]
    fn blocks_of_another_round_are_lost_and_zeroes_and_what_is_cut_off() {
        let (folder, target, path) = file();
        assert_eq!(blocks(1).count_lost(&target).expect("a count"), BLOCKS);
        drop(blocks(1).write(&target, &folder.path().join("written")).expect("a client"));
        assert_eq!(blocks(2).count_lost(&target).expect("a count"), BLOCKS);
        let file = OpenOptions::new().write(true).open(&path).expect("the file");
        let blocks = blocks(1);
        file.write_all_at(&[0; 4096], blocks.at(7)).expect("a write");
        file.set_len(blocks.at(BLOCKS - 2) + 1).expect("shorter");
        assert_eq!(blocks.count_lost(&target).expect("a count"), 3);
    }

    /// A server that keeps nothing, of another program.
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
            return nowait_block::conformance::note_skip_here(&why);
        }
        let folder = tempfile::tempdir().expect("a temporary folder");
        let socket = folder.path().join("nbd");
        let target = Target::Nbd(socket.clone());
        let server = forgetful(&socket);
        let client = blocks(1).write(&target, &folder.path().join("written"));
        assert_eq!(blocks(1).count_lost(&target).expect("a count"), 0);
        server.kill().expect("it is killed");
        drop(client.expect("a client"));
        let _server = forgetful(&socket);
        assert_eq!(blocks(1).count_lost(&target).expect("a count"), BLOCKS);
    }
}
