//! `uxfs freeze` and `uxfs thaw`: hold back the changes of a mount, and let them go on.

use std::io;
use std::path::{Path, PathBuf};

use clap::Args;
use uxfs_fuse::control;

use crate::cmd::status;
use crate::session::{Failure, Result, Session};

const EPERM: i32 = 1;
const EBUSY: i32 = 16;
const EINVAL: i32 = 22;
const EOPNOTSUPP: i32 = 95;

/// Hold back all changes of a mount, so that its image can be copied
///
/// Writes everything in place. Until `uxfs thaw`, changes wait and reads go on, and a copy of the image is a
/// sound volume with everything done before. Only root and the user who mounted the volume may do this.
///
/// The mount stays frozen when this command has ended. Unmounting it thaws it. A mount whose requests come
/// over io_uring cannot be frozen: mount it with `-o noio_uring`.
#[derive(Args)]
#[command(after_help = "Examples:\n  uxfs freeze /mnt\n  \
    uxfs freeze /mnt && cp --sparse=always disk.img copy.img; uxfs thaw /mnt")]
pub(crate) struct Options {
    /// Mounted directory, or any path in it
    #[arg(value_name = "DIR")]
    dir: PathBuf,
}

/// Let the changes of a frozen mount go on
///
/// What waited is done. Only root and the user who mounted the volume may do this.
#[derive(Args)]
#[command(after_help = "Examples:\n  uxfs thaw /mnt")]
pub(crate) struct ThawOptions {
    /// Mounted directory, or any path in it
    #[arg(value_name = "DIR")]
    dir: PathBuf,
}

pub(crate) fn run(options: &Options, _: &Session) -> Result<()> {
    freeze(&options.dir)
}

pub(crate) fn run_thaw(options: &ThawOptions, _: &Session) -> Result<()> {
    thaw(&options.dir)
}

/// Freezes the mount of a directory.
pub(crate) fn freeze(dir: &Path) -> Result<()> {
    control::freeze(dir).map_err(|error| failure(dir, &error))
}

/// Thaws the mount of a directory.
pub(crate) fn thaw(dir: &Path) -> Result<()> {
    control::thaw(dir).map_err(|error| failure(dir, &error))
}

fn failure(dir: &Path, error: &io::Error) -> Failure {
    let why = match error.raw_os_error() {
        Some(EPERM) => "only root and the user who mounted the volume can freeze and thaw it".into(),
        Some(EBUSY) => {
            "the volume is frozen already, is growing, or its options are being changed".into()
        }
        Some(EINVAL) => "the volume is not frozen".into(),
        Some(EOPNOTSUPP) => {
            "requests come over io_uring, and such a mount cannot be frozen: mount with -o noio_uring"
                .into()
        }
        _ => status::failure_cause(dir, error).0,
    };
    Failure::new(dir, why)
}
