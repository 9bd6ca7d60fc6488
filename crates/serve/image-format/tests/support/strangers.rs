//! Checks of the parsers with arbitrary bytes, because a store may answer anything. A parser must
//! return an error, or an object whose encoding is the same bytes again.

use nowait_image_format::{Encryption, Geometry, Head, Header, Part, checkpoint};

pub(crate) fn geometry() -> Geometry {
    Geometry::checked(4096, 1 << 30).expect("an image of 1 GiB")
}

pub(crate) fn encrypted() -> Geometry {
    let encryption = Some(Encryption { salt: [3; 16], check: [4; 16] });
    Geometry { encryption, ..geometry() }
}

pub(crate) fn read(object: &[u8]) {
    if let Ok(head) = Head::parse(object) {
        assert_eq!(head.encode(), object);
    }
    if let Ok(part) = Part::parse(object) {
        assert_eq!(part.encode(), object);
        if let Ok(map) = checkpoint::assemble(&[part], u64::MAX, geometry()) {
            let live = map.segments().values().map(|it| u64::from(it.live)).sum::<u64>();
            let mapped = map.extents().iter().map(|(_, it)| u64::from(it.blocks)).sum::<u64>();
            assert_eq!(live, mapped);
        }
    }
    let header = |geometry| match Header::parse(object, object.len() as u64, geometry) {
        Ok((header, len)) => {
            assert_eq!(header.encode(geometry), object[..len as usize]);
            true
        }
        Err(_) => false,
    };
    assert!(!(header(geometry()) && header(encrypted())), "it is of one kind of image only");
}

/// Parses arbitrary bytes unchanged, and then with valid checksums, as an attacker or a faulty
/// writer would send them.
pub(crate) fn object(input: &[u8]) {
    read(input);
    let mut sealed = input.to_vec();
    seal(&mut sealed, 64);
    let end = sealed.len().saturating_sub(4);
    seal(&mut sealed, end);
    read(&sealed);
}

pub(crate) fn seal(bytes: &mut [u8], at: usize) {
    if let Some((front, rest)) = bytes.split_at_mut_checked(at)
        && let Some(sum) = rest.first_chunk_mut()
    {
        *sum = crc32c::crc32c(front).to_le_bytes();
    }
}
