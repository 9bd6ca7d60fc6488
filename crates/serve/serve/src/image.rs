//! `nowait image`: images on object stores.

use crate::args::{ImageArgs, ImageCommand, KeyFile, TransferArgs};
use crate::transfer::{export_from, import_into};
use nowait_image_store::catalog::NOTICED_WITHIN;
use nowait_image_store::check::{Report, check};
use nowait_image_store::edit::{self, clone, edit};
use nowait_image_store::repair::{self, Loss, Way};
use nowait_image_store::shrink::shrink;
use nowait_image_store::transfer::Transfer;
use nowait_image_store::{Edit, Head, Snapshot, StoreOptions, StoreUrl, StoredImage, catalog};
use nowait_terminal::{Failure, Result, print, print_json, say, table};
use serde::Serialize;
use std::fmt::Write as _;
use std::io;
use std::process::ExitCode;
use std::time::Duration;

/// How long the command waits until a new image is durable.
const CLOSES_WITHIN: Duration = Duration::from_mins(1);

pub(crate) fn image(command: &ImageCommand) -> Result<ExitCode> {
    match command {
        ImageCommand::Create { url, size, block_size, key, store } => {
            create(url, &keyed(key, store.options())?, *size, *block_size)
        }
        ImageCommand::Info(args) => info(args),
        ImageCommand::Check { image, key } => checked(image, key),
        ImageCommand::Ls { folder, json, store } => list(folder, &store.options(), *json),
        ImageCommand::Repair { url, cut, skip, now, store } => {
            let way = match (cut, skip) {
                (true, _) => Some(Way::Cut),
                (_, true) => Some(Way::Skip),
                _ => None,
            };
            mend(url, &store.options(), way, *now)
        }
        ImageCommand::Rm { url, yes, now, store } => remove(url, &store.options(), *yes, *now),
        ImageCommand::Import { block_size, transfer } => {
            whole(&transfer.url)?;
            import_into(&wanted(transfer)?, *block_size)
        }
        ImageCommand::Export(transfer) => export_from(&wanted(transfer)?),
        ImageCommand::Snapshot { url, store } => keep(url, &store.options()),
        ImageCommand::Clone { url, to, store } => {
            let head = clone(url, to, &store.options()).map_err(|error| failed(&error))?;
            let size = shown(head.geometry.size_bytes);
            print(format!("{to}: {size}, a clone of {url}\n").as_bytes())
        }
        ImageCommand::Resize { url, size, shrink: true, key, store } => {
            cut_off(url, &keyed(key, store.options())?, *size)
        }
        ImageCommand::Resize { key: KeyFile { key_file: Some(_) }, .. } => {
            Err(Failure::usage("--key-file: only --shrink needs it: leave it out".to_owned()))
        }
        ImageCommand::Resize { url, size, store, .. } => resize(url, &store.options(), *size),
    }
}

fn failed(error: &io::Error) -> Failure {
    Failure::new(error.to_string())
}

fn keyed(key: &KeyFile, store: StoreOptions) -> Result<StoreOptions> {
    key.with(store).map_err(|error| failed(&error))
}

fn wanted(args: &TransferArgs) -> Result<Transfer> {
    args.wanted().map_err(|error| failed(&error))
}

/// Refuses an address that names a snapshot.
fn whole(url: &StoreUrl) -> Result<()> {
    match &url.snapshot {
        None => Ok(()),
        Some(name) => {
            Err(Failure::usage(format!("{url}: leave out @{name}: this command works on an image")))
        }
    }
}

fn create(url: &StoreUrl, options: &StoreOptions, size: u64, block_size: u32) -> Result<ExitCode> {
    whole(url)?;
    if size == 0 || !size.is_multiple_of(u64::from(block_size)) {
        let text = format!("--size {size}: expected whole blocks of {block_size} bytes");
        return Err(Failure::usage(text));
    }
    let image =
        StoredImage::create(url, options, size, block_size).map_err(|error| failed(&error))?;
    image.close(CLOSES_WITHIN).map_err(|error| failed(&error))?;
    let encrypted = if options.key.is_some() { ", encrypted" } else { "" };
    print(format!("{url}: {}{encrypted}\n", shown(size)).as_bytes())
}

#[derive(Serialize)]
struct Info {
    url: String,
    size_bytes: u64,
    block_bytes: u32,
    is_encrypted: bool,
    epoch: u64,
    writer: String,
    /// The writer has closed the image: all data is durable.
    is_closed: bool,
    checkpoint: u64,
    clone_of: Option<String>,
    snapshots: Vec<SnapshotInfo>,
}

