//! The backing of an image as the command line names it: a file or an NBD server.

use std::path::{Path, PathBuf};

/// The place where the bytes of an image are stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Backing {
    /// A file or a block device.
    File(PathBuf),
    /// An export of an NBD server.
    Nbd(NbdAddress),
}

/// An export of an NBD server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NbdAddress {
    /// The server's address.
    pub server: NbdServer,
    /// The name of the export; may be empty.
    pub export: String,
    /// TLS settings; with `None` the client does not use TLS.
    pub tls: Option<TlsWish>,
}

/// How the client speaks TLS to an NBD server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsWish {
    /// The name that the server's certificate must be for.
    pub host: String,
    /// A folder laid out as for libnbd and QEMU: `ca-cert.pem` holds the authorities that sign
    /// servers. `client-cert.pem` and `client-key.pem`, which may both be absent, hold the client's
    /// certificate and key. `None`: the system's authorities, and no client certificate.
    pub certificates: Option<PathBuf>,
}

/// The address of an NBD server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NbdServer {
    /// A host name or an IP address, and a port.
    Tcp(String, u16),
    /// A Unix socket.
    Unix(PathBuf),
}

const NBD_PORT: u16 = 10_809;
/// The protocol's limit for the name of an export.
const EXPORT_BYTES_MAX: usize = 4096;

impl Backing {
    /// Parses the name of an image: `nbd://HOST[:PORT]/EXPORT`, `nbd+unix:///EXPORT?socket=PATH`,
    /// or one of these with `nbds` in place of `nbd` for TLS. Any other name is a path. For a path
    /// that looks like such an address, users write `./` in front.
    ///
    /// # Errors
    /// One line that says why the address is not valid.
    ///
    /// Source: doc/uri.md of NetworkBlockDevice/nbd.
    pub fn of(text: &Path) -> Result<Backing, String> {
        let Some((scheme, rest)) = text.to_str().and_then(|text| text.split_once("://")) else {
            return Ok(Backing::File(text.to_owned()));
        };
        let address = match scheme {
            "nbd" | "nbds" => tcp(rest, scheme == "nbds"),
            "nbd+unix" | "nbds+unix" => unix(rest, scheme == "nbds+unix"),
            _ => return Ok(Backing::File(text.to_owned())),
        };
        address.map(Backing::Nbd).map_err(|reason| format!("{}: {reason}", text.display()))
    }

    /// Returns the default name under which the image is served: the file's name without its
    /// folder, or the name of the NBD export.
    pub fn last_name(&self) -> String {
        match self {
            Backing::File(path) => {
                path.file_name().unwrap_or_default().to_string_lossy().into_owned()
            }
            Backing::Nbd(address) => address.export.clone(),
        }
    }
}

fn tcp(rest: &str, secure: bool) -> Result<NbdAddress, String> {
    let (place, export) = rest.split_once('/').unwrap_or((rest, ""));
    let (export, mut query) = Query::behind(export)?;
    let (host, port) = match place.rsplit_once(':') {
        // An IPv6 address has its colons inside brackets.
        Some((host, port)) if !port.contains(']') => (host, Some(port)),
        _ => (place, None),
    };
    let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    if host.is_empty() || host.contains('@') {
        return Err("expected nbd://HOST[:PORT]/EXPORT".to_owned());
    }
    let port =
        port.map_or(Ok(NBD_PORT), |port| port.parse().map_err(|_| format!("not a port: {port}")));
    let server = NbdServer::Tcp(host.to_owned(), port?);
    let tls = secure.then(|| query.tls(host));
    query.end()?;
    Ok(NbdAddress { server, export: name(export)?, tls })
}

fn unix(rest: &str, secure: bool) -> Result<NbdAddress, String> {
    let expected = || "expected nbd+unix:///EXPORT?socket=PATH".to_owned();
    let rest = rest.strip_prefix('/').ok_or_else(expected)?;
    let (export, mut query) = Query::behind(rest)?;
    let socket = query.take("socket").filter(|path| !path.is_empty()).ok_or_else(expected)?;
    let tls = secure.then(|| query.tls("localhost"));
    query.end()?;
    Ok(NbdAddress { server: NbdServer::Unix(socket.into()), export: name(export)?, tls })
}

struct Query<'a>(Vec<(&'a str, String)>);

