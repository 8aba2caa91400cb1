//! Merges options with defaults: a preset, or a defaults file.

use crate::options::{
    DataOptions, InodeOptions, LogOptions, MetaOptions, NamingOptions, Options, PopulationOptions,
};

impl Options {
    /// Adds options from `defaults` that are not given here. If one of several mutually exclusive
    /// options is given, for example `agcount` or `agsize`, the others are not added.
    #[must_use]
    pub fn or(self, defaults: &Self) -> Self {
        let label = if self.label.is_empty() { defaults.label.clone() } else { self.label };
        let log_sector = self.log.sector_size.is_some();
        Self {
            label,
            uuid: self.uuid.or(defaults.uuid),
            unsupported: self.unsupported || defaults.unsupported,
            block_size: self.block_size.or(defaults.block_size),
            sector_size: self.sector_size.or(defaults.sector_size.filter(|_| !log_sector)),
            data: self.data.or(&defaults.data),
            inode: self.inode.or(&defaults.inode),
            log: self.log.or(&defaults.log, self.sector_size.is_some()),
            meta: self.meta.or(&defaults.meta),
            naming: self.naming.or(&defaults.naming),
            population: self.population.or(&defaults.population),
        }
    }
}

impl PopulationOptions {
    fn or(self, defaults: &Self) -> Self {
        Self {
            file: self.file.or_else(|| defaults.file.clone()),
            slashes_are_spaces: self.slashes_are_spaces.or(defaults.slashes_are_spaces),
            atime: self.atime.or(defaults.atime),
        }
    }
}

impl DataOptions {
    fn or(self, defaults: &Self) -> Self {
        let counted = self.agcount.is_some() || self.agsize.is_some();
        let striped = self.sunit.is_some()
            || self.swidth.is_some()
            || self.su.is_some()
            || self.sw.is_some()
            || self.noalign.is_some();
        let (groups, stripe) = match (counted, striped) {
            (false, false) => (defaults, defaults),
            (false, true) => (defaults, &Self::default()),
            (true, false) => (&Self::default(), defaults),
            (true, true) => (&Self::default(), &Self::default()),
        };
        Self {
            agcount: self.agcount.or(groups.agcount),
            agsize: self.agsize.or(groups.agsize),
            size: self.size.or(defaults.size),
            sunit: self.sunit.or(stripe.sunit),
            swidth: self.swidth.or(stripe.swidth),
            su: self.su.or(stripe.su),
            sw: self.sw.or(stripe.sw),
            noalign: self.noalign.or(stripe.noalign),
            file: self.file.or(defaults.file),
            name: self.name.or_else(|| defaults.name.clone()),
            rtinherit: self.rtinherit.or(defaults.rtinherit),
            projinherit: self.projinherit.or(defaults.projinherit),
            extszinherit: self.extszinherit.or(defaults.extszinherit),
            cowextsize: self.cowextsize.or(defaults.cowextsize),
            daxinherit: self.daxinherit.or(defaults.daxinherit),
        }
    }
}

impl InodeOptions {
    fn or(self, defaults: &Self) -> Self {
        let sized = self.size.is_some() || self.perblock.is_some();
        Self {
            size: self.size.or(defaults.size.filter(|_| !sized)),
            perblock: self.perblock.or(defaults.perblock.filter(|_| !sized)),
            maxpct: self.maxpct.or(defaults.maxpct),
            align: self.align.or(defaults.align),
            attr: self.attr.or(defaults.attr),
            projid32bit: self.projid32bit.or(defaults.projid32bit),
            sparse: self.sparse.or(defaults.sparse),
            nrext64: self.nrext64.or(defaults.nrext64),
            exchange: self.exchange.or(defaults.exchange),
        }
    }
}

impl LogOptions {
    /// `sectors`: is the sector size given for the whole volume?
    fn or(self, defaults: &Self, sectors: bool) -> Self {
        let striped = self.sunit.is_some() || self.su.is_some();
        let placed = self.agnum.is_some() || self.internal.is_some() || self.device.is_some();
        let place = if placed { &Self::default() } else { defaults };
        Self {
            agnum: self.agnum.or(place.agnum),
            internal: self.internal.or(place.internal),
            device: self.device.or_else(|| place.device.clone()),
            file: self.file.or(place.file),
            device_bytes: self.device_bytes.or(place.device_bytes),
            size: self.size.or(defaults.size),
            version: self.version.or(defaults.version),
            sunit: self.sunit.or(defaults.sunit.filter(|_| !striped)),
            su: self.su.or(defaults.su.filter(|_| !striped)),
            sector_size: self.sector_size.or(defaults.sector_size.filter(|_| !sectors)),
            lazy_count: self.lazy_count.or(defaults.lazy_count),
        }
    }
}

impl MetaOptions {
    fn or(self, defaults: &Self) -> Self {
        // Without the free-inode btree, drop the default for the counters of the inode btrees, too.
        let counters = defaults.inobtcount.filter(|_| self.finobt != Some(false));
        Self {
            crc: self.crc.or(defaults.crc),
            finobt: self.finobt.or(defaults.finobt),
            rmapbt: self.rmapbt.or(defaults.rmapbt),
            reflink: self.reflink.or(defaults.reflink),
            inobtcount: self.inobtcount.or(counters),
            bigtime: self.bigtime.or(defaults.bigtime),
            autofsck: self.autofsck.or(defaults.autofsck),
            metadir: self.metadir.or(defaults.metadir),
        }
    }
}

impl NamingOptions {
    fn or(self, defaults: &Self) -> Self {
        Self {
            size: self.size.or(defaults.size),
            version: self.version.or(defaults.version),
            ftype: self.ftype.or(defaults.ftype),
            parent: self.parent.or(defaults.parent),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(groups: &[(char, &str)]) -> Options {
        let mut options = Options::default();
        for (letter, text) in groups {
            options.apply(*letter, text).unwrap();
        }
        options
    }

    #[test]
    fn given_options_override_defaults() {
        let defaults = options(&[('m', "rmapbt=1,bigtime=0"), ('b', "size=1k"), ('L', "old")]);
        let got = options(&[('m', "rmapbt=0"), ('L', "new")]).or(&defaults);
        assert_eq!(got, options(&[('m', "rmapbt=0,bigtime=0"), ('b', "size=1k"), ('L', "new")]));
    }

    #[test]
    fn mutually_exclusive_options_are_not_mixed() {
        let groups = [('d', "agcount=3,su=64k,sw=2"), ('i', "size=1024"), ('l', "su=32k,agnum=1")];
        let defaults = options(&[&groups[..], &[('s', "size=4k")]].concat());
        let given = options(&[
            ('d', "agsize=64m,noalign"),
            ('i', "perblock=2"),
            ('l', "sunit=8,sectsize=512,logdev=a"),
        ]);
        assert_eq!(given.clone().or(&defaults), given);
        assert_eq!(Options::default().or(&defaults), defaults);
    }
}
