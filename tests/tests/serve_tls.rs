//! `nowait serve` with TLS: which clients it accepts.

use std::fs;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::Duration;

use nowait_tests::pki::Pki;
use nowait_tests::program::Program;
use nowait_tests::scratch::{Scratch, text};
use nowait_tests::server::{Server, tool};
use nowait_tests::skip;

const SIZE: u64 = 4 << 20;

/// Starts a server that listens on a Unix socket and TCP, and shows its status to other machines.
fn start(scratch: &Scratch, arguments: &[String]) -> Option<Server> {
    let served = scratch.patterned("served", SIZE);
    let fixed = [text(&served), "--nbd", "tcp:localhost:0"];
    let status = ["--status", "tcp:0.0.0.0:0", "--expose-status"];
    let arguments = arguments.iter().map(String::as_str);
    let all: Vec<&str> = fixed.into_iter().chain(status).chain(arguments).collect();
    Server::start(scratch, &all)
}

fn gets_in(uri: &str) -> bool {
    Program::new("nbdinfo").args(["--size", uri]).run().status.success()
}

#[test]
fn tls_is_what_the_option_says_by_every_listener() {
    let Some(()) = skip::unless(skip::missing_program(&["nbdinfo", "openssl"])) else { return };
    for (mode, authority) in [("on", false), ("on", true), ("require", false), ("require", true)] {
        let scratch = Scratch::new("tls");
        let pki = Pki::new(&scratch);
        let mut arguments = [vec!["--tls".to_owned(), mode.to_owned()], pki.server()].concat();
        if authority {
            arguments.extend(["--tls-client-ca".to_owned(), pki.authority()]);
        }
        let Some(mut server) = start(&scratch, &arguments) else { return };
        let (port, socket) = (server.port(), server.socket().display().to_string());
        let tls = |folder: &Path| format!("tls-certificates={}", folder.display());
        for tcp in [true, false] {
            let uri = |secure: &str, query: &str| match tcp {
                true => format!("nbd{secure}://localhost:{port}/?{query}"),
                false => format!("nbd{secure}+unix://localhost/?socket={socket}&{query}"),
            };
            let seen = [
                gets_in(&uri("", "")),
                gets_in(&uri("s", &tls(&pki.anonymous))),
                gets_in(&uri("s", &tls(&pki.folder))),
            ];
            let wanted = [mode == "on", !authority, true];
            assert_eq!(seen, wanted, "--tls {mode}, authority {authority}, TCP {tcp}");
        }
        server.stop();
    }
}

#[test]
fn a_certificate_that_is_not_valid_is_said_at_the_start_and_when_it_is_read_again() {
    let Some(()) = skip::unless(skip::missing_program(&["openssl"])) else { return };
    let scratch = Scratch::new("tls");
    let pki = Pki::new(&scratch);
    let (good, bad) = (pki.folder.join("server-cert.pem"), pki.folder.join("bad.pem"));
    let sign = "x509 -req -in server.csr -CA ca-cert.pem -CAkey ca-key.pem -CAcreateserial \
                -out bad.pem -days -1 -extfile server.ext";
    Program::new("openssl").args(sign.split_whitespace()).dir(&pki.folder).succeed();
    let Some(mut server) = start(&scratch, &pki.server()) else { return };
    server.wait_until_it_says("serving served");
    assert!(!server.said().contains("the certificate"), "{}", server.said());
    fs::copy(bad, good).expect("a copy");
    server.signal(libc::SIGHUP);
    server.wait_until_it_says("server-cert.pem: the certificate ends before it begins; clients");
    server.stop();
    let Some(mut server) = start(&scratch, &pki.server()) else { return };
    server.wait_until_it_says("server-cert.pem: the certificate ends before it begins; clients");
    server.stop();
}

#[test]
fn with_a_certificate_and_nothing_else_said_tls_is_required() {
    let Some(()) = skip::unless(skip::missing_program(&["nbdinfo", "qemu-img", "openssl"])) else {
        return;
    };
    let scratch = Scratch::new("tls");
    let pki = Pki::new(&scratch);
    let Some(mut server) = start(&scratch, &pki.server()) else { return };
    let port = server.port();
    assert!(!gets_in(&server.uri("")), "by a Unix socket");
    assert!(!gets_in(&format!("nbd://localhost:{port}/")), "by TCP");
    let qemu = |options: &str| {
        let credentials = format!("tls-creds-x509,id=t,endpoint=client,dir={}", text(&pki.folder));
        let options = format!("driver=nbd,{options}");
        let info = Program::new("qemu-img").args(["info", "--object", &credentials]);
        info.args(["--image-opts", &options]).run().status.success()
    };
    let (tcp, unix) = (format!("host=localhost,port={port}"), server.socket().display());
    assert!(!qemu(&tcp) && qemu(&format!("{tcp},tls-creds=t")));
    assert!(!qemu(&format!("path={unix}")));
    assert!(qemu(&format!("path={unix},tls-creds=t,tls-hostname=localhost")));
    server.stop();
}

