//! What goes into the machine (cpio, `newc`) and what comes out of it (tar), in as little code as
//! will do: every name is short and every file is small.

use std::collections::BTreeMap;

/// Permission bits with a directory's or a regular file's type.
const DIR: u32 = 0o040_755;
const FILE: u32 = 0o100_755;

/// The second part of the initramfs: `files` by path (no leading `/`), in `job` or at the top.
/// The kernel unpacks it over the first part.
pub(super) fn cpio(files: &[(String, &[u8])]) -> Vec<u8> {
    let mut out = Vec::new();
    member(&mut out, "job", DIR, &[]);
    for (path, content) in files {
        member(&mut out, path, FILE, content);
    }
    member(&mut out, "TRAILER!!!", 0, &[]);
    out
}

fn member(out: &mut Vec<u8>, path: &str, mode: u32, content: &[u8]) {
    out.extend_from_slice(b"070701");
    // ino, mode, uid, gid, nlink, mtime, size, device and rdev (major, minor), name's size, check
    let fields = [0, mode as usize, 0, 0, 1, 0, content.len(), 0, 0, 0, 0, path.len() + 1, 0];
    for field in fields {
        out.extend_from_slice(format!("{field:08x}").as_bytes());
    }
    out.extend_from_slice(path.as_bytes());
    out.push(0);
    out.resize(out.len().next_multiple_of(4), 0);
    out.extend_from_slice(content);
    out.resize(out.len().next_multiple_of(4), 0);
}

/// The regular files of a tar, by their names without `./`; none if it was cut short.
pub(super) fn untar(tar: &[u8]) -> Option<BTreeMap<String, Vec<u8>>> {
    let mut files = BTreeMap::new();
    let mut at = 0;
    loop {
        let header = tar.get(at..at + 512)?;
        if header.iter().all(|&b| b == 0) {
            return Some(files);
        }
        let word = |from: usize, len: usize| {
            let bytes = &header[from..from + len];
            let end = bytes.iter().position(|&b| b == 0 || b == b' ').unwrap_or(len);
            String::from_utf8_lossy(&bytes[..end]).into_owned()
        };
        let size = usize::from_str_radix(&word(124, 12), 8).ok()?;
        if matches!(header[156], b'0' | 0) {
            let name = word(0, 100).trim_start_matches("./").to_owned();
            files.insert(name, tar.get(at + 512..at + 512 + size)?.to_vec());
        }
        at += 512 + size.next_multiple_of(512);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    #[test]
    fn tar_writes_what_untar_reads() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("a"), vec![7; 1000]).unwrap();
        std::fs::write(dir.path().join("empty"), b"").unwrap();
        let tar = Command::new(crate::program("busybox", "busybox-static"))
            .args(["tar", "-c", "-f", "-", "-C"])
            .arg(dir.path())
            .arg(".")
            .stderr(Stdio::inherit())
            .output()
            .unwrap()
            .stdout;
        let files = untar(&tar).unwrap();
        assert_eq!(files.len(), 2);
        assert_eq!(files["a"], vec![7; 1000]);
        assert_eq!(untar(&tar[..600]), None);
    }
}
