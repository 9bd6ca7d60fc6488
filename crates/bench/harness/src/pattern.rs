//! The content of test files. The layout computes each word of 8 bytes from its offset. A write in
//! a later generation stamps the first word of each page. So the check of a read costs nearly
//! nothing.

const WORD: usize = size_of::<u64>();

/// The distance in bytes between two words that reads check and writes stamp.
pub const STAMP_BYTES: usize = 4096;

/// Generation 0 is the file as laid out.
pub fn word(offset: u64, generation: u32) -> u64 {
    let place = (offset / WORD as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    place ^ (place >> 29) ^ u64::from(generation).wrapping_mul(0xd6e8_feb8_6659_fd93)
}

/// The offset and the length must be multiples of 8.
pub fn fill(offset: u64, bytes: &mut [u8]) {
    for (index, slot) in bytes.chunks_exact_mut(WORD).enumerate() {
        slot.copy_from_slice(&word(offset + (index * WORD) as u64, 0).to_le_bytes());
    }
}

pub fn stamp(offset: u64, bytes: &mut [u8], generation: u32) {
    for (index, page) in bytes.chunks_mut(STAMP_BYTES).enumerate() {
        let word = word(offset + (index * STAMP_BYTES) as u64, generation);
        page[..WORD].copy_from_slice(&word.to_le_bytes());
    }
}

pub fn is_stamped(offset: u64, bytes: &[u8], generation: u32) -> bool {
    bytes.chunks(STAMP_BYTES).enumerate().all(|(index, page)| {
        let expected = word(offset + (index * STAMP_BYTES) as u64, generation);
        page[..WORD] == expected.to_le_bytes()
    })
}

/// Undoes the factor of the generation: the inverse of an odd number modulo 2^64.
const GENERATION_INVERSE: u64 = inverse(0xd6e8_feb8_6659_fd93);

const fn inverse(odd: u64) -> u64 {
    let (mut x, mut step) = (odd, 0);
    // Each step of Newton's method doubles the right bits of `x`; at the start, 3 are right.
    while step < 5 {
        x = x.wrapping_mul(2_u64.wrapping_sub(odd.wrapping_mul(x)));
        step += 1;
    }
    x
}

/// Returns the generation of the first word; `None`: the word does not belong to this place.
pub fn generation(offset: u64, bytes: &[u8]) -> Option<u32> {
    let found: [u8; WORD] = bytes.get(..WORD)?.try_into().ok()?;
    let rest = u64::from_le_bytes(found) ^ word(offset, 0);
    u32::try_from(rest.wrapping_mul(GENERATION_INVERSE)).ok()
}

/// Checks the beginning of each page, in any generation: the rest depends on the page's writer.
pub fn is_in_place(offset: u64, bytes: &[u8]) -> bool {
    let first = (offset.next_multiple_of(STAMP_BYTES as u64) - offset) as usize;
    let mut pages = bytes.get(first..).unwrap_or_default().chunks(STAMP_BYTES).enumerate();
    pages.all(|(index, page)| {
        generation(offset + (first + index * STAMP_BYTES) as u64, page).is_some()
    })
}

/// Checks the first word of each page, and the last word of all.
pub fn is_laid_out(offset: u64, bytes: &[u8]) -> bool {
    let last = bytes.len() - WORD;
    is_stamped(offset, bytes, 0) && bytes[last..] == word(offset + last as u64, 0).to_le_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_filled_is_recognized_at_its_place_only() {
        let mut bytes = vec![0; 3 * STAMP_BYTES];
        fill(8192, &mut bytes);
        assert!(is_laid_out(8192, &bytes));
        assert!(!is_laid_out(4096, &bytes));
        assert!(is_laid_out(8192 + 512, &bytes[512..1024]));
        bytes[STAMP_BYTES] ^= 1;
        assert!(!is_laid_out(8192, &bytes), "the first word of the second page");
    }

    #[test]
    fn the_generation_can_be_read_back() {
        let mut bytes = vec![0; 2 * STAMP_BYTES];
        for generation in [0, 1, 7, u32::MAX] {
            stamp(8192, &mut bytes, generation);
            assert_eq!(super::generation(8192, &bytes), Some(generation));
            assert!(is_in_place(8192, &bytes));
            assert!(!is_in_place(4096, &bytes), "another place");
            assert!(is_in_place(8192 + 512, &bytes[512..1024]), "the inside of a page");
        }
        bytes[STAMP_BYTES] ^= 1;
        assert!(!is_in_place(8192, &bytes));
    }

    #[test]
    fn a_stamp_tells_its_generation() {
        let mut bytes = vec![0; 2 * STAMP_BYTES];
        stamp(0, &mut bytes, 7);
        assert!(is_stamped(0, &bytes, 7) && !is_stamped(0, &bytes, 8));
        assert!(!is_stamped(4096, &bytes, 7));
    }
}
