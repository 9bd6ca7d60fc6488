//! The servers of an image, and the commands for one.

use std::fmt::Display;
use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use super::cases::{Before, Local, Server as Kind};
use super::client::Target;
use super::peer::Peer;
use super::store::{BUCKET, KEY, REGION, SECRET};
use crate::error::{BenchError, Context, Result};
use crate::launch::{self, Usage};
use crate::server::Server;

/// How long a server may take to begin, and to end.
const PATIENCE: Duration = Duration::from_mins(1);

/// Where all lies.
#[derive(Debug, Clone)]
pub(crate) struct Place {
    /// This program.
    pub(crate) nowait: PathBuf,
    /// Where the store is reached.
    pub(crate) endpoint: SocketAddr,
    /// For sockets, caches and files.
    pub(crate) folder: PathBuf,
}

/// A server of an image; ended when dropped.
#[derive(Debug)]
pub(crate) struct Served {
    server: Server,
    target: Target,
}

impl Place {
    fn tool(&self, words: &[&str]) -> Command {
        let mut command = Command::new(&self.nowait);
        launch::inherit_nothing_of_ours(&mut command);
        command.env("AWS_ACCESS_KEY_ID", KEY).env("AWS_SECRET_ACCESS_KEY", SECRET);
        command.env("AWS_REGION", REGION).env("NO_PROXY", "127.0.0.1").args(words);
        command
    }

    fn url(image: &str) -> String {
        format!("s3://{BUCKET}/{image}")
    }

    /// Runs `nowait image WORD IMAGE…`; returns how long it took, in microseconds.
    ///
    /// # Errors
    /// It failed.
    pub(crate) fn image(&self, word: &str, images: &[&str], words: &[&str]) -> Result<f64> {
        let urls: Vec<String> = images.iter().map(|image| Place::url(image)).collect();
        let mut command = self.tool(&["image", word]);
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
    ///
    /// # Errors
    /// It cannot be started, or does not serve.
    pub(crate) fn serve(&self, kind: Kind, image: &str, size_bytes: u64) -> Result<Served> {
        let (mut command, target) = match kind {
            Kind::S3backer => self.s3backer(image, size_bytes)?,
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
        let is_there = || match &target {
            Target::Nbd(socket) => UnixStream::connect(socket).is_ok(),
            Target::File(path) => path.metadata().is_ok(),
        };
        let server = Server::start(&mut command, PATIENCE, is_there)?;
        Ok(Served { server, target })
    }

    fn nowait(&self, image: impl Display, options: impl Fn(&mut Command)) -> (Command, Target) {
        let socket = self.folder.join("nbd");
        let mut command = self.tool(&["serve", "--endpoint", &format!("http://{}", self.endpoint)]);
        command.arg(format!("vm={image}")).arg("--nbd").arg(format!("unix:{}", socket.display()));
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
    /// Returns what the client uses.
    pub(crate) fn target(&self) -> &Target {
        &self.target
    }

    /// Ends it in order; returns what it has used.
    ///
    /// # Errors
    /// It does not end.
    pub(crate) fn stop(self) -> Result<Usage> {
        self.server.stop(PATIENCE)
    }
}

/// Says why a server cannot be had, if it cannot; `peers` is the program of other crates.
pub(crate) fn lacks(kind: Kind, peers: &Path) -> Option<String> {
    match kind {
        Kind::Nowait(_) | Kind::Local(_) => None,
        Kind::Crate(_) => Peer::lacks(peers),
        Kind::S3backer => lacks_s3backer(),
    }
}

fn lacks_s3backer() -> Option<String> {
    let there = Command::new("s3backer").arg("--version").output().is_ok();
    let fuse = Path::new("/dev/fuse").exists();
    match (there, fuse) {
        (false, _) => Some("s3backer is not installed".to_owned()),
        (_, false) => Some("there is no /dev/fuse".to_owned()),
        _ => None,
    }
}
