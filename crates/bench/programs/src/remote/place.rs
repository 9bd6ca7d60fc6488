//! The servers of an image on the store, and the commands on images.

use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use clap::Args;

use super::peer::{self, Peer};
use super::store::{self, BUCKET, KEY, SECRET};
use super::{Engine, Job, Kind, Work, killed, zerofs};
use crate::served;
use nowait_harness::error::{Context, Failure, Result};
use nowait_harness::launch::{self, Usage};
use nowait_harness::server::{self, Server};

const PATIENCE: Duration = Duration::from_mins(1);

/// The name of the export that a client requests from an NBD server.
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

#[derive(Debug, Clone)]
pub(crate) struct Place {
    /// The address of the relay before the store.
    pub(crate) endpoint: SocketAddr,
    pub(crate) folder: PathBuf,
    pub(crate) programs: Programs,
}

/// A server of an image. Dropping it ends the server.
#[derive(Debug)]
pub(crate) struct Served {
    pub(crate) server: Server,
    pub(crate) uri: String,
}

impl Place {
    fn url(image: &str) -> String {
        format!("s3://{BUCKET}/{image}")
    }

    /// Runs `nowait image WORD IMAGE…`; returns its duration in microseconds.
    pub(crate) fn image(&self, word: &str, images: &[&str], words: &[&str]) -> Result<f64> {
        let urls: Vec<String> = images.iter().map(|image| Place::url(image)).collect();
        let mut command = Command::new(server::nowait_serve());
        launch::inherit_nothing_of_ours(&mut command);
        store::introduce(&mut command).args(["image", word]).args(urls).args(words);
        command.args(["--endpoint", &format!("http://{}", self.endpoint)]);
        // Not by `launch`, which polls processes: that would round the duration up.
        let start = std::time::Instant::now();
        let output = command.output().context(|| "cannot start nowait".to_owned())?;
        let taken_us = start.elapsed().as_secs_f64() * 1e6;
        if output.status.success() {
            return Ok(taken_us);
        }
        let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        Err(Failure::new(format!("nowait image {word}: {said}")))
    }

    pub(crate) fn serve(
        &self,
        engine: &Engine,
        options: &[String],
        image: &str,
        size_bytes: u64,
    ) -> Result<Served> {
        match engine.kind {
            Kind::S3backer => self.write_keys()?,
            Kind::Zerofs => zerofs::write_settings(self, image, &engine.settings)?,
            _ => {}
        }
        let socket = self.file("nbd");
        let path = |path: &Path| path.display().to_string();
        let values = [
            ("store", self.endpoint.to_string()),
            ("image", image.to_owned()),
            ("socket", path(&socket)),
            ("folder", path(&self.folder)),
            ("kib", (size_bytes >> 10).to_string()),
            ("twice", (2 * size_bytes).to_string()),
            ("s3backer", path(&self.programs.s3backer_plugin)),
            ("zerofs", path(&self.programs.zerofs)),
        ];
        let mut command = served::command(&[engine.command.as_slice(), options].concat(), &values);
        store::introduce(&mut command).env("RUST_LOG", "error");
        let _ = fs::remove_file(&socket);
        let listens = |socket: &Path| UnixStream::connect(socket).is_ok();
        let files = (engine.kind == Kind::Zerofs).then(|| zerofs::socket_of_files(&self.folder));
        let is_there = || listens(&socket) && files.as_deref().is_none_or(listens);
        let server = Server::start(&mut command, PATIENCE, is_there)?;
        Ok(Served { server, uri: served::uri(&socket, DEVICE) })
    }

    fn write_keys(&self) -> Result<()> {
        let path = self.file("keys");
        let written = fs::write(&path, format!("{KEY}:{SECRET}\n"));
        let kept =
            written.and_then(|()| fs::set_permissions(&path, fs::Permissions::from_mode(0o600)));
        kept.context(|| path.display().to_string())
    }

    pub(crate) fn file(&self, image: &str) -> PathBuf {
        self.folder.join(image)
    }
}

impl Served {
    pub(crate) fn stop(self) -> Result<Usage> {
        self.server.stop(PATIENCE)
    }
}

pub(crate) fn lack(job: &Job, programs: &Programs) -> Option<String> {
    let engine = match job.engine.kind {
        Kind::Nowait | Kind::Local => None,
        Kind::Slatedb | Kind::Plain => return Peer::lacks(&programs.peers),
        Kind::S3backer => lacks_plugin(&programs.s3backer_plugin),
        Kind::Zerofs => lacks_zerofs(&programs.zerofs),
    };
    engine.or_else(|| (job.work == Work::Killed).then(killed::lacks_client).flatten())
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_that_are_not_there_are_said_with_how_they_are_made() {
        let nowhere = || PathBuf::from("/nowhere/program");
        let programs = Programs { peers: nowhere(), zerofs: nowhere(), s3backer_plugin: nowhere() };
        let why = |kind| {
            let (command, cache, settings) = (Vec::new(), Vec::new(), String::new());
            let engine = Engine { kind, command, cache, settings };
            lack(&Job { engine, work: Work::Read { depth: 1 } }, &programs).unwrap_or_default()
        };
        assert_eq!(why(Kind::Nowait), "");
        let zerofs = why(Kind::Zerofs);
        assert!(zerofs.contains("/nowhere") && zerofs.contains("cargo install zerofs"), "{zerofs}");
        // If nbdkit is missing, the reason names it.
        assert!(why(Kind::S3backer).contains("nbdkit"));
    }
}
