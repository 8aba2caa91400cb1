//! Mount options, by the names of XFS and of mount(8).
//!
//! 1. An option that is not known, or whose value makes no sense, is an error that names it.
//! 2. Of two options that contradict each other the later one holds, as for mount(8).
//! 3. An option that changes what a crash can cost leaves a line that says so.

use fuser::MountOption;
use uxfs::Atime;
use uxfs::journal::JournalOptions;

/// What mount(8) and fstab say to themselves.
const NOT_FOR_US: [&str; 12] = [
    "defaults", "auto", "noauto", "user", "nouser", "users", "owner", "group", "nofail", "_netdev",
    "async", "nouuid",
];

/// How a volume is mounted.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Options {
    /// Nothing is changed, and nothing written to the image.
    pub read_only: bool,
    /// An image whose log is dirty is read as it lies there.
    pub norecovery: bool,
    /// When accesses are kept.
    pub atime: Atime,
    /// When accesses to directories are kept.
    pub dir_atime: Atime,
    /// Changes of metadata are durable when the call returns.
    pub wsync: bool,
    /// Writes of data are, too.
    pub sync: bool,
    /// Everybody may use the mount, not only who made it.
    pub allow_other: bool,
    /// Every opening of a file is asked for, so that files that may not be written are refused
    /// then, and not only when they are written.
    pub strict_open: bool,
    /// How changes are logged.
    pub journal: JournalOptions,
    /// Threads that answer requests; `None` for as many as there are processors, two at least.
    pub threads: Option<usize>,
    /// About how many bytes of metadata to keep in memory.
    pub cache_bytes: Option<usize>,
    /// Flags that the kernel looks after (`nosuid`, `noexec`, …).
    pub(crate) kernel: Vec<MountOption>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            read_only: false,
            norecovery: false,
            atime: Atime::Relative,
            dir_atime: Atime::Relative,
            wsync: false,
            sync: false,
            allow_other: false,
            strict_open: false,
            journal: JournalOptions::default(),
            threads: None,
            cache_bytes: None,
            kernel: Vec::new(),
        }
    }
}

/// A number of bytes, with a suffix as mount options have them.
fn bytes(name: &str, value: &str) -> Result<u64, String> {
    let wrong = || format!("option '{name}': '{value}' is not a number of bytes");
    let (digits, shift) = match value.as_bytes().last() {
        Some(b'k' | b'K') => (&value[..value.len() - 1], 10),
        Some(b'm' | b'M') => (&value[..value.len() - 1], 20),
        Some(b'g' | b'G') => (&value[..value.len() - 1], 30),
        _ => (value, 0),
    };
    let number: u64 = digits.parse().map_err(|_| wrong())?;
    number.checked_mul(1 << shift).ok_or_else(wrong)
}

