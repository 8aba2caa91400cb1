//! The command line: what there is, and the way from arguments to a command's end.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use clap::{Args, Command, CommandFactory, FromArgMatches, Parser, Subcommand};

use uxfs::journal::JournalOptions;
use uxfs::volume::Place;

use crate::cmd;
use crate::image::Images;
use crate::number;
use crate::session::{Failure, Result, Session};

/// Makes, fills, edits and reads XFS images, without root and without mounting them.
#[derive(Parser)]
#[command(
    name = "uxfs",
    version,
    after_help = "Paths inside an image are written IMAGE:/PATH, as in disk.img:/etc/passwd. The \
                  image is what stands before the first ':/' that follows the path of an existing \
                  file.\n\n\
                  Examples:\n  \
                  uxfs import linux.tar.xz disk.img --size 4G\n  \
                  uxfs ls -l disk.img:/linux\n  \
                  uxfs cp -r /usr/include disk.img:/inc\n  \
                  uxfs export disk.img > tree.tar\n\n\
                  Exit status: 0 if all went well, 1 if something failed, 2 for a wrong command \
                  line (ls: 2 for serious trouble)."
)]
pub(crate) struct Cli {
    #[command(flatten)]
    global: Global,
    #[command(subcommand)]
    command: Verb,
}

#[derive(Args)]
struct Global {
    /// Read an image whose log is dirty as it lies there, without what the log holds
    #[arg(long, global = true)]
    norecovery: bool,
    /// The device with the content of the image's realtime files
    #[arg(long, global = true, value_name = "PATH")]
    rtdev: Option<PathBuf>,
    /// The device with the image's log, if that is not in the image
    #[arg(long, global = true, value_name = "PATH")]
    logdev: Option<PathBuf>,
    /// The volume starts this many bytes into the image; suffixes as in 1M or 512K
    #[arg(long, global = true, value_name = "BYTES", value_parser = parse_offset,
          conflicts_with = "partition")]
    offset: Option<u64>,
    /// The volume is this partition of the image: its number, label or PARTUUID (GPT or MBR)
    #[arg(long, global = true, value_name = "N|LABEL")]
    partition: Option<String>,
    /// How changes are logged, in XFS' words: delaylog, nodelaylog, wsync, logbufs=N, logbsize=SIZE,
    /// barrier, nobarrier; and how fsyncs share flushes: fsync_policy=auto|greedy|gather|…
    #[arg(short = 'o', long = "options", id = OPTIONS_ID, global = true, value_name = "WORD,...",
          value_delimiter = ',')]
    options: Vec<String>,
}

/// Name of the option of how changes are logged.
pub(crate) const OPTIONS_ID: &str = "log_options";

/// The same option for commands whose `-o` means something else: by its long name only.
#[derive(Args)]
pub(crate) struct LongOptions {
    /// How changes are logged, in XFS' words, as -o is elsewhere
    #[arg(long = "options", id = OPTIONS_ID, value_name = "WORD,...", value_delimiter = ',')]
    _words: Vec<String>,
}

impl Global {
    fn journal(&self) -> Result<JournalOptions> {
        let mut journal = JournalOptions::default();
        for word in &self.options {
            match journal.apply(word) {
                Ok(true) => {}
                Ok(false) => return Err(Failure::bare(format!("-o {word}: not an option"))),
                Err(error) => return Err(Failure::bare(format!("-o {word}: {error}"))),
            }
        }
        Ok(journal)
    }

    fn place(&self) -> Place {
        match (&self.offset, &self.partition) {
            (Some(offset), _) => Place::offset(*offset),
            (None, Some(wanted)) => Place::partition(wanted),
            (None, None) => Place::whole(),
        }
    }
}

fn parse_offset(text: &str) -> std::result::Result<u64, String> {
    number::size(text).ok_or_else(|| "not a number of bytes such as 1048576 or 1M".into())
}

