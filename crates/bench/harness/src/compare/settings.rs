//! Settings in which two measurements differ, before any figure is looked at.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::Value;

/// Not settings, but what was measured, or when.
const NOT_SETTINGS: [&str; 5] =
    ["startup_cpu_us", "library_reports", "state", "unix_time_s", "verdict"];

/// A setting that is not the same in both; `None`: not there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct Setting {
    /// A path, such as `params.cases.a.depth`.
    pub(super) name: String,
    pub(super) a: Option<String>,
    pub(super) b: Option<String>,
}

/// Returns the settings below `name` in which two values differ.
pub(super) fn differences(name: &str, a: &Value, b: &Value) -> Vec<Setting> {
    let mut found: BTreeMap<String, [Option<String>; 2]> = BTreeMap::new();
    for (side, value) in [a, b].into_iter().enumerate() {
        flatten(name, value, &mut |path, text| {
            found.entry(path.to_owned()).or_default()[side] = Some(text);
        });
    }
    let settings = found.into_iter().map(|(name, [a, b])| Setting { name, a, b });
    settings.filter(|setting| setting.a != setting.b).collect()
}

/// Notes every number and text of a value under its path.
fn flatten(path: &str, value: &Value, note: &mut impl FnMut(&str, String)) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields.iter().filter(|it| !NOT_SETTINGS.contains(&it.0.as_str())) {
                flatten(&format!("{path}.{name}"), value, note);
            }
        }
        // A case is found by its name, so that one more case is one difference.
        Value::Array(entries) => {
            for (index, entry) in entries.iter().enumerate() {
                let name = entry.get("case").and_then(Value::as_str).map(str::to_owned);
                let name = name.unwrap_or_else(|| index.to_string());
                flatten(&format!("{path}.{name}"), entry, note);
            }
        }
        Value::Null => {}
        Value::String(text) => note(path, text.clone()),
        other => note(path, other.to_string()),
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
        let setting = |name: &str, a: Option<&str>, b: Option<&str>| {
            let [a, b] = [a, b].map(|side| side.map(str::to_owned));
            Setting { name: name.to_owned(), a, b }
        };
        let depth = setting("params.cases.a.depth", Some("32"), Some("64"));
        let expected = [depth, setting("params.x", None, Some("1"))];
        assert_eq!(differences("params", &a, &b), expected);
    }

    #[test]
    fn results_are_no_settings() {
        let state = |free: u64| json!({"kernel": "6.1", "state": {"free_bytes": free}});
        assert_eq!(differences("host", &state(1), &state(2)), []);
    }
}
