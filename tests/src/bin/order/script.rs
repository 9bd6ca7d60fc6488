//! The script of one run: the state of the file before, and the requests in their order.

use std::fmt;

use crate::rule::Rule;

/// Size of a page of the page cache, and of a block of the file systems.
pub(crate) const PAGE: u64 = 4096;
/// Offsets and lengths of direct requests are multiples of this size.
pub(crate) const SECTOR: u64 = 512;
/// The most pages that a script's file has before the requests. Requests may reach beyond them.
pub(crate) const PAGES: u64 = 96;
/// Bytes of the longest request.
const LEN_MAX: u64 = 64 * PAGE;
/// The most requests of a script. Each request that writes has a byte value of its own.
pub(crate) const REQUESTS_MAX: u64 = 32;
pub(crate) const THREADS_MAX: u64 = 3;
pub(crate) const CONTEXTS: u64 = 2;

/// xorshift64* (Vigna 2016).
#[derive(Debug, Clone)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self((seed + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 16) % end
    }

    pub(crate) fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    fn weighted(&mut self, weights: &[u64]) -> usize {
        let mut left = self.below(weights.iter().sum());
        let index = weights.iter().position(|weight| match left.checked_sub(*weight) {
            Some(rest) => {
                left = rest;
                false
            }
            None => true,
        });
        index.expect("the sum is larger")
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Blocks {
    Hole,
    /// fallocate(2) has allocated the block, and nothing has written it.
    Unwritten,
    Written,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cached {
    No,
    Clean,
    Dirty,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Page {
    pub(crate) blocks: Blocks,
    pub(crate) cached: Cached,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Read,
    Write,
    Append,
    Sync,
}

#[derive(Debug, Clone)]
pub(crate) struct Request {
    /// The request's number in the script, which stays the same when other requests are left out.
    pub(crate) number: usize,
    pub(crate) kind: Kind,
    pub(crate) direct: bool,
    /// The offset where a read or write begins; an append begins at the end of the file instead.
    pub(crate) at: u64,
    pub(crate) len: u64,
    /// Bytes of a part of the request's vector; 0: no vector. The last part may be shorter.
    pub(crate) part: u64,
    pub(crate) thread: usize,
    /// The index of one of its thread's contexts.
    pub(crate) context: usize,
    /// The thread first takes all events of its earlier requests.
    pub(crate) waits: bool,
    /// The thread submits this request and the thread's previous request in one io_submit, if both
    /// have the same context and this request does not wait.
    pub(crate) joined: bool,
}

impl Request {
    pub(crate) fn writes(&self) -> bool {
        matches!(self.kind, Kind::Write | Kind::Append)
    }

    /// Returns the byte with which the request fills its range.
    pub(crate) fn value(&self) -> u8 {
        self.number as u8 + 1
    }
}

#[derive(Debug, Clone)]
pub(crate) struct Script {
    pub(crate) seed: u64,
    pub(crate) size: u64,
    pub(crate) pages: Vec<Page>,
    pub(crate) requests: Vec<Request>,
}

/// The frequencies from which the requests of a script are drawn.
struct Style {
    kinds: [u64; 4],
    direct: u64,
    vectors: u64,
    waits: u64,
    joined: u64,
    batch: u64,
    threads: u64,
    contexts: u64,
}

impl Style {
    fn draw(random: &mut Random) -> Self {
        let mut often = |usual: u64| [0, usual, usual, 3 * usual][random.below(4) as usize];
        let kinds = [3 + often(6), 3 + often(8), often(2), often(1)];
        let of = |random: &mut Random, shares: [u64; 4]| shares[random.below(4) as usize];
        Self {
            kinds,
            direct: of(random, [0, 40, 60, 100]),
            vectors: of(random, [0, 0, 20, 60]),
            waits: of(random, [0, 5, 10, 30]),
            joined: of(random, [0, 50, 80, 100]),
            batch: of(random, [2, 2, 2, REQUESTS_MAX]),
            threads: if random.chance(70) { 1 } else { 2 + random.below(THREADS_MAX - 1) },
            contexts: if random.chance(60) { 1 } else { CONTEXTS },
        }
    }
}

impl Script {
    /// Draws the script of this seed, with 2 to `requests_max` requests.
    pub(crate) fn draw(seed: u64, requests_max: u64, rule: Rule) -> Self {
        let mut random = Random::new(seed);
        let pages = draw_pages(&mut random);
        let size = draw_size(&mut random);
        let style = Style::draw(&mut random);
        let count = 2 + random.below(requests_max.min(REQUESTS_MAX) - 1);
        let mut script = Self { seed, size, pages, requests: Vec::new() };
        for number in 0..count as usize {
            let end = script.reach().1.last().copied().unwrap_or(size);
            let request = script.draw_request(&mut random, &style, (number, end));
            script.requests.push(request);
        }
        script.settle(rule);
        script
    }

    /// Returns the script's seed and the numbers of its requests, as arguments of `order again`.
    pub(crate) fn line(&self) -> String {
        let numbers: Vec<_> = self.requests.iter().map(|it| it.number.to_string()).collect();
        format!("{} {}", self.seed, numbers.join(","))
    }

    /// Returns the ranges of bytes of the requests, and the lengths of the file after each request.
    pub(crate) fn reach(&self) -> (Vec<(u64, u64)>, Vec<u64>) {
        let mut size = self.size;
        let reach = |it: &Request| {
            let at = if it.kind == Kind::Append { size } else { it.at };
            let end = at + if it.kind == Kind::Sync { 0 } else { it.len };
            if it.writes() {
                size = size.max(end);
            }
            ((at, end), size)
        };
        self.requests.iter().map(reach).unzip()
    }

    /// Returns `true` if a direct write of these bytes may have to allocate blocks.
    pub(crate) fn allocates(&self, (from, to): (u64, u64)) -> bool {
        let mut pages = from / PAGE..to.div_ceil(PAGE);
        to > self.size / PAGE * PAGE
            || pages.any(|page| self.pages[page as usize].blocks != Blocks::Written)
    }

    /// Makes requests that depend on the end of the file wait for earlier direct writes on xfs,
    /// which make the file longer only at their events. So the results of the requests are known.
    fn settle(&mut self, rule: Rule) {
        if !rule.lengthens_late() {
            return;
        }
        let (ranges, sizes) = self.reach();
        // The certain end of the file.
        let (mut settled, mut size) = (self.size, self.size);
        for (index, it) in self.requests.iter_mut().enumerate().filter(|(_, it)| it.thread == 0) {
            let depends = it.kind == Kind::Append || ranges[index].1 > settled;
            if it.waits || settled < size && depends {
                it.waits = true;
                settled = size;
            }
            if !it.direct && it.writes() {
                settled = settled.max(ranges[index].1);
            }
            size = sizes[index];
        }
    }

    /// Draws a request. If a script has several threads, only requests of the first thread may
    /// change or reach the end of the file, so that the length of each result is known.
    fn draw_request(
        &self,
        random: &mut Random,
        style: &Style,
        (number, end): (usize, u64),
    ) -> Request {
        let floor = self.size / PAGE * PAGE;
        let threads = if floor == 0 { 1 } else { style.threads };
        let thread = random.below(threads) as usize;
        let kinds = [Kind::Read, Kind::Write, Kind::Append, Kind::Sync];
        let mut kind = kinds[random.weighted(&style.kinds)];
        if kind == Kind::Append && thread > 0 {
            kind = Kind::Write;
        }
        let mut direct = random.chance(style.direct);
        if kind == Kind::Append && !end.is_multiple_of(SECTOR) {
            direct = false;
        }
        let quantum = match (direct, random.below(10)) {
            (true, 0) => SECTOR,
            (true, _) | (false, 0..5) => PAGE,
            (false, _) => 1,
        };
        let (at, len) = self.draw_place(random, end, quantum);
        let (at, len) = if thread == 0 {
            (at, len)
        } else {
            let at = at.min(floor - PAGE);
            (at, len.min(floor - at))
        };
        let part = match random.chance(style.vectors) {
            true => len.div_ceil(1 + random.below(4)).next_multiple_of(quantum),
            false => 0,
        };
        let context = random.below(style.contexts) as usize;
        let (waits, joined) = (random.chance(style.waits), random.chance(style.joined));
        let own = self.requests.iter().rev().filter(|it| it.thread == thread);
        let batch = 1 + own.take_while(|it| it.joined).count() as u64;
        let joined = joined && batch < style.batch;
        Request { number, kind, direct, at, len, part, thread, context, waits, joined }
    }

    fn draw_place(&self, random: &mut Random, end: u64, quantum: u64) -> (u64, u64) {
        let len = match random.below(10) {
            0..3 => 1 + random.below(200),
            3..8 => PAGE * (1 + random.below(4)),
            8 => 1 + random.below(8 * PAGE),
            _ => PAGE * (1 + random.below(LEN_MAX / PAGE)),
        };
        let near = match (random.below(10), self.requests.last()) {
            (0..5, Some(_)) => {
                let other = &self.requests[random.below(self.requests.len() as u64) as usize];
                other.at + random.below(other.len + PAGE)
            }
            (5..7, _) => end.saturating_sub(2 * PAGE) + random.below(4 * PAGE),
            _ => random.below(PAGES * PAGE),
        };
        let at = near.saturating_sub(random.below(2) * random.below(len));
        let at = at.min(PAGES * PAGE) / quantum * quantum;
        (at, len.next_multiple_of(quantum))
    }

    /// Returns the script with only these requests; `None` if a direct append would begin within a
    /// sector.
    pub(crate) fn only(&self, numbers: &[usize], rule: Rule) -> Option<Self> {
        let requests = self.requests.iter().filter(|it| numbers.contains(&it.number)).cloned();
        let mut script = Self { requests: requests.collect(), ..self.clone() };
        let starts = script.reach().0;
        let is_legal = |(it, (at, _)): (&Request, &(u64, u64))| {
            !it.direct || it.kind == Kind::Sync || at.is_multiple_of(SECTOR)
        };
        let legal = script.requests.iter().zip(&starts).all(is_legal);
        script.settle(rule);
        legal.then_some(script)
    }
}

fn draw_pages(random: &mut Random) -> Vec<Page> {
    let blocks = [Blocks::Written, Blocks::Written, Blocks::Hole, Blocks::Unwritten];
    let cached = [Cached::No, Cached::No, Cached::Clean, Cached::Dirty];
    let most = [1, 2, 16, PAGES][random.below(4) as usize];
    let (kinds, states) = (1 + random.below(4), 1 + random.below(4));
    let mut pages = Vec::new();
    while (pages.len() as u64) < PAGES {
        let blocks = blocks[random.below(kinds) as usize];
        let cached = cached[random.below(states) as usize];
        // Single pages between long runs often make a difference.
        let run = if random.chance(30) { 1 } else { 1 + random.below(most) };
        pages.extend((0..run).map(|_| Page { blocks, cached }));
    }
    pages.truncate(PAGES as usize);
    pages
}

fn draw_size(random: &mut Random) -> u64 {
    match random.below(6) {
        0 => 0,
        1 => random.below(PAGES * PAGE),
        2 => PAGE * (1 + random.below(PAGES)),
        _ => PAGES * PAGE,
    }
}

impl fmt::Display for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let way = if self.direct { "direct" } else { "buffered" };
        let (kind, len, at) = (self.kind, self.len, self.at);
        write!(f, "{:3}: thread {}, ", self.number, self.thread)?;
        write!(f, "context {}: ", self.context)?;
        match kind {
            Kind::Sync => write!(f, "fsync")?,
            Kind::Append => write!(f, "{way} append of {len}")?,
            Kind::Read | Kind::Write => {
                let name = if kind == Kind::Read { "read" } else { "write" };
                write!(f, "{way} {name} of {len} at {at} (page {} + {})", at / PAGE, at % PAGE)?;
            }
        }
        if self.part > 0 && kind != Kind::Sync {
            write!(f, ", in parts of {}", self.part)?;
        }
        let joined = if self.joined { ", same io_submit" } else { "" };
        let waits = if self.waits { ", waits for all before" } else { "" };
        write!(f, "{joined}{waits}")
    }
}

impl fmt::Display for Script {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "seed {}: a file of {} bytes; pages", self.seed, self.size)?;
        let mut from = 0;
        for run in self.pages.chunk_by(|one, other| one == other) {
            let Page { blocks, cached } = run[0];
            let cached = match cached {
                Cached::No => "",
                Cached::Clean => ", cached",
                Cached::Dirty => ", dirty",
            };
            write!(f, " {from}-{} {blocks:?}{cached};", from + run.len() - 1)?;
            from += run.len();
        }
        self.requests.iter().try_for_each(|request| write!(f, "\n{request}"))
    }
}
