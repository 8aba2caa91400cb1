//! `xfs_growfs` of an image or a device that is not mounted, which it grows in place, as `uxfs
//! resize` does; and of a directory of a mount made by uxfs, whose server grows the volume while it
//! is used. That of xfsprogs asks the kernel to grow a volume that the kernel mounted.

#[cfg(target_os = "linux")]
mod of_mount;

use std::path::Path;

use uxfs::disk::OpenMode;
use uxfs::mkfs::table_of_7;
use uxfs::resize::{self, Method, ResizeOptions, Target};
use uxfs::volume::Location;

use super::program::{Line, Program, Stop, refused};
use super::volume::identity;
use crate::address;
use crate::session::{Failure, Session};

pub(super) const PROGRAM: Program = Program {
    name: "xfs_growfs",
    letters: "dD:e:ilL:m:nrR:t:xV",
    long: &[],
    script: false,
    usage: "[-dnV] [-D blocks] [-t mtab] mountpoint|device|image",
    usage_code: 2,
    run,
};

fn run(line: &Line, session: &Session) -> Result<(), Stop> {
    for given in &line.options {
        refuse(given.letter)?;
    }
    let blocks = line.value('D').map(|word| word.to_str().unwrap_or_default().parse::<u64>());
    let blocks =
        blocks.transpose().map_err(|_| Stop::Usage("-D takes a number of blocks".into()))?;
    let path = line.operand("device or image")?;
    if path.is_dir() {
        #[cfg(target_os = "linux")]
        return of_mount::run(line, path, blocks, session);
        #[cfg(not(target_os = "linux"))]
        return Err(crate::cmd::absent::failure().into());
    }
    let sb = *identity(path, OpenMode::Read)?.superblock();
    session.print(table_of_7(&sb, &path.display().to_string()))?;
    if line.has('n') {
        return Ok(());
    }
    let block = u64::from(sb.blocksize.get());
    let most = length(path)? / block;
    let present = sb.dblocks.get();
    let wanted = blocks.unwrap_or(most);
    if wanted > most {
        let why = format!(
            "data size {wanted} too large, maximum is {most}; lengthen the file or device first"
        );
        return Err(Failure::new(path, why).into());
    }
    if wanted < present {
        let why = format!(
            "data size {wanted} too small, old size is {present}: uxfs resize shrinks volumes"
        );
        return Err(Failure::new(path, why).into());
    }
    let options = ResizeOptions::new(path, Target::Bytes(wanted * block));
    let done = resize::run(&options).map_err(|error| match error {
        resize::ResizeError::Host { path, source } => Failure::host(path, &source),
        other => Failure::new(path, other.to_string()),
    })?;
    match done.method {
        // As in xfsprogs, nothing is said if no size was given.
        Method::Unchanged if blocks.is_none() => {}
        Method::Unchanged => session.say(b"data size unchanged, skipping"),
        _ => {
            let after = done.after / block;
            session.print(format!("data blocks changed from {present} to {after}\n"))?;
        }
    }
    Ok(())
}

/// Refuses what is not the data section.
fn refuse(letter: char) -> Result<(), Stop> {
    let instead = match letter {
        'i' | 'x' | 'l' | 'L' => "a log keeps its place and its size",
        'r' | 'R' | 'e' => "uxfs grows no realtime section",
        'm' => "mount the volume and use xfs_growfs of xfsprogs",
        _ => return Ok(()),
    };
    Err(refused(&format!("-{letter}"), instead))
}

/// Length in bytes of the file or device.
fn length(path: &Path) -> Result<u64, Stop> {
    let dev = address::open(path, OpenMode::Read, &Location::whole())
        .map_err(|error| Failure::host(path, &error))?;
    Ok(dev.len())
}
