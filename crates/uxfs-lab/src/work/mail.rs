//! A mail server: clients that deliver (into a spool directory, made durable, then renamed into a
//! user's box), read, and remove, as Maildir has it.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use uxfs::format::Ino;
use uxfs::{NewInode, Result};

use super::{clients, fill, word};
use crate::bed::Lab;
use crate::durability::Ack;
use crate::rng::Rng;

/// What to do.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    /// Clients.
    pub clients: u32,
    /// Mails that each delivers and are counted.
    pub mails: u32,
    /// … and before them, for who has to learn something first.
    pub settling: u32,
    /// Boxes, each a directory.
    pub boxes: u32,
    /// Microseconds between two mails of a client, in the middle.
    pub think_us: u64,
}

/// Bytes of a mail, least and most.
const SIZE: (u64, u64) = (2_000, 30_000);
/// Nanoseconds in which clients begin, one after the other.
const START: u64 = 200_000_000;
/// Mails of a connection, and nanoseconds until the next connection, at most. Clients who never paused
/// would fall in step in one way or another, which lasts, and then a policy would win by luck.
const CONNECTION: (u32, u64) = (8, 100_000_000);
/// The spool, in the root.
const SPOOL: &str = "spool";

struct Place {
    ino: Ino,
    path: Arc<str>,
}

/// Does it; gives the mails a second: the sum of what each client had while it was at it.
///
/// # Errors
/// Those of the volume.
pub fn run(lab: &Arc<Lab>, load: Load) -> Result<f64> {
    let make = |name: &str| -> Result<Place> {
        let ino = lab.fs.create(lab.fs.root(), name.as_bytes(), &NewInode::dir(0o755))?;
        Ok(Place { ino, path: name.into() })
    };
    let spool = make(SPOOL)?;
    let boxes = (0..load.boxes).map(|n| make(&format!("box{n}"))).collect::<Result<Vec<_>>>()?;
    let ticket = lab.fs.begin_sync()?;
    lab.fs.wait(ticket)?;
    lab.begin();
    let sum = Arc::new(Mutex::new(0.0));
    let all = Arc::clone(&sum);
    clients(lab, load.clients, move |lab, number| {
        let mut client =
            Client { lab, load, spool: &spool, boxes: &boxes, number, old: Vec::new() };
        *all.lock() += client.run()?;
        Ok(())
    })?;
    lab.end();
    let rate = *sum.lock();
    Ok(rate)
}

struct Client<'a> {
    lab: &'a Arc<Lab>,
    load: Load,
    spool: &'a Place,
    boxes: &'a [Place],
    number: u32,
    /// What it has delivered and not removed: the box, the name, the file.
    old: Vec<(usize, String, Ino)>,
}

impl Client<'_> {
    /// Gives the mails a second that it delivered while they were counted.
    fn run(&mut self) -> Result<f64> {
        let mut begun = self.lab.now();
        let mut rng = Rng::new(self.lab.seed ^ u64::from(self.number) << 12);
        // Not all at the same moment: who began together would keep step for ever.
        self.lab.sim.rest(Duration::from_nanos(rng.below(START)));
        for mail in 0..self.load.settling + self.load.mails {
            if mail == self.load.settling {
                begun = self.lab.now();
                if self.number == 0 {
                    self.lab.begin();
                }
            }
            if mail > 0 && mail.is_multiple_of(CONNECTION.0) {
                self.lab.sim.rest(Duration::from_nanos(rng.below(CONNECTION.1)));
            }
            let half = self.load.think_us * 500;
            self.lab.sim.rest(Duration::from_nanos(half + rng.below(2 * half + 1)));
            self.deliver(mail, &mut rng)?;
            // The user reads it now and then, and keeps the last dozen.
            if rng.below(2) == 0 {
                self.read(&mut rng)?;
            }
            if self.old.len() > 12 {
                let (at, name, _) = self.old.remove(0);
                let place = &self.boxes[at];
                self.lab.touch(&place.path, &name);
                self.lab.unlink(place.ino, &name)?;
            }
        }
        Ok(f64::from(self.load.mails) / ((self.lab.now() - begun) as f64 / 1e9))
    }

    /// Written and durable in the spool first, so that a box never holds half a mail; then renamed,
    /// and the box made durable, before the sender is told that it was taken.
    fn deliver(&mut self, mail: u32, rng: &mut Rng) -> Result<()> {
        let lab = self.lab;
        let name = format!("{:03}-{mail:06}", self.number);
        let size = SIZE.0 + rng.below(SIZE.1 - SIZE.0);
        let word = word(u64::from(self.number) << 20 | u64::from(mail));
        let at = rng.below(self.boxes.len() as u64) as usize;
        let place = &self.boxes[at];
        let began = lab.now();
        let ino = lab.create(self.spool.ino, &name, &NewInode::file(0o600))?;
        lab.write(ino, 0, &fill(word, size as usize))?;
        lab.fsync(ino)?;
        let renamed = lab.now();
        lab.rename(self.spool.ino, &name, place.ino, &name)?;
        lab.fsync(place.ino)?;
        if mail >= self.load.settling {
            lab.took(began);
        }
        lab.ack(Ack {
            // It is there under this name from the rename on; that is what the log must hold.
            began: renamed,
            at: lab.now(),
            until: u64::MAX,
            synced: true,
            dir: Arc::clone(&place.path),
            name: name.clone(),
            from: 0,
            size,
            word,
            logged: true,
        });
        self.old.push((at, name, ino));
        Ok(())
    }

    fn read(&self, rng: &mut Rng) -> Result<()> {
        if self.old.is_empty() {
            return Ok(());
        }
        let (at, name, _) = &self.old[rng.below(self.old.len() as u64) as usize];
        self.lab.look();
        let ino = self.lab.fs.lookup(self.boxes[*at].ino, name.as_bytes())?;
        // As with a page cache: it was written not long ago.
        let size = self.lab.fs.stat(ino)?.size;
        self.lab.call(usize::try_from(size).unwrap_or(0));
        Ok(())
    }
}
