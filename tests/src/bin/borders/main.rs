//! Programs that end, or whose threads or contexts end, while requests are in flight.
//!
//! `borders CASE FOLDER ROUNDS`: in most cases a round records the writes that io_submit or
//! aio_write has accepted. When a process, thread or context has ended, all bytes of these writes
//! must be in the file, and nothing may hang. The program exits 0 if the case succeeds, else panics
//! with the reason.

mod behind;
mod endings;
mod handlers;
mod reports;
mod rounds;

use std::path::Path;

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let [case, folder, rounds] = args[..] else { panic!("unknown arguments {args:?}") };
    let (folder, rounds) = (Path::new(folder), rounds.parse().expect("a number of rounds"));
    match case {
        "handler-exit" => handlers::a_handler_ends_the_process(folder, rounds, false),
        "handler-exit-posix" => handlers::a_handler_ends_the_process(folder, rounds, true),
        "handler-calls" => handlers::a_handler_makes_calls(folder, rounds),
        "handlers" => handlers::handlers_are_the_programs_own(),
        "exit" => endings::the_process_ends(folder, rounds, endings::Way::Exit),
        "_exit" => endings::the_process_ends(folder, rounds, endings::Way::AtOnce),
        "quick_exit" => endings::the_process_ends(folder, rounds, endings::Way::Quick),
        "fault" => endings::a_fault_ends_the_process(folder, rounds),
        "stuck" => endings::a_thread_stays_inside(folder, rounds),
        "return" => endings::the_process_ends(folder, rounds, endings::Way::Return),
        "exec" => endings::the_process_ends(folder, rounds, endings::Way::Exec),
        "exec-handler" => behind::a_handler_comes_right_before_exec(folder),
        "exec-fails" => endings::the_process_ends(folder, rounds, endings::Way::ExecFails),
        "abort" => endings::the_process_ends(folder, rounds, endings::Way::Abort),
        "abort-default" => endings::the_process_ends(folder, rounds, endings::Way::AbortByDefault),
        "abort-once" => endings::the_process_ends(folder, rounds, endings::Way::AbortAfterOne),
        "thread-exit" => endings::the_thread_ends(folder, rounds),
        "destroy" => endings::the_context_ends(folder, rounds),
        "report" => reports::the_process_ends(folder, false),
        "report-both" => reports::the_process_ends(folder, true),
        _ => panic!("unknown case {case}"),
    }
}
