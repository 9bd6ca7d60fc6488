//! The figures of the sources beside the simulated ones.

/// One experiment of a source.
#[derive(Clone, Debug, PartialEq)]
pub struct Table {
    /// The row of the list of mechanisms, such as `M1`.
    pub row: &'static str,
    /// The subject of the table, and its source.
    pub title: String,
    /// Facts that a reader must know.
    pub notes: Vec<String>,
    /// The figures.
    pub rows: Vec<Row>,
}

/// A figure of a source, or what the source says instead.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Source {
    /// Figures before and after, in the unit of the row.
    Figures(f64, f64),
    /// Only the ratio: the figure after, divided by the figure before.
    Ratio(f64),
    /// A range of figures of the baseline.
    Between(f64, f64),
    /// The comparison of the source, in words.
    Said(&'static str),
    /// The source gives no figure.
    Silent,
}

/// The place of a figure in a plot against the block size.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Point {
    /// The block size in bytes.
    pub block_bytes: u64,
    /// The work, such as `random read`.
    pub plot: &'static str,
    /// The mode in which requests are made.
    pub series: &'static str,
    /// The quantity that is measured.
    pub quantity: &'static str,
}

/// A figure, as the source has it and as the simulation gives it.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// The subject of the figure.
    pub what: String,
    /// The unit of the figures.
    pub unit: &'static str,
    /// `true` if more is better.
    pub more_is_better: bool,
    /// The source's figures.
    pub source: Source,
    /// The row's place in a plot against the block size, if there is one.
    pub point: Option<Point>,
    /// The simulated figure of the baseline.
    pub baseline: f64,
    /// The simulated figure of nowait.
    pub nowait: f64,
}

impl Source {
    /// Returns the figure after, divided by the figure before; `None` if the source gives neither
    /// the two nor their ratio.
    pub fn ratio(self) -> Option<f64> {
        match self {
            Source::Figures(before, after) => Some(after / before),
            Source::Ratio(ratio) => Some(ratio),
            Source::Between(..) | Source::Said(_) | Source::Silent => None,
        }
    }
}

impl Row {
    pub(crate) fn new(
        what: impl Into<String>,
        (unit, more_is_better): (&'static str, bool),
        source: Source,
        (baseline, nowait): (f64, f64),
    ) -> Self {
        let (what, point) = (what.into(), None);
        Self { what, unit, more_is_better, source, point, baseline, nowait }
    }

    /// Returns the figure of nowait divided by that of the baseline, both simulated.
    pub fn ratio(&self) -> f64 {
        self.nowait / self.baseline
    }

    /// Returns `true` if nowait reaches the claim of the source, within 2 %; `None` if the source
    /// makes no claim.
    ///
    /// The ratio must be as good as the source's ratio. If the source has a range of the baseline,
    /// nowait must not be worse than the bad end of the range. If the source has words, nowait must
    /// not be worse than the simulated baseline.
    pub fn is_met(&self) -> Option<bool> {
        let (here, wanted) = match self.source {
            Source::Figures(..) | Source::Ratio(_) => (self.ratio(), self.source.ratio()?),
            Source::Between(low, high) => {
                (self.nowait, if self.more_is_better { low } else { high })
            }
            Source::Said(_) => (self.ratio(), 1.0),
            Source::Silent => return None,
        };
        Some(match self.more_is_better {
            true => here >= wanted * 0.98,
            false => here <= wanted * 1.02,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ratio_is_met_in_the_direction_that_is_better() {
        let source = Source::Figures(10.0, 20.0);
        let row = |more, nowait| Row::new("", ("", more), source, (100.0, nowait));
        assert_eq!(row(true, 210.0).is_met(), Some(true));
        assert_eq!(row(true, 150.0).is_met(), Some(false));
        assert_eq!(row(false, 150.0).is_met(), Some(true));
        assert_eq!(Row { source: Source::Silent, ..row(true, 1.0) }.is_met(), None);
    }

    #[test]
    fn a_range_and_words_are_judged_too() {
        let row = |source, nowait| Row::new("", ("× sync", false), source, (1.22, nowait));
        let range = Source::Between(1.10, 1.20);
        assert_eq!(row(range, 1.17).is_met(), Some(true), "inside");
        assert_eq!(row(range, 0.90).is_met(), Some(true), "better");
        assert_eq!(row(range, 1.25).is_met(), Some(false));
        assert_eq!(row(Source::Said("more than 1"), 1.24).is_met(), Some(true), "to 2 %");
        assert_eq!(row(Source::Said("more than 1"), 1.30).is_met(), Some(false));
    }
}
