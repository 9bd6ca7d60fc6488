//! nginx with `aio on`: several clients request parts of a large file, and another client requests
//! an answer that needs no file.

use std::fs;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use super::Mode;
use super::need::{self, Lack};
use super::run::{Run, text};
use super::timer::HELD_UP;
use nowait_harness::cache;
use nowait_harness::error::{Context, Failure, Result};
use nowait_harness::metric::{Metric, Sample};
use nowait_harness::order::Offsets;
use nowait_harness::server::Server;
use nowait_harness::stats::percentile;

const PATIENCE: Duration = Duration::from_secs(30);

/// Number of clients; each requests `PART_BYTES` bytes at a time.
const CLIENTS: u64 = 16;
const PART_BYTES: u64 = 256 << 10;

/// The status and the length of an answer with a part; `PICTURE` is the same for nginx's empty
/// picture.
const PART: (&str, u64) = ("206", PART_BYTES);
const PICTURE: (&str, u64) = ("200", 43);

const TURN_EVERY: Duration = Duration::from_millis(1);

/// Some distributions build nginx without native AIO. `None`: it has AIO, or is not installed.
pub(crate) fn lack() -> Option<Lack> {
    let told = Command::new(need::program("nginx")?).arg("-V").output().ok()?;
    let built_with = String::from_utf8_lossy(&told.stderr).into_owned();
    (!built_with.contains("--with-file-aio")).then(|| Lack {
        why: "this nginx is built without --with-file-aio, as Debian's is".to_owned(),
        install: "a package of nginx.org, which is built with it".to_owned(),
    })
}

pub(crate) fn run(run: &Run<'_>) -> Result<Sample> {
    cache::make_cold(run.data.path(), run.tools.drop_caches)?;
    let socket = run.tools.folder.join("nginx");
    let configuration = run.tools.folder.join("nginx.conf");
    let aio = if run.way.mode == Mode::Threads { "threads" } else { "on" };
    fs::write(&configuration, configure(&run.tools.folder, run.data.path(), &socket, aio))
        .context(|| format!("write {}", configuration.display()))?;
    let program = need::program("nginx").unwrap_or_else(|| PathBuf::from("nginx"));
    let mut command = run.command(&program);
    command.arg("-p").arg(&run.tools.folder).arg("-c").arg(&configuration).args(["-e", "stderr"]);
    let server = Server::listening(&mut command, PATIENCE, &socket)?;
    let asked = ask(run, &socket);
    let said = server.last_words();
    let (latencies, turns, elapsed_s) =
        asked.map_err(|error| Failure::new(format!("{error}; nginx: {said}")))?;
    let usage = server.stop(PATIENCE)?;
    let requests = latencies.len() as f64;
    let mut sample = Sample::from([
        (Metric::BytesPerS, requests * PART_BYTES as f64 / elapsed_s),
        (Metric::LatencyUsP50, percentile(&latencies, 0.5)),
        (Metric::LatencyUsP99, percentile(&latencies, 0.99)),
        (Metric::LatencyUsMax, percentile(&latencies, 1.0)),
        (Metric::CpuUsPerOperation, usage.cpu_us / requests),
    ]);
    sample.extend(HELD_UP.map(|(metric, part)| (metric, percentile(&turns, part))));
    Ok(sample)
}

/// Returns the configuration: one worker, which writes all of its files to `folder`.
fn configure(folder: &Path, data: &Path, socket: &Path, aio: &str) -> String {
    // SAFETY: takes nothing and cannot fail.
    let user = if unsafe { libc::geteuid() } == 0 { "user root;\n" } else { "" };
    let kinds = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"];
    let folders: String =
        kinds.iter().flat_map(|kind| [*kind, "_temp_path ", "temp_", *kind, ";\n"]).collect();
    let (pid, data, socket) = (text(&folder.join("nginx.pid")), text(data), text(socket));
    format!(
        "{user}daemon off;\nworker_processes 1;\nerror_log stderr;\npid {pid};\n\
         events {{ worker_connections 256; }}\n\
         http {{\n\
         access_log off;\n{folders}\
         keepalive_requests 100000000;\n\
         server {{\n\
         listen unix:{socket};\n\
         location = /data {{ alias {data}; aio {aio}; directio 512; output_buffers 2 128k; }}\n\
         location = /turn {{ empty_gif; }}\n\
         }}\n}}\n"
    )
}

