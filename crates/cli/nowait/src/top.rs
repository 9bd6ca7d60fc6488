//! `nowait top`: the servers of this user and the processes with the preload library, by default
//! once a second.

use clap::Args;
use nowait_status::{
    ExportStatus, KindStatus, Status, StoreStatus, fetch, format, place, quantile_ns,
};
use nowait_terminal::{Failure, Result, printable};
use serde_json::Value;
use std::{
    collections::BTreeMap,
    fmt::Write as _,
    fs,
    io::{self, IsTerminal, Write as _},
    path::PathBuf,
    process::ExitCode,
    sync::mpsc,
    time::{Duration, Instant},
};

/// The servers to show, and the interval.
#[derive(Args, Clone, Debug)]
pub(crate) struct TopArgs {
    /// Status sockets to ask [default: those of all servers of this user].
    #[arg(value_hint = clap::ValueHint::FilePath)]
    pub(crate) sockets: Vec<PathBuf>,
    /// Seconds from one look to the next.
    #[arg(long, value_name = "N", default_value = "1",
          value_parser = clap::value_parser!(u64).range(1..=3600))]
    pub(crate) interval: u64,
    /// Look twice, print once, and end; the default if the output is not a terminal.
    #[arg(long)]
    pub(crate) once: bool,
    /// Print the counters of all servers as one JSON array, and end.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Default)]
struct Look {
    servers: BTreeMap<u32, Status>,
    programs: BTreeMap<u32, Program>,
}

/// A process that has loaded the preload library.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Program {
    name: String,
    read_bytes: u64,
    write_bytes: u64,
    figures: Option<Figures>,
}

/// The counters that a program under `nowait run --stats` has written, since its start.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Figures {
    backend: String,
    requests: u64,
    completed_inline: u64,
    completions: u64,
    /// The time inside submit, in the context where it is longest.
    submit_p99_ns: u64,
    submit_max_ns: u64,
}

impl Figures {
    fn read(report: &Value) -> Figures {
        let contexts = report["contexts"].as_array().map(Vec::as_slice).unwrap_or_default();
        let sum = |name: &str| contexts.iter().filter_map(|it| it[name].as_u64()).sum();
        let longest = |name: &str| {
            let times = contexts.iter().filter_map(|it| it["submit_ns"][name].as_f64());
            times.fold(0.0, f64::max) as u64
        };
        Figures {
            backend: report["backend"].as_str().unwrap_or_default().to_owned(),
            requests: sum("requests"),
            completed_inline: sum("completed_inline"),
            completions: sum("completions"),
            submit_p99_ns: longest("p99"),
            submit_max_ns: longest("max"),
        }
    }
}

pub(crate) fn top(args: &TopArgs) -> Result<ExitCode> {
    let failed = |error: io::Error| Failure::new(format!("standard output: {error}"));
    let mut out = io::stdout().lock();
    for path in &args.sockets {
        fetch(path).map_err(|error| Failure::new(format!("{}: {error}", path.display())))?;
    }
    if args.json {
        let all: Vec<Status> = look(args).servers.into_values().collect();
        let text = serde_json::to_string(&all).unwrap_or_default();
        let written = writeln!(out, "{}", printable::json(&text));
        return written.map(|()| ExitCode::SUCCESS).map_err(failed);
    }
    let once = args.once || !out.is_terminal();
    let (mut before, mut at) = (look(args), Instant::now());
    loop {
        pause(Duration::from_secs(args.interval));
        let now = look(args);
        let text = show(&before, &now, at.elapsed());
        let text = printable::printable(&text);
        if once {
            let written = out.write_all(text.as_bytes());
            return written.map(|()| ExitCode::SUCCESS).map_err(failed);
        }
        // Move the cursor home, and clear the rest of the last screen.
        write!(out, "\x1b[H\x1b[J{text}").and_then(|()| out.flush()).map_err(failed)?;
        (before, at) = (now, Instant::now());
    }
}

fn pause(time: Duration) {
    let (_nobody, silence) = mpsc::channel::<()>();
    let _ = silence.recv_timeout(time);
}

