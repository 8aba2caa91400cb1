//! Quotas: usage accounted in every change, judged by kernels that count anew, by xfs_quota and xfs_repair.

use std::path::Path;

use uxfs::quota::{Dquot, Limits, QuotaFlags, QuotaType};
use uxfs::volume::Location;
use uxfs::{Fs, NewInode, OpenOptions, RenameFlags, SetAttr};
use uxfs_oracle::{Kernel, Rng, db_value, db_write, vm};

use crate::edit;
use crate::volume::{Volume, setting};

/// Every type accounted and enforced.
const ALL: QuotaFlags = QuotaFlags::all().difference(QuotaFlags::CHKD);

/// The records of all types.
fn records(fs: &Fs) -> Vec<Dquot> {
    QuotaType::ALL.into_iter().flat_map(|kind| fs.dquots(kind).unwrap()).collect()
}

/// What is used: type, id, blocks, inodes.
fn used(records: &[Dquot]) -> Vec<(QuotaType, u32, u64, u64)> {
    let rows = records.iter().map(|r| (r.kind, r.id, r.blocks.used, r.inodes.used));
    rows.filter(|row| (row.2, row.3) != (0, 0)).collect()
}

fn options(quota: Option<QuotaFlags>) -> OpenOptions {
    let mut options = OpenOptions::default();
    options.quota = quota;
    options
}

/// Mounts a volume with all quotas in a kernel, and runs a script on `/mnt`. Returns what it printed.
fn in_kernel(kernel: Kernel, path: &Path, script: &str) -> String {
    let script = format!(
        "set -e\nquota() {{ /job/loaded xfs_quota -x -c \"$1\" /mnt; }}\n\
         mount -t xfs -o uquota,gquota,pquota /drive/0 /mnt\n{script}\numount /mnt\n"
    );
    let machine = vm::Vm::new(kernel).drive(path, true).host_program("/usr/sbin/xfs_quota");
    machine.script(&script).run().unwrap_or_else(|f| panic!("{f}")).stdout
}

/// What a kernel counts if it does not trust the records.
fn counted_by_kernel(kernel: Kernel, path: &Path) -> Vec<(QuotaType, u32, u64, u64)> {
    let copy = Volume::empty();
    std::fs::copy(path, &copy.path).unwrap();
    let flags: u16 = {
        let text = db_value(&copy.path, &["sb 0"], "qflags");
        u16::from_str_radix(text.trim_start_matches("0x"), 16).unwrap()
    };
    let unchecked = flags & !QuotaFlags::CHKD.bits();
    db_write(&copy.path, &["sb 0", &format!("write -d qflags {unchecked:#x}")]);
    in_kernel(kernel, &copy.path, "");
    used(&records(&copy.open_read_only()))
}

/// Gives files of a volume other owners and projects.
fn change_owners(fs: &Fs, rng: &mut Rng) {
    for found in edit::walk(fs).unwrap() {
        if !rng.once_in(4) {
            continue;
        }
        let change = SetAttr {
            uid: rng.once_in(2).then(|| 1000 + rng.below(200) as u32),
            gid: rng.once_in(2).then(|| 70_000 * rng.below(4) as u32),
            projid: rng.once_in(3).then(|| rng.below(100) as u32),
            ..SetAttr::default()
        };
        match fs.set_attr(found.ino, &change) {
            Err(error) if !edit::expected(&error) => panic!("{error}"),
            _ => {}
        }
    }
}

