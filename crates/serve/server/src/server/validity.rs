//! The validity period of a certificate. Clients refuse a certificate outside its validity period,
//! and rustls does not check the period of the server's own certificate.

use core::{fmt, time::Duration};
use rustls::{
    CertificateError, Error, RootCertStore,
    client::verify_server_cert_signed_by_trust_anchor,
    pki_types::{CertificateDer, UnixTime},
    server::ParsedCertificate,
};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Invalid {
    /// The certificate expired this long ago.
    Expired(Duration),
    /// The certificate becomes valid in this time from now.
    NotYet(Duration),
    /// The certificate expires before it becomes valid.
    Never,
}

impl fmt::Display for Invalid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let hours = |time: &Duration| time.as_secs() / 3600;
        match self {
            Invalid::Expired(since) => write!(f, "expired {} hours ago", hours(since)),
            Invalid::NotYet(left) => write!(f, "becomes valid in {} hours", hours(left)),
            Invalid::Never => f.write_str("ends before it begins"),
        }
    }
}

/// Returns the problem of the first certificate of `chain` that is not valid at `now`; `None`: each
/// certificate that can be parsed is valid.
pub(super) fn invalid(chain: &[CertificateDer<'_>], now: UnixTime) -> Option<Invalid> {
    chain.iter().find_map(|certificate| invalid_one(certificate, now))
}

fn invalid_one(certificate: &CertificateDer<'_>, now: UnixTime) -> Option<Invalid> {
    let parsed = ParsedCertificate::try_from(certificate).ok()?;
    // The verifier checks the validity period first. The verification always fails, because no
    // authority is trusted here; the error tells whether the period was the reason.
    let nothing = RootCertStore::empty();
    let verified = verify_server_cert_signed_by_trust_anchor(&parsed, &nothing, &[], now, &[]);
    let between = |from: UnixTime, to: UnixTime| {
        Duration::from_secs(to.as_secs().saturating_sub(from.as_secs()))
    };
    match verified {
        Err(Error::InvalidCertificate(CertificateError::ExpiredContext { time, not_after })) => {
            Some(Invalid::Expired(between(not_after, time)))
        }
        Err(Error::InvalidCertificate(CertificateError::NotValidYetContext {
            time,
            not_before,
        })) => Some(Invalid::NotYet(between(time, not_before))),
        Err(Error::InvalidCertificate(CertificateError::Expired)) => Some(Invalid::Never),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustls::pki_types::pem::PemObject;

    /// A certificate for `localhost`, valid for ten days.
    const CERTIFICATE: &str = "\
-----BEGIN CERTIFICATE-----\n\
MIIBezCCASCgAwIBAgIUJ2tHKnf1Siw42GO5RIggxel5Z3cwCgYIKoZIzj0EAwIw\n\
FDESMBAGA1UEAwwJbG9jYWxob3N0MB4XDTI2MTEyNzE4MTM1OFoXDTI2MTIwNzE4\n\
MTM1OFowFDESMBAGA1UEAwwJbG9jYWxob3N0MFkwEwYHKoZIzj0CAQYIKoZIzj0D\n\
AQcDQgAEob/obzeml/Xa8fsBR9CwvCj3c9jSg4zt3/9IOw+igFCzVjaWBy5+POLK\n\
1oYcMUtXsaw6KL9dOmCMyaqGTTQnHaNQME4wHQYDVR0OBBYEFIPGbuu3NEyh6u5l\n\
bup1F8SSHp69MB8GA1UdIwQYMBaAFIPGbuu3NEyh6u5lbup1F8SSHp69MAwGA1Ud\n\
EwEB/wQCMAAwCgYIKoZIzj0EAwIDSQAwRgIhAKY5pqjKtBiOW6pP1M3JHQJPPI3b\n\
SLxXoFfCCjBNoF7DAiEA0go6gReVkZpSh3uIsa1LgXM2r4G1wUEbvi5ghW5sgWY=\n\
-----END CERTIFICATE-----\n\
";
    const BEGIN: u64 = 1_795_803_238;
    const DAY: u64 = 86_400;

    #[test]
    fn a_certificate_is_valid_from_its_first_second_to_its_last() {
        let chain = [CertificateDer::from_pem_slice(CERTIFICATE.as_bytes()).unwrap()];
        let at = |second| invalid(&chain, UnixTime::since_unix_epoch(Duration::from_secs(second)));
        assert_eq!(at(BEGIN - 1), Some(Invalid::NotYet(Duration::from_secs(1))));
        assert_eq!((at(BEGIN), at(BEGIN + 10 * DAY)), (None, None));
        let expired = at(BEGIN + 12 * DAY).unwrap();
        assert_eq!(expired, Invalid::Expired(Duration::from_secs(2 * DAY)));
        assert_eq!(expired.to_string(), "expired 48 hours ago");
    }
}
