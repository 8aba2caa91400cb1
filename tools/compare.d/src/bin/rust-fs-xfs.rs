//! rust-fs-xfs: `list`, `edit`, `check`, and `mkfs` for a file that has its size already.

use std::process::ExitCode;
use std::sync::Arc;

use fs_core::FileDevice;
use fs_xfs::inode::{FileType, Inode};
use fs_xfs::{Filesystem, check, mkfs};
use uxfs_compare::{Args, Editor, Item, Reader, Why, exit, split, why};
use uxfs_oracle::{ContentSum, Kind};

/// Type bits and permissions.
const FILE: u16 = 0o100_644;
const DIR: u16 = 0o040_755;

struct Volume(Filesystem);

impl Volume {
    fn ino(&self, path: &[u8]) -> Result<u64, Why> {
        Ok(self.0.lookup_path_bytes(path).map_err(why)?.ino)
    }
}

impl Reader for Volume {
    type Node = (Inode, Vec<u8>);

    fn root(&mut self) -> Result<Self::Node, Why> {
        let ino = self.0.root_inode().map_err(why)?.ino;
        self.0.read_inode_raw(ino).map_err(why)
    }

    fn list(&mut self, (inode, raw): &Self::Node) -> Result<Vec<Item<Self::Node>>, Why> {
        let all = self.0.read_dir(inode, raw).map_err(why)?;
        let real = all.into_iter().filter(|entry| !matches!(&entry.name[..], b"." | b".."));
        let item = |entry: fs_xfs::dir::DirEntry| {
            let node = self.0.read_inode_raw(entry.ino).map_err(why)?;
            let kind = match node.0.file_type() {
                Some(FileType::Regular) => Some(Kind::File),
                Some(FileType::Directory) => Some(Kind::Dir),
                Some(FileType::Symlink) => Some(Kind::Symlink),
                _ => None,
            };
            Ok(Item { name: entry.name, kind, node })
        };
        real.map(item).collect()
    }

    fn read(&mut self, (inode, raw): &Self::Node, sum: &mut ContentSum) -> Result<u64, Why> {
        let mut piece = vec![0; 1 << 20];
        let mut at = 0;
        while at < inode.size {
            // A read may be short at the end alone.
            let read = self.0.read_at(inode, raw, at, &mut piece).map_err(why)?;
            if read == 0 {
                return Err(format!("short read at byte {at} of {}", inode.size));
            }
            sum.add(at, &piece[..read]);
            at += read as u64;
        }
        Ok(at)
    }

    fn target(&mut self, (inode, raw): &Self::Node) -> Result<Vec<u8>, Why> {
        self.0.read_link(inode, raw).map_err(why)
    }
}

impl Editor for Volume {
    fn mkdir(&mut self, path: &[u8]) -> Result<(), Why> {
        let (dir, name) = split(path);
        self.0.create_directory(self.ino(dir)?, name, DIR).map(drop).map_err(why)
    }

    fn put(&mut self, path: &[u8], content: &[u8]) -> Result<(), Why> {
        let (dir, name) = split(path);
        let (ino, _) = self.0.create_file(self.ino(dir)?, name, FILE).map_err(why)?;
        if content.is_empty() {
            return Ok(());
        }
        self.0.write_into_empty_file(ino, content).map(drop).map_err(why)
    }

    fn symlink(&mut self, path: &[u8], target: &[u8]) -> Result<(), Why> {
        let (dir, name) = split(path);
        self.0.create_symlink(self.ino(dir)?, name, target).map(drop).map_err(why)
    }

    fn remove(&mut self, path: &[u8]) -> Result<(), Why> {
        let (dir, name) = split(path);
        self.0.unlink_file(self.ino(dir)?, name).map(drop).map_err(why)
    }

    fn rename(&mut self, from: &[u8], to: &[u8]) -> Result<(), Why> {
        let ((from_dir, from), (to_dir, to)) = (split(from), split(to));
        self.0.rename(self.ino(from_dir)?, from, self.ino(to_dir)?, to).map(drop).map_err(why)
    }

    fn finish(self) -> Result<(), Why> {
        self.0.unmount().map_err(why)
    }
}

fn main() -> ExitCode {
    let Some(args) = Args::get() else {
        return exit(Err("usage: rust-fs-xfs list|edit|check|mkfs IMAGE [SCRIPT]".into()));
    };
    let read = || {
        let device = FileDevice::open(&args.image).map_err(why)?;
        Ok(Volume(Filesystem::mount(Arc::new(device)).map_err(why)?))
    };
    let write = || FileDevice::open_rw(&args.image).map_err(why);
    exit(match &args.command[..] {
        "list" => uxfs_compare::list(read),
        "edit" => uxfs_compare::edit(&args, || {
            Ok(Volume(Filesystem::mount_rw(Arc::new(write()?)).map_err(why)?))
        }),
        "check" => uxfs_compare::check(|| {
            let report = check::check(&read()?.0);
            Ok(if report.is_clean() { Vec::new() } else { vec![format!("{report:?}")] })
        }),
        "mkfs" => write().and_then(|device| {
            mkfs::format(&device, &mkfs::Options::default()).map(drop).map_err(why)
        }),
        other => Err(format!("unknown command {other}")),
    })
}
