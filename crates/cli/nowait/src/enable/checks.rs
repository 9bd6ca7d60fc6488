//! Checks that run before `nowait enable` writes anything: reasons why the library would not work
//! in the service.

mod programs;
mod sight;

use super::filter::{Filter, Part, Verdict};
use super::{Plan, drop_in};
use crate::args::Backend;
use crate::systemd::{UnitName, words};
use nowait_block::probe::Situation;
pub(super) use programs::{Judged, setting};
use std::fs;
use std::path::Path;

#[derive(Debug, Default)]
pub(super) struct Findings {
    pub(super) programs: Vec<Judged>,
    pub(super) refusals: Vec<String>,
    pub(super) warnings: Vec<String>,
}

impl Findings {
    pub(super) fn collect(plan: &Plan) -> Findings {
        let mut found = Findings::default();
        programs::check(plan, &mut found);
        overruled(plan, &mut found);
        sight::check(plan, &mut found);
        filtered(plan, &mut found);
        limited(plan, &mut found);
        confined(plan, &mut found);
        found
    }

    fn refuse(&mut self, text: impl Into<String>) {
        self.refusals.push(text.into());
    }

    fn warn(&mut self, text: impl Into<String>) {
        self.warnings.push(text.into());
    }
}

/// Finds settings that replace or remove the library's variable after the drop-in has set it.
fn overruled(plan: &Plan, found: &mut Findings) {
    let variable = plan.options.via.variable();
    for line in plan.unit.list("UnsetEnvironment") {
        if words(line).iter().any(|word| word.split('=').next() == Some(variable)) {
            let advice = "set UnsetEnvironment= without it by systemctl edit";
            found.refuse(format!("UnsetEnvironment= of the unit takes {variable} away; {advice}"));
        }
    }
    let later = |name: &std::ffi::OsStr| name > std::ffi::OsStr::new(drop_in::NAME);
    let drop_ins = plan.unit.sources.iter().skip(1);
    for source in drop_ins.filter(|source| source.path.file_name().is_some_and(later)) {
        let sets = |line: &str| line.is_empty() || sets_variable(line, variable);
        if source.values("Environment").any(sets) {
            let (path, ours) = (source.path.display(), drop_in::NAME);
            let advice = format!("rename it so that it comes before {ours}");
            found.refuse(format!("{path} is read after {ours} and replaces {variable}; {advice}"));
        }
    }
    for line in plan.unit.list("EnvironmentFile") {
        let Some(path) = plan.unit.name.expand(line.trim_start_matches('-')) else { continue };
        let text = fs::read_to_string(plan.place().follow(Path::new(&path))).unwrap_or_default();
        let beginning = format!("{variable}=");
        if text.lines().any(|line| line.trim_start().starts_with(&beginning)) {
            let ours = plan.options.via.value(&plan.library, None);
            let ours = ours.display();
            let advice = format!("add {ours} there, in front, or move {variable} to Environment=");
            found.refuse(format!(
                "{path} sets {variable}, and comes after all Environment=; {advice}"
            ));
        }
    }
}

fn sets_variable(line: &str, variable: &str) -> bool {
    words(line).iter().any(|word| word.split_once('=').is_some_and(|(name, _)| name == variable))
}

fn filtered(plan: &Plan, found: &mut Findings) {
    let Some(filter) = Filter::of(&plan.unit) else { return };
    let wanted = plan.options.backend;
    if let Some((Verdict::Kills, calls)) = filter.refused(Part::All) {
        let advice = "allow them there, or set SystemCallErrorNumber=EPERM";
        let calls = calls.join(", ");
        found.refuse(format!("SystemCallFilter= kills the service at {calls}; {advice}"));
        return;
    }
    for (part, backend, name) in
        [(Part::Uring, Backend::Uring, "io_uring"), (Part::Kaio, Backend::Kaio, "native AIO")]
    {
        // With `auto`, nowait tries native AIO only if io_uring does not work.
        let tried = match wanted {
            None | Some(Backend::Auto) => {
                part == Part::Uring || filter.refused(Part::Uring).is_some()
            }
            Some(wanted) => wanted == backend,
        };
        match filter.refused(part).filter(|_| tried) {
            None => {}
            Some((Verdict::Kills, calls)) => {
                let advice =
                    format!("allow {} there, or choose another --backend", calls.join(", "));
                found.refuse(format!("SystemCallFilter= kills the service at {name}; {advice}"));
            }
            Some(_) if wanted == Some(backend) => {
                let advice = "allow it there, or choose another --backend";
                found.refuse(format!("SystemCallFilter= refuses {name}; {advice}"));
            }
            Some(_) => found.warn(format!("SystemCallFilter= refuses {name}: it is not used")),
        }
    }
}

/// Before this version, Linux charged the memory of rings to RLIMIT_MEMLOCK.
const UNCHARGED_RINGS: (u32, u32) = (5, 12);
/// The least RLIMIT_MEMLOCK, in bytes, that is enough for the rings of several contexts.
const MEMLOCK_BYTES_MIN: u64 = 8 << 20;
/// The number of threads that this check counts besides nowait's workers.
const OTHER_THREADS: u64 = 2;

