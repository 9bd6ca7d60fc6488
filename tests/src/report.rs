//! The report that a process under nowait writes when it exits: a JSON object on one line.

use std::fs;
use std::path::Path;

use serde_json::Value;

/// One process's report.
#[derive(Debug)]
pub struct Report(Value);

impl Report {
    /// Returns the program's name.
    pub fn program(&self) -> &str {
        self.0["program"].as_str().unwrap_or_default()
    }

    /// Returns the backend that served the program.
    pub fn backend(&self) -> &str {
        self.0["backend"].as_str().unwrap_or_default()
    }

    /// Returns the reason for that backend.
    pub fn backend_reason(&self) -> &str {
        self.0["backend_reason"].as_str().unwrap_or_default()
    }

    /// Returns `true` if the reason for the backend says that starting another backend failed with
    /// EMFILE.
    pub fn lacked_descriptors(&self) -> bool {
        let reason = self.backend_reason();
        reason.contains("starting it failed") && reason.contains("EMFILE")
    }

    /// Returns the number of requests through nowait, over all contexts.
    pub fn requests(&self) -> u64 {
        self.total("requests")
    }

    /// Returns the number of completed requests.
    pub fn completions(&self) -> u64 {
        self.total("completions")
    }

    /// Returns the number of requests of a kind that `party` completed, over all contexts.
    pub fn served(&self, kind: &str, party: &str) -> u64 {
        let contexts = self.0["contexts"].as_array().map_or(&[][..], Vec::as_slice);
        contexts.iter().filter_map(|context| context["served"][kind][party].as_u64()).sum()
    }

    fn total(&self, counter: &str) -> u64 {
        let contexts = self.0["contexts"].as_array().map_or(&[][..], Vec::as_slice);
        contexts.iter().filter_map(|context| context[counter].as_u64()).sum()
    }
}

/// Reads the reports of a file, and removes the file. Returns no report if the file is missing.
/// Panics if a line is not valid JSON or has an unknown schema.
pub fn take(file: &Path) -> Vec<Report> {
    let text = fs::read_to_string(file).unwrap_or_default();
    let _ = fs::remove_file(file);
    text.lines().map(|line| parse(line, file)).collect()
}

fn parse(line: &str, file: &Path) -> Report {
    let value: Value = serde_json::from_str(line)
        .unwrap_or_else(|error| panic!("{}: {error} in report line {line}", file.display()));
    assert_eq!(value["schema"], 1, "unknown schema in report line {line}");
    Report(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINE: &str = r#"{"schema":1,"pid":7,"program":"fio","backend":"uring","backend_reason":
        "probed","contexts":[{"requests":3,"completions":3},{"requests":4,"completions":2}]}"#;

    #[test]
    fn totals_span_all_contexts() {
        let report = parse(&LINE.replace('\n', ""), Path::new("r.json"));
        assert_eq!((report.requests(), report.completions()), (7, 5));
        assert_eq!((report.program(), report.backend()), ("fio", "uring"));
    }

    #[test]
    #[should_panic(expected = "unknown schema")]
    fn another_schema_is_refused() {
        parse(r#"{"schema":2}"#, Path::new("r.json"));
    }
}