#[derive(Serialize)]
struct SnapshotInfo {
    name: String,
    size_bytes: u64,
    clones: Vec<String>,
}

fn info(args: &ImageArgs) -> Result<ExitCode> {
    whole(&args.url)?;
    let head = catalog::look(&args.url, &args.store.options()).map_err(|error| failed(&error))?;
    let info = Info {
        url: args.url.to_string(),
        size_bytes: head.geometry.size_bytes,
        block_bytes: head.geometry.block_bytes,
        is_encrypted: head.geometry.encryption.is_some(),
        epoch: head.epoch,
        writer: head.writer.name,
        is_closed: head.is_closed,
        checkpoint: head.checkpoint.position,
        clone_of: head.bases.last().map(|base| format!("{}@{}", base.path, base.snapshot)),
        snapshots: head.snapshots.into_iter().map(described).collect(),
    };
    if args.json {
        return print_json(&info);
    }
    let mut text = format!("{}\n", info.url);
    let _ = writeln!(text, "  size        {}", shown(info.size_bytes));
    let _ = writeln!(text, "  block       {}", shown(u64::from(info.block_bytes)));
    if info.is_encrypted {
        let _ = writeln!(text, "  encrypted   with a key file");
    }
    let state = if info.is_closed { "closed" } else { "at work, or it was killed" };
    let _ = writeln!(text, "  last writer {} (epoch {}): {state}", info.writer, info.epoch);
    let _ = writeln!(text, "  checkpoint  before log/{}", info.checkpoint);
    if let Some(base) = &info.clone_of {
        let _ = writeln!(text, "  clone of    {base}");
    }
    for SnapshotInfo { name, size_bytes, clones } in &info.snapshots {
        let _ = writeln!(text, "  snapshot    {name} ({})", shown(*size_bytes));
        for path in clones {
            let _ = writeln!(text, "    clone     {path}");
        }
    }
    print(text.as_bytes())
}

fn described(snapshot: Snapshot) -> SnapshotInfo {
    let Snapshot { name, size_bytes, clones, .. } = snapshot;
    SnapshotInfo { name, size_bytes, clones: clones.into_iter().map(|it| it.path).collect() }
}

fn keep(url: &StoreUrl, options: &StoreOptions) -> Result<ExitCode> {
    let Some(name) = &url.snapshot else {
        return Err(Failure::usage(format!("{url}: expected @NAME of a snapshot at the end")));
    };
    let head = edit(url, options, Edit::Snapshot(name.clone())).map_err(|error| failed(&error))?;
    let size = head.snapshot(name).map_or(0, |it| it.size_bytes);
    print(format!("{url}: {}, as it was flushed\n", shown(size)).as_bytes())
}

fn resize(url: &StoreUrl, options: &StoreOptions, size: u64) -> Result<ExitCode> {
    whole(url)?;
    let head = edit(url, options, Edit::Grow(size)).map_err(|error| failed(&error))?;
    print(format!("{url}: {}\n", shown(head.geometry.size_bytes)).as_bytes())
}

/// Makes an image smaller. Prints the name of its earlier writer if that writer may still run.
fn cut_off(url: &StoreUrl, options: &StoreOptions, size: u64) -> Result<ExitCode> {
    whole(url)?;
    let before = shrink(url, options, size).map_err(|error| failed(&error))?;
    let (is, was) = (shown(size), shown(before.geometry.size_bytes));
    if before.geometry.size_bytes == size {
        return print(format!("{url}: {is}, as before\n").as_bytes());
    }
    let writer = before.writer.name;
    let text = match before.is_closed {
        true => format!("{url}: {is}, before {was}\n"),
        false => format!(
            "{url}: {is}, before {was}; taken over from {writer}, whose requests fail if it \
             still runs: start it again\n"
        ),
    };
    print(text.as_bytes())
}

#[derive(Serialize)]
struct Checked {
    url: String,
    size_bytes: u64,
    objects: u64,
    stored_bytes: u64,
    live_bytes: u64,
    /// The image is encrypted, and was checked without its key.
    lacks_key: bool,
    findings: Vec<Found>,
}

