//! Encryption: stored objects contain no data in plain, a block can be read only with its key and
//! in its place, and a writer with another key changes nothing.

#[path = "support/memory.rs"]
mod memory;

use memory::{BLOCK_BYTES, Memory, image, settings};
use nowait_image_format::{
    BlockCodec, Cipher, Encryption, Image, ImageKey, Operation, Origin, Over, Request, Settings,
    Status, Writer,
};
use std::time::Instant;

const SALT: [u8; 16] = [5; 16];

fn key(byte: u8) -> ImageKey {
    ImageKey::new([byte; 32])
}

fn cipher(byte: u8, salt: [u8; 16]) -> Cipher {
    let it = Encryption::new(&key(byte), salt);
    Encryption::cipher(Some(&it), Some(&key(byte))).expect("its key").expect("it is encrypted")
}

fn codec(cipher: &Cipher, image: u8, sequence: u64) -> BlockCodec<'_> {
    BlockCodec { cipher: Some(cipher), image: [image; 16], sequence }
}

fn read(codec: BlockCodec<'_>, stored: &[u8], block: u64) -> Option<Vec<u8>> {
    let mut data = Vec::new();
    codec.append(&mut data, stored, block).ok().map(|()| data)
}

/// Replaces the checksum of a stored block by a valid one for a place, as an attacker would.
fn sealed(stored: &mut [u8], block: u64, sequence: u64) {
    let end = stored.len() - 4;
    let place = [block.to_le_bytes(), sequence.to_le_bytes()];
    let sum = crc32c::crc32c_append(crc32c::crc32c(place.as_flattened()), &stored[..end]);
    stored[end..].copy_from_slice(&sum.to_le_bytes());
}

#[test]
fn an_encrypted_block_is_read_in_its_place_by_its_key_only() {
    let (right, mut stored) = (cipher(1, SALT), Vec::new());
    let codec_of = |sequence| codec(&right, 1, sequence);
    codec_of(9).put(&mut stored, &[7; 4096], 5);
    assert_eq!(stored.len(), 4096 + 16 + 4);
    assert_eq!(read(codec_of(9), &stored, 5).as_deref(), Some(&[7; 4096][..]));
    let mut copied = [0; 4096];
    codec_of(9).copy(&mut copied, &stored, 5).expect("that block");
    assert_eq!(copied, [7; 4096]);
    // None of these can read the block: another image, such as a clone; another key; the same key
    // with another salt.
    assert_eq!(read(codec(&right, 2, 9), &stored, 5), None);
    assert_eq!(read(codec(&cipher(2, SALT), 1, 9), &stored, 5), None);
    assert_eq!(read(codec(&cipher(1, [6; 16]), 1, 9), &stored, 5), None);
    // The third place has the same nonce as the block's own place.
    for (block, sequence) in [(6, 9), (5, 8), (5 + (1 << 32), 9), (5, 9 + (1 << 32))] {
        let mut moved = stored.clone();
        sealed(&mut moved, block, sequence);
        let plain = BlockCodec { cipher: None, image: [1; 16], sequence };
        plain.check(&moved, block).expect("the checksum fits");
        assert_eq!(read(codec_of(sequence), &moved, block), None, "{block} {sequence}");
    }
}

#[test]
fn a_changed_bit_of_ciphertext_or_tag_is_noticed_though_the_checksum_fits() {
    let (right, mut stored) = (cipher(1, SALT), Vec::new());
    codec(&right, 1, 9).put(&mut stored, &[7; 512], 5);
    for at in 0..512 + 16 {
        let mut changed = stored.clone();
        changed[at] ^= 1 << (at % 8);
        assert!(read(codec(&right, 1, 9), &changed, 5).is_none(), "{at}, by its checksum");
        sealed(&mut changed, 5, 9);
        assert!(read(codec(&right, 1, 9), &changed, 5).is_none(), "{at}");
        let mut copied = [0; 512];
        assert!(codec(&right, 1, 9).copy(&mut copied, &changed, 5).is_err());
        assert_ne!(copied, [7; 512], "what was not proved is not handed out");
    }
    assert!(read(codec(&right, 1, 9), &stored[..10], 5).is_none());
}

/// Later versions must read the data of this version. The expected values were computed with
/// Python, by `hmac` and by `AESGCMSIV` of the package `cryptography`.
#[test]
fn the_keys_and_the_cipher_are_those_of_this_version() {
    let key = ImageKey::new(std::array::from_fn(|at| at as u8));
    let it = Encryption::new(&key, SALT);
    assert_eq!(u128::from_be_bytes(it.check), 0x64ff_f37f_6db1_8251_9353_a067_5fa9_404f);
    let cipher = Encryption::cipher(Some(&it), Some(&key)).expect("its key");
    let codec = BlockCodec { cipher: cipher.as_ref(), image: [1; 16], sequence: 3 };
    let mut stored = Vec::new();
    codec.put(&mut stored, b"sixteen bytes...", (1 << 32) + 2);
    let [ciphertext, tag] = [0, 16].map(|at| *stored[at..].first_chunk().expect("16 bytes"));
    assert_eq!(u128::from_be_bytes(ciphertext), 0x95e3_9051_c706_4948_4052_8d2d_1090_2d77);
    assert_eq!(u128::from_be_bytes(tag), 0x4f01_12c6_6004_b311_f1a3_2bd6_707e_5739);
}

#[test]
fn a_key_is_not_shown() {
    let shown =
        format!("{:?} {:?}", Settings { key: Some(key(0xab)), ..settings() }, cipher(1, SALT));
    assert!(!shown.contains("171") && !shown.contains("ab,"), "{shown}");
}