/// Sends requests until the time is over, or until each part was requested once. Returns the
/// microseconds of each part and of each answer without a file, and the seconds of the run.
fn ask(run: &Run<'_>, socket: &Path) -> Result<(Vec<f64>, Vec<f64>, f64)> {
    let mut places = Offsets::shuffled(run.size_bytes, PART_BYTES, run.seed);
    let parts: Vec<u64> = (0..places.blocks()).map(|_| places.next()).collect();
    let begun = Instant::now();
    let deadline = begun + run.runtime;
    let (parts, stop) = (&parts, &AtomicBool::new(false));
    thread::scope(|scope| {
        let watch = scope.spawn(move || turns(socket, stop));
        let clients: Vec<_> = (0..CLIENTS)
            .map(|client| scope.spawn(move || client_of(socket, parts, client, deadline)))
            .collect();
        let asked: Result<Vec<Vec<f64>>> = clients.into_iter().map(joined).collect();
        let elapsed_s = begun.elapsed().as_secs_f64();
        stop.store(true, Ordering::Relaxed);
        let turns = joined(watch)?;
        let latencies = asked?.concat();
        if latencies.is_empty() || turns.is_empty() {
            return Err(Failure::new("nothing was answered; give a longer --runtime"));
        }
        Ok((latencies, turns, elapsed_s))
    })
}

fn joined<T>(thread: thread::ScopedJoinHandle<'_, Result<T>>) -> Result<T> {
    thread.join().unwrap_or_else(|_| Err(Failure::new("a client of nginx panicked")))
}

fn client_of(socket: &Path, parts: &[u64], client: u64, deadline: Instant) -> Result<Vec<f64>> {
    let mut connection = Connection::new(socket)?;
    let mut latencies = Vec::new();
    for first in parts.iter().skip(client as usize).step_by(CLIENTS as usize) {
        let begun = Instant::now();
        if begun > deadline {
            break;
        }
        let range = format!("Range: bytes={first}-{}\r\n", first + PART_BYTES - 1);
        connection.get("/data", &range, PART)?;
        latencies.push(begun.elapsed().as_secs_f64() * 1e6);
    }
    Ok(latencies)
}

fn turns(socket: &Path, stop: &AtomicBool) -> Result<Vec<f64>> {
    let mut connection = Connection::new(socket)?;
    let mut times = Vec::new();
    while !stop.load(Ordering::Relaxed) {
        let begun = Instant::now();
        connection.get("/turn", "", PICTURE)?;
        times.push(begun.elapsed().as_secs_f64() * 1e6);
        thread::sleep(TURN_EVERY);
    }
    Ok(times)
}

struct Connection(BufReader<UnixStream>);

impl Connection {
    fn new(socket: &Path) -> Result<Self> {
        let what = || format!("connect to {}", socket.display());
        let stream = UnixStream::connect(socket).context(what)?;
        stream.set_read_timeout(Some(PATIENCE)).context(what)?;
        Ok(Self(BufReader::with_capacity(128 << 10, stream)))
    }

    /// `header` has lines with their ends. Fails if the answer has another status or length.
    fn get(&mut self, path: &str, header: &str, (status, len): (&str, u64)) -> Result<()> {
        let what = || format!("ask for {path}");
        let request = format!("GET {path} HTTP/1.1\r\nHost: bench\r\n{header}\r\n");
        self.0.get_mut().write_all(request.as_bytes()).context(what)?;
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") && self.0.read_line(&mut head).context(what)? > 0 {}
        let read = io::copy(&mut self.0.by_ref().take(len), &mut io::sink()).context(what)?;
        if head.starts_with(&format!("HTTP/1.1 {status} ")) && read == len {
            return Ok(());
        }
        let first = head.lines().next().unwrap_or_default();
        Err(Failure::new(format!("nginx answers '{first}' and {read} of {len} bytes")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_follow_each_other_on_a_connection_and_others_are_errors() {
        let (ours, mut theirs) = UnixStream::pair().expect("a pair of sockets");
        let answers =
            [("206 Partial Content", "abc"), ("206 Partial Content", "def"), ("404 No", "")];
        for (status, body) in answers {
            let answer = format!("HTTP/1.1 {status}\r\nServer: a\r\n\r\n{body}");
            theirs.write_all(answer.as_bytes()).expect("room for all");
        }
        theirs.shutdown(std::net::Shutdown::Write).expect("a connection");
        let mut connection = Connection(BufReader::new(ours));
        let mut get = || connection.get("/", "", ("206", 3));
        assert_eq!((get(), get()), (Ok(()), Ok(())));
        let error = get().expect_err("another status").to_string();
        assert!(error.contains("'HTTP/1.1 404 No' and 0 of 3 bytes"), "{error}");
    }

    #[test]
    fn the_file_is_read_by_native_aio_and_the_answer_without_one_by_none() {
        let path = Path::new;
        let text = configure(path("/x"), path("/x/data"), path("/x/socket"), "on");
        assert!(text.contains("alias /x/data; aio on; directio 512;"), "{text}");
        assert!(text.contains("listen unix:/x/socket;") && text.contains("proxy_temp_path"));
        assert_eq!(text.matches('{').count(), text.matches('}').count());
    }
}
