//! Mount options, by the names of XFS and of mount(8).
//!
//! 1. An unknown option, or one with an invalid value, is an error that names it.
//! 2. Of two contradicting options the later one holds, as for mount(8).
//! 3. An option that changes what a crash can lose adds a note that says so.
//! 4. XFS options that this mount cannot follow are refused by name with the reason. Options that
//!    ask for the present behaviour are accepted.

use std::path::PathBuf;
use std::time::Duration;

use uxfs::journal::JournalOptions;
use uxfs::quota::{QuotaFlags, QuotaType};
use uxfs::{Atime, OpenOptions, SyncMode, WritebackOptions};

/// Options for mount(8) and fstab, ignored here.
const IGNORED: [&str; 12] = [
    "defaults", "auto", "noauto", "user", "nouser", "users", "owner", "group", "nofail", "_netdev",
    "async", "nouuid",
];

/// Default of the longest time that a change stays in memory. It is short because `sync(2)` does
/// not reach the server.
const COMMIT: Duration = Duration::from_secs(1);

/// Default age in hundredths of a second at which dirty data is written, and the interval of
/// checks. Shorter than Linux' own for the same reason.
const EXPIRE: u32 = 300;
const INTERVAL: u32 = 100;

/// Bytes that `autodefrag` moves in a second.
const DEFRAG_RATE: u64 = 8 << 20;
const DEFRAG_LEAST: u64 = 64 << 10;

/// Defaults of `ship_lag=` and `ship_interval=`, and the most of both.
const SHIP_LAG: Duration = Duration::from_secs(30);
const SHIP_INTERVAL: Duration = Duration::from_secs(1);
const SHIP_LAG_MAX: u64 = 86_400;

/// Bytes in the write cache of a volume in a store from which on room is given back.
const SHIP_CACHE_BYTES: u64 = 10 << 30;

/// Largest value of `commit=` in seconds.
const COMMIT_MAX: u64 = 300;

/// XFS options that are refused, and why.
const REFUSED: [(&str, &str); 11] = [
    ("sunit", "data is not aligned to stripes here"),
    ("swidth", "data is not aligned to stripes here"),
    ("swalloc", "data is not aligned to stripes here"),
    ("allocsize", "nothing is allocated ahead of what is written here: extsize does that"),
    ("largeio", "st_blksize is the size of a block here"),
    ("filestreams", "files lie in the group of their directory here"),
    ("inode32", "inode numbers have 64 bits here"),
    ("ikeep", "chunks of inodes that are all free are given back here"),
    ("dax", "a FUSE mount has no direct access"),
    ("logdev", "give it as --logdev"),
    ("rtdev", "give it as --rtdev"),
];

/// Where a volume's checkpoints are shipped to (`ship=` and the options behind it).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ship {
    /// The address of the store.
    pub url: String,
    /// fsync waits for the store (`ship_mode=sync`).
    pub sync: bool,
    /// The file of the key that encrypts what is shipped.
    pub key: Option<PathBuf>,
    /// The shortest time between two checkpoints that are shipped.
    pub interval: Duration,
    /// How long the store may be behind before writers are slowed.
    pub lag: Duration,
    /// The volume itself lies in the store, and is written from afar.
    pub hold: Option<Hold>,
}

/// How a volume in a store is held.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hold {
    /// The directory of the write cache (`ship_cache=`); `None` for the usual one.
    pub cache: Option<PathBuf>,
    /// Bytes in the cache from which on room is given back (`ship_cache_bytes=`).
    pub cache_bytes: u64,
    /// Take the volume over from its holder.
    pub takeover: bool,
}

