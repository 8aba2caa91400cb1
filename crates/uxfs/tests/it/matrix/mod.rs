//! Every combination of features, times every operation.
//!
//! For each combination a volume is made by the library's mkfs or a real one, all operations are run
//! on it, and both releases of xfsprogs and the checker judge it. Then
//! Debian's newer kernel changes it, and the library must see what the kernel sees; the library
//! changes it again, and both kernels must see what the library sees. After each turn it is judged
//! again.
//!
//! There are some hundred thousand combinations, so a covering design is used: any two values of
//! different factors occur together in some volume. With `UXFS_MATRIX=3`, `4`, … any so many values do;
//! `UXFS_MATRIX=full` uses all combinations; `UXFS_SEED` chooses another design.
//!
//! Kernels mount volumes with blocks larger than a page only in an emulated machine, which is slow. So
//! only [`LARGE`] of them go through the kernels' turns, chosen by the day; all do with
//! `UXFS_MATRIX=full` or 3 and more. The test prints the day, and `UXFS_DAY` repeats it.

mod cover;
mod features;
mod script;
mod space;

use std::collections::HashSet;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use uxfs::Fs;
use uxfs_check::CheckOptions;
use uxfs_disk::OpenMode;
use uxfs_oracle::{Fields, Kernel, Listing, Rng, Xfsprogs, vm};

use crate::volume::{Volume, device, setting};
use crate::{edit, listing};
use cover::Row;
use features::{Features, space};

/// Everything but free space, of which the kernel subtracts its reserve.
const ALL: Fields = Fields::ALL.difference(Fields::SPACE);
/// Volumes at a time, limited by disk space and by the drives of a machine.
const BATCH: usize = 48;
/// Operations of the kernel on each volume.
const KERNEL_OPS: u32 = 40;
/// Number of volumes with blocks larger than a page that kernels change.
const LARGE: usize = 4;
/// Random edits after the script, and after the kernel.
const EDITS: u64 = 40;

/// A volume of the matrix.
struct Case {
    features: Features,
    seed: u64,
    /// Kernels mount it.
    for_kernels: bool,
    volume: Volume,
    /// The library's last listing.
    seen: Listing,
}

impl Case {
    /// Makes the volume, runs all operations, and runs all judges.
    fn new(features: Features, seed: u64) -> Self {
        let volume = features.volume();
        let (for_kernels, seen) = (true, Listing::default());
        let mut case = Self { features, seed, for_kernels, volume, seen };
        let at = case.at("fresh");
        case.judge(&at).unwrap_or_else(|why| panic!("{why}"));
        let mut rng = Rng::new(seed);
        let fs = case.open(&mut rng);
        let done = script::run(&fs, &mut rng).unwrap_or_else(|e| panic!("{}: {e}", case.at("")));
        fs.close().unwrap();
        let at = case.at("after the operations");
        script::verify(&case.volume.open_read_only(), &done, &at);
        case.judge(&at).unwrap_or_else(|why| panic!("{why}"));
        case.edit("random edits");
        case
    }

    fn at(&self, when: &str) -> String {
        format!("seed {}, {}: {when}", self.seed, self.features)
    }

    fn open(&self, rng: &mut Rng) -> Fs {
        // Sometimes a small cache, so that blocks are read repeatedly.
        let cache = [64 << 20, 1 << 20, 64 << 10][rng.index(3)];
        self.volume.open_at(1_700_000_000 + rng.below(1 << 20) as i64, cache)
    }

    /// Runs random edits, judges, and lists the volume.
    fn edit(&mut self, when: &str) {
        let at = self.at(when);
        let mut rng = Rng::new(self.seed ^ 0xed17);
        let fs = self.open(&mut rng);
        edit::edit(&fs, &mut rng, EDITS, &at);
        fs.close().unwrap();
        self.judge(&at).unwrap_or_else(|why| panic!("{why}"));
        self.seen = listing::list(&self.volume.open_read_only());
    }

    /// Runs both releases of xfsprogs and the checker.
    fn judge(&self, at: &str) -> Result<(), String> {
        uxfs_oracle::both(&self.volume.path).map_err(|f| format!("{at}: {f}"))?;
        let dev = device(&self.volume.path, OpenMode::Read);
        let report = uxfs_check::check(&dev, &CheckOptions::default(), &|_| {});
        let report = report.map_err(|e| format!("{at}: {e}"))?;
        match report.is_clean() && !report.incomplete {
            true => Ok(()),
            false => Err(format!("{at}: uxfs check: {report}")),
        }
    }