#[derive(Serialize)]
struct Found {
    object: String,
    what: &'static str,
    /// The first byte of each range, and the byte behind its last.
    ranges: Vec<[u64; 2]>,
    /// Bytes of the image itself are lost, not only bytes of snapshots.
    is_of_image: bool,
    /// The snapshots that have lost bytes.
    snapshots: Vec<String>,
}

fn checked(args: &ImageArgs, key: &KeyFile) -> Result<ExitCode> {
    whole(&args.url)?;
    let options = keyed(key, args.store.options())?;
    let report = check(&args.url, &options).map_err(|error| failed(&error))?;
    let code = ExitCode::from(u8::from(!report.findings.is_empty()));
    let lacks_key = report.head.geometry.encryption.is_some() && options.key.is_none();
    let checked = said(&args.url, &report, lacks_key);
    if args.json {
        print_json(&checked)?;
    } else {
        print(told(&checked).as_bytes())?;
    }
    Ok(code)
}

fn said(url: &StoreUrl, report: &Report, lacks_key: bool) -> Checked {
    let name = |key: nowait_image_store::Key| key.name(report.head.image_of(key));
    let found = |finding: nowait_image_store::check::Finding| Found {
        object: match &finding.of {
            None => name(finding.key),
            Some(path) => format!("{path}/{}", name(finding.key)),
        },
        what: finding.what,
        ranges: finding.ranges.iter().map(|range| [range.start, range.end]).collect(),
        is_of_image: finding.is_of_image,
        snapshots: finding.snapshots,
    };
    Checked {
        url: url.to_string(),
        size_bytes: report.head.geometry.size_bytes,
        objects: report.objects,
        stored_bytes: report.stored_bytes,
        live_bytes: report.live_bytes,
        lacks_key,
        findings: report.findings.iter().cloned().map(found).collect(),
    }
}

fn told(checked: &Checked) -> String {
    let (objects, stored) = (checked.objects, shown(checked.stored_bytes));
    let live = shown(checked.live_bytes);
    let mut text = format!("{}: {objects} objects, {stored}; live data {live}\n", checked.url);
    for found in &checked.findings {
        let of = found.is_of_image.then_some("the image".to_owned());
        let of = of.into_iter().chain(found.snapshots.iter().map(|name| format!("@{name}")));
        let of = of.collect::<Vec<_>>().join(", ");
        let _ = writeln!(text, "{} is {}: these bytes of {of} are lost", found.object, found.what);
        for [start, end] in &found.ranges {
            let _ = writeln!(text, "  {start} to {}", end - 1);
        }
    }
    // The loss of a segment of the log affects the whole image. The loss of data affects only the
    // lost bytes.
    let is_of_log =
        |it: &Found| it.object.starts_with("log/") && it.ranges == [[0, checked.size_bytes]];
    if checked.findings.iter().any(is_of_log) {
        text.push_str("its log is not whole, so it is not opened: nowait image repair says more\n");
    }
    if checked.findings.is_empty() {
        text.push_str(match checked.lacks_key {
            false => "all of it can be read\n",
            true => "all of it is there, by its checksums; give --key-file to decrypt it, too\n",
        });
    }
    text
}

#[derive(Serialize)]
struct Listed {
    name: String,
    size_bytes: Option<u64>,
    writer: Option<String>,
    /// The reason why the head of the image cannot be read.
    error: Option<&'static str>,
}

fn list(folder: &StoreUrl, options: &StoreOptions, as_json: bool) -> Result<ExitCode> {
    let entries = catalog::list(folder, options).map_err(|error| failed(&error))?;
    let listed = entries.into_iter().map(|entry| {
        let (size_bytes, writer, error) = match entry.head {
            Ok(Some(head)) => (Some(head.geometry.size_bytes), Some(head.writer.name), None),
            Ok(None) => (None, None, None),
            Err(why) => (None, None, Some(why)),
        };
        Listed { name: entry.name, size_bytes, writer, error }
    });
    let listed: Vec<Listed> = listed.collect();
    if as_json {
        return print_json(&listed);
    }
    let mut shown_as = table();
    shown_as.set_header(["image", "size", "last writer"]);
    for it in listed {
        let is_folder = it.size_bytes.is_none() && it.error.is_none();
        let name = if is_folder { format!("{}/", it.name) } else { it.name };
        let size = it.size_bytes.map(shown).unwrap_or_default();
        let writer = it.writer.as_deref().or(it.error).unwrap_or_default();
        shown_as.add_row([&name, &size, writer]);
    }
    print(format!("{shown_as}\n").as_bytes())
}

