//! The command line of `nowait serve`.

use crate::{
    access::Rule,
    os_text::{named_path, rsplit_once, split_once},
    server::Address,
    vhost::Socket,
};
use clap::{
    Args, ValueEnum,
    builder::{OsStringValueParser, TypedValueParser},
};
use core::str::FromStr;
use nowait_device::{Backing, Cache, ImageOptions, Patience};
use nowait_image_store::{Durability, ObjectOptions, StoreOptions, StoreUrl};
use nowait_terminal::say;
use std::{ffi::OsStr, path::PathBuf, time::Duration};

/// The options of `nowait serve`.
#[derive(Args, Clone, Debug)]
pub struct ServeArgs {
    /// Images: files, devices, NBD servers or objects of a store.
    ///
    /// A file or block device; nbd://HOST/EXPORT or nbd+unix:///EXPORT?socket=PATH, an image on an
    /// NBD server (nbds: by TLS, its certificates with ?tls-certificates=FOLDER); s3://BUCKET/IMAGE
    /// (gs, az, file:///FOLDER/IMAGE), an image on an object store. NAME=PATH gives an image a name
    /// for clients. The first is also the default export. Options of one image follow it:
    /// `,read-only`, `,force-share`, `,offset=BYTES`, `,length=BYTES` and `,key-file=FILE`.
    #[arg(required = true, value_name = "[NAME=]IMAGE[,OPTION…]",
          value_parser = os_text().try_map(|text| image(&text)))]
    pub images: Vec<NamedImage>,
    /// Serve by NBD on unix:PATH or tcp:HOST:PORT; may be repeated.
    #[arg(long, value_name = "ADDRESS",
          value_parser = os_text().try_map(|text| Address::read(&text)))]
    pub nbd: Vec<Address>,
    /// Show an image as a file, by FUSE, for losetup, mkfs and mount.
    ///
    /// FILE is an existing regular file to mount on, or the server makes and removes it. May be
    /// repeated. Without EXPORT, the first image.
    #[arg(long, value_name = "[EXPORT=]FILE", value_hint = clap::ValueHint::FilePath,
          value_parser = os_text().try_map(|text| ShownFile::read(&text)))]
    pub fuse: Vec<ShownFile>,
    /// Make an image the block device /dev/ublkbN (Linux 6.5, root).
    ///
    /// N is a free number, or auto for any. If the server is killed, a device with a given number
    /// stays: its requests wait for the next server with the same number and image. Without EXPORT,
    /// the first image; may be repeated.
    #[arg(long, value_name = "[EXPORT=]N|auto")]
    pub ublk: Vec<WantedDrive>,
    /// Restrict an export to these clients.
    ///
    /// Without EXPORT, all exports. WHO is uid:N, a user of this machine by a Unix socket or a
    /// file; net:ADDRESS[/BITS] by TCP; tls:NAME, a client with a certificate for that name. May be
    /// repeated; an export without a rule admits every client.
    #[arg(long, value_name = "[EXPORT=]WHO")]
    pub allow: Vec<Rule>,
    /// Serve a virtual machine by vhost-user-blk on this socket.
    ///
    /// The first image, or NAME; may be repeated.
    #[arg(long, value_name = "[NAME=]SOCKET",
          value_parser = os_text().try_map(|text| Socket::read(&text)))]
    pub vhost_user: Vec<Socket>,
    /// Queues of each vhost-user-blk device.
    #[arg(long, hide_short_help = true, value_name = "N", default_value = "4",
          value_parser = clap::value_parser!(u16).range(1..=64))]
    pub queues: u16,
    /// Page cache between the clients and the device or store.
    #[arg(long, value_enum, default_value = "none")]
    pub cache: CacheArg,
    /// Refuse every change of an image.
    #[arg(long, short = 'r')]
    pub read_only: bool,
    /// Serve images that other processes may change meanwhile; only with --read-only.
    #[arg(long, hide_short_help = true, short = 'U')]
    pub force_share: bool,
    /// Size of a sector: 512, 4096, … [default: the block size of direct I/O on the file; 1 with a
    /// cache].
    #[arg(long, hide_short_help = true, value_name = "BYTES", value_parser = bytes)]
    pub sector_size: Option<u64>,
    /// TLS of NBD clients, by TCP and by Unix sockets.
    ///
    /// The default with --tls-cert is require. Without --tls-cert the server listens on TCP only
    /// with --tls off.
    #[arg(long, value_enum)]
    pub tls: Option<TlsArg>,
    /// The server's certificate, in PEM.
    ///
    /// Clients must then use TLS, unless --tls on lets them choose.
    #[arg(long, value_name = "FILE", requires = "tls_key", value_hint = clap::ValueHint::FilePath)]
    pub tls_cert: Option<PathBuf>,
    /// The key of the certificate, in PEM.
    #[arg(long, value_name = "FILE", requires = "tls_cert", value_hint = clap::ValueHint::FilePath)]
    pub tls_key: Option<PathBuf>,
    /// Serve a client over TLS only if one of these authorities, in PEM, signed its certificate.
    #[arg(long, hide_short_help = true, value_name = "FILE", requires = "tls_cert",
          value_hint = clap::ValueHint::FilePath)]
    pub tls_client_ca: Option<PathBuf>,
    /// Removed: the server refuses this option, because it had two meanings.
    #[arg(long, hide = true)]
    pub insecure: bool,
    /// Answer GET /metrics and /status on this address.
    ///
    /// On unix:PATH or tcp:HOST:PORT, for Prometheus and as JSON, in addition to the socket that
    /// `nowait top` finds.
    #[arg(long, value_name = "ADDRESS",
          value_parser = os_text().try_map(|text| Address::read(&text)))]
    pub status: Option<Address>,
    /// Allow an address for --status that other machines can reach: those machines learn names,
    /// sizes and counters of the images.
    #[arg(long, hide_short_help = true, requires = "status")]
    pub expose_status: bool,
    /// End when the last client has gone.
    ///
    /// The end is that of SIGTERM. Clients are NBD clients that have chosen an image, virtual
    /// machines, and programs that have one of the files open. Not with --ublk.
    #[arg(long, hide_short_help = true, conflicts_with = "ublk")]
    pub exit_with_last_client: bool,
    /// Write the process's number into FILE while it serves, and remove FILE at the end.
    #[arg(long, hide_short_help = true, value_name = "FILE",
          value_hint = clap::ValueHint::FilePath)]
    pub pid_file: Option<PathBuf>,
    /// Serving threads [default: one for two processors, at most 4].
    #[arg(long, hide_short_help = true, value_name = "N",
          value_parser = clap::value_parser!(u32).range(1..=64))]
    pub threads: Option<u32>,
    /// Most NBD clients at a time.
    #[arg(long, hide_short_help = true, value_name = "N", default_value = "4096",
          value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub max_clients: u32,
    /// Memory for transfers of all clients together; at least 64M.
    #[arg(long, hide_short_help = true, value_name = "BYTES", value_parser = memory,
          default_value = "256M")]
    pub memory: u64,
    /// Memory for writes to images on object stores that are not durable yet; at least 64M.
    /// Writable images get equal parts, each at most 64M.
    #[arg(long, hide_short_help = true, value_name = "BYTES", value_parser = memory,
          default_value = "1G")]
    pub write_buffer: u64,
    /// How long requests wait for an unreachable NBD server of an image until they fail; 0: the
    /// requests fail when the connection is lost.
    #[arg(long, hide_short_help = true, value_name = "SECONDS", default_value = "60",
          value_parser = clap::value_parser!(u64).range(..=1_000_000))]
    pub reconnect: u64,
    /// Address of the object store, if not its kind's usual one.
    ///
    /// http://HOST:PORT, say, for Azure http://HOST:PORT/ACCOUNT. Credentials come from the
    /// environment: AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_REGION,
    /// GOOGLE_APPLICATION_CREDENTIALS, AZURE_STORAGE_ACCOUNT_NAME, AZURE_STORAGE_ACCOUNT_KEY and
    /// similar variables.
    #[arg(long, value_name = "URL")]
    pub endpoint: Option<String>,
    /// When writes to images on a store become durable.
    ///
    /// flush: after a flush of the client; without one, their PUT begins after a second.
    /// interval=SECONDS: the same, after this time. each: before the write is answered.
    #[arg(long, hide_short_help = true, value_name = "flush|each|interval=SECONDS",
          value_parser = durability,
          default_value = "flush")]
    pub durability: Durability,
    /// The key of encrypted images on object stores.
    ///
    /// The key of images that name no key file: a file with 32 random bytes, or 64 hexadecimal
    /// digits, that other users may not read. The server refuses an image that is not encrypted, or
    /// that has another key.
    #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    pub key_file: Option<PathBuf>,
    /// Size of nowait's own cache, with --cache user: 8M to 8T.
    ///
    /// Images on object stores have a separate cache of this size, and so have images on NBD
    /// servers.
    #[arg(long, hide_short_help = true, value_name = "BYTES", value_parser = cache_size,
          default_value = "256M")]
    pub cache_size: u64,
    /// Keep data of images on stores in a file in this folder.
    ///
    /// The folder serves this server and the next one; --cache chooses the page cache in front of
    /// the file.
    #[arg(long, hide_short_help = true, value_name = "FOLDER",
          value_hint = clap::ValueHint::DirPath)]
    pub cache_dir: Option<PathBuf>,
    /// Size of the file in --cache-dir; 64M to 1T. The file grows as needed.
    #[arg(long, hide_short_help = true, value_name = "BYTES", value_parser = cache_dir_size,
          default_value = "10G",
          requires = "cache_dir")]
    pub cache_dir_size: u64,
}

