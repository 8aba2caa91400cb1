//! The test of a program on a file system that is only a stub: what each step says is planted.

use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use uxfs::disk::{BlockDev, MemDev};
use uxfs_crashtest::{
    Class, Ended, How, Job, Kind, Leg, Node, Outcome, Places, Problem, Recorder, Recovered,
    Recovery, Result, Tree, run,
};

use crate::rig::plan;

const SECTOR: usize = 512;
const SECTORS: usize = 6;

/// Whether each sector has its write.
type Disk = [bool; SECTORS];

/// What the stub does with a disk.
type Step<T> = Box<dyn Fn(&Disk) -> T + Sync>;

/// A file system whose program writes four sectors, flushes, acknowledges, and writes two more.
struct Stub {
    recovers: Step<Option<Problem>>,
    tree: Step<Option<Tree>>,
    check: Step<How>,
    damage: Step<Option<Problem>>,
    /// Does the check leave processes?
    leaves: bool,
}

impl Default for Stub {
    fn default() -> Self {
        Self {
            recovers: Box::new(|_| None),
            tree: Box::new(|disk| Some(tree(disk))),
            check: Box::new(|_| How::Success),
            damage: Box::new(|_| None),
            leaves: false,
        }
    }
}

/// A file with what is on the disk.
fn tree(disk: &Disk) -> Tree {
    let node = |kind, mode| Node { kind, mode, generation: 0, attributes: 0 };
    let content = disk.iter().map(|arrived| u8::from(*arrived)).collect();
    let names = BTreeMap::from([(b"file".to_vec(), 2)]);
    let nodes = [
        (1, node(Kind::Dir(names), 0o40_755)),
        (2, node(Kind::File(Arc::new(content)), 0o100_644)),
    ];
    Tree { root: 1, nodes: nodes.into() }
}

impl Leg for Stub {
    fn name(&self) -> &str {
        "stub"
    }

    fn sector(&self) -> usize {
        SECTOR
    }

    fn paces(&self) -> Vec<&'static str> {
        vec!["only"]
    }

    fn make(&self) -> Result<MemDev> {
        Ok(MemDev::new((SECTOR * SECTORS) as u64))
    }

    fn record(&self, recorder: &Arc<Recorder>, _: &str, _: &Job) -> Result<Ended> {
        let write = |at: usize| recorder.write_at((at * SECTOR) as u64, &[1; SECTOR]).unwrap();
        (0..4).for_each(write);
        recorder.flush().unwrap();
        recorder.acknowledge("one");
        (4..SECTORS).for_each(write);
        Ok(ended(How::Success))
    }

    fn recover(&self, disk: Arc<MemDev>) -> Result<Recovery<'_>> {
        let mut bytes = vec![0; SECTOR * SECTORS];
        disk.read_at(0, &mut bytes).unwrap();
        let disk = std::array::from_fn(|at| bytes[at * SECTOR] == 1);
        Ok(match (self.recovers)(&disk) {
            Some(problem) => Err(problem),
            None => Ok(Box::new(Opened { stub: self, disk })),
        })
    }

    fn places(&self, _: Arc<MemDev>) -> Places {
        Places::default()
    }
}

struct Opened<'a> {
    stub: &'a Stub,
    disk: Disk,
}

impl Recovered for Opened<'_> {
    fn tree(&self) -> std::result::Result<Option<Tree>, Problem> {
        Ok((self.stub.tree)(&self.disk))
    }

    fn run(self: Box<Self>, _: &Job) -> Result<Ended> {
        let how = (self.stub.check)(&self.disk);
        Ok(Ended { left_processes: self.stub.leaves, ..ended(how) })
    }

    fn damage(self: Box<Self>) -> Option<Problem> {
        (self.stub.damage)(&self.disk)
    }
}

fn ended(how: How) -> Ended {
    Ended { how, output: String::new(), left_processes: false }
}

fn tested(stub: &Stub, check: Option<&str>) -> Result<Outcome> {
    let mut plan = plan(&["true"], check.map(str::to_owned));
    plan.jobs = NonZeroUsize::MIN;
    run(&plan, stub, &|_| {})
}

fn damaged(text: &str) -> Option<Problem> {
    Some(Problem::new(Class::Damage, text))
}