/// Makes directories whose projects are inherited, and files of several owners in them.
fn populate(fs: &Fs, rng: &mut Rng) {
    for project in 1..4 {
        let name = format!("project-{project}-{}", rng.below(1 << 40));
        let dir = fs.create(fs.root(), name.as_bytes(), &NewInode::dir(0o755)).unwrap();
        let mut fsx = fs.get_fsx(dir).unwrap();
        fsx.projid = project;
        fsx.xflags |= uxfs::Xflags::PROJINHERIT;
        fs.set_fsx(dir, &fsx).unwrap();
        for n in 0..10u32 {
            let mut new = NewInode::file(0o644);
            (new.uid, new.gid) = (1000 + n % 3, 500 + n % 2);
            let file = fs.create(dir, format!("f{n}").as_bytes(), &new).unwrap();
            fs.write_at(file, 0, &rng.bytes(1 + (n as usize) * 9000)).unwrap();
            if n % 4 == 0 {
                let temporary = fs.tmpfile(dir, &new).unwrap();
                fs.write_at(temporary, 0, &[7; 9000]).unwrap();
                if n % 8 == 0 {
                    fs.link_unlinked(temporary, dir, format!("t{n}").as_bytes()).unwrap();
                }
                fs.release(temporary, 1).unwrap();
            }
        }
        fs.symlink(dir, b"link", &[b'x'; 500], &NewInode::file(0o777)).unwrap();
        fs.rename_whiteout((dir, b"f1"), (dir, b"g1"), (4000, 4000)).unwrap();
        fs.rename(dir, b"f2", dir, b"f3", RenameFlags::Replace).unwrap();
    }
}

fn judge(volume: &Volume, at: &str) {
    let report = uxfs::check::image(&volume.path, &Location::whole()).unwrap();
    assert!(report.is_clean(), "{at}: {report}");
    volume.judge(at);
}

/// Usage after random changes on both sides is that which a kernel counts anew.
fn alternate(line: &str, kernel: Kernel, rounds: u64) {
    let seed = setting("UXFS_SEED", 0) * 1000;
    let volume = Volume::real(400, line);
    let mut rng = Rng::new(seed);
    volume.open_with(options(Some(ALL))).close().unwrap();
    for round in 0..rounds {
        let at = format!("{line}, seed {seed}, round {round}");
        // What the superblock names is accounted; the options say nothing.
        let mut options = options(None);
        options.writeback = (round % 2 == 1).then(uxfs::WritebackOptions::default);
        let fs = volume.open_with(options);
        populate(&fs, &mut rng);
        edit::edit(&fs, &mut rng, 200, &at);
        change_owners(&fs, &mut rng);
        edit::edit(&fs, &mut rng, 100, &at);
        // Data that waits in memory counts when it gets its blocks.
        fs.sync().unwrap();
        let in_memory = records(&fs);
        fs.close().unwrap();
        judge(&volume, &at);
        let ours = records(&volume.open_read_only());
        assert_eq!(ours, in_memory, "{at}");
        assert!(used(&ours).len() > 30, "{at}: {} records", ours.len());
        assert_eq!(used(&ours), counted_by_kernel(kernel, &volume.path), "{at}");
        // The kernel goes on from our records.
        let script = "for n in 1 2 3 4 5 6 7 8 9; do f=$(find /mnt -type f | sed -n \"${n}0p\")\n\
                      [ -z \"$f\" ] || chown 20$n:30$n \"$f\"; done";
        in_kernel(kernel, &volume.path, script);
        judge(&volume, &at);
        let theirs = records(&volume.open_read_only());
        assert_eq!(used(&theirs), counted_by_kernel(kernel, &volume.path), "{at}");
    }
}

#[test]
fn usage_is_what_the_current_kernel_counts() {
    alternate("-m rmapbt=1", Kernel::Current, setting("UXFS_ROUNDS", 2));
}

#[test]
fn usage_is_what_the_stable_kernel_counts_with_small_blocks() {
    alternate("-b size=1k -m reflink=1,bigtime=0", Kernel::Stable, setting("UXFS_ROUNDS", 1));
}

