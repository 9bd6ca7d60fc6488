//! Encryption: the key of an image, what its head has of it, and the cipher of its blocks.
//!
//! ```text
//!   key, 32 bytes ──┐
//!   salt, 16 bytes ─┴─ HKDF-SHA256 ─┬─▶ key of the blocks, of AES-256-GCM-SIV
//!                                   └─▶ check: the head has it, and another key has another one
//! ```
//!
//! The salt is drawn when an image is made. Its clones have the same one, because they read its
//! blocks. The head has both salt and check, so that a wrong key is found before anything is put.
//!
//! The nonce of a block is its segment's place in the log and the low half of its number; its
//! number and that of the image that has put the segment are authenticated with it. A writer that
//! dies before its PUT is answered, and a store that was put back as it was before, can have the
//! same nonce used for other data: of this cipher that tells only whether both are the same.

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

/// Bytes of a key.
pub const KEY_BYTES: usize = 32;

/// Bytes of a salt.
pub const SALT_BYTES: usize = 16;

/// Bytes by which a key is checked.
pub const CHECK_BYTES: usize = 16;

/// Bytes behind an encrypted block that authenticate it.
pub const TAG_BYTES: usize = 16;

const BLOCKS_INFO: &[u8] = b"nowait image blocks 1";
const CHECK_INFO: &[u8] = b"nowait image check 1";

/// The key of an image: what its key file has.
#[derive(Clone)]
pub struct ImageKey(Arc<Zeroizing<[u8; KEY_BYTES]>>);

impl ImageKey {
    /// Makes one of bytes that were drawn at random.
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

/// What the head of an encrypted image has of its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Encryption {
    /// Drawn when the image was made; its clones have the same one.
    pub salt: [u8; SALT_BYTES],
    /// The key has made it.
    pub check: [u8; CHECK_BYTES],
}

impl Encryption {
    /// Makes that of a new image; `salt` was drawn at random.
    pub fn new(key: &ImageKey, salt: [u8; SALT_BYTES]) -> Encryption {
        Encryption { salt, check: *key.derive(&salt, CHECK_INFO) }
    }

    /// Returns the cipher of an image's blocks; none if they are not encrypted.
    ///
    /// # Errors
    /// The key is not that of the image, or one of both is missing.
    pub fn cipher(
        encryption: Option<&Encryption>,
        key: Option<&ImageKey>,
    ) -> Result<Option<Cipher>, &'static str> {
        let (it, key) = match (encryption, key) {
            (None, None) => return Ok(None),
            (Some(_), None) => return Err("it is encrypted: say --key-file"),
            (None, Some(_)) => return Err("it is not encrypted: leave out --key-file"),
            (Some(it), Some(key)) => (it, key),
        };
        let check: Zeroizing<[u8; CHECK_BYTES]> = key.derive(&it.salt, CHECK_INFO);
        match bool::from(check[..].ct_eq(&it.check[..])) {
            true => Ok(Some(Cipher::new(&key.derive(&it.salt, BLOCKS_INFO)))),
            false => Err("it is encrypted with another key"),
        }
    }
}

/// Where a block of data is stored, and of which image.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    /// The image that has put the segment.
    pub(crate) image: ImageId,
    /// The segment.
    pub(crate) sequence: u64,
    /// The block of the image.
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

    /// Encrypts a block where it is; returns its tag.
    pub(crate) fn encrypt(&self, data: &mut [u8], at: Place) -> [u8; TAG_BYTES] {
        if mistake::makes(Mistake::StorePlain) {
            return [0; TAG_BYTES];
        }
        let buffer = InOutBuf::from(data);
        let tag = self.0.encrypt_inout_detached(&at.nonce(), &at.associated(), buffer);
        tag.expect("a block is shorter than 64 GiB").into()
    }

    /// Decrypts a block where it is.
    ///
    /// # Errors
    /// It is another, or was changed: it stays as it is.
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
        decrypted.map_err(|_| Damage("a block is not what its key has encrypted"))
    }
}
