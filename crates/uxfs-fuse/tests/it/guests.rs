//! Virtual machines that mount a volume by virtiofs: their kernel is the client, and what it did is judged on
//! the host.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::JoinHandle;

use uxfs_fuse::virtiofs::{Access, Socket, Stopper};
use uxfs_fuse::{MemoryGuest, Options, Until, serve};
use uxfs_oracle::vm::{Engine, Vm};
use uxfs_oracle::{Fields, Kernel, Listing, vm};

use crate::kill::wait_for_line;
use crate::posix::{Findings, topics_of_guests};
use crate::rig::Image;

const SIZE: u64 = 320 << 20;

/// The name by which a guest mounts.
const TAG: &str = "uxfs";

/// Environment variable for the process that serves: the directory of the image.
const SERVE: &str = "UXFS_TEST_SERVE_GUEST";

fn socket(image: &Image) -> PathBuf {
    image.path().with_file_name("socket")
}

fn serving(image: &Image, options: &str) -> uxfs_fuse::Serving {
    let options = Options::parse(options).unwrap();
    let fs = image.open_with(&options);
    let socket = Socket::bind(&socket(image), Access::default()).unwrap();
    serve(fs, &image.path(), socket, Some(TAG.into()), &options).unwrap()
}

/// A volume that is served to guests.
struct Served {
    image: Image,
    stopper: Stopper,
    thread: JoinHandle<std::io::Result<()>>,
}

impl Served {
    fn new(options: &str) -> Self {
        Self::of(Image::new(SIZE, &[]), options)
    }

    fn of(image: Image, options: &str) -> Self {
        let serving = serving(&image, options);
        let stopper = serving.stopper();
        Self { image, stopper, thread: std::thread::spawn(|| serving.run(Until::Stopped)) }
    }

    /// Runs a script in a guest, with the volume and the host's programs.
    fn guest(&self, script: &str) -> uxfs_oracle::vm::Output {
        let vm = Vm::new(Kernel::Current).share(&socket(&self.image));
        vm.script(&format!("set -e\n{script}")).run().unwrap_or_else(|finding| panic!("{finding}"))
    }

    /// Ends the service, and asserts that the volume is closed and sound.
    fn end(self) -> Image {
        self.stopper.stop();
        self.thread.join().unwrap().unwrap();
        assert!(!socket(&self.image).exists());
        self.image.judge();
        let fs = self.image.open();
        assert!(fs.recovery().is_none(), "the log was clean");
        fs.close().unwrap();
        self.image
    }
}

/// Mounts the volume on `/mnt`.
const MOUNT: &str = "mount -t virtiofs uxfs /mnt\n";

/// Makes the host's programs available in `/all`, with the volume on its `/mnt/ours`.
const HOST_PROGRAMS: &str = "mkdir /all\nmount -r -t hostfs -o / none /all\n\
    for dir in proc sys dev; do mount -o bind /$dir /all/$dir; done\n\
    mount -t tmpfs none /all/tmp\nmount -t tmpfs none /all/mnt\n\
    mkdir /all/mnt/ours /all/mnt/theirs /all/mnt/posix\n";

fn listed(output: &uxfs_oracle::vm::Output, name: &str) -> Listing {
    String::from_utf8_lossy(&output.files[name]).parse().unwrap()
}

