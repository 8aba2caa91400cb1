//! What is wrong with a file is said with its name and line.

use std::path::Path;
use std::time::{Duration, Instant};

use uxfs_selinux::{ContextsError, FileContexts, FileKind, PolicyRoot};

use crate::oracle::Policy;

fn error(files: &[(&str, &str)]) -> String {
    let policy = Policy::new(files);
    let error = FileContexts::load(&[policy.file()]).unwrap_err().to_string();
    error.replace(&policy.file().display().to_string(), "FILE")
}

#[test]
fn a_line_that_is_no_rule_is_named() {
    for (text, want) in [
        ("# first\n/a\n", "FILE, line 2: has no label"),
        ("/a -- \n", "FILE, line 1: has no label"),
        ("/a b c\n", "FILE, line 1: 'b' is not a type of file"),
        ("/a -z u:r:t\n", "FILE, line 1: '-z' is not a type of file"),
        (
            "/a u:r:t\n/b( u:r:t\n",
            "FILE, line 2: '/b(' is not a regular expression: missing closing parenthesis",
        ),
        (
            "/a/b) u:r:t\n",
            "FILE, line 1: '/a/b)' is not a regular expression: unmatched closing parenthesis",
        ),
        ("/a[ u:r:t\n", "FILE, line 1: '/a[' is not a regular expression: missing terminating ]"),
        ("/\u{e4} u:r:t\n", "FILE, line 1: has a character that is not printable ASCII"),
        ("/a\0 u:r:t\n", "FILE, line 1: has a character that is not printable ASCII"),
    ] {
        let error = error(&[("", text)]);
        assert!(error.starts_with(want), "{error}");
    }
    let other = error(&[("", "/a u:r:t\n"), (".local", "\n\n/b\n")]);
    assert!(other.starts_with("FILE.local, line 3: has no label"), "{other}");
    let subs = error(&[("", "/a u:r:t\n"), (".subs_dist", "/b /c\n/d\n")]);
    assert!(subs.starts_with("FILE.subs_dist, line 2: needs two paths"), "{subs}");
    let missing = FileContexts::load(&["/nonexistent/file_contexts"]).unwrap_err();
    assert!(missing.to_string().starts_with("/nonexistent/file_contexts: "), "{missing}");
}

#[test]
fn an_expression_that_explodes_ends_with_an_error() {
    let policy = Policy::new(&[("", "/.* u:r:any\n# next\n/(x+x+)+[yz] u:r:bomb\n")]);
    let contexts = policy.load();
    let path = [b"/".as_slice(), &[b'x'; 80]].concat();
    let start = Instant::now();
    let error = contexts.lookup().label(&path, FileKind::File).unwrap_err();
    // An hour would not be enough without the limit; the bound leaves room for a busy machine.
    assert!(start.elapsed() < Duration::from_secs(60));
    let ContextsError::Match { line: 3, .. } = &error else { panic!("{error}") };
    let text = error.to_string();
    assert!(text.contains("file_contexts, line 3: ") && text.contains("match limit"), "{text}");
    assert_eq!(contexts.lookup().label(b"/xxxy", FileKind::File).unwrap(), Some(&b"u:r:bomb"[..]));
}

/// A tree that has these files.
struct Files(&'static [(&'static str, &'static str)]);

impl PolicyRoot for Files {
    fn read(&mut self, path: &Path) -> std::io::Result<Option<Vec<u8>>> {
        let found = self.0.iter().find(|(name, _)| Path::new(name) == path);
        Ok(found.map(|(_, text)| text.as_bytes().to_vec()))
    }
}

#[test]
fn the_policy_of_a_tree_is_found() {
    const RULES: &str = "/etc/selinux/mls/contexts/files/file_contexts";
    const LOCAL: &str = "/etc/selinux/mls/contexts/files/file_contexts.local";
    const CONFIG: &str = "/etc/selinux/config";
    let mut files = Files(&[
        (CONFIG, "# SELINUXTYPE=no\nSELINUX=disabled\n SELINUXTYPE=mls \n"),
        (RULES, "/a u:r:t\n"),
        (LOCAL, "/a u:r:local\n"),
    ]);
    let contexts = FileContexts::auto(&mut files).unwrap();
    assert_eq!(contexts.lookup().label(b"/a", FileKind::File).unwrap(), Some(&b"u:r:local"[..]));
    let error = |files| FileContexts::auto(&mut Files(files)).unwrap_err().to_string();
    assert!(error(&[]).contains("it has no /etc/selinux/config"));
    assert!(error(&[(CONFIG, "")]).contains("/etc/selinux/targeted/contexts/files/file_contexts"));
    let outside = error(&[(CONFIG, "\nSELINUXTYPE=../../x\n")]);
    assert!(outside.starts_with("/etc/selinux/config, line 2: "), "{outside}");
    assert!(
        error(&[(CONFIG, "SELINUXTYPE=mls"), (RULES, "/a\n")]).contains("file_contexts, line 1")
    );
}
