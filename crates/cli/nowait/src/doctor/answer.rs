//! The answer to `nowait doctor --program`: at most five lines.

use super::{ProgramReport, RefusalReport, Report};
use crate::program::Help;

/// The facts about the machine that the answer depends on.
#[derive(Clone, Copy, Debug, Default)]
struct Machine<'a> {
    /// The backend that nowait chooses.
    backend: &'a str,
    /// The reason why io_uring is refused, in words.
    uring_refused: Option<&'a str>,
    /// The first problem that keeps nowait from working at all.
    problem: Option<&'a str>,
}

/// Returns the lines for the program of a report; ends with a newline.
pub(super) fn render(report: &Report, program: &ProgramReport) -> String {
    let mut backends = report.backends.iter();
    let uring = backends.find(|it| it.name == "uring").and_then(|it| it.refusal.as_ref());
    let machine = Machine {
        backend: report.auto.backend,
        uring_refused: uring.map(|RefusalReport { reason, .. }| reason.as_str()),
        problem: report.problems.first().map(String::as_str),
    };
    answer(program, &machine).join("\n") + "\n"
}

/// Says if nowait helps, how, by which backend, and what happens to the program's own io_uring
/// requests.
fn answer(program: &ProgramReport, machine: &Machine<'_>) -> Vec<String> {
    let run_by = program.interpreter.as_ref().map_or(String::new(), |by| format!(" (run by {by})"));
    let verdict = match program.helps {
        Help::Yes => "nowait helps",
        Help::Perhaps => "nowait may help",
        Help::No => "nowait cannot help",
    };
    let mut lines = vec![format!("{}{run_by}: {verdict}: {}", program.path, program.reason)];
    if program.helps != Help::No {
        lines.push(match program.helps {
            Help::Yes => format!("run it:   nowait run -- {} …", program.path),
            _ => format!("find out: nowait run --report -- {} …", program.path),
        });
        lines.push(match machine.uring_refused {
            Some(reason) => format!("backend:  {} (no io_uring: {reason})", machine.backend),
            None => format!("backend:  {}", machine.backend),
        });
    }
    if program.links_liburing {
        lines.push(own_uring(machine.uring_refused));
    }
    lines.extend(machine.problem.map(|problem| format!("problem:  {problem}")));
    lines
}

/// Says what happens to requests that a program makes by liburing.
fn own_uring(refused: Option<&str>) -> String {
    match refused {
        None => {
            "io_uring: the kernel serves the program's own rings here; nowait leaves them alone"
                .to_owned()
        }
        Some(reason) => format!(
            "io_uring: the program's own rings are refused ({reason}); choose its AIO (fio \
             --ioengine=libaio, QEMU aio=native), which nowait serves"
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn program(helps: Help, links_liburing: bool) -> ProgramReport {
        ProgramReport {
            path: "/bin/x".to_owned(),
            interpreter: None,
            helps,
            reason: "why".to_owned(),
            links_liburing,
        }
    }

    #[test]
    fn an_answer_has_five_lines_at_most_and_names_what_decides() {
        let works = Machine { backend: "uring", ..Machine::default() };
        let refused = Machine { backend: "kaio", uring_refused: Some("EPERM"), problem: None };
        let broken = Machine { problem: Some("no library"), ..refused };
        let table: [(Help, bool, Machine<'_>, &[&str]); 6] = [
            (Help::Yes, false, works, &["nowait helps: why", "nowait run -- /bin/x", "uring"]),
            (Help::Yes, false, refused, &["helps", "run --", "kaio (no io_uring: EPERM)"]),
            (Help::Perhaps, false, works, &["may help: why", "nowait run --report", "uring"]),
            (Help::Perhaps, true, works, &["may", "run", "uring", "the kernel serves"]),
            (Help::No, true, refused, &["cannot help: why", "refused (EPERM)"]),
            (Help::Yes, true, broken, &["helps", "run", "kaio", "aio=native", "no library"]),
        ];
        for (help, links_liburing, machine, expected) in table {
            let lines = answer(&program(help, links_liburing), &machine);
            assert_eq!(lines.len(), expected.len(), "{lines:#?}");
            for (line, words) in lines.iter().zip(expected) {
                assert!(line.contains(words), "{words} in {line}");
            }
        }
    }
}
