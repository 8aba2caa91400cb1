//! Mounts that grow while programs use them.

use std::fs::File;
use std::sync::mpsc::channel;
use std::time::Duration;

use uxfs_fuse::{control, growth};
use uxfs_testkit::{Op, Rule};

use crate::rig::{Image, Ours, Volume, gated, requests};

const SIZE: u64 = 320 << 20;
/// More than the server has threads.
const CHANGES: u64 = 6;
/// How long a request may take that is answered at all.
const LIMIT: Duration = Duration::from_secs(60);

/// While a growth holds changes back, reads are answered, the state too. A thaw does not wait for it.
#[test]
fn reads_are_answered_while_a_mount_grows() {
    let image = Image::new(SIZE, &["-d", "agcount=4"]);
    // The device between does not lengthen the file.
    File::options().write(true).open(image.path()).unwrap().set_len(2 * SIZE).unwrap();
    let second = SIZE / 4;
    // The copy of the superblock there is written at the end of the growth.
    let rule = Rule::on(Op::WRITES).within(second..second + 512);
    let (dev, gate) = gated(&image, rule, "uxfs-growth");
    let ours = Ours::on(image, dev, "noio_uring,threads=2");
    let dir = ours.dir();
    let files: Vec<File> =
        (0..CHANGES).map(|n| File::create(dir.join(format!("file {n}"))).unwrap()).collect();
    let before = requests(&dir, "SETATTR");
    std::thread::scope(|scope| {
        let dir = &dir;
        let grower = scope.spawn(move || growth::grow(dir, Some(2 * SIZE / 4096)));
        gate.reached();
        let changes: Vec<_> =
            files.iter().map(|file| scope.spawn(move || file.set_len(7))).collect();
        let (sender, answered) = channel();
        scope.spawn(move || {
            while requests(dir, "SETATTR") < before + CHANGES {
                std::thread::yield_now();
            }
            let thawed = control::thaw(dir).map_err(|error| error.raw_os_error());
            // The test has given up if there is no receiver.
            let _ = sender.send((thawed, growth::show(dir).map(|growth| growth.before)));
        });
        let answered = answered.recv_timeout(LIMIT);
        let waiting = changes.iter().filter(|change| !change.is_finished()).count();
        gate.open();
        let (thawed, shown) = answered.expect("requests wait for the growth");
        assert_eq!(waiting as u64, CHANGES, "changes were made while the volume was frozen");
        assert_eq!(thawed, Err(Some(16)));
        assert!(shown.is_ok(), "{shown:?}");
        assert!(grower.join().unwrap().unwrap().grown);
        for change in changes {
            change.join().unwrap().unwrap();
        }
    });
    drop(files);
    assert_eq!(std::fs::metadata(dir.join("file 0")).unwrap().len(), 7);
    assert_eq!(growth::show(&dir).unwrap().before, 2 * SIZE / 4096);
    // The state is shown of a frozen mount, too.
    control::freeze(&dir).unwrap();
    assert_eq!(growth::show(&dir).unwrap().before, 2 * SIZE / 4096);
    control::thaw(&dir).unwrap();
    ours.unmount().judge();
}
