//! A server killed while it works: everything that fsync confirmed is there after the next mount.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Condvar, Mutex};

use uxfs_fuse::{Options, mount, mounts};
use uxfs_oracle::Rng;

use crate::clients::{Client, KINDS, check};
use crate::rig::{Image, Ours, Volume, transport};

/// Environment variable for the process that serves a mount: image and directory.
const SERVE: &str = "UXFS_TEST_SERVE";
const OPTIONS: &str = "UXFS_TEST_OPTIONS";

/// Not a test: the process that is killed runs this.
#[test]
fn serves_until_it_is_killed() {
    let Some(what) = std::env::var_os(SERVE) else { return };
    let dir = PathBuf::from(what);
    let image = dir.join("image");
    let dev = uxfs::disk::FileDev::open(&image, uxfs::disk::OpenMode::Write).unwrap();
    let options = Options::parse(&std::env::var(OPTIONS).unwrap_or_default()).unwrap();
    let fs = uxfs::Fs::open(std::sync::Arc::new(dev), options.open_options()).unwrap();
    let mounted = mount(fs, &image, &dir.join("mnt"), &options).unwrap();
    println!("\nserving");
    mounted.wait().unwrap();
}

pub(crate) fn serve(image: &Image, options: &str) -> Child {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "kill::serves_until_it_is_killed", "--nocapture"])
        .env(SERVE, image.path().parent().unwrap())
        .env(OPTIONS, options)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    wait_for_line(&mut child, "serving");
    child
}

/// Waits until a process has printed a line.
pub(crate) fn wait_for_line(child: &mut Child, wanted: &str) {
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let ready = lines.map_while(Result::ok).any(|line| line == wanted);
    assert!(ready, "the server did not start");
}

/// Writes files and syncs some of them. Returns these with their contents.
fn work(dir: &std::path::Path, rng: &mut Rng) -> Vec<(PathBuf, Vec<u8>)> {
    let mut sure = Vec::new();
    for n in 0..40 + rng.below(60) {
        let sub = dir.join(format!("d{}", rng.below(5)));
        let made = !sub.exists();
        if made {
            std::fs::create_dir(&sub).unwrap();
        }
        let path = sub.join(format!("f{n}"));
        let len = rng.index(40_000);
        let data = rng.bytes(len);
        let mut file = File::create(&path).unwrap();
        file.write_all(&data).unwrap();
        if rng.once_in(2) {
            file.sync_all().unwrap();
            sure.push((path.clone(), data.clone()));
            if rng.once_in(3) {
                // Overwrite a synced file: old or new content may be there, so it is not checked.
                file.write_all_at(b"after", data.len() as u64).unwrap();
            }
        }
        if rng.once_in(6) {
            // Open, and unlinked.
            let gone = File::create(sub.join("gone")).unwrap();
            gone.write_all_at(&[7; 5000], 0).unwrap();
            std::fs::remove_file(sub.join("gone")).unwrap();
            std::mem::forget(gone);
        }
    }
    sure
}

#[test]
fn synced_files_survive_a_killed_server() {
    let mut image = Image::new(320 << 20, &[]);
    for round in 0..3 {
        let seed = 500 + round;
        let mut server = serve(&image, transport(round));
        let dir = image.mount_point().join(format!("round{round}"));
        std::fs::create_dir(&dir).unwrap();
        let sure = work(&dir, &mut Rng::new(seed));
        server.kill().unwrap();
        server.wait().unwrap();
        mounts::unmount(&image.mount_point(), true).unwrap();
        let again = Ours::of(image, "");
        assert!(!sure.is_empty());
        for (path, data) in &sure {
            let there =
                std::fs::read(path).unwrap_or_else(|e| panic!("seed {seed}: {path:?}: {e}"));
            assert!(there.starts_with(data), "seed {seed}: {path:?}: {} bytes", there.len());
        }
        assert!(again.dir().exists());
        image = again.unmount();
        image.judge();
    }
}

/// The server is killed while programs run. They fail, and every durable step is there afterwards.
#[test]
fn programs_lose_nothing_to_a_killed_server() {
    let mut image = Image::new(512 << 20, &[]);
    for round in 0..3 {
        let mut server = serve(&image, transport(round as u64));
        let dir = image.mount_point().join(format!("programs{round}"));
        std::fs::create_dir(&dir).unwrap();
        let durable: Arc<Mutex<BTreeMap<&str, usize>>> = Arc::default();
        let enough = Arc::new(Condvar::new());
        let clients: Vec<Client> = KINDS
            .iter()
            .map(|&(kind, _)| {
                let (durable, enough) = (Arc::clone(&durable), Arc::clone(&enough));
                Client::start(&dir, kind, 100_000, move |step| {
                    durable.lock().unwrap().insert(kind, step);
                    enough.notify_all();
                })
            })
            .collect();
        // Kill the server when the fastest program has done this many steps.
        let most =
            |durable: &mut BTreeMap<&str, usize>| durable.values().max() < Some(&(15 + 20 * round));
        drop(enough.wait_while(durable.lock().unwrap(), most).unwrap());
        server.kill().unwrap();
        server.wait().unwrap();
        for client in clients {
            assert!(!client.wait().success());
        }
        mounts::unmount(&image.mount_point(), true).unwrap();
        let again = Ours::of(image, "");
        let durable = durable.lock().unwrap();
        let wrong: Vec<String> = KINDS
            .iter()
            .filter_map(|(kind, _)| {
                check(&dir, kind, durable.get(kind).copied().unwrap_or(0)).err()
            })
            .collect();
        assert!(wrong.is_empty(), "round {round}:\n{}", wrong.join("\n"));
        image = again.unmount();
        image.judge();
    }
}
