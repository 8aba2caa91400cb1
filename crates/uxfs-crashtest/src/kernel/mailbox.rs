//! A disk that carries messages: the machine reads an order from it and writes its reports to it.
//!
//! 1. A read of the frame's place waits until there is an order, or the mailbox is closed. All other places read
//!    as zeroes.
//! 2. What the machine heard and what a program did goes to the [`Listener`] before the write that carries it is
//!    answered. The agent lets the program go on after that answer. So it stands in the recording behind every
//!    request that had been answered when the program did it, and before every request that the program, or
//!    another one that heard of it, caused later: late, but never after its consequences, and never early.
//! 3. The machine is not trusted: a message that makes no sense is an I/O error for it.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use uxfs_disk::BlockDev;

use super::message::{FRAME_OFFSET, Incoming, MAILBOX_LEN, Order, Report, frames};
use crate::operations::Operation;

/// Most reports that wait. The host takes one before it sends the next order.
const REPORTS_MAX: usize = 16;

/// Learns at once what a program acknowledges, says and does.
pub(crate) trait Listener: Send + Sync {
    fn heard(&self, acks: &[u8], output: &[u8]);
    fn did(&self, operation: Operation);
}

#[derive(Default)]
pub(crate) struct Mailbox {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    orders: VecDeque<Vec<u8>>,
    incoming: Incoming,
    reports: VecDeque<Report>,
    listener: Option<Arc<dyn Listener>>,
    closed: bool,
}

impl Mailbox {
    pub(crate) fn send(&self, order: &Order) -> Result<(), String> {
        let frames = frames(order)?;
        self.state.lock().orders.extend(frames);
        self.changed.notify_all();
        Ok(())
    }

    /// The next report, if one comes within this time.
    pub(crate) fn wait(&self, longest: Duration) -> Option<Report> {
        let mut state = self.state.lock();
        if state.reports.is_empty() {
            self.changed.wait_for(&mut state, longest);
        }
        state.reports.pop_front()
    }

    pub(crate) fn set_listener(&self, listener: Option<Arc<dyn Listener>>) {
        self.state.lock().listener = listener;
    }

    /// Ends all waiting.
    pub(crate) fn close(&self) {
        self.state.lock().closed = true;
        self.changed.notify_all();
    }

    fn take(&self, frame: &[u8]) -> io::Result<()> {
        let mut state = self.state.lock();
        let report = state.incoming.take::<Report>(frame).map_err(io::Error::other)?;
        let listener = state.listener.clone();
        match (report, listener) {
            (None, _) => Ok(()),
            (Some(Report::Heard { acks, output }), Some(listener)) => {
                drop(state);
                listener.heard(&acks, &output);
                Ok(())
            }
            (Some(Report::Did(operation)), Some(listener)) => {
                drop(state);
                listener.did(operation);
                Ok(())
            }
            (Some(report), _) if state.reports.len() < REPORTS_MAX => {
                state.reports.push_back(report);
                self.changed.notify_all();
                Ok(())
            }
            (Some(_), _) => Err(io::Error::other("too many reports")),
        }
    }
}

impl BlockDev for Mailbox {
    uxfs_disk::emulate!(write_bulk_at, write_vectored_at, write_fua_at, zero);
    uxfs_disk::without!(
        discard,
        allocate,
        check_present,
        warning,
        lengthen,
        as_file,
        will_read,
        will_write_bulk,
        has_fua,
        read_only,
        sector_size,
    );

    fn len(&self) -> u64 {
        MAILBOX_LEN
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        buf.fill(0);
        if offset != FRAME_OFFSET {
            return Ok(());
        }
        let mut state = self.state.lock();
        self.changed.wait_while(&mut state, |state| state.orders.is_empty() && !state.closed);
        let frame = state.orders.pop_front().ok_or_else(|| io::Error::other("closed"))?;
        buf.iter_mut().zip(frame).for_each(|(to, from)| *to = from);
        Ok(())
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        match offset {
            FRAME_OFFSET => self.take(data),
            _ => Err(io::ErrorKind::InvalidInput.into()),
        }
    }

    fn flush(&self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::message::FRAME;
    use super::*;

    #[test]
    fn a_read_waits_for_an_order_and_ends_when_the_mailbox_closes() {
        let mailbox = Arc::new(Mailbox::default());
        let reader = Arc::clone(&mailbox);
        let thread = std::thread::spawn(move || {
            let mut frame = vec![0; FRAME];
            let first = reader.read_at(FRAME_OFFSET, &mut frame).is_ok();
            let order = Incoming::default().take::<Order>(&frame);
            (first, order, reader.read_at(FRAME_OFFSET, &mut frame).is_err())
        });
        mailbox.send(&Order::Tree).unwrap();
        let mut other = [1; 512];
        mailbox.read_at(0, &mut other).unwrap();
        assert_eq!(other, [0; 512]);
        std::thread::sleep(Duration::from_millis(20));
        mailbox.close();
        assert_eq!(thread.join().unwrap(), (true, Ok(Some(Order::Tree)), true));
    }

    struct Words(Mutex<Vec<String>>);

    impl Listener for Words {
        fn heard(&self, acks: &[u8], _: &[u8]) {
            self.0.lock().push(String::from_utf8_lossy(acks).into_owned());
        }
        fn did(&self, operation: Operation) {
            self.0.lock().push(format!("{:?}", operation.what));
        }
    }

    #[test]
    fn the_listener_knows_before_the_write_is_answered() {
        let mailbox = Mailbox::default();
        let words = Arc::new(Words(Mutex::default()));
        mailbox.set_listener(Some(Arc::clone(&words) as Arc<dyn Listener>));
        let put = |report: &Report| {
            for frame in frames(report).unwrap() {
                mailbox.write_at(FRAME_OFFSET, &frame).unwrap();
            }
        };
        put(&Report::Heard { acks: b"one".to_vec(), output: Vec::new() });
        assert_eq!(*words.0.lock(), ["one"]);
        put(&Report::Done);
        assert_eq!(mailbox.wait(Duration::ZERO), Some(Report::Done));
        mailbox.write_at(FRAME_OFFSET, &[1, 0, 1, 200]).unwrap_err();
        mailbox.write_at(0, &[0; 512]).unwrap_err();
        assert_eq!(mailbox.wait(Duration::ZERO), None);
    }
}
