//! The time limit for choosing an export holds however slowly or busily a client sends.

use nowait::Nowait;
use nowait_device::{Cache, Image, ImageOptions};
use nowait_server::{
    nbd::Security,
    server::{Config, Server},
};
use std::{
    io::{ErrorKind, Read, Write},
    os::unix::net::UnixStream,
    sync::Arc,
    time::Duration,
};

const LIMIT_MS: u64 = 100;
/// The longest pause between two bytes: shorter than the limit.
const DRIP: Duration = Duration::from_millis(20);
/// An option without data that the server does not know.
const UNKNOWN: &[u8] = b"IHAVEOPT\0\0\0\x77\0\0\0\0";

/// Sends `bytes` again and again, one by one, until the server has closed the connection.
fn drip(mut client: UnixStream, bytes: &[u8]) {
    client.set_read_timeout(Some(DRIP)).unwrap();
    client.write_all(b"\0\0\0\x03").unwrap();
    for byte in bytes.iter().cycle() {
        if client.write_all(&[*byte]).is_err() {
            return;
        }
        match client.read(&mut [0; 64]) {
            Ok(0) => return,
            Err(error) if error.kind() != ErrorKind::WouldBlock => return,
            _ => {}
        }
    }
}

#[test]
fn a_client_that_drips_has_no_more_time_than_a_silent_one() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("image");
    std::fs::write(&path, vec![0; 4096]).unwrap();
    let nowait = Nowait::new().unwrap();
    // The folder may be on a file system without direct I/O.
    let options = ImageOptions { path, cache: Cache::Host, ..ImageOptions::default() };
    let image = Arc::new(Image::open(&nowait, &options).unwrap());
    let config = Config { handshake_ms: LIMIT_MS, ..Config::default() };
    let mut server = Server::start(&nowait, vec![image], &config).unwrap();
    let mut connect = || {
        let (near, far) = UnixStream::pair().unwrap();
        near.set_nonblocking(true).unwrap();
        server.serve(near.into(), Security::Plain);
        far
    };
    let (mut silent, slow, busy) = (connect(), connect(), connect());
    std::thread::scope(|scope| {
        // One client sends an option that takes too long; the other sends one option after the
        // other.
        scope.spawn(|| drip(slow, &[b"IHAVEOPT\0\0\0\x77\0\0\x40\0", &[0; 16 << 10][..]].concat()));
        scope.spawn(|| drip(busy, UNKNOWN));
        silent.read_to_end(&mut Vec::new()).unwrap();
    });
    assert_eq!(server.view().clients().timed_out(), 3);
    server.stop().unwrap();
}
