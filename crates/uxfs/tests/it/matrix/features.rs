//! What a volume can be made with: the factors of the matrix.

use uxfs_oracle::Xfsprogs;

use super::cover::{Row, Space};
use crate::volume::{MIB, Volume};

/// A factor: its name, and its values as they stand in mkfs' options.
type Factor = (&'static str, &'static [&'static str]);

const FLAG: &[&str] = &["1", "0"];

const FACTORS: [Factor; 16] = [
    ("block", &["4096", "1024", "2048", "8192", "16384", "32768", "65536"]),
    ("sector", &["512", "4096"]),
    ("inode", &["512", "1024", "2048"]),
    ("directory", &["4096", "8192", "16384", "65536"]),
    ("finobt", FLAG),
    ("inobtcount", FLAG),
    ("maker", &["uxfs", "mkfs.xfs 6.1", "mkfs.xfs 7"]),
    ("parent", FLAG),
    ("exchange", FLAG),
    ("sparse", FLAG),
    ("rmapbt", FLAG),
    ("reflink", FLAG),
    ("bigtime", FLAG),
    ("nrext64", FLAG),
    ("metauuid", FLAG),
    ("stripe", &["noalign", "su=64k,sw=4"]),
];

/// The first so many factors do not go with all values of each other.
const BOUND: usize = 9;

/// One combination.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Features(Row);

impl std::fmt::Display for Features {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}", self.text("maker"), self.line())?;
        if self.is("metauuid") { f.write_str(" metauuid") } else { Ok(()) }
    }
}

fn factor(name: &str) -> usize {
    FACTORS.iter().position(|(other, _)| *other == name).unwrap()
}

/// All combinations that there are.
pub(super) fn space() -> Space<'static> {
    Space {
        sizes: FACTORS.iter().map(|(_, values)| values.len()).collect(),
        allowed: &|row| Features(row.to_vec()).allowed(),
        bound: (0..BOUND).collect(),
    }
}

impl Features {
    pub(super) fn new(row: Row) -> Self {
        Self(row)
    }

    pub(super) fn text(&self, name: &str) -> &'static str {
        let at = factor(name);
        FACTORS[at].1[self.0[at]]
    }

    pub(super) fn number(&self, name: &str) -> u64 {
        self.text(name).parse().unwrap()
    }

    pub(super) fn is(&self, name: &str) -> bool {
        self.text(name) == "1"
    }

    fn allowed(&self) -> bool {
        let block = self.number("block");
        let new = self.is("parent") || self.is("exchange");
        self.number("sector") <= block
            && self.number("inode") * 2 <= block
            && self.number("directory") >= block
            && (self.is("finobt") || !self.is("inobtcount"))
            && !(new && self.text("maker") == "mkfs.xfs 6.1")
    }

    /// Can Debian 12's kernel mount it?
    pub(super) fn for_stable(&self) -> bool {
        self.number("block") <= 4096 && !self.is("parent") && !self.is("exchange")
    }

    /// The options of mkfs.
    pub(super) fn line(&self) -> String {
        let named = |names: &[&str]| -> String {
            let all: Vec<_> = names.iter().map(|n| format!("{n}={}", self.text(n))).collect();
            all.join(",")
        };
        let mut inode = format!("size={},{}", self.text("inode"), named(&["sparse", "nrext64"]));
        let mut naming = format!("size={}", self.text("directory"));
        if self.text("maker") != "mkfs.xfs 6.1" {
            inode += &format!(",{}", named(&["exchange"]));
            naming += &format!(",{}", named(&["parent"]));
        }
        format!(
            "-b size={} -s size={} -i {inode} -n {naming} -d {} -m {}",
            self.text("block"),
            self.text("sector"),
            self.text("stripe"),
            named(&["finobt", "inobtcount", "rmapbt", "reflink", "bigtime"]),
        )
    }

    /// Size of a volume in MiB: eight groups that each have room for a log of the usual size, and, in
    /// larger blocks, more free extents than a block can hold. Below that mkfs.xfs 6.1 and 7 do not
    /// agree where the root directory goes, and each one's xfs_repair complains of the other.
    fn mib(&self) -> u64 {
        match self.number("block") {
            65536 => 16 << 10,
            32768 => 4 << 10,
            _ => 768,
        }
    }

    /// A volume with them.
    pub(super) fn volume(&self) -> Volume {
        let line = self.line();
        let words: Vec<&str> = line.split_whitespace().collect();
        let volume = match self.text("maker") {
            "uxfs" => Volume::small(self.mib(), &line),
            "mkfs.xfs 6.1" => Volume::real(self.mib(), &line),
            _ => {
                let volume = Volume::empty();
                Xfsprogs::Current.mkfs(&volume.path, self.mib() * MIB, &words);
                volume
            }
        };
        if self.is("metauuid") {
            // As `xfs_admin -U generate` does it: what is written goes on to carry the old one.
            Xfsprogs::Current.db_write(&volume.path, &["uuid generate"]);
        }
        volume
    }
}
