//! The command line: defines the commands and the options they share, parses the arguments, and
//! runs the command.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use clap::{ArgMatches, Args, Command, CommandFactory, FromArgMatches, Parser, Subcommand};

use uxfs::journal::JournalOptions;
use uxfs::volume::Location;

use crate::cmd;
use crate::glob;
use crate::image::Images;
use crate::number;
use crate::session::{Failure, Result, Session};

/// Makes, fills, edits and reads XFS images, without root and without mounting them.
#[derive(Parser)]
#[command(
    name = "uxfs",
    version,
    after_help = "A path inside an image is written IMAGE:/PATH, as in disk.img:/etc/passwd. The \
                  first ':/' that follows the path of an existing file ends the image's name. An \
                  IMAGE may also be an address, as in nbd://host/export:/etc/passwd.\n\n\
                  Examples:\n  \
                  uxfs import linux.tar.xz disk.img --size 4G\n  \
                  uxfs ls -l disk.img:/linux\n  \
                  uxfs cp -r /usr/include disk.img:/inc\n  \
                  uxfs export disk.img > tree.tar\n\n\
                  Exit status: 0 for success, 1 if something failed, 2 for a wrong command line \
                  (ls: also 2 if an operand cannot be listed)."
)]
pub(crate) struct Cli {
    #[command(subcommand)]
    command: Verb,
}

// These structures have no doc comments: clap would print them instead of the command's own.
#[derive(Args)]
#[command(next_help_heading = "Volume options")]
struct Volume {
    /// Read an image with a dirty log without replaying the log
    #[arg(long, global = true)]
    norecovery: bool,
    /// The realtime device of the image
    #[arg(long, global = true, value_name = "PATH")]
    rtdev: Option<PathBuf>,
    /// The log device of an image with an external log
    #[arg(long, global = true, value_name = "PATH")]
    logdev: Option<PathBuf>,
    /// Offset of the volume in the image, in bytes; suffixes as in 1M or 512K
    #[arg(long, global = true, value_name = "BYTES", value_parser = parse_offset,
          conflicts_with = "partition")]
    offset: Option<u64>,
    /// Partition of the image that holds the volume: its number, label or PARTUUID (GPT or MBR)
    #[arg(long, global = true, value_name = "N|LABEL")]
    partition: Option<String>,
}

#[derive(Args)]
#[command(next_help_heading = "Volume options")]
struct Logging {
    /// Log options, named as in XFS: delaylog, nodelaylog, wsync, logbufs=N, logbsize=SIZE, barrier,
    /// nobarrier; and how fsyncs share flushes: fsync_policy=auto|greedy|gather|…
    #[arg(short = 'o', long = "options", id = OPTIONS_ID, global = true, value_name = "WORD,...",
          value_delimiter = ',')]
    _words: Vec<String>,
}

#[derive(Args)]
struct OnVolume<T: Args> {
    #[command(flatten)]
    own: T,
    #[command(flatten)]
    volume: Volume,
    #[command(flatten)]
    _logging: Logging,
}

// For commands that define a `-o` option of their own.
#[derive(Args)]
struct OnVolumeOwnO<T: Args> {
    #[command(flatten)]
    own: T,
    #[command(flatten)]
    volume: Volume,
}

#[derive(Args)]
struct Logged<T: Args> {
    #[command(flatten)]
    own: T,
    #[command(flatten)]
    _logging: Logging,
}

/// The clap id of the option for log options.
pub(crate) const OPTIONS_ID: &str = "log_options";

/// The log options of a command whose `-o` means something else. Only the long name exists.
#[derive(Args)]
pub(crate) struct LongOptions {
    /// Log options, as -o of other commands
    #[arg(long = "options", id = OPTIONS_ID, value_name = "WORD,...", value_delimiter = ',',
          help_heading = "Volume options")]
    _words: Vec<String>,
}

/// Parses the values of the option for log options.
fn journal(words: &[String]) -> Result<JournalOptions> {
    let mut journal = JournalOptions::default();
    for word in words {
        match journal.apply(word) {
            Ok(true) => {}
            Ok(false) => return Err(Failure::bare(format!("-o {word}: unknown option"))),
            Err(error) => return Err(Failure::bare(format!("-o {word}: {error}"))),
        }
    }
    Ok(journal)
}

