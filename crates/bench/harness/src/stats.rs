//! Medians, their spread, and ratios with a bootstrap interval.
//!
//! Five runs say little about a mean, because one disturbed run moves it. So summaries are medians,
//! and a ratio is the median of the ratios *within* the rounds: runs of one round lie close
//! together in time and share most of the disturbance.

use crate::random::SplitMix;

const RESAMPLES: usize = 4000;

#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Summary {
    pub median: f64,
    pub min: f64,
    pub max: f64,
    /// Median absolute deviation from the median.
    pub mad: f64,
}

/// The ratio of two subjects, and the interval that contains its median with 95 % confidence.
#[derive(Debug, Clone, PartialEq)]
pub struct Ratio {
    pub median: f64,
    pub low: f64,
    pub high: f64,
    pub rounds: Vec<f64>,
}

pub fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    median_in_place(&mut sorted)
}

/// Returns a percentile of values in any order; `NaN` if there are none.
pub fn percentile(values: &[f64], part: f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    let rank = (sorted.len() as f64 * part).ceil() as usize;
    sorted.get(rank.saturating_sub(1)).copied().unwrap_or(f64::NAN)
}

fn median_in_place(values: &mut [f64]) -> Option<f64> {
    values.sort_unstable_by(f64::total_cmp);
    let middle = values.len() / 2;
    match values.len() {
        0 => None,
        n if n % 2 == 1 => Some(values[middle]),
        _ => Some(f64::midpoint(values[middle - 1], values[middle])),
    }
}

pub fn summarize(runs: &[f64]) -> Option<Summary> {
    let center = median(runs)?;
    let deviations: Vec<f64> = runs.iter().map(|run| (run - center).abs()).collect();
    Some(Summary {
        median: center,
        min: runs.iter().copied().fold(f64::INFINITY, f64::min),
        max: runs.iter().copied().fold(f64::NEG_INFINITY, f64::max),
        mad: median(&deviations)?,
    })
}

/// Returns `b / a` by rounds; `None` if a ratio is not finite or there is no round.
pub fn ratio(a: &[f64], b: &[f64]) -> Option<Ratio> {
    let rounds: Vec<f64> = a.iter().zip(b).map(|(a, b)| b / a).collect();
    if rounds.iter().any(|ratio| !ratio.is_finite()) {
        return None;
    }
    let center = median(&rounds)?;
    let (low, high) = bootstrap(&rounds);
    Some(Ratio { median: center, low, high, rounds })
}

#[derive(Debug, Clone, PartialEq)]
pub struct Unpaired {
    /// The median of `b` divided by that of `a`, with its interval; `None` if a resampled median of
    /// `a` is zero.
    pub ratio: Option<Ratio>,
    /// The interval of the difference of the medians, `b` less `a`.
    pub difference: (f64, f64),
}

/// `None`: a side is empty. The interval covers the noise within each side. It does not cover a
/// change between the measurements, such as a disk's neighbours. The ratio's `rounds` have no
/// meaning; only their number has.
pub fn unpaired(a: &[f64], b: &[f64]) -> Option<Unpaired> {
    let center = median(b)? / median(a)?;
    let mut random = SplitMix(0x636f_6d70_6172_6521);
    let mut drawn = (vec![0.0; a.len()], vec![0.0; b.len()]);
    let (mut ratios, mut differences) = (Vec::new(), Vec::with_capacity(RESAMPLES));
    for _ in 0..RESAMPLES {
        drawn.0.fill_with(|| a[random.below(a.len())]);
        drawn.1.fill_with(|| b[random.below(b.len())]);
        let medians = median_in_place(&mut drawn.0).zip(median_in_place(&mut drawn.1));
        ratios.extend(medians.map(|(a, b)| b / a));
        differences.extend(medians.map(|(a, b)| b - a));
    }
    let usable = center.is_finite() && ratios.iter().all(|ratio| ratio.is_finite());
    let ratio = usable.then(|| {
        let (low, high) = interval(&mut ratios);
        Ratio { median: center, low, high, rounds: vec![center; a.len().min(b.len())] }
    });
    Some(Unpaired { ratio, difference: interval(&mut differences) })
}

