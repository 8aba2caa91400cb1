//! Volumes on object storage: what the command adds to `uxfs-remote`.
//!
//! 1. The key of an encrypted volume is in a file, named by an option or by `UXFS_KEY_FILE`; its content is
//!    in no argument and no message.
//! 2. What is read from a store of another machine is kept in a directory: `UXFS_CACHE_DIR`, or `uxfs`
//!    in the user's cache, at most `UXFS_CACHE_BYTES`.
//!
//! Called by [`crate::address`], `uxfs ship`, `uxfs restore` and the mount.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use uxfs::disk::BlockDev;
use uxfs_format::features::Incompat;
use uxfs_format::superblock::{Superblock, has_magic};
use uxfs_remote::cloud::Cloud;
use uxfs_remote::{Address, CacheOptions, Checkpoint, Error, Key, Patience, Remote, RemoteDev};

use crate::number;

const KEY: &str = "UXFS_KEY_FILE";
const CACHE_DIR: &str = "UXFS_CACHE_DIR";
const CACHE_BYTES: &str = "UXFS_CACHE_BYTES";

/// Opens the checkpoint at an address as a device. It cannot be written.
///
/// # Errors
/// What is wrong with the address, the store, the key or the volume there.
pub(crate) fn open(image: &Path, write: bool) -> io::Result<Arc<dyn BlockDev>> {
    if write {
        let why = "a volume in a store is written by a mount only (uxfs mount URL DIR), and a checkpoint of it not \
                   at all: restore it, or make a fork of it";
        return Err(io::Error::new(io::ErrorKind::ReadOnlyFilesystem, why));
    }
    let address = Address::parse(&image.to_string_lossy())?;
    let remote = connect(&address, None, false)?;
    let (manifest, _) = remote.at(&address)?;
    let cache = cache(&address)?;
    Ok(Arc::new(RemoteDev::new(Checkpoint::open(remote, manifest)?, cache)))
}

/// Digits of a checkpoint's hash in its address.
const HASH_DIGITS: usize = 16;

/// The address of the checkpoint that an address names now, for ever.
///
/// # Errors
/// What is wrong with the address, the store or the key.
pub(crate) fn pinned(image: &Path) -> io::Result<PathBuf> {
    let address = Address::parse(&image.to_string_lossy())?;
    let (manifest, hash) = connect(&address, None, false)?.at(&address)?;
    let hash = hash.to_string();
    Ok(format!("{}@{}#{}", address.url, manifest.number, &hash[..HASH_DIGITS]).into())
}

/// The runs of blocks of 4 KiB in which two checkpoints may differ; `None` if they are not of one volume.
///
/// # Errors
/// What is wrong with the addresses, the store, the key or the volume there.
pub(crate) fn differing(one: &Path, other: &Path) -> io::Result<Option<Vec<(u64, u64)>>> {
    let open = |image: &Path| -> io::Result<(Address, Checkpoint)> {
        let address = Address::parse(&image.to_string_lossy())?;
        let remote = connect(&address, None, false)?;
        let (manifest, _) = remote.at(&address)?;
        Ok((address, Checkpoint::open(remote, manifest)?))
    };
    let ((one, of_one), (other, of_other)) = (open(one)?, open(other)?);
    let shape =
        |of: &Checkpoint| (of.manifest().uuid, of.manifest().image_len, of.manifest().block_size);
    if one.url != other.url
        || shape(&of_one) != shape(&of_other)
        || of_one.manifest().block_size != 4096
    {
        return Ok(None);
    }
    Ok(Some(of_one.differing(&of_other)))
}

/// The address as it holds in every directory, which each does.
///
/// # Errors
/// What is wrong with the address.
pub(crate) fn absolute(image: &Path) -> io::Result<PathBuf> {
    Address::parse(&image.to_string_lossy())?;
    Ok(image.to_owned())
}

