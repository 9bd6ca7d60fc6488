//! The environment variables of the libraries.
//!
//! An invalid value makes one line of complaint, and the default applies: a preloaded library never
//! stops its program.

use crate::choice;
use nowait_file::{Config, SubmitMode};
use std::path::PathBuf;

/// The destination of the report when the process exits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReportTo {
    /// To standard error, as text.
    Stderr,
    /// To a file: if its name ends in `.json`, one JSON object per process and line; else text.
    File(PathBuf),
}

/// The messages on standard error. Each level includes the messages of the levels above it in this
/// list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum LogLevel {
    /// No messages.
    Off,
    /// Errors. No message has this level at present.
    Error,
    /// Settings that could not be applied, and failures of the library itself.
    #[default]
    Warn,
    /// The chosen backend, and the reason.
    Info,
    /// Details. No message has this level at present.
    Debug,
}

/// The options from the environment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// Configuration of the engine.
    pub config: Config,
    /// Destination of the report; `None`: no report.
    pub report: Option<ReportTo>,
    /// The folder for a file with the counters of the running process.
    pub stats: Option<PathBuf>,
    /// `true`: the environment asks that buffered files go through the engine's page cache, not the
    /// kernel's. libaio and POSIX AIO ignore this.
    pub user_cache: bool,
    /// The messages on standard error.
    pub log: LogLevel,
    /// Complaints, one line for each invalid value or removed option.
    pub complaints: Vec<String>,
}

impl Options {
    /// Reads the process's environment.
    pub fn from_env() -> Options {
        Options::parse(|name| std::env::var_os(name).map(|v| v.to_string_lossy().into_owned()))
    }

    /// Reads variables through `get`.
    pub fn parse(get: impl Fn(&str) -> Option<String>) -> Options {
        let mut options = Options::default();
        let mut variables = Variables { get, complaints: Vec::new() };
        let config = &mut options.config;
        variables.read("NOWAIT_BACKEND", &mut config.backend, |value| {
            choice::parse(value).ok_or("auto, uring, kaio or threads")
        });
        variables.read("NOWAIT_SUBMIT", &mut config.submit, |value| {
            submit_mode(value).ok_or("auto or offload")
        });
        variables.read("NOWAIT_WORKERS", &mut config.workers_max, |value| {
            let count = value.parse().ok().filter(|count| (1..=1024).contains(count));
            count.ok_or("a number from 1 to 1024")
        });
        variables.read("NOWAIT_CACHE", &mut options.user_cache, |value| match value {
            "host" => Ok(false),
            "user" => Ok(true),
            _ => Err("host or user"),
        });
        variables.read("NOWAIT_CACHE_SIZE", &mut config.cache_bytes, |value| {
            let bytes = bytes(value).filter(|bytes| CACHE_BYTES.contains(bytes));
            bytes.ok_or("8M to 8192G: bytes, or K, M or G")
        });
        let (engine, context) = (&mut config.limits, &mut config.context_limits);
        variables.read("NOWAIT_MAX_REQUESTS", &mut engine.requests, number_of_requests);
        variables.read("NOWAIT_MAX_PINNED", &mut engine.bytes, number_of_bytes);
        variables.read("NOWAIT_MAX_CONTEXT_REQUESTS", &mut context.requests, number_of_requests);
        variables.read("NOWAIT_MAX_CONTEXT_PINNED", &mut context.bytes, number_of_bytes);
        variables.read("NOWAIT_REPORT", &mut options.report, |value| Ok(report_to(value)));
        variables.read("NOWAIT_STATS", &mut options.stats, folder);
        variables.read("NOWAIT_LOG", &mut options.log, |value| {
            log_level(value).ok_or("off, error, warn, info or debug")
        });
        options.config.stats = options.report.is_some() || options.stats.is_some();
        options.complaints = variables.complaints;
        options
    }
}

struct Variables<G> {
    get: G,
    complaints: Vec<String>,
}

