//! The files of reports.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use clap::Args;

use super::page;
use crate::error::{Context, Result};

const STDOUT: &str = "-";

/// The requested reports.
#[derive(Debug, Clone, Default, Args)]
pub struct ReportArgs {
    /// Write the figures as JSON to a file, or instead of the tables to standard output
    #[arg(long, value_name = "FILE", num_args = 0..=1, default_missing_value = STDOUT)]
    pub json: Option<PathBuf>,

    /// Write a report to an HTML file
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
}

impl ReportArgs {
    /// Makes missing folders before a long measurement, which would otherwise end in an error.
    pub fn prepare(&self) -> Result<()> {
        let paths = [&self.json, &self.html].into_iter().flatten();
        for folder in paths.filter_map(|path| path.parent()) {
            fs::create_dir_all(folder).context(|| format!("create {}", folder.display()))?;
        }
        Ok(())
    }

    /// If standard output cannot be written, says so on standard error and returns: the figures,
    /// which took minutes to measure, must still be written to the files.
    pub fn say(&self, text: &str) {
        if !self.json_is_stdout()
            && let Err(error) = print(text)
        {
            eprintln!("{error}");
        }
    }

    pub fn json_is_stdout(&self) -> bool {
        self.json.as_deref() == Some(Path::new(STDOUT))
    }

    pub fn write(&self, json: &str) -> Result<()> {
        self.prepare()?;
        match &self.json {
            None => {}
            Some(_) if self.json_is_stdout() => print(json.trim_end())?,
            Some(path) => {
                fs::write(path, json).context(|| format!("write {}", path.display()))?;
                self.say(&format!("Figures: {}", path.display()));
            }
        }
        if let Some(path) = &self.html {
            fs::write(path, page::page(json)).context(|| format!("write {}", path.display()))?;
            self.say(&format!("Report:  {}", path.display()));
        }
        Ok(())
    }
}

/// A closed pipe (`| head`) is not an error.
pub fn print(text: &str) -> Result<()> {
    let mut out = io::stdout().lock();
    match writeln!(out, "{text}").and_then(|()| out.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(error).context(|| "standard output".to_owned())
        }
        _ => Ok(()),
    }
}
