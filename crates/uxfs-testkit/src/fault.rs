//! A device that fails, shortens, loses or delays the calls that its rules select.
//!
//! 1. Without rules it is the device below. Exceptions: it offers forced writes only after
//!    [`FaultDev::with_fua`] (a forced write is otherwise a write and a flush, each a call of its
//!    own), a bulk write is a plain write, zeroing is writes of zeroes, and there is no file below.
//! 2. Rules are asked in the order in which they were added, and the first that gives an answer
//!    other than [`Answer::Pass`] decides. Later rules do not count that call.
//! 3. A rule counts the calls that it selects from when it was added. It applies to `times` of them
//!    after the first `after`.
//! 4. A call that fails does not reach the device below; a short one reaches it with its first
//!    bytes only; a lost one does not reach it and succeeds.
//! 5. After [`FaultDev::unsynced`] nothing makes the device below durable: flushes end here and
//!    forced writes are written. The rules see them all the same. For tests that cannot lose their
//!    host, and need not wait for its disk.
//! 6. After [`FaultDev::traced`] it keeps a list of all calls, also of those that fail or are lost,
//!    until the list is taken.
//! 7. Closures run without a lock, so a rule may block one thread while others go on.

use std::fmt;
use std::io::{self, IoSlice};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::{Mutex, RwLock};
use uxfs_disk::BlockDev;

use crate::EIO;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Op {
    /// [`BlockDev::read_at`].
    Read,
    /// A write of one piece.
    Write,
    /// [`BlockDev::write_vectored_at`], unless the device takes pieces one by one.
    WriteVectored,
    /// [`BlockDev::write_fua_at`], if the device has forced writes.
    WriteFua,
    /// [`BlockDev::flush`].
    Flush,
    /// [`BlockDev::allocate`].
    Allocate,
}

impl Op {
    /// All kinds of writes.
    pub const WRITES: &[Self] = &[Self::Write, Self::WriteVectored, Self::WriteFua];
    pub const CHANGES: &[Self] = &[Self::Write, Self::WriteVectored, Self::WriteFua, Self::Flush];
    const COUNT: usize = 6;
}

/// A call to the device. A flush has no offset and no length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Call {
    pub op: Op,
    /// First byte.
    pub offset: u64,
    pub len: u64,
}

/// The effect of a rule on a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Nothing: later rules are asked, then the device below.
    Pass,
    /// The call fails with this errno.
    Fail(i32),
    /// Only the first bytes are transferred, at most this many, and the call fails with EIO.
    Short(u64),
    /// The call succeeds and has no effect: a write or a flush that a device acknowledged and
    /// lost. A read returns the buffer as it was.
    Lose,
}

type Hook = Arc<dyn Fn(&Call) -> Answer + Send + Sync>;

#[derive(Clone)]
enum Effect {
    Answer(Answer),
    Before(Hook),
    After(Hook),
}

/// Which calls a [`FaultDev`] treats how.
#[derive(Clone)]
pub struct Rule {
    ops: &'static [Op],
    range: Option<Range<u64>>,
    after: u64,
    times: u64,
    effect: Effect,
}

impl Rule {
    /// Selects all calls of these kinds. Does nothing with them until one of the methods below says
    /// what.
    #[must_use]
    pub fn on(ops: &'static [Op]) -> Self {
        let effect = Effect::Answer(Answer::Pass);
        Self { ops, range: None, after: 0, times: u64::MAX, effect }
    }

    /// Selects only calls that touch a byte of `range`. No flush does.
    #[must_use]
    pub fn within(mut self, range: Range<u64>) -> Self {
        self.range = Some(range);
        self
    }

    /// Lets this many selected calls pass first.
    #[must_use]
    pub fn after(mut self, calls: u64) -> Self {
        self.after = calls;
        self
    }

    /// Applies to this many calls only.
    #[must_use]
    pub fn times(mut self, calls: u64) -> Self {
        self.times = calls;
        self
    }

    /// The calls fail with this errno.
    #[must_use]
    pub fn fail(mut self, errno: i32) -> Self {
        self.effect = Effect::Answer(Answer::Fail(errno));
        self
    }

    /// The calls transfer at most this many bytes and fail.
    #[must_use]
    pub fn short(mut self, bytes: u64) -> Self {
        self.effect = Effect::Answer(Answer::Short(bytes));
        self
    }

    /// The calls succeed without effect.
    #[must_use]
    pub fn lose(mut self) -> Self {
        self.effect = Effect::Answer(Answer::Lose);
        self
    }

