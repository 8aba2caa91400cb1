//! `uxfs-lister DIR`: prints the [`uxfs_oracle::Listing`] of a tree.

use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

fn main() -> ExitCode {
    let Some(dir) = std::env::args_os().nth(1) else {
        eprintln!("usage: uxfs-lister DIR");
        return ExitCode::from(2);
    };
    let printed = uxfs_oracle::lister::list(Path::new(&dir))
        .and_then(|listing| std::io::stdout().lock().write_all(listing.to_string().as_bytes()));
    match printed {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("uxfs-lister: {}: {e}", Path::new(&dir).display());
            ExitCode::FAILURE
        }
    }
}
