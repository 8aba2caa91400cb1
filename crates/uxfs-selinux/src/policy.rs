//! The policy that a tree holds: which one it uses, and where its rules are.

use std::io;
use std::path::{Path, PathBuf};

use crate::error::ContextsError;

/// A tree that holds a policy: a directory, an image, or files of an archive.
pub trait PolicyRoot {
    /// The content of the file at this absolute path within the tree, with symbolic links resolved
    /// within the tree; `None` if there is no such file.
    ///
    /// # Errors
    /// The file cannot be read.
    fn read(&mut self, path: &Path) -> io::Result<Option<Vec<u8>>>;
}

const CONFIG: &str = "/etc/selinux/config";
/// The policy of a config that names none.
const DEFAULT: &str = "targeted";

/// The path of the rules that the tree's configuration names.
pub(crate) fn find(root: &mut dyn PolicyRoot) -> Result<PathBuf, ContextsError> {
    let config = Path::new(CONFIG);
    let Some(text) = read(root, config)? else {
        return Err(ContextsError::NoPolicy(format!("it has no {CONFIG}")));
    };
    let mut found = DEFAULT.to_owned();
    for (at, line) in text.split(|byte| *byte == b'\n').enumerate() {
        let Some(name) = line.trim_ascii().strip_prefix(b"SELINUXTYPE=") else { continue };
        let name = String::from_utf8_lossy(name.trim_ascii()).into_owned();
        if name.is_empty() || name.starts_with('.') || name.contains('/') {
            let what = format!("SELINUXTYPE is '{name}', which cannot be the name of a policy");
            return Err(ContextsError::Line { file: config.to_owned(), line: at + 1, what });
        }
        found = name;
    }
    Ok(PathBuf::from(format!("/etc/selinux/{found}/contexts/files/file_contexts")))
}

pub(crate) fn read(
    root: &mut dyn PolicyRoot,
    path: &Path,
) -> Result<Option<Vec<u8>>, ContextsError> {
    root.read(path).map_err(|source| ContextsError::Io { file: path.to_owned(), source })
}
