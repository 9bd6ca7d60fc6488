//! ZeroFS: its settings, and the creation of a device.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use super::place::{DEVICE, Place};
use super::store::{BUCKET, KEY, REGION, SECRET};
use nowait_harness::error::{Context, Result};
use nowait_harness::launch;

const PATIENCE: Duration = Duration::from_mins(1);

pub(crate) fn socket_of_files(folder: &Path) -> PathBuf {
    folder.join("9p")
}

/// Writes the settings of a server of `image`, with `more` settings, and empties its cache.
pub(crate) fn write_settings(place: &Place, image: &str, more: &str) -> Result<()> {
    let cache = place.file("zerofs-cache");
    let what = || cache.display().to_string();
    if cache.exists() {
        fs::remove_dir_all(&cache).context(what)?;
    }
    fs::create_dir_all(&cache).context(what)?;
    let settings = place.file("zerofs.toml");
    let text = settings_text(place, image, &cache) + more;
    fs::write(&settings, text).context(|| settings.display().to_string())
}

fn settings_text(place: &Place, image: &str, cache: &Path) -> String {
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
        path(&place.file("nbd")),
        place.endpoint,
    )
}

/// Makes the device of a running server: a file, by 9P, because ZeroFS has no command for that.
pub(crate) fn make_device(place: &Place, size_bytes: u64) -> Result<()> {
    launch::succeed(&mut maker(&socket_of_files(&place.folder), size_bytes), PATIENCE).map(drop)
}

fn maker(socket: &Path, size_bytes: u64) -> Command {
    let mut command = Command::new("python3");
    command.arg("-c").arg(include_str!("make_device.py"));
    command.arg(socket).arg(DEVICE).arg(size_bytes.to_string());
    command
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::remote::place::Programs;
    use std::io::{Read, Write};
    use std::os::unix::net::UnixListener;
    use std::thread;

    #[test]
    fn a_cache_is_empty_at_each_start_and_settings_of_the_table_are_added() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let nothing = PathBuf::new;
        let programs = Programs { peers: nothing(), zerofs: nothing(), s3backer_plugin: nothing() };
        let (endpoint, folder) = (([127, 0, 0, 1], 9000).into(), folder.path().to_owned());
        let place = Place { endpoint, folder, programs };
        write_settings(&place, "one", "").expect("settings");
        let left = place.file("zerofs-cache/part");
        fs::write(&left, "left by one").expect("a file");
        let settings = || fs::read_to_string(place.file("zerofs.toml")).expect("settings");
        let by_default = settings();
        let socket = format!("unix_socket = \"{}\"", place.file("nbd").display());
        assert!(by_default.contains(&socket) && by_default.contains("zerofs-one"), "{by_default}");
        write_settings(&place, "two", "[lsm]\n").expect("settings");
        assert!(!left.exists() && settings().ends_with("[lsm]\n"));
    }

    /// Makes a device on a server that refuses the request `refused` with ENOSPC; returns the last
    /// request but one, and what the maker said.
    fn made(refused: u8) -> (Vec<u8>, String) {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let socket = folder.path().join("9p");
        let listener = UnixListener::bind(&socket).expect("a socket");
        let server = thread::spawn(move || {
            let (mut stream, _) = listener.accept().expect("a connection");
            let (mut head, mut requests) = ([0; 7], vec![Vec::new()]);
            while stream.read_exact(&mut head).is_ok() {
                let length = u32::from_le_bytes(*head.first_chunk().expect("a head"));
                let mut body = vec![0; length as usize - 7];
                stream.read_exact(&mut body).expect("a body");
                requests.push(body);
                let answer: &[u8] = match head[4] == refused {
                    true => &[11, 0, 0, 0, 7, 0, 0, 28, 0, 0, 0],
                    false => &[7, 0, 0, 0, head[4] + 1, 0, 0],
                };
                stream.write_all(answer).expect("a connection");
            }
            requests.swap_remove(requests.len() - 2)
        });
        let output = maker(&socket, 64 << 20).output().expect("python3 starts");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        (server.join().expect("no panic"), said)
    }

    #[test]
    fn a_device_is_made_with_its_size_or_the_refusal_is_told() {
        let (resize, said) = made(0);
        // In the request, five numbers come before the size, and four numbers of times after it.
        assert_eq!((&resize[20..28], resize.len()), (&(64_u64 << 20).to_le_bytes()[..], 60));
        assert_eq!(said, "");
        let (_, said) = made(14);
        assert!(said.contains("9P request 14: No space left"), "{said}");
    }
}
