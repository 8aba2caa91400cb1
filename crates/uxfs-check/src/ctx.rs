//! What every part of the check needs: the device, the geometry, a place for findings, limits.
//!
//! 1. Findings beyond the limit are counted, not kept: a hostile image cannot fill memory.
//! 2. Nothing here writes to the device.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::Mutex;
use uxfs_disk::BlockDev;
use uxfs_format::superblock::Superblock;
use uxfs_format::{Daddr, FsBlock, Geometry, Lsn};

use crate::code::{self, Code};
use crate::finding::{Finding, Place};
use crate::options::CheckOptions;

/// Shared by all threads of one check.
pub(crate) struct Ctx<'a> {
    dev: &'a dyn BlockDev,
    /// Shape of the volume.
    pub(crate) geo: Geometry,
    /// The primary superblock, or a copy.
    pub(crate) sb: Superblock,
    /// Is it the primary?
    pub(crate) primary: bool,
    /// How the check is to be run.
    pub(crate) options: &'a CheckOptions,
    /// Where the next log record would be written; no structure may be of a later time.
    pub(crate) log_head: Option<Lsn>,
    /// Key of the hashes by which many things are compared at once, so that no image can be made
    /// to collide.
    pub(crate) seed: u64,
    findings: Mutex<Vec<Finding>>,
    left_out: AtomicU64,
    incomplete: AtomicBool,
    /// Bytes that records kept for the cross checks take.
    kept: AtomicU64,
}

impl<'a> Ctx<'a> {
    pub(crate) fn new(
        dev: &'a dyn BlockDev,
        geo: Geometry,
        sb: Superblock,
        options: &'a CheckOptions,
    ) -> Self {
        let mut seed = [0; 8];
        // Without randomness the hashes are only easier to attack.
        let _ = getrandom::fill(&mut seed);
        Self {
            dev,
            geo,
            sb,
            primary: true,
            options,
            log_head: None,
            seed: u64::from_le_bytes(seed),
            findings: Mutex::default(),
            left_out: AtomicU64::new(0),
            incomplete: AtomicBool::new(false),
            kept: AtomicU64::new(0),
        }
    }

    /// The same volume for a second look, with other options.
    pub(crate) fn quiet<'b>(&'b self, options: &'b CheckOptions) -> Ctx<'b> {
        Ctx::new(self.dev, self.geo.clone(), self.sb, options)
    }

    /// Records a finding.
    pub(crate) fn find(&self, code: Code, place: Place, message: impl Into<String>) {
        let mut findings = self.findings.lock();
        if findings.len() >= self.options.max_findings {
            self.left_out.fetch_add(1, Ordering::Relaxed);
            return;
        }
        let Code { name, severity, .. } = code;
        findings.push(Finding { code: name, severity, place, message: message.into() });
    }

    /// Reads bytes of the device; a failure is a finding at `place`.
    pub(crate) fn read(&self, daddr: Daddr, buf: &mut [u8], place: &Place) -> bool {
        match self.dev.read_at(daddr.bytes(), buf) {
            Ok(()) => true,
            Err(e) => {
                self.incomplete.store(true, Ordering::Relaxed);
                self.find(code::READ, place.clone(), format!("reading {} bytes: {e}", buf.len()));
                false
            }
        }
    }

    /// Takes account of `bytes` to be kept; false when the limit is reached.
    pub(crate) fn keep(&self, bytes: usize) -> bool {
        let before = self.kept.fetch_add(bytes as u64, Ordering::Relaxed);
        if before + bytes as u64 <= self.options.memory_limit {
            return true;
        }
        self.kept.fetch_sub(bytes as u64, Ordering::Relaxed);
        if !self.incomplete.swap(true, Ordering::Relaxed) {
            let limit = self.options.memory_limit >> 20;
            let message = format!("more than {limit} MiB are needed; give the check more memory");
            self.find(code::LIMIT, Place::VOLUME, message);
        }
        false
    }

    /// Memory for something that is let go of again.
    pub(crate) fn lend(&self) -> Lent<'_, 'a> {
        Lent { ctx: self, bytes: 0 }
    }

    /// Something is left out.
    pub(crate) fn set_incomplete(&self) {
        self.incomplete.store(true, Ordering::Relaxed);
    }

    /// Was something left out?
    pub(crate) fn is_incomplete(&self) -> bool {
        self.incomplete.load(Ordering::Relaxed)
    }

    /// Is a structure's time of change one that the log has seen?
    pub(crate) fn check_lsn(&self, lsn: Lsn, place: &Place) {
        let Some(head) = self.log_head else { return };
        if lsn.is_null() || lsn <= head {
            return;
        }
        let show = |lsn: Lsn| format!("{}:{}", lsn.0 >> 32, lsn.0 & 0xffff_ffff);
        let message = format!("LSN {} is ahead of the log's head {}", show(lsn), show(head));
        self.find(code::LSN, place.clone(), message);
    }

    /// The place of a block of the volume.
    pub(crate) fn place(&self, fsb: FsBlock) -> Place {
        Place::block(self.geo.fsb_ag(fsb), self.geo.fsb_agblock(fsb))
    }

    /// The findings so far, to be changed.
    pub(crate) fn findings(&self) -> parking_lot::MutexGuard<'_, Vec<Finding>> {
        self.findings.lock()
    }

    /// All findings in order, and how many were left out.
    pub(crate) fn into_findings(self) -> (Vec<Finding>, u64) {
        let mut findings = self.findings.into_inner();
        findings
            .sort_by(|a, b| (&a.place, a.code, &a.message).cmp(&(&b.place, b.code, &b.message)));
        findings.dedup();
        (findings, self.left_out.into_inner())
    }
}

/// Memory taken account of until this is dropped.
pub(crate) struct Lent<'c, 'a> {
    ctx: &'c Ctx<'a>,
    bytes: usize,
}

impl Lent<'_, '_> {
    /// Takes account of more; false when the limit is reached.
    pub(crate) fn more(&mut self, bytes: usize) -> bool {
        let kept = self.ctx.keep(bytes);
        self.bytes += if kept { bytes } else { 0 };
        kept
    }
}

impl Drop for Lent<'_, '_> {
    fn drop(&mut self) {
        self.ctx.kept.fetch_sub(self.bytes as u64, Ordering::Relaxed);
    }
}
