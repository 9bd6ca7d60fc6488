//! The possible results of a script: for each byte of its file and of its reads, the values of all
//! writes that no later write has certainly overwritten.

use crate::play::{self, Outcome, Played};
use crate::rule::Rule;
use crate::script::{Kind, PAGE, Request, Script};

/// Element `v` is `true` if a byte may have the value `v`.
type Values = [bool; 256];

pub(crate) struct Model<'a> {
    script: &'a Script,
    played: &'a Played,
    /// The bytes that each request reads or writes.
    ranges: Vec<(u64, u64)>,
    /// The length of the file after each request.
    sizes: Vec<u64>,
    /// `before[i][j]`: request `i` takes effect before request `j`.
    before: Vec<Vec<bool>>,
    /// `partly[i]`: buffered writes that may overwrite bytes of the direct write `i` outside their
    /// own ranges, in pages that both write.
    partly: Vec<Vec<usize>>,
    /// Requests that may fail with EIO.
    may_fail: Vec<bool>,
}

struct Order<'a> {
    rule: Rule,
    script: &'a Script,
    outcomes: &'a [Outcome],
    ranges: &'a [(u64, u64)],
    /// Direct writes to which the exceptions for allocating writes apply.
    excepted: Vec<bool>,
    /// Direct requests that io_submit may delay.
    kept_back: Vec<bool>,
    threads: usize,
}

impl Order<'_> {
    fn writes(&self, i: usize, direct: bool) -> bool {
        let request = &self.script.requests[i];
        request.writes() && request.direct == direct
    }

    fn has_ended(&self, i: usize, j: usize) -> bool {
        self.outcomes[i].taken < self.outcomes[j].begun
    }

    fn is_same_call(&self, i: usize, j: usize) -> bool {
        self.outcomes[i].begun == self.outcomes[j].begun
    }

    fn is_submitted(&self, i: usize, j: usize) -> bool {
        self.outcomes[i].returned < self.outcomes[j].begun || i < j && self.is_same_call(i, j)
    }

    fn is_before(&self, i: usize, j: usize) -> bool {
        let is_missed = self.excepted[i] && self.script.requests[j].kind == Kind::Read;
        let is_passed = self.kept_back[i] && self.is_same_call(i, j);
        let is_lost = self.script.requests[i].direct && self.rule.is_lost_among(self.threads);
        let has_no_order = is_missed || is_passed || is_lost;
        self.has_ended(i, j) || self.is_submitted(i, j) && !has_no_order
    }

    /// Returns `true` if `i` is a direct write and `j` is a buffered write, and their order permits
    /// `j` to overwrite bytes of `i` outside the range of `j`. Does not check if both write the
    /// same page.
    fn takes_out(&self, i: usize, j: usize) -> bool {
        let has_no_order = !self.is_before(i, j) && !self.is_before(j, i);
        let misses = self.excepted[i] && self.is_submitted(i, j) && !self.has_ended(i, j);
        self.writes(i, true) && self.writes(j, false) && (has_no_order || misses)
    }

    /// Returns `true` if the buffered write `j` shares a page with the direct write `i` and may
    /// have been carried out while `i` was in flight.
    fn collides(&self, i: usize, j: usize) -> bool {
        let (one, other) = (pages(self.ranges[i]), pages(self.ranges[j]));
        let is_beside = self.has_ended(i, j) || self.is_submitted(j, i);
        let meet = one.0 < other.1 && other.0 < one.1;
        self.writes(i, true) && self.writes(j, false) && meet && !is_beside
    }
}

impl<'a> Model<'a> {
    pub(crate) fn new(script: &'a Script, played: &'a Played, rule: Rule) -> Self {
        let (ranges, sizes) = script.reach();
        let outcomes = &played.outcomes[..];
        let all = 0..script.requests.len();
        let size_before = |i: usize| if i == 0 { script.size } else { sizes[i - 1] };
        let is_excepted = |i: usize| {
            let is_direct_write = script.requests[i].direct && script.requests[i].writes();
            let grows = ranges[i].1 > size_before(i);
            is_direct_write && script.allocates(ranges[i]) && rule.excepts(grows)
        };
        let calls = |i: usize| outcomes.iter().filter(|it| it.begun == outcomes[i].begun).count();
        let is_kept_back = |i: usize| script.requests[i].direct && rule.keeps_back(calls(i));
        let order = Order {
            rule,
            script,
            outcomes,
            ranges: &ranges,
            excepted: all.clone().map(is_excepted).collect(),
            kept_back: all.clone().map(is_kept_back).collect(),
            threads: script.requests.iter().map(|it| it.thread + 1).max().unwrap_or(0),
        };
        let rows = |i| all.clone().map(|j| order.is_before(i, j)).collect();
        let before = all.clone().map(rows).collect();
        let takers = |i| all.clone().filter(|j| order.takes_out(i, *j)).collect();
        let partly = all.clone().map(takers).collect();
        let has_collided = all.clone().any(|i| all.clone().any(|j| order.collides(i, j)));
        let may_fail = |i: usize| match script.requests[i].kind {
            Kind::Sync => has_collided,
            Kind::Read => script.requests[i].direct && rule.fails_reads(ranges[i].1, script.size),
            Kind::Write | Kind::Append => false,
        };
        let may_fail = all.clone().map(may_fail).collect();
        Self { script, played, ranges, sizes, before, partly, may_fail }
    }

