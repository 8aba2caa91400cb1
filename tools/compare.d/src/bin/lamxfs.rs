//! lamxfs, a reader for boot loaders: `list`.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::process::ExitCode;

use lamxfs::{BlockRead, EntryKind, Error, Path, Xfs};
use uxfs_compare::{Args, Item, Reader, Why, exit, join, list};
use uxfs_oracle::{ContentSum, Kind};

struct Disk(File);

impl BlockRead for Disk {
    type Error = io::Error;

    fn read_at(&mut self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        self.0.read_exact_at(buf, offset)
    }
}

struct Lamxfs(Xfs<Disk>);

/// Its errors' `Display` is a token; the rest is in `Debug`.
fn why(error: Error) -> Why {
    format!("{error:?}")
}

impl Reader for Lamxfs {
    type Node = Vec<u8>;

    fn root(&mut self) -> Result<Vec<u8>, Why> {
        Ok(b"/".to_vec())
    }

    fn list(&mut self, dir: &Vec<u8>) -> Result<Vec<Item<Vec<u8>>>, Why> {
        let all = self.0.read_dir(Path::new(dir)).map_err(why)?;
        let real = all.into_iter().filter(|entry| !matches!(&entry.name[..], b"." | b".."));
        let item = |entry: lamxfs::DirEntry| {
            let kind = match entry.kind {
                EntryKind::Regular => Some(Kind::File),
                EntryKind::Directory => Some(Kind::Dir),
                EntryKind::Symlink => Some(Kind::Symlink),
                EntryKind::Other => None,
            };
            Item { node: join(dir, &entry.name), name: entry.name, kind }
        };
        Ok(real.map(item).collect())
    }

    fn read(&mut self, file: &Vec<u8>, sum: &mut ContentSum) -> Result<u64, Why> {
        let content = self.0.read_file(Path::new(file)).map_err(why)?;
        sum.add(0, &content);
        Ok(content.len() as u64)
    }

    fn target(&mut self, link: &Vec<u8>) -> Result<Vec<u8>, Why> {
        self.0.read_link(Path::new(link)).map_err(why)
    }
}

fn main() -> ExitCode {
    let Some(args) = Args::get().filter(|args| args.command == "list") else {
        return exit(Err("usage: lamxfs list IMAGE".into()));
    };
    exit(list(|| {
        let file = File::open(&args.image).map_err(uxfs_compare::why)?;
        let size = file.metadata().map_err(uxfs_compare::why)?.len();
        Ok(Lamxfs(Xfs::open(Disk(file), size).map_err(why)?))
    }))
}