fn look(args: &TopArgs) -> Look {
    let sockets = if args.sockets.is_empty() { place::sockets() } else { args.sockets.clone() };
    // No server answers at the socket that a killed server leaves behind.
    let answers = sockets.iter().filter_map(|path| fetch(path).ok());
    let servers = answers.map(|status| (status.pid, status)).collect();
    Look { servers, programs: programs() }
}

fn programs() -> BTreeMap<u32, Program> {
    let Ok(entries) = fs::read_dir("/proc") else { return BTreeMap::new() };
    let numbers = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    numbers.filter_map(|number| program(number).map(|program| (number, program))).collect()
}

fn program(number: u32) -> Option<Program> {
    let read = |name: &str| fs::read_to_string(format!("/proc/{number}/{name}")).ok();
    let maps = read("maps")?;
    if !maps.contains("libnowait_preload.so") {
        return None;
    }
    let io = read("io")?;
    let counter = |name: &str| {
        let line = io.lines().find_map(|line| line.strip_prefix(name));
        line.and_then(|text| text.trim().parse().ok()).unwrap_or(0)
    };
    Some(Program {
        name: read("comm")?.trim().to_owned(),
        read_bytes: counter("read_bytes:"),
        write_bytes: counter("write_bytes:"),
        figures: place::figures(number).as_ref().map(Figures::read),
    })
}

fn show(before: &Look, now: &Look, elapsed: Duration) -> String {
    let ms = u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX).max(1);
    let tables = [
        exports(before, now, ms),
        stores(before, now, ms),
        connections(before, now),
        programs_table(before, now, ms),
    ];
    let shown: Vec<_> = tables.into_iter().filter(|table| !table.is_empty()).collect();
    if shown.is_empty() {
        return "no server of this user, and nothing under nowait run\n".to_owned();
    }
    shown.join("\n")
}

fn exports(before: &Look, now: &Look, ms: u64) -> String {
    let mut text = String::new();
    for (pid, status) in &now.servers {
        for export in &status.exports {
            if text.is_empty() {
                let _ = writeln!(
                    text,
                    "{:>8}  {:<20} {:>7} {:>18} {:>18} {:>6} {:>8} {:>8}",
                    "PID", "EXPORT", "CLIENTS", "READ", "WRITE", "DEPTH", "P50", "P99"
                );
            }
            let earlier = before.servers.get(pid).and_then(|status| same(status, export));
            let _ = writeln!(text, "{pid:>8}  {}", row(earlier, export, ms));
        }
    }
    text
}

/// The ratio of bytes put to written, and the failures, count from the server's start.
fn stores(before: &Look, now: &Look, ms: u64) -> String {
    let all = now.servers.iter().flat_map(|(pid, status)| {
        status.exports.iter().filter_map(move |export| Some((*pid, export, export.store.as_ref()?)))
    });
    let mut text = String::new();
    for (pid, export, store) in all {
        if text.is_empty() {
            let _ = writeln!(
                text,
                "{:>8}  {:<20} {:>8} {:>8} {:>6} {:>8} {:>12} {:>9} {:>12} {:>7}  STATE",
                "PID",
                "ON A STORE",
                "PUT",
                "GET",
                "HITS",
                "DELETE",
                "PUT BYTES",
                "/ WRITTEN",
                "UNFLUSHED",
                "FAILED"
            );
        }
        let earlier =
            before.servers.get(&pid).and_then(|status| same(status, export)?.store.clone());
        let since = store.since(&earlier.unwrap_or_default());
        let [puts, gets, deletes] = [since.puts, since.gets, since.deletes]
            .map(|count| format!("{:.0}/s", count as f64 * 1000.0 / ms as f64));
        let bytes = format!("{:.1} MB/s", since.put_bytes as f64 / 1000.0 / ms as f64);
        let unflushed = format!("{:.1} MB", store.unflushed_bytes as f64 / 1e6);
        let _ = writeln!(
            text,
            "{pid:>8}  {:<20} {puts:>8} {gets:>8} {:>6} {deletes:>8} {bytes:>12} {:>9} \
             {unflushed:>12} {:>7}  {}",
            export.name,
            percent(since.hit_percent()),
            put_for_each_byte(export, store),
            store.failures,
            store.state
        );
    }
    text
}

