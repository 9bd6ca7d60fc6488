//! TLS, by rustls: the server's certificate, and the check of the clients' certificates.

use super::validity;
use crate::ServeError;
use nowait_terminal::say;
use rustls::{
    RootCertStore, ServerConfig, ServerConnection,
    crypto::ring,
    pki_types::{
        CertificateDer, PrivateKeyDer, UnixTime,
        pem::{self, PemObject},
    },
    server::WebPkiClientVerifier,
};
use socket2::Socket;
use std::{
    fmt,
    io::{self, IoSlice, Read, Write},
    path::{Path, PathBuf},
    sync::Arc,
};

/// The PEM files of the TLS settings.
#[derive(Clone, Debug)]
pub struct TlsFiles {
    /// The server's certificate, and the certificates between it and the root.
    pub certificate: PathBuf,
    /// The private key of the server's certificate.
    pub key: PathBuf,
    /// The certificate authorities for clients: the server refuses a client without a certificate
    /// that one of these authorities has signed. `None`: clients need no certificate.
    pub client_authority: Option<PathBuf>,
}

/// The TLS settings for clients.
#[derive(Clone)]
pub struct Tls(Arc<ServerConfig>);

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Tls")
    }
}

impl Tls {
    /// Reads the files. Reports on standard error if a certificate of the server is not valid now.
    ///
    /// # Errors
    /// A file cannot be read, or is not valid; the key does not fit the certificate.
    pub fn load(files: &TlsFiles) -> Result<Tls, ServeError> {
        let provider = Arc::new(ring::default_provider());
        let builder = ServerConfig::builder_with_provider(provider.clone())
            .with_safe_default_protocol_versions()
            .map_err(|error| ServeError::new(format!("TLS: {error}")))?;
        let builder = match &files.client_authority {
            None => builder.with_no_client_auth(),
            Some(path) => {
                let mut roots = RootCertStore::empty();
                for certificate in certificates(path)? {
                    roots.add(certificate).map_err(|error| about(path, &error))?;
                }
                let verifier =
                    WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
                let verifier = verifier.build().map_err(|error| about(path, &error))?;
                builder.with_client_cert_verifier(verifier)
            }
        };
        let key = PrivateKeyDer::from_pem_file(&files.key);
        let key = key.map_err(|error| match error {
            pem::Error::NoItemsFound => about(&files.key, &"no PEM private key in the file"),
            error => about(&files.key, &error),
        })?;
        let chain = certificates(&files.certificate)?;
        if let Some(invalid) = validity::invalid(&chain, UnixTime::now()) {
            let path = files.certificate.display();
            let advice = "clients refuse it: replace it and send SIGHUP";
            say(format_args!("{path}: the certificate {invalid}; {advice}"));
        }
        let config = builder.with_single_cert(chain, key);
        Ok(Tls(Arc::new(config.map_err(|error| about(&files.certificate, &error))?)))
    }

    pub(crate) fn begin(&self) -> Option<Stream> {
        let mut connection = ServerConnection::new(self.0.clone()).ok()?;
        connection.set_buffer_limit(Some(BUFFER_BYTES));
        Some(Stream { connection, ended: false })
    }
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, ServeError> {
    let read = CertificateDer::pem_file_iter(path).map_err(|error| about(path, &error))?;
    let all: Result<Vec<_>, _> = read.collect();
    let all = all.map_err(|error| about(path, &error))?;
    if all.is_empty() {
        return Err(about(path, &"no PEM certificate in the file"));
    }
    Ok(all)
}

fn about(path: &Path, error: &dyn fmt::Display) -> ServeError {
    ServeError::new(format!("{}: {error}", path.display()))
}

/// The most bytes encrypted ahead of the socket.
const BUFFER_BYTES: usize = 256 << 10;

pub(crate) struct Stream {
    connection: ServerConnection,
    /// The client sends nothing more: it has sent its closing notice, or closed the connection.
    ended: bool,
}

impl fmt::Debug for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Stream, {}", if self.ended { "ended" } else { "open" })
    }
}

impl Stream {
    /// Reads data from the client; `Ok(0)`: the client has ended the connection.
    ///
    /// # Errors
    /// `WouldBlock`: no data has arrived. `InvalidData`: the client does not speak TLS, or has no
    /// valid certificate although it needs one. The errors of the socket.
    pub(crate) fn read(&mut self, socket: &mut Socket, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            match self.connection.reader().read(buffer) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock && !self.ended => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(0),
                outcome => return outcome,
            }
            self.ended = self.connection.read_tls(socket)? == 0;
            if let Err(error) = self.connection.process_new_packets() {
                // Send the alert that states the reason.
                let _ = self.connection.write_tls(socket);
                return Err(io::Error::new(io::ErrorKind::InvalidData, error));
            }
        }
    }

    /// Returns the client's certificate; `None`: no valid certificate has arrived.
    pub(crate) fn certificate(&self) -> Option<CertificateDer<'static>> {
        let chain = self.connection.peer_certificates()?;
        chain.first().map(|certificate| certificate.clone().into_owned())
    }

    /// Encrypts as much of the output as the buffer has room for, and sends as much as the socket
    /// takes. Returns how many bytes were encrypted.
    ///
    /// # Errors
    /// If nothing was encrypted: `WouldBlock`, because the buffer had no room, or the error of the
    /// socket.
    pub(crate) fn write(
        &mut self,
        socket: &mut Socket,
        slices: &[IoSlice<'_>],
    ) -> io::Result<usize> {
        let taken = self.connection.writer().write_vectored(slices)?;
        let flushed = self.flush(socket);
        if taken > 0 { Ok(taken) } else { flushed.and(Err(io::ErrorKind::WouldBlock.into())) }
    }

    pub(crate) fn flush(&mut self, socket: &mut Socket) -> io::Result<()> {
        while self.connection.wants_write() {
            self.connection.write_tls(socket)?;
        }
        Ok(())
    }

    pub(crate) fn close(&mut self, socket: &mut Socket) {
        self.connection.send_close_notify();
        let _ = self.flush(socket);
    }
}
