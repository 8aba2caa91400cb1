//! A tarball into an image, and back: uxfs, root's own way, and a plain copy of the tarball as the
//! floor.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::host::{
    self, Scratch, drain, drop_from_cache, is_root, peak_memory_kib, read_into_cache, run, sync,
    timed,
};
use crate::{BenchError, Report, Result, Row};

/// The measurement, and where it runs.
#[derive(Clone, Debug)]
pub struct Options {
    /// The tarball, not compressed.
    pub tar: PathBuf,
    /// A directory on the host file system to measure on.
    pub dir: PathBuf,
    /// The command `uxfs`, run as a process of its own.
    pub uxfs: PathBuf,
    pub rounds: u32,
    pub size: u64,
}

const STABLE: &str = "on stable storage";
const NOTHING: &str = "nothing written";
const UXFS: &str = "uxfs import";
const ROOT: &str = "root's way (mkfs.xfs, loop mount, tar, umount)";
const FLOOR: &str = "floor (copy of the tarball)";

/// Measures imports, then exports.
///
/// # Errors
/// If a step fails.
pub fn run_all(options: &Options, say: &mut dyn FnMut(&str)) -> Result<Vec<Report>> {
    let scratch = Scratch::new(&options.dir)?;
    read_into_cache(&options.tar)?;
    let mut reports = vec![imports(options, &scratch, say)?];
    if is_root() {
        reports.push(exports(options, &scratch, say)?);
    }
    Ok(reports)
}

fn imports(options: &Options, scratch: &Scratch, say: &mut dyn FnMut(&str)) -> Result<Report> {
    let mut rows = [Row::new(UXFS, STABLE), Row::new(ROOT, STABLE), Row::new(FLOOR, STABLE)];
    let mut notes = Vec::new();
    let with_root = is_root() && host::has("mkfs.xfs");
    if !with_root {
        notes.push("root's way needs root and mkfs.xfs: not measured".to_owned());
    }
    let (own, kernel, copy) =
        (scratch.file("uxfs.img"), scratch.file("kernel.img"), scratch.file("copy.tar"));
    for round in 1..=options.rounds {
        say(&format!("import, round {round} of {}", options.rounds));
        clean(&[&own])?;
        let (seconds, memory) = timed(|| uxfs_import(options, &own, &[]))?;
        rows[0].samples.push(seconds);
        rows[0].memory_kib = rows[0].memory_kib.max(Some(memory));
        if with_root {
            clean(&[&kernel])?;
            rows[1].samples.push(timed(|| import_as_root(options, scratch, &kernel))?.0);
        }
        clean(&[&copy])?;
        let (seconds, ()) = timed(|| {
            run("cp", &[&options.tar, &copy])?;
            sync(&copy)
        })?;
        rows[2].samples.push(seconds);
    }
    clean(&[&copy])?;
    let base = if with_root { ROOT } else { FLOOR };
    let mut rows = rows.to_vec();
    rows.retain(|r| !r.samples.is_empty());
    let ratio = |name: &str, base: &str| {
        let median = |n: &str| rows.iter().find(|r| r.name == n).map_or(0.0, Row::median);
        median(name) / median(base)
    };
    notes.push(format!("uxfs import is {:.2}x the floor", ratio(UXFS, FLOOR)));
    let title = format!("{} into an image of {} MiB", options.tar.display(), options.size >> 20);
    Ok(Report { title, unit: "s", rows, base: base.into(), notes })
}

fn clean(paths: &[&Path]) -> Result<()> {
    for path in paths {
        if path.exists() {
            std::fs::remove_file(path)
                .map_err(|e| BenchError::new(path.display().to_string(), e))?;
        }
    }
    Ok(())
}