impl<'a> Query<'a> {
    fn behind(text: &'a str) -> Result<(&'a str, Query<'a>), String> {
        let Some((export, query)) = text.split_once('?') else {
            return Ok((text, Query(Vec::new())));
        };
        let pair = |text: &'a str| {
            let (key, value) = text.split_once('=').unwrap_or((text, ""));
            Ok((key, decoded(value)?))
        };
        let pairs = query.split('&').map(pair).collect::<Result<_, String>>()?;
        Ok((export, Query(pairs)))
    }

    fn take(&mut self, key: &str) -> Option<String> {
        let at = self.0.iter().position(|(it, _)| *it == key)?;
        Some(self.0.remove(at).1)
    }

    /// Without the parameter `tls-hostname`, the certificate must be for `host`.
    fn tls(&mut self, host: &str) -> TlsWish {
        let certificates = self.take("tls-certificates").map(PathBuf::from);
        TlsWish { host: self.take("tls-hostname").unwrap_or_else(|| host.to_owned()), certificates }
    }

    fn end(self) -> Result<(), String> {
        match self.0.first() {
            None => Ok(()),
            Some((key, _)) => Err(format!("unknown or repeated parameter {key:?}")),
        }
    }
}

fn name(text: &str) -> Result<String, String> {
    let name = decoded(text)?;
    if name.len() > EXPORT_BYTES_MAX {
        return Err(format!("the export's name is longer than {EXPORT_BYTES_MAX} bytes"));
    }
    Ok(name)
}

fn decoded(text: &str) -> Result<String, String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, behind)) = rest.split_first() {
        rest = behind;
        if *first != b'%' {
            bytes.push(*first);
            continue;
        }
        let digits = rest.get(..2).filter(|digits| digits.iter().all(u8::is_ascii_hexdigit));
        let digits = digits.and_then(|digits| core::str::from_utf8(digits).ok());
        let byte = digits.and_then(|digits| u8::from_str_radix(digits, 16).ok());
        bytes.push(byte.ok_or("expected two hexadecimal digits after %")?);
        rest = &rest[2..];
    }
    let text = String::from_utf8(bytes).ok().filter(|text| !text.contains('\0'));
    text.ok_or_else(|| "expected UTF-8 without zero bytes".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nbd(text: &str) -> NbdAddress {
        match Backing::of(Path::new(text)) {
            Ok(Backing::Nbd(address)) => address,
            other => panic!("{text}: {other:?}"),
        }
    }

    fn by_tcp(host: &str, port: u16, export: &str) -> NbdAddress {
        let server = NbdServer::Tcp(host.to_owned(), port);
        NbdAddress { server, export: export.to_owned(), tls: None }
    }

    #[test]
    fn a_server_is_reached_by_tcp_or_a_socket() {
        assert_eq!(nbd("nbd://there/vm"), by_tcp("there", 10_809, "vm"));
        assert_eq!(nbd("nbd://there"), by_tcp("there", 10_809, ""));
        assert_eq!(nbd("nbd://[::1]:99/a/b%20c"), by_tcp("::1", 99, "a/b c"));
        assert_eq!(nbd("nbd://[::1]/"), by_tcp("::1", 10_809, ""));
        let socket = NbdServer::Unix("/run/a b".into());
        let expected = NbdAddress { server: socket, export: "vm".to_owned(), tls: None };
        assert_eq!(nbd("nbd+unix:///vm?socket=/run/a%20b"), expected);
    }

    #[test]
    fn tls_takes_a_host_name_and_a_folder_of_certificates() {
        let wish = |host: &str, folder: Option<&str>| {
            Some(TlsWish { host: host.to_owned(), certificates: folder.map(PathBuf::from) })
        };
        let plain = by_tcp("there", 10_809, "vm");
        assert_eq!(nbd("nbds://there/vm"), NbdAddress { tls: wish("there", None), ..plain });
        let all = nbd("nbds://[::1]/vm?tls-hostname=a.b&tls-certificates=/etc/a%20b");
        assert_eq!(all.tls, wish("a.b", Some("/etc/a b")));
        let unix = nbd("nbds+unix:///vm?tls-certificates=/c&socket=/s");
        assert_eq!(unix.tls, wish("localhost", Some("/c")));
        assert_eq!(unix.server, NbdServer::Unix("/s".into()));
    }

    #[test]
    fn any_other_name_is_a_file() {
        for path in ["disk.img", "/a/b", "./nbd://x/y", "nbd:/x"] {
            assert_eq!(Backing::of(Path::new(path)), Ok(Backing::File(path.into())));
        }
    }

    #[test]
    fn a_wrong_address_is_refused_with_its_reason() {
        for wrong in [
            "nbd:///x",
            "nbd://a:b/c",
            "nbd://a:70000/c",
            "nbd://a/%f",
            "nbd://a/%+1",
            "nbd://a/%00",
            "nbd://a/b?tls=1",
            "nbd://a/b?",
            "nbd+unix:///x",
            "nbd+unix:///x?socket=",
            "nbds://a/b?socket=c",
            "nbd://a/b?tls-hostname=c",
            "nbd+unix:///x?socket=a&socket=b",
        ] {
            let said = Backing::of(Path::new(wrong)).unwrap_err();
            assert!(said.starts_with(wrong) && !said.contains('\n'), "{said}");
        }
    }
}