    /// `hook` runs before the call and decides. It may block.
    #[must_use]
    pub fn before(mut self, hook: impl Fn(&Call) -> Answer + Send + Sync + 'static) -> Self {
        self.effect = Effect::Before(Arc::new(hook));
        self
    }

    /// `hook` runs after the device below succeeded, before the caller continues. It may block, and
    /// [`Answer::Fail`] makes the call fail after it took effect.
    #[must_use]
    pub fn afterwards(mut self, hook: impl Fn(&Call) -> Answer + Send + Sync + 'static) -> Self {
        self.effect = Effect::After(Arc::new(hook));
        self
    }

    fn selects(&self, call: &Call) -> bool {
        let inside = |range: &Range<u64>| {
            call.offset < range.end && range.start < call.offset.saturating_add(call.len)
        };
        self.ops.contains(&call.op) && self.range.as_ref().is_none_or(inside)
    }
}

impl fmt::Debug for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.ops)?;
        if let Some(range) = &self.range {
            write!(f, " in {range:?}")?;
        }
        write!(f, " after {}", self.after)?;
        if self.times != u64::MAX {
            write!(f, ", {} times", self.times)?;
        }
        match &self.effect {
            Effect::Answer(answer) => write!(f, ": {answer:?}"),
            Effect::Before(_) | Effect::After(_) => write!(f, ": closure"),
        }
    }
}

/// Names a rule of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RuleId(u64);

struct Active {
    id: RuleId,
    rule: Rule,
    selected: AtomicU64,
    applied: AtomicU64,
}

impl Active {
    /// Counts a call. True if the rule applies to it.
    fn applies(&self, call: &Call) -> bool {
        if !self.rule.selects(call) {
            return false;
        }
        let number = self.selected.fetch_add(1, Ordering::AcqRel);
        let applies = number >= self.rule.after && number - self.rule.after < self.rule.times;
        if applies {
            self.applied.fetch_add(1, Ordering::AcqRel);
        }
        applies
    }
}

pub struct FaultDev<D> {
    below: D,
    rules: RwLock<Vec<Arc<Active>>>,
    next: AtomicU64,
    calls: [AtomicU64; Op::COUNT],
    trace: Option<Mutex<Vec<Call>>>,
    failed: AtomicBool,
    fua: bool,
    pieces: bool,
    synced: bool,
}

impl<D: BlockDev> FaultDev<D> {
    /// A device without rules.
    pub fn new(below: D) -> Self {
        Self {
            below,
            rules: RwLock::default(),
            next: AtomicU64::new(0),
            calls: Default::default(),
            trace: None,
            failed: AtomicBool::new(false),
            fua: false,
            pieces: false,
            synced: true,
        }
    }

    /// Offers forced writes, and passes them on as such.
    #[must_use]
    pub fn with_fua(mut self) -> Self {
        self.fua = true;
        self
    }

    /// Takes each piece of a vectored write as a write of its own.
    #[must_use]
    pub fn in_pieces(mut self) -> Self {
        self.pieces = true;
        self
    }

    /// Does not sync the device below.
    #[must_use]
    pub fn unsynced(mut self) -> Self {
        self.synced = false;
        self
    }

    /// Keeps a list of the calls.
    #[must_use]
    pub fn traced(mut self) -> Self {
        self.trace = Some(Mutex::default());
        self
    }

    /// Takes the list of calls; it is empty afterwards.
    pub fn take_trace(&self) -> Vec<Call> {
        self.trace.as_ref().map(|calls| core::mem::take(&mut *calls.lock())).unwrap_or_default()
    }

    /// Adds a rule, behind all others.
    pub fn add(&self, rule: Rule) -> RuleId {
        let id = RuleId(self.next.fetch_add(1, Ordering::Relaxed));
        let active = Active { id, rule, selected: AtomicU64::new(0), applied: AtomicU64::new(0) };
        self.rules.write().push(Arc::new(active));
        id
    }

    /// Removes a rule, if it is still there. Calls that it delays go on as the rule decides.
    pub fn remove(&self, id: RuleId) {
        self.rules.write().retain(|active| active.id != id);
    }

    pub fn clear(&self) {
        self.rules.write().clear();
    }

    /// How many calls a rule applied to; 0 once it is removed.
    pub fn applied(&self, id: RuleId) -> u64 {
        let rules = self.rules.read();
        let rule = rules.iter().find(|active| active.id == id);
        rule.map_or(0, |active| active.applied.load(Ordering::Acquire))
    }

    /// Did a rule make a call fail?
    pub fn failed(&self) -> bool {
        self.failed.load(Ordering::Acquire)
    }

