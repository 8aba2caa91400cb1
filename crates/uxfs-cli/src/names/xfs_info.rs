//! `xfs_info`: shows the geometry of a volume in an image or on a device.

use uxfs::disk::OpenMode;
use uxfs::mkfs::table_of_7;

use super::program::{Line, Program, Stop};
use super::volume::{identity, refuse_directory};
use crate::session::Session;

pub(super) const PROGRAM: Program = Program {
    name: "xfs_info",
    letters: "t:V",
    long: &[],
    script: true,
    usage: "[-V] [-t mtab] device|image",
    usage_code: 2,
    run,
};

fn run(line: &Line, session: &Session) -> Result<(), Stop> {
    // -t names a table of mounts. It is not read: what is mounted is not needed here.
    let path = line.operand("device or image")?;
    refuse_directory(path)?;
    let identity = identity(path, OpenMode::Read)?;
    Ok(session.print(table_of_7(identity.superblock(), &path.display().to_string()))?)
}
