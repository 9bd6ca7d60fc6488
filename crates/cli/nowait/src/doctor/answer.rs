//! The answer to `nowait doctor --program`: at most five lines.

use super::{ProgramReport, RefusalReport, Report};
use crate::program::Help;

#[derive(Clone, Copy, Debug, Default)]
struct Machine<'a> {
    backend: &'a str,
    /// `None` if io_uring works.
    uring_refused: Option<&'a str>,
    problem: Option<&'a str>,
    writes: Option<&'a str>,
}

pub(super) fn render(report: &Report, program: &ProgramReport) -> String {
    let mut backends = report.backends.iter();
    let uring = backends.find(|it| it.name == "uring").and_then(|it| it.refusal.as_ref());
    let machine = Machine {
        backend: report.auto.backend,
        uring_refused: uring.map(|RefusalReport { reason, .. }| reason.as_str()),
        problem: report.problems.first().map(String::as_str),
        writes: report.path.as_ref().and_then(|path| path.advice),
    };
    answer(program, &machine).join("\n") + "\n"
}

fn answer(program: &ProgramReport, machine: &Machine<'_>) -> Vec<String> {
    let run_by = program.interpreter.as_ref().map_or(String::new(), |by| format!(" (run by {by})"));
    let verdict = match program.helps {
        Help::Yes => "nowait helps",
        Help::Perhaps => "nowait may help",
        Help::No => "nowait cannot help",
    };
    let process = program.process.map_or(String::new(), |it| format!("process {}, ", it.pid));
    let first = format!("{process}{}{run_by}: {verdict}: {}", program.path, program.reason);
    let mut lines = vec![first];
    if program.helps != Help::No {
        lines.push(match program.helps {
            _ if is_served(program) => {
                "running:  nowait is loaded (figures: nowait top, if it was \
                                        started with --stats)"
                    .to_owned()
            }
            Help::Yes => format!("run it:   nowait run -- {} …", program.path),
            _ => format!("find out: nowait run --report -- {} …", program.path),
        });
        lines.push(backend(program, machine));
    }
    if program.links_liburing {
        let has_said_why = program.helps != Help::No;
        lines.push(own_uring(machine.uring_refused, has_said_why));
    }
    let problem = machine.problem.map(|problem| format!("problem:  {problem}"));
    lines.extend(problem.or_else(|| machine.writes.map(|why| format!("on disk:  {why}"))));
    lines
}

fn is_served(program: &ProgramReport) -> bool {
    program.process.is_some_and(|it| it.has_nowait == Some(true))
}

fn backend(program: &ProgramReport, machine: &Machine<'_>) -> String {
    match (program.process, machine.uring_refused) {
        (Some(process), _) if process.has_filter => "backend:  unknown: the process has a seccomp \
                                                     filter; run nowait doctor where it runs"
            .to_owned(),
        (_, Some(reason)) => format!("backend:  {} (no io_uring: {reason})", machine.backend),
        (_, None) => format!("backend:  {}", machine.backend),
    }
}

fn own_uring(refused: Option<&str>, has_said_why: bool) -> String {
    match refused {
        None => {
            "io_uring: the kernel serves the program's own rings here; nowait leaves them alone"
                .to_owned()
        }
        Some(_) if has_said_why => "io_uring: refused to the program, too; choose native AIO (fio \
                                    --ioengine=libaio, QEMU aio=native)"
            .to_owned(),
        Some(reason) => format!("io_uring: refused to the program, too ({reason})"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::process::Process;

    fn program(helps: Help, links_liburing: bool) -> ProgramReport {
        ProgramReport {
            path: "/bin/x".to_owned(),
            interpreter: None,
            helps,
            reason: "why".to_owned(),
            links_liburing,
            process: None,
        }
    }

    #[test]
    fn a_process_is_told_if_nowait_is_loaded_and_not_promised_a_backend_behind_a_filter() {
        let process = |has_nowait, has_filter| ProgramReport {
            process: Some(Process { pid: 47, has_nowait: Some(has_nowait), has_filter }),
            ..program(Help::Yes, false)
        };
        let machine =
            Machine { backend: "uring", writes: Some("timestamps"), ..Machine::default() };
        let lines = answer(&process(true, false), &machine);
        assert!(lines[0].starts_with("process 47, /bin/x: nowait helps"), "{lines:#?}");
        assert!(lines[1].contains("nowait is loaded") && lines[2].ends_with("uring"), "{lines:#?}");
        assert!(lines[3].ends_with("timestamps") && lines.len() == 4, "{lines:#?}");
        let lines = answer(&process(false, true), &machine);
        assert!(lines[1].contains("nowait run -- /bin/x"), "{lines:#?}");
        assert!(lines[2].contains("unknown"), "{lines:#?}");
    }

    #[test]
    fn an_answer_has_five_lines_at_most_and_names_what_decides() {
        let works = Machine { backend: "uring", ..Machine::default() };
        let refused =
            Machine { backend: "kaio", uring_refused: Some("EPERM"), ..Machine::default() };
        let broken = Machine { problem: Some("no library"), ..refused };
        let table: [(Help, bool, Machine<'_>, &[&str]); 6] = [
            (Help::Yes, false, works, &["nowait helps: why", "nowait run -- /bin/x", "uring"]),
            (Help::Yes, false, refused, &["helps", "run --", "kaio (no io_uring: EPERM)"]),
            (Help::Perhaps, false, works, &["may help: why", "nowait run --report", "uring"]),
            (Help::Perhaps, true, works, &["may", "run", "uring", "the kernel serves"]),
            (Help::No, true, refused, &["cannot help: why", "too (EPERM)"]),
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