impl<G: Fn(&str) -> Option<String>> Variables<G> {
    /// A variable that is missing, empty or wrong leaves the option as it is. For a wrong value,
    /// `parse` returns a text that names the expected values.
    fn read<T>(
        &mut self,
        name: &str,
        option: &mut T,
        parse: impl FnOnce(&str) -> Result<T, &'static str>,
    ) {
        let Some(value) = (self.get)(name).filter(|value| !value.is_empty()) else { return };
        match parse(&value) {
            Ok(parsed) => *option = parsed,
            Err(expected) => self.complaints.push(complaint(name, &value, expected)),
        }
    }
}

const INLINE_WAS_REMOVED: &str = "NOWAIT_SUBMIT=inline: the submit mode inline was removed; auto \
     is used (it makes the first attempt inside submit where that is faster)";

fn complaint(name: &str, value: &str, expected: &str) -> String {
    match (name, value) {
        ("NOWAIT_SUBMIT", "inline") => INLINE_WAS_REMOVED.to_owned(),
        _ => format!("{name}={value}: expected {expected}; ignored"),
    }
}

const CACHE_BYTES: core::ops::RangeInclusive<u64> = 8 << 20..=8 << 40;

fn bytes(text: &str) -> Option<u64> {
    let (digits, shift) = match text.as_bytes().last()?.to_ascii_uppercase() {
        b'K' => (&text[..text.len() - 1], 10),
        b'M' => (&text[..text.len() - 1], 20),
        b'G' => (&text[..text.len() - 1], 30),
        _ => (text, 0),
    };
    digits.parse::<u64>().ok()?.checked_mul(1 << shift)
}

fn number_of_requests(text: &str) -> Result<usize, &'static str> {
    let count = text.parse().ok().filter(|count| *count > 0);
    count.ok_or("a number of requests, at least 1")
}

fn number_of_bytes(text: &str) -> Result<u64, &'static str> {
    let count = bytes(text).filter(|count| *count > 0);
    count.ok_or("a size, at least 1: bytes, or K, M or G")
}

fn report_to(value: &str) -> Option<ReportTo> {
    match value {
        "0" => None,
        "1" => Some(ReportTo::Stderr),
        file => Some(ReportTo::File(file.into())),
    }
}

fn folder(value: &str) -> Result<Option<PathBuf>, &'static str> {
    match value {
        "0" => Ok(None),
        folder if folder.starts_with('/') => Ok(Some(folder.into())),
        _ => Err("the path of a folder, from the root"),
    }
}

fn submit_mode(name: &str) -> Option<SubmitMode> {
    Some(match name {
        "auto" => SubmitMode::Auto,
        "offload" => SubmitMode::Offload,
        _ => return None,
    })
}

