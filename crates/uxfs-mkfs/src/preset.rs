//! Named sets of features: what `mkfs.xfs` made by default when a kernel with long support came out.
//!
//! The names and features are those of the option files that xfsprogs 7.2 installs; a test compares
//! them. A volume for a kernel is one that this kernel can mount and write.

use crate::error::{MkfsError, usage};
use crate::options::{Autofsck, Options};

/// A named set of features.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Preset {
    /// Its name, as in `--preset lts-6.12`.
    pub name: &'static str,
    /// Its name as xfsprogs' option file has it: `lts_6.12`.
    pub file: &'static str,
    /// In words, whose defaults these are.
    pub about: &'static str,
    reflink: bool,
    /// 64-bit times, and the inode trees' counters, which came together.
    bigtime: bool,
    /// Reverse mappings and wide extent counters.
    rmapbt: bool,
    /// Parent pointers and exchange-range.
    parent: bool,
    autofsck: Option<Autofsck>,
}

/// Features that came with a kernel and all that came before: so many of reflink, bigtime, rmapbt,
/// parent.
const fn preset(name: &'static str, file: &'static str, about: &'static str, level: u8) -> Preset {
    Preset {
        name,
        file,
        about,
        reflink: level >= 1,
        bigtime: level >= 2,
        rmapbt: level >= 3,
        parent: level >= 4,
        autofsck: if level >= 4 { None } else { Some(Autofsck::None) },
    }
}

/// All presets, oldest first.
pub const PRESETS: [Preset; 9] = [
    preset("lts-4.19", "lts_4.19", "mkfs.xfs' defaults at Linux 4.19", 0),
    preset("lts-5.4", "lts_5.4", "mkfs.xfs' defaults at Linux 5.4", 1),
    preset("lts-5.10", "lts_5.10", "mkfs.xfs' defaults at Linux 5.10", 1),
    preset("lts-5.15", "lts_5.15", "mkfs.xfs' defaults at Linux 5.15", 2),
    preset("lts-6.1", "lts_6.1", "mkfs.xfs' defaults at Linux 6.1", 2),
    preset("lts-6.6", "lts_6.6", "mkfs.xfs' defaults at Linux 6.6", 3),
    preset("lts-6.12", "lts_6.12", "mkfs.xfs' defaults at Linux 6.12", 3),
    preset("lts-6.18", "lts_6.18", "mkfs.xfs' defaults at Linux 6.18", 4),
    preset("default", "default", "what mkfs.xfs 7 makes when it is given no options", 4),
];

impl Preset {
    /// The preset of that name; `lts_6.12`, the file's name, is as good as `lts-6.12`.
    ///
    /// # Errors
    /// There is none.
    pub fn named(name: &str) -> Result<Self, MkfsError> {
        match PRESETS.into_iter().find(|preset| name == preset.name || name == preset.file) {
            Some(preset) => Ok(preset),
            None => {
                let all = PRESETS.map(|preset| preset.name).join(", ");
                usage(format!("there is no preset {name:?}: there are {all}"))
            }
        }
    }

    /// Its features, as options.
    pub fn options(&self) -> Options {
        let mut options = Options::default();
        let (meta, inode) = (&mut options.meta, &mut options.inode);
        meta.crc = Some(true);
        meta.finobt = Some(true);
        meta.reflink = Some(self.reflink);
        meta.bigtime = Some(self.bigtime);
        meta.inobtcount = Some(self.bigtime);
        meta.rmapbt = Some(self.rmapbt);
        meta.metadir = Some(false);
        meta.autofsck = self.autofsck;
        inode.sparse = Some(true);
        inode.nrext64 = Some(self.rmapbt);
        inode.exchange = Some(self.parent);
        options.naming.parent = Some(self.parent);
        options
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_found_in_both_spellings() {
        assert_eq!(Preset::named("lts_6.12").unwrap().name, "lts-6.12");
        assert_eq!(Preset::named("default").unwrap().name, "default");
        let error = Preset::named("lts-7.99").unwrap_err().to_string();
        assert!(error.contains("lts-5.10, lts-5.15"), "{error}");
    }
}
