//! The methods of a source that changes the entries of another one and leaves their data as it is.
//!
//! Used by the sources that an import puts around the one it reads.

/// Forwards what concerns the data, and the progress, to the source in this field.
macro_rules! forward_data {
    ($source:ident) => {
        fn read(&mut self, buf: &mut [u8]) -> Result<usize, uxfs_archive::ArchiveError> {
            self.$source.read(buf)
        }

        fn chunk(&mut self) -> Result<&[u8], uxfs_archive::ArchiveError> {
            self.$source.chunk()
        }

        fn consume(&mut self, count: usize) {
            self.$source.consume(count);
        }

        fn data_position(&self) -> Option<u64> {
            self.$source.data_position()
        }

        fn file(&self) -> Option<&std::fs::File> {
            self.$source.file()
        }

        fn many_files(&self) -> bool {
            self.$source.many_files()
        }

        fn progress(&self) -> (u64, Option<u64>) {
            self.$source.progress()
        }

        fn set_limit(&mut self, bytes: u64) {
            self.$source.set_limit(bytes);
        }
    };
}

pub(super) use forward_data;
