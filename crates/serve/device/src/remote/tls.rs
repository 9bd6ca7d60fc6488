//! TLS to a server, by rustls.

use super::stream::Stream;
use crate::backing::TlsWish;
use nowait_sys::mutex::Mutex;
use rustls::{
    ClientConfig, ClientConnection, RootCertStore,
    crypto::ring,
    pki_types::{
        CertificateDer, PrivateKeyDer, ServerName,
        pem::{self, PemObject},
    },
};
use std::{
    fmt,
    io::{self, Read, Write},
    path::Path,
    sync::Arc,
};

/// The TLS settings for a server. The client reads the files for each connection, because
/// administrators renew certificates.
pub(super) struct Tls {
    config: Arc<ClientConfig>,
    name: ServerName<'static>,
}

impl Tls {
    pub(super) fn load(wish: &TlsWish) -> io::Result<Tls> {
        let name = ServerName::try_from(wish.host.clone());
        let name = name.map_err(|error| wrong(&wish.host, &error))?;
        let builder = ClientConfig::builder_with_provider(ring::default_provider().into())
            .with_safe_default_protocol_versions()
            .map_err(io::Error::other)?;
        let folder = wish.certificates.as_deref();
        let builder = builder.with_root_certificates(match folder {
            Some(folder) => authorities(&folder.join("ca-cert.pem"))?,
            None => authorities_of_the_system()?,
        });
        let config = match folder.map(|folder| folder.join("client-cert.pem")) {
            Some(certificate) if certificate.exists() => {
                let key = certificate.with_file_name("client-key.pem");
                let own = builder.with_client_auth_cert(chain(&certificate)?, private_key(&key)?);
                own.map_err(|error| about(&certificate, &error))?
            }
            _ => builder.with_no_client_auth(),
        };
        Ok(Tls { config: Arc::new(config), name })
    }
}

fn authorities(path: &Path) -> io::Result<RootCertStore> {
    let mut roots = RootCertStore::empty();
    for certificate in chain(path)? {
        roots.add(certificate).map_err(|error| about(path, &error))?;
    }
    Ok(roots)
}

fn authorities_of_the_system() -> io::Result<RootCertStore> {
    let mut roots = RootCertStore::empty();
    // Skip certificates that rustls cannot parse: some systems have such certificates.
    let (good, _) = roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    if good == 0 {
        let missing = "no certificate authorities in this system: name a folder, \
                       tls-certificates=DIR";
        return Err(io::Error::other(missing));
    }
    Ok(roots)
}

fn chain(path: &Path) -> io::Result<Vec<CertificateDer<'static>>> {
    let read = CertificateDer::pem_file_iter(path).map_err(|error| about(path, &error))?;
    let all: Result<Vec<_>, _> = read.collect();
    let all = all.map_err(|error| about(path, &error))?;
    if all.is_empty() {
        return Err(about(path, &"no PEM certificate in the file"));
    }
    Ok(all)
}

fn private_key(path: &Path) -> io::Result<PrivateKeyDer<'static>> {
    PrivateKeyDer::from_pem_file(path).map_err(|error| match error {
        pem::Error::NoItemsFound => about(path, &"no PEM private key in the file"),
        error => about(path, &error),
    })
}

fn about(path: &Path, error: &dyn fmt::Display) -> io::Error {
    wrong(&path.display().to_string(), error)
}

fn wrong(what: &str, error: &dyn fmt::Display) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, format!("{what}: {error}"))
}

/// A connection by TLS. One thread may read while another thread writes.
pub(super) struct Channel {
    socket: Stream,
    state: Mutex<State>,
    /// Held by a writer, so that records go out in the order of their encryption.
    turn: Mutex<()>,
}

struct State {
    connection: ClientConnection,
    arrived: Vec<u8>,
}

const PIECE_BYTES: usize = 16 << 10;

impl fmt::Debug for Channel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Channel({:?})", self.socket)
    }
}

impl Channel {
    pub(super) fn begin(mut socket: Stream, tls: &Tls) -> io::Result<Channel> {
        let connection = ClientConnection::new(tls.config.clone(), tls.name.clone());
        let mut connection = connection.map_err(io::Error::other)?;
        while connection.is_handshaking() {
            connection.complete_io(&mut socket)?;
        }
        let state = Mutex::new(State { connection, arrived: Vec::new() });
        Ok(Channel { socket, state, turn: Mutex::new(()) })
    }

    pub(super) fn socket(&self) -> &Stream {
        &self.socket
    }

    /// `Ok(0)`: the server has closed the connection.
    pub(super) fn read(&self, bytes: &mut [u8]) -> io::Result<usize> {
        loop {
            if let Some(outcome) = self.state.lock().read(bytes) {
                return outcome;
            }
            // Release the lock while this thread reads from the socket, so that another thread can
            // write.
            let mut piece = [0; PIECE_BYTES];
            let len = (&self.socket).read(&mut piece)?;
            if len == 0 {
                return Ok(0);
            }
            self.state.lock().arrived.extend(&piece[..len]);
        }
    }

    pub(super) fn write(&self, bytes: &[u8]) -> io::Result<usize> {
        let taken = &bytes[..bytes.len().min(PIECE_BYTES)];
        self.send(|connection| connection.writer().write(taken))
    }

    pub(super) fn finish(&self) -> io::Result<()> {
        self.send(|connection| {
            connection.send_close_notify();
            Ok(())
        })
    }

    fn send<T>(&self, make: impl FnOnce(&mut ClientConnection) -> io::Result<T>) -> io::Result<T> {
        let _turn = self.turn.lock();
        let mut records = Vec::new();
        let mut state = self.state.lock();
        let made = make(&mut state.connection)?;
        while state.connection.wants_write() {
            state.connection.write_tls(&mut records)?;
        }
        drop(state);
        (&self.socket).write_all(&records)?;
        Ok(made)
    }
}

impl State {
    /// Reads bytes that have arrived; `None`: more must arrive first. If TLS itself needs a reply,
    /// the next [`Channel::send`] sends it.
    fn read(&mut self, bytes: &mut [u8]) -> Option<io::Result<usize>> {
        loop {
            match self.connection.reader().read(bytes) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                outcome => return Some(outcome),
            }
            if self.arrived.is_empty() {
                return None;
            }
            if let Err(error) = self.decrypt() {
                return Some(Err(error));
            }
        }
    }

    fn decrypt(&mut self) -> io::Result<()> {
        let taken = self.connection.read_tls(&mut &self.arrived[..])?;
        self.arrived.drain(..taken);
        let processed = self.connection.process_new_packets();
        processed.map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
        Ok(())
    }
}
