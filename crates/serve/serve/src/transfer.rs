//! `nowait image import` and `export`: copies between images on object stores and files or NBD
//! servers.

use crate::image::shown;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use nowait::Nowait;
use nowait_device::image::ImageError;
use nowait_image_store::transfer::{Copied, Progress, Transfer, export, import};
use nowait_terminal::{Failure, Result, print};
use std::process::ExitCode;
use std::time::Duration;

const TEMPLATE: &str = "{msg} [{bar:30}] {bytes} of {total_bytes}, {bytes_per_sec}, {eta}";

pub(crate) fn import_into(transfer: &Transfer, block_bytes: u32) -> Result<ExitCode> {
    let copied =
        with_bar("import", |engine, progress| import(engine, transfer, block_bytes, progress))?;
    let Copied { size_bytes, written_bytes } = copied;
    let (size, written) = (shown(size_bytes), shown(written_bytes));
    print(format!("{}: {size}, of which {written} were written\n", transfer.url).as_bytes())
}

pub(crate) fn export_from(transfer: &Transfer) -> Result<ExitCode> {
    let copied = with_bar("export", |engine, progress| export(engine, transfer, progress))?;
    let (size, written) = (shown(copied.size_bytes), shown(copied.written_bytes));
    let other = transfer.other.display();
    print(format!("{other}: {size}, of which {written} were written\n").as_bytes())
}

/// Runs a long copy, with a progress bar on stderr if that is a terminal.
fn with_bar(
    what: &'static str,
    work: impl FnOnce(&Nowait, Progress<'_>) -> std::result::Result<Copied, ImageError>,
) -> Result<Copied> {
    let engine = Nowait::new().map_err(|error| Failure::new(error.to_string()))?;
    let bar = ProgressBar::with_draw_target(Some(0), ProgressDrawTarget::stderr());
    if let Ok(style) = ProgressStyle::with_template(TEMPLATE) {
        bar.set_style(style);
    }
    bar.set_message(what);
    bar.enable_steady_tick(Duration::from_millis(500));
    let copied = work(&engine, &mut |done, all| {
        bar.set_length(all);
        bar.set_position(done);
    });
    bar.finish_and_clear();
    copied.map_err(|error| Failure::new(error.to_string()))
}
