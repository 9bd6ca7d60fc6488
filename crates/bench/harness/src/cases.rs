//! Tables of cases in TOML: the engines, and for each case its engines and its work.
//!
//! ```text
//!  columns = ["iops", "cpu_us_per_io"]
//!  [engines.nowait]   about = "…"                            the other keys are the engine's, `E`
//!  [work]             depth = 32                             of all cases, `W`
//!  [[cases]]          name, title, about, source, engines, columns
//!                     targets = ["nowait iops >= 1.4 system", "nowait held_up_us_max <= 2000 us"]
//!                     work = { sync = true }                 of this one
//! ```
//!
//! A case without `columns`, `engines`, `targets` or `about` has those of the case before it.

use serde::de::{DeserializeOwned, Error};
use serde::{Deserialize, Deserializer};
use toml::{Table, Value};

use crate::case::{Against, Case, Comparison, Subject, Target, name};
use crate::metric::Metric;

#[derive(Debug, Clone, PartialEq)]
pub struct Job<E, W> {
    pub engine: E,
    pub work: W,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    columns: Vec<Metric>,
    engines: Table,
    #[serde(default)]
    work: Table,
    cases: Vec<Row>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Row {
    name: String,
    title: String,
    work: Option<Value>,
    about: Option<String>,
    #[serde(default)]
    source: String,
    columns: Option<Vec<Metric>>,
    engines: Option<Vec<String>>,
    targets: Option<Vec<Target>>,
}

/// Panics if the table, which is part of this program, is malformed.
pub fn table<E, W>(text: &str) -> Vec<Case<Job<E, W>>>
where
    E: DeserializeOwned,
    W: DeserializeOwned + Clone,
{
    let file: File = toml::from_str(text).unwrap_or_else(|why| panic!("{why}"));
    let (mut about, mut columns) = ("", kept(file.columns));
    let (mut engines, mut targets) = (Vec::new(), Vec::new());
    let mut case = |row: Row| {
        about = row.about.map_or(about, name);
        columns = row.columns.map_or(columns, kept);
        engines = row.engines.unwrap_or_else(|| engines.clone());
        targets = row.targets.unwrap_or_else(|| targets.clone());
        let work = match row.work {
            Some(Value::Table(own)) => Value::Table(merged(file.work.clone(), &own)),
            own => own.unwrap_or_else(|| Value::Table(file.work.clone())),
        };
        let work = work.try_into::<W>();
        let work = work.unwrap_or_else(|why| panic!("case {}: {why}", row.name));
        let subject = |of: &String| engine(of, &file.engines).doing(work.clone());
        Case {
            name: name(row.name),
            title: row.title,
            about,
            source: row.source,
            columns,
            subjects: engines.iter().map(subject).collect(),
            targets: targets.clone(),
        }
    };
    file.cases.into_iter().map(&mut case).collect()
}

/// Fields of `over` replace those of `under`; tables of the same name are merged.
#[must_use]
pub fn merged(mut under: Table, over: &Table) -> Table {
    for (name, value) in over {
        match (under.get_mut(name), value) {
            (Some(Value::Table(inner)), Value::Table(more)) => {
                *inner = merged(std::mem::take(inner), more);
            }
            _ => drop(under.insert(name.clone(), value.clone())),
        }
    }
    under
}

fn kept(columns: Vec<Metric>) -> &'static [Metric] {
    columns.leak()
}

impl<E> Subject<E> {
    pub fn doing<W>(self, work: W) -> Subject<Job<E, W>> {
        let Self { name, engine, job } = self;
        Subject { name, engine, job: Job { engine: job, work } }
    }
}

/// Returns each engine of a table as a subject without the work of a case.
pub fn engines<E: DeserializeOwned>(text: &str) -> Vec<Subject<E>> {
    let file: Table = toml::from_str(text).unwrap_or_else(|why| panic!("{why}"));
    let engines = file["engines"].as_table().expect("a table");
    engines.keys().map(|of| engine(of, engines)).collect()
}

fn engine<E: DeserializeOwned>(of: &str, engines: &Table) -> Subject<E> {
    let fields = engines.get(of).and_then(Value::as_table);
    let mut fields = fields.cloned().unwrap_or_default();
    let about = fields.remove("about").and_then(|about| about.as_str().map(str::to_owned));
    let job = fields.try_into().unwrap_or_else(|why| panic!("engine {of}: {why}"));
    let of = name(of.to_owned());
    Subject { name: of, engine: (of, name(about.unwrap_or_default())), job }
}

impl<'de> Deserialize<'de> for Metric {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = String::deserialize(from)?;
        Self::named(&text).ok_or_else(|| D::Error::custom(format!("no metric '{text}'")))
    }
}

impl<'de> Deserialize<'de> for Target {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = String::deserialize(from)?;
        target(&text).ok_or_else(|| D::Error::custom(format!("no target '{text}'")))
    }
}

/// Parses a target such as `nowait iops >= 1.4 system`; `None` if the text is malformed. The last
/// word is an engine, another metric of the same engine, `us`, `B` or `times`.
fn target(text: &str) -> Option<Target> {
    let words: Vec<&str> = text.split(' ').collect();
    let &[subject, metric, sign, number, against] = words.as_slice() else { return None };
    let comparison = match sign {
        ">=" => Comparison::AtLeast,
        "<=" => Comparison::AtMost,
        _ => return None,
    };
    let (metric, number) = (Metric::named(metric)?, number.parse().ok()?);
    let (ratio, against) = match against {
        "us" | "B" => (1.0, Against::Figure(number)),
        "times" => (number, Against::Figure(1.0)),
        other => (
            number,
            match Metric::named(other) {
                Some(own) => Against::Own(own),
                None => Against::Subject(name(other.to_owned())),
            },
        ),
    };
    Some(Target { metric, subject: name(subject.to_owned()), comparison, ratio, against })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, Clone, PartialEq, Deserialize)]
    struct Depth {
        depth: u32,
    }

    #[test]
    fn a_case_has_the_engines_and_targets_that_it_names() {
        let cases = table::<Depth, Depth>(
            r#"columns = ["iops"]
            work = { depth = 32 }
            [engines]
            a = { about = "one", depth = 1 }
            b = { depth = 2 }
            [[cases]]
            name = "read"
            title = "reads"
            engines = ["b", "a"]
            targets = ["b iops >= 1.5 a", "b submit_us_mean <= 20 us"]
            [[cases]]
            name = "write"
            title = "writes"
            targets = []
            work = { depth = 1 }"#,
        );
        let [case, next] = cases.as_slice() else { panic!("two cases") };
        assert_eq!((next.subjects.len(), next.columns, next.targets.len()), (2, case.columns, 0));
        let depths: Vec<u32> = case.subjects.iter().map(|it| it.job.engine.depth).collect();
        assert_eq!((depths, case.subjects[1].engine), (vec![2, 1], ("a", "one")));
        assert_eq!((case.columns, case.subjects[0].job.work.depth), (&[Metric::Iops][..], 32));
        let texts: Vec<String> = case.targets.iter().map(Target::text).collect();
        assert_eq!(texts[0], "IOPS of b ≥ 1.50 × a");
        assert_eq!(texts[1], "submit mean of b ≤ 1.00 × 20.0 µs");
    }

    #[test]
    fn what_is_no_target_is_refused() {
        for text in ["", "a iops >= 1", "a iops > 1 b", "a colour >= 1 b", "a iops >= x b"] {
            assert_eq!(target(text), None, "{text}");
        }
    }
}
