//! Access to exports: by user, address, or the name in a certificate.

use crate::{ServeError, nbd::Exports};
use core::{net::IpAddr, str::FromStr};
use nowait_device::Image;
use rustls::{
    client::verify_server_name,
    pki_types::{CertificateDer, ServerName},
    server::ParsedCertificate,
};
use std::sync::Arc;

/// A rule that grants an export, or all exports, to clients: `[EXPORT=]uid:N`, `net:ADDRESS[/BITS]`
/// or `tls:NAME`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// The name of the export; `None`: all exports.
    export: Option<String>,
    who: Who,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Who {
    /// A user ID of this machine: of a client at a Unix socket, or of a program that opens a FUSE
    /// file.
    User(u32),
    /// Clients whose address begins with the same bits as this address; the number says how many.
    Net(IpAddr, u32),
    Certificate(ServerName<'static>),
}

impl FromStr for Rule {
    type Err = String;

    fn from_str(text: &str) -> Result<Rule, String> {
        const EXPECTED: &str = "expected [EXPORT=]uid:N, net:ADDRESS[/BITS] or tls:NAME";
        let (export, who) = match text.rsplit_once('=') {
            Some((export, who)) => (Some(export.to_owned()), who),
            None => (None, text),
        };
        let who = match who.split_once(':') {
            Some(("uid", number)) => number.parse().ok().map(Who::User),
            Some(("net", net)) => read_net(net),
            Some(("tls", name)) => ServerName::try_from(name.to_owned()).ok().map(Who::Certificate),
            _ => None,
        };
        who.map(|who| Rule { export, who }).ok_or_else(|| EXPECTED.to_owned())
    }
}

fn read_net(text: &str) -> Option<Who> {
    let (address, bits) = match text.split_once('/') {
        Some((address, bits)) => (address, Some(bits.parse::<u32>().ok()?)),
        None => (text, None),
    };
    let address: IpAddr = address.parse().ok()?;
    let most = width(address);
    let bits = bits.unwrap_or(most);
    (bits <= most).then_some(Who::Net(address, bits))
}

fn width(address: IpAddr) -> u32 {
    if address.is_ipv4() { 32 } else { 128 }
}

/// An IPv4 address takes the highest 32 bits.
fn number(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(v4) => u128::from(v4.to_bits()) << 96,
        IpAddr::V6(v6) => v6.to_bits(),
    }
}

/// The properties of a client that rules check.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Peer {
    /// The user ID, if the client came by a Unix socket.
    pub user: Option<u32>,
    /// The address, if the client came by TCP.
    pub address: Option<IpAddr>,
    /// The client's certificate, which an authority of `--tls-client-ca` has signed.
    pub certificate: Option<CertificateDer<'static>>,
}

impl Who {
    fn is(&self, peer: &Peer) -> bool {
        match self {
            Who::User(user) => peer.user == Some(*user),
            Who::Net(net, bits) => peer.address.is_some_and(|address| {
                // On a socket for both families, the kernel maps the addresses of IPv4 clients to
                // IPv6.
                let address = address.to_canonical();
                let differ = number(address) ^ number(*net);
                address.is_ipv4() == net.is_ipv4() && differ.leading_zeros() >= *bits
            }),
            Who::Certificate(name) => peer.certificate.as_ref().is_some_and(|certificate| {
                let parsed = ParsedCertificate::try_from(certificate);
                parsed.is_ok_and(|parsed| verify_server_name(&parsed, name).is_ok())
            }),
        }
    }
}

/// All rules. If no rule names an export or holds for all exports, every client that reaches the
/// server may use that export.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Access(Vec<Rule>);

impl Access {
    /// Checks the rules of the command line, and stores a copy of them.
    ///
    /// # Errors
    /// A rule names an unknown export, or a rule `tls:NAME` is given but the server does not check
    /// certificates.
    pub fn new(
        rules: &[Rule],
        exports: &[&str],
        checks_certificates: bool,
    ) -> Result<Access, ServeError> {
        for Rule { export, who } in rules {
            if let Some(name) = export.as_ref().filter(|name| !exports.contains(&name.as_str())) {
                return Err(ServeError::new(format!(
                    "--allow {name}=…: no image has the name {name}"
                )));
            }
            if matches!(who, Who::Certificate(_)) && !checks_certificates {
                return Err(ServeError::new("--allow tls:NAME needs --tls-client-ca"));
            }
        }
        Ok(Access(rules.to_vec()))
    }