/// A kernel's first count of a volume and ours give the same records, and so do its timers and limits.
#[test]
fn the_first_count_is_that_of_a_kernel() {
    let volume = Volume::real(400, "");
    let mut rng = Rng::new(setting("UXFS_SEED", 0));
    let fs = volume.open();
    populate(&fs, &mut rng);
    change_owners(&fs, &mut rng);
    fs.close().unwrap();
    let copy = Volume::empty();
    std::fs::copy(&volume.path, &copy.path).unwrap();
    in_kernel(Kernel::Current, &copy.path, "");
    volume.open_with(options(Some(ALL))).close().unwrap();
    judge(&volume, "first count");
    let (ours, theirs) = (records(&volume.open_read_only()), records(&copy.open_read_only()));
    assert!(used(&ours).len() > 10);
    assert_eq!(ours, theirs);
    // A kernel trusts our flags: it does not count again.
    let script = "dmesg | grep -i quotacheck && exit 1 || true";
    in_kernel(Kernel::Current, &volume.path, script);
}

/// A log that was cut off is replayed by a kernel and by the library to the same records.
#[test]
fn a_log_with_dquots_is_recovered() {
    for (kernel, mode) in [(Kernel::Current, "delaylog"), (Kernel::Stable, "nodelaylog")] {
        let volume = Volume::real(400, "");
        let mut rng = Rng::new(7);
        volume.open_with(options(Some(ALL))).close().unwrap();
        let mut options = options(None);
        options.journal.apply(mode).unwrap();
        let fs = volume.open_with(options);
        populate(&fs, &mut rng);
        change_owners(&fs, &mut rng);
        let open = fs.tmpfile(fs.root(), &NewInode::file(0o600)).unwrap();
        fs.write_at(open, 0, &[1; 50_000]).unwrap();
        fs.sync().unwrap();
        // As after a power cut: the log is dirty, and a file without a name waits to be freed.
        drop(fs);
        let copy = Volume::empty();
        std::fs::copy(&volume.path, &copy.path).unwrap();
        let ours = volume.open();
        let recovery = ours.recovery().unwrap();
        assert_eq!(recovery.unlinked, 1);
        let items = &recovery.replay.items;
        assert!(items[&uxfs_format::log::ItemKind::Dquot] > 10, "{items:?}");
        ours.close().unwrap();
        judge(&volume, mode);
        in_kernel(kernel, &copy.path, "");
        judge(&copy, mode);
        let (ours, theirs) = (records(&volume.open_read_only()), records(&copy.open_read_only()));
        assert_eq!(used(&ours), used(&theirs), "{mode}");
        assert_eq!(used(&ours), counted_by_kernel(kernel, &volume.path), "{mode}");
    }
}

/// A kernel's log with dquots is recovered to what the kernel itself leaves behind.
#[test]
fn a_kernels_log_with_dquots_is_recovered() {
    let (volume, copy) = (Volume::real(400, ""), Volume::real(400, ""));
    let script = "set -e\nmount -t xfs -o uquota,gquota,pquota /drive/0 /mnt\n\
        for n in 1 2 3 4 5 6 7 8 9; do\n\
        dd if=/dev/zero of=/mnt/f$n bs=4k count=$n 2>/dev/null; chown 100$n:200$n /mnt/f$n; done\n\
        sync; dd if=/drive/0 of=/drive/1 bs=1M 2>/dev/null; umount /mnt\n";
    let machine = vm::Vm::new(Kernel::Current).drive(&volume.path, true).drive(&copy.path, true);
    machine.script(script).run().unwrap_or_else(|f| panic!("{f}"));
    let fs = copy.open();
    let items = &fs.recovery().unwrap().replay.items;
    assert!(items[&uxfs_format::log::ItemKind::Dquot] > 10, "{items:?}");
    fs.close().unwrap();
    judge(&copy, "recovered");
    let (ours, theirs) = (records(&copy.open_read_only()), records(&volume.open_read_only()));
    assert_eq!(ours, theirs);
}

