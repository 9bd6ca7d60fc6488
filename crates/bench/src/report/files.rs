//! Where reports go.

use std::fs;
use std::path::Path;

use crate::error::{Context, Result};

/// Makes the folders of reports to be, so that a long measurement does not end in an error.
pub(crate) fn prepare<'a>(paths: impl IntoIterator<Item = &'a Path>) -> Result<()> {
    for folder in paths.into_iter().filter_map(Path::parent) {
        fs::create_dir_all(folder).context(|| format!("create {}", folder.display()))?;
    }
    Ok(())
}