    /// Returns `true` if there are no rules, so that every client may use every export.
    pub fn is_open(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns `true` if a rule names `export` or holds for all exports.
    pub fn is_about(&self, export: &str) -> bool {
        self.rules_of(export).next().is_some()
    }

    fn rules_of<'a>(&'a self, export: &'a str) -> impl Iterator<Item = &'a Rule> {
        self.0.iter().filter(move |rule| rule.export.as_deref().is_none_or(|name| name == export))
    }

    /// Returns `true` if `peer` may use `export`.
    pub fn admits(&self, export: &str, peer: &Peer) -> bool {
        let mut rules = self.rules_of(export).peekable();
        rules.peek().is_none() || rules.any(|rule| rule.who.is(peer))
    }

    /// Returns the images that `peer` may use.
    pub fn of<F>(&self, images: &Arc<[Arc<Image<F>>]>, peer: &Peer) -> Exports<F> {
        let all = Exports::all(images);
        if self.is_open() { all } else { all.filter(|image| self.admits(image.name(), peer)) }
    }

    /// Returns the user IDs in the rules that name `export` or hold for all exports.
    pub fn users_of(&self, export: &str) -> Vec<u32> {
        let user = |rule: &Rule| match rule.who {
            Who::User(user) => Some(user),
            _ => None,
        };
        self.rules_of(export).filter_map(user).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn access(rules: &[&str]) -> Access {
        let rules: Vec<Rule> = rules.iter().map(|rule| rule.parse().unwrap()).collect();
        Access::new(&rules, &["vm", "data"], false).unwrap()
    }

    #[test]
    fn an_export_without_rules_is_for_every_client() {
        let access = access(&["vm=uid:7", "vm=net:10.0.0.0/8"]);
        let nobody = Peer::default();
        assert!(access.admits("data", &nobody) && !access.admits("vm", &nobody));
        assert!(access.admits("vm", &Peer { user: Some(7), ..Peer::default() }));
        assert!(!access.admits("vm", &Peer { user: Some(8), ..Peer::default() }));
        assert_eq!((access.users_of("vm"), access.users_of("data")), (vec![7], vec![]));
    }

    #[test]
    fn a_rule_without_a_name_is_about_all_exports() {
        let access = access(&["uid:7", "data=uid:8"]);
        let is = |user| Peer { user: Some(user), ..Peer::default() };
        assert!(access.admits("vm", &is(7)) && access.admits("data", &is(7)));
        assert!(!access.admits("vm", &is(8)) && access.admits("data", &is(8)));
    }

    #[test]
    fn a_network_is_matched_by_its_first_bits() {
        let access = access(&["net:192.168.2.0/23", "net:fd00::/8", "net:127.0.0.1"]);
        let from = |address: &str| {
            let address = Some(address.parse().unwrap());
            access.admits("vm", &Peer { address, ..Peer::default() })
        };
        for inside in ["192.168.2.1", "192.168.3.255", "::ffff:192.168.2.9", "fd12::1", "127.0.0.1"]
        {
            assert!(from(inside), "{inside}");
        }
        for outside in ["192.168.4.0", "127.0.0.2", "fe80::1", "::ffff:10.0.0.1"] {
            assert!(!from(outside), "{outside}");
        }
    }

    #[test]
    fn text_that_is_no_rule_is_refused() {
        for wrong in ["", "uid:", "uid:-1", "net:", "net:1.2.3.4/33", "net:host", "tls:", "vm"] {
            assert!(wrong.parse::<Rule>().is_err(), "{wrong}");
        }
        assert!("a=b=net:::/0".parse::<Rule>().is_ok_and(|rule| rule.export.unwrap() == "a=b"));
        let tls: Rule = "vm=tls:host.example".parse().unwrap();
        assert!(Access::new(std::slice::from_ref(&tls), &["vm"], false).is_err());
        assert!(Access::new(&[tls], &["vm"], true).is_ok());
        assert!(Access::new(&["x=uid:1".parse().unwrap()], &["vm"], true).is_err());
    }
}