/// An image on the command line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedImage {
    name: String,
    path: PathBuf,
    own: OwnOptions,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct OwnOptions {
    read_only: bool,
    force_share: bool,
    offset: u64,
    length: Option<u64>,
    key_file: Option<PathBuf>,
}

/// A file that shows an image, as the user wants it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShownFile {
    /// The name of the image; `None`: the first.
    pub(crate) export: Option<String>,
    pub(crate) path: PathBuf,
}

/// A block device of an image, as the user wants it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WantedDrive {
    /// The name of the image; `None`: the first.
    pub(crate) export: Option<String>,
    /// `None`: any number.
    pub(crate) id: Option<u32>,
}

/// `--tls`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum TlsArg {
    /// No TLS, also by TCP: every client that reaches the port can read and write the images.
    Off,
    /// TLS for clients that ask for it; others need neither TLS nor a certificate.
    On,
    /// Clients without TLS learn nothing.
    Require,
}

/// `--cache`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum CacheArg {
    /// None: direct I/O; no byte is cached in memory.
    None,
    /// The page cache of nowait, for images that no other program uses meanwhile.
    User,
    /// The kernel's page cache, coherent with other programs that use the file.
    Host,
}

impl ServeArgs {
    /// Returns the options of the images.
    pub fn images(&self) -> Vec<ImageOptions> {
        let options = |image: &NamedImage| ImageOptions {
            path: image.path.clone(),
            name: image.name.clone(),
            cache: match self.cache {
                CacheArg::None => Cache::None,
                CacheArg::User => Cache::User,
                CacheArg::Host => Cache::Host,
            },
            read_only: self.read_only || image.own.read_only,
            force_share: self.force_share || image.own.force_share,
            offset: image.own.offset,
            length: image.own.length,
            sector_bytes: self.sector_size.map(|bytes| u32::try_from(bytes).unwrap_or(u32::MAX)),
            patience: self.patience(),
            server_cache: None,
        };
        self.images.iter().map(options).collect()
    }