/// Measures imports without a journal, and with one from the first file on.
///
/// # Errors
/// If a step fails.
pub fn durable(options: &Options, say: &mut dyn FnMut(&str)) -> Result<Report> {
    const PLAIN: &str = "uxfs import";
    const DURABLE: &str = "uxfs import --durable";
    const END: &str = "on stable storage at the end; a cut before leaves nothing";
    const EACH: &str = "on stable storage at the end; a cut before leaves what was done by then";
    let scratch = Scratch::new(&options.dir)?;
    read_into_cache(&options.tar)?;
    let mut rows = vec![Row::new(PLAIN, END), Row::new(DURABLE, EACH)];
    let image = scratch.file("uxfs.img");
    for round in 1..=options.rounds {
        say(&format!("import, round {round} of {}", options.rounds));
        for (row, how) in rows.iter_mut().zip([&[][..], &["--durable"]]) {
            clean(&[&image])?;
            let (seconds, memory) = timed(|| uxfs_import(options, &image, how))?;
            row.samples.push(seconds);
            row.memory_kib = row.memory_kib.max(Some(memory));
        }
    }
    let title = format!("{} into an image of {} MiB", options.tar.display(), options.size >> 20);
    Ok(Report { title, unit: "s", rows, base: PLAIN.into(), notes: Vec::new() })
}

fn uxfs_import(options: &Options, image: &Path, how: &[&str]) -> Result<u64> {
    let child = Command::new(&options.uxfs)
        .args(["import", "-q"])
        .args(how)
        .arg(&options.tar)
        .arg(image)
        .args(["--size", &options.size.to_string()])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .spawn()
        .map_err(|e| BenchError::new("uxfs import", e))?;
    let peak = peak_memory_kib(child, "uxfs import")?;
    sync(image)?;
    Ok(peak)
}

fn import_as_root(options: &Options, scratch: &Scratch, image: &Path) -> Result<()> {
    let file = std::fs::File::create(image).and_then(|f| f.set_len(options.size));
    file.map_err(|e| BenchError::new(image.display().to_string(), e))?;
    run("mkfs.xfs", &[&"-q", &image])?;
    run("mount", &[&"-o", &"loop", &image, &scratch.mnt()])?;
    run("tar", &[&"-C", &scratch.mnt(), &"-xf", &options.tar])?;
    run("umount", &[&scratch.mnt()])?;
    sync(image)
}

/// Measures cold exports of the image that the kernel made: only the image of a trusted driver is
/// mounted.
fn exports(options: &Options, scratch: &Scratch, say: &mut dyn FnMut(&str)) -> Result<Report> {
    const OWN: &str = "uxfs export";
    const TAR: &str = "tar c from the kernel's read-only loop mount";
    let mut rows = vec![Row::new(OWN, NOTHING), Row::new(TAR, NOTHING)];
    let image = scratch.file("kernel.img");
    for round in 1..=options.rounds {
        say(&format!("export, round {round} of {}", options.rounds));
        drop_from_cache(&image)?;
        let (seconds, bytes) = timed(|| {
            let mut command = Command::new(&options.uxfs);
            piped(command.arg("export").arg(&image), "uxfs export")
        })?;
        rows[0].samples.push(seconds);
        drop_from_cache(&image)?;
        run("mount", &[&"-o", &"loop,ro", &image, &scratch.mnt()])?;
        let timed = timed(|| {
            let mut command = Command::new("tar");
            piped(command.arg("-C").arg(scratch.mnt()).args(["-cf", "-", "."]), "tar c")
        });
        run("umount", &[&scratch.mnt()])?;
        let (seconds, other) = timed?;
        rows[1].samples.push(seconds);
        if bytes < other / 2 {
            return Err(BenchError::new(OWN, format!("{bytes} bytes where tar has {other}")));
        }
    }
    let title = "the image back into a tar stream, cold".to_owned();
    Ok(Report { title, unit: "s", rows, base: TAR.into(), notes: Vec::new() })
}

/// Runs a command, and reads and counts its output.
fn piped(command: &mut Command, what: &str) -> Result<u64> {
    let fail = |e: std::io::Error| BenchError::new(what, e);
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().map_err(fail)?;
    let bytes = match &mut child.stdout {
        Some(out) => drain(out).map_err(fail)?,
        None => 0,
    };
    let status = child.wait().map_err(fail)?;
    if !status.success() {
        return Err(BenchError::new(what, status));
    }
    Ok(bytes)
}
