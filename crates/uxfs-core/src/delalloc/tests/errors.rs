//! Devices that fail data writes.

use uxfs_testkit::{Op, Rule};

use super::{content, fill, volume};
use crate::{Error, SyncKind, WritebackOptions};

#[test]
fn each_handle_reports_a_write_error_once_and_no_data_is_lost() {
    let v = volume("", WritebackOptions::default());
    let (bad, good) = (v.file("bad"), v.file("good"));
    v.fs.write_at(bad, 0, &[1; 10_000]).unwrap();
    v.fs.write_at(good, 0, &[1; 10_000]).unwrap();
    v.fs.sync().unwrap();
    let mut handles = [v.fs.error_cursor(bad), v.fs.error_cursor(bad)];
    let at = v.fs.segments(bad).unwrap()[0].device.unwrap();
    fill(&v.dev, at..at + 10_000, 5);
    for file in [bad, good] {
        v.fs.write_at(file, 100, &[2; 50]).unwrap();
        v.fs.write_at(file, 20_000, &[2; 50]).unwrap();
    }
    // The tick keeps the error for a later sync.
    v.fs.writeback_tick(uxfs_journal::Time(0)).unwrap();
    v.fs.writeback_tick(uxfs_journal::Time(1 << 40)).unwrap();
    v.fs.writeback_tick(uxfs_journal::Time(1 << 41)).unwrap();
    assert!(matches!(v.fs.sync(), Err(Error::Io { .. })));
    v.dev.clear();
    for handle in &mut handles {
        let error = v.fs.begin_fsync(bad, SyncKind::All, handle).unwrap_err();
        assert_eq!(error.errno(), 5);
        let ticket = v.fs.begin_fsync(bad, SyncKind::All, handle).unwrap();
        v.fs.wait(ticket).unwrap();
        v.fs.check_data_errors(bad, handle).unwrap();
    }
    assert_eq!(v.fs.fsync(bad).unwrap_err().errno(), 5);
    v.fs.fsync(bad).unwrap();
    v.fs.fsync(good).unwrap();
    let mut expected = vec![0; 20_050];
    expected[..10_000].fill(1);
    expected[100..150].fill(2);
    expected[20_000..].fill(2);
    let v = v.cut();
    assert_eq!(content(&v.fs, bad), expected);
    assert_eq!(content(&v.fs, good), expected);
    v.judge();
}

#[test]
fn a_file_whose_data_cannot_be_written_can_be_removed() {
    let limit = WritebackOptions { dirty_bytes: 1 << 20, ..WritebackOptions::default() };
    let v = volume("", limit);
    let available = v.fs.available_blocks();
    let (bad, cut) = (v.file("bad"), v.file("cut"));
    v.fs.wait(v.fs.ticket()).unwrap();
    let log = v.fs.geo.fsb_daddr(v.fs.geo.log_start).bytes();
    // The range of data, without the first inodes and directories.
    let data = u64::from(v.fs.geo.ag_blocks / 16) << v.fs.geo.block_log;
    fill(&v.dev, data..log, 5);
    v.fs.write_at(bad, 0, &[1; 300_000]).unwrap();
    v.fs.write_at(cut, 0, &[1; 300_000]).unwrap();
    assert_eq!(v.fs.fsync(bad).unwrap_err().errno(), 5);
    assert_eq!(v.fs.stat(bad).unwrap().size, 300_000);
    // A writer that needs memory gets the error, and does not wait forever.
    let full = (0..10).find_map(|at| v.fs.write_at(cut, at << 18, &[1; 1 << 18]).err());
    assert_eq!(full.unwrap().errno(), 5);
    v.fs.truncate(cut, 0).unwrap();
    v.fs.unlink(v.fs.root(), b"bad").unwrap();
    assert_eq!(v.fs.dirty_bytes(), 0);
    v.dev.clear();
    v.fs.sync().unwrap();
    v.fs.unlink(v.fs.root(), b"cut").unwrap();
    v.fs.sync().unwrap();
    assert_eq!(v.fs.available_blocks(), available);
    v.judge();
}

/// Neither the data in memory nor the length changes, so no later write takes shared blocks for what lies
/// behind the end.
#[test]
fn a_failed_truncate_changes_nothing() {
    let v = volume("-m rmapbt=1", WritebackOptions::default());
    let (one, two) = (v.file("a"), v.file("b"));
    v.fs.write_at(one, 0, &[1; 1 << 20]).unwrap();
    v.fs.clone_file(one, two).unwrap();
    let tail = v.fs.segments(one).unwrap()[0].device.unwrap() + 24 * 4096;
    v.fs.write_at(two, 0, &[2; 1 << 20]).unwrap();
    v.dev.add(Rule::on(&[Op::Read]).within(tail..tail + 4096).fail(5));
    assert_eq!(v.fs.truncate(two, 100_000).unwrap_err().errno(), 5);
    v.dev.clear();
    let mut expected = vec![2; 1 << 20];
    assert!(content(&v.fs, two) == expected, "data that was written is gone");
    v.fs.write_at(two, 500_000, &[3; 9000]).unwrap();
    expected[500_000..509_000].fill(3);
    assert!(content(&v.fs, two) == expected);
    assert!(content(&v.fs, one) == [1; 1 << 20], "the other file changed");
    v.fs.truncate(two, 100_000).unwrap();
    v.fs.truncate(two, 200_000).unwrap();
    v.fs.sync().unwrap();
    let v = v.cut();
    assert!(content(&v.fs, one) == [1; 1 << 20], "the other file changed");
    v.judge();
}

/// Dirty data below the new length is written before it counts on disk, the rest never.
#[test]
fn a_truncate_beyond_the_length_on_disk_writes_what_is_left() {
    let v = volume("", WritebackOptions::default());
    let file = v.file("a");
    v.fs.write_at(file, 0, &[1; 10_000]).unwrap();
    v.fs.fsync(file).unwrap();
    let free = v.fs.available_blocks();
    v.fs.write_at(file, 0, &[2; 300_000]).unwrap();
    v.fs.write_at(file, 500_000, &[3; 300_000]).unwrap();
    v.data_writes();
    v.fs.truncate(file, 520_000).unwrap();
    let mut expected = vec![2; 520_000];
    expected[300_000..].fill(0);
    expected[500_000..].fill(3);
    assert!(content(&v.fs, file) == expected);
    let bytes: u64 = v.data_writes().iter().map(|(_, len)| len).sum();
    assert!(bytes < 350_000, "{bytes} bytes");
    assert!(v.fs.available_blocks() >= free - 80);
    assert_eq!(v.fs.dirty_bytes(), 0);
    v.fs.wait(v.fs.ticket()).unwrap();
    let v = v.cut();
    assert!(content(&v.fs, file) == expected);
    v.judge();
}
