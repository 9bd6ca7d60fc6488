//! Certificates for NBD servers and clients, in folders with the file names of libnbd and QEMU.

use crate::program::Program;
use crate::scratch::Scratch;
use std::fs;
use std::path::PathBuf;

/// The certificates and keys of an authority, a server and a client.
pub struct Pki {
    /// The folder with all certificates and keys.
    pub folder: PathBuf,
    /// A folder with the authority's certificate only, for clients without a certificate of their
    /// own.
    pub anonymous: PathBuf,
}

impl Pki {
    /// Makes the certificates, with openssl.
    pub fn new(scratch: &Scratch) -> Pki {
        const SCRIPT: &str = "
openssl req -x509 -newkey rsa:2048 -nodes -keyout ca-key.pem -out ca-cert.pem -subj /CN=ca -days 2
for name in server client; do
    openssl req -newkey rsa:2048 -nodes -keyout $name-key.pem -out $name.csr -subj /CN=localhost
    printf 'subjectAltName=DNS:localhost\\nbasicConstraints=CA:FALSE\\n' > $name.ext
    openssl x509 -req -in $name.csr -CA ca-cert.pem -CAkey ca-key.pem -CAcreateserial \
        -out $name-cert.pem -days 2 -extfile $name.ext
done";
        let (folder, anonymous) = (scratch.folder("pki"), scratch.folder("anonymous"));
        Program::new("sh").args(["-ec", SCRIPT]).dir(&folder).succeed();
        fs::copy(folder.join("ca-cert.pem"), anonymous.join("ca-cert.pem")).expect("a copy");
        Pki { folder, anonymous }
    }

    /// Returns the options that give `nowait serve` the server's certificate and key.
    pub fn server(&self) -> Vec<String> {
        let file = |name: &str| self.folder.join(name).display().to_string();
        let (certificate, key) = (file("server-cert.pem"), file("server-key.pem"));
        ["--tls-cert".to_owned(), certificate, "--tls-key".to_owned(), key].into()
    }

    /// Returns the path of the certificate of the authority.
    pub fn authority(&self) -> String {
        self.folder.join("ca-cert.pem").display().to_string()
    }
}
