//! `nowait serve` refuses wrong descriptors from a socket unit before it serves.

mod support;

use std::process::Command;
use support::outcome;

/// Runs `nowait serve` as systemd would, from a shell that redirects descriptor 3 as `given` says.
fn serve(given: &str) -> (i32, String, String) {
    let script = format!(
        "LISTEN_FDS=1 LISTEN_PID=$$ exec '{}' serve /image {given}",
        env!("CARGO_BIN_EXE_nowait-serve")
    );
    outcome(Command::new("sh").args(["-c", &script]))
}

#[test]
fn a_missing_descriptor_and_one_that_is_no_socket_are_refused_with_the_unit_s_remedy() {
    for given in ["3<&-", "3</dev/null", "3</"] {
        let (code, out, err) = serve(given);
        assert_eq!((code, out.as_str()), (1, ""), "{given}: {err}");
        let what = "nowait: file descriptor 3 of LISTEN_FDS=1 is not a Unix or TCP socket";
        assert!(err.starts_with(what) && err.lines().count() == 1, "{given}: {err}");
        assert!(err.contains("ListenStream= and Accept=no"), "{given}: {err}");
    }
}
