//! The report: the counters of each context of a process.

use crate::options::ReportTo;
use nowait_file::{Context, Engine};
use nowait_sys::{Errno, stderr};
use serde_json::{Map, Value, json};
use std::fmt::Write as _;
use std::io::Write as _;
use std::path::Path;

const SCHEMA: u32 = 1;
/// `nowait status` searches library files for this text without loading them.
const MAKER: &str = concat!("nowait ", env!("CARGO_PKG_VERSION"), " library");

/// A copy of the counters of one context, which is valid after the context is destroyed.
#[derive(Clone, Debug)]
pub struct Summary {
    /// The name of the context's sink; `libaio` if the context has no sink.
    face: &'static str,
    slots: usize,
    counters: Vec<(&'static str, u64)>,
    /// The executors of each kind of request, and the number of requests that each carried out.
    served: Vec<(&'static str, Vec<(&'static str, u64)>)>,
    submit_ns: Vec<(&'static str, f64)>,
}

impl Summary {
    /// Copies the counters of a context. `None`: the context keeps no counters.
    pub fn of(context: &Context) -> Option<Summary> {
        let stats = context.io().stats();
        let submit = stats.submit_histogram()?;
        let at = |quantile| submit.value_at_quantile(quantile) as f64;
        Some(Summary {
            face: context.io().face().unwrap_or("libaio"),
            slots: context.io().capacity(),
            counters: stats.counters()?.all(),
            served: stats.served()?.all(),
            submit_ns: vec![
                ("count", submit.len() as f64),
                ("mean", submit.mean()),
                ("p50", at(0.5)),
                ("p99", at(0.99)),
                ("p999", at(0.999)),
                ("p9999", at(0.9999)),
                ("max", submit.max() as f64),
            ],
        })
    }

    fn counter(&self, wanted: &str) -> u64 {
        self.counters.iter().find(|(name, _)| *name == wanted).map_or(0, |(_, value)| *value)
    }

    fn told(&self) -> String {
        let (requests, inside) = (self.counter("requests"), self.counter("completed_inline"));
        if requests == 0 {
            return "no request came: the program may use another interface, such as io_uring"
                .to_owned();
        }
        let us = |wanted: &str| {
            let found = self.submit_ns.iter().find(|(name, _)| *name == wanted);
            found.map_or(0.0, |(_, value)| value / 1000.0)
        };
        let (mean, p999) = (us("mean"), us("p999"));
        format!(
            "{requests} requests, {inside} completed inside submit; a submit took {mean:.1} µs in \
             the mean, 99.9 % took less than {p999:.0} µs"
        )
    }