    /// Returns one value for each image; only images on a store use theirs.
    pub fn objects(&self) -> Vec<ObjectOptions> {
        self.images.iter().map(|image| self.object(image.own.key_file.as_ref())).collect()
    }

    /// Returns the time limits for NBD servers: a silent server has half of `--reconnect` to
    /// answer, and the client has the other half to connect again.
    fn patience(&self) -> Patience {
        let outage = Duration::from_secs(self.reconnect);
        Patience { outage, silence: outage / 2, say: Some(|text| say(text)), ..Patience::default() }
    }

    fn object(&self, own_key: Option<&PathBuf>) -> ObjectOptions {
        let store = StoreOptions { endpoint: self.endpoint.clone(), ..StoreOptions::default() };
        let write_buffer_bytes = Some(self.write_buffer_of_each());
        let key_file = own_key.or(self.key_file.as_ref()).cloned();
        ObjectOptions { store, durability: self.durability, write_buffer_bytes, key_file }
    }

    /// Returns the size of the write buffer of each image, in bytes. The images get equal parts:
    /// the buffer of an image whose store is stalled stays full, and must take nothing from other
    /// images. Read-only images, and images that are not on a store, do not count.
    fn write_buffer_of_each(&self) -> usize {
        const MOST: u64 = 64 << 20;
        let writes = |image: &&NamedImage| {
            let is_stored = matches!(StoreUrl::of_path(&image.path), Ok(Some(_)));
            is_stored && !self.read_only && !image.own.read_only
        };
        let count = self.images.iter().filter(writes).count() as u64;
        (self.write_buffer / count.max(1)).min(MOST) as usize
    }
}

