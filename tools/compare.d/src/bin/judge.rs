//! The judge: listings of directories and, by a kernel in a throw-away machine, of images; comparison;
//! aged volumes; scripts.

use std::fs;
use std::path::Path;
use std::process::ExitCode;

use uxfs_compare::{Step, Why, entry, exit, host, join, print, split, steps, why};
use uxfs_oracle::vm::{Kernel, Vm};
use uxfs_oracle::{ContentSum, Entry, Fields, Finding, Kind, Listing, Rng, lister};

const USAGE: &str = "usage:
  judge dir DIR                      the listing of a directory
  judge kernel stable|current IMAGE [MOUNT-OPTIONS]
                                     the listing of an image, by that kernel
  judge age stable|current IMAGE SEED OPERATIONS
                                     fills and ages a volume, prints its listing
  judge plain stable|current IMAGE   removes symbolic links, and names that are not
                                     printable ASCII, prints the listing
  judge edited LISTING SCRIPT        the listing after the script
  judge fill DIR                     a script that makes the directory's tree
  judge edits DIR LISTING KIND SEED  a script of edits: add, delete or rename
  judge diff LISTING LISTING         the numbers of entries in the first, of missing, additional and
                                     different ones in the second, and the first difference";
/// Files up to this size stay in an aged volume: a library may read a file into memory, or a hole as slowly
/// as data.
const FILE_MAX: u64 = 64 << 20;

fn kernel(name: &str) -> Result<Kernel, Why> {
    match name {
        "stable" => Ok(Kernel::Stable),
        "current" => Ok(Kernel::Current),
        _ => Err(format!("no kernel {name}")),
    }
}

/// Mounted with options besides `ro`.
fn kernel_list(name: &str, image: &str, options: &str) -> Result<Listing, Why> {
    let said = |finding: Finding| {
        let quiet = ["Mounting V", "Ending clean mount", "Starting recovery", "Ending recovery"];
        let of_xfs = |line: &&String| {
            let loud = !quiet.iter().any(|words| line.contains(words));
            line.contains("XFS (") && loud || line.contains("uxfs-lister: ")
        };
        let line = finding.lines.iter().find(of_xfs);
        let text =
            |line: &String| line.split_once("] ").map_or(&line[..], |(_, text)| text).to_owned();
        line.map_or_else(|| finding.to_string(), text)
    };
    let script = format!(
        "set -e\nmount -t xfs -o ro{options} /drive/0 /mnt\nuxfs-lister /mnt >/out/list\numount /mnt\n"
    );
    let machine = Vm::new(kernel(name)?).drive(Path::new(image), false).script(&script);
    let files = machine.run().map_err(said)?.files;
    String::from_utf8_lossy(files.get("list").ok_or("no listing")?).parse()
}

fn age(name: &str, image: &str, seed: u64, ops: u32) -> Result<Listing, Why> {
    // `find` counts blocks of 512 bytes.
    let large = FILE_MAX / 512;
    let commands = format!(
        "uxfs-ager /mnt {seed} {ops} >&2\nfind /mnt -type f -size +{large} -exec rm -f {{}} \\;"
    );
    mounted(name, image, &commands)
}

fn plain_names(name: &str, image: &str) -> Result<Listing, Why> {
    mounted(
        name,
        image,
        "find /mnt -type l -exec rm -f {} \\;\n\
        find /mnt -depth -name '*[^ -~]*' -exec rm -rf {} \\;",
    )
}

/// Runs commands in a machine that has mounted the image, and lists it then.
fn mounted(name: &str, image: &str, commands: &str) -> Result<Listing, Why> {
    let script = format!("set -e\nmount -t xfs /drive/0 /mnt\n{commands}\numount /mnt\n");
    let machine = Vm::new(kernel(name)?).drive(Path::new(image), true).script(&script);
    machine.run().map_err(why)?;
    kernel_list(name, image, "")
}

fn load(file: &str) -> Result<Listing, Why> {
    fs::read_to_string(file).map_err(why)?.parse()
}

/// What is compared: files, directories, links; without the number of links, of which the listings of some
/// tools know nothing.
fn plain(listing: Listing) -> Listing {
    let known = |entry: &Entry| matches!(entry.kind, Kind::File | Kind::Dir | Kind::Symlink);
    let plain = |old: Entry| {
        let size = if old.kind == Kind::File { old.size } else { 0 };
        let mut new = entry(old.path, old.kind, size);
        (new.content, new.target) = (old.content, old.target);
        new
    };
    let entries = listing.entries.into_iter().filter(known).map(plain).collect();
    Listing { space: None, entries }
}

fn diff(first: &str, second: &str) -> Result<(), Why> {
    let (first, second) = (plain(load(first)?), plain(load(second)?));
    let all = first.differences(&second, Fields::SIZE | Fields::TARGET | Fields::CONTENT);
    let (mut missing, mut more) = (0, 0);
    for line in &all {
        missing += usize::from(line.ends_with(": only in the first"));
        more += usize::from(line.ends_with(": only in the second"));
    }
    let line = all.first().map_or("", String::as_str);
    let different = all.len() - missing - more;
    println!("{}\t{missing}\t{more}\t{different}\t{line}", first.entries.len());
    if all.is_empty() { Ok(()) } else { Err(format!("{} differences", all.len())) }
}

