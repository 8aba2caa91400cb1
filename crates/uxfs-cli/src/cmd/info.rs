//! `uxfs info`: shows the geometry of a volume in the format of `xfs_info`.

use std::path::PathBuf;

use clap::Args;
use serde_json::{Map, json};
use uxfs_format::features::describe;

use crate::image::Images;
use crate::json;
use crate::session::{Result, Session};

/// Show the geometry of a volume, as xfs_info does
#[derive(Args)]
#[command(
    after_help = "Examples:\n  uxfs info disk.img\n  uxfs info --json disk.img | jq .free_bytes"
)]
pub(crate) struct Options {
    /// Print a JSON document, with free space and features
    #[arg(long)]
    pub(crate) json: bool,
    /// The image
    #[arg(value_name = "IMAGE")]
    image: PathBuf,
}

pub(crate) fn run(options: &Options, session: &Session, images: &Images) -> Result<()> {
    let image = images.get(&options.image, false)?;
    let sb = image.fs.superblock();
    if !options.json {
        let name = options.image.display().to_string();
        return session.print(uxfs::mkfs::table_of(&sb, &name));
    }
    let stat = image.fs.statfs();
    let block = u64::from(stat.block_size);
    let features = |text: String| -> Vec<String> {
        text.split(", ").filter(|name| !name.is_empty()).map(str::to_owned).collect()
    };
    let mut map = Map::new();
    map.insert("image".into(), json!(options.image.display().to_string()));
    map.insert("uuid".into(), json!(stat.uuid.to_string()));
    json::put_bytes(&mut map, "label", &stat.label);
    for (key, value) in [
        ("block_size_bytes", block),
        ("sector_size_bytes", sb.sectsize.get().into()),
        ("inode_size_bytes", sb.inodesize.get().into()),
        ("directory_block_size_bytes", block << sb.dirblklog.min(16)),
        ("ag_count", sb.agcount.get().into()),
        ("ag_size_blocks", sb.agblocks.get().into()),
        ("log_bytes", block * u64::from(sb.logblocks.get())),
        ("volume_bytes", block * sb.dblocks.get()),
        ("data_bytes", block * stat.blocks),
        ("free_bytes", block * stat.free_blocks),
        ("inodes", stat.files),
        ("inodes_free", stat.free_files),
        ("inodes_allocated", sb.icount.get()),
        ("inode_max_percent", sb.imax_pct.into()),
        ("stripe_unit_bytes", block * u64::from(sb.unit.get())),
        ("stripe_width_bytes", block * u64::from(sb.width.get())),
    ] {
        map.insert(key.into(), json!(value));
    }
    map.insert("features_ro_compat".into(), json!(features(describe(sb.ro_compat()))));
    map.insert("features_incompat".into(), json!(features(describe(sb.incompat()))));
    session.print(json::document("info", map))
}