/// A guest makes files of all kinds, syncs, unmounts and mounts again. Afterwards its kernel's XFS finds the
/// same on the image.
#[test]
fn a_guest_mounts_changes_and_reads_back() {
    let served = Served::new("");
    let output = served.guest(&format!(
        "{MOUNT}cd /mnt\n\
         mkdir a a/b; echo hello >a/f; ln a/f a/hard; ln -s f a/soft; mknod a/fifo p\n\
         dd if=/dev/urandom of=big bs=64k count=100 2>/dev/null; cp big copy; sync\n\
         mv a/hard a/b/moved; truncate -s 1000000 sparse; dd if=big of=sparse seek=100 conv=notrunc 2>/dev/null\n\
         chmod 640 a/f; chown 12:13 a/f; touch -d '2020-01-02 03:04:05' a/f; rm copy\n\
         test \"$(stat -f -c %t .)\" = 65735546\n\
         exec 5>open; rm open; echo unlinked >&5; exec 5>&-\n\
         i=0; while [ $i -lt 300 ]; do : >a/b/$i; i=$((i+1)); done; rm a/b/2*\n\
         uxfs-lister /mnt >/out/before\ncd /\numount /mnt\n\
         {MOUNT}test \"$(cat /mnt/a/b/moved)\" = hello\n\
         uxfs-lister /mnt >/out/after\numount /mnt\n"
    ));
    let image = served.end();
    let (before, after) = (listed(&output, "before"), listed(&output, "after"));
    before.assert_same(&after, Fields::TREE | Fields::HOLES);
    assert!(before.entries.len() > 190, "{}", before.entries.len());
    let seen = vm::list(Kernel::Current, &[&image.path()]);
    let seen = seen.unwrap_or_else(|finding| panic!("{finding}"));
    after.assert_same(&seen[0], Fields::TREE | Fields::HOLES);
}

/// The same monitor protocol from QEMU, whose device is on a bus: little work, because QEMU emulates here.
#[test]
fn a_guest_of_qemu_mounts_it() {
    let served = Served::new("");
    let vm = Vm::new(Kernel::Current).under(Engine::Qemu).share(&socket(&served.image));
    let script = format!(
        "set -e\n{MOUNT}cd /mnt\nmkdir d\nseq 1 20000 >d/numbers\nln -s numbers d/link\n\
         mv d/numbers d/moved\nsync\ncd /\numount /mnt\n\
         {MOUNT}cat /mnt/d/moved >/out/numbers\numount /mnt\n"
    );
    let output = vm.script(&script).run().unwrap_or_else(|finding| panic!("{finding}"));
    served.end();
    let numbers: String = (1..=20000).map(|n| format!("{n}\n")).collect();
    assert!(output.files["numbers"] == numbers.as_bytes());
}

/// Random operations in a guest, twice, with different options.
#[test]
fn a_guest_ages_a_volume() {
    let mut image = Image::new(SIZE, &[]);
    for (seed, options) in [(1, "strict_open"), (2, "threads=1,dirty_bytes=1m")] {
        let served = Served::of(image, options);
        let output = served.guest(&format!(
            "{MOUNT}uxfs-ager /mnt {seed} 1500 >&2\nuxfs-lister /mnt >/out/tree\numount /mnt\n"
        ));
        image = served.end();
        let seen = vm::list(Kernel::Current, &[&image.path()]);
        let seen = seen.unwrap_or_else(|finding| panic!("{finding}"));
        listed(&output, "tree").assert_same(&seen[0], Fields::TREE | Fields::HOLES);
    }
}

/// The conformance suite in a guest: on the volume, and on one that the guest's kernel made and mounted.
#[test]
fn a_guest_finds_the_mount_as_it_finds_xfs() {
    let theirs = Image::new(SIZE, &[]);
    let served = Served::new("strict_open");
    let scripts = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/posix");
    let mut vm = Vm::new(Kernel::Current).share(&socket(&served.image)).drive(&theirs.path(), true);
    for entry in std::fs::read_dir(scripts).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|ext| ext == "py") {
            let name = path.file_name().unwrap().to_str().unwrap();
            vm = vm.file(name, &std::fs::read(&path).unwrap());
        }
    }
    let script = format!(
        "set -e\n{HOST_PROGRAMS}cp /job/*.py /all/mnt/posix\n\
         mount -t virtiofs uxfs /all/mnt/ours\nmount -t xfs /drive/0 /all/mnt/theirs\n\
         for topic in {}; do for side in ours theirs; do\n\
         mkdir -m 777 /all/mnt/$side/$topic\n\
         chroot /all sh -c \"cd /mnt/$side/$topic && python3 -B /mnt/posix/$topic.py\" \
         >/out/$side-$topic </dev/null || echo $side: $topic >>/out/failed\n\
         done; done\numount /all/mnt/ours /all/mnt/theirs\n",
        topics_of_guests().collect::<Vec<_>>().join(" ")
    );
    let output = vm.memory(1024).script(&script).run();
    let output = output.unwrap_or_else(|finding| panic!("{finding}"));
    served.end();
    let failed = output.files.get("failed").map(|topics| String::from_utf8_lossy(topics));
    assert_eq!(failed, None, "topics that failed");
    let lines = |name: String| -> Vec<String> {
        String::from_utf8_lossy(&output.files[&name]).lines().map(str::to_owned).collect()
    };
    let mut findings = Findings::default();
    for topic in topics_of_guests() {
        let (here, there) = (lines(format!("ours-{topic}")), lines(format!("theirs-{topic}")));
        findings.compare_lines(topic, "virtiofs", &here, &there, &["MOUNT.md", "VIRTIOFS.md"]);
    }
    findings.judge(&["VIRTIOFS.md"]);
}