#[test]
fn tcp_without_tls_is_served_to_those_who_ask_for_just_that() {
    let Some(()) = skip::unless(skip::missing_program(&["nbdinfo"])) else { return };
    let scratch = Scratch::new("tls");
    let Some(mut server) = start(&scratch, &["--tls".to_owned(), "off".to_owned()]) else { return };
    let port = server.port();
    assert!(gets_in(&format!("nbd://localhost:{port}/")) && gets_in(&server.uri("")));
    server.stop();
    // `--expose-status` permits other machines only the status port. Without a certificate, a TCP
    // port for images still needs `--tls off`.
    let Some(tool) = tool() else { return };
    let served = scratch.patterned("served", SIZE);
    let status = ["--status", "tcp:0.0.0.0:0", "--expose-status", "--nbd", "tcp:localhost:0"];
    let refused = tool.args(["serve", text(&served)]).args(status).run();
    assert!(!refused.status.success() && refused.stderr.contains("--tls off"), "{refused}");
}

#[test]
fn who_is_named_in_a_certificate_has_what_the_rules_give() {
    let Some(()) = skip::unless(skip::missing_program(&["nbdinfo", "nbdcopy", "openssl"])) else {
        return;
    };
    let scratch = Scratch::new("tls");
    let pki = Pki::new(&scratch);
    for (allowed, admitted) in [("tls:localhost", true), ("tls:elsewhere", false)] {
        let more = ["--tls-client-ca".to_owned(), pki.authority()];
        let rule = ["--allow".to_owned(), allowed.to_owned()];
        let Some(mut server) = start(&scratch, &[&pki.server()[..], &more, &rule].concat()) else {
            return;
        };
        let (port, folder, copy) = (server.port(), pki.folder.display(), scratch.file("copy"));
        let uri = format!("nbds://localhost:{port}/?tls-certificates={folder}");
        let output = Program::new("nbdcopy").args([&uri, text(&copy)]).run();
        assert_eq!(output.status.success(), admitted, "{allowed}\n{output}");
        if admitted {
            let (read, wanted) = (fs::read(&copy), fs::read(scratch.file("served")));
            assert!(read.expect("the copy") == wanted.expect("the image"));
        }
        server.stop();
    }
}

/// The test replaces certificates while a client is connected: by an invalid file, and by files of
/// another authority.
#[test]
fn certificates_are_read_again_after_a_hang_up_and_sessions_go_on() {
    const SCRIPT: &str = "
import os, sys
h.set_uri_allow_local_file(True)
h.connect_uri(os.environ['URI'])
open(os.environ['THERE'], 'w').close()
sys.stdin.readline()
assert len(h.pread(4096, 0)) == 4096
h.shutdown()";
    let Some(()) = skip::unless(skip::missing_program(&["nbdinfo", "nbdsh", "openssl"])) else {
        return;
    };
    let (scratch, later) = (Scratch::new("tls"), Scratch::new("tls"));
    let (pki, other) = (Pki::new(&scratch), Pki::new(&later));
    let Some(mut server) = start(&scratch, &pki.server()) else { return };
    let port = server.port();
    let uri = |pki: &Pki| {
        format!("nbds://localhost:{port}/?tls-certificates={}", pki.anonymous.display())
    };
    let (there, go_on) = (scratch.file("there"), std::io::pipe().expect("a pipe"));
    let shell = Program::new("nbdsh").env("PATH", "/usr/bin:/bin").args(["-c", SCRIPT]);
    let shell =
        shell.env("URI", uri(&pki)).env("THERE", &there).stdin(OwnedFd::from(go_on.0).into());
    let mut shell = shell.spawn();
    while !there.exists() {
        assert!(!shell.ended(), "{}", shell.stderr());
        std::thread::yield_now();
    }
    let (certificate, key) =
        (pki.folder.join("server-cert.pem"), pki.folder.join("server-key.pem"));
    fs::write(&certificate, "nonsense").expect("another certificate");
    server.signal(libc::SIGHUP);
    server.wait_until_it_says(
        "server-cert.pem: no PEM certificate in the file; the earlier certificate",
    );
    assert!(gets_in(&uri(&pki)), "with the one before");
    fs::copy(other.folder.join("server-cert.pem"), &certificate).expect("a copy");
    fs::copy(other.folder.join("server-key.pem"), &key).expect("a copy");
    server.signal(libc::SIGHUP);
    server.wait_until_it_says("were read again");
    assert!(gets_in(&uri(&other)) && !gets_in(&uri(&pki)));
    drop(go_on.1);
    let output = shell.wait(Duration::from_mins(1));
    assert!(output.status.success(), "the session went on\n{output}");
    server.stop();
}
