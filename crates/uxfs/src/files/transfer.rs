//! Trees copied between the host and a volume, by path.

use std::path::Path;
use std::rc::Rc;

use uxfs_host::OsStrExt;

use super::error::{Fault, PathError, Result};
use super::lookup::{self, Last};
use super::volume::Volume;
use crate::copy::{
    Copier, CopyError, CopyFrom, CopyOptions, CopyTo, Follow, HostSource, HostTarget, ImageSource,
    ImageTarget, Listener,
};

/// The volume's device number. A copy identifies a file by device and inode; no device of the host has
/// this number.
const VOLUME: u64 = u64::MAX;

fn fault(error: CopyError) -> Fault {
    match error {
        CopyError::Volume(error) => Fault::Volume(error),
        CopyError::Host(error) => Fault::Host(error),
        CopyError::Source(inner) => fault(*inner),
        other => Fault::Host(std::io::Error::other(other.to_string())),
    }
}

impl Volume {
    /// Copies a file or tree of the host to `to`, whose directory must exist. Returns whether
    /// everything was copied; each failure goes to `listener`, and the copy continues.
    ///
    /// # Errors
    /// Those of looking up the two paths.
    pub fn copy_in(
        &self,
        host: impl AsRef<Path>,
        to: impl AsRef<Path>,
        options: CopyOptions,
        listener: Listener<'_>,
    ) -> Result<bool> {
        let host = host.as_ref();
        let opened = HostSource.open(host, options.follow != Follow::Never).map_err(fault);
        let (node, info) = opened.map_err(|fault| PathError::new("copy_in", host, fault))?;
        self.on_path("copy_in", to.as_ref(), |fs, bytes| {
            let place = lookup::place(fs, fs.root(), bytes)?;
            let Last::Name(name) = place.last else {
                return Err(Fault::invalid("give the name of the copy"));
            };
            let target = ImageTarget::new(fs, VOLUME, self.0.options.creator);
            let from = CopyFrom {
                tree: &HostSource,
                node,
                info,
                display_path: host.as_os_str().as_bytes().to_vec(),
            };
            let to = CopyTo {
                tree: &target,
                dir: Rc::new(target.dir(place.dir)),
                name: name.to_vec(),
                display_path: bytes.to_vec(),
                path: bytes.to_vec(),
            };
            Ok(Copier::new(options).copy(from, to, listener))
        })
    }

    /// Copies a file or tree of the volume to `host`, whose directory must exist. Returns whether
    /// everything was copied; each failure goes to `listener`, and the copy continues.
    ///
    /// # Errors
    /// Those of looking up the two paths.
    pub fn copy_out(
        &self,
        from: impl AsRef<Path>,
        host: impl AsRef<Path>,
        options: CopyOptions,
        listener: Listener<'_>,
    ) -> Result<bool> {
        let host = host.as_ref();
        let Some(name) = host.file_name() else {
            let fault = Fault::invalid("give the name of the copy");
            return Err(PathError::new("copy_out", host, fault));
        };
        let opened = HostTarget::open(uxfs_host::dir_of(host)).map_err(fault);
        let (target, dir) = opened.map_err(|fault| PathError::new("copy_out", host, fault))?;
        self.on_path("copy_out", from.as_ref(), |fs, bytes| {
            let source = ImageSource::new(fs, VOLUME);
            lookup::check(bytes)?;
            let follow = options.follow != Follow::Never;
            let (node, info) = source.open(|| fs.resolve(bytes, follow)).map_err(fault)?;
            let from = CopyFrom { tree: &source, node, info, display_path: bytes.to_vec() };
            let to = CopyTo {
                tree: &target,
                dir: Rc::new(dir),
                name: name.as_bytes().to_vec(),
                display_path: host.as_os_str().as_bytes().to_vec(),
                path: host.as_os_str().as_bytes().to_vec(),
            };
            Ok(Copier::new(options).copy(from, to, listener))
        })
    }
}