/// A request of a guest, with a body.
pub(crate) fn request(opcode: u32, node: u64, body: &[u8]) -> Vec<u8> {
    let len = u32::try_from(40 + body.len()).unwrap();
    let mut request = [len.to_le_bytes(), opcode.to_le_bytes()].concat();
    request.extend(1_u64.to_le_bytes());
    request.extend(node.to_le_bytes());
    request.extend([0; 16]);
    request.extend(body);
    request
}

/// The first request of a guest: it offers everything.
pub(crate) fn first_request() -> Vec<u8> {
    const INIT: u32 = 26;
    let mut offer = [7_u32, 38, 0, u32::MAX].map(u32::to_le_bytes).concat();
    offer.resize(64, 0);
    request(INIT, 0, &offer)
}

/// Numbers that were never told to it are refused: of files, of the volume's own inodes, of nothing. A
/// handle of a file that has a name leads to it.
#[test]
fn a_guest_reaches_only_what_it_looked_up() {
    const LOOKUP: u32 = 1;
    const FORGET: u32 = 2;
    const GETATTR: u32 = 3;
    const LINK: u32 = 13;
    let image = Image::new(SIZE, &[]);
    let fs = image.open();
    let file = fs.create(fs.root(), b"file", &uxfs::NewInode::file(0o644)).unwrap();
    let sb = fs.superblock();
    let internal = sb.rbmino.get();
    assert!(fs.stat(uxfs::format::Ino(internal)).is_ok(), "the volume has one");
    let guest = MemoryGuest::new(fs, &Options::default());
    let send = |request: &[u8]| {
        let replies = guest.request(request, 4096);
        replies.first().map(|reply| i32::from_le_bytes(*reply[4..].first_chunk().unwrap()))
    };
    let ask = |opcode, node, body: &[u8]| send(&request(opcode, node, body));
    let error = |errno: rustix::io::Errno| Some(-errno.raw_os_error());
    assert_eq!(ask(GETATTR, 1, &[0; 16]), error(rustix::io::Errno::IO));
    assert_eq!(send(&first_request()), Some(0));
    assert_eq!(ask(GETATTR, 1, &[0; 16]), Some(0));
    for node in [file.0, internal, 0, 7, u64::MAX] {
        assert_eq!(ask(GETATTR, node, &[0; 16]), error(rustix::io::Errno::STALE), "{node}");
        let linked = [&node.to_le_bytes()[..], b"new\0"].concat();
        assert_eq!(ask(LINK, 1, &linked), error(rustix::io::Errno::STALE), "{node}");
    }
    // Numbers of nothing have no entry, which is a success.
    assert_eq!(ask(LOOKUP, internal, b".\0"), Some(0));
    assert_eq!(ask(GETATTR, internal, &[0; 16]), error(rustix::io::Errno::STALE));
    assert_eq!(ask(LOOKUP, file.0, b".\0"), Some(0));
    assert_eq!(ask(GETATTR, file.0, &[0; 16]), Some(0));
    // More than it holds.
    assert_eq!(ask(FORGET, file.0, &u64::MAX.to_le_bytes()), None);
    assert_eq!(ask(FORGET, file.0, &u64::MAX.to_le_bytes()), None);
    assert_eq!(ask(GETATTR, file.0, &[0; 16]), error(rustix::io::Errno::STALE));
    assert_eq!(ask(LOOKUP, 1, b"file\0"), Some(0));
    assert_eq!(ask(GETATTR, file.0, &[0; 16]), Some(0));
    // A guest that starts again knows nothing.
    assert_eq!(send(&first_request()), Some(0));
    assert_eq!(ask(GETATTR, file.0, &[0; 16]), error(rustix::io::Errno::STALE));
    guest.end().unwrap();
    image.judge();
}