/// The values of the option for log options; empty if the command does not have it.
fn logging_words(matches: &ArgMatches) -> Vec<String> {
    let command = matches.subcommand().map(|(_, command)| command);
    let words = command.and_then(|m| m.try_get_many::<String>(OPTIONS_ID).ok().flatten());
    words.map(|words| words.cloned().collect()).unwrap_or_default()
}

impl Volume {
    fn images(&self, journal: JournalOptions) -> Images {
        Images::new(self.norecovery, self.location())
            .with_journal(journal)
            .with_devices(self.logdev.as_deref(), self.rtdev.as_deref())
    }

    fn location(&self) -> Location {
        match (&self.offset, &self.partition) {
            (Some(offset), _) => Location::offset(*offset),
            (None, Some(wanted)) => Location::partition(wanted),
            (None, None) => Location::whole(),
        }
    }
}

fn parse_offset(text: &str) -> std::result::Result<u64, String> {
    number::size(text).ok_or_else(|| "not a number of bytes such as 1048576 or 1M".into())
}

#[derive(Subcommand)]
enum Verb {
    Mkfs(Box<OnVolume<cmd::mkfs::Options>>),
    Import(Box<OnVolume<cmd::import::Options>>),
    Export(OnVolumeOwnO<cmd::export::Options>),
    Ls(OnVolumeOwnO<cmd::ls::Options>),
    Stat(OnVolume<cmd::stat::Options>),
    Cat(OnVolume<cmd::cat::Options>),
    Cp(OnVolume<cmd::cp::Options>),
    Find(OnVolume<cmd::find::Options>),
    Mkdir(OnVolume<cmd::mkdir::Options>),
    Rm(OnVolume<cmd::rm::Options>),
    Rmdir(OnVolume<cmd::rmdir::Options>),
    Mv(OnVolume<cmd::mv::Options>),
    Ln(OnVolume<cmd::ln::Options>),
    Chmod(OnVolume<cmd::chmod::Options>),
    Chown(OnVolume<cmd::chown::Options>),
    Touch(OnVolume<cmd::touch::Options>),
    Tee(OnVolume<cmd::tee::Options>),
    Mknod(OnVolume<cmd::mknod::Options>),
    Readlink(OnVolume<cmd::readlink::Options>),
    Du(OnVolume<cmd::du::Options>),
    Df(OnVolume<cmd::df::Options>),
    Quota(OnVolume<cmd::quota::Options>),
    Truncate(OnVolumeOwnO<cmd::truncate::Options>),
    Fallocate(OnVolumeOwnO<cmd::fallocate::Options>),
    Defrag(OnVolume<cmd::defrag::Options>),
    Chattr(OnVolume<cmd::chattr::Options>),
    Lsattr(OnVolume<cmd::lsattr::Options>),
    Extsize(OnVolume<cmd::extsize::Options>),
    Cowextsize(OnVolume<cmd::extsize::CowOptions>),
    Xattr(OnVolume<cmd::xattr::Options>),
    Label(OnVolume<cmd::label::Options>),
    Relabel(OnVolume<cmd::relabel::Options>),
    Info(OnVolume<cmd::info::Options>),
    Check(OnVolume<cmd::check::Options>),
    Fsck(OnVolume<cmd::fsck::Options>),
    Repair(OnVolume<cmd::repair::Options>),
    Resize(OnVolume<cmd::resize::Options>),
    Fork(cmd::fork::Options),
    Diff(OnVolume<cmd::diff::Options>),
    Commit(cmd::commit::Options),
    Metadump(OnVolumeOwnO<cmd::metadump::Options>),
    Mdrestore(cmd::mdrestore::Options),
    #[cfg(feature = "remote")]
    Ship(OnVolumeOwnO<cmd::ship::Options>),
    #[cfg(feature = "remote")]
    Restore(cmd::restore::Options),
    Disk(cmd::disk::Options),
    Log(OnVolume<cmd::log::Options>),
    Stats(OnVolume<cmd::stats::Options>),
    Status(cmd::status::Options),
    Sync(cmd::sync::Options),
    #[cfg(target_os = "linux")]
    Freeze(cmd::freeze::Options),
    #[cfg(target_os = "linux")]
    Thaw(cmd::freeze::ThawOptions),
    #[cfg(target_os = "linux")]
    Scrub(cmd::scrub::Options),
    #[cfg(feature = "bench")]
    Bench(Logged<cmd::bench::Options>),
    Mount(OnVolumeOwnO<cmd::mount::Options>),
    Serve(OnVolumeOwnO<cmd::serve::Options>),
    #[cfg(all(feature = "nbd", target_os = "linux"))]
    NbdServe(Box<OnVolume<cmd::nbd_serve::Options>>),
    Umount(cmd::umount::Options),
    #[cfg(feature = "crash")]
    Crash(cmd::crash::Options),
    CrashTest(cmd::crash_test::Options),
    #[cfg(target_os = "linux")]
    #[command(hide = true)]
    CrashTestAgent(cmd::crash_test_agent::Options),
    Ack(cmd::ack::Options),
    #[cfg(feature = "lab")]
    Lab(cmd::lab::Options),
    As(cmd::as_name::Options),
    Completions(cmd::completions::Options),
    Man(cmd::man::Options),
}