fn durability(text: &str) -> Result<Durability, String> {
    match (text, text.strip_prefix("interval=")) {
        ("flush", _) => Ok(Durability::Flush),
        ("each", _) => Ok(Durability::Each),
        (_, Some(seconds)) => match seconds.parse() {
            Ok(seconds @ 1..=3600) => Ok(Durability::Interval(Duration::from_secs(seconds))),
            _ => Err("expected a number of seconds from 1 to 3600".to_owned()),
        },
        _ => Err("expected flush, each or interval=SECONDS".to_owned()),
    }
}

/// Parses an argument as bytes, because paths need not be UTF-8.
fn os_text() -> OsStringValueParser {
    OsStringValueParser::new()
}

/// Parses `[NAME=]PATH[,OPTION…]`. Without NAME, a path that contains `=` needs a `/` before the
/// `=`, as in `./a=b`.
fn image(text: &OsStr) -> Result<NamedImage, String> {
    let (text, own) = own_options(text)?;
    let (name, path) = named_path(text)?;
    let path = PathBuf::from(path);
    let last_name = match StoreUrl::of_path(&path)? {
        Some(url) => url.last_name().to_owned(),
        None => Backing::of(&path)?.last_name(),
    };
    let name = name.map_or(last_name, str::to_owned);
    const NAME_BYTES_MAX: usize = 4096;
    if name.len() > NAME_BYTES_MAX {
        return Err(format!("the name is longer than {NAME_BYTES_MAX} bytes"));
    }
    Ok(NamedImage { name, path, own })
}

/// Splits the argument of an image into the image and the options behind it. A word that is not an
/// option belongs to the path, because a path may contain commas.
fn own_options(mut text: &OsStr) -> Result<(&OsStr, OwnOptions), String> {
    let mut own = OwnOptions::default();
    while let Some((before, option)) = rsplit_once(text, b',') {
        let (key, value) = split_once(option, b'=').unzip();
        match (key.unwrap_or(option).to_str(), value, value.and_then(OsStr::to_str)) {
            (Some("read-only"), None, _) => own.read_only = true,
            (Some("force-share"), None, _) => own.force_share = true,
            (Some("offset"), Some(_), value) => own.offset = bytes(value.unwrap_or("?"))?,
            (Some("length"), Some(_), value) => own.length = Some(bytes(value.unwrap_or("?"))?),
            (Some("key-file"), _, Some("")) => return Err("expected key-file=FILE".to_owned()),
            (Some("key-file"), Some(path), _) => own.key_file = Some(path.into()),
            _ => break,
        }
        text = before;
    }
    Ok((text, own))
}

impl FromStr for ShownFile {
    type Err = String;

    /// Parses `[EXPORT=]PATH`.
    fn from_str(text: &str) -> Result<ShownFile, String> {
        ShownFile::read(text.as_ref())
    }
}

impl ShownFile {
    fn read(text: &OsStr) -> Result<ShownFile, String> {
        let (export, path) = named_path(text)?;
        let path = PathBuf::from(path);
        match path.file_name() {
            None => Err("expected the name of a file".to_owned()),
            Some(_) => Ok(ShownFile { export: export.map(str::to_owned), path }),
        }
    }
}

