//! xfs-core, a reader for forensics, through its adapter for forensic-vfs: `list`.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::process::ExitCode;
use std::sync::Arc;

use forensic_vfs::{DynSource, FileId, FileSystem, ImageSource, NodeKind, StreamId, VfsResult};
use uxfs_compare::{Args, Item, Reader, Why, exit, list, why};
use uxfs_oracle::{ContentSum, Kind};
use xfs::vfs::XfsFs;

struct Disk {
    file: File,
    len: u64,
}

impl ImageSource for Disk {
    fn len(&self) -> u64 {
        self.len
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> VfsResult<usize> {
        let mut done = 0;
        while done < buf.len() {
            match self.file.read_at(&mut buf[done..], offset + done as u64) {
                Ok(0) => break,
                Ok(some) => done += some,
                Err(e) => panic!("{e}"),
            }
        }
        Ok(done)
    }
}

struct XfsCore(XfsFs);

impl Reader for XfsCore {
    type Node = FileId;

    fn root(&mut self) -> Result<FileId, Why> {
        Ok(self.0.root())
    }

    fn list(&mut self, dir: &FileId) -> Result<Vec<Item<FileId>>, Why> {
        let mut items = Vec::new();
        for found in self.0.read_dir(*dir).map_err(why)? {
            let found = found.map_err(why)?;
            let kind = match found.kind {
                NodeKind::File => Some(Kind::File),
                NodeKind::Dir => Some(Kind::Dir),
                NodeKind::Symlink => Some(Kind::Symlink),
                _ => None,
            };
            if !matches!(&found.name[..], b"." | b"..") {
                items.push(Item { name: found.name, kind, node: found.id });
            }
        }
        Ok(items)
    }

    fn read(&mut self, file: &FileId, sum: &mut ContentSum) -> Result<u64, Why> {
        let size = self.0.meta(*file).map_err(why)?.size;
        let mut content = vec![0; usize::try_from(size).map_err(why)?];
        let read = self.0.read_at(*file, StreamId::Default, 0, &mut content).map_err(why)?;
        sum.add(0, &content[..read]);
        Ok(read as u64)
    }

    fn target(&mut self, link: &FileId) -> Result<Vec<u8>, Why> {
        self.0.read_link(*link, 4096).map_err(why)
    }
}

fn main() -> ExitCode {
    let Some(args) = Args::get().filter(|args| args.command == "list") else {
        return exit(Err("usage: xfs-core list IMAGE".into()));
    };
    exit(list(|| {
        let file = File::open(&args.image).map_err(why)?;
        let len = file.metadata().map_err(why)?.len();
        let source: DynSource = Arc::new(Disk { file, len });
        Ok(XfsCore(XfsFs::open(&source).map_err(why)?))
    }))
}