/// `values` must not be empty. The generator starts from a constant, so that a report can be
/// computed again.
fn bootstrap(values: &[f64]) -> (f64, f64) {
    let mut random = SplitMix(0x006e_6f77_6169_7421);
    let mut drawn = vec![0.0; values.len()];
    let mut medians = Vec::with_capacity(RESAMPLES);
    for _ in 0..RESAMPLES {
        for slot in &mut drawn {
            *slot = values[random.below(values.len())];
        }
        medians.extend(median_in_place(&mut drawn));
    }
    interval(&mut medians)
}

fn interval(resampled: &mut [f64]) -> (f64, f64) {
    resampled.sort_unstable_by(f64::total_cmp);
    let tail = RESAMPLES / 40; // 2.5 % on either side
    (resampled[tail], resampled[RESAMPLES - 1 - tail])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn median_of_odd_even_and_none() {
        assert_eq!(median(&[3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), Some(2.5));
        assert_eq!(median(&[]), None);
    }

    #[test]
    fn one_wild_run_moves_neither_median_nor_mad() {
        let summary = summarize(&[10.0, 11.0, 12.0, 13.0, 9000.0]).expect("five runs");
        assert_eq!(summary, Summary { median: 12.0, min: 10.0, max: 9000.0, mad: 1.0 });
    }

    #[test]
    fn ratio_is_taken_within_rounds() {
        // The machine becomes ten times slower in the last round; the ratio stays the same.
        let ratio = ratio(&[100.0, 100.0, 10.0], &[150.0, 150.0, 15.0]).expect("finite");
        assert_eq!((ratio.median, ratio.low, ratio.high), (1.5, 1.5, 1.5));
    }

    #[test]
    fn interval_holds_the_median_and_stays_inside_the_runs() {
        let ratio = ratio(&[1.0; 5], &[1.0, 1.2, 1.4, 1.6, 3.0]).expect("finite");
        assert_eq!(ratio.median, 1.4);
        assert!(ratio.low >= 1.0 && ratio.low < 1.4, "{ratio:?}");
        assert!(ratio.high > 1.4 && ratio.high <= 3.0, "{ratio:?}");
    }

    #[test]
    fn division_by_zero_is_no_ratio() {
        assert_eq!(ratio(&[0.0, 1.0], &[1.0, 1.0]), None);
        assert_eq!(ratio(&[], &[]), None);
    }

    #[test]
    fn runs_without_common_rounds_are_drawn_by_themselves() {
        let (a, b) = ([10.0, 11.0, 12.0, 13.0, 14.0], [20.0, 22.0, 24.0, 26.0, 28.0]);
        let both = unpaired(&a, &b).expect("runs on both sides");
        let ratio = both.ratio.expect("no zeros");
        assert_eq!((ratio.median, ratio.rounds.len()), (2.0, 5));
        assert!(ratio.low > 1.4 && ratio.low < 2.0 && ratio.high > 2.0 && ratio.high < 2.8);
        assert!(both.difference.0 > 5.0 && both.difference.1 < 19.0, "{:?}", both.difference);
        assert_eq!(unpaired(&a, &[]), None);
    }

    #[test]
    fn zeros_have_a_difference_and_no_ratio() {
        let both = unpaired(&[0.0; 5], &[3.0; 5]).expect("runs on both sides");
        assert_eq!((both.ratio, both.difference), (None, (3.0, 3.0)));
    }

    #[test]
    fn bootstrap_repeats_itself() {
        let runs = [1.0, 2.0, 4.0, 8.0, 16.0];
        assert_eq!(bootstrap(&runs), bootstrap(&runs));
    }

    #[test]
    fn percentiles_are_of_the_sorted_values() {
        let times: Vec<f64> = (1..=100).rev().map(f64::from).collect();
        let of = |part| percentile(&times, part);
        assert_eq!((of(0.5), of(0.99), of(1.0)), (50.0, 99.0, 100.0));
        assert!(percentile(&[], 0.5).is_nan());
    }
}