impl FromStr for WantedDrive {
    type Err = String;

    /// Parses `[EXPORT=]N` or `[EXPORT=]auto`; N may be the name of the device.
    fn from_str(text: &str) -> Result<WantedDrive, String> {
        let (export, number) = match text.rsplit_once('=') {
            Some((export, number)) => (Some(export.to_owned()), number),
            None => (None, text),
        };
        // The kernel stores the number of a device in 20 bits.
        const ID_MAX: u32 = (1 << 20) - 1;
        let digits = number.strip_prefix("/dev/ublkb").unwrap_or(number);
        let id = match number {
            "auto" => Some(None),
            _ => digits.parse().ok().filter(|id| *id <= ID_MAX).map(Some),
        };
        let id = id.ok_or("expected [EXPORT=]N or [EXPORT=]auto: N as in /dev/ublkbN")?;
        Ok(WantedDrive { export, id })
    }
}

/// Parses a size in bytes with an optional K, M, G or T.
///
/// # Errors
/// The text is not a size.
pub fn bytes(text: &str) -> Result<u64, String> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let shift = match text[digits.len()..].to_ascii_uppercase().as_str() {
        "" => Some(0),
        "K" => Some(10),
        "M" => Some(20),
        "G" => Some(30),
        "T" => Some(40),
        _ => None,
    };
    let number = digits.parse::<u64>().ok();
    let bytes = number.zip(shift).and_then(|(number, shift)| number.checked_mul(1 << shift));
    bytes.ok_or_else(|| "a number of bytes, with K, M, G or T if wanted, such as 256M".to_owned())
}

fn memory(text: &str) -> Result<u64, String> {
    const LEAST: u64 = 64 << 20;
    let bytes = bytes(text)?;
    if bytes >= LEAST { Ok(bytes) } else { Err("at least 64M".to_owned()) }
}

fn cache_size(text: &str) -> Result<u64, String> {
    let bytes = bytes(text)?;
    if (8 << 20..=8 << 40).contains(&bytes) { Ok(bytes) } else { Err("from 8M to 8T".to_owned()) }
}