    /// The number of calls of these kinds so far, with those that failed or were lost.
    pub fn calls(&self, ops: &[Op]) -> u64 {
        ops.iter().map(|op| self.calls[*op as usize].load(Ordering::Acquire)).sum()
    }

    /// The device below.
    pub fn below(&self) -> &D {
        &self.below
    }

    /// Asks the rules, then makes the call with as many bytes as they allow.
    fn call(
        &self,
        op: Op,
        offset: u64,
        len: u64,
        go: impl FnOnce(u64) -> io::Result<()>,
    ) -> io::Result<()> {
        let call = Call { op, offset, len };
        self.calls[op as usize].fetch_add(1, Ordering::AcqRel);
        if let Some(trace) = &self.trace {
            trace.lock().push(call);
        }
        let rules: Vec<Arc<Active>> = self.rules.read().iter().map(Arc::clone).collect();
        let (mut answer, mut after) = (Answer::Pass, Vec::new());
        for active in rules {
            if answer != Answer::Pass {
                break;
            }
            if active.applies(&call) {
                match &active.rule.effect {
                    Effect::Answer(fixed) => answer = *fixed,
                    Effect::Before(hook) => answer = hook(&call),
                    Effect::After(hook) => after.push(Arc::clone(hook)),
                }
            }
        }
        match answer {
            Answer::Fail(errno) => return self.fail(errno),
            Answer::Lose => return Ok(()),
            Answer::Short(bytes) => {
                go(bytes.min(len))?;
                return self.fail(EIO);
            }
            Answer::Pass => go(len)?,
        }
        let failed = after.iter().find_map(|hook| match hook(&call) {
            Answer::Fail(errno) => Some(errno),
            _ => None,
        });
        failed.map_or(Ok(()), |errno| self.fail(errno))
    }

    fn fail(&self, errno: i32) -> io::Result<()> {
        self.failed.store(true, Ordering::Release);
        Err(io::Error::from_raw_os_error(errno))
    }
}

