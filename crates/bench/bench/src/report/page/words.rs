//! Title and method of each workload.

use crate::report::document::Document;

/// Returns the title of the page.
pub(super) fn title(workload: &str) -> &'static str {
    match workload {
        "submit" | "demo" => "Time inside io_submit, with and without nowait",
        "parity" => "Every kind of work of a libaio program, by itself and under nowait",
        "parity-verify" => "Every kind of work of a libaio program under nowait, verified",
        "posix" => "POSIX AIO: the C library’s, and nowait’s",
        "cached" => "Cached files: nowait’s own page cache against every peer",
        "vector" => "One request of many segments against many requests",
        "fairness" => "Single requests beside a context with thousands",
        "mixed" => "Sockets, a file and a timer: one context against epoll with threads",
        "serve" => "Servers of images, asked by the same client",
        "programs" => "Programs as they are installed, with and without nowait",
        "aio-stress" => "Streams of reads and writes through every engine",
        "rawio" => "Asynchronous requests against synchronous threads",
        "randrw" => "Random reads and writes: the time inside submit",
        "cleaner" => "Page cleaners of a database: one against many",
        "prefetch" => "Prefetchers of a database: one against many",
        "paper" => "The sources’ experiments, their figures beside ours",
        _ => "A measurement of nowait",
    }
}

/// Returns what a reader must know first.
pub(super) fn introduction(saved: &Document) -> &'static str {
    match saved.workload.as_str() {
        "paper" if saved.is_simulated() => {
            "nowait grew out of experiments of 2003 to 2012, on hardware that is gone. Here they \
             are repeated in virtual time, on a model of that hardware, with the operations that \
             users run."
        }
        _ => {
            "Every dot is a run; bars and ticks are medians. Blue is nowait, grey are others. A \
             difference is called one only if its 95 % interval says so."
        }
    }
}

/// Of all that is measured.
const MEASURED: [&str; 4] = [
    "In each round every engine runs once, and the order is reversed from round to round; figures \
     are medians of the rounds.",
    "A ratio is the median of the ratios within the rounds, with a 95 % bootstrap interval. A \
     target is met or missed only if the whole interval lies on one side of it; otherwise these \
     runs cannot tell, and the page says so.",
    "No verdict is given on fewer than 5 rounds.",
    "Growth of the page cache is that of the whole machine, before to after the run.",
];

const FIO: [&str; 4] = [
    "Every engine is a way to launch the same unmodified fio.",
    "“Time inside submit” is fio’s submission latency: from the prepared request to the return of \
     the call, one request a call. It includes about a microsecond of fio itself.",
    "Processor time and context switches are those of the whole process with all its threads, less \
     what the same fio needs to start and stop. Kernel threads that write back are not in it.",
    "Files that are read were written first, with data that do not compress. All engines of a \
     round visit the same blocks, and no block twice in a run, so uncached reads stay uncached.",
];

const CACHED: [&str; 3] = [
    "Each run is a process of its own, which checks the bytes it reads.",
    "“Time inside submit” is that of a batch where requests go in batches, else of a request.",
    "I/O per second of processor time is what one processor can do: others cannot take it away.",
];

/// Of the sources' experiments on a device that exists.
const DEVICE: [&str; 4] = [
    "Each run is a process of its own. It checks every page it reads, and reads back from the disk \
     what each thread has written last.",
    "All engines have the same buffers: parts of huge pages, so that the device gets each of them \
     in one piece.",
    "“Time inside submit” is that of one call: of 8 requests in the M1 cases, as in aio-stress, of \
     one in randrw (M9). Processor time is that of the whole process.",
    "A run ends at its time or after one visit of every block. Where the kernel’s cache is used, \
     it is empty before a run; nowait’s own is full of another file.",
];

const SERVE: [&str; 2] = [
    "The client is fio’s nbd engine, 32 requests deep; for “file” fio has the image itself.",
    "Processor time, context switches and memory are those of the server, its start and end \
     included.",
];

const PROGRAMS: [&str; 4] = [
    "Every program is unmodified, as its distribution or registry has it. “system” is the program \
     by itself; “nowait” is the same with a preloaded library, and nothing else is changed.",
    "“Held up” is for how long the program could do nothing else: inside a call that should return \
     at once, or between two turns of its event loop. Each case says which.",
    "“Time inside submit” is that of io_submit, counted by a small library that is preloaded in \
     every run, also of the program by itself.",
    "Processor time is that of the program with all its threads, not of the client that asks it.",
];

const PAPER: [&str; 5] = [
    "“Baseline” is what the source calls unpatched: the same operations, with the caller asleep \
     inside the call at each wait. “nowait” is those operations as requests: a wait ends the \
     iteration, a kick begins the next.",
    "The page cache is the one that users run. Disks, arrays and flash are models; each of their \
     figures has its source, and tests hold them against their data sheets.",
    "Processor times come from one table, of a Pentium III of 700 MHz; nothing is drawn from a \
     clock.",
    "The same device and seed give the same figures to the last bit, on any machine, so there is \
     no noise, and there are no intervals.",
    "A change is met if it is at least the source’s, to 2 %.",
];

/// Returns the lines of the closing section.
pub(super) fn method(saved: &Document) -> Vec<&'static str> {
    let own: &[&str] = match saved.workload.as_str() {
        "submit" | "posix" | "demo" | "parity" => &FIO,
        "cached" => &CACHED,
        "serve" => &SERVE,
        "programs" => &PROGRAMS,
        "paper" if saved.is_simulated() => return PAPER.to_vec(),
        "paper" | "aio-stress" | "rawio" | "randrw" | "cleaner" | "prefetch" => &DEVICE,
        _ => &[],
    };
    own.iter().chain(&MEASURED).copied().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verdict::ROUNDS_MIN;

    #[test]
    fn the_rounds_that_the_page_names_are_those_of_the_verdicts() {
        assert!(MEASURED[2].contains(&format!("fewer than {ROUNDS_MIN} rounds")));
    }
}
