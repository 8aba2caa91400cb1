//! The state that all parts of the check share: device, geometry, findings, limits.
//!
//! 1. Findings beyond the limit are counted but not stored, so a hostile image cannot fill memory.
//! 2. The check never writes to the device.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::Mutex;
use uxfs_disk::BlockDev;
use uxfs_format::superblock::Superblock;
use uxfs_format::{Daddr, FsBlock, Geometry, Lsn};

use crate::bytes::be64;
use crate::code::{self, Code};
use crate::finding::{Finding, Place};
use crate::options::CheckOptions;

/// State that all threads of one check share.
pub(crate) struct Ctx<'a> {
    dev: &'a dyn BlockDev,
    /// Geometry of the volume.
    pub(crate) geo: Geometry,
    /// The primary superblock, or a secondary one if the primary is damaged.
    pub(crate) sb: Superblock,
    /// Is `sb` the primary superblock?
    pub(crate) primary: bool,
    /// How the check is to be run.
    pub(crate) options: &'a CheckOptions,
    /// LSN at which the next log record would be written; no structure may have a later LSN.
    pub(crate) log_head: Option<Lsn>,
    /// Random key of the hashes that compare sets, so that no image can cause collisions on
    /// purpose.
    pub(crate) seed: u64,
    findings: Mutex<Vec<Finding>>,
    left_out: AtomicU64,
    incomplete: AtomicBool,
    /// Bytes reserved for records that the cross checks need.
    reserved: AtomicU64,
}

impl<'a> Ctx<'a> {
    pub(crate) fn new(
        dev: &'a dyn BlockDev,
        geo: Geometry,
        sb: Superblock,
        options: &'a CheckOptions,
    ) -> Self {
        let mut seed = [0; 8];
        // Without randomness the hashes are predictable, but still correct.
        let _ = getrandom::fill(&mut seed);
        Self {
            dev,
            geo,
            sb,
            primary: true,
            options,
            log_head: None,
            seed: be64(&seed, 0),
            findings: Mutex::default(),
            left_out: AtomicU64::new(0),
            incomplete: AtomicBool::new(false),
            reserved: AtomicU64::new(0),
        }
    }

    /// A context for the same volume with other options and no findings.
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

    /// Reads from the device; reports a failure as a finding at `place` and returns false.
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

    /// Reserves `bytes` of the memory limit; false if the limit is reached.
    pub(crate) fn reserve(&self, bytes: usize) -> bool {
        let before = self.reserved.fetch_add(bytes as u64, Ordering::Relaxed);
        if before + bytes as u64 <= self.options.memory_limit {
            return true;
        }
        self.reserved.fetch_sub(bytes as u64, Ordering::Relaxed);
        if !self.incomplete.swap(true, Ordering::Relaxed) {
            let limit = self.options.memory_limit >> 20;
            let message = format!("more than {limit} MiB are needed; give the check more memory");
            self.find(code::LIMIT, Place::VOLUME, message);
        }
        false
    }

    /// A reservation that is released when it is dropped.
    pub(crate) fn reservation(&self) -> Reservation<'_, 'a> {
        Reservation { ctx: self, bytes: 0 }
    }

    /// Records that the check skips something.
    pub(crate) fn set_incomplete(&self) {
        self.incomplete.store(true, Ordering::Relaxed);
    }

    /// Has the check skipped something?
    pub(crate) fn is_incomplete(&self) -> bool {
        self.incomplete.load(Ordering::Relaxed)
    }

    /// Reports an LSN that is ahead of the log's head.
    pub(crate) fn check_lsn(&self, lsn: Lsn, place: &Place) {
        let Some(head) = self.log_head else { return };
        if lsn.is_null() || lsn <= head {
            return;
        }
        let show = |lsn: Lsn| format!("{}:{}", lsn.0 >> 32, lsn.0 & 0xffff_ffff);
        let message = format!("LSN {} is ahead of the log's head {}", show(lsn), show(head));
        self.find(code::LSN, place.clone(), message);
    }

    /// The location of a block of the volume.
    pub(crate) fn place(&self, fsb: FsBlock) -> Place {
        Place::block(self.geo.fsb_ag(fsb), self.geo.fsb_agblock(fsb))
    }

    /// The findings so far, mutable.
    pub(crate) fn findings(&self) -> parking_lot::MutexGuard<'_, Vec<Finding>> {
        self.findings.lock()
    }

    /// All findings in order, and the number of findings beyond the limit.
    pub(crate) fn into_findings(self) -> (Vec<Finding>, u64) {
        let mut findings = self.findings.into_inner();
        findings
            .sort_by(|a, b| (&a.place, a.code, &a.message).cmp(&(&b.place, b.code, &b.message)));
        findings.dedup();
        (findings, self.left_out.into_inner())
    }
}

/// Memory reserved until this is dropped.
pub(crate) struct Reservation<'c, 'a> {
    ctx: &'c Ctx<'a>,
    bytes: usize,
}

impl Reservation<'_, '_> {
    /// Reserves more; false if the limit is reached.
    pub(crate) fn grow(&mut self, bytes: usize) -> bool {
        let granted = self.ctx.reserve(bytes);
        self.bytes += if granted { bytes } else { 0 };
        granted
    }
}

impl Drop for Reservation<'_, '_> {
    fn drop(&mut self) {
        self.ctx.reserved.fetch_sub(self.bytes as u64, Ordering::Relaxed);
    }
}
