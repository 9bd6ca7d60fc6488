//! The numbers of NBD, for servers, clients and their tests.
//!
//! Source: doc/proto.md of NetworkBlockDevice/nbd, with the extension "extended headers".
#![expect(missing_docs, reason = "the protocol defines the names")]

use nowait::Errno;

pub const GREETING: u64 = 0x4e42_444d_4147_4943;
pub const OPTION: u64 = 0x4948_4156_454f_5054;
pub const OPTION_REPLY: u64 = 0x0003_e889_0455_65a9;

pub const FIXED_NEWSTYLE: u16 = 1;
pub const NO_ZEROES: u16 = 2;

pub mod option {
    pub const EXPORT_NAME: u32 = 1;
    pub const ABORT: u32 = 2;
    pub const LIST: u32 = 3;
    pub const STARTTLS: u32 = 5;
    pub const INFO: u32 = 6;
    pub const GO: u32 = 7;
    pub const STRUCTURED_REPLY: u32 = 8;
    pub const LIST_META_CONTEXT: u32 = 9;
    pub const SET_META_CONTEXT: u32 = 10;
    pub const EXTENDED_HEADERS: u32 = 11;
}

pub mod answer {
    pub const ACK: u32 = 1;
    pub const SERVER: u32 = 2;
    pub const INFO: u32 = 3;
    pub const META_CONTEXT: u32 = 4;
    /// The bit that is set in all replies that refuse an option.
    pub const ERROR_BIT: u32 = 1 << 31;
    pub const UNSUPPORTED: u32 = ERROR_BIT | 1;
    pub const POLICY: u32 = ERROR_BIT | 2;
    pub const INVALID: u32 = ERROR_BIT | 3;
    pub const TLS_REQUIRED: u32 = ERROR_BIT | 5;
    pub const UNKNOWN: u32 = ERROR_BIT | 6;
    pub const SHUTDOWN: u32 = ERROR_BIT | 7;
    pub const TOO_BIG: u32 = ERROR_BIT | 9;
}

pub mod info {
    pub const EXPORT: u16 = 0;
    pub const NAME: u16 = 1;
    pub const BLOCK_SIZE: u16 = 3;
}

pub mod transmission {
    pub const HAS_FLAGS: u16 = 1;
    pub const READ_ONLY: u16 = 1 << 1;
    pub const FLUSH: u16 = 1 << 2;
    pub const FUA: u16 = 1 << 3;
    pub const TRIM: u16 = 1 << 5;
    pub const WRITE_ZEROES: u16 = 1 << 6;
    pub const DONT_FRAGMENT: u16 = 1 << 7;
    pub const MULTI_CONN: u16 = 1 << 8;
    pub const CACHE: u16 = 1 << 10;
    pub const FAST_ZERO: u16 = 1 << 11;
}

pub mod command {
    pub const READ: u16 = 0;
    pub const WRITE: u16 = 1;
    pub const DISCONNECT: u16 = 2;
    pub const FLUSH: u16 = 3;
    pub const TRIM: u16 = 4;
    pub const CACHE: u16 = 5;
    pub const WRITE_ZEROES: u16 = 6;
    pub const BLOCK_STATUS: u16 = 7;
}

pub mod flag {
    pub const FUA: u16 = 1;
    pub const NO_HOLE: u16 = 1 << 1;
    pub const DONT_FRAGMENT: u16 = 1 << 2;
    pub const ONE: u16 = 1 << 3;
    pub const FAST_ZERO: u16 = 1 << 4;
    pub const PAYLOAD_LEN: u16 = 1 << 5;
}

pub mod chunk {
    pub const NONE: u16 = 0;
    pub const OFFSET_DATA: u16 = 1;
    pub const OFFSET_HOLE: u16 = 2;
    pub const BLOCK_STATUS: u16 = 5;
    pub const BLOCK_STATUS_EXT: u16 = 6;
    /// The bit that is set in all kinds that report an error.
    pub const ERROR_BIT: u16 = 1 << 15;
    pub const ERROR: u16 = ERROR_BIT | 1;
    pub const DONE: u16 = 1;
}

pub const REQUEST: u32 = 0x2560_9513;
pub const EXTENDED_REQUEST: u32 = 0x21e4_1c71;
pub const SIMPLE_REPLY: u32 = 0x6744_6698;
pub const STRUCTURED_REPLY: u32 = 0x668e_33ef;
pub const EXTENDED_REPLY: u32 = 0x6e8a_278c;

pub const ALLOCATION: &[u8] = b"base:allocation";
/// The bit of an extent's status for an extent that reads as zeroes.
pub const ZERO: u32 = 1 << 1;
/// The status of an extent that takes no space and reads as zeroes.
pub const HOLE_AND_ZERO: u32 = 1 | ZERO;

/// The error numbers of replies, with their errnos. The protocol has no others.
const ERRORS: &[(u32, Errno)] = &[
    (1, Errno::PERM),
    (OTHER_ERROR, Errno::IO),
    (12, Errno::NOMEM),
    (22, Errno::INVAL),
    (28, Errno::NOSPC),
    (75, Errno::OVERFLOW),
    (95, Errno::OPNOTSUPP),
    (108, Errno::SHUTDOWN),
];
/// The error number that replies have for an errno that the protocol lacks.
const OTHER_ERROR: u32 = 5;

/// Returns the error number that a server sends for an errno: the nearest that the protocol has.
pub fn error_number(errno: Errno) -> u32 {
    let nearest = match errno {
        Errno::ACCES | Errno::ROFS => Errno::PERM,
        Errno::DQUOT | Errno::FBIG => Errno::NOSPC,
        other => other,
    };
    let found = ERRORS.iter().find(|(_, errno)| *errno == nearest);
    found.map_or(OTHER_ERROR, |(number, _)| *number)
}

/// Returns the errno for an error number that a server has sent: `EIO` for an unknown number.
pub fn errno(number: u32) -> Errno {
    let found = ERRORS.iter().find(|(known, _)| *known == number);
    found.map_or(Errno::IO, |(_, errno)| *errno)
}

/// The most bytes of data in one request or reply that clients may use without negotiation.
pub const PAYLOAD_MAX: u32 = 32 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_gets_the_nearest_errno_that_the_protocol_has() {
        for (sent, got) in [
            (Errno::NOSPC, Errno::NOSPC),
            (Errno::DQUOT, Errno::NOSPC),
            (Errno::ROFS, Errno::PERM),
            (Errno::SHUTDOWN, Errno::SHUTDOWN),
            (Errno::TIMEDOUT, Errno::IO),
        ] {
            assert_eq!(errno(error_number(sent)), got, "{sent}");
        }
        assert!(ERRORS.iter().all(|(number, known)| error_number(*known) == *number));
        assert_eq!(errno(99), Errno::IO);
    }
}
