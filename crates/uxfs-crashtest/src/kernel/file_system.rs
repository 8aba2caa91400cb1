//! The kernel's file systems that are tested: how a volume is made, mounted and inspected.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Command, Stdio};

use uxfs_disk::{BlockDev, MemDev};

use super::message::Pace;
use crate::error::{Error, Result};

/// Always the same, so that a run repeats as far as the program does.
const UUID: &str = "75786673-0000-4000-8000-000000000003";
/// The time of the new volume.
const MADE: &str = "1600000000";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KernelFs {
    Xfs,
    Ext4,
    Btrfs,
    F2fs,
}

/// A tool of the host: its words before the disk, and the package that brings it.
struct Tool {
    words: &'static [&'static str],
    package: &'static str,
}

impl KernelFs {
    /// Its name in the kernel.
    pub fn name(self) -> &'static str {
        match self {
            Self::Xfs => "xfs",
            Self::Ext4 => "ext4",
            Self::Btrfs => "btrfs",
            Self::F2fs => "f2fs",
        }
    }

    /// Options of a mount under which nothing is written by the clock.
    pub(crate) fn lazy_options(self) -> &'static str {
        match self {
            Self::Ext4 | Self::Btrfs => "commit=300",
            Self::Xfs | Self::F2fs => "",
        }
    }

    /// The paces: nothing in the background; the journal after each change of names; data after each write.
    pub(crate) fn paces() -> [(&'static str, Pace); 3] {
        [("late", Pace::Late), ("names", Pace::Names), ("data", Pace::Data)]
    }

    fn mkfs(self) -> Tool {
        match self {
            Self::Xfs => {
                let words =
                    &["mkfs.xfs", "-f", "-q", "-m", "uuid=75786673-0000-4000-8000-000000000003"];
                Tool { words, package: "xfsprogs" }
            }
            Self::Ext4 => Tool {
                words: &[
                    "mkfs.ext4",
                    "-F",
                    "-q",
                    "-U",
                    UUID,
                    "-E",
                    "hash_seed=75786673-0000-4000-8000-000000000004,lazy_itable_init=0,\
                     lazy_journal_init=0",
                ],
                package: "e2fsprogs",
            },
            Self::Btrfs => {
                Tool { words: &["mkfs.btrfs", "-f", "-q", "-U", UUID], package: "btrfs-progs" }
            }
            Self::F2fs => Tool { words: &["mkfs.f2fs", "-f", "-q"], package: "f2fs-tools" },
        }
    }

    /// The words of what inspects an unmounted volume without changing it; `%` stands for the disk.
    pub(crate) fn inspection(self) -> &'static [&'static str] {
        match self {
            Self::Xfs => &["xfs_repair", "-n", "%"],
            Self::Ext4 => &["e2fsck", "-f", "-n", "%"],
            Self::Btrfs => &["btrfs", "check", "--readonly", "%"],
            Self::F2fs => &["fsck.f2fs", "--dry-run", "%"],
        }
    }

    /// A new volume of this many bytes.
    ///
    /// # Errors
    /// The tool is missing, or refuses.
    pub(crate) fn make(self, len: u64) -> Result<MemDev> {
        let tool = self.mkfs();
        let name = tool.words[0];
        let host = |error: std::io::Error| Error::host(&format!("cannot run {name}"), error);
        let image = tempfile::NamedTempFile::new().map_err(host)?;
        image.as_file().set_len(len).map_err(host)?;
        let mut command = Command::new(name);
        command.args(&tool.words[1..]).arg(image.path()).stdin(Stdio::null());
        command.env("PATH", super::machine::path_with_sbin());
        command.env("SOURCE_DATE_EPOCH", MADE).env("E2FSPROGS_FAKE_TIME", MADE);
        command.env("DETERMINISTIC_SEED", "1");
        let output = command.output().map_err(|error| match error.kind() {
            std::io::ErrorKind::NotFound => Error::new(format!(
                "--fs {} needs {name}: install the package {}",
                self.name(),
                tool.package
            )),
            _ => host(error),
        })?;
        if !output.status.success() {
            let words = String::from_utf8_lossy(&output.stderr).trim().to_owned();
            return Err(Error::new(format!("{name} refuses a volume of {len} bytes: {words}")));
        }
        load(image.path(), len).map_err(host)
    }
}

/// The content of a file, as a disk in memory.
fn load(path: &Path, len: u64) -> std::io::Result<MemDev> {
    const PIECE: u64 = 1 << 20;
    let file = File::open(path)?;
    let disk = MemDev::new(len);
    let mut at = 0;
    while at < len {
        // Holes are most of a new volume.
        let data = match rustix::fs::seek(&file, rustix::fs::SeekFrom::Data(at)) {
            Ok(data) if data < len => data - data % 4096,
            Ok(_) | Err(rustix::io::Errno::NXIO) => break,
            Err(error) => return Err(error.into()),
        };
        let mut bytes = vec![0; usize::try_from((len - data).min(PIECE)).unwrap_or(0)];
        file.read_exact_at(&mut bytes, data)?;
        if bytes.iter().any(|byte| *byte != 0) {
            disk.write_at(data, &bytes)?;
        }
        at = data + bytes.len() as u64;
    }
    Ok(disk)
}
