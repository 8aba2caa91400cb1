//! What the engine does on the volume in memory, once its trees are sound: entries of directories entered
//! again, attributes set again, lost inodes brought to `lost+found`.
//!
//! 1. The engine works on an overlay of its own; what it changed then becomes part of one step.
//! 2. `lost+found` is made in the root directory if it is not there; if something else has that name,
//!    `lost+found~`, then `lost+found1` and so on. A lost inode's name there is its number.

use std::sync::Arc;

use uxfs_check::Place;
use uxfs_core::attr::Namespace;
use uxfs_core::{Error, Fs, NewInode, OpenOptions};
use uxfs_disk::{BlockDev, Overlay};
use uxfs_format::Ino;
use uxfs_format::attr::AttrFlags;
use uxfs_format::dir::FileType;
use uxfs_format::inode::{S_IFDIR, S_IFMT};

use crate::error::{RepairError, Result};
use crate::links::Links;
use crate::volume::Volume;

/// Most bytes that the engine changes in memory.
const MEMORY: usize = 1 << 30;
/// Name of the directory for lost inodes.
const LOST_FOUND: &str = "lost+found";

/// Does what waits for the engine.
pub(crate) fn run(volume: &mut Volume, links: &Links) -> Result<()> {
    if links.refill.is_empty()
        && links.attrs.is_empty()
        && links.pointers.is_empty()
        && links.lost.is_empty()
    {
        return Ok(());
    }
    let below: Arc<dyn BlockDev> = Arc::<Overlay>::clone(&volume.dev);
    let overlay = Arc::new(Overlay::new(below, MEMORY));
    let dev: Arc<dyn BlockDev> = Arc::<Overlay>::clone(&overlay);
    let mut options = OpenOptions::default();
    options.unfinished = true;
    let failed = |what: &str| {
        let what = what.to_owned();
        move |source: Error| RepairError::Engine { what, source }
    };
    let fs = Fs::open(dev, options).map_err(failed("opening the volume in memory"))?;
    for (parent, entries) in &links.refill {
        for entry in entries {
            let ftype = FileType::from_raw(entry.ftype).unwrap_or_default();
            fs.restore_entry(*parent, &entry.name, entry.ino, ftype)
                .map_err(failed(&format!("filling directory {parent}")))?;
        }
    }
    for (ino, attrs) in &links.attrs {
        for attr in attrs {
            fs.restore_attr(*ino, namespace(attr.namespace), &attr.name, &attr.value)
                .map_err(failed(&format!("setting attributes of inode {ino}")))?;
        }
    }
    for (ino, parent, name) in &links.pointers {
        fs.restore_parent(*ino, *parent, name)
            .map_err(failed(&format!("setting a parent pointer of inode {ino}")))?;
    }
    adopt(volume, &fs, &links.lost)?;
    fs.close().map_err(failed("writing the volume in memory"))?;
    take_over(volume, &overlay, links)
}

const fn namespace(flags: AttrFlags) -> Namespace {
    match flags {
        AttrFlags::ROOT => Namespace::Trusted,
        AttrFlags::SECURE => Namespace::Secure,
        AttrFlags::PARENT => Namespace::Parent,
        _ => Namespace::User,
    }
}

/// The directory for lost inodes, and its name.
fn lost_found(fs: &Fs) -> uxfs_core::Result<(Ino, String)> {
    let root = fs.root();
    let mut called = LOST_FOUND.to_owned();
    for number in 0u64.. {
        match fs.lookup(root, called.as_bytes()) {
            Ok(dir) if fs.stat(dir)?.mode & S_IFMT == S_IFDIR => return Ok((dir, called)),
            Ok(_) => {}
            Err(Error::NotFound) => break,
            Err(error) => return Err(error),
        }
        called = match number {
            0 => format!("{LOST_FOUND}~"),
            _ => format!("{LOST_FOUND}{number}"),
        };
    }
    Ok((fs.create(root, called.as_bytes(), &NewInode::dir(0o700))?, called))
}

/// Brings lost inodes to `lost+found`.
fn adopt(volume: &mut Volume, fs: &Fs, lost: &[Ino]) -> Result<()> {
    if lost.is_empty() {
        return Ok(());
    }
    let failed = |source| RepairError::Engine { what: "filling lost+found".into(), source };
    let (dir, called) = lost_found(fs).map_err(failed)?;
    for ino in lost.iter().filter(|ino| **ino != dir) {
        let mut name = ino.to_string();
        while fs.lookup(dir, name.as_bytes()).is_ok() {
            name.push('~');
        }
        fs.adopt(dir, name.as_bytes(), *ino).map_err(failed)?;
        let becomes = format!("it is {called}/{name}");
        let step = volume.step("inode", Place::inode(*ino), "no entry leads to it", becomes);
        volume.covers(step, volume.inode_at(*ino), volume.geo.inode_size.into());
    }
    Ok(())
}

/// Takes over what the engine changed.
fn take_over(volume: &mut Volume, overlay: &Overlay, links: &Links) -> Result<()> {
    let (dirs, attrs, lost) = (links.refill.len(), links.attrs.len(), links.lost.len());
    let wrong = format!(
        "to enter and set again: directories, {dirs}; inodes with attributes, {attrs}; lost inodes, {lost}"
    );
    let step = volume.step("volume", Place::VOLUME, wrong, "done");
    let mut pages = Vec::new();
    let failed = |source| RepairError::Io { what: "reading", offset: 0, source };
    overlay
        .for_changes(|offset, _, new| {
            pages.push((offset, new.to_vec()));
            Ok::<_, std::io::Error>(())
        })
        .map_err(failed)?;
    for (offset, bytes) in pages {
        volume.write(step, offset, &bytes)?;
    }
    let sector = volume.sector(uxfs_format::Daddr(0))?;
    if let Ok(sb) = uxfs_format::superblock::Superblock::verify(&sector) {
        volume.sb = *sb;
    }
    Ok(())
}
