//! Traces of accesses. Random ones are drawn from fixed seeds. A key is the first page of a folio.

/// xorshift64, Marsaglia 2003.
pub(crate) struct Prng(u64);

impl Prng {
    pub(crate) fn new(seed: u64) -> Prng {
        Prng(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }
}

/// Draws a number n below a length, with a chance proportional to 1 / (n + 1)^skew.
pub(crate) struct Zipf {
    sums: Vec<f64>,
}

impl Zipf {
    pub(crate) fn new(len: u64, skew: f64) -> Zipf {
        let mut sum = 0.0;
        let chance = |n: u64| {
            sum += 1.0 / (n as f64).powf(skew);
            sum
        };
        Zipf { sums: (1..=len).map(chance).collect() }
    }

    pub(crate) fn draw(&self, prng: &mut Prng) -> u64 {
        let point = prng.next() as f64 / u64::MAX as f64 * self.sums[self.sums.len() - 1];
        self.sums.partition_point(|sum| *sum < point).min(self.sums.len() - 1) as u64
    }
}

#[derive(Clone, Copy)]
pub(crate) struct Access {
    pub(crate) key: u64,
    pub(crate) frames: u16,
    /// A hit counts, because the request touches the folio's first page.
    pub(crate) counts: bool,
    /// After a miss, the folio is read ahead and then hit at once.
    pub(crate) read_ahead: bool,
}

impl Access {
    pub(crate) fn page(key: u64) -> Access {
        Access { key, frames: 1, counts: true, read_ahead: false }
    }

    /// 4 KiB requests that read a 64 KiB folio in order.
    pub(crate) fn sequential(key: u64) -> impl Iterator<Item = Access> {
        (0..16).map(move |n| Access { key, frames: 16, counts: n == 0, read_ahead: n == 0 })
    }
}

/// The distance of the keys of the parts of a trace.
const PART: u64 = 1 << 40;

/// Each trace has about `length` requests, and most use about `footprint` frames.
pub(crate) fn all(footprint: u32, frames: u32, length: usize) -> Vec<(&'static str, Vec<Access>)> {
    let footprint = u64::from(footprint);
    vec![
        ("zipf 0.8", zipf(footprint, 0.8, length)),
        ("zipf 1.0", zipf(footprint, 1.0, length)),
        ("zipf 1.2", zipf(footprint, 1.2, length)),
        ("hot index + table scan", index_and_scan(footprint, length)),
        ("loop 1.1 × cache", around(u64::from(frames) * 11 / 10, length)),
        ("loop 1.1 × cache, 64 KiB", around_folios(u64::from(frames) * 11 / 10, length)),
        ("OLTP-like", oltp(footprint, length)),
        ("hot set + stream", stream(footprint, length)),
        ("working set shifts", shifts(footprint, u64::from(frames), length)),
        ("sizes 1 to 64 frames", sizes(footprint, length)),
    ]
}

fn zipf(footprint: u64, skew: f64, length: usize) -> Vec<Access> {
    let (mut prng, zipf) = (Prng::new(1), Zipf::new(footprint, skew));
    (0..length).map(|_| Access::page(zipf.draw(&mut prng))).collect()
}

/// A tenth of the footprint is an index, read by zipf. The rest is a table, which half of the
/// requests scan again and again.
fn index_and_scan(footprint: u64, length: usize) -> Vec<Access> {
    let (index, table) = (footprint / 10, footprint / 10 * 9);
    let (mut prng, zipf) = (Prng::new(2), Zipf::new(index, 0.7));
    let scan = (0..table / 16).cycle().flat_map(|n| Access::sequential(PART + n * 16));
    let mut trace = Vec::with_capacity(length);
    for one in scan.take(length / 2) {
        trace.push(one);
        trace.push(Access::page(zipf.draw(&mut prng)));
    }
    trace
}

fn around(pages: u64, length: usize) -> Vec<Access> {
    (0..pages).cycle().take(length).map(Access::page).collect()
}

fn around_folios(pages: u64, length: usize) -> Vec<Access> {
    let folios = (0..(pages / 16).max(1)).cycle();
    folios.flat_map(|n| Access::sequential(n * 16)).take(length).collect()
}

/// Each transaction reads an inner node and a leaf, which is drawn by zipf. About one in 4 also
/// appends to a log, and about one in 200 reads a range of leaves.
fn oltp(footprint: u64, length: usize) -> Vec<Access> {
    let (inner, leaves) = (footprint / 200, footprint);
    let (mut prng, zipf) = (Prng::new(3), Zipf::new(leaves, 0.9));
    let mut log = (0..).flat_map(|n| Access::sequential(PART + n * 16));
    let mut trace = Vec::with_capacity(length);
    while trace.len() < length {
        let leaf = zipf.draw(&mut prng);
        trace.push(Access::page(2 * PART + leaf * inner / leaves));
        trace.push(Access::page(leaf));
        if prng.below(4) == 0 {
            trace.extend(log.next());
        }
        if prng.below(200) == 0 {
            trace.extend((0..32).map(|n| Access::page((leaf + n) % leaves)));
        }
    }
    trace
}

/// Half of the requests read a hot set, a tenth of the footprint, by zipf. The others read each
/// folio of a stream once.
fn stream(footprint: u64, length: usize) -> Vec<Access> {
    let (mut prng, zipf) = (Prng::new(4), Zipf::new(footprint / 10, 0.8));
    let stream = (0..).flat_map(|n| Access::sequential(PART + n * 16));
    let pairs = stream.take(length / 2);
    pairs.flat_map(|one| [one, Access::page(zipf.draw(&mut prng))]).collect()
}

/// Nine tenths of the requests go evenly to a set of 80 % of the cache; after a while, to the next
/// set. The others go anywhere in the footprint.
fn shifts(footprint: u64, frames: u64, length: usize) -> Vec<Access> {
    let (mut prng, set) = (Prng::new(5), (frames * 8 / 10).max(1));
    let stay = (set as usize * 10).min(length / 4);
    let place = |n: usize| (n / stay) as u64 * set;
    let draw = |n: usize| match prng.below(10) {
        0 => prng.below(footprint),
        _ => (place(n) + prng.below(set)) % footprint,
    };
    (0..length).map(draw).map(Access::page).collect()
}

fn sizes(footprint: u64, length: usize) -> Vec<Access> {
    let objects = footprint / 18; // frames in the mean
    let (mut prng, zipf) = (Prng::new(6), Zipf::new(objects, 0.9));
    let size =
        |key: u64| [1, 1, 4, 4, 16, 16, 64][(key.wrapping_mul(0x9e37_79b9) >> 8) as usize % 7];
    let draw = |_| {
        let key = zipf.draw(&mut prng);
        Access { frames: size(key), ..Access::page(key * 64) }
    };
    (0..length).map(draw).collect()
}
