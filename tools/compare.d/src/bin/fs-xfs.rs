//! fs-xfs, the crate of rusty-backup: `list`, `edit` and `check`. It is under GPL-2.0-only; nothing but
//! this program, which is not shipped, links it.

use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::process::ExitCode;

use disk_core::entry::{EntryType, FileEntry};
use disk_core::filesystem::{
    CreateDirectoryOptions, CreateFileOptions, EditableFilesystem, Filesystem,
};
use rusty_xfs::xfs::XfsFilesystem;
use uxfs_compare::{Args, Editor, Item, Reader, Why, exit, join, split, why};
use uxfs_oracle::{ContentSum, Kind};

struct Volume {
    fs: XfsFilesystem<File>,
    /// Directories that were looked up or made.
    dirs: HashMap<Vec<u8>, FileEntry>,
}

/// The library takes and gives names as text.
fn text(name: &[u8]) -> Result<&str, Why> {
    std::str::from_utf8(name).map_err(why)
}

impl Volume {
    fn open(image: &str, write: bool) -> Result<Self, Why> {
        let file = OpenOptions::new().read(true).write(write).open(image).map_err(why)?;
        let fs = XfsFilesystem::open(file, 0).map_err(why)?;
        Ok(Self { fs, dirs: HashMap::new() })
    }

    fn dir(&mut self, path: &[u8]) -> Result<FileEntry, Why> {
        if let Some(known) = self.dirs.get(path) {
            return Ok(known.clone());
        }
        let found = if path == b"/" { self.fs.root().map_err(why)? } else { self.find(path)?.1 };
        self.dirs.insert(path.to_vec(), found.clone());
        Ok(found)
    }

    /// The entry at a path, after its directory's.
    fn find(&mut self, path: &[u8]) -> Result<(FileEntry, FileEntry), Why> {
        let (dir, name) = split(path);
        let dir = self.dir(dir)?;
        let name = text(name)?;
        let all = self.fs.list_directory(&dir).map_err(why)?;
        let found = all.into_iter().find(|entry| entry.name == name);
        Ok((dir, found.ok_or("not found")?))
    }
}

impl Reader for Volume {
    type Node = FileEntry;

    fn root(&mut self) -> Result<FileEntry, Why> {
        self.fs.root().map_err(why)
    }

    fn list(&mut self, dir: &FileEntry) -> Result<Vec<Item<FileEntry>>, Why> {
        let all = self.fs.list_directory(dir).map_err(why)?;
        let real = all.into_iter().filter(|entry| !matches!(&entry.name[..], "." | ".."));
        let item = |node: FileEntry| {
            let kind = match node.entry_type {
                EntryType::File => Some(Kind::File),
                EntryType::Directory => Some(Kind::Dir),
                EntryType::Symlink => Some(Kind::Symlink),
                EntryType::Special => None,
            };
            Item { name: node.name.clone().into_bytes(), kind, node }
        };
        Ok(real.map(item).collect())
    }

    fn read(&mut self, file: &FileEntry, sum: &mut ContentSum) -> Result<u64, Why> {
        let content = self.fs.read_file(file, usize::MAX).map_err(why)?;
        sum.add(0, &content);
        Ok(content.len() as u64)
    }

    fn target(&mut self, link: &FileEntry) -> Result<Vec<u8>, Why> {
        link.symlink_target.clone().map(String::into_bytes).ok_or("no target".into())
    }
}

impl Editor for Volume {
    fn mkdir(&mut self, path: &[u8]) -> Result<(), Why> {
        let (dir, name) = split(path);
        let parent = self.dir(dir)?;
        let options = CreateDirectoryOptions::default();
        let made = self.fs.create_directory(&parent, text(name)?, &options).map_err(why)?;
        self.dirs.insert(join(dir, name), made);
        Ok(())
    }

    fn put(&mut self, path: &[u8], mut content: &[u8]) -> Result<(), Why> {
        let (dir, name) = split(path);
        let parent = self.dir(dir)?;
        let (len, options) = (content.len() as u64, CreateFileOptions::default());
        let made = self.fs.create_file(&parent, text(name)?, &mut content, len, &options);
        made.map(drop).map_err(why)
    }

    fn symlink(&mut self, _: &[u8], _: &[u8]) -> Result<(), Why> {
        Err("the library makes no symbolic links".into())
    }

    fn remove(&mut self, path: &[u8]) -> Result<(), Why> {
        let (parent, entry) = self.find(path)?;
        self.fs.delete_entry(&parent, &entry).map_err(why)
    }

    fn rename(&mut self, from: &[u8], to: &[u8]) -> Result<(), Why> {
        let (dir, name) = split(to);
        if dir != split(from).0 {
            return Err("the library renames within a directory only".into());
        }
        let (parent, entry) = self.find(from)?;
        self.fs.rename(&parent, &entry, text(name)?).map_err(why)
    }

    fn finish(mut self) -> Result<(), Why> {
        self.fs.sync_metadata().map_err(why)
    }
}

fn main() -> ExitCode {
    let Some(args) = Args::get() else {
        return exit(Err("usage: fs-xfs list|edit|check IMAGE [SCRIPT]".into()));
    };
    exit(match &args.command[..] {
        "list" => uxfs_compare::list(|| Volume::open(&args.image, false)),
        "edit" => uxfs_compare::edit(&args, || Volume::open(&args.image, true)),
        "check" => uxfs_compare::check(|| {
            let mut volume = Volume::open(&args.image, false)?;
            let result = volume.fs.fsck().ok_or("no check")?.map_err(why)?;
            Ok(result.errors.iter().map(|issue| format!("{issue:?}")).collect())
        }),
        other => Err(format!("unknown command {other}")),
    })
}
