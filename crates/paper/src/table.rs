//! The figures of a source beside the simulated ones.

/// One experiment of a source.
#[derive(Clone, Debug, PartialEq)]
pub struct Table {
    /// The row of the list of mechanisms, such as `M1`.
    pub row: &'static str,
    /// What it is, and from which source.
    pub title: String,
    /// What a reader must know.
    pub notes: Vec<String>,
    /// The figures.
    pub rows: Vec<Row>,
}

/// What a source says.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Source {
    /// Figures before and after, in the unit of the row.
    Figures(f64, f64),
    /// Only how many times the figure of before that of after is.
    Ratio(f64),
    /// A range, of what is the baseline here.
    Between(f64, f64),
    /// In words, of the same.
    Said(&'static str),
}

/// Where a figure stands among those of other block sizes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Point {
    /// In bytes.
    pub block_bytes: u64,
    /// What is done, such as `random read`.
    pub plot: &'static str,
    /// The way in which requests are made.
    pub series: &'static str,
    /// What is measured.
    pub quantity: &'static str,
}

/// A figure, as the source has it and as simulated.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// Of what.
    pub what: String,
    /// In which unit.
    pub unit: &'static str,
    /// More is better.
    pub more_is_better: bool,
    /// The source's figures.
    pub source: Source,
    /// Where it stands in a plot against the block size, if there is one.
    pub point: Option<Point>,
    /// Simulated, with the blocking points switched on.
    pub baseline: f64,
    /// Simulated, with nowait's operations.
    pub nowait: f64,
}

impl Source {
    /// Returns how many times the figure before that after is.
    pub fn ratio(self) -> Option<f64> {
        match self {
            Source::Figures(before, after) => Some(after / before),
            Source::Ratio(ratio) => Some(ratio),
            Source::Between(..) | Source::Said(_) => None,
        }
    }
}

impl Row {
    /// Returns how many times the simulated baseline nowait is.
    pub fn ratio(&self) -> f64 {
        self.nowait / self.baseline
    }

    /// Tells whether the change is at least the source's, to 2 %; `None`: it has none.
    pub fn is_met(&self) -> Option<bool> {
        let source = self.source.ratio()?;
        Some(match self.more_is_better {
            true => self.ratio() >= source * 0.98,
            false => self.ratio() <= source * 1.02,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ratio_is_met_in_the_direction_that_is_better() {
        let row = |more_is_better, nowait| Row {
            what: String::new(),
            unit: "",
            more_is_better,
            source: Source::Figures(10.0, 20.0),
            point: None,
            baseline: 100.0,
            nowait,
        };
        assert_eq!(row(true, 210.0).is_met(), Some(true));
        assert_eq!(row(true, 150.0).is_met(), Some(false));
        assert_eq!(row(false, 150.0).is_met(), Some(true));
        assert_eq!(Row { source: Source::Said("less"), ..row(true, 1.0) }.is_met(), None);
    }
}
