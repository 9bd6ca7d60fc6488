//! The NBD handshake: the server answers options until the client has chosen an export.

use super::wire::{self, Reader, answer, info, option, transmission};
use nowait_device::Image;
use std::sync::Arc;

/// The security of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Security {
    /// No TLS; the server does not offer TLS.
    Plain,
    /// No TLS yet, and the client must start TLS: before that the server tells nothing about its
    /// exports. With TLS the options begin anew.
    TlsRequired,
    /// No TLS yet. The client may start TLS.
    TlsOffered,
    /// The connection uses TLS.
    Tls,
}

/// The exports that a client may choose.
#[derive(Clone, Debug)]
pub struct Exports<F> {
    images: Arc<[Arc<Image<F>>]>,
    /// The empty name selects the first of `images`.
    default: bool,
}

impl<F> Exports<F> {
    /// Returns all images of a server; the empty name selects the first image.
    pub fn all(images: &Arc<[Arc<Image<F>>]>) -> Exports<F> {
        Exports { images: images.clone(), default: true }
    }

    /// Returns the exports that `admits` accepts. If `admits` does not accept the first of all
    /// exports, the empty name selects no export.
    #[must_use]
    pub fn filter(self, mut admits: impl FnMut(&Image<F>) -> bool) -> Exports<F> {
        let default = self.default && self.images.first().is_some_and(|first| admits(first));
        let admitted = self.images.iter().filter(|image| admits(image));
        Exports { images: admitted.cloned().collect(), default }
    }