fn limited(plan: &Plan, found: &mut Findings) {
    let charged = plan.place().is_here() && kernel(&Situation::current().kernel) < UNCHARGED_RINGS;
    let memlock = plan.unit.value("LimitMEMLOCK").filter(|_| charged);
    if let Some(limit) = memlock.filter(|it| number(it).is_some_and(|it| it < MEMLOCK_BYTES_MIN)) {
        let advice = "LimitMEMLOCK=infinity; else another backend is taken";
        found.warn(format!("LimitMEMLOCK={limit} is little for io_uring on this kernel: {advice}"));
    }
    let threads = u64::from(plan.options.workers.unwrap_or(32)) + OTHER_THREADS;
    for key in ["TasksMax", "LimitNPROC"] {
        let limit = plan.unit.value(key);
        if let Some(limit) = limit.filter(|it| number(it).is_some_and(|it| it <= threads)) {
            let advice = "raise it, or lower --workers";
            found.warn(format!("{key}={limit}: nowait may start {threads} threads; {advice}"));
        }
    }
}

/// Reads the first two numbers of a text such as `Linux 6.1.0-42-amd64`; 0 for a missing one.
fn kernel(release: &str) -> (u32, u32) {
    let release = release.trim_start_matches(|it: char| !it.is_ascii_digit());
    let mut numbers =
        release.split(|it: char| !it.is_ascii_digit()).map(|it| it.parse().unwrap_or(0));
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0))
}

/// Reads the soft limit of `64K` or `64K:1M`. Returns `None` for other texts, such as `infinity`.
fn number(text: &str) -> Option<u64> {
    let soft = text.split(':').next()?;
    let digits = soft.trim_end_matches(['K', 'M', 'G', 'T']);
    let shift = match &soft[digits.len()..] {
        "" => 0,
        "K" => 10,
        "M" => 20,
        "G" => 30,
        "T" => 40,
        _ => return None,
    };
    digits.parse::<u64>().ok()?.checked_mul(1 << shift)
}

fn confined(plan: &Plan, found: &mut Findings) {
    let place = plan.place();
    let read = |path: &str| fs::read_to_string(place.follow(Path::new(path))).unwrap_or_default();
    let library = plan.library.display();
    let armored =
        !place.is_here() || read("/sys/module/apparmor/parameters/enabled").starts_with('Y');
    let profile = plan.unit.value("AppArmorProfile").map(str::to_owned);
    let profile = profile.or_else(|| apparmor_profile(plan, found));
    if let Some(profile) = profile.filter(|_| armored) {
        let advice = format!("it must allow `{library} mr,`");
        found.warn(format!("AppArmor confines the service ({profile}): {advice}"));
    }
    let enforcing =
        read("/etc/selinux/config").lines().any(|line| line.trim() == "SELINUX=enforcing");
    let context = plan.unit.value("SELinuxContext").is_some();
    if enforcing || (context && Path::new("/sys/fs/selinux/enforce").exists()) {
        let advice = "run restorecon on it; if the domain changes at the start, allow `noatsecure`";
        found.warn(format!("SELinux is enforcing: {library} needs the type lib_t: {advice}"));
    }
}

/// Finds a profile by a line that ends with `{` and has the path of a program as a word.
fn apparmor_profile(plan: &Plan, found: &Findings) -> Option<String> {
    let folder = Path::new("/etc/apparmor.d");
    let entries = fs::read_dir(plan.place().follow(folder)).ok()?;
    let programs: Vec<_> = found.programs.iter().map(|it| it.path.as_str()).collect();
    for entry in entries.flatten() {
        let text = fs::read_to_string(entry.path()).unwrap_or_default();
        let heads = text.lines().map(str::trim).filter(|line| line.ends_with('{'));
        let mut heads = heads.filter(|line| !line.starts_with('#'));
        if heads.any(|line| line.split_whitespace().any(|word| programs.contains(&word))) {
            return Some(folder.join(entry.file_name()).display().to_string());
        }
    }
    None
}

fn resolved(name: &UnitName, text: &str) -> String {
    name.expand(text).unwrap_or_else(|| text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_read_as_systemd_writes_them() {
        assert_eq!(number("64K"), Some(65536));
        assert_eq!(number("8M:infinity"), Some(8 << 20));
        assert_eq!(number("infinity"), None);
        assert_eq!(number("99%"), None);
        assert_eq!(number("4096"), Some(4096));
    }

    #[test]
    fn kernels_are_compared_by_number() {
        assert_eq!(kernel("5.10.0-30-amd64"), (5, 10));
        assert_eq!(kernel("Linux 6.18.44-fc"), (6, 18));
        assert!(kernel("5.9") < UNCHARGED_RINGS && kernel("5.12.1") >= UNCHARGED_RINGS);
    }
}
