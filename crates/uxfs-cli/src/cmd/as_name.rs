//! `uxfs as`: runs a program of xfsprogs. Only its help is here; see [`crate::names`], which takes the
//! command line before clap does.

use std::ffi::OsString;

use clap::Args;
use clap::builder::PossibleValuesParser;

use crate::names;
use crate::session::{Failure, Result};

/// Run as a program of xfsprogs, with its options, output and exit codes
///
/// The same happens if uxfs is called by such a name, through a link. docs/XFSPROGS.md says what each
/// program does and refuses.
#[derive(Args)]
#[command(after_help = "Examples:\n  \
    uxfs as xfs_info disk.img\n  \
    uxfs as xfs_admin -L root disk.img\n  \
    uxfs as mkfs.xfs -d file,name=disk.img,size=4g")]
pub(crate) struct Options {
    /// The program
    #[arg(value_name = "NAME", value_parser = PossibleValuesParser::new(names::names()))]
    name: String,
    /// Its arguments
    #[arg(value_name = "ARGUMENT", trailing_var_arg = true, allow_hyphen_values = true)]
    _arguments: Vec<OsString>,
}

/// Reached only if something stands between `as` and the name.
pub(crate) fn run(options: &Options) -> Result<()> {
    let name = &options.name;
    Err(Failure::bare(format!(
        "write it as: uxfs as {name} ARGUMENT …, with no options before {name}"
    )))
}