impl Options {
    /// Reads options as they stand after `-o`: separated by commas. Several such texts are told
    /// joined by commas.
    ///
    /// # Errors
    /// What is wrong, and with which option.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut options = Self::default();
        for option in text.split(',').filter(|option| !option.is_empty()) {
            let (name, value) = match option.split_once('=') {
                Some((name, value)) => (name, Some(value)),
                None => (option, None),
            };
            match value {
                // In a mount this is done without a thread that waits.
                _ if name == "wsync" => options.flag(option)?,
                _ if options.journal.apply(option).map_err(|e| format!("'{option}': {e}"))? => {}
                None => options.flag(name)?,
                Some(value) => options.value(name, value)?,
            }
        }
        if options.norecovery && !options.read_only {
            return Err("option 'norecovery' goes with 'ro' only".into());
        }
        Ok(options)
    }

    fn set(&mut self, flag: MountOption, instead_of: MountOption) {
        self.kernel.retain(|other| *other != flag && *other != instead_of);
        self.kernel.push(flag);
    }

    fn flag(&mut self, name: &str) -> Result<(), String> {
        use MountOption as Kernel;
        match name {
            "ro" => self.read_only = true,
            "rw" => self.read_only = false,
            "norecovery" => self.norecovery = true,
            "noatime" => (self.atime, self.dir_atime) = (Atime::Never, Atime::Never),
            "atime" | "relatime" => {
                (self.atime, self.dir_atime) = (Atime::Relative, Atime::Relative);
            }
            "strictatime" => (self.atime, self.dir_atime) = (Atime::Strict, Atime::Strict),
            "nodiratime" => self.dir_atime = Atime::Never,
            "diratime" => self.dir_atime = self.atime,
            "wsync" | "dirsync" => self.wsync = true,
            "sync" => (self.wsync, self.sync) = (true, true),
            "allow_other" => self.allow_other = true,
            "strict_open" => self.strict_open = true,
            "suid" => self.set(Kernel::Suid, Kernel::NoSuid),
            "nosuid" => self.set(Kernel::NoSuid, Kernel::Suid),
            "dev" => self.set(Kernel::Dev, Kernel::NoDev),
            "nodev" => self.set(Kernel::NoDev, Kernel::Dev),
            "exec" => self.set(Kernel::Exec, Kernel::NoExec),
            "noexec" => self.set(Kernel::NoExec, Kernel::Exec),
            // What is so anyway. A change of times alone costs no write of its own: it waits for
            // the next checkpoint, as `lazytime` has it wait.
            "default_permissions"
            | "delaylog"
            | "barrier"
            | "nodiscard"
            | "noquota"
            | "inode64"
            | "lazytime"
            | "nolazytime" => {}
            _ if NOT_FOR_US.contains(&name) || name.starts_with("x-") => {}
            _ => return Err(format!("unknown option '{name}'")),
        }
        Ok(())
    }

    fn value(&mut self, name: &str, value: &str) -> Result<(), String> {
        let wrong = |range: &str| Err(format!("option '{name}={value}': {range}"));
        match name {
            "threads" => match value.parse() {
                Ok(threads @ 1..=64) => self.threads = Some(threads),
                _ => return wrong("1 to 64 threads answer requests"),
            },
            "cache_bytes" => match usize::try_from(bytes(name, value)?) {
                Ok(cache) => self.cache_bytes = Some(cache),
                Err(_) => return wrong("more than there can be"),
            },
            "comment" | "uhelper" | "helper" => {}
            _ if name.starts_with("x-") => {}
            _ => return Err(format!("unknown option '{name}'")),
        }
        Ok(())
    }

    /// What a crash can cost that it could not without these options, or no longer can: a line
    /// each.
    pub fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        if self.sync {
            notes.push("sync: every call is on stable storage when it returns; slow".into());
        } else if self.wsync {
            notes.push(
                "wsync: changes of metadata are on stable storage when the call returns".into(),
            );
        }
        if !self.journal.barrier {
            notes.push(
                "nobarrier: a power cut may cost anything, unless the disk has no cache".into(),
            );
        }
        if self.norecovery {
            notes.push("norecovery: what the image's log holds is not seen".into());
        }
        notes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_options() {
        let options = Options::parse(
            "ro,norecovery,noatime,logbsize=256k,logbufs=8,x-systemd.automount,nosuid",
        )
        .unwrap();
        assert!(options.read_only && options.norecovery);
        assert_eq!((options.atime, options.journal.buffer), (Atime::Never, 256 << 10));
        assert_eq!(options.kernel, [MountOption::NoSuid]);
        assert_eq!(Options::parse("").unwrap(), Options::default());
        assert_eq!(Options::parse("noatime,relatime").unwrap(), Options::default());
    }

    #[test]
    fn wrong_options_are_named() {
        for (text, named) in [
            ("nosuch", "nosuch"),
            ("uquota", "uquota"),
            ("logbsize=12k", "logbsize=12k"),
            ("logbufs=9", "logbufs=9"),
            ("threads=0", "threads=0"),
            ("norecovery", "norecovery"),
            ("cache_bytes=99999999999g", "cache_bytes"),
        ] {
            let error = Options::parse(text).unwrap_err();
            assert!(error.contains(named), "{text}: {error}");
        }
    }
}