/// RECONNECTS and REPEATED count from the start of `nowait serve`.
fn connections(before: &Look, now: &Look) -> String {
    let all = now.servers.iter().flat_map(|(pid, status)| {
        let exports = status.exports.iter();
        exports.filter_map(move |export| Some((*pid, export, export.connection.as_ref()?)))
    });
    let mut text = String::new();
    for (pid, export, connection) in all {
        if text.is_empty() {
            let _ = writeln!(
                text,
                "{:>8}  {:<20} {:>6} {:>10} {:>8} {:>10}  STATE",
                "PID", "ON AN NBD SERVER", "HITS", "RECONNECTS", "REPEATED", "KEPT"
            );
        }
        let earlier =
            before.servers.get(&pid).and_then(|status| same(status, export)?.connection.clone());
        let hits = percent(connection.hit_percent_since(&earlier.unwrap_or_default()));
        let kept = format!("{:.1} MB", connection.kept_bytes as f64 / 1e6);
        let state = if connection.is_up { "connected" } else { "away" };
        let _ = writeln!(
            text,
            "{pid:>8}  {:<20} {hits:>6} {:>10} {:>8} {kept:>10}  {state}",
            export.name, connection.reconnects, connection.repeated
        );
    }
    text
}

fn percent(share: Option<u64>) -> String {
    share.map_or_else(|| "-".to_owned(), |share| format!("{share} %"))
}

fn put_for_each_byte(export: &ExportStatus, store: &StoreStatus) -> String {
    let written = export.kinds.iter().find(|one| one.kind == "write").map_or(0, |one| one.bytes);
    if written == 0 {
        "-".to_owned()
    } else {
        format!("{:.2}", store.put_bytes as f64 / written as f64)
    }
}

/// Leaves out new processes. Times inside submit count from the program's start.
fn programs_table(before: &Look, now: &Look, ms: u64) -> String {
    let mut text = String::new();
    for (pid, program) in &now.programs {
        let Some(earlier) = before.programs.get(pid) else { continue };
        if text.is_empty() {
            let _ = writeln!(
                text,
                "{:>8}  {:<15} {:>11} {:>11} {:>7} {:>9} {:>6} {:>5} {:>10} {:>8}",
                "PID",
                "PROGRAM",
                "READ",
                "WRITE",
                "BACKEND",
                "REQUESTS",
                "INLINE",
                "DEPTH",
                "SUBMIT P99",
                "MAX"
            );
        }
        let rate = |now: u64, before: u64| {
            let per_s = now.saturating_sub(before) as f64 * 1000.0 / ms as f64;
            format!("{:.1} MB/s", per_s / 1e6)
        };
        let read = rate(program.read_bytes, earlier.read_bytes);
        let write = rate(program.write_bytes, earlier.write_bytes);
        let before = earlier.figures.clone().unwrap_or_default();
        let figures = match &program.figures {
            Some(figures) => figures_row(&before, figures, ms),
            None => "  (more with nowait run --stats)".to_owned(),
        };
        let _ = writeln!(text, "{pid:>8}  {:<15} {read:>11} {write:>11}{figures}", program.name);
    }
    text
}

fn figures_row(before: &Figures, now: &Figures, ms: u64) -> String {
    let requests = now.requests.saturating_sub(before.requests);
    let inline = now.completed_inline.saturating_sub(before.completed_inline);
    let inline = match requests {
        0 => "-".to_owned(),
        _ => format!("{} %", inline.min(requests) * 100 / requests),
    };
    let depth = now.requests.saturating_sub(now.completions);
    let [p99, max] = [now.submit_p99_ns, now.submit_max_ns].map(format::time);
    let rate = format!("{}/s", requests * 1000 / ms);
    format!(" {:>7} {rate:>9} {inline:>6} {depth:>5} {p99:>10} {max:>8}", now.backend)
}

