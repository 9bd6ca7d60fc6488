//! Real object-store servers of other projects. Each server has a bucket.
//!
//! | server | speaks | written in | keeps its objects |
//! |---|---|---|---|
//! | moto | S3 | Python | in memory: gone when it ends |
//! | versitygw | S3 | Go | in files: a test may kill it and start it again |
//! | Azurite | Azure Blob Storage | JavaScript | in files |
//! | fake-gcs-server | Google Cloud Storage, with `xml_puts.rs` before it | Go | in memory |

use std::fs;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::{Duration, Instant};

use crate::program::{Program, Running};
use crate::scratch::Scratch;
use crate::skip::Skip;
use crate::xml_puts::XmlPuts;

/// The bucket that each server has.
pub const BUCKET: &str = "disks";
/// The access key of the user. versitygw checks it; moto does not.
pub const KEY: &str = "AKIAIOSFODNN7EXAMPLE";
/// The secret key of the user.
pub const SECRET: &str = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY";
/// A region, which signatures need.
pub const REGION: &str = "us-east-1";

/// The account of Azurite, and its key: both are public.
const ACCOUNT: &str = "devstoreaccount1";
const ACCOUNT_KEY: &str = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/\
    K1SZFPTOtr/KBHBeksoGMGw==";
/// A signature by that key. It permits reads, writes, lists and deletes of blobs until 2999.
const ACCOUNT_SIGNATURE: &str = "sv=2020-12-06&ss=b&srt=sco&sp=rwdlac&se=2999-01-01T00%3A00%3A00Z&\
    sig=2e75XsdEqEX6pnqN2DL6Y42UWGHca0VzR5up%2FpSX0ws%3D";

/// Time limit for the start of a server on a busy machine.
const DEADLINE: Duration = Duration::from_mins(1);
/// The range from which servers get their ports.
const PORTS: std::ops::Range<u16> = 20_000..30_000;
/// Interval at which a test tries to connect to a server that starts.
const GLANCE: Duration = Duration::from_millis(20);

/// The kinds of servers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// moto: S3, in memory.
    Moto,
    /// versitygw: S3, in files.
    Versitygw,
    /// Azurite: Azure's protocol.
    Azurite,
    /// fake-gcs-server: Google's protocol.
    FakeGcs,
}

/// A running server, which a drop kills.
#[derive(Debug)]
pub struct Store {
    kind: Kind,
    program: PathBuf,
    address: SocketAddr,
    running: Option<Running>,
    scratch: Scratch,
    puts: Option<XmlPuts>,
}

