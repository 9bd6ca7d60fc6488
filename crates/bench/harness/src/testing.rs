//! Helpers for the tests of several crates: they parse arguments, check cases, and invent a
//! measurement.

use clap::{Args, Command};
use serde_json::Value;

use crate::case::{Against, Case, Comparison, Subject, Target};
use crate::host::Host;
use crate::measurement::{CaseResults, Measurement};
use crate::metric::{Metric, Sample};

pub fn parse<A: Args>(arguments: &[&str]) -> A {
    let command = A::augment_args(Command::new("x"));
    command.clone().debug_assert();
    let matches = command.try_get_matches_from(["x"].iter().chain(arguments));
    A::from_arg_matches(&matches.expect("well-formed")).expect("well-formed")
}

/// Panics unless each target names subjects of its own case and compares in the direction of its
/// metric, and the names of subjects in a case differ.
pub fn check<J>(cases: &[Case<J>]) {
    for case in cases {
        for target in &case.targets {
            assert!(case.has(target.subject), "{}: {}", case.name, target.text());
            if let Against::Subject(against) = target.against {
                assert!(case.has(against), "{}: {}", case.name, target.text());
            }
            let good = target.metric.more_is_better();
            assert_eq!(good, target.comparison == Comparison::AtLeast, "{}", case.name);
        }
        let mut names: Vec<_> = case.subjects.iter().map(|subject| subject.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), case.subjects.len(), "{}", case.name);
    }
}

/// Makes an invented measurement: `nowait` has twice the figures of `system`, and half of its
/// submit times.
pub fn sample() -> Measurement {
    let sample = |round: u32, factor: f64| {
        let value = |metric: Metric| match metric.name() {
            name if name.starts_with("submit") => f64::from(100 + round) / factor,
            _ => f64::from(100 + round) * factor,
        };
        Metric::ALL.into_iter().map(|metric| (metric, value(metric))).collect::<Sample>()
    };
    let runs = |factor: f64| (0..5).map(|round| sample(round, factor)).collect::<Vec<_>>();
    let subject = |name| Subject { name, engine: (name, "one of two"), job: () };
    let target = Target::at_most(Metric::SubmitUsMean, "nowait", 0.1, "system");
    let case = Case {
        name: "a",
        title: "random reads".to_owned(),
        about: "Made for a test.",
        source: "10.08 → 23.91 MB/s".to_owned(),
        columns: &[Metric::Iops],
        subjects: ["system", "nowait"].map(subject).to_vec(),
        targets: vec![
            target,
            Target::at_least(Metric::Iops, "nowait", 1.4, "system"),
            Target::at_least(Metric::Iops, "nowait", 1.0, "absent"),
            Target { against: Against::Own(Metric::Iops), ratio: 1.0, ..target },
        ],
    };
    let runs = [("system", runs(1.0)), ("nowait", runs(2.0))].into_iter().collect();
    let host = Host::describe(std::path::Path::new("/"), "fio-3.33");
    let results = CaseResults::new(&case, runs, Value::Null);
    let params = serde_json::json!({ "rounds": 5 });
    Measurement {
        notes: vec!["made up <for a test>".to_owned()],
        words: (String::new(), "One is enough. "),
        ..Measurement::new("submit", host, params, vec![results])
    }
}