/// The command line's definition. Adds `--help` to each command, and `-h` where that letter is free.
pub(crate) fn definition() -> Command {
    fn with_help(command: Command) -> Command {
        let help = clap::Arg::new("help")
            .long("help")
            .help("Print help")
            .action(clap::ArgAction::Help)
            .help_heading(None::<&str>);
        let taken = command.get_arguments().any(|arg| {
            arg.get_short() == Some('h') || arg.is_allow_hyphen_values_set() && arg.is_positional()
        });
        let help = if taken { help } else { help.short('h') };
        command.disable_help_flag(true).arg(help).mut_subcommands(with_help)
    }
    with_help(Cli::command()).disable_help_subcommand(true)
}

/// Runs the command that the arguments name. Returns the exit code.
pub(crate) fn run(mut args: Vec<OsString>) -> u8 {
    let name = args.first().and_then(|arg| Path::new(arg).file_name()).map(OsString::from);
    if name.as_ref().is_some_and(|name| name == "mkfs.uxfs") {
        args.splice(..1, ["uxfs".into(), "mkfs".into()]);
    }
    #[cfg(target_os = "linux")]
    if name.is_some_and(|name| name == "mount.fuse.uxfs") {
        match cmd::mount::helper_args(&args, rustix::process::geteuid().is_root()) {
            Some(line) => args = line,
            None => return 0,
        }
    }
    move_options_after_command(&mut args);
    let is = |verb: &str| args.get(1).is_some_and(|arg| arg == verb);
    let (mkfs, check, find) = (is("mkfs"), is("check") || is("fsck") || is("repair"), is("find"));
    // find parses its own arguments, so clap does not see `-h`.
    if find && args.get(2).is_some_and(|arg| arg == "-h") {
        args[2] = "--help".into();
    }
    let parse = |args: &[OsString]| {
        let matches = definition().try_get_matches_from(args)?;
        let words = logging_words(&matches);
        Ok((Cli::from_arg_matches(&matches)?, words))
    };
    let mut parsed = parse(&args);
    // Whether an argument is a pattern or a path depends on the volume, so parse once to find the
    // volume options, then expand the patterns and parse again.
    if let Ok((cli, _)) = &parsed
        && let Some(volume) = cli.volume()
        && let Some(expanded) = glob::expand(&args, &volume.images(JournalOptions::default()))
    {
        parsed = parse(&expanded);
    }
    match parsed {
        Ok((cli, words)) => cli.run(&words),
        Err(error) => {
            let error: clap::Error = error;
            // A failed write to standard error cannot be reported.
            let _ = error.print();
            match error.exit_code() {
                0 => 0,
                // mkfs.xfs exits with 1 for a wrong command line.
                _ if mkfs => 1,
                // fsck(8) exits with 16; 2 is one of the results of check.
                _ if check => 16,
                code => u8::try_from(code).unwrap_or(2),
            }
        }
    }
}