fn cache_dir_size(text: &str) -> Result<u64, String> {
    let bytes = bytes(text)?;
    match (64 << 20..=1 << 40).contains(&bytes) {
        true => Ok(bytes),
        false => Err("from 64M to 1T".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;
    use std::os::unix::ffi::OsStrExt;

    fn image(text: impl AsRef<OsStr>) -> Result<NamedImage, String> {
        super::image(text.as_ref())
    }

    #[test]
    fn an_image_has_the_given_name_or_that_of_its_file() {
        let named = |name: &str, path: &str| {
            let own = OwnOptions::default();
            Ok(NamedImage { name: name.into(), path: path.into(), own })
        };
        assert_eq!(image("/a/disk.img"), named("disk.img", "/a/disk.img"));
        assert_eq!(image("vm=/a/disk.img"), named("vm", "/a/disk.img"));
        assert_eq!(image("./a=b"), named("a=b", "./a=b"));
        assert_eq!(image("nbd://there/vm"), named("vm", "nbd://there/vm"));
        let socket = "nbd+unix:///a?socket=/run/b";
        assert_eq!(image(socket), named("a", socket));
        assert_eq!(image(format!("vm={socket}")), named("vm", socket));
        assert_eq!(image("nbds://there/vm"), named("vm", "nbds://there/vm"));
    }

    #[test]
    fn options_follow_an_image() {
        let all = "vm=/a/b,c.img,read-only,offset=1M,length=2K,key-file=/k,force-share";
        let all = image(all).unwrap();
        let own = OwnOptions {
            read_only: true,
            force_share: true,
            offset: 1 << 20,
            length: Some(2048),
            key_file: Some("/k".into()),
        };
        let path = PathBuf::from("/a/b,c.img");
        assert_eq!(all, NamedImage { name: "vm".to_owned(), path, own });
        assert_eq!(image("/a,read-only").unwrap().name, "a");
        assert_eq!(image("/a,readonly").unwrap().path, PathBuf::from("/a,readonly"));
        assert!(image("/a,offset=x").is_err() && image("/a,length=").is_err());
        assert!(image("/a,key-file=").is_err());
    }

    #[test]
    fn paths_need_not_be_utf_8_and_names_are() {
        #[derive(clap::Parser)]
        struct Line {
            #[command(flatten)]
            args: ServeArgs,
        }
        let words: &[&[u8]] = &[
            b"serve",
            b"vm=/a/\xff.img,key-file=/k\xfe,read-only",
            b"--nbd=unix:/run/\xff",
            b"--vhost-user=vm=/run/\xfe",
            b"--fuse=/mnt/\xff",
            b"--status=unix:/run/\xfd",
        ];
        let line = Line::try_parse_from(words.iter().map(|word| OsStr::from_bytes(word)));
        let args = line.unwrap().args;
        let path = |bytes| PathBuf::from(OsStr::from_bytes(bytes));
        let image = &args.images[0];
        assert_eq!((image.name.as_str(), &image.path), ("vm", &path(b"/a/\xff.img")));
        assert_eq!(image.own.key_file, Some(path(b"/k\xfe")));
        assert!(image.own.read_only);
        assert_eq!(args.nbd, [Address::Unix(path(b"/run/\xff"))]);
        assert_eq!(args.vhost_user[0].path, path(b"/run/\xfe"));
        assert_eq!(args.fuse[0].path, path(b"/mnt/\xff"));
        assert_eq!(args.status, Some(Address::Unix(path(b"/run/\xfd"))));
        assert!(super::image(OsStr::from_bytes(b"\xff=/a")).is_err());
    }

    #[test]
    fn read_only_images_get_no_write_buffer() {
        #[derive(clap::Parser)]
        struct Line {
            #[command(flatten)]
            args: ServeArgs,
        }
        let each = |words: &[&str]| {
            let words = ["serve", "--write-buffer", "64M", "s3://a/vm"].iter().chain(words);
            Line::try_parse_from(words).unwrap().args.write_buffer_of_each() >> 20
        };
        assert_eq!((each(&[]), each(&["s3://a/b"]), each(&["s3://a/b", "s3://a/c"])), (64, 32, 21));
        assert_eq!(each(&["s3://a/b,read-only", "s3://a/c@d,read-only", "disk.img"]), 64);
        assert_eq!(each(&["s3://a/b", "--read-only"]), 64);
    }

    #[test]
    fn a_file_shows_the_first_or_the_named_image() {
        let shown = |export: Option<&str>, path: &str| {
            Ok(ShownFile { export: export.map(str::to_owned), path: path.into() })
        };
        assert_eq!("/run/disk".parse(), shown(None, "/run/disk"));
        assert_eq!("vm=disk".parse(), shown(Some("vm"), "disk"));
        assert!("".parse::<ShownFile>().is_err() && "vm=..".parse::<ShownFile>().is_err());
    }

    #[test]
    fn a_block_device_has_the_given_number_or_any() {
        let wanted =
            |export: Option<&str>, id| Ok(WantedDrive { export: export.map(str::to_owned), id });
        assert_eq!("0".parse(), wanted(None, Some(0)));
        assert_eq!("auto".parse(), wanted(None, None));
        assert_eq!("vm=auto".parse(), wanted(Some("vm"), None));
        assert_eq!("a=b=/dev/ublkb7".parse(), wanted(Some("a=b"), Some(7)));
        for wrong in ["", "vm=", "-1", "x", "/dev/ublkb", "/dev/ublkbauto", "1048576", "vm"] {
            assert!(wrong.parse::<WantedDrive>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn sizes_have_one_unit_at_most() {
        assert_eq!((bytes("4096"), bytes("2k"), bytes("1T")), (Ok(4096), Ok(2048), Ok(1 << 40)));
        for wrong in ["", "K", "1KB", "-1", "1.5G", "99999999999999999999", "20000000T"] {
            assert!(bytes(wrong).is_err(), "{wrong}");
        }
        assert_eq!((memory("64M"), cache_size("8T")), (Ok(64 << 20), Ok(8 << 40)));
        assert!(memory("1M").is_err());
        assert!(["0", "7M", "9T", "999T"].iter().all(|wrong| cache_size(wrong).is_err()));
    }
}
