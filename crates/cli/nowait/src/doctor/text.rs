//! The report of `nowait doctor` as text.

use super::{Backend, Library, Limit, PathReport, Report};
use comfy_table::Table;
use nowait_terminal::table;
use std::fmt::Write as _;

pub(super) fn render(report: &Report) -> String {
    let mut text = backends(&report.backends).trim_fmt() + "\n";
    let _ = writeln!(text, "auto chooses {}: {}\n", report.auto.backend, report.auto.reason);
    let _ = writeln!(text, "{}\n", host(report).trim_fmt());
    if let Some(path) = &report.path {
        let _ = writeln!(text, "{}\n{}", heading(path), matrix(path).trim_fmt());
        path.advice.iter().for_each(|advice| _ = writeln!(text, "{advice}"));
        text.push('\n');
    }
    for library in &report.libraries {
        let _ = writeln!(text, "{}", describe(library));
    }
    for (name, value) in &report.environment {
        let _ = writeln!(text, "set: {name}={value}");
    }
    text.push('\n');
    for note in &report.notes {
        let _ = writeln!(text, "note: {note}");
    }
    for problem in &report.problems {
        let _ = writeln!(text, "problem: {problem}");
    }
    text
}

fn backends(backends: &[Backend]) -> Table {
    let mut table = table();
    table.set_header(["backend", "usable", "why", "what to change"]);
    for backend in backends {
        let (why, advice) = match &backend.refusal {
            Some(refusal) => (refusal.reason.clone(), refusal.advice.clone()),
            None => (details(backend), String::new()),
        };
        let usable = if backend.usable { "yes" } else { "no" };
        table.add_row([backend.name, usable, &why, &advice]);
    }
    table
}

fn details(backend: &Backend) -> String {
    let details = backend.details.iter();
    let details: Vec<_> =
        details.map(|(name, found)| format!("{}: {found}", name.replace('_', " "))).collect();
    if details.is_empty() { "a request went through it".to_owned() } else { details.join("; ") }
}

fn host(report: &Report) -> Table {
    let host = &report.host;
    let or_unknown = |value: Option<u64>| value.map_or("unknown".to_owned(), |it| it.to_string());
    let sysctl = match host.io_uring_disabled {
        Some(value) => value.to_string(),
        None => "not in this kernel".to_owned(),
    };
    let aio = format!("{} of {}", or_unknown(host.aio_nr), or_unknown(host.aio_max_nr));
    let mut table = table();
    table.set_header(["limit", "value"]);
    // `Linux version RELEASE (BUILDER) …`; the JSON has all of it.
    table.add_row(["kernel", host.kernel.split(' ').nth(2).unwrap_or(&host.kernel)]);
    table.add_row(["seccomp", host.seccomp]);
    table.add_row(["kernel.io_uring_disabled", &sysctl]);
    table.add_row(["fs.aio-nr of fs.aio-max-nr", &aio]);
    table.add_row(["RLIMIT_MEMLOCK, bytes (soft, hard)", &limit(&host.memlock_bytes)]);
    table.add_row(["RLIMIT_NOFILE (soft, hard)", &limit(&host.nofile)]);
    table
}

fn limit(limit: &Limit) -> String {
    let text = |value: Option<u64>| value.map_or("unlimited".to_owned(), |it| it.to_string());
    format!("{}, {}", text(limit.soft), text(limit.hard))
}

fn heading(path: &PathReport) -> String {
    let direct = match (path.memory_alignment, path.offset_alignment) {
        (Some(memory), Some(offset)) => {
            format!("O_DIRECT: memory aligned to {memory}, offset and length to {offset}")
        }
        _ if path.o_direct_error == Some("EINVAL") => "O_DIRECT is not supported".to_owned(),
        _ => format!("O_DIRECT not tried: {}", path.o_direct_error.unwrap_or_default()),
    };
    format!("{} is on {}; {direct}", path.path, path.file_system)
}

fn matrix(path: &PathReport) -> Table {
    let mut table = table();
    table.set_header(["RWF_NOWAIT", "read", "write"]);
    table.add_row(["buffered", &path.nowait.buffered_read, &path.nowait.buffered_write]);
    table.add_row(["direct", &path.nowait.direct_read, &path.nowait.direct_write]);
    table
}

fn describe(library: &Library) -> String {
    let path = library.path.as_deref().unwrap_or("not found");
    let state = if library.loads { "loads" } else { "is unusable" };
    format!("{} {state}: {path}", library.name)
}