/// Moves volume options that precede the command's name to the position after it.
fn move_options_after_command(args: &mut [OsString]) {
    const WITH_VALUE: [&str; 6] =
        ["-o", "--options", "--offset", "--partition", "--rtdev", "--logdev"];
    let mut at = 1;
    while let Some(word) = args.get(at).and_then(|arg| arg.to_str()) {
        let name = word.split('=').next().unwrap_or(word);
        at += match (WITH_VALUE.contains(&name), name) {
            (true, _) if name == word => 2,
            (true, _) | (false, "--norecovery") => 1,
            _ => break,
        };
    }
    if at == 1 || at >= args.len() {
        return;
    }
    args[1..=at].rotate_right(1);
    // The command may define `-o` itself, so use the long name.
    args[2..=at].iter_mut().filter(|arg| *arg == "-o").for_each(|arg| *arg = "--options".into());
}

impl Cli {
    /// The volume options, if the command has them.
    fn volume(&self) -> Option<&Volume> {
        Some(match &self.command {
            Verb::Mkfs(o) => &o.volume,
            Verb::Import(o) => &o.volume,
            Verb::Export(o) => &o.volume,
            Verb::Ls(o) => &o.volume,
            Verb::Stat(o) => &o.volume,
            Verb::Cat(o) => &o.volume,
            Verb::Cp(o) => &o.volume,
            Verb::Find(o) => &o.volume,
            Verb::Mkdir(o) => &o.volume,
            Verb::Rm(o) => &o.volume,
            Verb::Rmdir(o) => &o.volume,
            Verb::Mv(o) => &o.volume,
            Verb::Ln(o) => &o.volume,
            Verb::Chmod(o) => &o.volume,
            Verb::Chown(o) => &o.volume,
            Verb::Touch(o) => &o.volume,
            Verb::Tee(o) => &o.volume,
            Verb::Mknod(o) => &o.volume,
            Verb::Readlink(o) => &o.volume,
            Verb::Du(o) => &o.volume,
            Verb::Df(o) => &o.volume,
            Verb::Quota(o) => &o.volume,
            Verb::Truncate(o) => &o.volume,
            Verb::Fallocate(o) => &o.volume,
            Verb::Defrag(o) => &o.volume,
            Verb::Chattr(o) => &o.volume,
            Verb::Lsattr(o) => &o.volume,
            Verb::Extsize(o) => &o.volume,
            Verb::Cowextsize(o) => &o.volume,
            Verb::Xattr(o) => &o.volume,
            Verb::Label(o) => &o.volume,
            Verb::Relabel(o) => &o.volume,
            Verb::Info(o) => &o.volume,
            Verb::Check(o) => &o.volume,
            Verb::Fsck(o) => &o.volume,
            Verb::Repair(o) => &o.volume,
            Verb::Resize(o) => &o.volume,
            Verb::Diff(o) => &o.volume,
            Verb::Metadump(o) => &o.volume,
            #[cfg(feature = "remote")]
            Verb::Ship(o) => &o.volume,
            Verb::Log(o) => &o.volume,
            Verb::Stats(o) => &o.volume,
            Verb::Mount(o) => &o.volume,
            Verb::Serve(o) => &o.volume,
            #[cfg(all(feature = "nbd", target_os = "linux"))]
            Verb::NbdServe(o) => &o.volume,
            _ => return None,
        })
    }

