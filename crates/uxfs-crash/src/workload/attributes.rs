//! Operations on attributes, owners, times, flags, hints, and the label.

use uxfs::{Result, SetAttr, XattrMode, Xflags};
use uxfs_format::inode::{S_IFDIR, S_IFREG};
use uxfs_format::timestamp::Timestamp;

use super::Workload;

impl Workload<'_> {
    pub(super) fn set_xattr(&mut self, step: usize) -> Result<()> {
        let Some(path) = self.any_name() else { return Ok(()) };
        let node = &self.tree[&path];
        let (id, known) = (node.id, node.xattrs.keys().cloned().collect::<Vec<_>>());
        let plain = matches!(self.kind(&path), S_IFREG | S_IFDIR);
        let ino = self.ino(&path)?;
        self.renew.push(id);
        let enough = known.len() > 6 || self.rng.once_in(6);
        if let Some(name) = self.rng.pick(&known).filter(|_| enough).cloned() {
            self.record_operation("removexattr");
            return self.fs.remove_xattr(ino, &name);
        }
        // Linux allows the first namespace for files and directories only.
        let spaces = if plain { ["user", "trusted", "security"] } else { ["trusted"; 3] };
        let space = spaces[self.rng.below(3) as usize];
        let name = format!("{space}.{}", self.rng.below(9)).into_bytes();
        let most = [30, 300, 3000, 20_000][self.rng.below(4) as usize];
        let len = self.rng.below(most) as usize;
        self.record_operation(match len {
            0..256 => "setxattr",
            256..2000 => "setxattr-leaf",
            _ => "setxattr-remote",
        });
        let value = vec![(step % 250) as u8; len];
        self.fs.set_xattr(ino, &name, &value, XattrMode::Any)
    }

    pub(super) fn set_attr(&mut self, step: usize) -> Result<()> {
        let Some(path) = self.any_name() else { return Ok(()) };
        self.record_operation("setattr");
        let change = SetAttr {
            permissions: Some((step % 0o777) as u16),
            uid: Some(step as u32),
            gid: Some(1 + step as u32),
            ..SetAttr::default()
        };
        self.fs.set_attr(self.ino(&path)?, &change)
    }

    pub(super) fn set_times(&mut self) -> Result<()> {
        let Some(path) = self.any_name() else { return Ok(()) };
        self.record_operation("utimes");
        let sec = self.rng.below(1 << 31) as i64;
        let moment = Some(Timestamp { sec, nsec: self.rng.below(1_000_000_000) as u32 });
        let change = SetAttr { atime: moment, mtime: moment, ..SetAttr::default() };
        self.fs.set_attr(self.ino(&path)?, &change)
    }

    pub(super) fn set_fsx(&mut self) -> Result<()> {
        let Some(path) = self.any_name() else { return Ok(()) };
        self.record_operation("setfsx");
        let ino = self.ino(&path)?;
        let mut fsx = self.fs.get_fsx(ino)?;
        let dir = self.kind(&path) == S_IFDIR;
        let block = u64::from(self.fs.geo.block_size);
        match self.rng.below(6) {
            0 => fsx.xflags.toggle(Xflags::NODUMP),
            1 => fsx.projid = self.rng.below(9) as u32,
            2 if dir => fsx.xflags.toggle(Xflags::PROJINHERIT),
            3 if self.style.hints => {
                self.record_operation("extsize");
                let flag = if dir { Xflags::EXTSZINHERIT } else { Xflags::EXTSIZE };
                fsx.extsize = self.rng.below(4) * block;
                fsx.xflags.set(flag, fsx.extsize > 0);
            }
            4 if self.style.hints => {
                self.record_operation("cowextsize");
                fsx.cowextsize = self.rng.below(4) * block;
                fsx.xflags.set(Xflags::COWEXTSIZE, fsx.cowextsize > 0);
            }
            _ => fsx.xflags.toggle(Xflags::NOATIME),
        }
        self.fs.set_fsx(ino, &fsx)
    }

    pub(super) fn set_label(&mut self) -> Result<()> {
        self.record_operation("label");
        let label = format!("l{}", self.rng.below(1 << 30)).into_bytes();
        self.fs.set_label(&label)?;
        self.label = label;
        Ok(())
    }
}
