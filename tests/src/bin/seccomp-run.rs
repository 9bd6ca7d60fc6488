//! Runs a program under a seccomp filter:
//! `seccomp-run [--profile docker|bare|words] [--deny GROUP=ERRNO]... -- PROGRAM ARGS...`

use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

use nowait_tests::seccomp::{self, Denial};

fn main() -> ExitCode {
    let message = match run() {
        Ok(never) => match never {},
        Err(message) => message,
    };
    eprintln!("seccomp-run: {message}");
    ExitCode::from(2)
}

fn run() -> Result<std::convert::Infallible, String> {
    let mut args = std::env::args_os().skip(1);
    let mut denials = Vec::new();
    loop {
        let option = args.next().ok_or("-- PROGRAM expected")?;
        if option == "--" {
            break;
        }
        let value = args.next().ok_or("a value expected after an option")?;
        let value = value.to_string_lossy();
        match option.to_str() {
            Some("--profile") => denials.extend(Denial::profile(&value)?),
            Some("--deny") => denials.push(Denial::parse(&value)?),
            _ => return Err(format!("unknown option {}", option.display())),
        }
    }
    let program = args.next().ok_or("a program expected after --")?;
    seccomp::install(&denials).map_err(|error| format!("filter refused: {error}"))?;
    let error = Command::new(&program).args(args).exec();
    Err(format!("{}: {error}", program.display()))
}
