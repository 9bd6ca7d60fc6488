//! A small set of combinations in which every pair of values meets.

/// Combinations of indices into parameters with `sizes` values each, such that every pair of
/// values of two parameters occurs; all combinations when `everything` is asked for.
pub fn combinations(sizes: &[usize], everything: bool) -> Vec<Vec<usize>> {
    let all = product(sizes);
    if everything {
        return all;
    }
    let mut missing = all.iter().flat_map(|row| pairs(row)).collect::<Vec<_>>();
    missing.sort_unstable();
    missing.dedup();
    let mut chosen = Vec::new();
    while !missing.is_empty() {
        let gain = |row: &&Vec<usize>| {
            pairs(row).filter(|pair| missing.binary_search(pair).is_ok()).count()
        };
        // `max_by_key` takes the last of equals: deterministic, so a failure can be repeated.
        let best = all.iter().max_by_key(gain).expect("some combination");
        missing.retain(|pair| !pairs(best).any(|covered| covered == *pair));
        chosen.push(best.clone());
    }
    chosen
}

fn product(sizes: &[usize]) -> Vec<Vec<usize>> {
    sizes.iter().fold(vec![Vec::new()], |rows, size| {
        let extended = |row: &Vec<usize>, value| row.iter().copied().chain([value]).collect();
        rows.iter().flat_map(|row| (0..*size).map(move |value| extended(row, value))).collect()
    })
}

type Pair = (usize, usize, usize, usize);

fn pairs(row: &[usize]) -> impl Iterator<Item = Pair> {
    (0..row.len()).flat_map(move |a| (a + 1..row.len()).map(move |b| (a, row[a], b, row[b])))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_pair_of_values_meets_in_few_rows() {
        let sizes = [3, 4, 2, 3];
        let rows = combinations(&sizes, false);
        assert!(rows.len() <= 16, "{} rows", rows.len());
        for (a, size_a) in sizes.iter().enumerate() {
            for (b, size_b) in sizes.iter().enumerate().skip(a + 1) {
                for (x, y) in (0..*size_a).flat_map(|x| (0..*size_b).map(move |y| (x, y))) {
                    assert!(rows.iter().any(|row| row[a] == x && row[b] == y), "{a}={x} {b}={y}");
                }
            }
        }
    }

    #[test]
    fn everything_is_the_product() {
        assert_eq!(combinations(&[3, 2, 2], true).len(), 12);
    }
}
