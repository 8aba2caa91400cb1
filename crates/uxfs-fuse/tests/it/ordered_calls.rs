//! Mounts with `sync=ordered`: fsync costs no request and promises order; what means the disk means it
//! still.

use std::fs::File;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

use uxfs_fuse::{control, mounts};

use crate::kill::serve;
use crate::rig::{Image, Ours, Volume, run, transport, transports};

fn asked(dir: &Path, kind: &str) -> u64 {
    let pairs = control::ask(dir, control::STATS).unwrap();
    let count = pairs.into_iter().find(|(name, _)| name == kind);
    count.map_or(0, |(_, count)| count.parse().unwrap())
}

#[test]
fn fsync_is_no_request_after_the_first() {
    for transport in transports() {
        let volume = Box::new(Ours::new(512 << 20, &format!("sync=ordered,{transport}")));
        let root = volume.dir();
        for n in 0..20 {
            let file = File::create(root.join(format!("f{n}"))).unwrap();
            file.write_all_at(&[1; 5000], 0).unwrap();
            file.sync_all().unwrap();
            file.sync_data().unwrap();
            File::open(&root).unwrap().sync_all().unwrap();
        }
        assert!(asked(&root, "requests_FSYNC") <= 1, "{transport}");
        assert!(asked(&root, "requests_FSYNCDIR") <= 1, "{transport}");
        let status = control::ask(&root, control::STATUS).unwrap();
        assert!(status.contains(&("sync".into(), "ordered".into())), "{status:?}");
        assert!(status.contains(&("loss_seconds".into(), "5".into())), "{status:?}");
        let image = volume.unmount();
        image.judge();
    }
}

/// FUSE carries no atomic writes. The kernel must say so, not write as usual.
#[test]
fn an_atomic_write_is_refused() {
    const RWF_ATOMIC: u32 = 0x40;
    let volume = Box::new(Ours::new(512 << 20, "sync=ordered"));
    let path = volume.dir().join("f");
    std::fs::write(&path, [1; 4096]).unwrap();
    let file = File::options().write(true).open(&path).unwrap();
    let flags = rustix::io::ReadWriteFlags::from_bits_retain(RWF_ATOMIC);
    let data = [std::io::IoSlice::new(&[2; 4096])];
    let written = rustix::io::pwritev2(&file, &data, 0, flags);
    assert_eq!(written, Err(rustix::io::Errno::OPNOTSUPP));
    assert_eq!(std::fs::read(&path).unwrap(), [1; 4096]);
    drop(file);
    volume.unmount().judge();
}

/// The ways of a program to have its data on the disk.
fn make_durable(way: u64, root: &Path, n: u64) {
    let path = root.join(format!("d{n}"));
    let ioctl = |number: &str| {
        let script =
            format!("import fcntl,os; fcntl.ioctl(os.open('{}',0),{number})", root.display());
        run("python3", &["-c", &script]);
    };
    match way {
        0 => {
            std::fs::write(&path, [n as u8; 9000]).unwrap();
            control::sync(root).unwrap();
        }
        1 => {
            std::fs::write(&path, [n as u8; 9000]).unwrap();
            ioctl("0x55f0");
            ioctl("0x55f1");
        }
        _ => {
            let flags = rustix::fs::OFlags::DIRECT | rustix::fs::OFlags::DSYNC;
            let mut options = File::options();
            options.write(true).create(true).custom_flags(flags.bits() as i32);
            options.open(&path).unwrap().write_all_at(&[n as u8; 9000], 0).unwrap();
        }
    }
}

#[test]
fn a_killed_server_loses_the_end_and_nothing_in_part() {
    let mut image = Image::new(512 << 20, &[]);
    for round in 0..3 {
        let mut server = serve(&image, &format!("sync=ordered,loss=60,{}", transport(round)));
        let root = image.mount_point().join(format!("round{round}"));
        std::fs::create_dir(&root).unwrap();
        // Each step overwrites one file and makes another: both or none survive.
        let counter = File::create(root.join("counter")).unwrap();
        let step = |n: u64| {
            std::fs::write(root.join(format!("s{n}")), n.to_string()).unwrap();
            counter.write_all_at(&n.to_le_bytes().repeat(2000), 0).unwrap();
        };
        (0..50).for_each(step);
        make_durable(round, &root, round);
        (50..200).for_each(step);
        server.kill().unwrap();
        server.wait().unwrap();
        drop(counter);
        mounts::unmount(&image.mount_point(), true).unwrap();
        let again = Ours::of(image, "");
        let content = std::fs::read(root.join(format!("d{round}"))).unwrap();
        assert_eq!(content, [round as u8; 9000], "round {round}");
        let counted = std::fs::read(root.join("counter")).unwrap();
        let (words, rest) = counted.as_chunks::<8>();
        assert!(rest.is_empty() && words.iter().all(|word| *word == words[0]), "round {round}");
        let last = u64::from_le_bytes(words[0]);
        assert!((49..200).contains(&last), "round {round}: {last}");
        // A step's file comes first.
        for n in 0..200 {
            let there = std::fs::read(root.join(format!("s{n}")));
            match there {
                Ok(text) => assert!(
                    n <= last + 1 && (n > last || text == n.to_string().into_bytes()),
                    "round {round}: file {n} after step {last}"
                ),
                Err(_) => assert!(n > last, "round {round}: no file {n} after step {last}"),
            }
        }
        image = again.unmount();
        image.judge();
    }
}
