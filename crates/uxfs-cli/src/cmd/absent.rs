//! Stands in, on systems without them, for the commands that need a mount: `mount`, `serve`, `umount`,
//! `status`, `sync` and `crash-test`, and for clones between files of a mount. Each says that it is not on this system.

use std::ffi::OsString;
use std::path::Path;

use clap::Args;

use crate::image::Images;
use crate::kind::Kind;
use crate::session::{Failure, Result, Session};

/// Not on this system: needs a mount, which only Linux has
#[derive(Args)]
pub(crate) struct Options {
    #[arg(skip)]
    pub(crate) json: bool,
    #[arg(hide = true, trailing_var_arg = true, allow_hyphen_values = true)]
    _words: Vec<OsString>,
}

/// The failure of everything that needs a mount.
pub(crate) fn failure() -> Failure {
    let why = "not on this system: uxfs mounts volumes through FUSE on Linux only; the commands that \
               read and change images need no mount";
    Failure::bare(why).of(Kind::Unsupported)
}

pub(crate) fn run(_: &Options, _: &Session) -> Result<()> {
    Err(failure())
}

/// `uxfs mount` and `uxfs serve` also get the images.
pub(crate) fn run_mount(options: &Options, session: &Session, _: &Images) -> Result<()> {
    run(options, session)
}

/// Clones files of a mount.
pub(crate) fn clone(_: &[OsString], target: &Path, _: bool, _: &Session) -> Result<()> {
    let why = "give an image's path: copies on this system's own file systems share no blocks";
    Err(Failure::new(target, why).of(Kind::Unsupported))
}
