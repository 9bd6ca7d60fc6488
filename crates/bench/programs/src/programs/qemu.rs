//! QEMU's block layer on a sparse image, with fio as the client. Requests to a second disk show how
//! long QEMU's event loop is held up.

use std::path::Path;
use std::time::Duration;

use super::Mode;
use super::run::{Run, text};
use nowait_harness::cache;
use nowait_harness::error::{Failure, Result};
use nowait_harness::fio::{self, Parsed};
use nowait_harness::metric::{Metric, Sample};
use nowait_harness::server::Server;

const PATIENCE: Duration = Duration::from_secs(30);

/// Pause between an answer of the second disk and the next request to it, in microseconds: long
/// enough to cost little, short enough for a request in every delay that matters.
const OTHER_EVERY_US: u64 = 500;

pub(crate) fn run(run: &Run<'_>, rw: &str, block_bytes: u64) -> Result<Sample> {
    run.fresh.make_fresh(run.size_bytes)?;
    cache::make_cold(run.fresh.path(), run.tools.drop_caches)?;
    let socket = run.tools.folder.join("qemu");
    let mut command = run.timed("qemu-storage-daemon")?;
    command.args(daemon(run.fresh.path(), &socket, run.way.mode));
    let server = Server::listening(&mut command, PATIENCE, &socket)?;
    let asked = client(run, rw, block_bytes, &socket);
    let said = server.last_words();
    let asked = asked.map_err(|error| Failure::new(format!("{error}; QEMU: {said}")))?;
    let usage = server.stop(PATIENCE)?;
    let [image, other] = asked;
    let mut sample = image.sample;
    // The submit times of fio as a client are not times inside io_submit.
    sample.retain(|metric, _| !metric.name().starts_with("submit"));
    sample.insert(Metric::CpuUsPerOperation, usage.cpu_us / image.ios);
    let held_up = [
        (Metric::HeldUpUsP99, Metric::LatencyUsP99),
        (Metric::HeldUpUsP999, Metric::LatencyUsP999),
        (Metric::HeldUpUsP9999, Metric::LatencyUsP9999),
        (Metric::HeldUpUsMax, Metric::LatencyUsMax),
    ];
    sample.extend(held_up.map(|(metric, of)| (metric, other.sample[&of])));
    // The time inside io_submit, beside the delay that a guest sees.
    if let Some(timer) = &run.tools.timer {
        sample.extend(timer.times()?.submit_sample());
    }
    Ok(sample)
}

fn daemon(image: &Path, socket: &Path, mode: Mode) -> Vec<String> {
    let aio = match mode {
        Mode::Aio | Mode::PosixAio => "native",
        Mode::Uring => "io_uring",
        Mode::Threads => "threads",
    };
    let file = format!("filename={},cache.direct=on,aio={aio}", text(image));
    let socket = format!("addr.type=unix,addr.path={}", text(socket));
    let export = |name: &str| format!("type=nbd,id={name},node-name={name},name={name}");
    [
        ["--blockdev".to_owned(), format!("driver=file,node-name=image,{file}")],
        ["--blockdev".to_owned(), "driver=null-co,node-name=other,size=1073741824".to_owned()],
        ["--nbd-server".to_owned(), format!("{socket},max-connections=8")],
        ["--export".to_owned(), export("image") + ",writable=on"],
        ["--export".to_owned(), export("other")],
    ]
    .concat()
}

fn client(run: &Run<'_>, rw: &str, block_bytes: u64, socket: &Path) -> Result<[Parsed; 2]> {
    debug_assert!(socket.is_absolute());
    let mut command = fio::command(Path::new("fio"));
    command.arg("--ioengine=nbd").arg(format!("--randseed={}", run.seed));
    command.arg(format!("--runtime={}ms", run.runtime.as_millis()));
    command.arg("--name=image").arg(format!("--rw={rw}")).arg(format!("--bs={block_bytes}"));
    command.args(["--iodepth=32", "--exitall", &uri("image", socket)]);
    command.arg(format!("--size={}", run.size_bytes));
    command.args(["--name=other", "--rw=randread", "--bs=4k", "--iodepth=1", "--time_based"]);
    command.arg("--size=1g").arg(format!("--thinktime={OTHER_EVERY_US}"));
    command.arg(uri("other", socket));
    let (jobs, _) = fio::run(&mut command, run.runtime)?;
    jobs.try_into().map_err(|_| Failure::new("fio does not report both of its jobs"))
}

fn uri(export: &str, socket: &Path) -> String {
    format!("--uri=nbd+unix:///{export}?socket={}", text(socket))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_image_is_opened_as_users_of_native_aio_do() {
        let arguments = daemon(Path::new("/x/image"), Path::new("/x/nbd"), Mode::Aio).join(" ");
        assert!(arguments.contains("filename=/x/image,cache.direct=on,aio=native"), "{arguments}");
        assert!(arguments.contains("node-name=other,name=other"), "{arguments}");
        let arguments = daemon(Path::new("/x/image"), Path::new("/x/nbd"), Mode::Uring).join(" ");
        assert!(arguments.contains("aio=io_uring"), "{arguments}");
    }
}
