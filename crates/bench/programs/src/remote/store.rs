//! The store: versitygw with local files, which it does not sync.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use nowait_harness::error::{Context, Result};
use nowait_harness::server::Server;

pub(crate) const BUCKET: &str = "disks";
/// Only this machine can reach the store, which ends with the measurement.
pub(crate) const KEY: &str = "benchmark";
pub(crate) const SECRET: &str = "benchmark-secret";
pub(crate) const REGION: &str = "us-east-1";

const PATIENCE: Duration = Duration::from_secs(20);

pub(crate) fn introduce(command: &mut Command) -> &mut Command {
    command.env("AWS_ACCESS_KEY_ID", KEY).env("AWS_SECRET_ACCESS_KEY", SECRET);
    command.env("AWS_REGION", REGION).env("NO_PROXY", "127.0.0.1")
}

/// A running store. Dropping it ends the store.
#[derive(Debug)]
pub(crate) struct Store {
    address: SocketAddr,
    _server: Server,
}

impl Store {
    pub(crate) fn start(program: &Path, folder: &Path) -> Result<Store> {
        let what = || folder.display().to_string();
        let (meta, objects) = (folder.join("meta"), folder.join("objects"));
        fs::create_dir_all(&meta).context(what)?;
        fs::create_dir_all(objects.join(BUCKET)).context(what)?;
        let free = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).and_then(|it| it.local_addr());
        let address = free.context(|| "a free port".to_owned())?;
        let mut command = Command::new(program);
        command.args(["--access", KEY, "--secret", SECRET, "--region", REGION]);
        // Connections stay open, as with other fast stores.
        command.args(["--quiet", "--keep-alive"]);
        command.args(["--port", &address.to_string(), "posix", "--sidecar"]);
        command.arg(meta).arg(objects);
        let listens = || TcpStream::connect(address).is_ok();
        let server = Server::start(&mut command, PATIENCE, listens)?;
        Ok(Store { address, _server: server })
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }
}
