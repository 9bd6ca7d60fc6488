//! The servers of an image, and the commands for one.

use std::fmt::Display;
use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use clap::Args;

use super::client::Target;
use super::peer::{self, Peer};
use super::store::{self, BUCKET, KEY, SECRET};
use super::{Before, By, Job, Local, Server as Kind, Work, killed, zerofs};
use nowait_harness::error::{BenchError, Context, Result};
use nowait_harness::launch::{self, Usage};
use nowait_harness::server::{self, Server};

/// How long a server may take to begin, and to end.
const PATIENCE: Duration = Duration::from_mins(1);

/// The name of the export that a client asks an NBD server for.
pub(crate) const DEVICE: &str = "vm";

/// The programs of others.
#[derive(Debug, Clone, Args)]
pub struct Programs {
    /// The program with SlateDB and a plain client
    #[arg(long, hide_short_help = true, value_name = "FILE", default_value = peer::PROGRAM)]
    pub peers: PathBuf,

    /// The plugin of s3backer 2 in nbdkit: its name, or its file
    #[arg(long, hide_short_help = true, value_name = "PLUGIN", default_value = "s3backer")]
    pub s3backer_plugin: PathBuf,

    /// The program of ZeroFS
    #[arg(long, hide_short_help = true, value_name = "FILE", default_value = "zerofs")]
    pub zerofs: PathBuf,
}

/// Where all lies.
#[derive(Debug, Clone)]
pub(crate) struct Place {
    /// Where the store is reached.
    pub(crate) endpoint: SocketAddr,
    /// For sockets, caches and files.
    pub(crate) folder: PathBuf,
    pub(crate) programs: Programs,
}

/// A server of an image; ended when dropped.
#[derive(Debug)]
pub(crate) struct Served {
    server: Server,
    target: Target,
}

impl Place {
    fn tool(words: &[&str]) -> Command {
        let mut command = Command::new(server::nowait_serve());
        launch::inherit_nothing_of_ours(&mut command);
        store::introduce(&mut command).args(words);
        command
    }

    fn url(image: &str) -> String {
        format!("s3://{BUCKET}/{image}")
    }

    /// Runs `nowait image WORD IMAGE…`; returns how long it took, in microseconds.
    pub(crate) fn image(&self, word: &str, images: &[&str], words: &[&str]) -> Result<f64> {
        let urls: Vec<String> = images.iter().map(|image| Place::url(image)).collect();
        let mut command = Self::tool(&["image", word]);
        command.args(urls).args(words);
        command.args(["--endpoint", &format!("http://{}", self.endpoint)]);
        // Not by way of the poll of a longer run.
        let start = std::time::Instant::now();
        let output = command.output().context(|| "cannot start nowait".to_owned())?;
        let taken_us = start.elapsed().as_secs_f64() * 1e6;
        if output.status.success() {
            return Ok(taken_us);
        }
        let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        Err(BenchError::failed(format!("nowait image {word}: {said}")))
    }

    /// Has a server of this kind serve `image` of `size_bytes`, and waits until it does.
    pub(crate) fn serve(&self, kind: Kind, image: &str, size_bytes: u64) -> Result<Served> {
        let (mut command, target) = match kind {
            Kind::S3backer(By::Fuse) => self.s3backer(image, size_bytes)?,
            Kind::S3backer(By::Nbd) => self.s3backer_nbd(image, size_bytes)?,
            Kind::ZeroFs(level0) => {
                let socket = self.socket();
                (zerofs::command(self, image, level0, &socket)?, Target::Nbd(socket))
            }
            Kind::Crate(which) => {
                let why = format!("{} has no server", which.word());
                return Err(BenchError::failed(why));
            }
            Kind::Local(cache) => self.nowait(self.folder.join(image).display(), |command| {
                if cache == Local::Memory {
                    command.args(["--cache", "user", "--cache-size"]);
                    command.arg((2 * size_bytes).to_string());
                }
            }),
            Kind::Nowait(before) => {
                let cache = self.folder.join("cache");
                fs::create_dir_all(&cache).context(|| cache.display().to_string())?;
                self.nowait(Place::url(image), |command| match before {
                    Before::Nothing => {}
                    Before::Memory => {
                        command.args(["--cache", "user", "--cache-size"]);
                        command.arg((2 * size_bytes).to_string());
                    }
                    Before::Folder => drop(command.arg("--cache-dir").arg(&cache)),
                })
            }
        };
        if let Target::Nbd(socket) = &target {
            let _ = fs::remove_file(socket);
        }
        let listens = |socket: &Path| UnixStream::connect(socket).is_ok();
        let is_there = || match &target {
            Target::Nbd(socket) => {
                let for_files = matches!(kind, Kind::ZeroFs(_));
                listens(socket) && (!for_files || listens(&zerofs::socket_of_files(&self.folder)))
            }
            Target::File(path) => path.metadata().is_ok(),
        };
        let server = Server::start(&mut command, PATIENCE, is_there)?;
        Ok(Served { server, target })
    }

    fn socket(&self) -> PathBuf {
        self.folder.join("nbd")
    }

    fn nowait(&self, image: impl Display, options: impl Fn(&mut Command)) -> (Command, Target) {
        let socket = self.socket();
        let mut command =
            Self::tool(&["serve", "--endpoint", &format!("http://{}", self.endpoint)]);
        command
            .arg(format!("{DEVICE}={image}"))
            .arg("--nbd")
            .arg(format!("unix:{}", socket.display()));
        options(&mut command);
        (command, Target::Nbd(socket))
    }