#[derive(Subcommand)]
enum Verb {
    Mkfs(cmd::mkfs::Options),
    Import(Box<cmd::import::Options>),
    Export(cmd::export::Options),
    Ls(cmd::ls::Options),
    Stat(cmd::stat::Options),
    Cat(cmd::cat::Options),
    Cp(cmd::cp::Options),
    Find(cmd::find::Options),
    Mkdir(cmd::mkdir::Options),
    Rm(cmd::rm::Options),
    Mv(cmd::mv::Options),
    Ln(cmd::ln::Options),
    Chmod(cmd::chmod::Options),
    Chown(cmd::chown::Options),
    Truncate(cmd::truncate::Options),
    Fallocate(cmd::fallocate::Options),
    Chattr(cmd::chattr::Options),
    Lsattr(cmd::lsattr::Options),
    Extsize(cmd::extsize::Options),
    Cowextsize(cmd::extsize::CowOptions),
    Xattr(cmd::xattr::Options),
    Label(cmd::label::Options),
    Info(cmd::info::Options),
    Check(cmd::check::Options),
    Resize(cmd::resize::Options),
    Log(cmd::log::Options),
    Stats(cmd::stats::Options),
    Status(cmd::status::Options),
    Sync(cmd::sync::Options),
    Bench(cmd::bench::Options),
    Mount(cmd::mount::Options),
    Umount(cmd::umount::Options),
    Crash(cmd::crash::Options),
    Lab(cmd::lab::Options),
    Completions(cmd::completions::Options),
    Man(cmd::man::Options),
}

/// The definitions, as they are used: `-h` means something to several commands, so help is `--help`
/// everywhere.
pub(crate) fn definition() -> Command {
    fn long_help_only(command: Command) -> Command {
        let help =
            clap::Arg::new("help").long("help").help("Print help").action(clap::ArgAction::Help);
        command.disable_help_flag(true).arg(help).mut_subcommands(long_help_only)
    }
    long_help_only(Cli::command()).disable_help_subcommand(true)
}

/// Runs the command that the arguments ask for; gives the exit code.
pub(crate) fn run(mut args: Vec<OsString>) -> u8 {
    let name = args.first().and_then(|arg| Path::new(arg).file_name()).map(OsString::from);
    if name.as_ref().is_some_and(|name| name == "mkfs.uxfs") {
        args.splice(..1, ["uxfs".into(), "mkfs".into()]);
    }
    if name.is_some_and(|name| name == "mount.fuse.uxfs") {
        match cmd::mount::helper_args(&args) {
            Some(line) => args = line,
            None => return 0,
        }
    }
    let mkfs = args.get(1).is_some_and(|arg| arg == "mkfs");
    let parsed =
        definition().try_get_matches_from(args).and_then(|matches| Cli::from_arg_matches(&matches));
    match parsed {
        Ok(cli) => cli.run(),
        Err(error) => {
            // Where nobody reads it, there is nobody to tell.
            let _ = error.print();
            match error.exit_code() {
                0 => 0,
                // mkfs.xfs says 1 to a command line it does not understand.
                _ if mkfs => 1,
                code => u8::try_from(code).unwrap_or(2),
            }
        }
    }
}

