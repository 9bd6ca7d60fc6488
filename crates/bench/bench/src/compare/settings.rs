//! Settings in which two measurements differ, before any figure is looked at.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::Value;

/// Not settings: what was measured, or when.
const NOT_SETTINGS: [&str; 5] =
    ["startup_cpu_us", "library_reports", "state", "unix_time_s", "verdict"];

/// A setting that is not the same in both; `None`: not there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Setting {
    /// Such as `params.cases.a.depth`.
    pub(crate) name: String,
    pub(crate) a: Option<String>,
    pub(crate) b: Option<String>,
}

/// Returns the settings below `name` in which two values differ.
pub(super) fn differences(name: &str, a: &Value, b: &Value) -> Vec<Setting> {
    let (mut in_a, mut in_b) = (BTreeMap::new(), BTreeMap::new());
    flatten(name, a, &mut in_a);
    flatten(name, b, &mut in_b);
    let mut names: Vec<&String> = in_a.keys().chain(in_b.keys()).collect();
    names.sort_unstable();
    names.dedup();
    let setting = |name: &String| Setting {
        name: name.clone(),
        a: in_a.get(name).cloned(),
        b: in_b.get(name).cloned(),
    };
    names.into_iter().map(setting).filter(|setting| setting.a != setting.b).collect()
}

/// Notes every number and text of a value under its path.
fn flatten(path: &str, value: &Value, into: &mut BTreeMap<String, String>) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                if !NOT_SETTINGS.contains(&name.as_str()) {
                    flatten(&format!("{path}.{name}"), value, into);
                }
            }
        }
        // A case is found by its name, so that one more case is one difference.
        Value::Array(entries) => {
            for (index, entry) in entries.iter().enumerate() {
                let name = entry.get("case").and_then(Value::as_str).map(str::to_owned);
                let name = name.unwrap_or_else(|| index.to_string());
                flatten(&format!("{path}.{name}"), entry, into);
            }
        }
        Value::Null => {}
        Value::String(text) => drop(into.insert(path.to_owned(), text.clone())),
        other => drop(into.insert(path.to_owned(), other.to_string())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn differences_are_named_by_their_path() {
        let a = json!({"rounds": 5, "cases": [{"case": "a", "depth": 32}, {"case": "b"}]});
        let b = json!({"rounds": 5, "cases": [{"case": "b"}, {"case": "a", "depth": 64}], "x": 1});
        let found = differences("params", &a, &b);
        let names: Vec<&str> = found.iter().map(|setting| setting.name.as_str()).collect();
        assert_eq!(names, ["params.cases.a.depth", "params.x"]);
        let [depth, x] = [&found[0], &found[1]];
        assert_eq!((depth.a.as_deref(), depth.b.as_deref()), (Some("32"), Some("64")));
        assert_eq!((x.a.as_deref(), x.b.as_deref()), (None, Some("1")));
    }

    #[test]
    fn what_was_measured_is_no_setting() {
        let state = |free: u64| json!({"kernel": "6.1", "state": {"free_bytes": free}});
        assert_eq!(differences("host", &state(1), &state(2)), []);
    }
}
