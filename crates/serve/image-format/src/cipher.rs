//! Encryption: the key of an image, the key's check in the head, and the cipher of the blocks.
//!
//! ```text
//!   key, 32 bytes ──┐
//!   salt, 16 bytes ─┴─ HKDF-SHA256 ─┬─▶ key of the blocks, of AES-256-GCM-SIV
//!                                   └─▶ check: stored in the head; another key gives another check
//! ```
//!
//! The program that makes an image draws the salt. The clones of an image have the same salt,
//! because they read blocks of the image. The head has salt and check, so that a writer detects a
//! wrong key before it puts an object.
//!
//! The nonce of a block consists of its segment's place in the log and the low 32 bits of the
//! block's number. The associated data are the number of the image whose writer put the segment,
//! and the block's number. A nonce can repeat for other data, for example after a writer has died
//! before its PUT was answered, or after an older state of the store was restored. With this cipher
//! a repeated nonce reveals only whether the two blocks are equal.

use crate::mistake::{self, Mistake};
use crate::stamp::ImageId;
use crate::wire::Damage;
use aes_gcm_siv::aead::inout::InOutBuf;
use aes_gcm_siv::{AeadInOut, Aes256GcmSiv, KeyInit, Nonce};
use core::fmt;
use hkdf::Hkdf;
use sha2::Sha256;
use std::sync::Arc;
use subtle::ConstantTimeEq;
use zeroize::Zeroizing;

/// The length of a key in bytes.
pub const KEY_BYTES: usize = 32;

/// The length of a salt in bytes.
pub const SALT_BYTES: usize = 16;

/// The length of a key's check in bytes.
pub const CHECK_BYTES: usize = 16;

/// The length of the tag behind an encrypted block, in bytes. The tag authenticates the block.
pub const TAG_BYTES: usize = 16;

const BLOCKS_INFO: &[u8] = b"nowait image blocks 1";
const CHECK_INFO: &[u8] = b"nowait image check 1";

/// The key of an image: the contents of its key file.
#[derive(Clone)]
pub struct ImageKey(Arc<Zeroizing<[u8; KEY_BYTES]>>);

impl ImageKey {
    /// Makes a key from `bytes`, which are random.
    pub fn new(bytes: [u8; KEY_BYTES]) -> ImageKey {
        ImageKey(Arc::new(Zeroizing::new(bytes)))
    }

    fn derive<const N: usize>(&self, salt: &[u8], info: &[u8]) -> Zeroizing<[u8; N]> {
        let mut derived = Zeroizing::new([0; N]);
        let expanded = Hkdf::<Sha256>::new(Some(salt), &self.0[..]).expand(info, &mut derived[..]);
        expanded.expect("HKDF has 255 times as many bytes as its hash");
        derived
    }
}

impl fmt::Debug for ImageKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ImageKey")
    }
}

/// The encryption of an image, as stored in its head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Encryption {
    /// Random bytes of the image; its clones have the same bytes.
    pub salt: [u8; SALT_BYTES],
    /// Bytes derived from the key and the salt, by which a writer detects a wrong key.
    pub check: [u8; CHECK_BYTES],
}

impl Encryption {
    /// Makes the encryption of a new image; `salt` is random.
    pub fn new(key: &ImageKey, salt: [u8; SALT_BYTES]) -> Encryption {
        Encryption { salt, check: *key.derive(&salt, CHECK_INFO) }
    }

    /// Returns the cipher of an image's blocks; `None` if the image is not encrypted.
    ///
    /// # Errors
    /// `key` is the key of another image. The image is encrypted and `key` is `None`, or the image
    /// is not encrypted and there is a key.
    pub fn cipher(
        encryption: Option<&Encryption>,
        key: Option<&ImageKey>,
    ) -> Result<Option<Cipher>, &'static str> {
        let (it, key) = match (encryption, key) {
            (None, None) => return Ok(None),
            (Some(_), None) => return Err("the image is encrypted: give --key-file"),
            (None, Some(_)) => return Err("the image is not encrypted: leave out --key-file"),
            (Some(it), Some(key)) => (it, key),
        };
        let check: Zeroizing<[u8; CHECK_BYTES]> = key.derive(&it.salt, CHECK_INFO);
        match bool::from(check[..].ct_eq(&it.check[..])) {
            true => Ok(Some(Cipher::new(&key.derive(&it.salt, BLOCKS_INFO)))),
            false => Err("the image is encrypted with another key: give that one with --key-file"),
        }
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    /// The image whose writer put the segment.
    pub(crate) image: ImageId,
    pub(crate) sequence: u64,
    pub(crate) block: u64,
}

impl Place {
    fn nonce(&self) -> Nonce {
        let mut nonce = Nonce::default();
        nonce[..8].copy_from_slice(&self.sequence.to_le_bytes());
        nonce[8..].copy_from_slice(&(self.block as u32).to_le_bytes());
        nonce
    }

    fn associated(&self) -> [u8; 24] {
        let mut bytes = [0; 24];
        bytes[..16].copy_from_slice(&self.image);
        bytes[16..].copy_from_slice(&self.block.to_le_bytes());
        bytes
    }
}

/// The cipher of an image's blocks.
#[derive(Clone)]
pub struct Cipher(Arc<Aes256GcmSiv>);

impl fmt::Debug for Cipher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Cipher")
    }
}

impl Cipher {
    fn new(key: &[u8; KEY_BYTES]) -> Cipher {
        Cipher(Arc::new(Aes256GcmSiv::new(key.into())))
    }

    pub(crate) fn encrypt(&self, data: &mut [u8], at: Place) -> [u8; TAG_BYTES] {
        if mistake::makes(Mistake::StorePlain) {
            return [0; TAG_BYTES];
        }
        let buffer = InOutBuf::from(data);
        let tag = self.0.encrypt_inout_detached(&at.nonce(), &at.associated(), buffer);
        tag.expect("a block is shorter than 64 GiB").into()
    }

    /// If the block belongs to another place or was changed, `data` stays encrypted.
    pub(crate) fn decrypt(
        &self,
        data: &mut [u8],
        tag: &[u8; TAG_BYTES],
        at: Place,
    ) -> Result<(), Damage> {
        if mistake::makes(Mistake::StorePlain) {
            return Ok(());
        }
        let (buffer, tag) = (InOutBuf::from(data), tag.into());
        let decrypted = self.0.decrypt_inout_detached(&at.nonce(), &at.associated(), buffer, tag);
        decrypted.map_err(|_| Damage("a block does not decrypt with its key"))
    }
}
