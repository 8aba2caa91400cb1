//! The options of `mkfs.xfs` 6.1, and options of later versions for newer features.
//!
//! 1. `None` means "not given". [`Layout::new`](crate::Layout::new) decides the default.
//! 2. An option given twice is refused, and so are mutually exclusive options.
//! 3. Sizes in blocks or sectors are resolved after all options are known, so the order of options
//!    does not matter.

use uxfs_format::{Naming, Uuid};

use crate::error::{MkfsError, usage};
use crate::size::Size;
use crate::suboption::Sub;

/// Options of a new volume. The default is the volume that `mkfs.xfs` 6.1 makes without options.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Options {
    /// `-L`: label, at most 12 bytes; empty for none.
    pub label: String,
    /// `-m uuid=`: the volume's UUID; a random one if not given.
    pub uuid: Option<Uuid>,
    /// Allow volumes below 300 MiB, logs below 64 MiB and single allocation groups.
    pub unsupported: bool,
    /// `-b size=`: bytes in a block.
    pub block_size: Option<u32>,
    /// `-s size=` and `-d sectsize=`: bytes in a sector.
    pub sector_size: Option<u32>,
    /// `-d`: the data section.
    pub data: DataOptions,
    /// `-i`: inodes.
    pub inode: InodeOptions,
    /// `-l`: the log.
    pub log: LogOptions,
    /// `-m`: features.
    pub meta: MetaOptions,
    /// `-n`: directories.
    pub naming: NamingOptions,
    /// `-p`: what fills the volume. This crate only reads these options.
    pub population: PopulationOptions,
}

/// `-d`: the data section.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct DataOptions {
    /// `agcount=`: number of allocation groups.
    pub agcount: Option<u32>,
    /// `agsize=`: size of an allocation group.
    pub agsize: Option<Size>,
    /// `size=`: size of the data section.
    pub size: Option<Size>,
    /// `sunit=`: stripe unit in basic blocks of 512 bytes.
    pub sunit: Option<u32>,
    /// `swidth=`: stripe width in basic blocks of 512 bytes.
    pub swidth: Option<u32>,
    /// `su=`: stripe unit as a size.
    pub su: Option<Size>,
    /// `sw=`: stripe width in stripe units.
    pub sw: Option<u32>,
    /// `noalign`: no stripe geometry.
    pub noalign: Option<bool>,
    /// `file`: the volume is a regular file, which may grow to `size`.
    pub file: Option<bool>,
    /// `name=`: the device.
    pub name: Option<String>,
    /// `rtinherit=`: files in the root directory inherit the realtime flag.
    pub rtinherit: Option<bool>,
    /// `projinherit=`: project id of all inodes.
    pub projinherit: Option<u32>,
    /// `extszinherit=`: extent size hint of all inodes in blocks.
    pub extszinherit: Option<u32>,
    /// `cowextsize=`: copy-on-write extent size hint of all inodes in blocks.
    pub cowextsize: Option<u32>,
    /// `daxinherit=`: all inodes get the DAX flag.
    pub daxinherit: Option<bool>,
}

/// `-i`: inodes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct InodeOptions {
    /// `size=`: bytes in an inode.
    pub size: Option<u32>,
    /// `perblock=`: inodes in a block.
    pub perblock: Option<u32>,
    /// `maxpct=`: percentage of the volume that inodes may use; 0 for no limit.
    pub maxpct: Option<u8>,
    /// `align=`: chunks are aligned; always true in version 5.
    pub align: Option<bool>,
    /// `attr=`: attribute policy; always 2 in version 5.
    pub attr: Option<u32>,
    /// `projid32bit=`: always true in version 5.
    pub projid32bit: Option<bool>,
    /// `sparse=`: chunks may have holes.
    pub sparse: Option<bool>,
    /// `nrext64=`: wide extent counters.
    pub nrext64: Option<bool>,
    /// `exchange=`: exchange-range items may be in the log (newer than 6.1).
    pub exchange: Option<bool>,
}

