//! From values to positions.

use crate::units;

/// How values become positions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::report) enum Scale {
    /// From zero, so that lengths of bars may be compared.
    Linear,
    /// By powers of ten; no bars, for there is no zero.
    Log,
    /// Logarithmic and no wider than the values and one: for ratios.
    Ratio,
}

/// More marks than this stand too close.
const MARKS_MAX: usize = 7;

/// The range of an axis, with its marks, from position `from` to position `to`.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Axis {
    pub(super) scale: Scale,
    pub(super) marks: Vec<f64>,
    low: f64,
    high: f64,
    from: f64,
    to: f64,
}

impl Axis {
    /// Chooses a range for the values, with marks that are round in their unit; `None` if there are
    /// none that can be drawn.
    pub(super) fn over(scale: Scale, unit: &str, values: &[f64]) -> Option<Self> {
        let drawable = |value: &f64| value.is_finite() && (scale == Scale::Linear || *value > 0.0);
        let low = values.iter().copied().filter(drawable).reduce(f64::min)?;
        let high = values.iter().copied().filter(drawable).reduce(f64::max)?;
        Some(match scale {
            Scale::Linear => Self::linear(high, base(unit, high)),
            Scale::Log => Self::log(low, high),
            Scale::Ratio => Self::ratio(low.min(1.0), high.max(1.0)),
        })
    }

    /// Puts it between two positions.
    pub(super) fn between(self, from: f64, to: f64) -> Self {
        Self { from, to, ..self }
    }

    fn new(scale: Scale, low: f64, high: f64, marks: Vec<f64>) -> Self {
        Self { scale, marks, low, high, from: 0.0, to: 1.0 }
    }

    fn linear(high: f64, base: f64) -> Self {
        let high = if high > 0.0 { high } else { 1.0 };
        let magnitude = 10_f64.powf((high / base / 4.0).log10().floor());
        let steps = [1.0, 2.0, 2.5, 5.0, 10.0].map(|factor| factor * magnitude * base);
        let step = steps.into_iter().find(|step| high / step <= 5.0).unwrap_or(high);
        let marks = (0..=5).map(|n| f64::from(n) * step).filter(|mark| *mark <= high).collect();
        Self::new(Scale::Linear, 0.0, high * 1.03, marks)
    }

    fn log(low: f64, high: f64) -> Self {
        let (first, last) = (low.log10().floor() as i32, high.log10().ceil() as i32);
        let last = last.max(first + 1);
        let all: Vec<f64> = (first..=last).map(|power| 10_f64.powi(power)).collect();
        let marks = thin(&all);
        Self::new(Scale::Log, 10_f64.powi(first), 10_f64.powi(last), marks)
    }

    fn ratio(low: f64, high: f64) -> Self {
        // At least a tenth to either side, so that nothing looks like much.
        let (low, high) = (low.min(1.0 / 1.1) * 0.97, high.max(1.1) * 1.03);
        let span = high / low;
        let steps: &[f64] = match span {
            span if span < 3.0 => &[1.0, 1.1, 1.2, 1.3, 1.5, 1.7, 2.0, 2.5],
            span if span < 300.0 => &[1.0, 2.0, 5.0],
            _ => &[1.0],
        };
        let mut marks = vec![];
        for power in -9..=9 {
            marks.extend(steps.iter().map(|step| step * 10_f64.powi(power)));
        }
        // Below one, what is as far away as the marks above it.
        if span < 3.0 {
            marks.extend([0.4, 0.5, 0.6, 0.7, 0.8, 0.9]);
        }
        marks.retain(|mark| (low..=high).contains(mark));
        marks.sort_unstable_by(f64::total_cmp);
        marks.dedup_by(|a, b| (*a / *b - 1.0).abs() < 1e-6);
        Self::new(Scale::Ratio, low, high, thin(&marks))
    }

    /// Returns the position of a value; what cannot be drawn lies on the edge.
    pub(super) fn position(&self, value: f64) -> f64 {
        let share = match self.scale {
            Scale::Linear => value / self.high,
            Scale::Log | Scale::Ratio => {
                (value.max(self.low) / self.low).log10() / (self.high / self.low).log10()
            }
        };
        self.from + share.clamp(0.0, 1.0) * (self.to - self.from)
    }
}

