//! `uxfs bench`: measures uxfs and its alternatives in one run.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};
use uxfs::journal::JournalOptions;
use uxfs_bench::{
    BenchError, Report, Table, check, creates, dbench, fs_mark, import, mount, recovery,
};

use crate::number;
use crate::session::{Failure, Result, Session};

/// Measure uxfs and its alternatives on this machine, in one run
///
/// Each figure comes with the loss that a power cut right afterwards would cause. Without root,
/// alternatives that need it (a loop mount) are left out.
#[derive(Args)]
#[command(after_help = "Examples:\n  \
    uxfs bench import linux-6.1.tar\n  \
    uxfs bench fs-mark --pattern durable\n  \
    uxfs bench creates --files 200000 --rounds 5 --json")]
pub(crate) struct Options {
    #[command(subcommand)]
    what: What,
    /// Print a JSON document
    #[arg(long, global = true)]
    pub(crate) json: bool,
    /// Number of measurements of each row
    #[arg(long, global = true, default_value_t = 3, value_name = "N")]
    rounds: u32,
    /// Directory for the measured files; its file system affects the figures
    #[arg(long, global = true, value_name = "DIR")]
    dir: Option<PathBuf>,
}

#[derive(Subcommand)]
enum What {
    /// Import and export a tarball; compare with a kernel mount and with a plain copy
    #[command(after_help = "Examples:\n  uxfs bench import --size 8G linux-6.1.tar")]
    Import {
        /// The uncompressed tarball
        #[arg(value_name = "TAR")]
        tar: PathBuf,
        /// Size of the images
        #[arg(long, default_value = "4G", value_parser = parse_size, value_name = "SIZE")]
        size: u64,
        /// Measure only the import, without and with --durable
        #[arg(long)]
        durable: bool,
    },
    /// Create empty files in this process; compare with fs_mark on the kernel's XFS
    #[command(after_help = "Examples:\n  uxfs bench creates --files 200000 --rounds 5 --json")]
    Creates {
        /// Files in each round
        #[arg(long, default_value_t = 100_000, value_name = "N")]
        files: u32,
    },
    /// Check whole volumes; compare time and memory with xfs_repair -n
    #[command(after_help = "Examples:\n  uxfs bench check disk.img\n  \
                            uxfs bench check --files 1000000 --rounds 5")]
    Check {
        /// Make a volume with this many files and check it; 0 for none
        #[arg(long, default_value_t = 0, value_name = "N")]
        files: u32,
        /// Sound volumes to check; they are not written
        #[arg(value_name = "IMAGE", required_unless_present = "files")]
        images: Vec<PathBuf>,
    },
    /// Create files with several threads, as fs_mark does; show rates, log usage and the possible
    /// loss in a crash; compare with the kernel's XFS and ext4
    #[command(after_help = "Examples:\n  \
        uxfs bench fs-mark\n  \
        uxfs bench fs-mark --pattern durable --threads 1,64 --rounds 5\n  \
        uxfs bench fs-mark --pattern memory --files 100000 --only uxfs\n  \
        uxfs bench fs-mark --pattern memory --threads 2,8 --total 400000")]
    FsMark {
        /// memory: empty files without sync (-S0 -s 0); durable: files of 4 KiB, each synced (-S1 -s
        /// 4096); or both, one table each
        #[arg(long, value_enum, default_value_t = Pattern::Both)]
        pattern: Pattern,
        /// Numbers of threads [default: 1,2,4,8; durable: 1,8,32,64]
        #[arg(long, value_delimiter = ',', value_name = "N,...")]
        threads: Vec<u32>,
        /// Files that each thread makes [default: 50000; durable: 2000]
        #[arg(long, value_name = "N")]
        files: Option<u32>,
        /// Files of all threads together, to compare numbers of threads at equal work
        #[arg(long, value_name = "N", conflicts_with = "files")]
        total: Option<u32>,
        /// Only settings whose name contains this, such as uxfs or delaylog
        #[arg(long, default_value = "", value_name = "TEXT")]
        only: String,
    },
    /// Replay the load of a file server's clients, as dbench does; show throughput, latency, log usage
    /// and the possible loss in a crash; compare with the kernel's XFS and ext4
    #[command(after_help = "Examples:\n  \
        uxfs bench dbench\n  \
        uxfs bench dbench --clients 10,20,100 --seconds 30 --only uxfs")]
    Dbench {
        /// Numbers of clients
        #[arg(long, value_delimiter = ',', default_value = "1,2,4,8", value_name = "N,...")]
        clients: Vec<u32>,
        /// The load, in dbench's format
        #[arg(long, default_value = "/usr/share/dbench/client.txt", value_name = "FILE")]
        load: PathBuf,
        /// Seconds of each run, plus a fifth for warm-up
        #[arg(long, default_value_t = 10, value_name = "N")]
        seconds: u32,
        /// Only settings whose name contains this, such as uxfs or delaylog
        #[arg(long, default_value = "", value_name = "TEXT")]
        only: String,
    },
    /// Measure a mount: file creation with and without sync, a large file, random accesses, dbench, tar,
    /// find, git and rm, a program beside it, a large directory, memory; compare with an empty FUSE
    /// server, a pass-through FUSE server and the kernel's XFS
    ///
    /// The FUSE servers use the same crate and settings as the mount. Needs root, mkfs.xfs, and the
    /// programs of the parts: fs_mark, dbench, git. Each part prints one or more tables. The host file
    /// system's speed affects all figures, so compare only figures of one run.
    #[command(after_help = "Examples:\n  \
        uxfs bench mount\n  \
        uxfs bench mount --part durable --threads 8,32 --rounds 5\n  \
        uxfs bench mount --part programs --tree linux-6.1.tar --mount-options io_uring\n  \
        uxfs bench mount --part directory --entries 1000000 --rounds 1\n  \
        uxfs bench mount --part memory --files 500000 --mount-options cache_bytes=16m")]
    Mount {
        /// Run only these parts
        #[arg(long = "part", value_enum, value_delimiter = ',', value_name = "PART,...")]
        parts: Vec<MountPart>,
        /// Numbers of threads that create files [default: 1,2,4,8; durable: 1,8,16,32,64; beside: 1,2]
        #[arg(long, value_delimiter = ',', value_name = "N,...")]
        threads: Option<Vec<u32>>,
        /// Files that all threads create together [default: 40000; durable: 8000; memory: 200000]
        #[arg(long, value_name = "N")]
        files: Option<u32>,
        /// Entries of the large directory
        #[arg(long, default_value_t = 200_000, value_name = "N")]
        entries: u32,
        /// Size of the file of the parts streams and random [default: 1G; random: 256M]
        #[arg(long, value_parser = parse_size, value_name = "SIZE")]
        size: Option<u64>,
        /// Numbers of dbench's clients
        #[arg(long, value_delimiter = ',', default_value = "2,10,50", value_name = "N,...")]
        clients: Vec<u32>,
        /// Seconds of each run of the parts dbench and beside
        #[arg(long, default_value_t = 10, value_name = "N")]
        seconds: u32,
        /// Uncompressed tarball for the part programs [default: 8000 files made from a seed]
        #[arg(long, value_name = "TAR")]
        tree: Option<PathBuf>,
        /// Additional mount options, such as cache_bytes=16m
        #[arg(long, default_value = "rw", value_name = "OPTIONS")]
        mount_options: String,
    },
    /// Run the empty server that `mount` compares with
    #[command(hide = true)]
    ServeEmpty {
        #[arg(value_name = "DIR")]
        mount_point: PathBuf,
    },
    /// Run the pass-through server that `mount` compares with
    #[command(hide = true)]
    ServeThrough {
        #[arg(value_name = "BACKING")]
        backing: PathBuf,
        #[arg(value_name = "DIR")]
        mount_point: PathBuf,
    },
    /// Recover a full log written by the kernel; compare the kernel's mount with opening by uxfs
    #[command(after_help = "Examples:\n  uxfs bench recovery --rounds 5")]
    Recovery {
        /// Files whose creation the log holds
        #[arg(long, default_value_t = 100_000, value_name = "N")]
        files: u32,
    },
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Pattern {
    Memory,
    Durable,
    Both,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum MountPart {
    /// Create empty files with several threads (fs_mark -S0 -s 0); compare with the empty server, which
    /// is the upper limit for FUSE, and with the kernel's XFS on a loop device
    Creates,
    /// Create files of 4 KiB and sync each, with several threads (fs_mark -S1 -s 4096); same comparison
    Durable,
    /// Write and sync a file of --size, read it, and read it from the page cache; compare with the
    /// pass-through server and with the host's file
    Streams,
    /// Read and write blocks of 4 KiB of a file of --size in random order, without the page cache;
    /// compare with the pass-through server and with the kernel's XFS
    Random,
    /// Run dbench with --clients clients; compare with the pass-through server and with the kernel's XFS
    Dbench,
    /// Time tar x, find, git add and commit, and rm -r on --tree; compare with the kernel's XFS; count
    /// the requests of each by kind
    Programs,
    /// Time a program that computes, alone and beside --threads threads that create files on the mount
    /// and on the kernel's XFS
    Beside,
    /// Create, list and remove a directory of --entries entries; compare the cost per entry with a
    /// directory of 10000
    Directory,
    /// Peak resident memory of the mount's process while --files files are created, and while a second
    /// mount finds and stats them; compare with a tenth as many files
    Memory,
}

impl MountPart {
    const ALL: [Self; 9] = [
        Self::Creates,
        Self::Durable,
        Self::Streams,
        Self::Random,
        Self::Dbench,
        Self::Programs,
        Self::Beside,
        Self::Directory,
        Self::Memory,
    ];

    fn part(self) -> mount::Part {
        match self {
            Self::Creates => mount::Part::Creates,
            Self::Durable => mount::Part::Durable,
            Self::Streams => mount::Part::Streams,
            Self::Random => mount::Part::Random,
            Self::Dbench => mount::Part::Dbench,
            Self::Programs => mount::Part::Programs,
            Self::Beside => mount::Part::Beside,
            Self::Directory => mount::Part::Directory,
            Self::Memory => mount::Part::Memory,
        }
    }
}

/// Size in bytes of the volumes that are measured.
const TABLE_SIZE: u64 = 8 << 30;

fn parse_size(text: &str) -> std::result::Result<u64, String> {
    number::size(text).ok_or_else(|| "not a size such as 4G".into())
}

/// Measures and prints the tables. uxfs' own rows log as `journal` says, except where the row's name
/// says otherwise.
pub(crate) fn run(options: &Options, session: &Session, journal: JournalOptions) -> Result<()> {
    let failed = |e: BenchError| Failure::bare(e.to_string());
    let dir = options.dir.clone().unwrap_or_else(std::env::temp_dir);
    let rounds = options.rounds.max(1);
    let mut say = |words: &str| eprintln!("uxfs: bench: {words}");
    let mut results: Vec<Outcome> = Vec::new();
    match &options.what {
        What::Import { tar, size, durable } => {
            let uxfs = std::env::current_exe().map_err(|e| Failure::host("uxfs", &e))?;
            let (tar, size) = (tar.clone(), *size);
            let wanted = import::Options { tar, dir, uxfs, rounds, size };
            let reports = match durable {
                true => import::durable(&wanted, &mut say).map(|report| vec![report]),
                false => import::run_all(&wanted, &mut say),
            };
            let reports = reports.map_err(failed)?;
            results.extend(reports.into_iter().map(Outcome::Report));
        }
        What::Check { files, images } => {
            let uxfs = std::env::current_exe().map_err(|e| Failure::host("uxfs", &e))?;
            let (images, files) = (images.clone(), *files);
            let wanted = check::Options { images, files, dir, uxfs, rounds };
            let reports = check::run_all(&wanted, &mut say).map_err(failed)?;
            results.extend(reports.into_iter().map(Outcome::Report));
        }
        What::Creates { files } => {
            let wanted = creates::Options { dir, rounds, files: *files };
            results.push(Outcome::Report(creates::run_all(&wanted, &mut say).map_err(failed)?));
        }
        What::FsMark { pattern, threads, files, total, only } => {
            for durable in [false, true] {
                if *pattern == if durable { Pattern::Memory } else { Pattern::Durable } {
                    continue;
                }
                let usual = if durable { [1, 8, 32, 64] } else { [1, 2, 4, 8] };
                let threads = if threads.is_empty() { usual.to_vec() } else { threads.clone() };
                let wanted = fs_mark::Options {
                    dir: dir.clone(),
                    rounds,
                    threads,
                    files: match (total, files) {
                        (Some(total), _) => fs_mark::Files::Total(*total),
                        (None, Some(files)) => fs_mark::Files::Each(*files),
                        (None, None) => fs_mark::Files::Each(if durable { 2000 } else { 50_000 }),
                    },
                    durable,
                    only: only.clone(),
                    size: TABLE_SIZE,
                    journal,
                };
                results.push(Outcome::Table(fs_mark::run_all(&wanted, &mut say).map_err(failed)?));
            }
        }
        What::Recovery { files } => {
            let wanted = recovery::Options { dir, rounds, files: *files, size: TABLE_SIZE };
            results.push(Outcome::Report(recovery::run_all(&wanted, &mut say).map_err(failed)?));
        }
        What::Mount {
            parts,
            threads,
            files,
            entries,
            size,
            clients,
            seconds,
            tree,
            mount_options,
        } => {
            let uxfs = std::env::current_exe().map_err(|e| Failure::host("uxfs", &e))?;
            let parts = if parts.is_empty() { &MountPart::ALL[..] } else { parts };
            let wanted = mount::Options {
                dir,
                uxfs,
                rounds,
                parts: parts.iter().map(|part| part.part()).collect(),
                threads: threads.clone(),
                files: *files,
                entries: *entries,
                bytes: *size,
                clients: clients.clone(),
                seconds: (*seconds).max(1),
                tree: tree.clone(),
                options: mount_options.clone(),
                size: TABLE_SIZE,
            };
            let outcomes = mount::run_all(&wanted, &mut say).map_err(failed)?;
            results.extend(outcomes.into_iter().map(|outcome| match outcome {
                mount::Outcome::Table(table) => Outcome::Table(table),
                mount::Outcome::Report(report) => Outcome::Report(report),
                mount::Outcome::Requests(requests) => Outcome::Requests(requests),
            }));
        }
        What::ServeEmpty { mount_point } => {
            mount::serve_empty(mount_point).map_err(|e| Failure::host(mount_point, &e))?;
            return Ok(());
        }
        What::ServeThrough { backing, mount_point } => {
            mount::serve_through(backing, mount_point)
                .map_err(|e| Failure::host(mount_point, &e))?;
            return Ok(());
        }
        What::Dbench { clients, load, seconds, only } => {
            let wanted = dbench::Options {
                dir,
                rounds,
                clients: clients.clone(),
                load: load.clone(),
                seconds: (*seconds).max(1),
                only: only.clone(),
                size: TABLE_SIZE,
                journal,
            };
            results.push(Outcome::Table(dbench::run_all(&wanted, &mut say).map_err(failed)?));
        }
    }
    if options.json {
        let all: Vec<_> = results.iter().map(Outcome::json).collect();
        return session.print(format!("{:#}\n", serde_json::Value::Array(all)));
    }
    for result in results {
        session.print(match result {
            Outcome::Report(report) => report.to_string(),
            Outcome::Table(table) => table.to_string(),
            Outcome::Requests(requests) => requests.to_string(),
        })?;
    }
    Ok(())
}

/// The result of a benchmark.
enum Outcome {
    Report(Report),
    Table(Table),
    Requests(mount::RequestTable),
}

impl Outcome {
    fn json(&self) -> serde_json::Value {
        match self {
            Self::Report(report) => report.json(),
            Self::Table(table) => table.json(),
            Self::Requests(requests) => requests.json(),
        }
    }
}