impl Ship {
    fn to(url: &str) -> Self {
        let (interval, lag) = (SHIP_INTERVAL, SHIP_LAG);
        Self { url: url.to_owned(), sync: false, key: None, interval, lag, hold: None }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Options {
    /// Change nothing, and write nothing to the image.
    pub read_only: bool,
    /// Do not replay a dirty log.
    pub norecovery: bool,
    /// When access times of files are updated.
    pub atime: Atime,
    /// When access times of directories are updated.
    pub dir_atime: Atime,
    /// Changes of metadata are durable when the call returns.
    pub wsync: bool,
    /// Writes of data are durable when the call returns.
    pub sync: bool,
    /// What fsync waits for (`sync=durable`, `sync=ordered`, `loss=`).
    pub mode: SyncMode,
    /// All users may use the mount, not only the one that made it.
    pub allow_other: bool,
    /// Every open is a request, so that a file that cannot be written is refused at open and not at
    /// the first write.
    pub strict_open: bool,
    pub discard: bool,
    /// How many bytes of files that write-back splits are moved together in a second, in the background
    /// (`autodefrag`); `None` for none.
    pub autodefrag: Option<u64>,
    /// How changes are logged, how long they stay in memory (`commit=`), and how calls of fsync
    /// share flushes (`fsync_policy=`, `flush_elision=`).
    pub journal: JournalOptions,
    /// How much data stays in memory before it is written; `None` if it is written at once
    /// (`dirty_bytes=0`).
    pub writeback: Option<WritebackOptions>,
    /// Was `dirty_bytes` given? Its default depends on the mode.
    dirty_bytes_given: bool,
    /// The mount has the type `fuseblk`, which receives `sync(2)` and `syncfs(2)`; for root.
    pub fuseblk: bool,
    /// Idle processors do not halt while there are many requests, which are then answered sooner
    /// ([`crate::awake`]). The mount fails if the process may not ask for that.
    pub awake: bool,
    /// Number of threads that answer requests; `None` for one per processor, at least two.
    pub threads: Option<usize>,
    /// Requests come over io_uring: always, never, or where that is possible.
    pub io_uring: Option<bool>,
    /// Approximate bytes of metadata to keep in memory.
    pub cache_bytes: Option<usize>,
    /// Where checkpoints are shipped to.
    pub ship: Option<Ship>,
    /// The quotas to account and to enforce (`uquota`, `gqnoenforce`, …); `None` for those that the volume
    /// names.
    pub quota: Option<QuotaFlags>,
    /// Flags that the kernel handles (`nosuid`, `noexec`, …).
    pub(crate) kernel: Vec<&'static str>,
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
            mode: SyncMode::Durable,
            allow_other: false,
            quota: None,
            strict_open: false,
            discard: false,
            autodefrag: None,
            journal: journal(),
            writeback: Some(writeback()),
            dirty_bytes_given: false,
            fuseblk: false,
            awake: false,
            threads: None,
            cache_bytes: None,
            io_uring: None,
            ship: None,
            kernel: Vec::new(),
        }
    }
}

fn journal() -> JournalOptions {
    let mut journal = JournalOptions::default();
    journal.pipeline.age_max = COMMIT;
    journal
}

/// `dirty_bytes` in ordered mode, where fsync writes nothing, and where blocks stay together that are written
/// together.
const ORDERED_DIRTY_BYTES: u64 = 256 << 20;

fn writeback() -> WritebackOptions {
    WritebackOptions {
        dirty_expire_centisecs: EXPIRE,
        dirty_writeback_centisecs: INTERVAL,
        ..WritebackOptions::default()
    }
}

