//! The HTML report: `page.html` with the figures, and with uPlot, which draws the curves.
//!
//! The page depends on the JSON alone, so a saved JSON file gives the same page.

pub(super) fn page(json: &str) -> String {
    // `</script>` in a string would end the script. In JSON, `<` occurs only in strings.
    let figures = json.replace('<', "\\u003c");
    include_str!("page.html")
        .replace("/*uplot.css*/", include_str!("uplot/uPlot.min.css"))
        .replace("/*uplot.js*/", include_str!("uplot/uPlot.iife.min.js"))
        .replace("/*figures*/", &figures)
}

#[cfg(test)]
mod tests {
    use nowait_block::skip::note_skip_here;
    use std::fs;
    use std::process::Command;

    fn shown(json: &str) -> Option<String> {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("page.html");
        fs::write(&path, super::page(json)).expect("written");
        let profile = format!("--user-data-dir={}", folder.path().join("profile").display());
        let mut browser = Command::new("chromium");
        browser.args(["--headless", "--no-sandbox", "--disable-gpu", "--dump-dom", &profile]);
        let Ok(output) = browser.arg(&path).output() else {
            note_skip_here("chromium is not installed");
            return None;
        };
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(text.contains("docs/reports.md.</p>"), "the script ran to its end");
        Some(text)
    }

    #[test]
    fn a_page_stands_alone() {
        let page = super::page(&crate::testing::sample().json().expect("JSON"));
        for outside in ["<script src", "<link", "@import", "url(", "fetch("] {
            assert!(!page.contains(outside), "{outside}");
        }
        assert!(page.contains("made up \\u003cfor a test>"), "the note, escaped");
    }

    #[test]
    fn a_page_says_how_much_faster_and_how_surely() {
        let json = crate::testing::sample().json().expect("JSON");
        let Some(page) = shown(&json) else { return };
        for part in ["2 better, 3 worse", "2.00 × [2.00 – 2.00]", "102/s → 204/s", "Made up &lt;"]
        {
            assert!(page.contains(part), "{part}");
        }
    }
}