/// The files of two states may be equal and the structures of one damaged.
#[test]
fn without_a_check_each_state_is_examined() {
    let stub = Stub {
        tree: Box::new(|_| Some(tree(&[true; SECTORS]))),
        // The first states, which lack all, have the same files and are sound.
        damage: Box::new(|disk| match disk[..2] {
            [true, false] => damaged("a block is lost"),
            _ => None,
        }),
        ..Stub::default()
    };
    let failure = tested(&stub, None).unwrap().failure.unwrap();
    assert_eq!(failure.problem, "a block is lost");
    // Of equal files and acknowledgements one state is checked by a check, which sees no more.
    let asked = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&asked);
    let check = Box::new(move |_: &Disk| {
        count.fetch_add(1, Ordering::Relaxed);
        How::Success
    });
    let outcome = tested(&Stub { check, ..stub }, Some("true")).unwrap();
    assert!(outcome.failure.is_none() && outcome.states > 20, "{outcome}");
    assert_eq!((asked.load(Ordering::Relaxed), outcome.distinct), (2, Some(2)));
}

/// A smaller loss fails in another way: that is another defect, which is noted.
#[test]
fn a_failure_is_not_made_small_into_another() {
    let stub = Stub {
        recovers: Box::new(|disk| match disk[1..3] {
            [false, true] => Some(Problem::new(Class::Recovery, "no superblock")),
            _ => None,
        }),
        check: Box::new(|disk| if disk[1] || disk[2] { How::Success } else { How::Exit(1) }),
        ..Stub::default()
    };
    let failure = tested(&stub, Some("true")).unwrap().failure.unwrap();
    assert_eq!(failure.problem, "the check failed: exit status 1", "{failure}");
    assert_eq!(failure.state.to_string(), "only:4:0,3");
    let notes = failure.notes.join("\n");
    assert!(notes.contains("fails in another way: no superblock"), "{notes}");
    assert!(failure.to_string().contains("note: state only:4:"), "{failure}");
}

/// A check that fails or hangs once says nothing of the state.
#[test]
fn what_was_seen_once_is_tried_again() {
    let once = |how: How, times: usize| {
        let left = AtomicUsize::new(times);
        let check = Box::new(move |disk: &Disk| {
            let lost = disk.iter().all(|arrived| !arrived);
            let again = left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| {
                if lost { left.checked_sub(1) } else { None }
            });
            if again.is_ok() { how } else { How::Success }
        });
        tested(&Stub { check, ..Stub::default() }, Some("true")).unwrap()
    };
    let passed = once(How::TimedOut, 1);
    assert!(passed.failure.is_none() && passed.states > 20, "{passed}");
    let failure = once(How::TimedOut, 10).failure.unwrap();
    assert!(
        failure.problem.contains("did not end within") && failure.notes.is_empty(),
        "{failure}"
    );
    let failure = once(How::Exit(1), 1).failure.unwrap();
    assert!(failure.notes.join("\n").contains("seen once"), "{failure}");
    assert!(failure.to_string().contains("note: seen once"), "{failure}");
}

/// Files that are too long to be compared are no fault of the file system, and how many states differ is
/// not known then.
#[test]
fn files_that_are_not_compared_are_said_to_be_too_many() {
    let stub = Stub {
        tree: Box::new(|_| None),
        check: Box::new(|disk| if disk[1] { How::Success } else { How::Exit(1) }),
        ..Stub::default()
    };
    let outcome = tested(&stub, Some("true")).unwrap();
    let failure = outcome.failure.as_ref().unwrap();
    assert!(failure.explanation.to_string().contains("too many to compare"), "{failure}");
    let stub = Stub { tree: Box::new(|_| None), ..Stub::default() };
    let outcome = tested(&stub, Some("true")).unwrap();
    assert_eq!(outcome.distinct, None);
    assert!(!outcome.to_string().contains("different"), "{outcome}");
}

#[test]
fn a_check_that_leaves_processes_is_refused() {
    let stub = Stub { leaves: true, ..Stub::default() };
    let error = tested(&stub, Some("true")).err().unwrap().to_string();
    assert!(error.contains("--check left processes"), "{error}");
}