    /// Compares a kernel's listing with the library's.
    fn same(&self, theirs: &Listing, kernel: Kernel) -> Result<(), String> {
        let differences = self.seen.differences(theirs, ALL);
        match differences.is_empty() {
            true => Ok(()),
            false => Err(format!("{}: {kernel:?}: {}", self.at(""), differences.join("\n"))),
        }
    }
}

/// Calls `f` for each number below `count`, on all processors; a panic in one is a panic.
fn for_each<T: Send>(count: usize, f: impl Fn(usize) -> T + Sync) -> Vec<T> {
    let next = AtomicUsize::new(0);
    let done = Mutex::new(Vec::new());
    let threads = std::thread::available_parallelism().map_or(2, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= count {
                        return;
                    }
                    let result = f(number);
                    done.lock().unwrap_or_else(PoisonError::into_inner).push((number, result));
                }
            });
        }
    });
    let mut done = done.into_inner().unwrap_or_else(PoisonError::into_inner);
    done.sort_by_key(|(number, _)| *number);
    done.into_iter().map(|(_, result)| result).collect()
}

/// A kernel lists the volumes that it can mount; each listing must equal the library's.
fn compare(kernel: Kernel, cases: &[Case]) -> Vec<String> {
    let able = |case: &&Case| {
        case.for_kernels && (kernel == Kernel::Current || case.features.for_stable())
    };
    let some: Vec<&Case> = cases.iter().filter(able).collect();
    let images: Vec<_> = some.iter().map(|case| case.volume.path.as_path()).collect();
    let theirs = listing::of_kernel(kernel, &images);
    some.iter().zip(&theirs).filter_map(|(case, theirs)| case.same(theirs, kernel).err()).collect()
}

fn agree(cases: &[Case]) {
    let wrong: Vec<_> = for_each(2, |number| compare(Kernel::ALL[number], cases)).concat();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Runs the matrix on some volumes.
fn batch(rows: &[(Row, bool)], base: u64) {
    let mut cases = for_each(rows.len(), |number| {
        let (row, for_kernels) = &rows[number];
        let case = Case::new(Features::new(row.clone()), base + number as u64);
        Case { for_kernels: *for_kernels, ..case }
    });
    let images: Vec<_> = cases
        .iter()
        .filter(|case| case.for_kernels)
        .map(|case| (case.volume.path.as_path(), case.seed))
        .collect();
    let aged = vm::age_all(Kernel::Current, &images, KERNEL_OPS).unwrap_or_else(|f| panic!("{f}"));
    for (case, aged) in cases.iter_mut().filter(|case| case.for_kernels).zip(aged) {
        let at = case.at("aged by the kernel");
        case.seen = listing::list(&case.volume.open_read_only());
        let aged = listing::without_raw_lists(aged);
        case.same(&aged, Kernel::Current).unwrap_or_else(|why| panic!("{at}: {why}"));
    }
    let cells: Vec<Mutex<&mut Case>> = cases.iter_mut().map(Mutex::new).collect();
    for_each(cells.len(), |number| {
        let mut case = cells[number].lock().unwrap();
        let at = case.at("aged by the kernel");
        case.judge(&at).unwrap_or_else(|why| panic!("{why}"));
        case.edit("edited after the kernel");
    });
    drop(cells);
    agree(&cases);
}

/// Days since 1970.
fn today() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs() / 86_400
}

/// The rows that kernels change: all with small blocks, and `large` others, chosen by the day.
fn chosen(rows: Vec<Row>, large: usize, day: u64) -> Vec<(Row, bool)> {
    println!("UXFS_DAY={day}");
    let is_large = |row: &Row| Features::new(row.clone()).number("block") > 4096;
    let mut left: Vec<usize> = (0..rows.len()).filter(|at| is_large(&rows[*at])).collect();
    let mut rng = Rng::new(day);
    while left.len() > large {
        left.remove(rng.index(left.len()));
    }
    let rest = rows.into_iter().enumerate();
    rest.map(|(at, row)| {
        let takes = !is_large(&row) || left.contains(&at);
        (row, takes)
    })
    .collect()
}

