//! The complaints of a tool or a kernel about an image.
//!
//! Made by `tools` and `vm`, printed by the test that fails.

use std::fmt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The complaints of one judge about an image. `Display` prints everything, on several lines.
#[derive(Debug, Clone)]
pub struct Finding {
    /// The judge: `xfs_repair -n`, `kernel 6.1.0-50-cloud-amd64`, …
    pub judge: String,
    /// The image; `None` if it is not known which of several.
    pub image: Option<PathBuf>,
    /// The judge's output.
    pub lines: Vec<String>,
    /// The path of the copy of the image (`UXFS_KEEP`).
    pub kept: Option<PathBuf>,
}

impl Finding {
    /// A finding of `judge`. Copies the image if `UXFS_KEEP` is set.
    #[must_use]
    pub fn new(judge: &str, image: Option<&Path>, lines: Vec<String>) -> Self {
        let image = image.map(Path::to_path_buf);
        let kept = image.as_deref().and_then(keep);
        Self { judge: judge.to_owned(), image, lines, kept }
    }

    /// Does any line contain `words`?
    #[must_use]
    pub fn says(&self, words: &str) -> bool {
        self.lines.iter().any(|line| line.contains(words))
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} complains", self.judge)?;
        if let Some(image) = &self.image {
            write!(f, " of {}", image.display())?;
        }
        match &self.kept {
            Some(kept) => writeln!(f, " (kept as {}):", kept.display())?,
            None => writeln!(f, " (UXFS_KEEP=DIR keeps the image):")?,
        }
        for line in &self.lines {
            writeln!(f, "    {line}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Finding {}

/// Copies the image into `$UXFS_KEEP`, with its holes.
fn keep(image: &Path) -> Option<PathBuf> {
    let dir = PathBuf::from(std::env::var_os("UXFS_KEEP")?);
    std::fs::create_dir_all(&dir).ok()?;
    let name = image.file_name()?.to_string_lossy();
    let thread = std::thread::current();
    let test = thread.name().unwrap_or("main").replace("::", ".");
    let kept = dir.join(format!("{test}.{}.{name}", std::process::id()));
    let copied = Command::new("cp").arg("--sparse=always").arg(image).arg(&kept).status();
    copied.is_ok_and(|status| status.success()).then_some(kept)
}
