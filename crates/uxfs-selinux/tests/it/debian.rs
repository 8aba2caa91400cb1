//! Debian's policy, and the files of this machine.

use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use uxfs_selinux::{FileContexts, FileKind};

use crate::oracle::{Query, compare};

const RULES: &str = "/etc/selinux/default/contexts/files/file_contexts";

/// The files below `dir`, with directories before their content.
fn files(dir: PathBuf, queries: &mut Vec<Query>, limit: usize) {
    let mut dirs = vec![dir];
    while let Some(dir) = dirs.pop() {
        let Ok(entries) = std::fs::read_dir(&dir) else { continue };
        for entry in entries.flatten() {
            let Ok(meta) = entry.path().symlink_metadata() else { continue };
            let path = entry.path();
            queries.push((
                FileKind::of_mode(meta.mode()).unwrap(),
                path.as_os_str().as_bytes().to_vec(),
            ));
            if meta.is_dir() {
                dirs.push(path);
            }
        }
        if queries.len() >= limit {
            return;
        }
    }
}

fn machine(limit: usize) -> Vec<Query> {
    let mut queries = vec![(FileKind::Dir, b"/".to_vec())];
    for top in ["etc", "var", "dev", "usr/lib", "usr/bin", "usr/sbin", "home", "root", "usr"] {
        queries.push((FileKind::Dir, format!("/{top}").into_bytes()));
        let limit = queries.len() + limit;
        files(Path::new("/").join(top), &mut queries, limit);
    }
    queries
}

#[test]
fn labels_of_this_machine_equal_libselinux() {
    let contexts = FileContexts::load(&[RULES]).unwrap();
    let mut queries = machine(700);
    // The same paths where aliases lead, and where the rules for users' homes apply.
    for (from, to) in [
        ("/usr/lib", "/lib"),
        ("/usr/lib", "/usr/local/lib64"),
        ("/etc", "/home/joe"),
        ("/etc", "/run"),
    ] {
        let moved: Vec<Query> = queries
            .iter()
            .filter_map(|(kind, path)| {
                let rest = path.strip_prefix(from.as_bytes())?;
                Some((*kind, [to.as_bytes(), rest].concat()))
            })
            .collect();
        queries.extend(moved);
    }
    let labelled = compare(&contexts, Path::new(RULES), &queries);
    assert!(labelled > 1000, "{labelled} of {} files have a label", queries.len());
}

#[test]
#[ignore = "long"]
fn labels_of_all_files_of_this_machine_equal_libselinux() {
    let contexts = FileContexts::load(&[RULES]).unwrap();
    let queries = machine(usize::MAX / 2);
    let start = std::time::Instant::now();
    let mut lookup = contexts.lookup();
    for (kind, path) in &queries {
        lookup.label(path, *kind).unwrap();
    }
    let each = start.elapsed() / u32::try_from(queries.len()).unwrap();
    let labelled = compare(&contexts, Path::new(RULES), &queries);
    println!("{} files, {labelled} with a label, {each:?} each", queries.len());
}