    fn run(self, words: &[String]) -> u8 {
        let with = |name: &'static str,
                    json: bool,
                    body: &dyn Fn(&Session, &Images) -> Result<()>|
         -> u8 {
            let session = Session::new(name, json);
            let Some(journal) = session.ok(journal(words)) else {
                session.set_code(2);
                return session.end();
            };
            let images = match self.volume() {
                Some(volume) => volume.images(journal),
                None => Images::new(false, Location::whole()).with_journal(journal),
            };
            session.ok(body(&session, &images));
            session.ok(images.close());
            session.end()
        };
        match &self.command {
            Verb::Mkfs(o) => with("mkfs", false, &|s, i| cmd::mkfs::run(&o.own, s, i)),
            Verb::Import(o) => with("import", false, &|s, i| cmd::import::run(&o.own, s, i)),
            Verb::Export(o) => with("export", false, &|s, i| cmd::export::run(&o.own, s, i)),
            Verb::Ls(o) => with("ls", o.own.json(), &|s, i| cmd::ls::run(&o.own, s, i)),
            Verb::Stat(o) => with("stat", o.own.json, &|s, i| cmd::stat::run(&o.own, s, i)),
            Verb::Cat(o) => with("cat", false, &|s, i| cmd::cat::run(&o.own, s, i)),
            Verb::Cp(o) => with("cp", false, &|s, i| cmd::cp::run(&o.own, s, i)),
            Verb::Find(o) => with("find", o.own.json(), &|s, i| cmd::find::run(&o.own, s, i)),
            Verb::Mkdir(o) => with("mkdir", false, &|s, i| cmd::mkdir::run(&o.own, s, i)),
            Verb::Rm(o) => with("rm", false, &|s, i| cmd::rm::run(&o.own, s, i)),
            Verb::Rmdir(o) => with("rmdir", false, &|s, i| cmd::rmdir::run(&o.own, s, i)),
            Verb::Mv(o) => with("mv", false, &|s, i| cmd::mv::run(&o.own, s, i)),
            Verb::Ln(o) => with("ln", false, &|s, i| cmd::ln::run(&o.own, s, i)),
            Verb::Chmod(o) => with("chmod", false, &|s, i| cmd::chmod::run(&o.own, s, i)),
            Verb::Chown(o) => with("chown", false, &|s, i| cmd::chown::run(&o.own, s, i)),
            Verb::Truncate(o) => with("truncate", false, &|s, i| cmd::truncate::run(&o.own, s, i)),
            Verb::Touch(o) => with("touch", false, &|s, i| cmd::touch::run(&o.own, s, i)),
            Verb::Tee(o) => with("tee", false, &|s, i| cmd::tee::run(&o.own, s, i)),
            Verb::Mknod(o) => with("mknod", false, &|s, i| cmd::mknod::run(&o.own, s, i)),
            Verb::Readlink(o) => with("readlink", false, &|s, i| cmd::readlink::run(&o.own, s, i)),
            Verb::Du(o) => with("du", o.own.json, &|s, i| cmd::du::run(&o.own, s, i)),
            Verb::Df(o) => with("df", o.own.json, &|s, i| cmd::df::run(&o.own, s, i)),
            Verb::Quota(o) => with("quota", o.own.json(), &|s, i| cmd::quota::run(&o.own, s, i)),
            Verb::Fallocate(o) => {
                with("fallocate", false, &|s, i| cmd::fallocate::run(&o.own, s, i))
            }
            Verb::Defrag(o) => with("defrag", o.own.json, &|s, i| cmd::defrag::run(&o.own, s, i)),
            Verb::Chattr(o) => with("chattr", false, &|s, i| cmd::chattr::run(&o.own, s, i)),
            Verb::Lsattr(o) => with("lsattr", false, &|s, i| cmd::lsattr::run(&o.own, s, i)),
            Verb::Extsize(o) => with("extsize", false, &|s, i| cmd::extsize::run(&o.own, s, i)),
            Verb::Cowextsize(o) => {
                with("cowextsize", false, &|s, i| cmd::extsize::run_cow(&o.own, s, i))
            }
            Verb::Xattr(o) => with("xattr", o.own.json(), &|s, i| cmd::xattr::run(&o.own, s, i)),
            Verb::Label(o) => with("label", o.own.json, &|s, i| cmd::label::run(&o.own, s, i)),
            Verb::Relabel(o) => {
                with("relabel", o.own.json, &|s, i| cmd::relabel::run(&o.own, s, i))
            }
            Verb::Info(o) => with("info", o.own.json, &|s, i| cmd::info::run(&o.own, s, i)),
            Verb::Check(o) => with("check", o.own.json, &|s, i| cmd::check::run(&o.own, s, i)),
            Verb::Fsck(o) => with("fsck", o.own.json, &|s, i| cmd::fsck::run(&o.own, s, i)),
            Verb::Repair(o) => with("repair", o.own.json, &|s, i| cmd::repair::run(&o.own, s, i)),
            Verb::Resize(o) => with("resize", o.own.json, &|s, i| cmd::resize::run(&o.own, s, i)),
            Verb::Fork(o) => with("fork", false, &|_, _| cmd::fork::run(o)),
            Verb::Diff(o) => with("diff", o.own.json, &|s, i| cmd::diff::run(&o.own, s, i)),
            Verb::Commit(o) => with("commit", o.json, &|s, _| cmd::commit::run(o, s)),
            Verb::Metadump(o) => {
                with("metadump", o.own.json, &|s, i| cmd::metadump::run(&o.own, s, i))
            }
            Verb::Mdrestore(o) => with("mdrestore", o.json, &|s, _| cmd::mdrestore::run(o, s)),
            #[cfg(feature = "remote")]
            Verb::Ship(o) => with("ship", o.own.json, &|s, i| cmd::ship::run(&o.own, s, i)),
            #[cfg(feature = "remote")]
            Verb::Restore(o) => with("restore", o.json, &|s, _| cmd::restore::run(o, s)),
            Verb::Disk(o) => with(o.command(), o.json(), &|s, _| cmd::disk::run(o, s)),
            Verb::Log(o) => with("log", o.own.json(), &|s, i| cmd::log::run(&o.own, s, i)),
            Verb::Stats(o) => with("stats", o.own.json, &|s, i| cmd::stats::run(&o.own, s, i)),
            Verb::Status(o) => with("status", o.json, &|s, _| cmd::status::run(o, s)),
            Verb::Sync(o) => with("sync", false, &|s, _| cmd::sync::run(o, s)),
            #[cfg(target_os = "linux")]
            Verb::Freeze(o) => with("freeze", false, &|s, _| cmd::freeze::run(o, s)),
            #[cfg(target_os = "linux")]
            Verb::Thaw(o) => with("thaw", false, &|s, _| cmd::freeze::run_thaw(o, s)),
            #[cfg(target_os = "linux")]
            Verb::Scrub(o) => with("scrub", o.json, &|s, _| cmd::scrub::run(o, s)),
            #[cfg(feature = "bench")]
            Verb::Bench(o) => {
                with("bench", o.own.json, &|s, i| cmd::bench::run(&o.own, s, i.journal()))
            }
            Verb::Mount(o) => with("mount", false, &|s, i| cmd::mount::run(&o.own, s, i)),
            Verb::Serve(o) => with("serve", false, &|s, i| cmd::serve::run(&o.own, s, i)),
            #[cfg(all(feature = "nbd", target_os = "linux"))]
            Verb::NbdServe(o) => {
                with("nbd-serve", false, &|s, i| cmd::nbd_serve::run(&o.own, s, i))
            }
            Verb::Umount(o) => with("umount", false, &|s, _| cmd::umount::run(o, s)),
            #[cfg(feature = "crash")]
            Verb::Crash(o) => with("crash", o.json, &|s, _| cmd::crash::run(o, s)),
            Verb::CrashTest(o) => with("crash-test", o.json, &|s, _| cmd::crash_test::run(o, s)),
            #[cfg(target_os = "linux")]
            Verb::CrashTestAgent(o) => {
                with("crash-test-agent", false, &|_, _| cmd::crash_test_agent::run(o))
            }
            Verb::Ack(o) => with("ack", false, &|s, _| cmd::ack::run(o, s)),
            #[cfg(feature = "lab")]
            Verb::Lab(o) => with("lab", false, &|s, _| cmd::lab::run(o, s)),
            Verb::As(o) => with("as", false, &|_, _| cmd::as_name::run(o)),
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
    fn clap_accepts_the_definition() {
        super::definition().debug_assert();
    }
}