fn log_level(name: &str) -> Option<LogLevel> {
    Some(match name {
        "off" => LogLevel::Off,
        "error" => LogLevel::Error,
        "warn" => LogLevel::Warn,
        "info" => LogLevel::Info,
        "debug" => LogLevel::Debug,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use nowait_file::BackendChoice;

    fn parse(pairs: &[(&str, &str)]) -> Options {
        Options::parse(|name| {
            pairs.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned())
        })
    }

    #[test]
    fn nothing_set_is_the_default() {
        assert_eq!(parse(&[]), Options::default());
    }

    #[test]
    fn values_are_taken() {
        let options = parse(&[
            ("NOWAIT_BACKEND", "kaio"),
            ("NOWAIT_SUBMIT", "offload"),
            ("NOWAIT_WORKERS", "7"),
            ("NOWAIT_CACHE", "user"),
            ("NOWAIT_CACHE_SIZE", "64m"),
            ("NOWAIT_MAX_REQUESTS", "1000"),
            ("NOWAIT_MAX_PINNED", "2G"),
            ("NOWAIT_MAX_CONTEXT_REQUESTS", "100"),
            ("NOWAIT_MAX_CONTEXT_PINNED", "64k"),
            ("NOWAIT_REPORT", "/tmp/r.json"),
            ("NOWAIT_LOG", "debug"),
        ]);
        assert_eq!(options.config.backend, BackendChoice::Kaio);
        assert_eq!(options.config.submit, SubmitMode::Offload);
        assert_eq!(options.config.workers_max, 7);
        assert!(options.user_cache && options.config.stats);
        assert_eq!(options.config.cache_bytes, 64 << 20);
        let (engine, context) = (options.config.limits, options.config.context_limits);
        assert_eq!((engine.requests, engine.bytes), (1000, 2 << 30));
        assert_eq!((context.requests, context.bytes), (100, 64 << 10));
        assert_eq!(options.report, Some(ReportTo::File("/tmp/r.json".into())));
        assert_eq!(options.log, LogLevel::Debug);
        assert!(options.complaints.is_empty());
    }

    #[test]
    fn figures_are_counted_for_a_folder_from_the_root() {
        let options = parse(&[("NOWAIT_STATS", "/run/nowait")]);
        assert_eq!(options.stats, Some("/run/nowait".into()));
        assert!(options.config.stats && options.report.is_none());
        assert_eq!(parse(&[("NOWAIT_STATS", "0")]), Options::default());
        let options = parse(&[("NOWAIT_STATS", "1")]);
        assert_eq!((options.stats, options.complaints.len()), (None, 1));
    }

    #[test]
    fn sizes_are_bytes_or_have_a_unit() {
        assert_eq!(bytes("4096"), Some(4096));
        assert_eq!(bytes("3K"), Some(3 << 10));
        assert_eq!(bytes("2g"), Some(2 << 30));
        for wrong in ["", "M", "1MG", "-1", "1.5G", "18446744073709551615K", "ä"] {
            assert_eq!(bytes(wrong), None, "{wrong}");
        }
        for wrong in ["1M", "0", "9999G", "lots"] {
            let options = parse(&[("NOWAIT_CACHE_SIZE", wrong)]);
            assert_eq!(options.config, Config::default());
            assert_eq!(options.complaints.len(), 1, "{wrong}");
        }
    }

    #[test]
    fn a_limit_that_would_refuse_everything_is_nonsense() {
        for (name, values) in [
            ("NOWAIT_MAX_REQUESTS", ["0", "-1", "1K", "many"]),
            ("NOWAIT_MAX_PINNED", ["0", "0G", "1T", "1.5M"]),
            ("NOWAIT_MAX_CONTEXT_REQUESTS", ["0", "+-3", "0x10", " 1"]),
            ("NOWAIT_MAX_CONTEXT_PINNED", ["0K", "K", "-4096", "1 M"]),
        ] {
            for value in values {
                let options = parse(&[(name, value)]);
                assert_eq!(options.config, Config::default(), "{name}={value}");
                let expected = format!("{name}={value}: expected a ");
                assert!(options.complaints[0].starts_with(&expected), "{:?}", options.complaints);
            }
        }
    }

    #[test]
    fn the_removed_submit_mode_is_answered_in_one_line() {
        let options = parse(&[("NOWAIT_SUBMIT", "inline")]);
        assert_eq!(options.config, Config::default());
        assert_eq!(options.complaints, [INLINE_WAS_REMOVED]);
    }

    #[test]
    fn nonsense_is_one_line_each_and_the_default() {
        let options = parse(&[
            ("NOWAIT_BACKEND", "fast"),
            ("NOWAIT_SUBMIT", ""),
            ("NOWAIT_WORKERS", "0"),
            ("NOWAIT_CACHE", "none"),
        ]);
        assert_eq!(options.config, Config::default());
        assert!(!options.user_cache);
        assert_eq!(options.complaints.len(), 3);
        assert!(options.complaints[0].starts_with("NOWAIT_BACKEND=fast: expected auto"));
    }
}