/// `-l`: the log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct LogOptions {
    /// `agnum=`: allocation group that holds the log.
    pub agnum: Option<u32>,
    /// `internal=`: the log is on the data device. It is, if no other device is named.
    pub internal: Option<bool>,
    /// `logdev=` or `name=`: the device that holds nothing but the log.
    pub device: Option<String>,
    /// `file=`: that device is a regular file, which is made with the size of the log.
    pub file: Option<bool>,
    /// Length of that device in bytes, which the caller sets: the log's default size, and its limit.
    pub device_bytes: Option<u64>,
    /// `size=`: size of the log.
    pub size: Option<Size>,
    /// `version=`: always 2 in version 5.
    pub version: Option<u32>,
    /// `sunit=`: stripe unit of the log in basic blocks of 512 bytes.
    pub sunit: Option<u32>,
    /// `su=`: stripe unit of the log as a size.
    pub su: Option<Size>,
    /// `sectsize=`: bytes in a sector of the log.
    pub sector_size: Option<u32>,
    /// `lazy-count=`: always 1 in version 5.
    pub lazy_count: Option<bool>,
}

/// `-m`: features.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct MetaOptions {
    /// `crc=`: version 5; always true here.
    pub crc: Option<bool>,
    /// `finobt=`: free-inode btree.
    pub finobt: Option<bool>,
    /// `rmapbt=`: reverse mapping btree.
    pub rmapbt: Option<bool>,
    /// `reflink=`: shared extents.
    pub reflink: Option<bool>,
    /// `inobtcount=`: block counts of the inode btrees.
    pub inobtcount: Option<bool>,
    /// `bigtime=`: 64-bit timestamps.
    pub bigtime: Option<bool>,
    /// `autofsck=`: permissions of online checking (newer than 6.1).
    pub autofsck: Option<Autofsck>,
    /// `metadir=`: metadata directory tree (newer than 6.1); not supported here.
    pub metadir: Option<bool>,
}

/// What `xfs_scrub`, when the system runs it periodically, may do to a volume. Stored in the root
/// directory's extended attribute `trusted.xfs:autofsck`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Autofsck {
    /// Nothing.
    None,
    /// Check only.
    Check,
    /// Check and optimize.
    Optimize,
    /// Check and repair.
    Repair,
}

impl Autofsck {
    /// Name on the command line and in the attribute.
    pub fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Check => "check",
            Self::Optimize => "optimize",
            Self::Repair => "repair",
        }
    }

    fn parse(sub: &Sub<'_>) -> Result<Self, MkfsError> {
        let all = [Self::None, Self::Check, Self::Optimize, Self::Repair];
        let named = sub.text().ok().and_then(|text| all.into_iter().find(|v| v.name() == text));
        match named {
            Some(value) => Ok(value),
            None if sub.flag()? => Ok(Self::Repair),
            None => Ok(Self::None),
        }
    }
}

/// `-n`: directories.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct NamingOptions {
    /// `size=`: bytes in a directory block.
    pub size: Option<Size>,
    /// `version=`: `2`, or `ci` for names that compare without case.
    pub version: Option<Naming>,
    /// `ftype=`: file types in directories; always true in version 5.
    pub ftype: Option<bool>,
    /// `parent=`: parent pointers (newer than 6.1).
    pub parent: Option<bool>,
}

/// `-p`, or the section `[proto]` of an option file: what fills a new volume.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct PopulationOptions {
    /// `file=`: a directory or a protofile.
    pub file: Option<String>,
    /// `slashes_are_spaces=`: a slash in a protofile's name means a space.
    pub slashes_are_spaces: Option<bool>,
    /// `atime=`: keep the access times of a directory's files (newer than 6.1).
    pub atime: Option<bool>,
}

/// Stores an option's value; fails if the option was given already.
fn set<T>(slot: &mut Option<T>, sub: &Sub<'_>, value: T) -> Result<(), MkfsError> {
    if slot.is_some() {
        return usage(format!("{sub} option respecified"));
    }
    *slot = Some(value);
    Ok(())
}

impl Options {
    /// Applies one option group of the command line: letter `d` and text `agcount=16,size=4g` for
    /// `-d agcount=16,size=4g`.
    ///
    /// # Errors
    /// For an unknown option or letter, a value out of range, an option given twice, and mutually
    /// exclusive options.
    pub fn apply(&mut self, letter: char, text: &str) -> Result<(), MkfsError> {
        if letter == 'L' {
            self.label = label(text)?;
            return Ok(());
        }
        for part in text.trim_end_matches(',').split(',') {
            if part.is_empty() && text.is_empty() {
                continue;
            }
            self.sub(letter, &Sub::new(letter, part))?;
        }
        Ok(())
    }

    /// Applies one option: letter `d`, name `agcount`, value `16`. An empty value means no value.
    pub(crate) fn apply_one(
        &mut self,
        letter: char,
        name: &str,
        value: &str,
    ) -> Result<(), MkfsError> {
        self.sub(letter, &Sub::with(letter, name, value))
    }

