//! The walk over a volume: groups one by one, then the log. Here is what all parts of the walk share:
//! sectors read, changed and written once.

use std::io::Write;

use uxfs_disk::BlockDev;
use uxfs_format::features::{Incompat, RoCompat, Version as VersionFlags, describe};
use uxfs_format::metadump::Content;
use uxfs_format::superblock::{Superblock, has_magic};
use uxfs_format::verify::BufKind;
use uxfs_format::{AgNo, Daddr, Geometry};
use uxfs_journal::recovery::{Log, State};

use crate::clean_log;
use crate::error::DumpError;
use crate::options::{DumpOptions, DumpProgress, DumpSummary, Event};
use crate::scrub::{Outcome, Scrub};
use crate::seen::Seen;
use crate::writer::Writer;

/// Largest sector of a volume in bytes.
const LONGEST_SECTOR: usize = 32768;
/// Bytes of the log that are copied at once.
const LOG_PIECE: usize = 1 << 20;

/// A dump that is being made.
pub(crate) struct Dump<'a> {
    dev: &'a dyn BlockDev,
    pub(crate) options: &'a DumpOptions,
    pub(crate) sb: Superblock,
    pub(crate) scrub: Scrub<'a>,
    seen: Seen,
    writer: Writer<'a>,
    on: &'a mut dyn FnMut(Event),
    pub(crate) summary: DumpSummary,
}

/// Writes a dump of the volume on `dev` to `out`.
///
/// # Errors
/// If the volume is not one that can be dumped, or reading or writing fails.
pub fn dump(
    dev: &dyn BlockDev,
    options: &DumpOptions,
    out: &mut dyn Write,
    on: &mut dyn FnMut(Event),
) -> Result<DumpSummary, DumpError> {
    let sb = superblock(dev, options)?;
    let geo = Geometry::new(&sb);
    let log = Log::new(&sb);
    let state = log.as_ref().map(|log| log.state(dev));
    let mut content = Content::empty();
    content.set(Content::OBFUSCATED, options.names.is_some());
    content.set(Content::WHOLE_BLOCKS, options.whole_blocks);
    // A log whose state cannot be told may hold anything.
    let clean = !matches!(state, Ok(Ok(State::Dirty) | Err(_)));
    content.set(Content::DIRTY_LOG, !clean);
    let writer = Writer::new(out, options.version, content).map_err(DumpError::Write)?;
    let scrub = Scrub { geo: &geo, names: options.names.as_ref(), whole: options.whole_blocks };
    let summary = DumpSummary { content, ..DumpSummary::default() };
    let mut dump = Dump { dev, options, sb, scrub, seen: Seen::default(), writer, on, summary };
    for ag in (0..geo.ag_count).map(AgNo) {
        dump.group(ag)?;
    }
    match log {
        Ok(log) => dump.log(&log, clean)?,
        Err(error) if geo.log_start.0 != 0 => dump.warn(format!("the log is left out: {error}")),
        Err(_) => dump.notice("the log is on another device, and is not in the dump"),
    }
    dump.summary.bytes = dump.writer.bytes;
    let Dump { writer, summary, .. } = dump;
    writer.finish().map_err(DumpError::Write)?;
    Ok(summary)
}

/// The primary superblock, if the metadata is where it says.
fn superblock(dev: &dyn BlockDev, options: &DumpOptions) -> Result<Superblock, DumpError> {
    let len = usize::try_from(dev.len()).unwrap_or(usize::MAX).min(LONGEST_SECTOR);
    let mut sector = vec![0; len];
    let read = |source| DumpError::Read { daddr: Daddr(0), source };
    dev.read_at(0, &mut sector).map_err(read)?;
    if !has_magic(&sector) {
        let magic = Superblock::view(&sector).map_or(0, |sb| sb.magicnum.get());
        return Err(DumpError::NotXfs(magic));
    }
    let sb = *Superblock::verify(&sector)?;
    let refused = |what: String| Err(DumpError::Unsupported(what));
    if sb.is_v4() {
        return refused("a volume of version 4 is not dumped".into());
    }
    let known = Incompat::all() - Incompat::METADIR - Incompat::ZONED - Incompat::ZONE_GAPS;
    let more = sb.incompat().bits() & !known.bits();
    let unknown = sb.ro_compat().bits() & !RoCompat::all().bits();
    if more != 0 || unknown != 0 {
        let mut names = Vec::new();
        if more != 0 {
            names.push(describe(Incompat::from_bits_retain(more)));
        }
        if unknown != 0 {
            names.push(describe(RoCompat::from_bits_retain(unknown)));
        }
        return refused(format!("a volume with the features {} is not dumped", names.join(", ")));
    }
    if options.names.is_some() && sb.version_flags().contains(VersionFlags::BORG) {
        let what =
            "a volume whose names compare without case cannot get other names (-o keeps them)";
        return refused(what.into());
    }
    Ok(sb)
}