#[test]
fn a_key_is_judged_with_the_head_alone() {
    let it = Encryption::new(&key(1), SALT);
    let judged = |it: Option<Encryption>, key: Option<ImageKey>| {
        Encryption::cipher(it.as_ref(), key.as_ref()).map(|cipher| cipher.is_some())
    };
    assert_eq!(judged(None, None), Ok(false));
    assert_eq!(judged(Some(it), Some(key(1))), Ok(true));
    assert_eq!(
        judged(Some(it), Some(key(2))),
        Err("the image is encrypted with another key: give \
         that one with --key-file")
    );
    assert_eq!(judged(Some(it), None), Err("the image is encrypted: give --key-file"));
    assert_eq!(judged(None, Some(key(1))), Err("the image is not encrypted: leave out --key-file"));
}

fn keyed(byte: u8, writer: u8) -> Settings {
    let writer = Writer { nonce: [writer; 16], name: format!("writer {writer}") };
    Settings { key: Some(key(byte)), garbage_percent: 1, ..Settings { writer, ..settings() } }
}

fn write(block: u64, bytes: &[u8]) -> Request {
    Request::Write { offset: block * BLOCK_BYTES, data: bytes.to_vec(), durable: false }
}

fn read_block(block: u64) -> Request {
    Request::Read { offset: block * BLOCK_BYTES, len: BLOCK_BYTES }
}

#[test]
fn stored_objects_reveal_no_data_and_data_is_read_before_it_is_durable() {
    let mut store = Memory::default();
    let mut image = image(&mut store, keyed(1, 1), 64 * BLOCK_BYTES);
    let data: Vec<u8> = b"a secret".repeat(BLOCK_BYTES as usize / 8);
    store.submit(&mut image, write(3, &data));
    assert_eq!(store.submit(&mut image, read_block(3)), data, "in the open segment");
    // The PUT of the segment is in flight.
    image.submit(1_000, Request::Flush, 0);
    image.submit(1_001, read_block(3), 0);
    let end = image.pop_end().expect("from memory");
    assert_eq!((end.id, end.result), (1_001, Ok(data.clone())), "in a sealed segment");
    store.serve(&mut image);
    assert!(image.pop_end().is_some_and(|end| end.id == 1_000));
    assert_eq!(store.submit(&mut image, read_block(3)), data, "in the store");
    for round in 0..40 {
        for block in 0..8 {
            store.submit(&mut image, write(block * 7 + round % 3, &data));
        }
        store.submit(&mut image, Request::Flush);
        store.idle(&mut image);
    }
    assert!(image.costs().segments_collected > 0, "{:?}", image.costs());
    let mut next = Image::open(keyed(1, 2), Origin::TakeOver, u64::MAX / 2);
    store.serve(&mut next);
    assert_eq!(store.submit(&mut next, read_block(7)), data, "moved, and read by another writer");
    let has_secret = |body: &[u8]| body.windows(8).any(|it| it == b"a secret");
    assert!(!store.bodies().any(has_secret));
}

#[test]
fn a_writer_without_the_key_puts_nothing_and_the_earlier_one_continues() {
    let mut store = Memory::default();
    let mut first = image(&mut store, keyed(1, 1), 64 * BLOCK_BYTES);
    store.submit(&mut first, write(0, &[7; BLOCK_BYTES as usize]));
    store.submit(&mut first, Request::Flush);
    let before = store.head();
    let none = Settings { key: None, ..keyed(1, 3) };
    for (settings, why) in [
        (keyed(2, 2), "the image is encrypted with another key: give that one with --key-file"),
        (none, "the image is encrypted: give --key-file"),
    ] {
        let mut other = Image::open(settings, Origin::TakeOver, 0);
        while let Some((ticket, operation)) = other.pop_operation() {
            assert!(matches!(operation, Operation::Get { .. }), "{operation:?}");
            let answer = store.perform(operation);
            other.answer(ticket, answer, 0);
        }
        assert_eq!(other.status(), Status::Over(Over::Failed(why)));
    }
    assert_eq!(store.head(), before);
    store.submit(&mut first, write(1, &[8; BLOCK_BYTES as usize]));
    store.submit(&mut first, Request::Flush);
    assert!(matches!(first.status(), Status::Serving { epoch: 1, .. }));
}

/// `cargo test --release -p nowait-image-format --test encryption -- --ignored --nocapture`
#[test]
#[ignore = "a measurement"]
fn measure_the_cost_of_encrypting_a_block() {
    const BLOCKS: u64 = 100_000;
    let cipher = cipher(1, SALT);
    for (what, cipher) in [("plain", None), ("encrypted", Some(&cipher))] {
        let codec = BlockCodec { cipher, image: [1; 16], sequence: 1 };
        let (data, mut stored, mut read) = ([7; 4096], Vec::new(), vec![0; 4096]);
        let begin = Instant::now();
        for block in 0..BLOCKS {
            stored.clear();
            codec.put(&mut stored, &data, block);
        }
        let put_ns = begin.elapsed().as_nanos() as u64 / BLOCKS;
        let begin = Instant::now();
        for _ in 0..BLOCKS {
            codec.copy(&mut read, &stored, BLOCKS - 1).expect("that block");
        }
        let read_ns = begin.elapsed().as_nanos() as u64 / BLOCKS;
        println!("{what}: a block of 4 KiB is put in {put_ns} ns, read in {read_ns} ns");
    }
}
