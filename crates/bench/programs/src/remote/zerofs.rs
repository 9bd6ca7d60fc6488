//! ZeroFS: its settings, and the making of a device.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::Level0;
use super::ninep;
use super::place::{DEVICE, Place};
use super::store::{BUCKET, KEY, REGION, SECRET};
use nowait_harness::error::{Context, Result};
use nowait_harness::launch;

/// Where its devices are.
const DEVICES: &str = ".nbd";

/// Returns where it is asked for files.
pub(crate) fn socket_of_files(folder: &Path) -> PathBuf {
    folder.join("9p")
}

/// Returns the command of a server of `image` at `socket`, with an empty cache.
pub(crate) fn command(
    place: &Place,
    image: &str,
    level0: Level0,
    socket: &Path,
) -> Result<Command> {
    let cache = place.folder.join("zerofs-cache");
    let what = || cache.display().to_string();
    if cache.exists() {
        fs::remove_dir_all(&cache).context(what)?;
    }
    fs::create_dir_all(&cache).context(what)?;
    let settings = place.folder.join("zerofs.toml");
    let text = settings_text(place, image, &cache, socket) + lsm_text(level0);
    fs::write(&settings, text).context(|| settings.display().to_string())?;
    let mut command = Command::new(&place.programs.zerofs);
    launch::inherit_nothing_of_ours(&mut command);
    command.env("NO_PROXY", "127.0.0.1").env("RUST_LOG", "error");
    command.args(["run", "--config"]).arg(settings);
    Ok(command)
}

fn lsm_text(level0: Level0) -> &'static str {
    match level0 {
        Level0::Default => "",
        Level0::Unbounded => "\n[lsm]\nl0_max_ssts = 1000000\n",
    }
}

fn settings_text(place: &Place, image: &str, cache: &Path, socket: &Path) -> String {
    // Debug formatting quotes as TOML does.
    let path = |path: &Path| format!("{:?}", path.display().to_string());
    format!(
        "[cache]\ndir = {}\ndisk_size_gb = 1.0\n\n\
         [storage]\nurl = \"s3://{BUCKET}/zerofs-{image}\"\nencryption_password = \"{SECRET}\"\n\n\
         [servers.ninep]\nunix_socket = {}\n\n\
         [servers.nbd]\nunix_socket = {}\n\n\
         [aws]\naccess_key_id = \"{KEY}\"\nsecret_access_key = \"{SECRET}\"\n\
         endpoint = \"http://{}\"\ndefault_region = \"{REGION}\"\nallow_http = \"true\"\n",
        path(cache),
        path(&socket_of_files(&place.folder)),
        path(socket),
        place.endpoint,
    )
}

/// Makes the device of a server that runs.
pub(crate) fn make_device(place: &Place, size_bytes: u64) -> Result<()> {
    ninep::make_file(&socket_of_files(&place.folder), DEVICES, DEVICE, size_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::remote::place::Programs;

    #[test]
    fn a_cache_is_empty_at_each_start_and_level_0_is_bounded_unless_said() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let programs = Programs {
            peers: PathBuf::new(),
            zerofs: "zerofs".into(),
            s3backer_plugin: PathBuf::new(),
        };
        let place = Place {
            endpoint: ([127, 0, 0, 1], 9000).into(),
            folder: folder.path().to_owned(),
            programs,
        };
        let left = folder.path().join("zerofs-cache/part");
        let socket = folder.path().join("nbd");
        command(&place, "one", Level0::Default, &socket).expect("a command");
        fs::write(&left, "left by one").expect("a file");
        let settings = || fs::read_to_string(folder.path().join("zerofs.toml")).expect("settings");
        let by_default = settings();
        assert!(by_default.contains(&format!("unix_socket = \"{}\"", socket.display())));
        assert!(by_default.contains("zerofs-one") && !by_default.contains("l0_max_ssts"));
        let again = command(&place, "two", Level0::Unbounded, &socket).expect("a command");
        assert!(!left.exists() && settings().contains("[lsm]\nl0_max_ssts = 1000000"));
        assert_eq!(again.get_program(), "zerofs");
    }
}