/// Limits and timers of either side are read by the other.
#[test]
fn limits_and_grace_periods_go_both_ways() {
    let volume = Volume::real(400, "");
    let fs = volume.open_with(options(Some(ALL)));
    let mut new = NewInode::file(0o644);
    new.uid = 1001;
    let file = fs.create(fs.root(), b"f", &new).unwrap();
    fs.write_at(file, 0, &[1; 40960]).unwrap();
    let limits = Limits { blocks_soft: Some(5), blocks_hard: Some(5000), ..Limits::default() };
    fs.set_limits(QuotaType::User, 1001, &limits).unwrap();
    fs.close().unwrap();
    judge(&volume, "limits");
    let state = in_kernel(
        Kernel::Current,
        &volume.path,
        "quota 'report -u -b -N'\nquota 'limit -u ihard=7 1001'",
    );
    let row = state.lines().find(|line| line.starts_with("#1001")).unwrap();
    let fields: Vec<&str> = row.split_whitespace().collect();
    assert_eq!(fields[1..4], ["40", "20", "20000"], "{state}");
    assert!(!row.contains("[--------]"), "{state}");
    let fs = volume.open_read_only();
    assert_eq!(fs.dquot(QuotaType::User, 1001).unwrap().unwrap().inodes.hard, 7);
}

/// How often `step` succeeds, and the errno of its first failure.
fn until_refused(mut step: impl FnMut(u64) -> uxfs::Result<()>) -> (u64, i32) {
    for count in 0..10_000 {
        if let Err(error) = step(count) {
            return (count, error.errno());
        }
    }
    panic!("nothing was refused");
}

/// Limits of all types stop writers and creators at the same block and inode, with the same errno, as in a
/// kernel.
#[test]
fn limits_are_enforced_where_a_kernel_enforces_them() {
    // A kernel reserves some dozens of blocks for a creation, so creations come before the blocks run out.
    let script = "quota 'limit -u bhard=400k 1001'
        quota 'limit -g ihard=9 2002'
        quota 'limit -p ihard=7 bhard=600k 9'
        say() { echo $1 $(grep -o 'Disk quota exceeded\\|No space left' /tmp/e); }
        fill() { i=0; while dd if=/dev/zero of=$1 bs=4096 count=1 seek=$i conv=notrunc 2>/tmp/e; do i=$((i+1)); done; say $i; }
        create() { i=0; while touch $1/$i 2>/tmp/e; do i=$((i+1)); done; say $i; }
        touch /mnt/f; chown 1001 /mnt/f
        mkdir /mnt/g /mnt/p; chgrp 2002 /mnt/g; chmod g+s /mnt/g
        quota 'project -s -p /mnt/p 9' >/dev/null 2>&1
        touch /mnt/p/f
        fill /mnt/f; create /mnt/g; create /mnt/p; fill /mnt/p/f";
    let theirs = Volume::real(400, "");
    let text = in_kernel(Kernel::Current, &theirs.path, &format!("mkdir -p /tmp\n{script}"));
    let errno = |line: &str| match line {
        _ if line.contains("quota exceeded") => 122,
        _ if line.contains("No space left") => 28,
        _ => panic!("{text}"),
    };
    let theirs: Vec<(u64, i32)> = text
        .lines()
        .map(|line| (line.split(' ').next().unwrap().parse().unwrap(), errno(line)))
        .collect();
    for delayed in [false, true] {
        let volume = Volume::real(400, "");
        let mut options = options(Some(ALL));
        options.writeback = delayed.then(uxfs::WritebackOptions::default);
        let fs = volume.open_with(options);
        let set = |kind, id, blocks, inodes| {
            let limits = Limits { blocks_hard: blocks, inodes_hard: inodes, ..Limits::default() };
            fs.set_limits(kind, id, &limits).unwrap();
        };
        set(QuotaType::User, 1001, Some(100), None);
        set(QuotaType::Group, 2002, None, Some(9));
        set(QuotaType::Project, 9, Some(150), Some(7));
        let mut new = NewInode::file(0o644);
        new.uid = 1001;
        let file = fs.create(fs.root(), b"f", &new).unwrap();
        new.uid = 0;
        let [in_group, in_project] = [b"g", b"p"].map(|name| {
            let mut dir = NewInode::dir(0o755);
            dir.gid = if name == b"g" { 2002 } else { 0 };
            fs.create(fs.root(), name, &dir).unwrap()
        });
        let mut fsx = fs.get_fsx(in_project).unwrap();
        fsx.projid = 9;
        fsx.xflags |= uxfs::Xflags::PROJINHERIT;
        fs.set_fsx(in_project, &fsx).unwrap();
        let append = |ino| move |at: u64| (ino, at * 4096);
        let write = |(ino, at)| fs.write_at(ino, at, &[5; 4096]);
        let user = until_refused(|at| write(append(file)(at)));
        let grouped = NewInode { gid: 2002, ..new.clone() };
        let group =
            until_refused(|n| fs.create(in_group, format!("{n}").as_bytes(), &grouped).map(|_| ()));
        let data = fs.create(in_project, b"f", &new).unwrap();
        let project =
            until_refused(|n| fs.create(in_project, format!("{n}").as_bytes(), &new).map(|_| ()));
        let blocks = until_refused(|at| write(append(data)(at)));
        assert_eq!([user, group, project, blocks][..], theirs[..], "delayed: {delayed}\n{text}");
        // What is freed can be used again.
        fs.truncate(file, 4096 * 50).unwrap();
        assert_eq!(until_refused(|at| write(append(file)(50 + at))).0, 50);
        fs.close().unwrap();
        judge(&volume, "at the limits");
    }
}

