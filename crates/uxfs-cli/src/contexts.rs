//! The option `--file-contexts`: rules for SELinux labels.

use std::path::PathBuf;

use clap::Args;
use uxfs::labels::Labels;

use crate::session::{Failure, Result};

/// The option, for commands that make files.
#[derive(Args)]
pub(crate) struct LabelOptions {
    /// Give files the SELinux labels that the rules in FILE (file_contexts(5)) name, instead of those
    /// of the source. FILE.homedirs, FILE.local, FILE.subs and FILE.subs_dist are read too, if they
    /// exist. auto: the rules of the policy that /etc/selinux/config in the image names
    #[arg(long, value_name = "FILE,...|auto", value_delimiter = ',')]
    file_contexts: Vec<PathBuf>,
}

impl LabelOptions {
    /// The rules; `None` if the option is not given.
    pub(crate) fn labels(&self) -> Result<Option<Labels>> {
        if self.file_contexts.is_empty() {
            return Ok(None);
        }
        labels(&self.file_contexts).map(Some)
    }
}

/// The rules in these files, or those of the tree if the only name is `auto`.
pub(crate) fn labels(names: &[PathBuf]) -> Result<Labels> {
    if names.len() > 1 && names.iter().any(|name| name.as_os_str() == "auto") {
        return Err(Failure::bare("--file-contexts: auto cannot be combined with files"));
    }
    Labels::from_names(names).map_err(|error| Failure::bare(error.to_string()))
}