/// A server's response to one request.
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
        let mut store = Self { kind, program, address, running: None, scratch, puts: None };
        store.start_again();
        if kind == Kind::FakeGcs {
            store.puts = Some(XmlPuts::start(address));
        }
        store.make_bucket();
        Ok(store)
    }

    fn make_bucket(&self) {
        let curl = Program::new("curl").args(["-sS", "--noproxy", "*", "-f", "-X"]);
        let address = self.address;
        match self.kind {
            Kind::Moto | Kind::Versitygw => {
                let made = self.request("PUT", "", &[], b"");
                assert_eq!(made.status, 200, "no bucket: {}", made.text());
            }
            Kind::Azurite => {
                let query = format!("restype=container&{ACCOUNT_SIGNATURE}");
                let url = format!("http://{address}/{ACCOUNT}/{BUCKET}?{query}");
                curl.args(["PUT", "-H", "Content-Length: 0", &url]).succeed();
            }
            Kind::FakeGcs => {
                let url = format!("http://{address}/storage/v1/b");
                let body = format!("{{\"name\":\"{BUCKET}\"}}");
                curl.args(["POST", "-H", "Content-Type: application/json", "-d", &body, &url])
                    .succeed();
            }
        }
    }

    /// Returns the address for clients: the proxy's if there is one (`xml_puts.rs`), or the
    /// server's.
    pub fn address(&self) -> SocketAddr {
        self.puts.as_ref().map_or(self.address, XmlPuts::address)
    }

    /// Returns the server's endpoint, as its clients write it.
    pub fn own_endpoint(&self) -> String {
        self.endpoint_at(self.address())
    }

    /// Returns the server's endpoint at another address, such as a proxy's.
    pub fn endpoint_at(&self, address: SocketAddr) -> String {
        let endpoint = Self::endpoint(address);
        match self.kind {
            Kind::Azurite => format!("{endpoint}/{ACCOUNT}"),
            _ => endpoint,
        }
    }

    /// Returns the endpoint of an S3 server, or of a proxy before it.
    pub fn endpoint(address: SocketAddr) -> String {
        format!("http://{address}")
    }

    /// Returns the URL of an image in the bucket, on servers with S3's protocol.
    pub fn url(image: &str) -> String {
        Kind::Moto.url(image)
    }

    /// Gives a program the credentials, in the variables that clients of each protocol read.
    pub fn credentials(program: Program) -> Program {
        program
            .env("AWS_ACCESS_KEY_ID", KEY)
            .env("AWS_SECRET_ACCESS_KEY", SECRET)
            .env("AWS_REGION", REGION)
            .env("AZURE_STORAGE_ACCOUNT_NAME", ACCOUNT)
            .env("AZURE_STORAGE_ACCOUNT_KEY", ACCOUNT_KEY)
            .env("GOOGLE_BEARER_TOKEN", "any")
            .env("NO_PROXY", "127.0.0.1")
    }

    /// Kills the server, as in a crash.
    pub fn kill(&mut self) {
        drop(self.running.take());
    }

    /// Starts the server at its address, and returns when it listens.
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
            Kind::Azurite => program
                .args(["--blobPort", &port, "--disableTelemetry", "--silent", "--location"])
                .arg(self.scratch.folder("objects")),
            Kind::FakeGcs => program
                .args(["-scheme", "http", "-host", "127.0.0.1", "-port", &port])
                .args(["-backend", "memory", "-public-host", &address]),
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

    /// Sends a signed S3 request about an object, or about the bucket if `key` is empty. Panics if
    /// no whole response arrives.
    pub fn request(&self, method: &str, key: &str, headers: &[&str], body: &[u8]) -> Answer {
        self.request_at(self.address, method, key, headers, body).expect("the store answers")
    }

    /// Sends a signed S3 request to `address`, such as a proxy's; `None`: curl received no whole
    /// response.
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
            // curl uploads a file: moto would parse the data of curl's option `-d` as a form.
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

/// Returns a free address. The system does not assign its port to other programs, so that the
/// server can use it again after a crash.
fn free_address() -> SocketAddr {
    static ASKED: AtomicU32 = AtomicU32::new(0);
    let first = std::process::id().wrapping_mul(31);
    let numbers = std::iter::repeat_with(|| first.wrapping_add(ASKED.fetch_add(1, Relaxed)));
    let ports = numbers.take(PORTS.len()).map(|number| PORTS.start + (number % 10_000) as u16);
    let mut addresses = ports.map(|port| SocketAddr::from((Ipv4Addr::LOCALHOST, port)));
    addresses.find(|address| TcpListener::bind(address).is_ok()).expect("a free port")
}

/// Returns the SHA-256 of a body. The signature of a request covers this sum: without the sum
/// versitygw would accept half a body as the whole.
fn sum(file: &Path) -> String {
    let output = Program::new("sha256sum").arg(file).succeed();
    output.stdout.split(' ').next().unwrap_or_default().to_owned()
}

impl Answer {
    /// Returns the body as text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
}

impl Kind {
    /// Returns the URL of an image in the bucket.
    pub fn url(self, image: &str) -> String {
        let scheme = match self {
            Self::Moto | Self::Versitygw => "s3",
            Self::Azurite => "az",
            Self::FakeGcs => "gs",
        };
        format!("{scheme}://{BUCKET}/{image}")
    }

    /// Returns the path at which `make setup` installs the server; a skip if it is missing.
    pub fn program(self) -> Result<PathBuf, Skip> {
        let stores = Path::new(env!("CARGO_MANIFEST_DIR")).join("../.stamps/stores");
        let (path, what) = match self {
            Self::Moto => ("moto/bin/moto_server", "the Python package moto"),
            Self::Versitygw => ("versitygw", "the Go module versitygw"),
            Self::Azurite => ("azurite/node_modules/.bin/azurite-blob", "the npm package azurite"),
            Self::FakeGcs => ("fake-gcs-server", "the Go module fake-gcs-server"),
        };
        let path = stores.join(path);
        if path.exists() {
            return Ok(path);
        }
        Err(Skip(format!("{what} is not there: see xtask/setup.sh")))
    }
}