/// Repairs an image in the given way. Without a way, only shows which part of its log is lost.
fn mend(url: &StoreUrl, options: &StoreOptions, way: Option<Way>, now: bool) -> Result<ExitCode> {
    whole(url)?;
    let loss = match way {
        None => repair::look(url, options),
        Some(way) => {
            let wait = |head: &Head| wait_for(url, head, now);
            repair::repair(url, options, way, wait)
        }
    };
    let Some(loss) = loss.map_err(|error| failed(&error))? else {
        let text =
            format!("{url}: nothing is missing of its log: nowait image check reads the rest\n");
        return print(text.as_bytes());
    };
    let mut text = told_loss(url, &loss);
    text.push_str(match way {
        None => {
            "nothing was changed; repeat with one of\n  \
             --cut   the image as it was before what is lost, as after a power cut then\n  \
             --skip  all that is there; bytes that the lost part changed are as they were before\n"
        }
        Some(Way::Cut) => "cut off there; the image can be served again\n",
        Some(Way::Skip) => "left out; the image can be served again\n",
    });
    print(text.as_bytes())?;
    Ok(ExitCode::from(u8::from(way.is_none())))
}

fn told_loss(url: &StoreUrl, loss: &Loss) -> String {
    let Loss { name, what, lost, before, behind, ranges } = loss;
    let mut text = format!(
        "{url}: {name} is {what}; the log since the last checkpoint has {before} segments before \
         it, {lost} lost, {behind} behind it\n"
    );
    if !ranges.is_empty() {
        let _ = writeln!(text, "the segments behind it have changed the bytes");
    }
    for range in ranges {
        let _ = writeln!(text, "  {} to {}", range.start, range.end - 1);
    }
    text
}

/// Waits [`NOTICED_WITHIN`], unless `now`: after this time a writer that may still run must have
/// noticed that this command has replaced it.
fn wait_for(url: &StoreUrl, head: &Head, now: bool) {
    if !now {
        let (seconds, writer) = (NOTICED_WITHIN.as_secs(), &head.writer.name);
        let who = match head.is_closed {
            true => format!("a server that ran before {writer} may still run"),
            false => format!("{writer} has not closed the image"),
        };
        let text = format!(
            "{url}: {who}: waiting {seconds} s, until that server must have noticed this command; \
                 add --now if that server is certainly dead"
        );
        say(&text);
        std::thread::sleep(NOTICED_WITHIN);
    }
}

fn remove(url: &StoreUrl, options: &StoreOptions, yes: bool, now: bool) -> Result<ExitCode> {
    if !yes {
        let head = catalog::look(url, options).map_err(|error| failed(&error))?;
        let what = match (&url.snapshot, head.snapshots.len()) {
            (Some(_), _) => "a snapshot".to_owned(),
            (None, 0) => format!("an image of {}", shown(head.geometry.size_bytes)),
            (None, 1) => format!("an image of {} and a snapshot", shown(head.geometry.size_bytes)),
            (None, count) => {
                format!("an image of {} and {count} snapshots", shown(head.geometry.size_bytes))
            }
        };
        return Err(Failure::usage(format!("{url}: this deletes {what} for good: add --yes")));
    }
    let removed = if url.snapshot.is_some() {
        edit::remove(url, options).map(|_| String::new())
    } else {
        let wait = |head: &Head| wait_for(url, head, now);
        catalog::remove(url, options, wait).map(|objects| format!(", {objects} objects"))
    };
    let objects = removed.map_err(|error| failed(&error))?;
    print(format!("{url}: removed{objects}\n").as_bytes())
}

pub(crate) fn shown(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["KiB", "MiB", "GiB", "TiB", "PiB"];
    let mut size = format!("{bytes} bytes");
    for (power, unit) in UNITS.iter().enumerate() {
        let one = 1_u64 << (10 * (power + 1));
        if bytes >= one {
            let tenths = bytes / (one / 1024) * 10 / 1024;
            size = match tenths % 10 {
                0 => format!("{} {unit}", tenths / 10),
                rest => format!("{}.{rest} {unit}", tenths / 10),
            };
        }
    }
    size
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_as_people_write_them() {
        let sizes = [512, 4096, 1 << 20, 3 << 29, 1 << 60].map(shown);
        assert_eq!(sizes, ["512 bytes", "4 KiB", "1 MiB", "1.5 GiB", "1024 PiB"]);
    }
}