/// The listing after a script.
fn edited(listing: &str, script: &str) -> Result<Listing, Why> {
    let mut listing = plain(load(listing)?);
    for step in steps(&fs::read(script).map_err(why)?) {
        let all = &mut listing.entries;
        match step {
            Step::Mkdir(path) => all.push(entry(path.to_vec(), Kind::Dir, 0)),
            Step::Put(from, path) => {
                let content = fs::read(host(from)).map_err(why)?;
                let mut new = entry(path.to_vec(), Kind::File, content.len() as u64);
                new.content = Some(ContentSum::of(&content));
                all.push(new);
            }
            Step::Symlink(target, path) => {
                let mut new = entry(path.to_vec(), Kind::Symlink, 0);
                new.target = Some(target.to_vec());
                all.push(new);
            }
            Step::Remove(path) => all.retain(|entry| entry.path != path),
            Step::Rename(from, to) => {
                for entry in all.iter_mut().filter(|entry| entry.path == from) {
                    entry.path = to.to_vec();
                }
            }
        }
    }
    listing.entries.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(listing)
}

/// A line of a script.
fn step(words: &[&[u8]]) {
    use std::io::Write;
    let mut line = words.join(&b'\t');
    line.push(b'\n');
    // A reader that is gone ends the script.
    let _ = std::io::stdout().lock().write_all(&line);
}

/// A path that every tool and a script's line can take.
fn simple(path: &[u8]) -> bool {
    path.len() < 1000
        && path.iter().all(|byte| byte.is_ascii_alphanumeric() || b"/._-+".contains(byte))
}

fn on_host(dir: &str, path: &[u8]) -> Vec<u8> {
    [dir.trim_end_matches('/').as_bytes(), path].concat()
}

fn fill(dir: &str) -> Result<(), Why> {
    let listing = lister::list(Path::new(dir)).map_err(why)?;
    for entry in listing.entries.iter().filter(|entry| entry.path != b"/") {
        match (entry.kind, &entry.target) {
            (Kind::Dir, _) => step(&[b"mkdir", &entry.path]),
            (Kind::File, _) => step(&[b"put", &on_host(dir, &entry.path), &entry.path]),
            (Kind::Symlink, Some(target)) => step(&[b"symlink", target, &entry.path]),
            _ => {}
        }
    }
    Ok(())
}

/// Paths with simple names, in an order that the seed gives.
fn some(listing: &Listing, kind: Kind, seed: u64) -> Vec<Vec<u8>> {
    let fit = |entry: &&Entry| entry.kind == kind && simple(&entry.path);
    let mut all: Vec<_> = listing.entries.iter().filter(fit).map(|e| e.path.clone()).collect();
    let mut rng = Rng::new(seed);
    for at in (1..all.len()).rev() {
        all.swap(at, rng.index(at + 1));
    }
    all
}

fn edits(dir: &str, listing: &str, kind: &str, seed: u64) -> Result<(), Why> {
    let aged = load(listing)?;
    let dirs = some(&aged, Kind::Dir, seed);
    match kind {
        "add" => {
            let tree = lister::list(Path::new(dir)).map_err(why)?;
            let files = some(&tree, Kind::File, seed);
            for (number, dir) in dirs.iter().take(20).enumerate() {
                step(&[b"mkdir", &join(dir, format!("new-directory-{number}").as_bytes())]);
            }
            for (number, file) in files.iter().take(200).enumerate() {
                let to = &dirs[number % dirs.len().min(40)];
                let to =
                    join(to, format!("new-{number}-{}", split(file).1.escape_ascii()).as_bytes());
                step(&[b"put", &on_host(dir, file), &to]);
            }
        }
        "delete" => {
            some(&aged, Kind::File, seed).iter().take(100).for_each(|path| step(&[b"rm", path]));
        }
        // Half of them stay in their directory.
        "rename" => {
            for (number, from) in some(&aged, Kind::File, seed).iter().take(100).enumerate() {
                let to = if number % 2 == 0 { split(from).0 } else { &dirs[number % dirs.len()] };
                step(&[b"mv", from, &join(to, format!("renamed-{number}").as_bytes())]);
            }
        }
        _ => return Err(format!("no edits {kind}")),
    }
    Ok(())
}

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let number = |word: &str| word.parse().map_err(why);
    exit(match words[..] {
        ["dir", dir] => lister::list(Path::new(dir)).map_err(why).and_then(|all| print(&all)),
        ["kernel", name, image] => kernel_list(name, image, "").and_then(|all| print(&all)),
        ["kernel", name, image, options] => {
            kernel_list(name, image, &format!(",{options}")).and_then(|all| print(&all))
        }
        ["age", name, image, seed, ops] => number(seed)
            .and_then(|seed| age(name, image, seed, u32::try_from(number(ops)?).map_err(why)?))
            .and_then(|all| print(&all)),
        ["plain", name, image] => plain_names(name, image).and_then(|all| print(&all)),
        ["edited", listing, script] => edited(listing, script).and_then(|all| print(&all)),
        ["fill", dir] => fill(dir),
        ["edits", dir, listing, kind, seed] => {
            number(seed).and_then(|seed| edits(dir, listing, kind, seed))
        }
        ["diff", first, second] => diff(first, second),
        _ => Err(USAGE.into()),
    })
}
