//! The choice of the backend, and the reason for it.

use nowait_block::probe;
use nowait_file::{BackendChoice, Config, Engine};
use nowait_sys::{Errno, seccomp};
use std::sync::Arc;

/// Starts an engine with the backend that `config` names, or with the best backend that works here.
///
/// If a probe finds that the named backend cannot be used, starts another backend, and returns the
/// reason in one line as the second value. If the chosen backend does not start, starts an engine
/// with the backend `threads`; only [`Engine::reason`] says so.
///
/// # Errors
/// `EMFILE`, `EAGAIN`, `ENOMEM`: no descriptors, threads or memory left.
pub fn start_engine(config: &Config) -> Result<(Arc<Engine>, Option<String>), Errno> {
    seccomp::look();
    let (backend, reason, complaint) = choose(config.backend);
    let chosen = Config { backend, ..config.clone() };
    match Engine::on_machine(chosen, reason.clone()) {
        Ok(engine) => Ok((engine, complaint)),
        Err(errno) if backend == BackendChoice::Threads => Err(errno),
        Err(errno) => {
            let reason = format!("{reason}; but starting it failed: {errno}");
            let threads = Config { backend: BackendChoice::Threads, ..config.clone() };
            Ok((Engine::on_machine(threads, reason)?, complaint))
        }
    }
}

/// Starts an engine with the backend that `config` names, and with no other. With `Auto`, starts an
/// engine as [`start_engine`] does.
///
/// # Errors
/// The errno, and the reason in one line if the named backend cannot be used. The line is empty if
/// the failure has another reason.
pub fn start_exactly(config: &Config) -> Result<Arc<Engine>, (Errno, String)> {
    let probe = match config.backend {
        BackendChoice::Auto => {
            let started = start_engine(config).map(|(engine, _)| engine);
            return started.map_err(|errno| (errno, String::new()));
        }
        BackendChoice::Threads => None,
        BackendChoice::Uring => Some(probe::uring()),
        BackendChoice::Kaio => Some(probe::kaio()),
    };
    if let Some(Err(refusal)) = probe.map(|probe| probe.usable) {
        let name = name(config.backend);
        return Err((refusal.errno, format!("backend {name} cannot be used here: {refusal}")));
    }
    let started = Engine::on_machine(config.clone(), "asked for".to_owned());
    started.map_err(|errno| (errno, String::new()))
}

fn choose(asked: BackendChoice) -> (BackendChoice, String, Option<String>) {
    let probe = match asked {
        BackendChoice::Auto => return automatic(),
        BackendChoice::Threads => {
            return (BackendChoice::Threads, "asked for".to_owned(), None);
        }
        BackendChoice::Uring => probe::uring(),
        BackendChoice::Kaio => probe::kaio(),
    };
    match probe.usable {
        Ok(()) => (asked, "asked for".to_owned(), None),
        Err(refusal) => {
            let (backend, reason, _) = automatic();
            let complaint = format!(
                "NOWAIT_BACKEND={} cannot be used here: {refusal}; using {} instead",
                probe.backend,
                name(backend)
            );
            (backend, reason, Some(complaint))
        }
    }
}

fn automatic() -> (BackendChoice, String, Option<String>) {
    let choice = probe::auto();
    (parse(choice.backend).unwrap_or(BackendChoice::Threads), choice.reason, None)
}

/// Returns the name of a backend in NOWAIT_BACKEND and in reports.
pub fn name(backend: BackendChoice) -> &'static str {
    match backend {
        BackendChoice::Auto => "auto",
        BackendChoice::Uring => "uring",
        BackendChoice::Kaio => "kaio",
        BackendChoice::Threads => "threads",
    }
}

/// Returns the backend of this name, if there is one.
pub fn parse(name: &str) -> Option<BackendChoice> {
    Some(match name {
        "auto" => BackendChoice::Auto,
        "uring" => BackendChoice::Uring,
        "kaio" => BackendChoice::Kaio,
        "threads" => BackendChoice::Threads,
        _ => return None,
    })
}