/// Returns what is counted in: bytes go by powers of 1024.
fn base(unit: &str, high: f64) -> f64 {
    let is_bytes = matches!(unit, "B" | "B/s") && high >= 1.0;
    if is_bytes { 1024_f64.powf((high.log2() / 10.0).floor()) } else { 1.0 }
}

/// Leaves every other mark, or fewer, and one if it is among them.
fn thin(marks: &[f64]) -> Vec<f64> {
    let every = marks.len().div_ceil(MARKS_MAX).max(1);
    let one = marks.iter().position(|mark| (mark - 1.0).abs() < 1e-9).unwrap_or(0);
    let kept = marks.iter().enumerate().filter(|(index, _)| index % every == one % every);
    kept.map(|(_, mark)| *mark).collect()
}

/// Prints a mark of the axis: a figure without needless zeros.
pub(super) fn mark_text(unit: &str, value: f64) -> String {
    // Units that stand in the title need no place at each mark.
    let unit = if unit == "MB/s" { "" } else { unit };
    let text = units::with_unit(unit, value);
    let (number, unit) = text.split_once(' ').map_or((text.as_str(), ""), |(n, unit)| (n, unit));
    let number = if number.contains('.') {
        number.trim_end_matches('0').trim_end_matches('.')
    } else {
        number
    };
    format!("{number} {unit}").trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn axis(scale: Scale, values: &[f64]) -> Axis {
        Axis::over(scale, "1", values).expect("drawable").between(100.0, 600.0)
    }

    #[test]
    fn a_logarithmic_axis_spans_whole_decades() {
        let axis = axis(Scale::Log, &[3.0, 0.0, 4200.0]);
        assert_eq!((axis.low, axis.high), (1.0, 10_000.0));
        assert_eq!(axis.marks.len(), 5);
        assert_eq!(axis.position(0.0), 100.0);
        assert_eq!(axis.position(10_000.0), 600.0);
    }

    #[test]
    fn a_linear_axis_starts_at_zero_and_has_few_marks() {
        for high in [0.003, 1.0, 19_800.0, 1.2e6] {
            let axis = axis(Scale::Linear, &[high]);
            assert_eq!(axis.position(0.0), 100.0);
            assert!((3..=6).contains(&axis.marks.len()), "{high}: {:?}", axis.marks);
        }
    }

    #[test]
    fn an_axis_of_ratios_holds_one_and_has_few_marks() {
        for values in [[0.98, 1.02], [0.2, 0.5], [3.0, 900.0], [1e-4, 1e4]] {
            let axis = axis(Scale::Ratio, &values);
            let one = |mark: &f64| (mark - 1.0).abs() < 1e-9;
            assert!(axis.marks.iter().any(one), "{values:?}: {:?}", axis.marks);
            assert!((2..=MARKS_MAX).contains(&axis.marks.len()), "{values:?}: {:?}", axis.marks);
            assert!(axis.position(1.0) > 100.0 && axis.position(1.0) < 600.0, "{values:?}");
        }
    }

    #[test]
    fn nothing_measured_has_no_axis() {
        assert!(Axis::over(Scale::Log, "us", &[0.0]).is_none());
        assert!(Axis::over(Scale::Linear, "us", &[]).is_none());
        assert!(Axis::over(Scale::Linear, "us", &[f64::NAN]).is_none());
    }

    #[test]
    fn marks_of_bytes_are_round_in_powers_of_1024() {
        let texts = |high| {
            let axis = Axis::over(Scale::Linear, "B/s", &[high]).expect("drawable");
            axis.marks.iter().map(|mark| mark_text("B/s", *mark)).collect::<Vec<_>>()
        };
        assert_eq!(texts(336.0 * 1_048_576.0)[1..], ["100 MiB/s", "200 MiB/s", "300 MiB/s"]);
        assert_eq!(texts(6.5 * 1_048_576.0)[1..], ["2 MiB/s", "4 MiB/s", "6 MiB/s"]);
        assert_eq!(texts(0.0)[0], "0 B/s");
    }

    #[test]
    fn a_mark_has_no_needless_zeros() {
        assert_eq!(mark_text("us", 100.0), "100 µs");
        assert_eq!(mark_text("1/s", 20_000.0), "20 k");
        assert_eq!(mark_text("1", 0.5), "0.5");
    }
}
