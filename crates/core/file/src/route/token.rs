//! Tokens: numbers that tell the completions of a queue apart.
//!
//! | token | owner of the bio |
//! |---|---|
//! | a multiple of four | a request: the token is its address, and counts as one reference |
//! | 2 above a multiple of four | a direct request: the token has its key in the context's table |
//! | odd | the page cache |

const DIRECT: u64 = 2;
const CACHE: u64 = 1;
const MARKS: u64 = 3;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Owner {
    Request(u64),
    Direct(u64),
    Cache,
}

impl Owner {
    pub(crate) fn of(token: u64) -> Owner {
        match token & MARKS {
            0 => Owner::Request(token),
            DIRECT => Owner::Direct(token & !0xffff_ffff | (token & 0xffff_ffff) >> 2),
            _ => Owner::Cache,
        }
    }
}

pub(crate) fn is_of_cache(token: u64) -> bool {
    token & CACHE == CACHE
}

/// Returns the token of a direct request. A key is `generation << 32 | index`. A table has fewer
/// than 2^30 entries, so the lower half has two bits left for the mark.
pub(crate) fn of_direct(key: u64) -> u64 {
    key & !0xffff_ffff | (key & 0x3fff_ffff) << 2 | DIRECT
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_says_whose_it_is() {
        let key = 7 << 32 | 0x3fff_ffff;
        assert_eq!(Owner::of(of_direct(key)), Owner::Direct(key));
        assert_eq!(Owner::of(0x7fff_0040), Owner::Request(0x7fff_0040));
        assert_eq!(Owner::of(0x7fff_0041), Owner::Cache);
        assert_eq!(Owner::of(0x7fff_0043), Owner::Cache);
        assert!(is_of_cache(5) && !is_of_cache(of_direct(key)));
    }
}
