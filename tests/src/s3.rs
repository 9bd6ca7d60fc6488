//! Real S3-compatible servers that others wrote, each with a bucket.
//!
//! | server | written in | keeps its objects |
//! |---|---|---|
//! | moto | Python | in memory: gone when it ends |
//! | versitygw | Go | in files: a test may kill it and start it again |

use std::fs;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::{Duration, Instant};

use crate::program::{Program, Running};
use crate::scratch::Scratch;
use crate::skip::Skip;

/// The bucket that each server has.
pub const BUCKET: &str = "disks";
/// Who asks: only versitygw minds.
pub const KEY: &str = "AKIAIOSFODNN7EXAMPLE";
/// The secret of it.
pub const SECRET: &str = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY";
/// A region, which signatures need.
pub const REGION: &str = "us-east-1";

/// How long a server may take to start on a busy machine.
const DEADLINE: Duration = Duration::from_mins(1);
/// Ports of servers.
const PORTS: std::ops::Range<u16> = 20_000..30_000;
/// How soon it is noticed that it listens.
const GLANCE: Duration = Duration::from_millis(20);

/// Which server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// In memory.
    Moto,
    /// In files.
    Versitygw,
}

/// A running server; killed when dropped.
#[derive(Debug)]
pub struct Store {
    kind: Kind,
    program: PathBuf,
    address: SocketAddr,
    running: Option<Running>,
    scratch: Scratch,
}

/// What a server answered to one request.
#[derive(Debug)]
pub struct Answer {
    /// The status.
    pub status: u16,
    /// The body.
    pub body: Vec<u8>,
}

impl Store {
    /// Starts a server with an empty bucket.
    pub fn start(kind: Kind) -> Result<Self, Skip> {
        let program = kind.program()?;
        let address = free_address();
        let scratch = Scratch::new("store");
        let mut store = Self { kind, program, address, running: None, scratch };
        store.start_again();
        let made = store.request("PUT", "", &[], b"");
        assert_eq!(made.status, 200, "no bucket: {}", made.text());
        Ok(store)
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// What clients call the server, or a proxy before it.
    pub fn endpoint(address: SocketAddr) -> String {
        format!("http://{address}")
    }

    /// The URL of an image in the bucket.
    pub fn url(image: &str) -> String {
        format!("s3://{BUCKET}/{image}")
    }

    /// Gives a program the credentials by the variables that clients of S3 read.
    pub fn credentials(program: Program) -> Program {
        program
            .env("AWS_ACCESS_KEY_ID", KEY)
            .env("AWS_SECRET_ACCESS_KEY", SECRET)
            .env("AWS_REGION", REGION)
            .env("NO_PROXY", "127.0.0.1")
    }

    /// Ends it as a crash would.
    pub fn kill(&mut self) {
        drop(self.running.take());
    }

    /// Starts it at the same address, and returns when it listens.
    pub fn start_again(&mut self) {
        let address = self.address.to_string();
        let port = self.address.port().to_string();
        let program = Program::new(&self.program);
        let program = match self.kind {
            Kind::Moto => program.args(["-H", "127.0.0.1", "-p", &port]),
            Kind::Versitygw => {
                let (meta, objects) = (self.scratch.folder("meta"), self.scratch.folder("objects"));
                program
                    .args(["--access", KEY, "--secret", SECRET, "--region", REGION])
                    .args(["--port", &address, "posix", "--sidecar"])
                    .args([meta, objects])
            }
        };
        let mut running = program.spawn();
        let start = Instant::now();
        while TcpStream::connect(self.address).is_err() {
            let ended = running.ends_within(GLANCE);
            assert!(!ended, "the store ended\n{}", running.stderr());
            assert!(start.elapsed() < DEADLINE, "no store listens\n{}", running.stderr());
        }
        self.running = Some(running);
    }

    /// Asks for an object, signed.
    pub fn request(&self, method: &str, key: &str, headers: &[&str], body: &[u8]) -> Answer {
        self.request_at(self.address, method, key, headers, body).expect("the store answers")
    }

    /// The same by way of a proxy; `None`: the connection ended without a whole answer.
    pub fn request_at(
        &self,
        address: SocketAddr,
        method: &str,
        key: &str,
        headers: &[&str],
        body: &[u8],
    ) -> Option<Answer> {
        let folder = tempfile::tempdir_in(self.scratch.path()).expect("a folder");
        let [sent, received] = ["sent", "received"].map(|name| folder.path().join(name));
        fs::write(&sent, body).expect("a file");
        let mut curl = Program::new("curl")
            .args(["-s", "--noproxy", "*", "--max-time", "60", "-w", "%{http_code}", "-X", method])
            .args(["--user", &format!("{KEY}:{SECRET}")])
            .args(["--aws-sigv4", &format!("aws:amz:{REGION}:s3"), "-H", "Expect:"])
            .args(["-H", &format!("x-amz-content-sha256: {}", sum(&sent)), "-o"])
            .arg(&received);
        curl = match method {
            // As it is: data would be a form's, which moto reads as one.
            "PUT" => curl.arg("-T").arg(&sent),
            _ => curl,
        };
        for header in headers {
            curl = curl.args(["-H", header]);
        }
        let url = format!("{}/{BUCKET}/{key}", Self::endpoint(address));
        let output = curl.arg(url.trim_end_matches('/')).run();
        let status = output.status.success().then_some(output.stdout.trim())?.parse().ok()?;
        Some(Answer { status, body: fs::read(&received).unwrap_or_default() })
    }
}

/// An address that stays free while the server is dead: below the ports that the system gives to
/// those that ask for any.
fn free_address() -> SocketAddr {
    static ASKED: AtomicU32 = AtomicU32::new(0);
    let first = std::process::id().wrapping_mul(31);
    let numbers = std::iter::repeat_with(|| first.wrapping_add(ASKED.fetch_add(1, Relaxed)));
    let ports = numbers.take(PORTS.len()).map(|number| PORTS.start + (number % 10_000) as u16);
    let mut addresses = ports.map(|port| SocketAddr::from((Ipv4Addr::LOCALHOST, port)));
    addresses.find(|address| TcpListener::bind(address).is_ok()).expect("a free port")
}

/// The sum of a body, which its signature covers: without it versitygw takes half a body for all.
fn sum(file: &Path) -> String {
    let output = Program::new("sha256sum").arg(file).succeed();
    output.stdout.split(' ').next().unwrap_or_default().to_owned()
}

impl Answer {
    /// The body as text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
}

impl Kind {
    /// Where `make setup` puts it.
    fn program(self) -> Result<PathBuf, Skip> {
        let stores = Path::new(env!("CARGO_MANIFEST_DIR")).join("../.stamps/stores");
        let path = match self {
            Self::Moto => stores.join("moto/bin/moto_server"),
            Self::Versitygw => stores.join("versitygw"),
        };
        if path.exists() {
            return Ok(path);
        }
        let why = match self {
            Self::Moto => "the Python package moto is not there",
            Self::Versitygw => "the Go module versitygw is not there",
        };
        Err(Skip(format!("{why}: see xtask/setup.sh")))
    }
}