impl<D: BlockDev> BlockDev for FaultDev<D> {
    uxfs_disk::forward!(self => self.below;
        len, discard, check_present, warning, read_only, sector_size);
    uxfs_disk::emulate!(write_bulk_at, zero);
    uxfs_disk::without!(will_read, will_write_bulk, lengthen, as_file);

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        let len = buf.len() as u64;
        self.call(Op::Read, offset, len, |len| self.below.read_at(offset, &mut buf[..len as usize]))
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let go = |len| self.below.write_at(offset, &data[..len as usize]);
        self.call(Op::Write, offset, data.len() as u64, go)
    }

    fn write_vectored_at(&self, offset: u64, pieces: &[IoSlice<'_>]) -> io::Result<()> {
        if self.pieces {
            return uxfs_disk::explicit::write_pieces(self, offset, pieces);
        }
        let whole = pieces.iter().map(|piece| piece.len() as u64).sum();
        self.call(Op::WriteVectored, offset, whole, |len| {
            if len == whole {
                return self.below.write_vectored_at(offset, pieces);
            }
            let bytes = pieces.iter().flat_map(|piece| piece.iter().copied());
            let start: Vec<u8> = bytes.take(len as usize).collect();
            self.below.write_at(offset, &start)
        })
    }

    fn has_fua(&self) -> bool {
        self.fua
    }

    fn write_fua_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        if !self.fua {
            self.write_at(offset, data)?;
            return self.flush();
        }
        let go = |len| match self.synced {
            true => self.below.write_fua_at(offset, &data[..len as usize]),
            false => self.below.write_at(offset, &data[..len as usize]),
        };
        self.call(Op::WriteFua, offset, data.len() as u64, go)
    }

    fn flush(&self) -> io::Result<()> {
        self.call(Op::Flush, 0, 0, |_| if self.synced { self.below.flush() } else { Ok(()) })
    }

    fn allocate(&self, offset: u64, len: u64) -> io::Result<()> {
        self.call(Op::Allocate, offset, len, |len| self.below.allocate(offset, len))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;

    use uxfs_disk::MemDev;

    use super::*;
    use crate::{CountDev, ENOSPC};

    fn dev() -> FaultDev<CountDev<MemDev>> {
        FaultDev::new(CountDev::new(MemDev::new(1 << 16)))
    }

    fn byte(dev: &impl BlockDev, at: u64) -> u8 {
        let mut byte = [0];
        dev.read_at(at, &mut byte).unwrap();
        byte[0]
    }

    fn errno(result: io::Result<()>) -> Option<i32> {
        result.err().and_then(|error| error.raw_os_error())
    }

    #[test]
    fn without_rules_all_calls_reach_the_device_below() {
        let dev = dev();
        dev.write_at(0, &[1; 4]).unwrap();
        dev.write_vectored_at(4, &[IoSlice::new(&[2]), IoSlice::new(&[3])]).unwrap();
        dev.write_fua_at(6, &[4]).unwrap();
        dev.zero(0, 1).unwrap();
        dev.allocate(0, 100).unwrap();
        let counts = dev.below().counts();
        assert_eq!((counts.writes, counts.forced, counts.flushes), (4, 0, 1));
        assert_eq!([0, 1, 4, 5, 6].map(|at| byte(&dev, at)), [0, 1, 2, 3, 4]);
        assert_eq!(dev.calls(Op::CHANGES), 5);
        assert_eq!(dev.calls(&[Op::Read, Op::Allocate]), 6);
    }

    #[test]
    fn a_rule_fails_the_calls_it_selects_and_no_others() {
        let dev = dev();
        let rule = dev.add(Rule::on(Op::WRITES).within(100..200).after(1).times(2).fail(ENOSPC));
        for (at, len, fails) in [
            (0, 100, false), // ends before the range
            (200, 8, false), // begins after it
            (99, 2, false),  // the one that may pass
            (99, 2, true),
            (199, 2, true),
            (150, 1, false), // twice is enough
        ] {
            let result = dev.write_at(at, &vec![9; len]);
            assert_eq!(errno(result), fails.then_some(ENOSPC), "{at}");
        }
        dev.flush().unwrap();
        dev.read_at(100, &mut [0; 10]).unwrap();
        assert!(dev.failed());
        assert_eq!(dev.applied(rule), 2);
        assert_eq!(dev.calls(&[Op::Write]), 6);
        assert_eq!(dev.below().counts().writes, 4);
        assert_eq!(byte(&dev, 199), 0);
    }

    #[test]
    fn each_kind_of_call_can_fail() {
        for (ops, fua) in [
            (&[Op::Read] as &'static [Op], true),
            (&[Op::Write], true),
            (&[Op::WriteVectored], true),
            (&[Op::WriteFua], true),
            (&[Op::Flush], true),
            (&[Op::Allocate], true),
            (&[Op::Flush], false),
        ] {
            let dev = if fua { dev().with_fua() } else { dev() };
            dev.add(Rule::on(ops).fail(EIO));
            let results = [
                dev.read_at(0, &mut [0]),
                dev.write_at(0, &[0]),
                dev.write_vectored_at(0, &[IoSlice::new(&[0])]),
                dev.write_fua_at(0, &[0]),
                dev.flush(),
                dev.allocate(0, 1),
            ];
            let failed: Vec<usize> = (0..6).filter(|at| results[*at].is_err()).collect();
            // A forced write of a device without FUA needs its flush.
            let expected = if fua { vec![ops[0] as usize] } else { vec![Op::WriteFua as usize, 4] };
            assert_eq!(failed, expected, "{ops:?}");
        }
    }

    #[test]
    fn the_first_rule_that_answers_decides_and_later_ones_do_not_count() {
        let dev = dev();
        let passing = dev.add(Rule::on(&[Op::Flush]));
        let first = dev.add(Rule::on(&[Op::Flush]).times(1).fail(ENOSPC));
        let second = dev.add(Rule::on(&[Op::Flush]).times(1).fail(EIO));
        assert_eq!(errno(dev.flush()), Some(ENOSPC));
        assert_eq!(errno(dev.flush()), Some(EIO));
        dev.flush().unwrap();
        assert_eq!([passing, first, second].map(|rule| dev.applied(rule)), [3, 1, 1]);
        dev.add(Rule::on(&[Op::Flush]).fail(EIO));
        let last = dev.add(Rule::on(&[Op::Read]).fail(EIO));
        dev.flush().unwrap_err();
        dev.remove(last);
        dev.read_at(0, &mut [0]).unwrap();
        dev.clear();
        dev.flush().unwrap();
    }

    #[test]
    fn a_short_call_transfers_its_first_bytes_and_fails() {
        let dev = dev();
        dev.add(Rule::on(&[Op::Write, Op::WriteVectored, Op::Read]).times(3).short(3));
        assert_eq!(errno(dev.write_at(0, &[1; 8])), Some(EIO));
        let pieces = [IoSlice::new(&[2; 2]), IoSlice::new(&[3; 2])];
        assert_eq!(errno(dev.write_vectored_at(10, &pieces)), Some(EIO));
        let mut buf = [7; 8];
        assert_eq!(errno(dev.read_at(0, &mut buf)), Some(EIO));
        assert_eq!(buf, [1, 1, 1, 7, 7, 7, 7, 7]);
        assert_eq!([2, 3, 11, 12, 13].map(|at| byte(&dev, at)), [1, 0, 2, 3, 0]);
    }

    #[test]
    fn a_lost_call_succeeds_and_does_nothing() {
        let dev = dev();
        dev.add(Rule::on(Op::CHANGES).after(1).lose());
        dev.write_at(0, &[1]).unwrap();
        dev.write_at(1, &[1]).unwrap();
        dev.flush().unwrap();
        assert_eq!((byte(&dev, 0), byte(&dev, 1)), (1, 0));
        assert!(!dev.failed());
        assert_eq!((dev.below().counts().writes, dev.below().counts().flushes), (1, 0));
    }

    #[test]
    fn pieces_are_calls_of_their_own_if_asked_for() {
        let dev = dev().in_pieces();
        dev.add(Rule::on(&[Op::Write]).after(1).fail(EIO));
        let pieces = [IoSlice::new(&[2; 2]), IoSlice::new(&[3; 2])];
        assert_eq!(errno(dev.write_vectored_at(0, &pieces)), Some(EIO));
        assert_eq!((byte(&dev, 1), byte(&dev, 2)), (2, 0));
    }

    #[test]
    fn a_closure_decides_call_by_call() {
        let dev = dev();
        dev.add(Rule::on(&[Op::Write]).before(|call| match call.offset {
            0 => Answer::Fail(call.len as i32),
            1 => Answer::Lose,
            _ => Answer::Pass,
        }));
        assert_eq!(errno(dev.write_at(0, &[1; 13])), Some(13));
        dev.write_at(1, &[1]).unwrap();
        dev.write_at(2, &[1]).unwrap();
        assert_eq!([0, 1, 2].map(|at| byte(&dev, at)), [0, 0, 1]);
        dev.clear();
        // After the call, its effect stays.
        dev.add(Rule::on(&[Op::Write]).afterwards(|_| Answer::Fail(ENOSPC)));
        assert_eq!(errno(dev.write_at(3, &[1])), Some(ENOSPC));
        assert_eq!(byte(&dev, 3), 1);
    }

    /// A thread waits inside a rule; others use the device and its rules meanwhile.
    #[test]
    fn a_delayed_call_delays_no_other() {
        let dev = Arc::new(dev());
        let (inside, done) = (Arc::new(Barrier::new(2)), Arc::new(Barrier::new(2)));
        let (in_rule, in_test) = ((inside.clone(), done.clone()), (inside, done));
        dev.add(Rule::on(&[Op::Flush]).times(1).before(move |_| {
            in_rule.0.wait();
            in_rule.1.wait();
            Answer::Pass
        }));
        std::thread::scope(|scope| {
            scope.spawn(|| dev.flush().unwrap());
            in_test.0.wait();
            dev.write_at(0, &[1]).unwrap();
            dev.flush().unwrap();
            assert_eq!(dev.below().counts().flushes, 1);
            let rule = dev.add(Rule::on(Op::WRITES).fail(EIO));
            dev.remove(rule);
            in_test.1.wait();
        });
        assert_eq!(dev.below().counts().flushes, 2);
    }

    #[test]
    fn an_unsynced_device_asks_its_rules_and_syncs_nothing() {
        let dev = dev().with_fua().unsynced();
        let rule = dev.add(Rule::on(&[Op::Flush, Op::WriteFua]).after(2).fail(EIO));
        dev.flush().unwrap();
        dev.write_fua_at(0, &[1]).unwrap();
        let counts = dev.below().counts();
        assert_eq!((counts.writes, counts.forced, counts.flushes), (1, 0, 0));
        dev.flush().unwrap_err();
        assert_eq!((byte(&dev, 0), dev.applied(rule)), (1, 1));
    }

    #[test]
    fn the_trace_lists_calls_that_fail_too() {
        let dev = dev().traced();
        dev.add(Rule::on(Op::WRITES).fail(EIO));
        dev.write_at(3, &[1; 4]).unwrap_err();
        dev.flush().unwrap();
        let write = Call { op: Op::Write, offset: 3, len: 4 };
        assert_eq!(dev.take_trace(), [write, Call { op: Op::Flush, offset: 0, len: 0 }]);
        assert_eq!(dev.take_trace(), []);
    }

    #[test]
    fn a_rule_prints_what_it_does() {
        let rule = Rule::on(&[Op::Flush]).within(1..2).after(3).times(4).fail(EIO);
        assert_eq!(format!("{rule:?}"), "[Flush] in 1..2 after 3, 4 times: Fail(5)");
    }
}
