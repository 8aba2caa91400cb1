//! The pattern of fs_mark: clients that make files, each in a directory of its own, and bring them
//! to stable storage in one of its ways.

use std::sync::Arc;

use uxfs::{NewInode, Result};

use super::{clients, fill, word};
use crate::bed::Lab;
use crate::durability::Ack;
use crate::rng::Rng;

/// How files are brought to stable storage, by fs_mark's numbers; and a way that it does not have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sync {
    /// Not at all (`-S 0`).
    Never,
    /// Each before the next is made (`-S 1`).
    Each,
    /// By one sync of all at the end (`-S 2`).
    All,
    /// All are written, then each is synced, the last first (`-S 3`).
    Reverse,
    /// All are written, then each is synced, the first first (`-S 5`).
    Post,
    /// Each begins to be synced as it is written; all are waited for at the end.
    Tickets,
}

/// What to do.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    /// Clients.
    pub threads: u32,
    /// Files that each makes.
    pub files: u32,
    /// Bytes of a file.
    pub size: u32,
    /// How they are synced.
    pub sync: Sync,
}

/// A name as fs_mark makes them: 40 bytes, of which the last 24 are as good as random.
pub fn file_name(number: u32, rng: &mut Rng) -> String {
    const DIGITS: &[u8; 32] = b"0123456789ABCDEFGHIJKLMNOPQRSTUV";
    let mut name = format!("{number:08x}~~~~~~~~");
    for _ in 0..24 {
        name.push(DIGITS[rng.below(32) as usize].into());
    }
    name
}

/// Does it; gives the files made.
///
/// # Errors
/// Those of the volume.
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
    let mut rng = Rng::new(lab.seed ^ u64::from(thread) << 32);
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
