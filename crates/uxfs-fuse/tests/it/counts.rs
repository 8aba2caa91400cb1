//! The requests of a mount, counted by kind.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::Path;

use uxfs_fuse::control;

use crate::rig::{Ours, Volume, transports};

type Counts = BTreeMap<String, u64>;

fn counts(dir: &Path) -> Counts {
    let pairs = control::ask(dir, control::STATS).unwrap().into_iter();
    let ours = pairs.filter(|(name, _)| name.starts_with(control::REQUESTS));
    ours.map(|(name, count)| (name, count.parse().unwrap())).collect()
}

/// What `act` asked the mount, as the kinds with their counts.
fn asked(dir: &Path, act: impl FnOnce()) -> String {
    let before = counts(dir);
    act();
    let mut more = counts(dir);
    for (name, count) in &mut more {
        *count -= before.get(name).copied().unwrap_or(0);
    }
    // The request that reads the counts.
    *more.get_mut("requests_GETXATTR").unwrap() -= 1;
    let all = more.remove(control::REQUESTS).unwrap() - 1;
    assert_eq!(more.values().sum::<u64>(), all);
    // One for each request whose caller gets a signal meanwhile.
    more.remove("requests_INTERRUPT");
    let more = more.iter().filter(|(_, count)| **count > 0);
    let more = more.map(|(name, count)| format!("{}={count}", &name["requests_".len()..]));
    more.collect::<Vec<_>>().join(" ")
}

fn write_durably(path: &Path) {
    let mut file = File::create_new(path).unwrap();
    file.write_all(&[1; 4096]).unwrap();
    file.sync_all().unwrap();
}

#[test]
fn each_kind_is_counted_once_over_both_transports() {
    for transport in transports() {
        let volume = Box::new(Ours::new(320 << 20, transport));
        let root = volume.dir();
        // Not in the root: reading the counts asks for attributes of the root that have changed.
        let dir = root.join("dir");
        std::fs::create_dir(&dir).unwrap();
        // The kernel asks only once for kinds that the server does not have.
        write_durably(&dir.join("first"));
        let made = asked(&root, || write_durably(&dir.join("file")));
        // The directory has changed, and its permissions are checked; the write asks for capabilities.
        let wanted = "FSYNC=1 GETATTR=1 GETXATTR=1 LOOKUP=1 MKNOD=1 WRITE=1";
        assert_eq!(made, wanted, "{transport}");
        let renamed = asked(&root, || std::fs::rename(dir.join("file"), dir.join("new")).unwrap());
        assert_eq!(renamed, "GETATTR=1 LOOKUP=1 RENAME=1", "{transport}");
        let file = File::open(dir.join("new")).unwrap();
        let nothing = asked(&root, || file.read_exact_at(&mut [0; 4096], 0).unwrap());
        assert_eq!(nothing, "", "{transport}: the kernel has it cached");
        drop(file);
        volume.end();
    }
}