impl Cli {
    fn run(self) -> u8 {
        let norecovery = self.global.norecovery;
        let place = self.global.place();
        let with = |name: &'static str,
                    json: bool,
                    body: &dyn Fn(&Session, &Images) -> Result<()>|
         -> u8 {
            let session = Session::new(name, json);
            let Some(journal) = session.ok(self.global.journal()) else {
                // A wrong command line.
                session.set_code(2);
                return session.end();
            };
            let images = Images::new(norecovery, place.clone())
                .with_journal(journal)
                .with_devices(self.global.logdev.as_deref(), self.global.rtdev.as_deref());
            session.ok(body(&session, &images));
            session.ok(images.close());
            session.end()
        };
        match &self.command {
            Verb::Mkfs(o) => with("mkfs", false, &|s, i| cmd::mkfs::run(o, s, i)),
            Verb::Import(o) => with("import", false, &|s, i| cmd::import::run(o, s, i)),
            Verb::Export(o) => with("export", false, &|s, i| cmd::export::run(o, s, i)),
            Verb::Ls(o) => with("ls", o.json, &|s, i| cmd::ls::run(o, s, i)),
            Verb::Stat(o) => with("stat", o.json, &|s, i| cmd::stat::run(o, s, i)),
            Verb::Cat(o) => with("cat", false, &|s, i| cmd::cat::run(o, s, i)),
            Verb::Cp(o) => with("cp", false, &|s, i| cmd::cp::run(o, s, i)),
            Verb::Find(o) => with("find", o.json, &|s, i| cmd::find::run(o, s, i)),
            Verb::Mkdir(o) => with("mkdir", false, &|s, i| cmd::mkdir::run(o, s, i)),
            Verb::Rm(o) => with("rm", false, &|s, i| cmd::rm::run(o, s, i)),
            Verb::Mv(o) => with("mv", false, &|s, i| cmd::mv::run(o, s, i)),
            Verb::Ln(o) => with("ln", false, &|s, i| cmd::ln::run(o, s, i)),
            Verb::Chmod(o) => with("chmod", false, &|s, i| cmd::chmod::run(o, s, i)),
            Verb::Chown(o) => with("chown", false, &|s, i| cmd::chown::run(o, s, i)),
            Verb::Truncate(o) => with("truncate", false, &|s, i| cmd::truncate::run(o, s, i)),
            Verb::Fallocate(o) => with("fallocate", false, &|s, i| cmd::fallocate::run(o, s, i)),
            Verb::Chattr(o) => with("chattr", false, &|s, i| cmd::chattr::run(o, s, i)),
            Verb::Lsattr(o) => with("lsattr", false, &|s, i| cmd::lsattr::run(o, s, i)),
            Verb::Extsize(o) => with("extsize", false, &|s, i| cmd::extsize::run(o, s, i)),
            Verb::Cowextsize(o) => {
                with("cowextsize", false, &|s, i| cmd::extsize::run_cow(o, s, i))
            }
            Verb::Xattr(o) => with("xattr", o.json(), &|s, i| cmd::xattr::run(o, s, i)),
            Verb::Label(o) => with("label", o.json, &|s, i| cmd::label::run(o, s, i)),
            Verb::Info(o) => with("info", o.json, &|s, i| cmd::info::run(o, s, i)),
            Verb::Check(o) => with("check", o.json, &|s, i| cmd::check::run(o, s, i)),
            Verb::Resize(o) => with("resize", o.json, &|s, i| cmd::resize::run(o, s, i)),
            Verb::Log(o) => with("log", o.json(), &|s, i| cmd::log::run(o, s, i)),
            Verb::Stats(o) => with("stats", o.json, &|s, i| cmd::stats::run(o, s, i)),
            Verb::Status(o) => with("status", o.json, &|s, _| cmd::status::run(o, s)),
            Verb::Sync(o) => with("sync", false, &|s, _| cmd::sync::run(o, s)),
            Verb::Bench(o) => with("bench", o.json, &|s, i| cmd::bench::run(o, s, i.journal())),
            Verb::Mount(o) => with("mount", false, &|s, i| cmd::mount::run(o, s, i)),
            Verb::Umount(o) => with("umount", false, &|s, _| cmd::umount::run(o, s)),
            Verb::Crash(o) => with("crash", o.json, &|s, _| cmd::crash::run(o, s)),
            Verb::Lab(o) => with("lab", false, &|s, _| cmd::lab::run(o, s)),
            Verb::Completions(o) => with("completions", false, &|s, _| cmd::completions::run(o, s)),
            Verb::Man(o) => with("man", false, &|_, _| cmd::man::run(o)),
        }
    }
}

#[cfg(test)]
mod examples;

#[cfg(test)]
mod tests {
    #[test]
    fn definitions_hold_together() {
        super::definition().debug_assert();
    }
}