/// Offsets and lengths near 2^64, in each request that has them: an error or nothing done, and the volume
/// goes on.
#[test]
fn a_guest_may_send_any_offset() {
    const LOOKUP: u32 = 1;
    const READ: u32 = 15;
    const WRITE: u32 = 16;
    const FALLOCATE: u32 = 43;
    const LSEEK: u32 = 46;
    const COPY_FILE_RANGE: u32 = 47;
    let image = Image::new(SIZE, &[]);
    let fs = image.open();
    let ino = fs.create(fs.root(), b"file", &uxfs::NewInode::file(0o644)).unwrap();
    fs.write_at(ino, 0, &[1; 100_000]).unwrap();
    let guest = MemoryGuest::new(fs, &Options::default());
    let ask = |opcode, node, body: &[u8]| guest.request(&request(opcode, node, body), 8192);
    guest.request(&first_request(), 8192);
    ask(LOOKUP, 1, b"file\0");
    let words =
        |words: &[u64]| words.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<_>>();
    let far = [u64::MAX, u64::MAX - 1, u64::MAX - 4095, 1 << 63, (1 << 63) - 1, (1 << 63) - 4096];
    for at in far {
        ask(READ, ino.0, &words(&[0, at, 4096, 0, 0]));
        ask(WRITE, ino.0, &[words(&[0, at, 3, 0, 0]), b"abc".to_vec()].concat());
        for whence in 0..6 {
            ask(LSEEK, ino.0, &words(&[0, at, whence]));
        }
        for len in [1, 4096, u64::MAX, u64::MAX - at, (1 << 63) - 1] {
            for mode in [0, 1, 3, 8, 0x10, 0x11, 0x20, 0x40] {
                ask(FALLOCATE, ino.0, &words(&[0, at, len, mode]));
                ask(FALLOCATE, ino.0, &words(&[0, len, at, mode]));
            }
            for (from, to) in [(0, at), (at, 0), (4096, at), (at, at)] {
                ask(COPY_FILE_RANGE, ino.0, &words(&[0, from, ino.0, 0, to, len, 0]));
            }
        }
        assert_eq!(guest.stopped_by(), None, "{at:#x}");
    }
    guest.end().unwrap();
    image.judge();
}

/// Flags are for owners, and those that protect a file for the guest's root.
#[test]
fn a_guests_users_do_only_what_they_may() {
    const LOOKUP: u32 = 1;
    const IOCTL: u32 = 39;
    let image = Image::new(SIZE, &[]);
    let fs = image.open();
    let mine = uxfs::NewInode { uid: 1000, ..uxfs::NewInode::file(0o644) };
    let nodes = [
        fs.create(fs.root(), b"theirs", &uxfs::NewInode::file(0o644)).unwrap(),
        fs.create(fs.root(), b"mine", &mine).unwrap(),
    ];
    let guest = MemoryGuest::new(fs, &Options::default());
    guest.request(&first_request(), 4096);
    for name in [&b"theirs\0"[..], b"mine\0"] {
        guest.request(&request(LOOKUP, 1, name), 4096);
    }
    let call = |uid: u32, node: u64, cmd: u32, data: &[u8]| {
        let sizes = [u32::try_from(data.len()).unwrap(), 28].map(u32::to_le_bytes).concat();
        let fixed = [&[0; 12][..], &cmd.to_le_bytes(), &[0; 8], &sizes].concat();
        let mut request = request(IOCTL, node, &[&fixed, data].concat());
        request[24..28].copy_from_slice(&uid.to_le_bytes());
        let reply = &guest.request(&request, 4096)[0];
        i32::from_le_bytes(*reply[4..].first_chunk().unwrap())
    };
    let refused = -rustix::io::Errno::PERM.raw_os_error();
    let [theirs, mine] = nodes.map(|ino| ino.0);
    let (nodump, immutable) = (0x40_u64.to_le_bytes(), 0x10_u64.to_le_bytes());
    let protects = [&8_u32.to_le_bytes()[..], &[0; 24]].concat();
    for cmd in [0x4008_6602, 0x4004_6602] {
        assert_eq!(call(1000, theirs, cmd, &nodump), refused, "{cmd:#x}");
        assert_eq!(call(1000, mine, cmd, &immutable), refused, "{cmd:#x}");
        assert_eq!(call(1000, mine, cmd, &nodump), 0, "{cmd:#x}");
    }
    assert_eq!(call(1000, mine, 0x401c_5820, &protects), refused);
    assert_eq!(call(0, theirs, 0x4008_6602, &immutable), 0);
    assert_eq!(call(1000, theirs, 0x4004_6602, &[0; 8]), refused);
    assert_eq!(call(0, theirs, 0x4008_6602, &[0; 8]), 0);
    guest.end().unwrap();
    image.judge();
}