/// Parses a number of bytes with a suffix, as in mount options.
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
    /// Parses options as after `-o`, separated by commas. Several `-o` arguments are joined by
    /// commas.
    ///
    /// # Errors
    /// The problem, and the option.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut options = Self::default();
        options.apply(text)?;
        Ok(options)
    }

    /// Parses the options of a volume that lies in the store at `url` and is written there.
    ///
    /// # Errors
    /// As [`Options::parse`]; an option that makes it read-only.
    pub fn parse_held(url: &str, text: &str, takeover: bool) -> Result<Self, String> {
        let hold = Hold { cache: None, cache_bytes: SHIP_CACHE_BYTES, takeover };
        let ship = Ship { hold: Some(hold), ..Ship::to(url) };
        let mut options = Self { ship: Some(ship), ..Self::default() };
        options.apply(text)?;
        Ok(options)
    }

    /// The options after a remount with `text`. Options that it does not name keep their values.
    ///
    /// # Errors
    /// A problem, or an option that cannot change while the volume is mounted.
    pub fn remount(&self, text: &str) -> Result<Self, String> {
        let mut options = self.clone();
        // Options that mount(8) finds in the list of mounts and passes on.
        let theirs = ["remount", "user_id=", "group_id=", "max_read=", "blksize="];
        let ours = |word: &&str| !theirs.iter().any(|name| word.starts_with(name));
        let words: Vec<&str> = text.split(',').filter(ours).collect();
        options.apply(&words.join(","))?;
        let fixed = [
            ("threads", options.threads != self.threads),
            ("strict_open", options.strict_open != self.strict_open),
            ("allow_other", options.allow_other != self.allow_other),
            ("fuseblk", options.fuseblk != self.fuseblk),
            ("io_uring", options.io_uring != self.io_uring),
            ("awake", options.awake != self.awake),
            ("norecovery", options.norecovery != self.norecovery),
            ("sync=", options.mode != self.mode),
            ("autodefrag", options.autodefrag != self.autodefrag),
            ("ship", options.ship != self.ship),
            // The device that ships cannot be opened twice.
            ("ship", self.ship.is_some() && self.needs_reopen(&options)),
        ];
        match fixed.into_iter().find(|(_, changed)| *changed) {
            Some((name, _)) => Err(format!(
                "option '{name}' cannot change while the volume is mounted: unmount it first"
            )),
            None => Ok(options),
        }
    }

    /// Does a change to the other options need the volume opened again?
    pub(crate) fn needs_reopen(&self, other: &Self) -> bool {
        let of = |o: &Self| (o.read_only, o.journal, o.writeback, o.cache_bytes, o.quota);
        of(self) != of(other)
    }

    fn apply(&mut self, text: &str) -> Result<(), String> {
        let options = self;
        for option in text.split(',').filter(|option| !option.is_empty()) {
            let (name, value) = match option.split_once('=') {
                Some((name, value)) => (name, Some(value)),
                None => (option, None),
            };
            match value {
                // The mount does this without a thread that waits.
                _ if name == "wsync" => options.flag(option)?,
                _ if options.journal.apply(option).map_err(|e| format!("'{option}': {e}"))? => {}
                None => options.flag(name)?,
                Some(value) => options.value(name, value)?,
            }
        }
        if options.mode.is_ordered() && (options.sync || options.wsync) {
            let other = if options.sync { "sync" } else { "wsync" };
            return Err(format!("options 'sync=ordered' and '{other}' contradict each other"));
        }
        if options.ship.is_some() && options.read_only {
            return Err("options 'ship' and 'ro' contradict each other: nothing changes".into());
        }
        if options.norecovery && !options.read_only {
            return Err("option 'norecovery' goes with 'ro' only".into());
        }
        if let Some(writeback) = &mut options.writeback {
            if options.mode.is_ordered() && !options.dirty_bytes_given {
                writeback.dirty_bytes = ORDERED_DIRTY_BYTES;
            }
            // A writer waits only above the limit of background write-back.
            let most = writeback.dirty_bytes / 2;
            writeback.dirty_background_bytes = writeback.dirty_background_bytes.min(most);
        }
        Ok(())
    }

    /// The options for opening the volume.
    pub fn open_options(&self) -> OpenOptions {
        let mut open = OpenOptions::default();
        open.read_only = self.read_only;
        open.norecovery = self.norecovery;
        open.cache_bytes = self.cache_bytes.unwrap_or(open.cache_bytes);
        open.journal = self.journal;
        open.writeback = self.writeback;
        open.sync = self.mode;
        open.defrag = self.autodefrag.is_some();
        open.quota = self.quota;
        open
    }

    fn set(&mut self, flag: &'static str, instead_of: &'static str) {
        self.kernel.retain(|other| *other != flag && *other != instead_of);
        self.kernel.push(flag);
    }

    fn flag(&mut self, name: &str) -> Result<(), String> {
        match name {
            "ro" => self.read_only = true,
            "rw" => self.read_only = false,
            "norecovery" => self.norecovery = true,
            // The kernel gets it only for the list of mounts.
            "noatime" => {
                (self.atime, self.dir_atime) = (Atime::Never, Atime::Never);
                self.set("noatime", "atime");
            }
            "atime" | "relatime" => {
                (self.atime, self.dir_atime) = (Atime::Relative, Atime::Relative);
                self.kernel.retain(|flag| *flag != "noatime");
            }
            "strictatime" => {
                (self.atime, self.dir_atime) = (Atime::Strict, Atime::Strict);
                self.kernel.retain(|flag| *flag != "noatime");
            }
            "nodiratime" => self.dir_atime = Atime::Never,
            "diratime" => self.dir_atime = self.atime,
            "quota" | "uquota" | "usrquota" | "uqnoenforce" | "qnoenforce" => {
                self.account(QuotaType::User, !name.ends_with("noenforce"));
            }
            "gquota" | "grpquota" | "gqnoenforce" => {
                self.account(QuotaType::Group, !name.ends_with("noenforce"));
            }
            "pquota" | "prjquota" | "pqnoenforce" => {
                self.account(QuotaType::Project, !name.ends_with("noenforce"));
            }
            "noquota" => self.quota = Some(QuotaFlags::empty()),
            "wsync" | "dirsync" => self.wsync = true,
            "sync" => (self.wsync, self.sync) = (true, true),
            "discard" => self.discard = true,
            "nodiscard" => self.discard = false,
            "autodefrag" => self.autodefrag = Some(DEFRAG_RATE),
            "noautodefrag" => self.autodefrag = None,
            // Options that a remount resets.
            "nosync" | "nowsync" => (self.wsync, self.sync) = (false, false),
            "allow_other" => self.allow_other = true,
            "strict_open" => self.strict_open = true,
            "fuseblk" => self.fuseblk = true,
            "awake" => self.awake = true,
            "noawake" => self.awake = false,
            "io_uring" => self.io_uring = Some(true),
            "noio_uring" => self.io_uring = Some(false),
            "suid" => self.set("suid", "nosuid"),
            "nosuid" => self.set("nosuid", "suid"),
            "dev" => self.set("dev", "nodev"),
            "nodev" => self.set("nodev", "dev"),
            "exec" => self.set("exec", "noexec"),
            "noexec" => self.set("noexec", "exec"),
            // Options that ask for the present behaviour. A change of times alone causes no write:
            // it waits for the next checkpoint, as with `lazytime`.
            "default_permissions"
            | "inode64"
            | "lazytime"
            | "nolazytime"
            | "noalign"
            | "attr2"
            | "noikeep"
            | "nolargeio" => {}
            _ if IGNORED.contains(&name) || name.starts_with("x-") => {}
            _ => return Err(unknown(name)),
        }
        Ok(())
    }

    fn account(&mut self, kind: QuotaType, enforce: bool) {
        let mut flags = self.quota.unwrap_or_default();
        flags.insert(kind.acct());
        flags.set(kind.enfd(), enforce);
        self.quota = Some(flags);
    }

    fn value(&mut self, name: &str, value: &str) -> Result<(), String> {
        let wrong = |range: &str| Err(format!("option '{name}={value}': {range}"));
        match name {
            "threads" => match value.parse() {
                Ok(threads @ 1..=64) => self.threads = Some(threads),
                _ => return wrong("1 to 64 threads answer requests"),
            },
            "autodefrag" => match bytes(name, value)? {
                rate @ DEFRAG_LEAST.. => self.autodefrag = Some(rate),
                _ => return wrong("64k or more bytes in a second"),
            },
            "cache_bytes" => match usize::try_from(bytes(name, value)?) {
                Ok(cache) => self.cache_bytes = Some(cache),
                Err(_) => return wrong("larger than possible"),
            },
            "commit" => match value.parse() {
                Ok(seconds @ 1..=COMMIT_MAX) => {
                    self.journal.pipeline.age_max = Duration::from_secs(seconds);
                }
                _ => return wrong("1 to 300 seconds"),
            },
            "dirty_bytes"
            | "dirty_background_bytes"
            | "dirty_expire_centisecs"
            | "dirty_writeback_centisecs" => self.dirty(name, value)?,
            "sync" => match value {
                "durable" => self.mode = SyncMode::Durable,
                "ordered" if self.mode.is_ordered() => {}
                "ordered" => self.mode = SyncMode::Ordered { loss: SyncMode::DEFAULT_LOSS },
                _ => return wrong("durable or ordered"),
            },
            "loss" => match (value.parse(), self.mode) {
                (_, SyncMode::Durable) => return wrong("goes behind sync=ordered"),
                (Ok(seconds @ 1..=COMMIT_MAX), _) => {
                    self.mode = SyncMode::Ordered { loss: Duration::from_secs(seconds) };
                }
                _ => return wrong("1 to 300 seconds"),
            },
            "ship" if self.ship.as_ref().is_some_and(|ship| ship.hold.is_some()) => {
                return wrong("the volume lies in a store, and is shipped there");
            }
            "ship" => self.ship = Some(Ship::to(value)),
            "ship_mode" | "ship_key" | "ship_lag" | "ship_interval" | "ship_cache"
            | "ship_cache_bytes" => self.ship(name, value)?,
            "comment" | "uhelper" | "helper" => {}
            _ if name.starts_with("x-") => {}
            _ => return Err(unknown(name)),
        }
        Ok(())
    }

    /// The options that go behind `ship=`, or with a volume in a store.
    fn ship(&mut self, name: &str, value: &str) -> Result<(), String> {
        let wrong = |range: &str| Err(format!("option '{name}={value}': {range}"));
        let Some(ship) = &mut self.ship else { return wrong("goes behind ship=") };
        if let "ship_cache" | "ship_cache_bytes" = name {
            let Some(hold) = &mut ship.hold else {
                return wrong("goes with a volume that lies in a store");
            };
            match name {
                "ship_cache" => hold.cache = Some(value.into()),
                _ => hold.cache_bytes = bytes(name, value)?,
            }
            return Ok(());
        }
        match (name, value, value.parse()) {
            ("ship_key", _, _) => ship.key = Some(value.into()),
            ("ship_mode", "sync", _) => ship.sync = true,
            ("ship_mode", "async", _) => ship.sync = false,
            ("ship_mode", _, _) => return wrong("async or sync"),
            ("ship_interval", _, Ok(seconds @ 1..=SHIP_LAG_MAX)) => {
                ship.interval = Duration::from_secs(seconds);
            }
            (_, _, Ok(seconds @ 1..=SHIP_LAG_MAX)) => ship.lag = Duration::from_secs(seconds),
            _ => return wrong("1 to 86400 seconds"),
        }
        Ok(())
    }

    /// The limits of dirty data, by Linux' names.
    fn dirty(&mut self, name: &str, value: &str) -> Result<(), String> {
        let number = bytes(name, value)?;
        self.dirty_bytes_given |= name == "dirty_bytes";
        let centisecs = || {
            u32::try_from(number)
                .map_err(|_| format!("option '{name}={value}': longer than a year"))
        };
        if name == "dirty_bytes" && number == 0 {
            self.writeback = None;
            return Ok(());
        }
        let limits = self.writeback.get_or_insert_with(writeback);
        match name {
            "dirty_bytes" => limits.dirty_bytes = number.max(1 << 20),
            "dirty_background_bytes" => limits.dirty_background_bytes = number,
            "dirty_expire_centisecs" => limits.dirty_expire_centisecs = centisecs()?,
            _ => limits.dirty_writeback_centisecs = centisecs()?,
        }
        Ok(())
    }

    /// Notes about what a crash can lose more, or less, with these options: one line each.
    pub fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        // It decides how long changes and data stay in memory.
        let ordered = self.mode.is_ordered();
        if let SyncMode::Ordered { loss } = self.mode {
            notes.push(format!("sync=ordered: {}", ordered_words(loss)));
        } else if self.sync {
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
        if self.journal.pipeline.age_max > COMMIT && !ordered {
            let seconds = self.journal.pipeline.age_max.as_secs();
            notes.push(format!(
                "commit={seconds}: a crash may cost unsynced changes of the last {seconds} seconds"
            ));
        }
        if let Some(limits) = &self.writeback
            && !ordered
            && (limits.dirty_expire_centisecs > EXPIRE || limits.dirty_writeback_centisecs == 0)
        {
            let what = match limits.dirty_writeback_centisecs {
                0 => "any unsynced data".into(),
                more => format!(
                    "unsynced data of the last {} seconds",
                    (limits.dirty_expire_centisecs.saturating_add(more)).div_ceil(100)
                ),
            };
            notes.push(format!("dirty_expire_centisecs: a crash may cost {what}"));
        }
        if self.norecovery {
            notes.push("norecovery: what the image's log holds is not seen".into());
        }
        notes
    }
}