    fn to_json(&self) -> Value {
        let mut object = Map::new();
        let mut punts = Map::new();
        object.insert("face".into(), json!(self.face));
        object.insert("slots".into(), json!(self.slots));
        for (name, value) in &self.counters {
            match name.strip_prefix("punt_") {
                Some(reason) => punts.insert(reason.into(), json!(value)),
                None => object.insert((*name).into(), json!(value)),
            };
        }
        let submit: Map<_, _> =
            self.submit_ns.iter().map(|(name, value)| ((*name).into(), json!(value))).collect();
        let served = self.served.iter().map(|(kind, by)| {
            let by: Map<_, _> =
                by.iter().map(|(who, count)| ((*who).into(), json!(count))).collect();
            ((*kind).to_owned(), Value::from(by))
        });
        object.insert("served".into(), served.collect::<Map<_, _>>().into());
        object.insert("punts".into(), punts.into());
        object.insert("submit_ns".into(), submit.into());
        object.into()
    }
}

/// Writes to the standard error that a thread of `engine` has panicked, unless this was reported.
pub fn tell_failure(engine: &Engine) {
    if let Some(line) = engine.untold_failure() {
        stderr::say(&format!("nowait: {line}\n"));
    }
}

/// Writes to the standard error that data were lost, because a close that returns no error could
/// not write them.
pub fn tell_lost(path: &Path, errno: Errno) {
    let error = std::io::Error::from_raw_os_error(errno.raw());
    stderr::say(&format!("nowait: {}: {error}: written data are lost\n", path.display()));
}

/// Writes the report of a process: the engine's backend and each context. If the report cannot be
/// written, says so on the standard error.
pub fn write(to: &ReportTo, engine: Option<&Engine>, contexts: &[Summary]) {
    let json = matches!(to, ReportTo::File(path) if path.extension().is_some_and(|e| e == "json"));
    let text = if json { as_json(engine, contexts) } else { as_text(engine, contexts) };
    let path = match to {
        ReportTo::Stderr => return stderr::say(&text),
        ReportTo::File(path) => path,
    };
    let opened = std::fs::OpenOptions::new().create(true).append(true).open(path);
    if let Err(error) = opened.and_then(|mut file| file.write_all(text.as_bytes())) {
        let path = path.display();
        stderr::say(&format!("nowait: cannot write the report to {path}: {error}\n"));
    }
}

fn program() -> String {
    let path = std::env::current_exe().unwrap_or_default();
    path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
}

fn backend(engine: Option<&Engine>) -> (&'static str, String) {
    match engine {
        Some(engine) => (engine.backend(), engine.reason().to_owned()),
        None => ("none", "the program made no context".to_owned()),
    }
}

/// Returns the report as one line of JSON, so that several processes can append to one file.
pub fn as_json(engine: Option<&Engine>, contexts: &[Summary]) -> String {
    let (backend, reason) = backend(engine);
    let object = json!({
        "schema": SCHEMA,
        "maker": MAKER,
        "pid": std::process::id(),
        "program": program(),
        "backend": backend,
        "backend_reason": reason,
        "failed_threads": engine.map_or(0, Engine::failures),
        "cache": engine.and_then(Engine::cache_counts).map(|counts| json!({
            "pages_read": counts.pages_read,
            "pages_written": counts.pages_written,
            "flushes": counts.flushes,
            "reads_cached": counts.reads_cached,
            "reads_missed": counts.reads_missed,
        })),
        "contexts": contexts.iter().map(Summary::to_json).collect::<Vec<_>>(),
    });
    format!("{object}\n")
}

fn as_text(engine: Option<&Engine>, contexts: &[Summary]) -> String {
    let (backend, reason) = backend(engine);
    let mut text = format!(
        "nowait: {} (process {}): backend {backend}: {reason}\n",
        program(),
        std::process::id()
    );
    let failed = engine.map_or(0, Engine::failures);
    if failed > 0 {
        let _ = writeln!(text, "nowait: threads of the engine failed {failed} times");
    }
    if let Some(counts) = engine.and_then(Engine::cache_counts) {
        let (read, written, flushes) = (counts.pages_read, counts.pages_written, counts.flushes);
        let _ = writeln!(
            text,
            "nowait: cache: {read} pages read, {written} written, {flushes} flushes"
        );
    }
    for (index, context) in contexts.iter().enumerate() {
        let (face, slots) = (context.face, context.slots);
        let _ =
            writeln!(text, "nowait: context {index} ({face}), {slots} slots: {}", context.told());
        if context.counter("requests") == 0 {
            continue;
        }
        for (name, value) in context.counters.iter().filter(|(_, value)| *value != 0) {
            let _ = writeln!(text, "nowait:   {:<20} {value:>12}", name.replace('_', " "));
        }
        for (kind, by) in &context.served {
            let _ = write!(text, "nowait:   {:<20}", kind.replace('_', " "));
            for (who, count) in by.iter().filter(|(_, count)| *count != 0) {
                let _ = write!(text, "  {who} {count}");
            }
            text.push('\n');
        }
        let _ = write!(text, "nowait:   inside submit, µs:");
        for (name, value) in &context.submit_ns[1..] {
            let _ = write!(text, "  {name} {:.1}", value / 1000.0);
        }
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_context_is_told_in_one_sentence() {
        let context = |requests| Summary {
            face: "libaio",
            slots: 126,
            counters: vec![("requests", requests), ("completed_inline", 3)],
            served: Vec::new(),
            submit_ns: vec![("count", 9.0), ("mean", 29_400.0), ("p999", 684_500.0)],
        };
        assert!(context(0).told().starts_with("no request came"));
        assert_eq!(
            context(14_244).told(),
            "14244 requests, 3 completed inside submit; a submit took 29.4 µs in the mean, 99.9 % \
             took less than 684 µs"
        );
    }
}