impl Dump<'_> {
    /// Reports something that contradicts itself or could not be read.
    pub(crate) fn warn(&mut self, what: String) {
        self.summary.warnings += 1;
        (self.on)(Event::Warning(what));
    }

    fn notice(&mut self, what: &str) {
        (self.on)(Event::Notice(what.to_owned()));
    }

    pub(crate) fn progress(&mut self, progress: DumpProgress) {
        (self.on)(Event::Progress(progress));
    }

    /// Claims sectors for the dump. `false`, with a warning, if they do not exist or are in it already.
    pub(crate) fn claim(&mut self, daddr: Daddr, len: usize, what: &str) -> bool {
        let end = daddr.0.saturating_mul(512).saturating_add(len as u64);
        if end > self.dev.len() {
            self.warn(format!("daddr {daddr}: {what} behind the end of the device"));
            return false;
        }
        let new = self.seen.add(daddr, (len >> 9) as u64);
        if !new {
            self.warn(format!("daddr {daddr}: {what} in a block that is something else already"));
        }
        new
    }

    /// Reads `len` bytes; `None`, with a warning, if they cannot be read.
    pub(crate) fn read(&mut self, daddr: Daddr, len: usize) -> Result<Option<Vec<u8>>, DumpError> {
        let mut bytes = vec![0; len];
        match self.dev.read_at(daddr.bytes(), &mut bytes) {
            Ok(()) => Ok(Some(bytes)),
            Err(source) if self.options.stop_at_read_error => {
                Err(DumpError::Read { daddr, source })
            }
            Err(error) => {
                self.warn(format!("daddr {daddr}: {len} bytes are left out: {error}"));
                Ok(None)
            }
        }
    }

    /// Writes sectors to the dump.
    pub(crate) fn put(&mut self, daddr: Daddr, bytes: &[u8]) -> Result<(), DumpError> {
        self.writer.put(daddr, bytes).map_err(DumpError::Write)
    }

    /// Notes what became of a structure. Is it sound?
    pub(crate) fn note(&mut self, outcome: Outcome) -> bool {
        let Outcome::Damaged(problem, withheld) = outcome else { return true };
        self.summary.withheld += withheld as u64;
        let left_out = match withheld {
            0 => String::new(),
            bytes => format!("; {bytes} bytes of it are left out, as they may hold names"),
        };
        self.warn(format!("{problem}{left_out}"));
        false
    }

    /// Dumps a block that has one kind and lies in one piece. Returns it, as it is on the device, if it is
    /// sound.
    pub(crate) fn block(
        &mut self,
        kind: BufKind,
        daddr: Daddr,
        len: usize,
    ) -> Result<Option<Vec<u8>>, DumpError> {
        if !self.claim(daddr, len, kind.name()) {
            return Ok(None);
        }
        let Some(block) = self.read(daddr, len)? else { return Ok(None) };
        let mut changed = block.clone();
        let outcome = self.scrub.block(&mut changed, kind, daddr);
        self.put(daddr, &changed)?;
        Ok(self.note(outcome).then_some(block))
    }

    /// Dumps the log, or an empty one in the place of a clean one: records of earlier times hold names.
    fn log(&mut self, log: &Log, clean: bool) -> Result<(), DumpError> {
        let geo = self.scrub.geo;
        let start = geo.fsb_daddr(geo.log_start);
        self.progress(DumpProgress::Log);
        if clean && !self.scrub.changes_nothing() {
            match log.find(self.dev) {
                Ok(bounds) => {
                    self.progress(DumpProgress::CleanLog);
                    for (block, bytes) in clean_log::pieces(log, &bounds) {
                        self.put(Daddr(start.0 + block), &bytes)?;
                    }
                    return Ok(());
                }
                Err(error) => self.warn(format!("the log is copied as it is: {error}")),
            }
        }
        if self.scrub.names.is_some() {
            self.notice(
                "the log is dirty and is copied as it is: it may show names, and a replay may damage \
                 what is restored. Mount and unmount the volume first (or uxfs log quiesce)",
            );
        }
        let mut block = 0;
        while block < log.blocks() {
            let count = (log.blocks() - block).min((LOG_PIECE >> 9) as u64);
            let daddr = Daddr(start.0 + block);
            // At most a piece of the log.
            if let Some(bytes) = self.read(daddr, (count << 9) as usize)? {
                self.put(daddr, &bytes)?;
            }
            block += count;
        }
        Ok(())
    }
}
