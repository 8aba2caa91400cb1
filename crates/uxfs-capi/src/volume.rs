//! Volumes: opened, made, closed, made durable.

#![expect(non_camel_case_types, reason = "names of C")]

use std::ffi::c_char;

use uxfs::files::Ticket;
use uxfs::{Volume, VolumeOptions, WritebackOptions};

use crate::error::{Failure, call, call_only};
use crate::pointer::{handle, path, put, wanted};

/// An open volume.
pub struct uxfs_volume(pub(crate) Volume);

/// Open for reading only: the image is not written to.
pub const UXFS_RDONLY: u32 = 1;
/// A thread makes changes durable some seconds after they were made.
pub const UXFS_BACKGROUND: u32 = 2;
/// Written data stays in memory until it is written back.
pub const UXFS_DELAYED: u32 = 4;

/// The durability of everything up to a moment.
pub struct uxfs_ticket(pub(crate) Ticket);

/// The totals of a volume.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct uxfs_totals {
    /// Bytes in a block.
    pub block_size: u32,
    /// Blocks for data and metadata.
    pub blocks: u64,
    /// Free blocks.
    pub free_blocks: u64,
    /// Inodes that are allocated or could be.
    pub files: u64,
    /// Inodes that are free or could be allocated.
    pub free_files: u64,
    /// UUID.
    pub uuid: [u8; 16],
}

fn options(flags: u32) -> Result<VolumeOptions, Failure> {
    if flags & !(UXFS_RDONLY | UXFS_BACKGROUND | UXFS_DELAYED) != 0 {
        return Err(Failure::new(22, format!("unknown flags {flags:#x}")));
    }
    let options = VolumeOptions::new()
        .read_only(flags & UXFS_RDONLY != 0)
        .background(flags & UXFS_BACKGROUND != 0);
    Ok(if flags & UXFS_DELAYED != 0 {
        options.delayed(WritebackOptions::default())
    } else {
        options
    })
}

/// Opens the volume in an image file or on a block device, with flags `UXFS_RDONLY`,
/// `UXFS_BACKGROUND`, `UXFS_DELAYED` or 0. `*volume` is then a handle for `uxfs_close`.
///
/// # Safety
/// `image` is a string that ends in a NUL; `volume` a place for a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uxfs_open(
    image: *const c_char,
    flags: u32,
    volume: *mut *mut uxfs_volume,
) -> i32 {
    call_only(|| {
        wanted(volume)?;
        // SAFETY: by this function's contract.
        let image = unsafe { path(image) }?;
        let opened = Box::new(uxfs_volume(Volume::open_with(image, &options(flags)?)?));
        // SAFETY: by this function's contract.
        unsafe { put(volume, Box::into_raw(opened)) }
    })
}

/// Makes a volume of `size` bytes (at least 300 MiB) in a new image file, with the defaults of
/// mkfs.xfs, and opens it as `uxfs_open` does.
///
/// # Safety
/// `image` is a string that ends in a NUL; `volume` a place for a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uxfs_mkfs(
    image: *const c_char,
    size: u64,
    flags: u32,
    volume: *mut *mut uxfs_volume,
) -> i32 {
    call_only(|| {
        wanted(volume)?;
        // SAFETY: by this function's contract.
        let image = unsafe { path(image) }?;
        let mkfs = uxfs::mkfs::Options::default();
        let made = Volume::create_with(image, size, &mkfs, &options(flags)?)?;
        // SAFETY: by this function's contract.
        unsafe { put(volume, Box::into_raw(Box::new(uxfs_volume(made)))) }
    })
}

/// Closes a volume and frees its handle, also if it fails: everything is written in place, and the log
/// is left clean. In a child process of the one that opened it, all calls fail with -EBADF, and this
/// writes nothing. Files and directories that are still open fail with -EBADF afterwards, and are
/// closed as usual. A null pointer does nothing.
///
/// # Safety
/// `volume` is null or a handle of `uxfs_open` or `uxfs_mkfs` that no thread uses any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uxfs_close(volume: *mut uxfs_volume) -> i32 {
    call_only(|| {
        if volume.is_null() {
            return Ok(());
        }
        // SAFETY: the handle came from `Box::into_raw`, and the contract says that it is taken back once.
        let volume = unsafe { Box::from_raw(volume) };
        Ok(volume.0.close()?)
    })
}

/// Makes all changes durable.
///
/// # Safety
/// `volume` is an open handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uxfs_sync(volume: *const uxfs_volume) -> i32 {
    // SAFETY: by this function's contract.
    call_only(|| Ok(unsafe { handle(volume) }?.0.sync_all()?))
}

/// The totals of a volume.
///
/// # Safety
/// `volume` is an open handle; `totals` a place for the result.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uxfs_statfs(volume: *const uxfs_volume, totals: *mut uxfs_totals) -> i32 {
    call_only(|| {
        // SAFETY: by this function's contract.
        let all = unsafe { handle(volume) }?.0.statfs()?;
        let result = uxfs_totals {
            block_size: all.block_size,
            blocks: all.blocks,
            free_blocks: all.free_blocks,
            files: all.files,
            free_files: all.free_files,
            uuid: all.uuid.0,
        };
        // SAFETY: by this function's contract.
        unsafe { put(totals, result) }
    })
}

/// Makes a ticket for the durability of all changes so far, and does not wait for it. `*ticket` is then
/// a handle for `uxfs_ticket_free`.
///
/// # Safety
/// `volume` is an open handle; `ticket` a place for a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uxfs_ticket_new(
    volume: *const uxfs_volume,
    ticket: *mut *mut uxfs_ticket,
) -> i32 {
    call_only(|| {
        wanted(ticket)?;
        // SAFETY: by this function's contract.
        let made = unsafe { handle(volume) }?.0.ticket()?;
        // SAFETY: by this function's contract.
        unsafe { put(ticket, Box::into_raw(Box::new(uxfs_ticket(made)))) }
    })
}

/// Waits until everything up to the ticket is on stable storage. -EINVAL for a ticket of another volume,
/// or of an earlier opening of this one.
///
/// # Safety
/// Both are open handles.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uxfs_ticket_wait(
    volume: *const uxfs_volume,
    ticket: *const uxfs_ticket,
) -> i32 {
    call_only(|| {
        // SAFETY: by this function's contract.
        let (volume, ticket) = unsafe { (handle(volume)?, handle(ticket)?) };
        Ok(volume.0.wait(ticket.0)?)
    })
}

/// Is everything up to the ticket on stable storage? Returns 1 or 0; -EINVAL for a ticket of another
/// volume, or of an earlier opening of this one.
///
/// # Safety
/// Both are open handles.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uxfs_ticket_durable(
    volume: *const uxfs_volume,
    ticket: *const uxfs_ticket,
) -> i32 {
    let answer = call(|| {
        // SAFETY: by this function's contract.
        let (volume, ticket) = unsafe { (handle(volume)?, handle(ticket)?) };
        Ok(volume.0.is_durable(ticket.0)?.into())
    });
    // An errno fits.
    answer as i32
}

/// Frees a ticket. A null pointer does nothing.
///
/// # Safety
/// `ticket` is null or a handle of `uxfs_ticket_new` that no thread uses any more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uxfs_ticket_free(ticket: *mut uxfs_ticket) {
    if !ticket.is_null() {
        // SAFETY: the handle came from `Box::into_raw`, and the contract says that it is taken back once.
        drop(unsafe { Box::from_raw(ticket) });
    }
}
