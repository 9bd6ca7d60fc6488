//! Names of files for keys of blocks, equal to those of vLLM's own file system tier.
//!
//! ```text
//!  key    <hash> <4 bytes, big endian: number of the group of layers>
//!  file   <folder>/<hhh>/<hh>_g<group>/<hash in hex>.bin
//!  while it is written   <hash in hex>.bin_<number>.tmp
//! ```

use std::{
    collections::hash_map::RandomState,
    ffi::OsStr,
    fmt::Write,
    hash::{BuildHasher, Hash, Hasher},
    path::{Path, PathBuf},
    process,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::SystemTime,
};

/// Bytes of the number of the group, at the end of a key.
const GROUP_BYTES: usize = 4;

/// Returns the file of a key, below `folder`. `None`: the hash in the key has fewer than 3 bytes.
pub(crate) fn file_of(folder: &Path, key: &[u8]) -> Option<PathBuf> {
    let (hash, group) = key.split_at_checked(key.len().checked_sub(GROUP_BYTES)?)?;
    let mut hex = String::with_capacity(2 * hash.len());
    for byte in hash {
        let _ = write!(hex, "{byte:02x}"); // never fails on a String
    }
    let group = u32::from_be_bytes(group.try_into().ok()?);
    let (first, second) = (hex.get(..3)?, hex.get(3..5)?);
    Some(folder.join(format!("{first}/{second}_g{group}/{hex}.bin")))
}

/// Returns the key of a file below `folder`. `None`: `file` is not the file of a block.
pub(crate) fn key_of(folder: &Path, file: &Path) -> Option<Vec<u8>> {
    let inside = file.strip_prefix(folder).ok()?.to_str()?;
    let [_, middle, name] = inside.split('/').collect::<Vec<_>>()[..] else { return None };
    let group: u32 = middle.split_once("_g")?.1.parse().ok()?;
    let hex = name.strip_suffix(".bin")?;
    let byte = |at: usize| u8::from_str_radix(hex.get(at..at + 2)?, 16).ok();
    let hash: Option<Vec<u8>> = (0..hex.len()).step_by(2).map(byte).collect();
    Some([&hash?[..], &group.to_be_bytes()].concat())
}

/// Returns a temporary name for `file`. No other process gets the same name: neither one in another
/// container, which may have the same process number, nor a forked child.
pub(crate) fn temporary(file: &Path) -> PathBuf {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let mut random = RandomState::new().build_hasher();
    random.write_u32(process::id());
    random.write_u64(COUNT.fetch_add(1, Relaxed));
    SystemTime::now().hash(&mut random);
    let mut name = file.as_os_str().to_owned();
    name.push(format!("_{}.tmp", random.finish()));
    name.into()
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FileKind {
    /// A block.
    Block,
    /// A block that a process writes, or has left when it was killed.
    Temporary,
    /// A file that is not the tier's.
    Other,
}

/// Returns the kind of a file by its name and the names of the two folders above it. The folders
/// matter because another program's file, which must not be removed, may be named like a block.
pub(crate) fn kind_of(file: &Path) -> FileKind {
    let mut names = file.ancestors().map(|it| it.file_name().and_then(OsStr::to_str));
    let mut name = || names.next().flatten();
    let (Some(name), Some(middle), Some(first)) = (name(), name(), name()) else {
        return FileKind::Other;
    };
    let Some((hex, ending)) = name.split_once(".bin") else { return FileKind::Other };
    let is_hash = hex.len() >= 6 && hex.bytes().all(|byte| byte.is_ascii_hexdigit());
    let is_in_place = || {
        let group = middle.strip_prefix(&hex[3..5]).and_then(|it| it.strip_prefix("_g"));
        first == &hex[..3] && group.is_some_and(|group| group.parse::<u32>().is_ok())
    };
    if !is_hash || !is_in_place() {
        return FileKind::Other;
    }
    let number = ending.strip_prefix('_').and_then(|ending| ending.strip_suffix(".tmp"));
    match ending {
        "" => FileKind::Block,
        _ if number.is_some() => FileKind::Temporary,
        _ => FileKind::Other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_and_its_file_name_each_other() {
        let folder = Path::new("/kv/model_123_r0");
        let key = [0xab, 0xcd, 0xef, 0x01, 0, 0, 1, 2];
        let file = file_of(folder, &key).unwrap();
        assert_eq!(file, Path::new("/kv/model_123_r0/abc/de_g258/abcdef01.bin"));
        assert_eq!(key_of(folder, &file), Some(key.to_vec()));
        for other in ["/kv/model_123_r0/config.json", "/kv/abc/de_g0/abcdef01.bin"] {
            assert_eq!(key_of(folder, Path::new(other)), None, "{other}");
        }
    }

    #[test]
    fn a_key_without_a_hash_has_no_file() {
        for key in [&b""[..], b"abc", b"ab\0\0\0\0"] {
            assert_eq!(file_of(Path::new("/kv"), key), None, "{key:?}");
        }
    }

    #[test]
    fn only_blocks_and_what_is_left_of_them_are_known_by_name() {
        for (name, kind) in [
            ("/kv/r0/abc/de_g0/abcdef01.bin", FileKind::Block),
            ("abc/de_g17/abcdef01.bin", FileKind::Block),
            ("abc/de_g0/abcdef01.bin_17.tmp", FileKind::Temporary),
            ("abc/de_g0/config.json", FileKind::Other),
            ("abc/de_g0/model.bin", FileKind::Other),
            ("abc/de_g0/abcdef01.bin.bak", FileKind::Other),
            ("abc/de_g0/.bin", FileKind::Other),
            ("abc/de_g/abcdef01.bin", FileKind::Other),
            ("abc/df_g0/abcdef01.bin", FileKind::Other),
            ("de_g0/abcdef01.bin", FileKind::Other),
            ("abcdef01.bin", FileKind::Other),
        ] {
            assert_eq!(kind_of(Path::new(name)), kind, "{name}");
        }
        let (one, other) = (temporary(Path::new("ab")), temporary(Path::new("ab")));
        assert_ne!(one, other);
    }
}