/// A record that says more than 2^63 is corrected by the next count.
#[test]
fn a_count_corrects_a_record_that_says_far_too_much() {
    const MARK: u64 = 0x0123_4567_89ab_cdef;
    // Offset in a record of the blocks that are used.
    const USED: usize = 40;
    let volume = Volume::real(400, "");
    let fs = volume.open_with(options(Some(ALL)));
    let mut new = NewInode::file(0o644);
    new.uid = 1001;
    let file = fs.create(fs.root(), b"f", &new).unwrap();
    fs.write_at(file, 0, &[7; 40_960]).unwrap();
    fs.close().unwrap();
    // The record of user 1001 on the device: two numbers that xfs_db puts there mark the places.
    for field in ["bcount", "icount"] {
        let write = format!("write -d diskdq.{field} {MARK:#x}");
        db_write(&volume.path, &["dquot -u 1001", &write]);
    }
    let mut image = std::fs::read(&volume.path).unwrap();
    let marks: Vec<usize> = (0..image.len() / 8)
        .map(|word| word * 8)
        .filter(|at| image[*at..][..8] == MARK.to_be_bytes())
        .collect();
    let [blocks, inodes] = marks[..] else { panic!("{marks:?}") };
    image[blocks..][..8].copy_from_slice(&((1u64 << 63) + 100).to_be_bytes());
    image[inodes..][..8].copy_from_slice(&u64::MAX.to_be_bytes());
    let record = blocks - USED;
    uxfs_format::crc::stamp(&mut image[record..][..136], uxfs_format::dquot::CRC_OFFSET);
    std::fs::write(&volume.path, image).unwrap();
    let record = volume.open_read_only().dquot(QuotaType::User, 1001).unwrap().unwrap();
    assert_eq!((record.blocks.used, record.inodes.used), ((1 << 63) + 100, u64::MAX));
    let flags: u16 = {
        let text = db_value(&volume.path, &["sb 0"], "qflags");
        u16::from_str_radix(text.trim_start_matches("0x"), 16).unwrap()
    };
    let unchecked = flags & !QuotaFlags::CHKD.bits();
    db_write(&volume.path, &["sb 0", &format!("write -d qflags {unchecked:#x}")]);
    let fs = volume.open_with(options(Some(ALL)));
    let record = fs.dquot(QuotaType::User, 1001).unwrap().unwrap();
    assert_eq!((record.blocks.used, record.inodes.used), (10, 1));
    fs.close().unwrap();
    judge(&volume, "counted anew");
}