    fn s3backer(&self, image: &str, size_bytes: u64) -> Result<(Command, Target)> {
        let mount = self.folder.join("mount");
        fs::create_dir_all(&mount).context(|| mount.display().to_string())?;
        let mut command = Command::new("s3backer");
        command.arg(format!("--accessFile={}", self.keys()?.display()));
        command.arg(format!("--baseURL=http://{}/", self.endpoint));
        command.arg(format!("--prefix={image}-")).arg(format!("--size={size_bytes}"));
        command.args(["--blockSize=4k", "--blockCacheSize=0", "--md5CacheSize=0"]);
        command.args(["--md5CacheTime=0", "--minWriteDelay=0", "--directIO", "--force"]);
        command.args(["--quiet", "-f", BUCKET]).arg(&mount);
        Ok((command, Target::File(mount.join("file"))))
    }

    /// The plugin takes the options of the program.
    fn s3backer_nbd(&self, image: &str, size_bytes: u64) -> Result<(Command, Target)> {
        let socket = self.socket();
        let mut command = Command::new("nbdkit");
        launch::inherit_nothing_of_ours(&mut command);
        command.args(["--foreground", "--unix"]).arg(&socket);
        command.arg(&self.programs.s3backer_plugin).arg(format!("bucket={BUCKET}"));
        command.arg(format!("accessFile={}", self.keys()?.display()));
        command.arg(format!("baseURL=http://{}/", self.endpoint));
        // A size has a unit there.
        command.arg(format!("prefix={image}-")).arg(format!("size={}k", size_bytes >> 10));
        command.args(["blockSize=4k", "blockCacheSize=0", "md5CacheSize=0", "md5CacheTime=0"]);
        command.args(["minWriteDelay=0", "force=true", "quiet=true"]);
        Ok((command, Target::Nbd(socket)))
    }

    /// Returns the file in which s3backer finds its keys.
    fn keys(&self) -> Result<PathBuf> {
        let path = self.folder.join("keys");
        let written = fs::write(&path, format!("{KEY}:{SECRET}\n"));
        let kept =
            written.and_then(|()| fs::set_permissions(&path, fs::Permissions::from_mode(0o600)));
        kept.context(|| path.display().to_string())?;
        Ok(path)
    }

    /// Returns the file of this machine that is called so.
    pub(crate) fn file(&self, image: &str) -> PathBuf {
        self.folder.join(image)
    }
}

impl Served {
    /// Returns the file, folder or socket that the client uses.
    pub(crate) fn target(&self) -> &Target {
        &self.target
    }

    /// Ends it in order; returns what it has used.
    pub(crate) fn stop(self) -> Result<Usage> {
        self.server.stop(PATIENCE)
    }

    /// Kills it, and takes down what it has mounted.
    pub(crate) fn kill(self) -> Result<()> {
        self.server.kill()?;
        if let Target::File(path) = &self.target {
            let _ = Command::new("umount").arg("--lazy").args(path.parent()).output();
        }
        Ok(())
    }
}

/// Says why a job cannot be done, if it cannot.
pub(crate) fn lacks(job: &Job, programs: &Programs) -> Option<String> {
    let by_nbd = !matches!(job.engine, Kind::S3backer(By::Fuse) | Kind::Crate(_));
    let client = || (by_nbd && job.work == Work::Killed).then(killed::lacks_client).flatten();
    let server = match job.engine {
        Kind::Nowait(_) | Kind::Local(_) => None,
        Kind::Crate(_) => Peer::lacks(&programs.peers),
        Kind::S3backer(By::Fuse) => lacks_s3backer(),
        Kind::S3backer(By::Nbd) => lacks_plugin(&programs.s3backer_plugin),
        Kind::ZeroFs(_) => lacks_zerofs(&programs.zerofs),
    };
    server.or_else(client)
}

fn lacks_plugin(plugin: &Path) -> Option<String> {
    match Command::new("nbdkit").arg(plugin).arg("--dump-plugin").output() {
        Err(_) => Some("nbdkit is not installed".to_owned()),
        Ok(output) if output.status.success() => None,
        Ok(_) => Some(format!(
            "nbdkit has no plugin {}: s3backer 2 makes it, built from its source where \
             nbdkit-plugin-dev is installed",
            plugin.display()
        )),
    }
}

fn lacks_zerofs(program: &Path) -> Option<String> {
    launch::lack(program).map(|why| why + ": cargo install zerofs --version 0.19.1 --locked")
}

fn lacks_s3backer() -> Option<String> {
    let no_fuse = !Path::new("/dev/fuse").exists();
    let no_fuse = || no_fuse.then(|| "there is no /dev/fuse".to_owned());
    launch::lack(Path::new("s3backer")).or_else(no_fuse)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::remote::Level0;

    #[test]
    fn programs_that_are_not_there_are_said_with_how_they_are_made() {
        let nowhere = || PathBuf::from("/nowhere/program");
        let programs = Programs { peers: nowhere(), zerofs: nowhere(), s3backer_plugin: nowhere() };
        let why = |server| {
            let work = Work::Read { depth: 1 };
            lacks(&Job { engine: server, work }, &programs).unwrap_or_default()
        };
        assert_eq!(why(Kind::Nowait(Before::Nothing)), "");
        let zerofs = why(Kind::ZeroFs(Level0::Default));
        assert!(zerofs.contains("/nowhere") && zerofs.contains("cargo install zerofs"), "{zerofs}");
        // Where there is no nbdkit that is the reason.
        assert!(why(Kind::S3backer(By::Nbd)).contains("nbdkit"));
    }
}
