//! A mail server: clients deliver, read and remove mails. As with Maildir, a mail is written to a
//! spool directory and synced, then renamed into a user's mailbox.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use uxfs::format::Ino;
use uxfs::{NewInode, Result};
use uxfs_testkit::Rng;

use super::{clients, fill, word};
use crate::durability::Ack;
use crate::setup::Lab;

/// The parameters of the workload.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    pub clients: u32,
    /// Counted mails per client.
    pub mails: u32,
    /// Mails before these that are not counted, in which an adaptive policy can learn.
    pub warmup: u32,
    /// Mailboxes, each a directory.
    pub boxes: u32,
    /// Mean time between two mails of a client, in microseconds.
    pub think_us: u64,
}

/// The smallest and largest mail, in bytes.
const SIZE: (u64, u64) = (2_000, 30_000);
/// Clients begin at random times within this many nanoseconds.
const START: u64 = 200_000_000;
/// Mails per connection, and the longest pause before the next connection in nanoseconds. Clients that
/// never paused would fall in step and stay so, and a policy would win by luck.
const CONNECTION: (u32, u64) = (8, 100_000_000);
/// The spool directory, in the root.
const SPOOL: &str = "spool";

struct Mailbox {
    ino: Ino,
    path: Arc<str>,
}

/// Runs the workload and returns mails per second: the sum of the clients' own rates.
///
/// # Errors
/// An error of the volume.
pub fn run(lab: &Arc<Lab>, load: Load) -> Result<f64> {
    let make = |name: &str| -> Result<Mailbox> {
        let ino = lab.put(lab.fs.root(), name, &NewInode::dir(0o755))?;
        Ok(Mailbox { ino, path: name.into() })
    };
    let spool = make(SPOOL)?;
    let boxes = (0..load.boxes).map(|n| make(&format!("box{n}"))).collect::<Result<Vec<_>>>()?;
    lab.durable()?;
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
    spool: &'a Mailbox,
    boxes: &'a [Mailbox],
    number: u32,
    /// Delivered mails that are not removed: mailbox, name, inode.
    old: Vec<(usize, String, Ino)>,
}

impl Client<'_> {
    /// Runs the client and returns its rate of counted mails per second.
    fn run(&mut self) -> Result<f64> {
        let mut begun = self.lab.now();
        let mut rng = Rng::spread(self.lab.seed ^ u64::from(self.number) << 12);
        // Clients that began at the same time would stay in step.
        self.lab.sim.rest(Duration::from_nanos(rng.scaled(START)));
        for mail in 0..self.load.warmup + self.load.mails {
            if mail == self.load.warmup {
                begun = self.lab.now();
                if self.number == 0 {
                    self.lab.begin();
                }
            }
            if mail > 0 && mail.is_multiple_of(CONNECTION.0) {
                self.lab.sim.rest(Duration::from_nanos(rng.scaled(CONNECTION.1)));
            }
            let half = self.load.think_us * 500;
            self.lab.sim.rest(Duration::from_nanos(half + rng.scaled(2 * half + 1)));
            self.deliver(mail, &mut rng)?;
            // The user reads every second mail on average, and keeps the last twelve.
            if rng.scaled(2) == 0 {
                self.read(&mut rng)?;
            }
            if self.old.len() > 12 {
                let (at, name, _) = self.old.remove(0);
                let mailbox = &self.boxes[at];
                self.lab.touch(&mailbox.path, &name);
                self.lab.unlink(mailbox.ino, &name)?;
            }
        }
        Ok(f64::from(self.load.mails) / ((self.lab.now() - begun) as f64 / 1e9))
    }

    /// Writes and syncs the mail in the spool first, so that a mailbox never holds half a mail. Then
    /// renames it and syncs the mailbox, before it acknowledges the mail to the sender.
    fn deliver(&mut self, mail: u32, rng: &mut Rng) -> Result<()> {
        let lab = self.lab;
        let name = format!("{:03}-{mail:06}", self.number);
        let size = SIZE.0 + rng.scaled(SIZE.1 - SIZE.0);
        let word = word(u64::from(self.number) << 20 | u64::from(mail));
        let at = rng.scaled(self.boxes.len() as u64) as usize;
        let mailbox = &self.boxes[at];
        let began = lab.now();
        let ino = lab.create(self.spool.ino, &name, &NewInode::file(0o600))?;
        lab.write(ino, 0, &fill(word, size as usize))?;
        lab.fsync(ino)?;
        let renamed = lab.now();
        lab.rename(self.spool.ino, &name, mailbox.ino, &name)?;
        lab.fsync(mailbox.ino)?;
        if mail >= self.load.warmup {
            lab.took(began);
        }
        lab.ack(Ack {
            // The mail has this name from the rename on, so the log must hold the rename.
            began: renamed,
            at: lab.now(),
            until: u64::MAX,
            synced: true,
            dir: Arc::clone(&mailbox.path),
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
        let (at, name, _) = &self.old[rng.scaled(self.old.len() as u64) as usize];
        self.lab.lookup_cost();
        let ino = self.lab.fs.lookup(self.boxes[*at].ino, name.as_bytes())?;
        // The mail is recent, so a page cache would hold it: only processor time.
        let size = self.lab.fs.stat(ino)?.size;
        self.lab.call(usize::try_from(size).unwrap_or(0));
        Ok(())
    }
}
