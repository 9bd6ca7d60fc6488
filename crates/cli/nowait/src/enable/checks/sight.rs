//! Checks that the service sees and may read the library, and may write the report.

use super::Findings;
use crate::enable::Plan;
use crate::systemd::words;
use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

pub(super) fn check(plan: &Plan, found: &mut Findings) {
    let (library, folder) = (plan.library.display(), folder(plan).display());
    if let Some((key, advice)) = barred_by(plan) {
        found.refuse(format!("{key}= of the unit bars {library}; {advice}"));
    } else if let Some(what) = hidden_by(plan) {
        let advice = format!("BindReadOnlyPaths={folder} shows it");
        found.refuse(format!("{what} of the unit hides {library}; {advice}"));
    } else if let Some(path) = closed(plan) {
        let advice = "install nowait below /usr";
        let path = path.display();
        found.refuse(format!("the user of the service cannot open {path}; {advice}"));
    }
    if let Some(file) = report_file(plan).filter(|file| is_read_only(plan, file)) {
        let file = file.display();
        let advice = "ReadWritePaths= for its folder, or --report, for the journal";
        found.warn(format!("ProtectSystem= lets nothing be written to {file}; {advice}"));
    }
}

fn folder<'a>(plan: &'a Plan<'_>) -> &'a Path {
    plan.library.parent().unwrap_or(Path::new("/"))
}

/// Returns the paths of a setting, without a leading `-` or `+` and without text after a colon.
fn paths(plan: &Plan, key: &'static str) -> Vec<PathBuf> {
    let words = plan.unit.list(key).into_iter().flat_map(words);
    let bare = words.map(|word| {
        let word = word.trim_start_matches(['-', '+']).to_owned();
        PathBuf::from(word.split(':').next().unwrap_or_default())
    });
    bare.collect()
}

/// Returns the setting that bars even a bound library, and the remedy. Source: systemd.exec(5),
/// `InaccessiblePaths=` and `NoExecPaths=`.
fn barred_by(plan: &Plan) -> Option<(&'static str, String)> {
    let folder = folder(plan).display();
    let covering = |key: &'static str| {
        paths(plan, key).into_iter().filter(|path| plan.library.starts_with(path))
    };
    let longest = |key| covering(key).map(|path| path.components().count()).max();
    if covering("InaccessiblePaths").next().is_some() {
        return Some(("InaccessiblePaths", format!("leave {folder} out of InaccessiblePaths=")));
    }
    (longest("NoExecPaths") > longest("ExecPaths"))
        .then(|| ("NoExecPaths", format!("add ExecPaths={folder}")))
}

/// `None`: no setting hides the library, or the unit binds its path.
fn hidden_by(plan: &Plan) -> Option<String> {
    let library = plan.library.as_path();
    // The syntax of a word is SOURCE:DESTINATION:OPTIONS.
    let bound = ["BindPaths", "BindReadOnlyPaths"].into_iter().flat_map(|key| plan.unit.list(key));
    let mut bound = bound.flat_map(words).map(|word| {
        let word = word.trim_start_matches('-').to_owned();
        let mut parts = word.split(':');
        let source = parts.next().unwrap_or_default();
        parts.next().unwrap_or(source).to_owned()
    });
    if bound.any(|shown| library.starts_with(shown)) {
        return None;
    }
    if let Some(root) = plan.unit.value("RootDirectory").filter(|root| *root != "/") {
        let inside = Path::new(root).join(library.strip_prefix("/").unwrap_or(library));
        let there = plan.place().follow(&inside).is_file();
        return (!there).then(|| format!("RootDirectory={root}"));
    }
    if let Some(image) = plan.unit.value("RootImage") {
        return Some(format!("RootImage={image}"));
    }
    let below = |folders: &[&str]| folders.iter().any(|folder| library.starts_with(folder));
    let home = plan.unit.value("ProtectHome").unwrap_or("no");
    if below(&["/home", "/root", "/run/user"])
        && ["yes", "true", "on", "1", "tmpfs"].contains(&home)
    {
        return Some(format!("ProtectHome={home}"));
    }
    let private = plan.unit.value("PrivateTmp") == Some("disconnected")
        || ["PrivateTmp", "DynamicUser"].iter().any(|key| plan.unit.is_on(key));
    if private && below(&["/tmp", "/var/tmp"]) {
        return Some("PrivateTmp=".to_owned());
    }
    let empty = paths(plan, "TemporaryFileSystem");
    empty.iter().any(|path| library.starts_with(path)).then(|| "TemporaryFileSystem=".to_owned())
}

/// Looks only at the permissions of the owner and of others, not at those of groups.
fn closed(plan: &Plan) -> Option<PathBuf> {
    let user = plan.setting.user;
    let mut path = PathBuf::from("/");
    for part in plan.library.components().skip(1) {
        path.push(part);
        let about = fs::metadata(plan.place().follow(&path)).ok()?;
        let needed = if about.is_dir() { 0o1 } else { 0o4 };
        let bits = if about.uid() == user { about.mode() >> 6 } else { about.mode() };
        if user != 0 && bits & needed == 0 {
            return Some(path);
        }
    }
    None
}

fn report_file(plan: &Plan) -> Option<PathBuf> {
    let value =
        |(name, value): &(&str, OsString)| (*name == "NOWAIT_REPORT").then(|| value.clone());
    let value = plan.variables.iter().find_map(value)?;
    (value != "1").then(|| PathBuf::from(value))
}

fn is_read_only(plan: &Plan, file: &Path) -> bool {
    let dynamic = plan.unit.is_on("DynamicUser").then_some("strict");
    let closed: &[&str] = match plan.unit.value("ProtectSystem").or(dynamic) {
        Some("strict") => &["/"],
        Some("full") => &["/usr", "/boot", "/efi", "/etc"],
        Some("yes" | "true" | "on" | "1") => &["/usr", "/boot", "/efi"],
        _ => &[],
    };
    let below = |folder: &Path| file.starts_with(folder);
    let folders = [
        ("StateDirectory", "/var/lib"),
        ("LogsDirectory", "/var/log"),
        ("CacheDirectory", "/var/cache"),
        ("RuntimeDirectory", "/run"),
    ];
    let of_service = |(key, base): (&'static str, &str)| {
        paths(plan, key).iter().any(|path| below(&Path::new(base).join(path)))
    };
    let open = ["ReadWritePaths", "BindPaths"]
        .iter()
        .any(|key| paths(plan, key).iter().any(|it| below(it)))
        || folders.into_iter().any(of_service)
        || ["/dev", "/proc", "/sys"].iter().any(|it| below(Path::new(it)));
    !open && closed.iter().any(|it| below(Path::new(it)))
}