    /// Finds an export by its name; `None`: this client has no export of that name.
    pub fn find(&self, name: &[u8]) -> Option<&Arc<Image<F>>> {
        let named = self.images.iter().find(|image| image.name().as_bytes() == name);
        named.or_else(|| self.images.first().filter(|_| self.default && name.is_empty()))
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Agreement {
    /// The server sends structured replies to reads, queries for extents, and failures of these.
    pub(crate) structured: bool,
    /// Headers have 64-bit lengths.
    pub(crate) extended: bool,
    /// The client may ask for block status (extents).
    pub(crate) allocation: bool,
}

/// The next message of the client after a step of the handshake.
pub(crate) enum Next<F> {
    Option,
    /// The TLS handshake, after the answer was sent.
    Tls,
    /// Requests to this image.
    Transmission(Arc<Image<F>>, Agreement),
    /// No message: the server closes the connection after the answer was sent.
    Close,
}

#[derive(Debug)]
pub(crate) struct Handshake {
    security: Security,
    flags: Option<u16>,
    agreed: Agreement,
    /// The name of the export for which the client has selected block status.
    context_of: Vec<u8>,
    options_left: u32,
    /// The bytes still to skip of an option that is too long.
    skip: usize,
}

/// The longest option that the server parses, in bytes. Names and queries have at most 4096 bytes.
const OPTION_BYTES_MAX: usize = 16 << 10;
/// The longest option that the server answers, in bytes. At a longer option the server closes the
/// connection.
const SKIP_BYTES_MAX: usize = 1 << 20;
/// The most options of a connection, those before TLS included. At one more the server closes the
/// connection.
const OPTIONS_MAX: u32 = 256;
const NAME_BYTES_MAX: usize = 4096;
const HEADER_BYTES: usize = 16;
/// The zeroes after the answer to [`option::EXPORT_NAME`], for old clients.
const PADDING_BYTES: usize = 124;

impl Handshake {
    pub(crate) fn new(security: Security, out: &mut Vec<u8>) -> Handshake {
        out.extend(wire::GREETING.to_be_bytes());
        out.extend(wire::OPTION.to_be_bytes());
        out.extend((wire::FIXED_NEWSTYLE | wire::NO_ZEROES).to_be_bytes());
        Handshake {
            security,
            flags: None,
            agreed: Agreement::default(),
            context_of: Vec::new(),
            options_left: OPTIONS_MAX,
            skip: 0,
        }
    }

    pub(crate) fn secured(&mut self) {
        self.security = Security::Tls;
        self.agreed = Agreement::default();
        self.context_of.clear();
    }

    /// Takes one step: flags, an option, or a part of an option to skip. Returns how many bytes of
    /// `input` it took (0: more are needed), and the next message of the client.
    pub(crate) fn step<F>(
        &mut self,
        input: &[u8],
        exports: &Exports<F>,
        out: &mut Vec<u8>,
    ) -> (usize, Next<F>) {
        if self.skip > 0 {
            let skipped = self.skip.min(input.len());
            self.skip -= skipped;
            return (skipped, Next::Option);
        }
        let mut reader = Reader(input);
        if self.flags.is_none() {
            let Some(flags) = reader.u32() else { return (0, Next::Option) };
            return (4, self.take_flags(flags));
        }
        let (Some(magic), Some(number), Some(len)) = (reader.u64(), reader.u32(), reader.u32())
        else {
            return (0, Next::Option);
        };
        let len = len as usize;
        if magic != wire::OPTION || len > SKIP_BYTES_MAX || self.options_left == 0 {
            return (input.len(), Next::Close);
        }
        if len > OPTION_BYTES_MAX {
            self.options_left -= 1;
            self.skip = len;
            refuse(out, number, answer::TOO_BIG, "an option has at most 16384 bytes");
            return (HEADER_BYTES, Next::Option);
        }
        let Some(data) = reader.bytes(len) else { return (0, Next::Option) };
        self.options_left -= 1;
        (HEADER_BYTES + len, self.option(number, data, exports, out))
    }

    fn take_flags<F>(&mut self, flags: u32) -> Next<F> {
        const KNOWN: u32 = (wire::FIXED_NEWSTYLE | wire::NO_ZEROES) as u32;
        if flags & !KNOWN != 0 {
            return Next::Close;
        }
        self.flags = Some(flags as u16);
        Next::Option
    }

    fn option<F>(
        &mut self,
        number: u32,
        data: &[u8],
        exports: &Exports<F>,
        out: &mut Vec<u8>,
    ) -> Next<F> {
        let harmless = matches!(number, option::ABORT | option::STARTTLS);
        if self.security == Security::TlsRequired && !harmless {
            if number == option::EXPORT_NAME {
                return Next::Close;
            }
            refuse(out, number, answer::TLS_REQUIRED, "start TLS first");
            return Next::Option;
        }
        match number {
            option::EXPORT_NAME => return self.export_name(data, exports, out),
            option::ABORT => {
                reply(out, number, answer::ACK, &[]);
                return Next::Close;
            }
            option::STARTTLS => return self.start_tls(data, out),
            option::INFO | option::GO => return self.go(number, data, exports, out),
            option::LIST => list(data, exports, out),
            option::STRUCTURED_REPLY | option::EXTENDED_HEADERS => {
                self.agree(number, data, out);
            }
            option::LIST_META_CONTEXT | option::SET_META_CONTEXT => {
                self.contexts(number, data, exports, out);
            }
            _ => refuse(out, number, answer::UNSUPPORTED, "unknown option"),
        }
        Next::Option
    }

    fn start_tls<F>(&mut self, data: &[u8], out: &mut Vec<u8>) -> Next<F> {
        let number = option::STARTTLS;
        match self.security {
            _ if !data.is_empty() => refuse(out, number, answer::INVALID, "the option has no data"),
            Security::Plain => refuse(out, number, answer::POLICY, "no TLS configured"),
            Security::Tls => refuse(out, number, answer::INVALID, "TLS was started already"),
            Security::TlsRequired | Security::TlsOffered => {
                reply(out, number, answer::ACK, &[]);
                return Next::Tls;
            }
        }
        Next::Option
    }

    fn agree(&mut self, number: u32, data: &[u8], out: &mut Vec<u8>) {
        if !data.is_empty() {
            return refuse(out, number, answer::INVALID, "the option has no data");
        }
        self.agreed.structured = true;
        if number == option::EXTENDED_HEADERS {
            self.agreed.extended = true;
        }
        reply(out, number, answer::ACK, &[]);
    }

    fn export_name<F>(&mut self, name: &[u8], exports: &Exports<F>, out: &mut Vec<u8>) -> Next<F> {
        // The protocol has no answer with which a server can refuse this option.
        let Some(image) = exports.find(name) else { return Next::Close };
        out.extend(image.size().to_be_bytes());
        out.extend(self.flags_of(image).to_be_bytes());
        if self.flags.is_some_and(|flags| flags & wire::NO_ZEROES == 0) {
            out.extend([0; PADDING_BYTES]);
        }
        self.begin(name, image)
    }

    fn begin<F>(&self, name: &[u8], image: &Arc<Image<F>>) -> Next<F> {
        let allocation = self.agreed.allocation && self.context_of == name;
        Next::Transmission(image.clone(), Agreement { allocation, ..self.agreed })
    }

    fn go<F>(
        &mut self,
        number: u32,
        data: &[u8],
        exports: &Exports<F>,
        out: &mut Vec<u8>,
    ) -> Next<F> {
        let Some((name, asked)) = parse_go(data) else {
            refuse(out, number, answer::INVALID, "the lengths in the option do not match");
            return Next::Option;
        };
        let Some(image) = exports.find(name) else {
            refuse(out, number, answer::UNKNOWN, "no such export");
            return Next::Option;
        };
        let mut about = info::EXPORT.to_be_bytes().to_vec();
        about.extend(image.size().to_be_bytes());
        about.extend(self.flags_of(image).to_be_bytes());
        reply(out, number, answer::INFO, &about);
        let mut sizes = info::BLOCK_SIZE.to_be_bytes().to_vec();
        let properties = image.properties();
        for bytes in [properties.sector_bytes, properties.preferred_bytes, wire::PAYLOAD_MAX] {
            sizes.extend(bytes.to_be_bytes());
        }
        reply(out, number, answer::INFO, &sizes);
        if asked.contains(&info::NAME) {
            let mut named = info::NAME.to_be_bytes().to_vec();
            named.extend(image.name().as_bytes());
            reply(out, number, answer::INFO, &named);
        }
        reply(out, number, answer::ACK, &[]);
        if number == option::GO { self.begin(name, image) } else { Next::Option }
    }

    fn flags_of<F>(&self, image: &Image<F>) -> u16 {
        use transmission::{
            CACHE, DONT_FRAGMENT, FAST_ZERO, FLUSH, FUA, HAS_FLAGS, MULTI_CONN, READ_ONLY, TRIM,
            WRITE_ZEROES,
        };
        let properties = image.properties();
        let mut flags = HAS_FLAGS | FLUSH | FUA | MULTI_CONN;
        flags |= match properties.read_only {
            true => READ_ONLY,
            false => TRIM | WRITE_ZEROES | FAST_ZERO,
        };
        flags |= if self.agreed.structured { DONT_FRAGMENT } else { 0 };
        flags | if properties.caches { CACHE } else { 0 }
    }

    fn contexts<F>(&mut self, number: u32, data: &[u8], exports: &Exports<F>, out: &mut Vec<u8>) {
        let sets = number == option::SET_META_CONTEXT;
        if sets {
            self.agreed.allocation = false;
        }
        if !self.agreed.structured {
            return refuse(out, number, answer::INVALID, "negotiate structured replies first");
        }
        let Some((name, queries)) = parse_contexts(data) else {
            return refuse(out, number, answer::INVALID, "the lengths in the option do not match");
        };
        if exports.find(name).is_none() {
            return refuse(out, number, answer::UNKNOWN, "no such export");
        }
        let listed = !sets && (queries.is_empty() || queries.contains(&&b"base:"[..]));
        if listed || queries.contains(&wire::ALLOCATION) {
            let id = if sets { wire::ALLOCATION_ID } else { 0 };
            let mut context = id.to_be_bytes().to_vec();
            context.extend(wire::ALLOCATION);
            reply(out, number, answer::META_CONTEXT, &context);
            if sets {
                self.agreed.allocation = true;
                self.context_of = name.to_vec();
            }
        }
        reply(out, number, answer::ACK, &[]);
    }
}

fn list<F>(data: &[u8], exports: &Exports<F>, out: &mut Vec<u8>) {
    let number = option::LIST;
    if !data.is_empty() {
        return refuse(out, number, answer::INVALID, "the option has no data");
    }
    for image in exports.images.iter() {
        let mut server = (image.name().len() as u32).to_be_bytes().to_vec();
        server.extend(image.name().as_bytes());
        reply(out, number, answer::SERVER, &server);
    }
    reply(out, number, answer::ACK, &[]);
}

fn parse_go(data: &[u8]) -> Option<(&[u8], Vec<u16>)> {
    let mut reader = Reader(data);
    let name = reader.string().filter(|name| name.len() <= NAME_BYTES_MAX)?;
    let count = reader.u16()?;
    let asked: Option<Vec<u16>> = (0..count).map(|_| reader.u16()).collect();
    asked.filter(|_| reader.0.is_empty()).map(|asked| (name, asked))
}

fn parse_contexts(data: &[u8]) -> Option<(&[u8], Vec<&[u8]>)> {
    let mut reader = Reader(data);
    let name = reader.string().filter(|name| name.len() <= NAME_BYTES_MAX)?;
    let count = reader.u32()?;
    // Each query takes at least four bytes, so the option's length bounds how many are parsed.
    let queries: Option<Vec<&[u8]>> = (0..count).map(|_| reader.string()).collect();
    queries.filter(|_| reader.0.is_empty()).map(|queries| (name, queries))
}

fn refuse(out: &mut Vec<u8>, number: u32, kind: u32, reason: &str) {
    reply(out, number, kind, reason.as_bytes());
}

fn reply(out: &mut Vec<u8>, number: u32, kind: u32, data: &[u8]) {
    out.extend(wire::OPTION_REPLY.to_be_bytes());
    out.extend(number.to_be_bytes());
    out.extend(kind.to_be_bytes());
    out.extend((data.len() as u32).to_be_bytes());
    out.extend(data);
}
