//! Disk descriptions in TOML, one file for each disk.

use serde::Deserialize;
use thiserror::Error;

use crate::{
    Battery, BatterySpec, Cloud, CloudSpec, Concat, Disk, Flash, FlashSpec, Mirror, Sata, Spindle,
    SpindleSpec, Stripe,
};

/// Maximum nesting of arrays.
const DEPTH_MAX: u32 = 8;
/// Maximum number of disks in an array.
const DISKS_MAX: usize = 64;

/// Reason why a description is invalid.
#[derive(Debug, Error)]
pub enum Problem {
    /// The text is not TOML, or has missing or unknown fields.
    #[error("disk description: {0}")]
    Syntax(#[from] toml::de::Error),
    #[error("disk description: {0}")]
    Value(String),
    /// uxfs includes no disk with this name.
    #[error("no disk has the name {name}; available: {}", NAMES.join(", "))]
    Name { name: String },
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Description {
    pub name: String,
    /// What the disk is, and the source of its figures.
    pub about: String,
    pub disk: Model,
}

/// A model with its parameters.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub enum Model {
    Spindle(SpindleSpec),
    Flash(FlashSpec),
    Cloud(CloudSpec),
    /// A controller with battery-backed memory in front of a disk.
    Battery {
        controller: BatterySpec,
        disk: Box<Model>,
    },
    /// A disk behind a SATA port, which does not queue flushes.
    Sata {
        disk: Box<Model>,
    },
    /// A mirror: all disks hold the same data.
    Mirror {
        count: u32,
        disk: Box<Model>,
    },
    Concat {
        count: u32,
        disk: Box<Model>,
    },
    Stripe {
        count: u32,
        /// Size of a chunk in KiB.
        chunk_kib: u32,
        disk: Box<Model>,
    },
}

macro_rules! named {
    ($($name:literal),* $(,)?) => {
        /// Names of the disks that uxfs includes.
        pub const NAMES: &[&str] = &[$($name),*];

        fn text_of(name: &str) -> Option<&'static str> {
            match name {
                $($name => Some(include_str!(concat!("../disks/", $name, ".toml"))),)*
                _ => None,
            }
        }
    };
}

named!(
    "hdd-7200",
    "sas-15k",
    "ssd-2010",
    "ssd-2015",
    "nvme",
    "nvme-plp",
    "cloud",
    "array-bbu",
    "mirror-2008",
);

impl Description {
    /// A disk that uxfs includes; see [`NAMES`].
    ///
    /// # Errors
    /// [`Problem::Name`] if there is no such disk.
    pub fn named(name: &str) -> Result<Self, Problem> {
        let text = text_of(name).ok_or_else(|| Problem::Name { name: name.into() })?;
        Self::parse(text)
    }

    /// Parses a description in TOML.
    ///
    /// ```
    /// use uxfs_models::Description;
    ///
    /// let text = r#"
    ///     name = "slow-cloud"
    ///     about = "as I imagine it"
    ///     [disk]
    ///     kind = "cloud"
    ///     capacity_gb = 100
    ///     iops = 300
    ///     burst_iops = 300
    ///     credit = 0
    ///     mb_s = 60
    ///     unit_kib = 256
    ///     read_us = 2000
    ///     write_us = 3000
    ///     spread = 0.3
    ///     flush_us = 500
    /// "#;
    /// assert_eq!(Description::parse(text).unwrap().name, "slow-cloud");
    /// let typo = text.replace("spread", "spraed");
    /// assert!(Description::parse(&typo).is_err());
    /// ```
    ///
    /// # Errors
    /// [`Problem::Syntax`] or [`Problem::Value`].
    pub fn parse(text: &str) -> Result<Self, Problem> {
        let description: Self = toml::from_str(text)?;
        description.disk.check(0)?;
        Ok(description)
    }

    /// Makes an idle disk; `seed` determines its random behaviour.
    ///
    /// # Errors
    /// [`Problem::Value`], if the description was not made by [`Description::parse`].
    pub fn build(&self, seed: u64) -> Result<Box<dyn Disk>, Problem> {
        self.disk.check(0)?;
        Ok(self.disk.build(seed))
    }
}

/// Fails unless all values are positive.
fn positive(what: &str, values: &[(&str, f64)]) -> Result<(), Problem> {
    match values.iter().find(|(_, value)| !value.is_finite() || *value <= 0.0 || *value > 1e9) {
        Some((name, value)) => {
            Err(Problem::Value(format!("{name} of {what} is {value}: it must be more than 0")))
        }
        None => Ok(()),
    }
}

fn not_negative(what: &str, values: &[(&str, f64)]) -> Result<(), Problem> {
    match values.iter().find(|(_, value)| !value.is_finite() || *value < 0.0 || *value > 1e9) {
        Some((name, value)) => {
            Err(Problem::Value(format!("{name} of {what} is {value}: it must be at least 0")))
        }
        None => Ok(()),
    }
}

