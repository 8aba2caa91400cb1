//! The programs that run inside: `uxfs-lister`, `uxfs-ager` and `uxfs-storm`, linked statically.
//!
//! Cargo does not build this package's programs for another package's tests, so they are built
//! here on first need, into the cache, under a name made of the check sum of their source.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::cache;
use crate::listing::checksum;

pub(super) const PROGRAMS: [&str; 3] = ["uxfs-lister", "uxfs-ager", "uxfs-storm"];
/// The one target they are built for; the kernels are for no other.
const TARGET: &str = "x86_64-unknown-linux-gnu";

/// The directory with the programs, built if need be.
///
/// # Panics
/// When they do not build.
pub(super) fn programs() -> PathBuf {
    let home = Path::new(env!("CARGO_MANIFEST_DIR"));
    let cache = cache();
    let build = || -> io::Result<PathBuf> {
        let all = cache.join("guest");
        let dir = all.join(format!("{:016x}", source(home)?));
        if dir.exists() {
            return Ok(dir);
        }
        fs::create_dir_all(&all)?;
        // One builds, the others wait and find it done.
        let lock = File::create(all.join("lock"))?;
        lock.lock()?;
        if !dir.exists() {
            compile(home, &all)?;
            let work = all.join("new");
            fs::create_dir_all(&work)?;
            for name in PROGRAMS {
                fs::copy(
                    all.join("target").join(TARGET).join("release").join(name),
                    work.join(name),
                )?;
            }
            fs::rename(work, &dir)?;
        }
        Ok(dir)
    };
    build().unwrap_or_else(|e| panic!("the test machine's programs: {e}"))
}

/// The check sum of everything that the programs are made of.
fn source(home: &Path) -> io::Result<u64> {
    let mut all = fs::read(home.join("Cargo.toml"))?;
    let mut dirs = vec![home.join("src")];
    while let Some(dir) = dirs.pop() {
        let mut paths: Vec<_> =
            fs::read_dir(dir)?.map(|item| Ok(item?.path())).collect::<io::Result<_>>()?;
        paths.sort();
        for path in paths {
            if path.is_dir() {
                dirs.push(path);
            } else {
                all.extend_from_slice(path.as_os_str().as_encoded_bytes());
                all.extend(fs::read(path)?);
            }
        }
    }
    Ok(checksum(&all))
}

fn compile(home: &Path, all: &Path) -> io::Result<()> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let out = Command::new(cargo)
        .args(["build", "--quiet", "--offline", "--release", "--bins", "--target", TARGET])
        .arg("--manifest-path")
        .arg(home.join("Cargo.toml"))
        .arg("--target-dir")
        .arg(all.join("target"))
        .env_remove("CARGO_ENCODED_RUSTFLAGS")
        .env("RUSTFLAGS", "-C target-feature=+crt-static")
        .output()?;
    if out.status.success() {
        return Ok(());
    }
    Err(io::Error::other(String::from_utf8_lossy(&out.stderr).into_owned()))
}
