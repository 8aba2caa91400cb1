//! The one order of a run: requests of the disk, what the program acknowledged, and what it changed.
//!
//! 1. The recorder is the disk that the file system under test uses. A request is in the log when it
//!    has succeeded, and before the file system knows of that.
//! 2. An acknowledgement is in the log behind every request that had succeeded when the program wrote
//!    it: it is logged when it is read, which is later. So a state never lacks what was durable
//!    before an acknowledgement, and no alarm is false.
//! 3. Before each request is passed on, the acknowledgements written so far are read. So an
//!    acknowledgement never stands behind a request that began after it, and no loss is missed.
//! 4. The same holds for what the program changed ([`Operations`]), up to a number of bytes: the disk's
//!    limit does not bound what stays in a page cache.
//!
//! `Test` makes one for a run. A leg gives it to its file system, and to the program the pipes.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::Mutex;
use regex::bytes::Regex;
use uxfs_disk::{BlockDev, MemDev};
use uxfs_testkit::{Event, RecordDev, Recording};

use crate::lines::Lines;
use crate::operations::{FOLLOWED_MAX, Operation, Operations};

/// Bytes that a disk writes whole or not at all.
pub(crate) const SECTOR: usize = 512;

/// A mark between the requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mark {
    /// The program starts.
    Started,
    /// It acknowledged; the number counts from 1.
    Acknowledged(usize),
    /// It changed something, or asked for durability: so many operations were done by now.
    Operation(usize),
    /// The program ended. What follows closes the volume.
    Ended,
}

pub struct Recorder {
    disk: RecordDev<MemDev, Mark>,
    log: Mutex<ProgramLog>,
    written: AtomicU64,
    limit: u64,
    over: AtomicBool,
}

/// What the program wrote to its pipes and did to its files.
#[derive(Default)]
struct ProgramLog {
    pipe: Option<Lines>,
    output: Option<(Lines, Option<Regex>)>,
    acks: Vec<String>,
    operations: Vec<Operation>,
    /// Bytes of the operations, also of those that were not kept.
    operated: u64,
}

/// A finished run.
pub struct Run {
    pub recording: Recording<Mark>,
    /// The disk before the run.
    pub before: MemDev,
    pub acks: Vec<String>,
    pub operations: Operations,
}

impl Recorder {
    /// Records the requests to `disk`. After `limit` bytes every write fails.
    pub fn new(disk: MemDev, limit: u64) -> Self {
        let (written, over) = (AtomicU64::new(0), AtomicBool::new(false));
        let disk = RecordDev::new(disk).in_pieces();
        Self { disk, log: Mutex::default(), written, limit, over }
    }

    /// Was more written than the limit?
    pub fn is_over(&self) -> bool {
        self.over.load(Ordering::Relaxed)
    }

    /// Reads acknowledgements from `pipe`, and from the lines of `output` that match.
    pub(crate) fn listen(&self, pipe: Lines, output: Lines, pattern: Option<Regex>) {
        let mut log = self.log.lock();
        log.pipe = Some(pipe);
        log.output = Some((output, pattern));
        self.start();
    }

    /// Logs that the program starts.
    pub(crate) fn start(&self) {
        self.disk.mark(Mark::Started);
    }

    /// Reads what the program has written to its pipes by now.
    pub fn drain(&self) {
        self.drain_locked(&mut self.log.lock());
    }

    fn drain_locked(&self, log: &mut ProgramLog) {
        let ProgramLog { pipe, output, acks, .. } = log;
        let mut acknowledge = |line: &[u8]| {
            acks.push(String::from_utf8_lossy(line).into_owned());
            self.disk.mark(Mark::Acknowledged(acks.len()));
        };
        if let Some(pipe) = pipe {
            pipe.read(&mut acknowledge);
        }
        if let Some((output, pattern)) = output {
            let matching = |line: &[u8]| pattern.as_ref().is_some_and(|p| p.is_match(line));
            output.read(|line| {
                if matching(line) {
                    acknowledge(line);
                }
            });
        }
    }