fn same<'a>(status: &'a Status, export: &ExportStatus) -> Option<&'a ExportStatus> {
    status.exports.iter().find(|other| other.name == export.name)
}

fn row(before: Option<&ExportStatus>, now: &ExportStatus, ms: u64) -> String {
    let of = |export: Option<&ExportStatus>, kind: &str| {
        let found = export.and_then(|export| export.kinds.iter().find(|one| one.kind == kind));
        found.cloned().unwrap_or_default()
    };
    let since = |kind: &str| -> KindStatus { of(Some(now), kind).since(&of(before, kind)) };
    let (read, write) = (since("read"), since("write"));
    let mut both = read.latency_ns.clone();
    both.extend(&write.latency_ns);
    both.sort_unstable();
    let [p50, p99] = [0.5, 0.99].map(|share| format::time(quantile_ns(&both, share)));
    format!(
        "{:<20} {:>7} {:>18} {:>18} {:>6} {p50:>8} {p99:>8}",
        now.name,
        now.connections,
        format::rate(&read, ms),
        format::rate(&write, ms),
        now.in_flight
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use nowait_status::ConnectionStatus;
    use serde_json::json;

    #[test]
    fn a_row_is_about_the_time_between_two_looks() {
        let look = |requests: u64, read_bytes| {
            let kind = KindStatus {
                kind: "write".to_owned(),
                requests,
                bytes: requests * 4096,
                errors: 0,
                latency_ns: vec![(80_000, requests)],
            };
            let export = ExportStatus {
                name: "vm".to_owned(),
                connections: 2,
                in_flight: 7,
                kinds: vec![kind],
                store: Some(StoreStatus {
                    cache_hits: requests / 4,
                    cache_misses: requests,
                    state: "serving, epoch 3".to_owned(),
                    puts: requests / 100,
                    put_bytes: requests * 4300,
                    failures: 1,
                    ..StoreStatus::default()
                }),
                ..ExportStatus::default()
            };
            let connection = Some(ConnectionStatus {
                is_up: true,
                reconnects: 2,
                repeated: 9,
                kept_bytes: 1_000_000,
                cache_hits: requests * 3,
                cache_misses: requests,
            });
            let far = ExportStatus { name: "far".to_owned(), connection, ..Default::default() };
            let status = Status { pid: 42, exports: vec![export, far], ..Status::default() };
            let context = |submit_ns: u64| {
                json!({
                    "requests": requests, "completed_inline": requests / 4,
                    "completions": requests - 8, "submit_ns": { "p99": submit_ns },
                })
            };
            let report = json!({ "backend": "uring", "contexts": [context(1000), context(2000)] });
            let figures = Some(Figures::read(&report));
            let program = Program { name: "fio".to_owned(), read_bytes, write_bytes: 0, figures };
            Look { servers: [(42, status)].into(), programs: [(43, program)].into() }
        };
        let text = show(&look(1000, 0), &look(3000, 4_000_000), Duration::from_secs(2));
        let rows: Vec<String> =
            text.lines().map(|l| l.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
        assert_eq!(rows[1], "42 vm 2 0/s 0.0 MB/s 1000/s 4.1 MB/s 7 80 µs 80 µs");
        assert_eq!(rows[5], "42 vm 10/s 0/s 20 % 0/s 4.3 MB/s 1.05 0.0 MB 1 serving, epoch 3");
        assert_eq!(rows[7], "PID ON AN NBD SERVER HITS RECONNECTS REPEATED KEPT STATE");
        assert_eq!(rows[8], "42 far 75 % 2 9 1.0 MB connected");
        assert_eq!(rows[10], "PID PROGRAM READ WRITE BACKEND REQUESTS INLINE DEPTH SUBMIT P99 MAX");
        assert_eq!(rows[11], "43 fio 2.0 MB/s 0.0 MB/s uring 2000/s 25 % 16 2.0 µs -");
        assert!(text.lines().skip(10).all(|line| line.chars().count() <= 100), "{text}");
        assert!(show(&Look::default(), &Look::default(), Duration::ZERO).contains("no server"));
    }
}