/// Each day chooses the same number, and every row is chosen on some day.
#[test]
fn uxfs_and_the_kernel_alternate_with_large_blocks() {
    let rows = space().cover(2, 0);
    let is_large = |row: &Row| Features::new(row.clone()).number("block") > 4096;
    let large = rows.iter().filter(|row| is_large(row)).count();
    let mut met = HashSet::new();
    for day in 0..200 {
        let chosen = chosen(rows.clone(), LARGE, day);
        let takes: Vec<_> = chosen.iter().filter(|(row, takes)| *takes && is_large(row)).collect();
        assert_eq!(takes.len(), LARGE);
        assert!(chosen.iter().all(|(row, takes)| *takes || is_large(row)));
        met.extend(takes.into_iter().map(|(row, _)| row.clone()));
    }
    assert_eq!(met.len(), large, "some are never chosen");
}

#[test]
fn every_combination_of_features_takes_every_operation() {
    let space = space();
    let seed = setting("UXFS_SEED", 0);
    let mut rows: Box<dyn Iterator<Item = (Row, bool)>> =
        match std::env::var("UXFS_MATRIX").as_deref() {
            Ok("full") => Box::new(space.all().map(|row| (row, true))),
            _ => {
                let meeting = setting("UXFS_MATRIX", 2);
                let rows = space.cover(meeting as usize, seed);
                let large = if meeting == 2 { LARGE } else { usize::MAX };
                Box::new(chosen(rows, large, setting("UXFS_DAY", today())).into_iter())
            }
        };
    let mut done = 0;
    loop {
        let some: Vec<(Row, bool)> = rows.by_ref().take(BATCH).collect();
        if some.is_empty() {
            break;
        }
        batch(&some, seed * 1_000_000 + done);
        done += some.len() as u64;
        println!("{done} combinations, seed {seed}");
    }
}

/// The design covers all pairs, counted independently.
#[test]
fn every_pair_of_values_is_covered() {
    let space = space();
    let rows = space.cover(2, 1);
    for pair in space.choices(2) {
        let met: HashSet<_> = rows.iter().map(|row| (row[pair[0]], row[pair[1]])).collect();
        for a in 0..space.sizes[pair[0]] {
            for b in 0..space.sizes[pair[1]] {
                let possible = space.possible(&[(pair[0], a), (pair[1], b)]);
                assert_eq!(met.contains(&(a, b)), possible, "factors {pair:?}, values {a}, {b}");
            }
        }
    }
    assert!(rows.iter().all(|row| (space.allowed)(row)));
    assert!(rows.len() < 60, "{} rows", rows.len());
}

/// Planted faults: a judge or a comparison reports each.
#[test]
fn planted_faults_are_found() {
    let space = space();
    let fits = |row: &Row| {
        let features = Features::new(row.clone());
        features.is("parent") && features.is("rmapbt") && features.number("block") <= 4096
    };
    let row = space.cover(2, 1).into_iter().find(fits).unwrap();
    let case = Case::new(Features::new(row), 1);
    let planted = |fault: &dyn Fn(&Volume)| {
        let volume = Volume::empty();
        std::fs::copy(&case.volume.path, &volume.path).unwrap();
        fault(&volume);
        let (features, seen) = (case.features.clone(), case.seen.clone());
        Case { features, seed: 1, for_kernels: true, volume, seen }
    };
    // A byte of a file: no structure is wrong, but what the kernel reads differs.
    let content = planted(&|volume| {
        let fs = volume.open_read_only();
        let ino = fs.resolve(b"/small", false).unwrap();
        let at = fs.segments(ino).unwrap()[0].device.unwrap();
        drop(fs);
        let file = std::fs::File::options().read(true).write(true).open(&volume.path).unwrap();
        let mut byte = [0];
        file.read_exact_at(&mut byte, at).unwrap();
        file.write_all_at(&[!byte[0]], at).unwrap();
    });
    content.judge("content").unwrap();
    let wrong = compare(Kernel::Current, std::slice::from_ref(&content));
    assert!(wrong.len() == 1 && wrong[0].contains("/small"), "{wrong:?}");
    // Fields of structures, their checksums kept right.
    for commands in [
        &["sb 0", "write fdblocks 7"][..],
        &["agf 1", "write longest 7"],
        &["path /small", "write core.nlinkv2 3"],
        &["path /from", "write core.nlinkv2 9"],
    ] {
        let case = planted(&|volume| {
            Xfsprogs::Current.db_write(&volume.path, commands);
        });
        assert!(case.judge("planted").is_err(), "{commands:?} passes");
    }
}
