//! Adds all entries of a source to an open volume.
//!
//! 1. The calling thread changes the volume. Another one reads ahead the entries of what lies in files
//!    of the host, and finds their labels ([`ReadAhead`]); others copy the data ([`BulkWriter`]). What
//!    is decompressed has threads of its own already.

use uxfs_archive::{ReadAhead, Source};
use uxfs_core::{BulkError, BulkWriter, Fs};

use super::adjust::Adjust;
use super::error::ImportError;
use super::labelled::Labelled;
use super::limit::unpack_limit;
use super::origin::Origin;
use super::progress::{ImportSummary, Progress};
use super::tree::Tree;

/// Entries between two progress reports.
const REPORT_EVERY: u64 = 256;
/// Largest number of warnings kept; a hostile archive could cause one for each entry.
const WARNINGS_MAX: usize = 1000;

/// Imports all entries of `source` into an open volume.
///
/// # Errors
/// The errors of [`run`](super::run).
pub fn fill(
    fs: &Fs,
    source: Box<dyn Source>,
    progress: &mut dyn FnMut(Progress),
) -> Result<ImportSummary, ImportError> {
    let adjust = Adjust::default();
    let mut import = Import::new(fs, &adjust, false, progress);
    import.layer(source)?;
    Ok(import.summary)
}

/// Imports all layers in order; `fresh` says that the volume is empty.
pub(super) fn fill_all(
    fs: &Fs,
    (origin, first): (&Origin, Box<dyn Source>),
    adjust: &Adjust,
    fresh: bool,
    progress: &mut dyn FnMut(Progress),
) -> Result<ImportSummary, ImportError> {
    let mut import = Import::new(fs, adjust, origin.layered, progress);
    let mut first = Some(first);
    let mut open = |number| first.take().map_or_else(|| origin.open(number), Ok);
    if fresh {
        adjust.labelling.begin(fs)?;
    }
    for number in 0..origin.len() {
        // Whiteouts apply to the layers below, wherever they stand in their own layer: apply them
        // first.
        if origin.may_have_whiteouts(number) && !(fresh && number == 0) {
            import.apply_whiteouts(open(number)?)?;
        }
        import.single = origin.len() == 1;
        import.layer(open(number)?)?;
    }
    adjust.labelling.finish(fs)?;
    Ok(import.summary)
}

/// A running import.
struct Import<'a> {
    fs: &'a Fs,
    adjust: &'a Adjust,
    layered: bool,
    /// True if there is one layer, whose length is the total.
    single: bool,
    /// Bytes read from finished layers.
    done: u64,
    summary: ImportSummary,
    progress: &'a mut dyn FnMut(Progress),
}

impl<'a> Import<'a> {
    fn new(
        fs: &'a Fs,
        adjust: &'a Adjust,
        layered: bool,
        progress: &'a mut dyn FnMut(Progress),
    ) -> Self {
        let size = fs.geo.dblocks << fs.geo.block_log;
        let summary = ImportSummary { size, ..ImportSummary::default() };
        Self { fs, adjust, layered, single: true, done: 0, summary, progress }
    }

    fn warn(&mut self, warning: String) {
        if self.summary.warnings.len() < WARNINGS_MAX {
            self.summary.warnings.push(warning);
        }
    }

    fn report(&mut self, source: &dyn Source) {
        let (read, total) = source.progress();
        let (read, total) = (self.done + read, total.filter(|_| self.single));
        (self.progress)(Progress { read, total, files: self.summary.entries });
    }

    /// Removes what the whiteouts of a layer hide.
    fn apply_whiteouts(&mut self, mut source: Box<dyn Source>) -> Result<(), ImportError> {
        source.set_limit(unpack_limit(self.summary.size));
        let plain = Adjust::default();
        let mut tree = Tree::new(self.fs, true, &plain);
        while let Some(entry) = source.next()? {
            tree.apply_whiteout(&entry)?;
        }
        tree.finish()
    }

    /// Adds a layer.
    fn layer(&mut self, mut source: Box<dyn Source>) -> Result<(), ImportError> {
        source.set_limit(unpack_limit(self.summary.size));
        let copy = source.file().map(std::fs::File::try_clone).transpose();
        let copy = copy.map_err(BulkError::Source)?;
        let writer = BulkWriter::start(self.fs, copy.as_ref())?;
        let mut tree = Tree::new(self.fs, self.layered, self.adjust);
        if let Some(contexts) = self.adjust.labelling.contexts() {
            source = Box::new(Labelled::new(source, contexts));
        }
        if source.many_files() || source.file().is_some() {
            source = Box::new(ReadAhead::start(source)?);
        }
        while let Some(mut entry) = source.next()? {
            if let Some(warning) = self.adjust.apply(&mut entry) {
                self.warn(warning);
            }
            let added = tree.add(&entry, &mut *source, &writer)?;
            self.summary.bytes += added.bytes;
            added.warnings.into_iter().for_each(|warning| self.warn(warning));
            self.summary.entries += 1;
            if self.summary.entries.is_multiple_of(REPORT_EVERY) {
                self.report(&*source);
            }
        }
        writer.finish()?;
        tree.finish()?;
        source.warnings().into_iter().for_each(|warning| self.warn(warning));
        self.report(&*source);
        self.done += source.progress().0;
        Ok(())
    }
}