/// The volume at an address. With `create` a directory that is to be the store is made.
pub(crate) fn connect(
    address: &Address,
    key: Option<&Path>,
    create: bool,
) -> Result<Arc<Remote>, Error> {
    let key = key.map(PathBuf::from).or_else(|| std::env::var_os(KEY).map(PathBuf::from));
    let key = key.map(|file| read_key(&file)).transpose()?;
    let store = Cloud::open(&address.url, create)?;
    Ok(Arc::new(Remote::new(Arc::new(store), key, Patience::default())))
}

/// The directory in which changes to the volume at an address wait for the store.
///
/// # Errors
/// If the environment names no place for it.
#[cfg(target_os = "linux")]
pub(crate) fn write_cache(address: &Address, given: Option<&Path>) -> io::Result<PathBuf> {
    if let Some(dir) = given {
        return Ok(dir.to_owned());
    }
    let home = || Some(PathBuf::from(std::env::var_os("HOME")?).join(".local/state"));
    let state = std::env::var_os("XDG_STATE_HOME").map(PathBuf::from).or_else(home);
    let state = state.ok_or_else(|| {
        let text = "there is no HOME for the write cache: name a directory by -o ship_cache=DIR";
        io::Error::new(io::ErrorKind::NotFound, text)
    })?;
    // One for each volume; the name in the path is for people.
    let plain = |byte: u8| if byte.is_ascii_alphanumeric() { byte as char } else { '-' };
    let name: String = address.url.as_str().bytes().map(plain).collect();
    let hash = uxfs_remote::Hash::of(address.url.as_str().as_bytes()).to_string();
    let name = &name[name.len().saturating_sub(60)..];
    Ok(state.join("uxfs").join(format!("{name}-{}", &hash[..16])))
}

fn read_key(file: &Path) -> Result<Key, Error> {
    let wrong = |why: String| Error::Invalid(format!("{}: {why}", file.display()));
    let content = std::fs::read(file).map_err(|error| wrong(error.to_string()))?;
    Key::from_file(&content).map_err(|error| wrong(error.to_string()))
}

pub(crate) fn cache(address: &Address) -> io::Result<CacheOptions> {
    let mut cache = CacheOptions::default();
    if let Some(text) = std::env::var_os(CACHE_BYTES) {
        let bytes = number::size(&text.to_string_lossy());
        let wrong = || io::Error::other(format!("{CACHE_BYTES} is not a number of bytes"));
        cache.dir_bytes = bytes.ok_or_else(wrong)?;
    }
    cache.dir = match std::env::var_os(CACHE_DIR) {
        Some(dir) => Some(dir.into()),
        // A copy of what lies on this machine would gain nothing.
        None if address.url.scheme() == "file" => None,
        None => {
            let home = || Some(PathBuf::from(std::env::var_os("HOME")?).join(".cache"));
            let base = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from).or_else(home);
            base.map(|base| base.join("uxfs"))
        }
    };
    Ok(cache)
}

/// The UUID of the volume on a device, if its checkpoints can be shipped.
///
/// # Errors
/// If there is no volume, or a part of it lies on another device: a checkpoint without that could
/// not be opened.
pub(crate) fn shippable(dev: &dyn BlockDev) -> io::Result<[u8; 16]> {
    let mut sector = [0; 512];
    dev.read_at(0, &mut sector)?;
    let superblock = Superblock::view(&sector).filter(|_| has_magic(&sector));
    let superblock = superblock.ok_or_else(|| {
        io::Error::new(io::ErrorKind::InvalidData, "there is no XFS volume on it")
    })?;
    let log_elsewhere = superblock.logstart.get() == 0;
    let is_zoned = superblock.incompat().contains(Incompat::ZONED);
    let realtime_here = is_zoned && superblock.rtstart.get() != 0;
    if log_elsewhere || superblock.rblocks.get() > 0 && !realtime_here {
        let what = if log_elsewhere { "an external log" } else { "a realtime device" };
        let text = format!("a volume with {what} cannot be shipped: only one device would be");
        return Err(io::Error::new(io::ErrorKind::Unsupported, text));
    }
    Ok(superblock.uuid)
}
