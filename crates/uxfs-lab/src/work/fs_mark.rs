//! The pattern of fs_mark: clients create files, each in its own directory, and sync them by one of
//! its methods.

use std::sync::Arc;

use uxfs::{NewInode, Result};
use uxfs_bench::fs_mark::file_name;
use uxfs_testkit::Rng;

use super::{clients, fill, word};
use crate::durability::Ack;
use crate::setup::Lab;

/// The method of syncing files: fs_mark's methods, and tickets, which it does not have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sync {
    /// Not at all (`-S 0`).
    Never,
    /// fsync of each file before the next is created (`-S 1`).
    Each,
    /// One sync of the volume at the end (`-S 2`).
    All,
    /// All files are written, then each is synced, the last one first (`-S 3`).
    Reverse,
    /// All files are written, then each is synced, in order (`-S 5`).
    Post,
    /// The sync of each file begins when it is written; the client waits for all at the end.
    Tickets,
}

/// The parameters of the workload.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    /// The number of clients.
    pub threads: u32,
    pub files: u32,
    pub size: u32,
    pub sync: Sync,
}

/// Runs the workload and returns the number of files created.
///
/// # Errors
/// An error of the volume.
pub fn run(lab: &Arc<Lab>, load: Load) -> Result<u64> {
    for thread in 0..load.threads {
        lab.fs.create(lab.fs.root(), thread.to_string().as_bytes(), &NewInode::dir(0o777))?;
    }
    let ticket = lab.fs.ticket();
    lab.fs.wait(ticket)?;
    lab.begin();
    clients(lab, load.threads, move |lab, thread| client(lab, load, thread))?;
    lab.end();
    Ok(u64::from(load.threads) * u64::from(load.files))
}

fn client(lab: &Arc<Lab>, load: Load, thread: u32) -> Result<()> {
    let dir_name: Arc<str> = thread.to_string().into();
    let dir = lab.fs.lookup(lab.fs.root(), dir_name.as_bytes())?;
    let mut rng = Rng::spread(lab.seed ^ u64::from(thread) << 32);
    let mut made = Vec::new();
    let ack = |began, name: &str, word, synced| {
        lab.ack(Ack {
            began,
            at: lab.now(),
            until: u64::MAX,
            synced,
            dir: Arc::clone(&dir_name),
            name: name.to_owned(),
            from: 0,
            size: load.size.into(),
            word: if load.size > 0 { word } else { 0 },
            logged: true,
        });
    };
    for number in 0..load.files {
        let name = file_name(number, &mut rng);
        let word = word(u64::from(thread) << 24 | u64::from(number));
        let began = lab.now();
        let ino = lab.create(dir, &name, &NewInode::file(0o666))?;
        if load.size > 0 {
            lab.write(ino, 0, &fill(word, load.size as usize))?;
        }
        match load.sync {
            Sync::Never => ack(began, &name, word, false),
            Sync::Each => {
                lab.fsync(ino)?;
                ack(began, &name, word, true);
                lab.took(began);
            }
            Sync::Tickets => made.push((ino, name, word, began, Some(lab.begin_fsync(ino)?))),
            Sync::All | Sync::Reverse | Sync::Post => made.push((ino, name, word, began, None)),
        }
    }
    if load.sync == Sync::All {
        lab.sync()?;
    }
    if load.sync == Sync::Reverse {
        made.reverse();
    }
    for (ino, name, word, began, ticket) in made {
        match (load.sync, ticket) {
            (_, Some(ticket)) => lab.fs.wait(ticket)?,
            (Sync::All, None) => {}
            _ => lab.fsync(ino)?,
        }
        ack(began, &name, word, true);
    }
    Ok(())
}
