//! `uxfs bench`: uxfs beside the alternatives, in one run.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use uxfs_bench::{BenchError, Report, check, creates, import};

use crate::number;
use crate::session::{Failure, Result, Session};

/// Measure uxfs beside the alternatives, on this machine, in one run
///
/// Each figure comes with what a power cut right after it would cost. Alternatives that need root
/// (a loop mount) are left out without it.
#[derive(Args)]
#[command(after_help = "Examples:\n  \
    uxfs bench import linux-6.1.tar\n  \
    uxfs bench creates --files 200000 --rounds 5 --json")]
pub(crate) struct Options {
    #[command(subcommand)]
    what: What,
    /// As a JSON document
    #[arg(long, global = true)]
    pub(crate) json: bool,
    /// How often each is measured
    #[arg(long, global = true, default_value_t = 3, value_name = "N")]
    rounds: u32,
    /// Directory to measure on: its file system counts
    #[arg(long, global = true, value_name = "DIR")]
    dir: Option<PathBuf>,
}

#[derive(Subcommand)]
enum What {
    /// A tarball into an image and back, beside root's way and the floor of copying it
    #[command(after_help = "Examples:\n  uxfs bench import --size 8G linux-6.1.tar")]
    Import {
        /// The tarball, not compressed
        #[arg(value_name = "TAR")]
        tar: PathBuf,
        /// Size of the images
        #[arg(long, default_value = "4G", value_parser = parse_size, value_name = "SIZE")]
        size: u64,
    },
    /// Creates of empty files, in process, beside fs_mark on the kernel's XFS
    #[command(after_help = "Examples:\n  uxfs bench creates --files 200000 --rounds 5 --json")]
    Creates {
        /// Files in each round
        #[arg(long, default_value_t = 100_000, value_name = "N")]
        files: u32,
    },
    /// Checks of whole volumes, beside xfs_repair -n, with the memory of both
    #[command(after_help = "Examples:\n  uxfs bench check disk.img\n  \
                            uxfs bench check --files 1000000 --rounds 5")]
    Check {
        /// Files of a volume that is made for this; 0 for none
        #[arg(long, default_value_t = 0, value_name = "N")]
        files: u32,
        /// Sound volumes, which are only read
        #[arg(value_name = "IMAGE", required_unless_present = "files")]
        images: Vec<PathBuf>,
    },
}

fn parse_size(text: &str) -> std::result::Result<u64, String> {
    number::size(text).ok_or_else(|| "not a size such as 4G".into())
}

/// Measures, and prints the tables.
pub(crate) fn run(options: &Options, session: &Session) -> Result<()> {
    let failed = |e: BenchError| Failure::bare(e.to_string());
    let dir = options.dir.clone().unwrap_or_else(std::env::temp_dir);
    let rounds = options.rounds.max(1);
    let mut say = |words: &str| eprintln!("uxfs: bench: {words}");
    let reports: Vec<Report> = match &options.what {
        What::Import { tar, size } => {
            let uxfs = std::env::current_exe().map_err(|e| Failure::host("uxfs", &e))?;
            let (tar, size) = (tar.clone(), *size);
            let wanted = import::Options { tar, dir, uxfs, rounds, size };
            import::run_all(&wanted, &mut say).map_err(failed)?
        }
        What::Check { files, images } => {
            let uxfs = std::env::current_exe().map_err(|e| Failure::host("uxfs", &e))?;
            let (images, files) = (images.clone(), *files);
            let wanted = check::Options { images, files, dir, uxfs, rounds };
            check::run_all(&wanted, &mut say).map_err(failed)?
        }
        What::Creates { files } => {
            let wanted = creates::Options { dir, rounds, files: *files };
            vec![creates::run_all(&wanted, &mut say).map_err(failed)?]
        }
    };
    if options.json {
        let all: Vec<_> = reports.iter().map(Report::json).collect();
        return session.print(format!("{:#}\n", serde_json::Value::Array(all)));
    }
    for report in reports {
        session.print(report.to_string())?;
    }
    Ok(())
}