/// Not a test: the process that is killed runs this.
#[test]
fn serves_a_guest_until_it_is_killed() {
    let Some(dir) = std::env::var_os(SERVE) else { return };
    let image = Image::existing(Path::new(&dir));
    let serving = serving(&image, "");
    println!("\nserving");
    serving.run(Until::Stopped).unwrap();
}

fn serve_in_a_process(image: &Image) -> Child {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "guests::serves_a_guest_until_it_is_killed", "--nocapture"])
        .env(SERVE, image.path().parent().unwrap())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    wait_for_line(&mut child, "serving");
    child
}

/// What a guest synced, in each way that there is, survives a server that is killed.
#[test]
fn what_a_guest_synced_survives_a_killed_server() {
    let image = Image::new(SIZE, &[]);
    let mut server = serve_in_a_process(&image);
    let shared = tempfile::tempdir().unwrap();
    let ready = shared.path().join("ready");
    let killer = std::thread::spawn({
        let ready = ready.clone();
        move || {
            while !ready.exists() {
                assert!(server.try_wait().unwrap().is_none(), "the server ended");
                std::thread::sleep(std::time::Duration::from_millis(10));
            }
            server.kill().unwrap();
            server.wait().unwrap();
            std::fs::write(ready.with_file_name("killed"), "").unwrap();
        }
    });
    // The end of init, but with a reset: a shutdown would wait for the server.
    let script = format!(
        "set -e\nmkdir /shared\nmount -t hostfs -o {} none /shared\n{MOUNT}cd /mnt\n\
         mkdir d; dd if=/dev/zero bs=1k count=300 2>/dev/null | tr '\\0' x >d/by-syncfs; sync\n\
         echo one >d/lost; (echo first; echo second) >/tmp/two; dd if=/tmp/two of=d/by-fsync conv=fsync 2>/dev/null\n\
         : >/shared/ready\nwhile [ ! -e /shared/killed ]; do sleep 0.1; done\n\
         echo 0 >/out/.status\ntar -c -f /drive/out -C /out .\necho uxfs-done >/dev/console\n\
         echo b >/proc/sysrq-trigger\n",
        shared.path().display()
    );
    let vm = Vm::new(Kernel::Current).share(&socket(&image)).script(&script);
    // Its kernel complains that the device is gone.
    let _ = vm.run();
    killer.join().unwrap();
    let fs = image.open();
    let read = |path: &str| {
        let ino = fs.resolve(path.as_bytes(), false).unwrap();
        let mut content = vec![0; usize::try_from(fs.stat(ino).unwrap().size).unwrap()];
        fs.read_at(ino, 0, &mut content).unwrap();
        content
    };
    assert!(read("/d/by-syncfs") == vec![b'x'; 300 << 10]);
    assert_eq!(read("/d/by-fsync"), b"first\nsecond\n");
    fs.close().unwrap();
    image.judge();
}