    pub(crate) fn check(&self) -> Result<(), String> {
        for (index, request) in self.script.requests.iter().enumerate() {
            self.check_request(index, request, &self.played.outcomes[index])?;
        }
        let end = self.sizes.last().copied().unwrap_or(self.script.size);
        if self.played.size != end {
            return Err(format!("the file has {} bytes instead of {end}", self.played.size));
        }
        for (name, bytes) in &self.played.views {
            if bytes.len() as u64 != end {
                return Err(format!("{name} has {} bytes instead of {end}", bytes.len()));
            }
            self.check_bytes(None, 0, bytes).map_err(|why| format!("{name}: {why}"))?;
        }
        Ok(())
    }

    fn check_request(&self, index: usize, it: &Request, outcome: &Outcome) -> Result<(), String> {
        let (at, end) = self.ranges[index];
        let expected = match it.kind {
            Kind::Read => end.min(self.sizes[index]).saturating_sub(at),
            _ => end - at,
        };
        if self.may_fail[index] && outcome.res == -i64::from(libc::EIO) {
            return Ok(());
        }
        if outcome.res != expected as i64 {
            return Err(format!("result {} instead of {expected} of\n{it}", outcome.res));
        }
        if it.kind != Kind::Read {
            return Ok(());
        }
        let (read, rest) = outcome.bytes.split_at(expected as usize);
        // A direct read may change bytes of its buffer behind those that it returns.
        if !it.direct && rest.iter().any(|byte| *byte != play::UNTOUCHED) {
            return Err(format!("bytes behind the end in the buffer of\n{it}"));
        }
        self.check_bytes(Some(index), at, read).map_err(|why| format!("{why} in\n{it}"))
    }

    fn check_bytes(&self, reader: Option<usize>, at: u64, bytes: &[u8]) -> Result<(), String> {
        let end = at + bytes.len() as u64;
        let mut cuts = vec![at, end];
        let edges = self.ranges.iter().flat_map(|(from, to)| {
            let whole = pages((*from, *to));
            [*from, *to, whole.0, whole.1]
        });
        let size = self.script.size;
        let pages = (0..self.script.pages.len() as u64).map(|page| page * PAGE);
        cuts.extend(edges.chain(pages).chain([size, size / PAGE * PAGE]));
        cuts.retain(|cut| (at..=end).contains(cut));
        cuts.sort_unstable();
        cuts.dedup();
        for cut in cuts.windows(2) {
            let values = self.values(reader, cut[0]);
            let part = &bytes[(cut[0] - at) as usize..(cut[1] - at) as usize];
            // If all bytes of a part are equal, the check of one byte suffices.
            let looked_at = if part[1..] == part[..part.len() - 1] { &part[..1] } else { part };
            if let Some(wrong) = looked_at.iter().position(|byte| !values[usize::from(*byte)]) {
                let at = cut[0] + wrong as u64;
                let legal: Vec<_> = (0..256).filter(|value| values[*value]).map(name).collect();
                let (page, rest) = (at / PAGE, at % PAGE);
                let found = name(usize::from(looked_at[wrong]));
                let legal = legal.join(" or ");
                return Err(format!("{found} instead of {legal} at page {page} + {rest}"));
            }
        }
        Ok(())
    }

    /// Returns the possible values of a byte, in the read `reader` or at the end of the script.
    fn values(&self, reader: Option<usize>, at: u64) -> Values {
        let writes = (0..self.ranges.len())
            .filter(|i| self.script.requests[*i].writes() && contains(self.ranges[*i], at));
        let writes: Vec<usize> = writes.collect();
        // The write certainly takes effect before the reader, and no buffered write to other bytes
        // of the page may overwrite its byte.
        let is_sure = |i: &usize| {
            reader.is_none_or(|it| self.before[*i][it]) && !self.may_be_taken_out(*i, at)
        };
        let sure: Vec<usize> = writes.iter().copied().filter(is_sure).collect();
        let mut values = [false; 256];
        values[usize::from(play::before(self.script, at))] = sure.is_empty();
        for i in writes {
            let comes_later = reader.is_some_and(|it| self.before[it][i]);
            let covered = sure.iter().any(|j| self.before[i][*j]);
            values[usize::from(self.script.requests[i].value())] |= !comes_later && !covered;
        }
        values
    }

    /// Returns `true` if a buffered write of other bytes of the page may overwrite the byte at `at`
    /// of the direct write `write`.
    fn may_be_taken_out(&self, write: usize, at: u64) -> bool {
        self.partly[write].iter().any(|it| {
            let (from, to) = self.ranges[*it];
            contains(pages((from, to)), at) && !contains((from, to), at)
        })
    }
}

/// Returns the pages that contain the bytes, as a range of bytes.
fn pages((from, to): (u64, u64)) -> (u64, u64) {
    (from / PAGE * PAGE, to.next_multiple_of(PAGE))
}

fn contains((from, to): (u64, u64), at: u64) -> bool {
    (from..to).contains(&at)
}

fn name(value: usize) -> String {
    match value as u8 {
        0 => "zeroes".to_owned(),
        play::OLD => "old bytes".to_owned(),
        play::UNTOUCHED => "nothing".to_owned(),
        value => format!("what {} wrote", value - 1),
    }
}
