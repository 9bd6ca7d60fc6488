//! Tokens: what tells the completions of a queue from each other.
//!
//! | token | whose bio |
//! |---|---|
//! | a multiple of four | a request's: its address, one reference |
//! | 2 above a multiple of four | a direct request's: its key in the table of its context |
//! | odd | the page cache's |

/// Marks tokens of direct requests.
const DIRECT: u64 = 2;
/// Marks tokens of the page cache.
const CACHE: u64 = 1;
const MARKS: u64 = 3;

/// Whose bio has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Owner {
    /// The token of the request with this address.
    Request(u64),
    /// The token of the direct request with this key.
    Direct(u64),
    /// The page cache's.
    Cache,
}

impl Owner {
    /// Returns the owner of the bio with this token.
    pub(crate) fn of(token: u64) -> Owner {
        match token & MARKS {
            0 => Owner::Request(token),
            DIRECT => Owner::Direct(token & !0xffff_ffff | (token & 0xffff_ffff) >> 2),
            _ => Owner::Cache,
        }
    }
}

/// Returns `true` if this is the token of a bio of the page cache.
pub(crate) fn is_of_cache(token: u64) -> bool {
    token & CACHE == CACHE
}

/// Returns the token of a direct request. A key is `generation << 32 | index`, and no queue has
/// 2^30 places: there is room for a mark.
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