/// What a crash costs in ordered mode.
pub(crate) fn ordered_words(loss: Duration) -> String {
    let seconds = loss.as_secs();
    format!("a crash loses at most the last {seconds} s, and nothing in part; fsync does not wait")
}

fn unknown(name: &str) -> String {
    match REFUSED.iter().find(|(refused, _)| *refused == name) {
        Some((_, why)) => format!("option '{name}' of XFS is not supported: {why}"),
        None => format!("unknown option '{name}'"),
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
        assert!(Options::parse("noawake,awake").unwrap().awake);
        assert!(!Options::parse("awake,noawake").unwrap().awake);
        assert!(!Options::default().awake);
        let defrag = |text: &str| Options::parse(text).unwrap().autodefrag;
        assert_eq!(defrag("autodefrag"), Some(8 << 20));
        assert_eq!(defrag("autodefrag=1m"), Some(1 << 20));
        assert_eq!((defrag("autodefrag,noautodefrag"), defrag("")), (None, None));
        assert!(Options::parse("autodefrag").unwrap().open_options().defrag);
        assert!(options.read_only && options.norecovery);
        assert_eq!((options.atime, options.journal.buffer), (Atime::Never, 256 << 10));
        assert_eq!(options.kernel, ["noatime", "nosuid"]);
        assert_eq!(Options::parse("").unwrap(), Options::default());
        assert_eq!(Options::parse("noatime,relatime").unwrap(), Options::default());
    }

    #[test]
    fn fsync_options_are_passed_to_the_journal() {
        let text = "fsync_policy=gather:4,flush_elision=clean";
        let pipeline = Options::parse(text).unwrap().open_options().journal.pipeline;
        assert_eq!(pipeline.fsync.to_string(), "gather:4");
        assert_eq!((pipeline.elide_covered, pipeline.elide_clean), (false, true));
    }

    #[test]
    fn notes_say_what_a_crash_can_lose() {
        assert!(Options::default().notes().is_empty());
        for (text, note) in [
            ("commit=30", "30 seconds"),
            ("dirty_expire_centisecs=3000", "31 seconds"),
            ("dirty_writeback_centisecs=0", "any unsynced data"),
            ("nobarrier", "nobarrier"),
            ("wsync", "wsync"),
            ("sync=ordered", "the last 5 s, and nothing in part"),
            ("sync=ordered,loss=30", "the last 30 s"),
        ] {
            let notes = Options::parse(text).unwrap().notes();
            assert!(notes.len() == 1 && notes[0].contains(note), "{text}: {notes:?}");
        }
    }

    #[test]
    fn remounting_changes_what_is_named() {
        let old = Options::parse("noatime,commit=5,threads=3,allow_other").unwrap();
        let new = old.remount("remount,ro,user_id=0,group_id=0,default_permissions,allow_other");
        assert_eq!(new, Ok(Options { read_only: true, ..old.clone() }));
        assert!(old.needs_reopen(&new.unwrap()));
        let new = old.remount("relatime,sync,discard").unwrap();
        assert!(!old.needs_reopen(&new) && new.sync && new.discard);
        assert_eq!(new.remount("async,noatime,nosync,nodiscard"), Ok(old.clone()));
        let shipped =
            Options::parse("ship=file:///a,ship_mode=sync,ship_key=k,ship_lag=9").unwrap();
        let ship = shipped.ship.clone().unwrap();
        assert!(ship.sync && ship.key == Some("k".into()) && ship.lag.as_secs() == 9);
        let text = "ship_mode=sync,ship_cache=/c,ship_cache_bytes=2g";
        let held = Options::parse_held("s3://b/p", text, true).unwrap().ship.unwrap();
        let hold = Hold { cache: Some("/c".into()), cache_bytes: 2 << 30, takeover: true };
        assert!(held.sync && held.url == "s3://b/p" && held.hold == Some(hold));
        for wrong in ["ro", "ship=file:///a", "ship_cache_bytes=x"] {
            assert!(Options::parse_held("s3://b/p", wrong, false).is_err(), "{wrong}");
        }
        assert!(shipped.remount("noatime").is_ok());
        assert!(shipped.remount("commit=9").is_err() && shipped.remount("ship=file:///b").is_err());
        for (text, named) in [
            ("threads=4", "threads"),
            ("noio_uring", "io_uring"),
            ("autodefrag", "autodefrag"),
            ("sync=ordered", "sync="),
            ("nosuch", "nosuch"),
        ] {
            let error = old.remount(text).unwrap_err();
            assert!(error.contains(named), "{text}: {error}");
        }
    }

    #[test]
    fn limits_of_dirty_data_are_parsed() {
        let parsed = Options::parse("dirty_bytes=8m,commit=5").unwrap();
        let limits = parsed.writeback.unwrap();
        assert_eq!((limits.dirty_bytes, limits.dirty_background_bytes), (8 << 20, 4 << 20));
        let open = parsed.open_options();
        assert_eq!(open.journal.pipeline.age_max, Duration::from_secs(5));
        for (text, most) in [
            ("", 64 << 20),
            ("sync=ordered", 256 << 20),
            ("sync=ordered,dirty_writeback_centisecs=100", 256 << 20),
            ("dirty_bytes=64m,sync=ordered", 64 << 20),
        ] {
            let parsed = Options::parse(text).unwrap();
            assert_eq!(parsed.writeback.unwrap().dirty_bytes, most, "{text}");
        }
        assert_eq!(Options::parse("dirty_bytes=0").unwrap().open_options().writeback, None);
        assert!(Options::parse("ro").unwrap().open_options().read_only);
    }

    #[test]
    fn quotas_have_the_names_of_xfs() {
        let flags = |text| Options::parse(text).unwrap().open_options().quota;
        assert_eq!(flags("rw"), None);
        assert_eq!(flags("uquota,noquota"), Some(QuotaFlags::empty()));
        let users = QuotaFlags::USER_ACCT | QuotaFlags::USER_ENFD;
        assert_eq!(["quota", "usrquota", "uquota"].map(flags), [Some(users); 3]);
        assert_eq!(flags("uquota,uqnoenforce"), Some(QuotaFlags::USER_ACCT));
        let projects = QuotaFlags::PROJECT_ACCT | QuotaFlags::PROJECT_ENFD;
        assert_eq!(flags("prjquota,grpquota,gqnoenforce"), Some(projects | QuotaFlags::GROUP_ACCT));
    }

    #[test]
    fn wrong_options_are_named() {
        for (text, named) in [
            ("nosuch", "nosuch"),
            ("sunit=128", "sunit"),
            ("allocsize=64m", "allocsize"),
            ("commit=0", "commit=0"),
            ("dirty_bytes=x", "dirty_bytes"),
            ("dirty_expire_centisecs=99999999999", "dirty_expire_centisecs"),
            ("logbsize=12k", "logbsize=12k"),
            ("logbufs=9", "logbufs=9"),
            ("threads=0", "threads=0"),
            ("autodefrag=1k", "autodefrag=1k"),
            ("fsync_policy=never", "fsync_policy=never"),
            ("flush_elision=", "flush_elision="),
            ("norecovery", "norecovery"),
            ("cache_bytes=99999999999g", "cache_bytes"),
            ("ship_mode=sync", "goes behind ship="),
            ("ship=file:///a,ship_mode=never", "ship_mode=never"),
            ("ship=file:///a,ship_lag=0", "ship_lag=0"),
            ("ship=file:///a,ro", "ship"),
            ("ship=file:///a,ship_cache=/b", "lies in a store"),
            ("sync=maybe", "sync=maybe"),
            ("loss=5", "loss=5"),
            ("sync=ordered,loss=0", "loss=0"),
            ("sync=ordered,sync", "sync"),
            ("wsync,sync=ordered", "wsync"),
        ] {
            let error = Options::parse(text).unwrap_err();
            assert!(error.contains(named), "{text}: {error}");
        }
    }
}
