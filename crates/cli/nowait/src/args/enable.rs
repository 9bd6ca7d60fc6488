//! The command line of `nowait enable` and `nowait disable`.

use super::Options;
use clap::Args;
use std::path::PathBuf;

pub(super) const ENABLE_SHORT: &str = "\
Examples:
  nowait enable mariadb --dry-run        what would be written, and what stands against it
  nowait enable mariadb --now            written, and the service restarted
More of each: nowait enable --help";

pub(super) const ENABLE_EXAMPLES: &str = "\
Writes UNIT.d/zz-nowait.conf below /etc/systemd/system; the unit's own file stays as it is. What
the unit sets as LD_PRELOAD is kept, behind nowait's. A second call writes the drop-in anew, with
the flags of that call.

Exit code 0: written, or as it should be already; 1: refused, with what is wrong and what to do;
2: wrong usage.

Examples:
  nowait enable mariadb --dry-run        what would be written, and what stands against it
  nowait enable mariadb --now            written, and the service restarted
  nowait enable postgresql@              all instances; postgresql@16-main is one
  nowait enable mariadb --backend threads --report
  nowait enable mariadb --root /mnt/image
  nowait disable mariadb --now";

pub(super) const DISABLE_EXAMPLES: &str = "\
Removes only a file that `nowait enable` wrote, and its folder when that is empty then. The exit
code is 0 also when there was none.

Examples:
  nowait disable mariadb
  nowait disable mariadb --now           … and restarts it";

pub(super) const STATUS_EXAMPLES: &str = "\
Lists the units that `nowait enable` changed, and the processes that have a library of nowait's, as
far as this user may look.

Exit code 0; 1: an enabled unit has a problem, such as a library that is gone; 2: wrong usage.

Examples:
  nowait status
  nowait status --json | jq '.units[] | select(.problem)'
  nowait status --root /mnt/image        its units";

#[derive(Debug, Args)]
pub(crate) struct StatusArgs {
    /// The services of this user's own manager.
    #[arg(long, conflicts_with = "root")]
    pub(crate) user: bool,
    /// An image whose files are below DIR; processes are not looked at.
    #[arg(long, value_name = "DIR", value_hint = clap::ValueHint::DirPath)]
    pub(crate) root: Option<PathBuf>,
    /// Print one JSON object.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct EnableArgs {
    /// The service: mariadb, mariadb.service, backup@disk; `backup@` is all its instances.
    pub(crate) unit: String,
    #[command(flatten)]
    pub(crate) services: Services,
    /// Write it although a check says that it will not work.
    #[arg(long)]
    pub(crate) force: bool,
    #[command(flatten)]
    pub(crate) options: Options,
}

#[derive(Debug, Args)]
pub(crate) struct DisableArgs {
    /// The service, as it was named to `nowait enable`.
    pub(crate) unit: String,
    #[command(flatten)]
    pub(crate) services: Services,
}

/// The location of the services, and what the command changes.
#[derive(Debug, Args)]
pub(crate) struct Services {
    /// Print what would be done, and do nothing.
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Also tell systemd: reload its units, and restart the service if it runs.
    #[arg(long, conflicts_with_all = ["dry_run", "root"])]
    pub(crate) now: bool,
    /// A service of this user's own manager.
    #[arg(long, conflicts_with = "root")]
    pub(crate) user: bool,
    /// An image or container whose files are below DIR, its units and nowait among them.
    #[arg(long, value_name = "DIR", value_hint = clap::ValueHint::DirPath)]
    pub(crate) root: Option<PathBuf>,
    /// Print one JSON object.
    #[arg(long)]
    pub(crate) json: bool,
}
