//! Prints clap's messages about a command line.

use clap::error::ErrorKind;
use std::process::ExitCode;

/// Prints the help or the version if the user asked for it, and the help if a subcommand is
/// missing. Prints any other error in one line. Returns the exit code.
pub fn explain(error: &clap::Error) -> ExitCode {
    if !error.use_stderr() || error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        let _ = error.print();
        return ExitCode::from(error.exit_code() as u8);
    }
    crate::say(one_line(&error.render().to_string()));
    ExitCode::from(2)
}

fn one_line(text: &str) -> String {
    let first = text.split("\n\n").next().unwrap_or_default();
    let words: Vec<&str> = first.split_whitespace().collect();
    let line = words.join(" ");
    format!("{} (see --help)", line.strip_prefix("error: ").unwrap_or(&line))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::{Arg, Command};

    #[test]
    fn an_error_of_several_lines_becomes_one() {
        let backend = Arg::new("backend").long("backend").value_parser(["auto", "uring"]);
        let command = Command::new("nowait").subcommand(Command::new("run").arg(backend));
        let error = command.try_get_matches_from(["nowait", "run", "--backend", "x"]);
        let line = one_line(&error.unwrap_err().render().to_string());
        assert!(line.starts_with("invalid value 'x' for '--backend"), "{line}");
        assert!(!line.contains('\n') && line.contains("uring"), "{line}");
    }
}
