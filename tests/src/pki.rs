//! Certificates for servers and clients of NBD, in folders as libnbd and QEMU have them.

use crate::program::Program;
use crate::scratch::Scratch;
use std::fs;
use std::path::PathBuf;

/// An authority, a certificate for `localhost` and one for a client; and a folder with only the
/// authority's certificate, for clients without their own.
pub struct Pki {
    /// The folder with all of them.
    pub folder: PathBuf,
    /// The folder with the authority's certificate only.
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

    /// Returns the options of `nowait serve`.
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
