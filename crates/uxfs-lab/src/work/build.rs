//! Builds and tests: clients read sources spread over a tree, write output files, and remove them
//! again, as `make test` in a source tree does.

use std::sync::Arc;

use uxfs::format::Ino;
use uxfs::{Fallocate, Fs, NewInode, Result};
use uxfs_testkit::Rng;

use super::tree::Tree;
use super::{clients, fill, word};
use crate::durability::Ack;
use crate::setup::Lab;

/// Writes a tree to a volume before the measurement. With `filler` above 0, each sixteenth file is
/// followed by a file of `filler` bytes that is never read.
///
/// # Errors
/// An error of the volume.
pub fn populate(fs: &Fs, tree: &Tree, filler: u64) -> Result<()> {
    let mut inos: Vec<Ino> = Vec::new();
    for (number, (parent, name)) in tree.dirs.iter().enumerate() {
        let parent = if number == 0 { fs.root() } else { inos[*parent] };
        inos.push(fs.create(parent, name.as_bytes(), &NewInode::dir(0o755))?);
    }
    for (number, (dir, name, size)) in tree.files.iter().enumerate() {
        let ino = fs.create(inos[*dir], name.as_bytes(), &NewInode::file(0o644))?;
        fs.write_at(ino, 0, &fill(word(number as u64), *size as usize))?;
        if filler > 0 && number % 16 == 15 {
            // Writeback allocates the blocks, so this fixes their order.
            fs.write_back_file(ino)?;
            let name = format!("filler{number}");
            let other = fs.create(inos[*dir], name.as_bytes(), &NewInode::file(0o644))?;
            fs.fallocate(other, Fallocate::Allocate { keep_size: false }, 0, filler)?;
        }
    }
    Ok(())
}

/// The parameters of the workload.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    pub clients: u32,
    pub jobs: u32,
    /// Files that a job reads.
    pub reads: u32,
    /// Files that a job creates; every other job removes its files again.
    pub makes: u32,
    /// Processor time of a job, in microseconds.
    pub work_us: u64,
    /// Create the files in the tree's top directory, not in a directory for each job.
    pub flat: bool,
}

/// Runs the jobs on a tree that [`populate`] wrote. None of it is cached at first. Returns the number of
/// jobs.
///
/// # Errors
/// An error of the volume.
pub fn run(lab: &Arc<Lab>, tree: &Arc<Tree>, load: Load) -> Result<u64> {
    lab.begin();
    let tree = Arc::clone(tree);
    clients(lab, load.clients, move |lab, number| client(lab, &tree, load, number))?;
    lab.end();
    lab.sync()?;
    Ok(u64::from(load.clients) * u64::from(load.jobs))
}

fn client(lab: &Arc<Lab>, tree: &Tree, load: Load, number: u32) -> Result<()> {
    let mut rng = Rng::spread(lab.seed ^ u64::from(number) << 20);
    let top = if load.flat { tree.dirs[0].1.clone() } else { format!("trash{number}") };
    let own = match load.flat {
        true => lab.fs.lookup(lab.fs.root(), top.as_bytes())?,
        false => lab.create(lab.fs.root(), &top, &NewInode::dir(0o755))?,
    };
    let mut buf = vec![0; 64 << 10];
    for job in 0..load.jobs {
        for _ in 0..load.reads {
            let (dir, name, size) = &tree.files[rng.scaled(tree.files.len() as u64) as usize];
            lab.lookup_cost();
            let path = format!("/{}/{name}", tree.path(*dir));
            let ino = lab.fs.resolve(path.as_bytes(), false)?;
            let mut at = 0;
            while at < u64::from(*size) {
                let got = lab.read(ino, at, &mut buf)?;
                if got == 0 {
                    break;
                }
                at += got as u64;
            }
        }
        lab.sim.work(core::time::Duration::from_micros(load.work_us));
        let name = format!("job{job}");
        let (dir, path): (Ino, Arc<str>) = match load.flat {
            true => (own, top.as_str().into()),
            false => {
                let dir = lab.create(own, &name, &NewInode::dir(0o755))?;
                (dir, format!("{top}/{name}").into())
            }
        };
        let name_of = |file: u32| format!("out{number}-{job}-{file}");
        for file in 0..load.makes {
            let size = 500 + rng.scaled(12_000) as u32;
            let began = lab.now();
            let word =
                word(1 << 30 | u64::from(number) << 16 | u64::from(job) << 6 | u64::from(file));
            let file = name_of(file);
            let ino = lab.create(dir, &file, &NewInode::file(0o644))?;
            lab.write(ino, 0, &fill(word, size as usize))?;
            let at = lab.now();
            let (until, size) = (u64::MAX, u64::from(size));
            lab.ack(Ack {
                began,
                at,
                until,
                synced: false,
                dir: Arc::clone(&path),
                name: file,
                from: 0,
                size,
                word,
                logged: true,
            });
        }
        // Every other job removes its files again, as tests do.
        for file in (0..load.makes).filter(|_| job % 2 == 0) {
            let file = name_of(file);
            lab.touch(&path, &file);
            lab.unlink(dir, &file)?;
        }
    }
    Ok(())
}
