//! A small set of combinations in which each pair of values of two parameters occurs.

use std::collections::BTreeSet;

/// Value `.1` of parameter `.0`, together with value `.3` of the later parameter `.2`.
type Pair = (usize, usize, usize, usize);

pub(crate) fn product(sizes: &[usize]) -> Vec<Vec<usize>> {
    sizes.iter().fold(vec![Vec::new()], |rows, size| {
        let extended = |row: &Vec<usize>, value| row.iter().copied().chain([value]).collect();
        rows.iter().flat_map(|row| (0..*size).map(move |value| extended(row, value))).collect()
    })
}

/// Deterministic: the same sizes give the same rows, so a failure can be repeated.
pub(crate) fn covering(sizes: &[usize]) -> Vec<Vec<usize>> {
    let mut missing: BTreeSet<Pair> = product_of_pairs(sizes);
    let mut rows = Vec::new();
    while let Some(seed) = missing.first().copied() {
        let row = row_around(seed, sizes, &missing);
        for pair in pairs(&row) {
            missing.remove(&pair);
        }
        rows.push(row);
    }
    rows
}

/// Completes a row around `seed`: for each other parameter, takes a value that adds most missing
/// pairs to the row so far.
fn row_around(seed: Pair, sizes: &[usize], missing: &BTreeSet<Pair>) -> Vec<usize> {
    let mut row: Vec<Option<usize>> = vec![None; sizes.len()];
    row[seed.0] = Some(seed.1);
    row[seed.2] = Some(seed.3);
    for parameter in 0..sizes.len() {
        if row[parameter].is_some() {
            continue;
        }
        let gain = |value: &usize| {
            let with = |(other, set): (usize, &Option<usize>)| {
                let set = (*set)?;
                let pair = ordered((parameter, *value), (other, set));
                missing.contains(&pair).then_some(())
            };
            row.iter().enumerate().filter_map(with).count()
        };
        row[parameter] = (0..sizes[parameter]).max_by_key(gain);
    }
    row.into_iter().map(|value| value.expect("every parameter has a value")).collect()
}

fn product_of_pairs(sizes: &[usize]) -> BTreeSet<Pair> {
    let values = |parameter: usize| (0..sizes[parameter]).map(move |value| (parameter, value));
    let all: Vec<_> = (0..sizes.len()).flat_map(values).collect();
    let later = |one: &(usize, usize)| {
        let one = *one;
        all.iter().filter(move |other| other.0 > one.0).map(move |other| ordered(one, *other))
    };
    all.iter().flat_map(later).collect()
}

fn pairs(row: &[usize]) -> impl Iterator<Item = Pair> {
    (0..row.len()).flat_map(move |a| (a + 1..row.len()).map(move |b| (a, row[a], b, row[b])))
}

fn ordered(one: (usize, usize), other: (usize, usize)) -> Pair {
    let (first, second) = if one.0 < other.0 { (one, other) } else { (other, one) };
    (first.0, first.1, second.0, second.1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_pair_of_values_meets_in_few_rows() {
        let sizes = [4, 4, 3, 3, 2, 2, 2];
        let rows = covering(&sizes);
        assert!(rows.len() <= 24, "{} rows", rows.len());
        let met: BTreeSet<Pair> = rows.iter().flat_map(|row| pairs(row)).collect();
        assert_eq!(met, product_of_pairs(&sizes));
    }

    #[test]
    fn the_product_is_complete_and_free_of_repetitions() {
        let rows: BTreeSet<_> = product(&[3, 2, 2]).into_iter().collect();
        assert_eq!(rows.len(), 12);
    }
}