impl Model {
    fn check(&self, depth: u32) -> Result<(), Problem> {
        if depth > DEPTH_MAX {
            return Err(Problem::Value(format!("arrays are nested deeper than {DEPTH_MAX}")));
        }
        match self {
            Self::Spindle(spec) => check_spindle(spec),
            Self::Flash(s) => {
                let what = "a flash drive";
                let must = [
                    ("capacity_gb", s.capacity_gb),
                    ("dies", s.dies.into()),
                    ("read_us", s.read_us),
                    ("program_us", s.program_us),
                    ("read_mb_s", s.read_mb_s),
                    ("write_mb_s", s.write_mb_s),
                    ("queue", s.queue.into()),
                ];
                positive(what, &must)?;
                let may = [
                    ("command_us", s.command_us),
                    ("issue_us", s.issue_us),
                    ("cache_mib", s.cache_mib),
                    ("flush_us", s.flush_us),
                ];
                not_negative(what, &may)
            }
            Self::Cloud(s) => {
                let what = "a cloud volume";
                let must = [
                    ("capacity_gb", s.capacity_gb),
                    ("iops", s.iops),
                    ("burst_iops", s.burst_iops),
                    ("mb_s", s.mb_s),
                    ("unit_kib", s.unit_kib.into()),
                    ("read_us", s.read_us),
                    ("write_us", s.write_us),
                ];
                positive(what, &must)?;
                let may = [("credit", s.credit), ("spread", s.spread), ("flush_us", s.flush_us)];
                not_negative(what, &may)
            }
            Self::Battery { controller: c, disk } => {
                let what = "a controller";
                let must =
                    [("cache_mib", c.cache_mib), ("mb_s", c.mb_s), ("depth", c.depth.into())];
                positive(what, &must)?;
                not_negative(what, &[("command_us", c.command_us)])?;
                disk.check(depth + 1)
            }
            Self::Sata { disk } => disk.check(depth + 1),
            Self::Mirror { count, disk } | Self::Concat { count, disk } => {
                check_count(*count)?;
                disk.check(depth + 1)
            }
            Self::Stripe { count, chunk_kib, disk } => {
                check_count(*count)?;
                positive("a stripe", &[("chunk_kib", (*chunk_kib).into())])?;
                disk.check(depth + 1)
            }
        }
    }

    fn build(&self, seed: u64) -> Box<dyn Disk> {
        let several = |count: u32, disk: &Self| -> Vec<Box<dyn Disk>> {
            (0..u64::from(count)).map(|i| disk.build(seed.wrapping_add(i))).collect()
        };
        match self {
            Self::Spindle(spec) => Box::new(Spindle::new(spec.clone())),
            Self::Flash(spec) => Box::new(Flash::new(spec.clone())),
            Self::Cloud(spec) => Box::new(Cloud::new(spec.clone(), seed)),
            Self::Battery { controller, disk } => {
                Box::new(Battery::new(controller.clone(), disk.build(seed)))
            }
            Self::Sata { disk } => Box::new(Sata::new(disk.build(seed))),
            Self::Mirror { count, disk } => Box::new(Mirror::new(several(*count, disk))),
            Self::Concat { count, disk } => Box::new(Concat::new(several(*count, disk))),
            Self::Stripe { count, chunk_kib, disk } => {
                Box::new(Stripe::new(several(*count, disk), u64::from(*chunk_kib) << 10))
            }
        }
    }
}

fn check_count(count: u32) -> Result<(), Problem> {
    match count as usize {
        1..=DISKS_MAX => Ok(()),
        _ => Err(Problem::Value(format!("an array of {count} disks: must be 1 to {DISKS_MAX}"))),
    }
}

fn check_spindle(s: &SpindleSpec) -> Result<(), Problem> {
    let what = "a spindle";
    let must = [
        ("capacity_gb", s.capacity_gb),
        ("rpm", s.rpm),
        ("heads", s.heads.into()),
        ("zones", s.zones.into()),
        ("outer_mb_s", s.outer_mb_s),
        ("inner_mb_s", s.inner_mb_s),
        ("track_ms", s.track_ms),
        ("average_ms", s.average_ms),
        ("full_ms", s.full_ms),
        ("interface_mb_s", s.interface_mb_s),
        ("queue", s.queue.into()),
    ];
    positive(what, &must)?;
    let may = [
        ("write_settle_ms", s.write_settle_ms),
        ("head_switch_ms", s.head_switch_ms),
        ("command_us", s.command_us),
        ("cache_mib", s.cache_mib),
    ];
    not_negative(what, &may)?;
    let rising = s.track_ms <= s.average_ms && s.average_ms <= s.full_ms;
    let zones = s.zones <= 1024 && s.heads <= 64;
    // Otherwise the seek curve through the three values would decrease somewhere.
    let curved = (s.full_ms - s.track_ms) / 3.0 <= s.average_ms - s.track_ms;
    if !rising || !zones || !curved || s.inner_mb_s > s.outer_mb_s {
        return Err(Problem::Value(
            "of a spindle: track_ms ≤ average_ms ≤ full_ms, average_ms at least a third of the \
             way, inner_mb_s ≤ outer_mb_s, at most 1024 zones and 64 heads"
                .into(),
        ));
    }
    Ok(())
}
