//! `uxfs label`: shows and sets the label of a volume, as `xfs_admin -l` and `-L` do.

use std::path::PathBuf;

use clap::Args;
use serde_json::Map;

use crate::image::Images;
use crate::json;
use crate::session::{Failure, Result, Session};

/// Show or set the label of a volume
///
/// Without LABEL, shows the label. With LABEL (at most 12 bytes), sets it; -- clears it, as in xfs_admin.
#[derive(Args)]
#[command(after_help = "Examples:\n  \
                  uxfs label disk.img\n  uxfs label disk.img root\n  uxfs label disk.img -- --")]
pub(crate) struct Options {
    /// Print a JSON document
    #[arg(long)]
    pub(crate) json: bool,
    /// The image
    #[arg(value_name = "IMAGE")]
    image: PathBuf,
    /// The new label; -- for none
    #[arg(value_name = "LABEL")]
    label: Option<String>,
}

pub(crate) fn run(options: &Options, session: &Session, images: &Images) -> Result<()> {
    let image = images.get(&options.image, options.label.is_some())?;
    if let Some(label) = &options.label {
        let label = if label == "--" { "" } else { label };
        let failed = |error| Failure::volume(options.image.as_os_str(), error);
        image.fs.set_label(label.as_bytes()).map_err(failed)?;
    }
    let label = image.fs.statfs().label;
    if options.json {
        let mut map = Map::new();
        json::put_bytes(&mut map, "label", &label);
        return session.print(json::document("label", map));
    }
    let verb = if options.label.is_some() { "new label" } else { "label" };
    session.print([verb.as_bytes(), b" = \"", &label, b"\"\n"].concat())
}
