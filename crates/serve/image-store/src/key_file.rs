//! Reads the key file of encrypted images.

use nowait_image_format::ImageKey;
use nowait_image_format::cipher::KEY_BYTES;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use zeroize::Zeroizing;

const DIGITS: usize = 2 * KEY_BYTES;

/// Returns the mode bits that a key file of this owner must not have, because they let other users
/// read or change the file. A group may read a file of root: a credential of systemd belongs to
/// root, and its mode shows the service's right to read it as the group's.
fn mode_of_others(owner: u32) -> u32 {
    if owner == 0 { 0o037 } else { 0o077 }
}

/// Reads a key from a file: 32 bytes that are not all text, or 64 hexadecimal digits and perhaps a
/// newline. Blocks.
///
/// # Errors
/// One line: the file belongs neither to root nor to the user of this process, other users may read
/// or change it, it does not contain a key, or it cannot be read.
pub fn read_key(path: &Path) -> io::Result<ImageKey> {
    let said = |why: String| io::Error::other(format!("{}: {why}", path.display()));
    let read = || {
        // Check before opening: the opening of a FIFO would wait for its other end.
        if !std::fs::metadata(path)?.is_file() {
            return Err(io::Error::other("not a regular file"));
        }
        let mut file = File::open(path)?;
        let about = file.metadata()?;
        let (mode, owner) = (about.permissions().mode(), about.uid());
        // Reserve enough room: a reallocation would leave a copy of the key.
        let mut bytes = Zeroizing::new(Vec::with_capacity(2 * DIGITS));
        (&mut file).take(DIGITS as u64 + 2).read_to_end(&mut bytes)?;
        Ok((mode, owner, bytes))
    };
    let (mode, owner, bytes) = read().map_err(|error: io::Error| said(error.to_string()))?;
    if mode & mode_of_others(owner) != 0 {
        let mode = mode & 0o777;
        return Err(said(format!("mode {mode:03o} lets others read the key: chmod 600")));
    }
    if ![0, nowait_sys::cred::effective_user()].contains(&owner) {
        return Err(said(format!("user {owner} owns the key file: chown root")));
    }
    let key = key_of(&bytes).ok_or_else(|| {
        said("expected exactly 32 random bytes or 64 hexadecimal digits".to_owned())
    });
    key.map(|key| ImageKey::new(*key))
}

fn key_of(bytes: &[u8]) -> Option<Zeroizing<[u8; KEY_BYTES]>> {
    let mut key = Zeroizing::new([0; KEY_BYTES]);
    if bytes.len() == KEY_BYTES {
        // Refuse 32 bytes of text: they are a password, or half of a hexadecimal key. 32 random
        // bytes look like text about once in ten million million times.
        let is_text =
            bytes.iter().all(|byte| byte.is_ascii_graphic() || byte.is_ascii_whitespace());
        key.copy_from_slice(bytes);
        return (!is_text).then_some(key);
    }
    let digits = bytes.strip_suffix(b"\n").unwrap_or(bytes);
    let (pairs, rest) = digits.as_chunks::<2>();
    if digits.len() != DIGITS || !rest.is_empty() {
        return None;
    }
    let digit = |byte: u8| char::from(byte).to_digit(16);
    for (byte, [high, low]) in key.iter_mut().zip(pairs) {
        *byte = (digit(*high)? * 16 + digit(*low)?) as u8;
    }
    Some(key)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_32_bytes_or_64_digits() {
        let read = |bytes: &[u8]| key_of(bytes).map(|key| *key);
        let drawn: [u8; 32] = std::array::from_fn(|at| at as u8 * 7);
        assert_eq!(read(&drawn), Some(drawn));
        assert_eq!(
            read(b"0Af1".repeat(16).as_slice()),
            Some([[10, 241]; 16].concat()[..].try_into().unwrap())
        );
        assert!(read([&b"0f".repeat(32)[..], b"\n"].concat().as_slice()).is_some());
        for wrong in [&b""[..], b"secret\n", &[1; 31], &[1; 33], &[1; 64], &[b'0'; 32]] {
            assert_eq!(read(wrong), None, "{wrong:?}");
        }
        assert_eq!(read([&b"0f".repeat(32)[..], b"\n\n"].concat().as_slice()), None);
    }
}
