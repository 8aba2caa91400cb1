//! Named feature sets: the defaults of `mkfs.xfs` at the release of each long-term kernel.
//!
//! Names and features are those of the option files that xfsprogs 7.2 installs; a test compares
//! them. The kernel of a preset can mount and write the preset's volumes.

use crate::error::{MkfsError, usage};
use crate::options::{Autofsck, Options};

/// A named set of features.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Preset {
    /// Name for `--preset`, for example `lts-6.12`.
    pub name: &'static str,
    /// Name of xfsprogs' option file, for example `lts_6.12`.
    pub file: &'static str,
    /// Description for users.
    pub about: &'static str,
    reflink: bool,
    /// 64-bit timestamps and the inode btrees' counters, which were introduced together.
    bigtime: bool,
    /// Reverse mappings and wide extent counters.
    rmapbt: bool,
    /// Parent pointers and exchange-range.
    parent: bool,
    autofsck: Option<Autofsck>,
}

/// A preset with the first `level` features of the list reflink, bigtime, rmapbt, parent.
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
    /// Finds a preset by name, with `-` or with `_` as in `lts_6.12`.
    ///
    /// # Errors
    /// If there is no preset with this name.
    pub fn named(name: &str) -> Result<Self, MkfsError> {
        match PRESETS.into_iter().find(|preset| name == preset.name || name == preset.file) {
            Some(preset) => Ok(preset),
            None => {
                let all = PRESETS.map(|preset| preset.name).join(", ");
                usage(format!("there is no preset {name:?}: there are {all}"))
            }
        }
    }

    /// The features as options.
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