    /// Logs an acknowledgement.
    pub fn acknowledge(&self, text: &str) {
        let mut log = self.log.lock();
        self.drain_locked(&mut log);
        log.acks.push(text.to_owned());
        self.disk.mark(Mark::Acknowledged(log.acks.len()));
    }

    /// Logs what the program did.
    pub fn record_operation(&self, operation: Operation) {
        let mut log = self.log.lock();
        self.drain_locked(&mut log);
        log.operated = log.operated.saturating_add(operation.held());
        if log.operated > FOLLOWED_MAX {
            return;
        }
        log.operations.push(operation);
        self.disk.mark(Mark::Operation(log.operations.len()));
    }

    /// Logs the program's end, and returns the last of its output.
    pub(crate) fn ended(&self) -> String {
        let mut log = self.log.lock();
        self.drain_locked(&mut log);
        self.disk.mark(Mark::Ended);
        log.pipe = None;
        log.output.take().map(|(output, _)| output.tail()).unwrap_or_default()
    }

    /// The run. `before` is the disk as it was.
    pub fn finish(&self, before: MemDev) -> Run {
        let log = std::mem::take(&mut *self.log.lock());
        let recording = Recording::new(before.clone(), self.disk.take(), SECTOR);
        let operations = match log.operated > FOLLOWED_MAX {
            false => Operations::new(log.operations),
            true => Operations::new(log.operations).cut_short(),
        };
        Run { recording, before, acks: log.acks, operations }
    }

    /// Before a request of so many bytes.
    fn begin(&self, bytes: usize) -> io::Result<()> {
        self.drain();
        let written = self.written.fetch_add(bytes as u64, Ordering::Relaxed) + bytes as u64;
        if written > self.limit {
            self.over.store(true, Ordering::Relaxed);
            return Err(io::Error::other("the limit of the crash test is reached"));
        }
        Ok(())
    }
}

impl Run {
    /// The event before which the program runs.
    pub fn start(&self) -> usize {
        let started = |event: &Event<Mark>| matches!(event, Event::Mark(Mark::Started));
        self.recording.events().iter().position(started).unwrap_or(0)
    }

    /// The number of acknowledgements before a cut.
    pub fn acks_before(&self, at: usize) -> usize {
        let acks = |mark: &Mark| match mark {
            Mark::Acknowledged(number) => Some(*number),
            _ => None,
        };
        self.recording.marks_before(at).find_map(acks).unwrap_or(0)
    }

    /// The number of operations before a cut.
    pub fn operations_before(&self, at: usize) -> usize {
        let operations = |mark: &Mark| match mark {
            Mark::Operation(number) => Some(*number),
            _ => None,
        };
        self.recording.marks_before(at).find_map(operations).unwrap_or(0)
    }
}

impl BlockDev for Recorder {
    uxfs_disk::forward!(self => self.disk; len, read_at, read_only, sector_size, has_fua);
    uxfs_disk::emulate!(write_bulk_at, zero, write_vectored_at);
    uxfs_disk::without!(
        discard,
        allocate,
        check_present,
        warning,
        will_read,
        will_write_bulk,
        lengthen,
        as_file
    );

    fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.begin(data.len())?;
        self.disk.write_at(offset, data)
    }

    fn write_fua_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.begin(data.len())?;
        self.disk.write_fua_at(offset, data)
    }

    fn flush(&self) -> io::Result<()> {
        self.begin(0)?;
        self.disk.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::operations::Action;

    /// A program that writes, flushes and acknowledges in a known order, with the pipes of a real one.
    fn recorded(acknowledge: impl Fn(&str, &Recorder), write_last: bool) -> Vec<&'static str> {
        let recorder = Recorder::new(MemDev::new(4096), 1 << 20);
        recorder.write_at(0, &[1]).unwrap();
        recorder.flush().unwrap();
        acknowledge("first", &recorder);
        recorder.write_at(1, &[2]).unwrap();
        acknowledge("early", &recorder);
        recorder.flush().unwrap();
        if write_last {
            recorder.write_at(2, &[3]).unwrap();
        }
        recorder.ended();
        let run = recorder.finish(MemDev::new(4096));
        let word = |event: &Event<Mark>| match event {
            Event::Write { .. } => "write",
            Event::Flush => "flush",
            Event::Mark(Mark::Acknowledged(_)) => "ack",
            Event::Mark(Mark::Started) => "start",
            Event::Mark(_) => "mark",
        };
        run.recording.events().iter().map(word).collect()
    }

    /// The order is that in which the program did it, although the pipe is not read in between.
    #[test]
    fn acknowledgements_in_a_pipe_stand_between_the_requests_around_them() {
        let (read, write) = rustix::pipe::pipe().unwrap();
        let (output, _closed) = rustix::pipe::pipe().unwrap();
        let pipes = Mutex::new(Some((read, output)));
        let acknowledge = |text: &str, recorder: &Recorder| {
            if let Some((read, output)) = pipes.lock().take() {
                let lines = |fd| Lines::new(fd).unwrap();
                recorder.listen(lines(read), lines(output), None);
            }
            rustix::io::write(&write, format!("{text}\n").as_bytes()).unwrap();
        };
        let order = recorded(acknowledge, true);
        let expected = ["write", "flush", "start", "ack", "write", "ack", "flush", "write", "mark"];
        assert_eq!(order, expected);
    }

    /// An acknowledgement before the flush is one that a state may contradict: the planted violation.
    #[test]
    fn an_acknowledgement_before_its_flush_is_recorded_before_it() {
        let order = recorded(|text, recorder| recorder.acknowledge(text), false);
        assert_eq!(order, ["write", "flush", "ack", "write", "ack", "flush", "mark"]);
    }

    #[test]
    fn lines_of_output_that_match_acknowledge() {
        let (_pipe, pipe) = rustix::pipe::pipe().unwrap();
        let (read, write) = rustix::pipe::pipe().unwrap();
        let recorder = Recorder::new(MemDev::new(4096), 1 << 20);
        let lines = |fd| Lines::new(fd).unwrap();
        drop(pipe);
        recorder.listen(lines(_pipe), lines(read), Some(Regex::new("^done").unwrap()));
        rustix::io::write(&write, b"done 1\nother\ndone 2\n").unwrap();
        assert!(recorder.ended().ends_with("done 2"));
        assert_eq!(recorder.finish(MemDev::new(4096)).acks, ["done 1", "done 2"]);
    }

    /// A program that rewrites a file in the page cache, and writes nothing to the disk.
    #[test]
    fn operations_are_kept_up_to_a_number_of_bytes() {
        let recorder = Recorder::new(MemDev::new(4096), 10);
        let data: std::sync::Arc<[u8]> = vec![1; 8 << 20].into();
        let written = || Action::Written { ino: 2, offset: 0, data: data.clone(), mapped: false };
        for _ in 0..100 {
            recorder.record_operation(Operation { pid: 1, what: written() });
        }
        recorder.ended();
        let run = recorder.finish(MemDev::new(4096));
        let held: u64 = run.operations.all().iter().map(Operation::held).sum();
        assert!(held <= FOLLOWED_MAX && !run.operations.are_short(), "{held}");
        assert_eq!(run.operations_before(run.recording.len()), run.operations.all().len());
    }

    #[test]
    fn writes_beyond_the_limit_fail() {
        let recorder = Recorder::new(MemDev::new(4096), 10);
        recorder.write_at(0, &[1; 10]).unwrap();
        assert!(!recorder.is_over());
        recorder.write_at(0, &[1]).unwrap_err();
        assert!(recorder.is_over());
    }
}