/// A soft limit binds when its grace period is over.
#[test]
fn a_soft_limit_binds_after_its_grace_period() {
    let volume = Volume::real(400, "");
    let second = 1_800_000_000;
    let open = |sec: i64| {
        let mut options = options(Some(ALL));
        let moment = uxfs_format::timestamp::Timestamp { sec, nsec: 0 };
        options.clock = uxfs::clock::Clock::Fixed(moment);
        volume.open_with(options)
    };
    let fs = open(second);
    let grace = Limits { inodes_timer: Some(60), ..Limits::default() };
    fs.set_limits(QuotaType::User, 0, &grace).unwrap();
    let limits = Limits { inodes_soft: Some(2), ..Limits::default() };
    fs.set_limits(QuotaType::User, 1001, &limits).unwrap();
    let mut new = NewInode::file(0o644);
    new.uid = 1001;
    for name in [b"a", b"b", b"c", b"d"] {
        fs.create(fs.root(), name, &new).unwrap();
    }
    assert_eq!(fs.dquot(QuotaType::User, 1001).unwrap().unwrap().inodes.timer, second as u64 + 60);
    fs.close().unwrap();
    let fs = open(second + 60);
    fs.create(fs.root(), b"e", &new).unwrap();
    fs.close().unwrap();
    let fs = open(second + 61);
    assert_eq!(fs.create(fs.root(), b"f", &new).unwrap_err().errno(), 122);
    for name in [b"a", b"b", b"c"] {
        fs.unlink(fs.root(), name).unwrap();
    }
    assert_eq!(fs.dquot(QuotaType::User, 1001).unwrap().unwrap().inodes.timer, 0);
    fs.create(fs.root(), b"f", &new).unwrap();
    fs.close().unwrap();
    judge(&volume, "after the grace period");
}

/// A record may lie in two sectors, of which a power cut writes one. Recovery takes it from the log then, up to
/// its last change.
#[test]
fn a_torn_record_is_recovered() {
    // The fourth record of a block of 30 ends in the block's second sector, where its LSN is.
    const ID: u32 = 33;
    const AT: usize = 3 * uxfs_format::dquot::LEN;
    let volume = Volume::real(400, "");
    let fs = volume.open_with(options(Some(ALL)));
    let mut new = NewInode::file(0o644);
    new.uid = ID;
    let file = fs.create(fs.root(), b"f", &new).unwrap();
    fs.close().unwrap();
    let fs = volume.open_with(options(None));
    for block in 0..4 {
        fs.write_at(file, block * 4096, &[7; 4096]).unwrap();
        fs.sync().unwrap();
    }
    fs.stop("a power cut");
    drop(fs);
    let mut image = std::fs::read(&volume.path).unwrap();
    let is_record = |raw: &[u8]| {
        raw.starts_with(b"DQ")
            && raw[4..8] == ID.to_be_bytes()
            && uxfs_format::crc::matches(raw, uxfs_format::dquot::CRC_OFFSET)
    };
    let record = |raw: &mut [u8]| raw[AT..][..uxfs_format::dquot::LEN].to_vec();
    let mut blocks: Vec<_> = image
        .chunks_exact_mut(4096)
        .filter_map(|raw| is_record(&record(raw)).then_some(raw))
        .collect();
    let [block] = &mut blocks[..] else { panic!("{} records of {ID}", blocks.len()) };
    let last = uxfs_format::Lsn::new(1, 0xffff);
    uxfs_format::dquot::LSN.set(&mut block[AT..], last);
    std::fs::write(&volume.path, image).unwrap();
    let fs = volume.open_with(options(None));
    assert!(fs.recovery().is_some_and(|recovery| recovery.replay.torn > 0));
    assert_eq!(fs.dquot(QuotaType::User, ID).unwrap().unwrap().blocks.used, 4);
    fs.close().unwrap();
    judge(&volume, "after a torn record");
}