    fn sub(&mut self, letter: char, sub: &Sub<'_>) -> Result<(), MkfsError> {
        match letter {
            'b' => self.block(sub),
            'd' => self.data(sub),
            'i' => self.inode(sub),
            'l' => self.log(sub),
            'm' => self.meta(sub),
            'n' => self.naming(sub),
            'p' => self.population(sub),
            's' => self.sector(sub),
            _ => usage(format!("unknown option -{letter}")),
        }
    }

    fn block(&mut self, sub: &Sub<'_>) -> Result<(), MkfsError> {
        match sub.name {
            "size" => set(&mut self.block_size, sub, sub.power(512, 65536)?),
            _ => sub.unknown(),
        }
    }

    fn sector(&mut self, sub: &Sub<'_>) -> Result<(), MkfsError> {
        match sub.name {
            "size" | "sectsize" => {
                set(&mut self.sector_size, sub, sub.power(512, 32768)?)?;
                // It counts for the log, too, if it comes last.
                self.log.sector_size = None;
                Ok(())
            }
            _ => sub.unknown(),
        }
    }

    fn data(&mut self, sub: &Sub<'_>) -> Result<(), MkfsError> {
        let data = &mut self.data;
        match sub.name {
            "agcount" => {
                sub.conflict("-d agsize", data.agsize.is_some())?;
                set(&mut data.agcount, sub, sub.integer(1, u32::MAX, None)?)
            }
            "agsize" => {
                sub.conflict("-d agcount", data.agcount.is_some())?;
                set(&mut data.agsize, sub, sub.size()?)
            }
            "size" => set(&mut data.size, sub, sub.size()?),
            "file" => set(&mut data.file, sub, sub.flag()?),
            "name" => set(&mut data.name, sub, sub.text()?.to_owned()),
            "sunit" | "swidth" | "su" | "sw" | "noalign" => self.stripe(sub),
            "sectsize" => set(&mut self.sector_size, sub, sub.power(512, 32768)?),
            "rtinherit" => set(&mut data.rtinherit, sub, sub.integer(0, 1, Some(1))? == 1),
            "daxinherit" => set(&mut data.daxinherit, sub, sub.integer(0, 1, Some(1))? == 1),
            "projinherit" => set(&mut data.projinherit, sub, sub.integer(0, u32::MAX, None)?),
            "extszinherit" => set(&mut data.extszinherit, sub, sub.integer(0, u32::MAX, None)?),
            "cowextsize" => set(&mut data.cowextsize, sub, sub.integer(0, u32::MAX, None)?),
            _ => sub.unknown(),
        }
    }

    fn stripe(&mut self, sub: &Sub<'_>) -> Result<(), MkfsError> {
        let data = &mut self.data;
        if sub.name != "noalign" {
            sub.conflict("-d noalign", data.noalign.is_some())?;
        }
        match sub.name {
            "sunit" | "swidth" => {
                sub.conflict("-d su", data.su.is_some())?;
                sub.conflict("-d sw", data.sw.is_some())?;
                let slot = if sub.name == "sunit" { &mut data.sunit } else { &mut data.swidth };
                set(slot, sub, sub.integer(0, u32::MAX, None)?)
            }
            "su" | "sw" => {
                sub.conflict("-d sunit", data.sunit.is_some())?;
                sub.conflict("-d swidth", data.swidth.is_some())?;
                match sub.name {
                    "su" => set(&mut data.su, sub, sub.size()?),
                    _ => set(&mut data.sw, sub, sub.integer(0, u32::MAX, None)?),
                }
            }
            _ => {
                sub.conflict("-d sunit", data.sunit.is_some())?;
                sub.conflict("-d swidth", data.swidth.is_some())?;
                sub.conflict("-d su", data.su.is_some())?;
                sub.conflict("-d sw", data.sw.is_some())?;
                set(&mut data.noalign, sub, sub.flag()?)
            }
        }
    }

    fn inode(&mut self, sub: &Sub<'_>) -> Result<(), MkfsError> {
        let inode = &mut self.inode;
        match sub.name {
            "size" => {
                sub.conflict("-i perblock", inode.perblock.is_some())?;
                set(&mut inode.size, sub, sub.plain_power(256, 2048)?)
            }
            "perblock" => {
                sub.conflict("-i size", inode.size.is_some())?;
                set(&mut inode.perblock, sub, sub.plain_power(2, 256)?)
            }
            "maxpct" => {
                let percent = sub.integer(0, 100, None)?;
                set(&mut inode.maxpct, sub, u8::try_from(percent).unwrap_or(100))
            }
            "align" => set(&mut inode.align, sub, sub.flag()?),
            "attr" => set(&mut inode.attr, sub, sub.integer(0, 2, None)?),
            "projid32bit" => set(&mut inode.projid32bit, sub, sub.flag()?),
            "sparse" => set(&mut inode.sparse, sub, sub.flag()?),
            "nrext64" => set(&mut inode.nrext64, sub, sub.flag()?),
            "exchange" => set(&mut inode.exchange, sub, sub.flag()?),
            _ => sub.unknown(),
        }
    }

