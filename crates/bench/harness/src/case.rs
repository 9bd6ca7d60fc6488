//! Cases, with their subjects and targets.

use std::convert::Infallible;

use crate::metric::Metric;
use crate::runs::Runs;
use crate::table::new_table;
use crate::units;
use crate::verdict::Judged;

/// The subjects in which a program runs without nowait: with native AIO, and with POSIX AIO.
pub const ITSELF: &str = "system";
pub const ITSELF_POSIX: &str = "posixaio";

pub fn itself(subject: &str) -> &'static str {
    if subject.ends_with(ITSELF_POSIX) { ITSELF_POSIX } else { ITSELF }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Comparison {
    AtMost,
    AtLeast,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Against {
    Subject(&'static str),
    Own(Metric),
    /// This number, in the unit of the metric.
    Figure(f64),
}

/// A target names our variant before the runs: picking the better of two afterwards would be a
/// bias.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Target {
    pub metric: Metric,
    pub subject: &'static str,
    pub comparison: Comparison,
    pub ratio: f64,
    pub against: Against,
}

/// One way to run a case. `J` is the type of the input of its runs.
#[derive(Debug, Clone, PartialEq)]
pub struct Subject<J> {
    pub name: &'static str,
    /// The name of its engine on the command line, and a description of the engine.
    pub engine: (&'static str, &'static str),
    pub job: J,
}

#[derive(Debug, Clone)]
pub struct Case<J> {
    pub name: &'static str,
    pub title: String,
    pub about: &'static str,
    pub source: String,
    pub columns: &'static [Metric],
    pub subjects: Vec<Subject<J>>,
    pub targets: Vec<Target>,
}

/// Leaks a name, so that it lives as long as the program.
pub fn name(text: String) -> &'static str {
    Box::leak(text.into_boxed_str())
}

fn matches(pattern: &str, name: &str) -> bool {
    let Some((before, behind)) = pattern.split_once('*') else { return pattern == name };
    let Some(rest) = name.strip_prefix(before) else { return false };
    (0..=rest.len()).any(|at| rest.get(at..).is_some_and(|rest| matches(behind, rest)))
}

impl Comparison {
    pub fn sign(self) -> &'static str {
        match self {
            Self::AtMost => "≤",
            Self::AtLeast => "≥",
        }
    }
}

impl Target {
    /// Requires `metric` of `subject` to be at least `ratio` times `metric` of `against`.
    pub const fn at_least(
        metric: Metric,
        subject: &'static str,
        ratio: f64,
        against: &'static str,
    ) -> Self {
        let (comparison, against) = (Comparison::AtLeast, Against::Subject(against));
        Self { metric, subject, comparison, ratio, against }
    }

    pub const fn at_most(
        metric: Metric,
        subject: &'static str,
        ratio: f64,
        against: &'static str,
    ) -> Self {
        let comparison = Comparison::AtMost;
        Self { comparison, ..Self::at_least(metric, subject, ratio, against) }
    }

    pub fn text(&self) -> String {
        let (metric, sign) = (self.metric.label(), self.comparison.sign());
        let against = match self.against {
            Against::Subject(name) => name.to_owned(),
            Against::Own(metric) => metric.label().to_owned(),
            Against::Figure(figure) => units::with_unit(self.metric.unit(), figure),
        };
        format!("{metric} of {} {sign} {:.2} × {against}", self.subject, self.ratio)
    }

    pub fn judge(&self, runs: &Runs) -> Judged {
        let (metric, subject) = (self.metric, self.subject);
        let ratio = match self.against {
            Against::Subject(against) => runs.ratio((against, metric), (subject, metric)),
            Against::Own(against) => runs.ratio((subject, against), (subject, metric)),
            Against::Figure(figure) => runs.share(metric, figure, subject),
        };
        Judged::new(self.text(), self.comparison, self.ratio, ratio)
    }
}

impl<J> Case<J> {
    /// `name` is a case's name, its first letter, or a pattern with `*`.
    pub fn answers_to(&self, name: &str) -> bool {
        matches(name, self.name) || self.name.starts_with(name) && name.len() == 1
    }

    pub fn has(&self, name: &str) -> bool {
        self.subjects.iter().any(|subject| subject.name == name)
    }

    /// Removes the targets that name a subject which the case does not have.
    #[must_use]
    pub fn with_possible_targets(mut self) -> Self {
        let mut targets = std::mem::take(&mut self.targets);
        targets.retain(|target| {
            let against = match target.against {
                Against::Subject(name) => self.has(name),
                Against::Own(_) | Against::Figure(_) => true,
            };
            against && self.has(target.subject)
        });
        Self { targets, ..self }
    }

    pub fn try_map<K, E>(
        &self,
        subject: impl Fn(&Subject<J>) -> Result<Subject<K>, E>,
    ) -> Result<Case<K>, E> {
        Ok(Case {
            name: self.name,
            title: self.title.clone(),
            about: self.about,
            source: self.source.clone(),
            columns: self.columns,
            subjects: self.subjects.iter().map(subject).collect::<Result<_, E>>()?,
            targets: self.targets.clone(),
        })
    }

    pub fn without_jobs(&self) -> Case<()> {
        let words = |it: &Subject<J>| Ok(Subject { name: it.name, engine: it.engine, job: () });
        let Ok(case) = self.try_map::<_, Infallible>(words);
        case
    }
}

pub fn list<J>(cases: &[Case<J>]) -> String {
    let mut table = new_table(&["case", "what", "engines", "targets"]);
    for case in cases {
        let names: Vec<&str> = case.subjects.iter().map(|subject| subject.name).collect();
        let targets: Vec<String> = case.targets.iter().map(Target::text).collect();
        let what = match case.source.as_str() {
            "" => case.title.clone(),
            source => format!("{}\nSource: {source}", case.title),
        };
        table.add_row([case.name, &what, &names.join("\n"), &targets.join("\n")]);
    }
    table.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_stands_for_any_text() {
        for pattern in ["read-4k", "read*", "*4k", "r*-*k", "*"] {
            assert!(matches(pattern, "read-4k"), "{pattern}");
        }
        for pattern in ["read", "read*d", "*4", "", "write*"] {
            assert!(!matches(pattern, "read-4k"), "{pattern}");
        }
    }

    #[test]
    fn a_target_reads_as_a_sentence() {
        let target = Target::at_most(Metric::SubmitUsMean, "nowait", 0.1, "system");
        assert_eq!(target.text(), "submit mean of nowait ≤ 0.10 × system");
        let own = Target { against: Against::Own(Metric::SubmitUsP50), ratio: 20.0, ..target };
        assert_eq!(own.text(), "submit mean of nowait ≤ 20.00 × submit p50");
        let time = Target { against: Against::Figure(2000.0), ratio: 1.0, ..target };
        assert_eq!(time.text(), "submit mean of nowait ≤ 1.00 × 2.00 ms");
    }

    #[test]
    fn posix_aio_is_compared_with_posix_aio() {
        assert_eq!((itself("nowait-posixaio"), itself(ITSELF_POSIX)), (ITSELF_POSIX, ITSELF_POSIX));
        assert_eq!((itself("nowait"), itself("io_uring")), (ITSELF, ITSELF));
    }
}
