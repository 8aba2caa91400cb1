//! A plan applied to an image, and undone.
//!
//! 1. The undo file is complete and on stable storage before the first sector changes.
//! 2. While sectors change, the primary superblock is marked as in need of repair, so that no kernel
//!    mounts a volume that is half repaired. It gets its last content when everything else is on stable storage.
//! 3. After a cut at any moment the volume can be repaired again, with the same undo file, or undone.

use std::path::Path;

use uxfs_disk::BlockDev;
use uxfs_format::Uuid;
use uxfs_format::features::Incompat;
use uxfs_format::superblock::{CRC_OFFSET, Superblock};

use crate::error::{RepairError, Result};
use crate::plan::{Change, Plan, SECTOR};
use crate::undo::{self, Undo};

/// Most bytes that are written at once.
const RUN: usize = 1 << 20;

/// Applies a plan. The bytes before go to the undo file at `undo`, which is made, or continued if it
/// belongs to an earlier repair of this very volume.
///
/// # Errors
/// [`RepairError::Mismatch`] if the volume is not as the plan found it, or the undo file belongs to
/// another; [`RepairError::File`] if the undo file cannot be written: the volume is then unchanged.
/// [`RepairError::Stopped`] if the device failed in the midst.
pub fn apply(plan: &Plan, dev: &dyn BlockDev, undo: &Path) -> Result<()> {
    if plan.is_empty() {
        return Ok(());
    }
    check(plan, dev)?;
    let good = if undo.exists() { continued(plan, dev, undo)? } else { 0 };
    let marked = marked(plan, dev)?;
    let mut records = Vec::new();
    records.extend(marked.clone());
    records.extend(plan.changes.iter().cloned());
    if let Some(marked) = &marked {
        // From the mark to the last content.
        let last = last_content(plan, &marked.before);
        records.push(Change { before: marked.after.clone(), after: last, ..marked.clone() });
    }
    undo::append(undo, good, &plan.uuid, plan.len, &records)?;
    write(plan, dev, marked.as_ref())
}

/// How many bytes of an undo file that is there already stay.
fn continued(plan: &Plan, dev: &dyn BlockDev, undo: &Path) -> Result<u64> {
    let file = Undo::read(undo)?;
    if file.good() > 0 {
        file.check(dev, Some(plan.uuid)).map_err(|error| match error {
            RepairError::Mismatch(problem) => RepairError::Mismatch(format!(
                "{}: {problem}; name another undo file, or remove it",
                undo.display()
            )),
            other => other,
        })?;
    }
    Ok(file.good())
}

/// Fails if the volume is not as the plan found it.
fn check(plan: &Plan, dev: &dyn BlockDev) -> Result<()> {
    if plan.len != dev.len() {
        let problem = format!("the plan is for a device of {} bytes", plan.len);
        return Err(RepairError::Mismatch(problem));
    }
    for change in &plan.changes {
        let mut bytes = vec![0; change.before.len()];
        let failed = |source| RepairError::Io { what: "reading", offset: change.offset, source };
        dev.read_at(change.offset, &mut bytes).map_err(failed)?;
        if bytes != change.before {
            return Err(RepairError::Mismatch(format!(
                "the volume was changed since the plan was made, at byte {}: make a new plan",
                change.offset
            )));
        }
    }
    Ok(())
}

/// The last content of the primary superblock's sector.
fn last_content(plan: &Plan, before: &[u8]) -> Vec<u8> {
    match plan.changes.first().filter(|change| change.offset == 0) {
        Some(change) => change.after.clone(),
        None => before.to_vec(),
    }
}

/// The change that marks the volume as in need of repair. `None` for sectors longer than those of a plan,
/// whose superblock is written last but not marked.
fn marked(plan: &Plan, dev: &dyn BlockDev) -> Result<Option<Change>> {
    let mut before = vec![0; SECTOR];
    let failed = |source| RepairError::Io { what: "reading", offset: 0, source };
    dev.read_at(0, &mut before).map_err(failed)?;
    let mut after = last_content(plan, &before);
    let Some(sb) = Superblock::view_mut(&mut after) else { return Ok(None) };
    if usize::from(sb.sectsize.get()) != SECTOR {
        return Ok(None);
    }
    sb.features_incompat.set((sb.incompat() | Incompat::NEEDSREPAIR).bits());
    uxfs_format::crc::stamp(&mut after, CRC_OFFSET);
    Ok(Some(Change { offset: 0, before, after }))
}

fn write(plan: &Plan, dev: &dyn BlockDev, marked: Option<&Change>) -> Result<()> {
    let put = |offset: u64, bytes: &[u8]| {
        dev.write_at(offset, bytes).map_err(|source| RepairError::Stopped { offset, source })
    };
    let flush = || dev.flush().map_err(|source| RepairError::Stopped { offset: 0, source });
    if let Some(marked) = marked {
        put(0, &marked.after)?;
        flush()?;
    }
    let mut run: (u64, Vec<u8>) = (0, Vec::new());
    for change in plan.changes.iter().filter(|change| change.offset != 0) {
        if run.0 + run.1.len() as u64 != change.offset || run.1.len() >= RUN {
            put(run.0, &run.1)?;
            run = (change.offset, Vec::new());
        }
        run.1.extend_from_slice(&change.after);
    }
    put(run.0, &run.1)?;
    flush()?;
    let last = match marked {
        Some(marked) => Some(last_content(plan, &marked.before)),
        None => plan.changes.first().filter(|change| change.offset == 0).map(|c| c.after.clone()),
    };
    if let Some(last) = last {
        put(0, &last)?;
    }
    flush()
}

/// Gives back every byte that repairs with this undo file changed, then removes the file. Returns the
/// number of bytes.
///
/// # Errors
/// [`RepairError::Mismatch`] if the file does not belong to this volume, or the volume was changed since:
/// nothing is written then. [`RepairError::Stopped`] if the device failed in the midst: undo again.
pub fn undo(dev: &dyn BlockDev, undo: &Path) -> Result<u64> {
    let file = Undo::read(undo)?;
    if file.good() == 0 {
        let problem = "it was cut off before any sector changed: there is nothing to undo";
        return Err(RepairError::Mismatch(format!("{}: {problem}", undo.display())));
    }
    file.check(dev, uuid_of(dev))?;
    let bytes = file.apply(dev)?;
    std::fs::remove_file(undo)
        .map_err(|source| RepairError::File { path: undo.display().to_string(), source })?;
    Ok(bytes)
}

/// UUID of the volume, if its superblock is readable.
fn uuid_of(dev: &dyn BlockDev) -> Option<Uuid> {
    let mut sector = vec![0; SECTOR];
    dev.read_at(0, &mut sector).ok()?;
    Superblock::verify(&sector).ok().map(|sb| Uuid(sb.uuid))
}