    fn log(&mut self, sub: &Sub<'_>) -> Result<(), MkfsError> {
        let log = &mut self.log;
        match sub.name {
            "agnum" => {
                sub.conflict("-l logdev", log.device.is_some())?;
                set(&mut log.agnum, sub, sub.integer(0, u32::MAX, None)?)
            }
            "internal" => {
                sub.conflict("-l logdev", log.device.is_some())?;
                set(&mut log.internal, sub, sub.flag()?)
            }
            "logdev" | "name" => {
                sub.conflict("-l agnum", log.agnum.is_some())?;
                sub.conflict("-l internal", log.internal.is_some())?;
                set(&mut log.device, sub, sub.text()?.to_owned())
            }
            "file" => set(&mut log.file, sub, sub.flag()?),
            "size" => set(&mut log.size, sub, sub.size()?),
            "version" => set(&mut log.version, sub, sub.integer(1, 2, None)?),
            "sunit" => {
                sub.conflict("-l su", log.su.is_some())?;
                set(&mut log.sunit, sub, sub.integer(1, 512, None)?)
            }
            "su" => {
                sub.conflict("-l sunit", log.sunit.is_some())?;
                set(&mut log.su, sub, sub.size()?)
            }
            "sectsize" => set(&mut log.sector_size, sub, sub.power(512, 32768)?),
            "lazy-count" => set(&mut log.lazy_count, sub, sub.flag()?),
            _ => sub.unknown(),
        }
    }

    fn meta(&mut self, sub: &Sub<'_>) -> Result<(), MkfsError> {
        let meta = &mut self.meta;
        match sub.name {
            "crc" => set(&mut meta.crc, sub, sub.flag()?),
            "finobt" => set(&mut meta.finobt, sub, sub.flag()?),
            "rmapbt" => set(&mut meta.rmapbt, sub, sub.flag()?),
            "reflink" => set(&mut meta.reflink, sub, sub.flag()?),
            "inobtcount" => set(&mut meta.inobtcount, sub, sub.flag()?),
            "bigtime" => set(&mut meta.bigtime, sub, sub.flag()?),
            "autofsck" => set(&mut meta.autofsck, sub, Autofsck::parse(sub)?),
            "metadir" => set(&mut meta.metadir, sub, sub.flag()?),
            "uuid" => match sub.text()?.parse() {
                Ok(uuid) => set(&mut self.uuid, sub, uuid),
                Err(_) => sub.invalid("Not a UUID."),
            },
            _ => sub.unknown(),
        }
    }

    fn naming(&mut self, sub: &Sub<'_>) -> Result<(), MkfsError> {
        let naming = &mut self.naming;
        match sub.name {
            "size" => set(&mut naming.size, sub, sub.size()?),
            "version" if sub.text()?.eq_ignore_ascii_case("ci") => {
                set(&mut naming.version, sub, Naming::Lowered)
            }
            "version" => {
                sub.integer(2, 2, None)?;
                set(&mut naming.version, sub, Naming::Exact)
            }
            "ftype" => set(&mut naming.ftype, sub, sub.flag()?),
            "parent" => set(&mut naming.parent, sub, sub.flag()?),
            _ => sub.unknown(),
        }
    }

    fn population(&mut self, sub: &Sub<'_>) -> Result<(), MkfsError> {
        let population = &mut self.population;
        match sub.name {
            "file" => set(&mut population.file, sub, sub.text()?.to_owned()),
            "slashes_are_spaces" => set(&mut population.slashes_are_spaces, sub, sub.flag()?),
            "atime" => set(&mut population.atime, sub, sub.flag()?),
            _ => sub.unknown(),
        }
    }
}

/// Checks a label.
///
/// # Errors
/// If the label is longer than the 12 bytes of the superblock's field.
pub(crate) fn label(text: &str) -> Result<String, MkfsError> {
    if text.len() > 12 {
        return usage(format!("Invalid value {text} for -L option: more than 12 bytes"));
    }
    Ok(text.to_owned())
}
