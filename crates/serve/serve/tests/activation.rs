//! `nowait serve` refuses wrong descriptors of a socket unit before it serves.

mod support;

use std::process::Command;
use support::outcome;

/// Runs `nowait serve` as systemd would, from a shell that opens descriptor 3 as `given` says.
fn serve(given: &str) -> (i32, String, String) {
    let script = format!(
        "LISTEN_FDS=1 LISTEN_PID=$$ exec '{}' serve /image {given}",
        env!("CARGO_BIN_EXE_nowait-serve")
    );
    outcome(Command::new("sh").args(["-c", &script]))
}

#[test]
fn a_missing_descriptor_and_one_that_is_no_socket_are_named() {
    for (given, why) in [
        ("3<&-", "is not open: start the server by its socket unit"),
        ("3</dev/null", "is not a socket: write ListenStream= in the socket unit"),
        ("3</", "is not a socket: write ListenStream= in the socket unit"),
    ] {
        let (code, out, err) = serve(given);
        assert_eq!((code, out.as_str()), (1, ""), "{given}: {err}");
        assert_eq!(err, format!("nowait: file descriptor 3 of LISTEN_FDS=1 {why}\n"), "{given}");
    }
}
