//! As much of 9P2000.L as makes a file: the devices of ZeroFS are files, and no command makes one.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use nowait_harness::error::{BenchError, Context, Result};

/// How long an answer may take.
const PATIENCE: Duration = Duration::from_mins(1);

/// Kinds of requests; the answer to one is the next number.
const TLCREATE: u8 = 14;
const TSETATTR: u8 = 26;
const TFSYNC: u8 = 50;
const TVERSION: u8 = 100;
const TATTACH: u8 = 104;
const TWALK: u8 = 110;
/// The answer to one that failed: an errno.
const RLERROR: u8 = 7;

/// The tag of the request that begins a session.
const NO_TAG: u16 = !0;
/// No file, where one may be named.
const NO_FID: u32 = !0;
const MESSAGE_BYTES_MAX: u32 = 8192;
/// The flag of [`TSETATTR`] that sets the size, and nothing else.
const SIZE_ONLY: u32 = 8;
const READ_WRITE: u32 = 2;
const OWNER_ONLY: u32 = 0o600;

/// Makes the file `name` of `size_bytes` in `folder` of the root, durably.
pub(crate) fn make_file(socket: &Path, folder: &str, name: &str, size_bytes: u64) -> Result<()> {
    let what = || format!("9P at {}", socket.display());
    let stream = UnixStream::connect(socket).context(what)?;
    stream.set_read_timeout(Some(PATIENCE)).context(what)?;
    let mut session = Session(stream);
    // The root has the number 0, and the file 1, which is the folder before it is made.
    let version = Body::default().number(MESSAGE_BYTES_MAX).text("9P2000.L");
    let attach = Body::default().number(0).number(NO_FID).text("root").text("").number(0);
    let walk = Body::default().number(0).number(1).short(1).text(folder);
    let create = Body::default().number(1).text(name).number(READ_WRITE).number(OWNER_ONLY);
    let owner_and_group = Body::default().number(1).number(SIZE_ONLY).number(0).number(0).number(0);
    let times = [0; 4];
    let resize = times.iter().fold(owner_and_group.long(size_bytes), |body, time| body.long(*time));
    let requests = [
        (TVERSION, version),
        (TATTACH, attach),
        (TWALK, walk),
        (TLCREATE, create.number(0)),
        (TSETATTR, resize),
        (TFSYNC, Body::default().number(1).number(0)),
    ];
    for (kind, body) in requests {
        if let Some(errno) = session.ask(kind, &body.0).context(what)? {
            let why = io::Error::from_raw_os_error(errno);
            return Err(BenchError::failed(format!("{}, request {kind}: {why}", what())));
        }
    }
    Ok(())
}

/// The body of a request.
#[derive(Debug, Default)]
struct Body(Vec<u8>);

impl Body {
    fn bytes(mut self, bytes: &[u8]) -> Self {
        self.0.extend_from_slice(bytes);
        self
    }

    fn short(self, number: u16) -> Self {
        self.bytes(&number.to_le_bytes())
    }

    fn number(self, number: u32) -> Self {
        self.bytes(&number.to_le_bytes())
    }

    fn long(self, number: u64) -> Self {
        self.bytes(&number.to_le_bytes())
    }

    fn text(self, text: &str) -> Self {
        let length = u16::try_from(text.len()).expect("a short text");
        self.short(length).bytes(text.as_bytes())
    }
}

struct Session(UnixStream);

impl Session {
    /// Asks, and waits for the answer; returns the errno of one that failed.
    fn ask(&mut self, kind: u8, body: &[u8]) -> io::Result<Option<i32>> {
        let tag = if kind == TVERSION { NO_TAG } else { 0 };
        let length = u32::try_from(body.len() + 7).expect("a short request");
        let head = [&length.to_le_bytes()[..], &[kind], &tag.to_le_bytes()].concat();
        self.0.write_all(&[&head, body].concat())?;
        let mut head = [0; 7];
        self.0.read_exact(&mut head)?;
        let length = u32::from_le_bytes([head[0], head[1], head[2], head[3]]);
        let invalid = || io::Error::from(io::ErrorKind::InvalidData);
        if !(7..=MESSAGE_BYTES_MAX).contains(&length) {
            return Err(invalid());
        }
        let mut body = vec![0; length as usize - 7];
        self.0.read_exact(&mut body)?;
        match (head[4], body.first_chunk()) {
            (RLERROR, Some(errno)) => Ok(Some(i32::from_le_bytes(*errno))),
            (answer, _) if answer == kind + 1 => Ok(None),
            _ => Err(invalid()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixListener;
    use std::thread::{self, JoinHandle};

    /// A server that answers whatever comes, `refused` by ENOSPC; returns the requests.
    fn server(socket: &Path, refused: u8) -> JoinHandle<Vec<(u8, Vec<u8>)>> {
        let listener = UnixListener::bind(socket).expect("a socket");
        thread::spawn(move || {
            let (mut stream, _) = listener.accept().expect("a connection");
            let (mut head, mut requests) = ([0; 7], Vec::new());
            while stream.read_exact(&mut head).is_ok() {
                let length = u32::from_le_bytes(*head.first_chunk().expect("a head"));
                let mut body = vec![0; length as usize - 7];
                stream.read_exact(&mut body).expect("a body");
                requests.push((head[4], body));
                let answer: &[u8] = match head[4] == refused {
                    true => &[11, 0, 0, 0, RLERROR, 0, 0, 28, 0, 0, 0],
                    false => &[7, 0, 0, 0, head[4] + 1, 0, 0],
                };
                stream.write_all(answer).expect("a connection");
            }
            requests
        })
    }

    #[test]
    fn a_file_is_made_with_its_size() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let socket = folder.path().join("9p");
        let server = server(&socket, 0);
        make_file(&socket, ".nbd", "vm", 64 << 20).expect("a file");
        let requests = server.join().expect("no panic");
        let kinds: Vec<u8> = requests.iter().map(|(kind, _)| *kind).collect();
        assert_eq!(kinds, [TVERSION, TATTACH, TWALK, TLCREATE, TSETATTR, TFSYNC]);
        assert_eq!(requests[2].1, b"\0\0\0\0\x01\0\0\0\x01\0\x04\0.nbd");
        // Five numbers are before the size, four times behind it.
        let (_, resize) = &requests[4];
        assert_eq!(
            (resize[20..28].to_vec(), resize.len()),
            ((64_u64 << 20).to_le_bytes().into(), 60)
        );
    }

    #[test]
    fn a_refusal_is_told_with_its_reason() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let socket = folder.path().join("9p");
        let server = server(&socket, TLCREATE);
        let error = make_file(&socket, ".nbd", "vm", 1).expect_err("it is refused").to_string();
        assert!(error.contains("request 14: No space left"), "{error}");
        server.join().expect("no panic");
    }
}
