//! `uxfs cp`: copies files into an image, out of an image, and between images.

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use clap::Args;
use uxfs::copy::{
    Copier, CopyError, CopyFrom, CopyOptions, CopyTo, Event, FileInfo, FileKind, Follow,
    HostSource, HostTarget, ImageSource, ImageTarget, Preserve, Reflink, StreamSource, TargetTree,
    copy_to_writer,
};
use uxfs_host::{OsStrExt, OsStringExt};

use uxfs::labels::FileContexts;

use crate::cmd::clone;
use crate::contexts::LabelOptions;
use crate::edit;
use crate::image::{Image, Images};
use crate::kind::Kind;
use crate::place::{Inside, Place, base, trim};
use crate::session::{Failure, Result, Session};
use crate::tree;

/// Copy files into an image, out of one, or between two
///
/// At least one of source and target must lie in an image. Exception: `--reflink=always` without other
/// options also clones regular files inside a volume that uxfs has mounted, where cp(1) cannot. Holes
/// stay holes. When copying out of an image, cp writes nothing outside the target directory, whatever
/// names and links the image holds.
///
/// Without -r or -a, cp copies the content of a fifo or a device of the host; with -r or -a it makes a
/// fifo or device node. As a source, - is standard input; as the target, it is standard output. Write
/// ./- for a file of that name.
#[derive(Args)]
#[command(after_help = "Examples:\n  \
    uxfs cp -r /usr/include disk.img:/inc\n  \
    uxfs cp -a disk.img:/etc ./etc\n  \
    uxfs cp -a one.img:/home two.img:/\n  \
    uxfs cp -ru src disk.img:/src\n  \
    uxfs cp -a ./etc disk.img:/ --file-contexts auto\n  \
    some-command | uxfs cp - disk.img:/result\n  \
    uxfs cp disk.img:/etc/passwd - | wc -l\n  \
    uxfs cp --reflink=always disk.img:/big disk.img:/clone\n  \
    uxfs cp --reflink=always /mnt/big /mnt/clone")]
pub(crate) struct Options {
    /// Copy directories and their content
    #[arg(short, long, visible_short_alias = 'R')]
    recursive: bool,
    /// Keep everything; same as -r -d --preserve=all
    #[arg(short, long)]
    archive: bool,
    /// Keep mode, owner and times; same as --preserve=mode,ownership,timestamps
    #[arg(short = 'p')]
    keep: bool,
    /// Keep symbolic links and hard links; same as -P --preserve=links
    #[arg(short = 'd')]
    keep_links: bool,
    /// Keep these: mode, ownership, timestamps, links, xattr, all
    #[arg(long, value_name = "LIST", value_delimiter = ',', num_args = 0..=1,
          require_equals = true, default_missing_value = "mode,ownership,timestamps",
          value_parser = ["mode", "ownership", "timestamps", "links", "context", "xattr", "all"])]
    preserve: Vec<String>,
    /// Do not keep these
    #[arg(long, value_name = "LIST", value_delimiter = ',',
          value_parser = ["mode", "ownership", "timestamps", "links", "context", "xattr", "all"])]
    no_preserve: Vec<String>,
    /// Never follow symbolic links
    #[arg(short = 'P', long, overrides_with_all = ["dereference", "named"])]
    no_dereference: bool,
    /// Follow symbolic links
    #[arg(short = 'L', long, overrides_with_all = ["no_dereference", "named"])]
    dereference: bool,
    /// Follow symbolic links that are operands
    #[arg(short = 'H', id = "named", overrides_with_all = ["no_dereference", "dereference"])]
    named: bool,
    /// Share blocks when copying inside an image: auto (where possible), always, never
    #[arg(long, value_name = "WHEN", num_args = 0..=1, require_equals = true,
          default_value = "auto", default_missing_value = "always",
          value_parser = ["auto", "always", "never"])]
    reflink: String,
    /// With -r, copy the content of devices and fifos
    #[arg(long)]
    copy_contents: bool,
    /// Do not overwrite existing files
    #[arg(short, long, overrides_with = "interactive")]
    no_clobber: bool,
    /// Ask before overwriting a file
    #[arg(short, long, overrides_with = "no_clobber")]
    interactive: bool,
    /// Overwrite existing files only if the source was modified later
    #[arg(short, long)]
    update: bool,
    /// Remove and recreate a target file that cannot be written
    #[arg(short, long)]
    force: bool,
    /// Copy all sources into this directory
    #[arg(short, long, value_name = "DIRECTORY", conflicts_with = "no_target_directory")]
    target_directory: Option<OsString>,
    /// Treat the last operand as the new name, even if it is a directory
    #[arg(short = 'T', long)]
    no_target_directory: bool,
    #[command(flatten)]
    labels: LabelOptions,
    /// Print each copied file
    #[arg(short, long)]
    verbose: bool,
    /// Sources, then the target unless -t gives it
    #[arg(value_name = "FILE", required = true)]
    files: Vec<OsString>,
}

impl Options {
    fn preserve(&self) -> Preserve {
        let mut kept = if self.archive { Preserve::all() } else { Preserve::default() };
        if self.keep {
            (kept.mode, kept.ownership, kept.timestamps) = (true, true, true);
        }
        kept.links |= self.keep_links;
        for (names, on) in [(&self.preserve, true), (&self.no_preserve, false)] {
            for name in names {
                match name.as_str() {
                    "mode" => kept.mode = on,
                    "ownership" => kept.ownership = on,
                    "timestamps" => kept.timestamps = on,
                    "links" => kept.links = on,
                    "xattr" => (kept.xattr, kept.require_xattr) = (on, on),
                    "all" if on => kept = Preserve::all(),
                    "all" => kept = Preserve::default(),
                    // "context": the SELinux context is an extended attribute like others.
                    _ => {}
                }
            }
        }
        kept
    }

    /// Is `--reflink=always` the only option that changes what is copied?
    fn clones(&self) -> bool {
        let may_skip = self.no_clobber || self.interactive || self.update;
        let plain = !self.recursive && !self.archive && !self.keep && !may_skip;
        plain && self.preserve.is_empty() && self.reflink == "always"
    }

    fn copying(&self) -> CopyOptions {
        let mut copy = CopyOptions::default();
        copy.recursive = self.recursive || self.archive;
        copy.copy_contents = self.copy_contents;
        copy.preserve = self.preserve();
        copy.follow = self.follow();
        copy.no_clobber = self.no_clobber;
        copy.update = self.update;
        copy.force = self.force;
        copy.reflink = match self.reflink.as_str() {
            "always" => Reflink::Always,
            "never" => Reflink::Never,
            _ => Reflink::Auto,
        };
        copy.umask = uxfs_host::umask();
        copy
    }

    fn follow(&self) -> Follow {
        let recursive = self.recursive || self.archive;
        if self.dereference {
            Follow::Always
        } else if self.named {
            Follow::Named
        } else if self.no_dereference || self.keep_links || recursive {
            Follow::Never
        } else {
            Follow::Always
        }
    }
}

pub(crate) fn run(options: &Options, session: &Session, images: &Images) -> Result<()> {
    let (sources, target) = match (&options.target_directory, options.files.split_last()) {
        (Some(directory), _) => (&options.files[..], directory),
        (None, Some((last, rest))) if !rest.is_empty() => (rest, last),
        _ => return Err(Failure::bare("missing destination file operand")),
    };
    let target_place = match target == STREAM {
        true => Place::Host(PathBuf::from(STREAM)),
        false => Place::parse(target),
    };
    let work = Work { options, session, images, copy: options.copying(), sources, written: target };
    match &target_place {
        Place::Image(place) => work.copy_in(place),
        Place::Host(path) => work.copy_out(path),
    }
}

struct Work<'a> {
    options: &'a Options,
    session: &'a Session,
    images: &'a Images,
    copy: CopyOptions,
    sources: &'a [OsString],
    /// The target as given on the command line.
    written: &'a OsString,
}

/// The name of standard input as a source, and of standard output as the target.
const STREAM: &str = "-";

/// How names of copies are chosen in the target directory.
enum Naming {
    /// Each source keeps its name.
    Into,
    /// The only source gets this name.
    As(Vec<u8>),
}

impl Work<'_> {
    /// Decides whether sources are copied into the target or to its name.
    fn naming(&self, is_dir: bool, name: &[u8]) -> Result<Naming> {
        let many = self.sources.len() > 1 || self.options.target_directory.is_some();
        if is_dir && !self.options.no_target_directory {
            return Ok(Naming::Into);
        }
        if many {
            return Err(Failure::new(self.written, "is not a directory").of(Kind::NotDirectory));
        }
        Ok(Naming::As(name.to_vec()))
    }

    fn copy_in(&self, place: &Inside) -> Result<()> {
        let labels = self.options.labels.labels()?;
        let image = self.images.get(&place.image, true)?;
        let fs = &image.fs;
        let there = fs.resolve(&place.path, true).and_then(|ino| fs.stat(ino));
        let is_dir = there.as_ref().is_ok_and(tree::is_dir);
        let naming = self.naming(is_dir, place.base())?;
        let (dir, path, naming) = match (naming, there) {
            (Naming::Into, Ok(stat)) => (stat.ino, place.path.clone(), Naming::Into),
            _ => {
                let place = self.followed(&image, place)?;
                let slot = tree::slot(self.images, &place)?;
                (slot.dir, place.parent().to_vec(), Naming::As(slot.name))
            }
        };
        let target = ImageTarget::new(fs, image.volume, edit::caller());
        let contexts = labels.map(|labels| labels.of_volume(fs)).transpose();
        let contexts = contexts.map_err(|error| Failure::new(&place.image, error.to_string()))?;
        let path = match &contexts {
            Some(_) => tree::canonical(self.images, &Inside { path, ..place.clone() }, true)?.path,
            None => path,
        };
        self.copy_all(&target, (&Rc::new(target.dir(dir)), &path), &naming, contexts.as_deref())
    }

    /// Follows symbolic links at the end of the target: cp(1) follows a link that is an operand.
    fn followed(&self, image: &Rc<Image>, place: &Inside) -> Result<Inside> {
        let mut place = place.clone();
        for _ in 0..40 {
            let ino = match image.fs.resolve(&place.path, false) {
                Ok(ino) => ino,
                Err(uxfs::Error::NotFound) => return Ok(place),
                Err(error) => return Err(tree::at(&place, error)),
            };
            let stat = image.fs.stat(ino).map_err(|error| tree::at(&place, error))?;
            if !tree::is_link(&stat) {
                return Ok(place);
            }
            let to = image.fs.readlink(ino).map_err(|error| tree::at(&place, error))?;
            let path = if to.starts_with(b"/") { to } else { [place.parent(), b"/", &to].concat() };
            place = Inside { path, ..place };
        }
        Err(tree::at(&place, uxfs::Error::Loop))
    }

    fn copy_out(&self, path: &Path) -> Result<()> {
        if self.options.labels.labels()?.is_some() {
            let text = "--file-contexts labels copies in an image, and the target lies in none";
            return Err(Failure::bare(text));
        }
        if !self.sources.iter().any(|source| matches!(Place::parse(source), Place::Image(_))) {
            if self.options.clones() {
                let always = self.copy.reflink == Reflink::Always;
                return clone::run(self.sources, path, always, self.session);
            }
            return Err(Failure::bare("neither source nor target lies in an image: use cp"));
        }
        if self.written == STREAM {
            let mut out = self.session.out.borrow_mut();
            return self.copy_to_stream(&mut *out, STREAM.as_ref());
        }
        let host = |error: io::Error| Failure::host(path, &error);
        let there = std::fs::metadata(path);
        let is_dir = there.as_ref().is_ok_and(|meta| meta.is_dir());
        if there.is_ok_and(|meta| !meta.is_dir() && !meta.is_file()) {
            // Write into the device or fifo.
            let file = std::fs::OpenOptions::new().write(true).open(path).map_err(host)?;
            return self.copy_to_stream(&mut &file, path);
        }
        let name = base(path.as_os_str().as_bytes()).to_vec();
        let naming = self.naming(is_dir, &name)?;
        let (dir, naming) = match naming {
            Naming::Into => (path.to_owned(), Naming::Into),
            Naming::As(_) => {
                // cp(1) follows a link that is an operand.
                let is_link = std::fs::symlink_metadata(path).is_ok_and(|m| m.is_symlink());
                let path =
                    if is_link { path.canonicalize().map_err(host)? } else { path.to_owned() };
                let bytes = trim(path.as_os_str().as_bytes());
                let name = base(bytes).to_vec();
                if matches!(name.as_slice(), b"" | b"." | b"..") {
                    return Err(Failure::new(&path, "not a name for a file"));
                }
                let up = &bytes[..bytes.len() - name.len()];
                let up = if up.is_empty() { b"." } else { up };
                (PathBuf::from(OsString::from_vec(up.to_vec())), Naming::As(name))
            }
        };
        let opened = HostTarget::open(&dir);
        let (target, dir) = opened.map_err(|error| Failure::new(path, error.to_string()))?;
        let kept = self.copy.preserve;
        if let Some(left_out) = uxfs_host::LEFT_OUT
            && (kept.mode || kept.ownership || kept.xattr)
        {
            self.session.say(format!("uxfs: cp: {left_out}").as_bytes());
        }
        self.copy_all(&target, (&Rc::new(dir), b"/"), &naming, None)
    }

    /// Copies one file to a stream: standard output, a fifo or a device.
    fn copy_to_stream(&self, out: &mut dyn io::Write, target: &Path) -> Result<()> {
        let [source] = self.sources else {
            return Err(Failure::new(target, "takes one file: use uxfs cat for several"));
        };
        if self.options.target_directory.is_some() {
            return Err(Failure::new(target, "is not a directory"));
        }
        let copied = match Place::parse(source) {
            Place::Image(inside) => {
                let follow = self.copy.follow != Follow::Never;
                let found = tree::find(self.images, &inside, false, follow)?;
                let side = ImageSource::new(found.fs(), found.image.volume);
                let opened = side.open(|| Ok(found.stat.ino));
                opened.and_then(|(node, info)| copy_to_writer(&side, &node, &info, out))
            }
            Place::Host(_) => {
                return Err(Failure::bare("neither source nor target lies in an image: use cp"));
            }
        };
        match copied {
            Ok(_) => Ok(()),
            // The reader has closed the pipe, so end as for standard output.
            Err(CopyError::Host(error)) if error.kind() == io::ErrorKind::BrokenPipe => {
                Err(error.into())
            }
            Err(CopyError::Host(error)) => Err(Failure::host(target, &error)),
            Err(error) => Err(Failure::new(source, error.to_string())),
        }
    }

    /// Fails if the target ends in a slash, which requires a directory, and the source is not one.
    fn check_kind(&self, naming: &Naming, info: &FileInfo) -> Result<()> {
        let wants_dir = matches!(naming, Naming::As(_)) && self.written.as_bytes().ends_with(b"/");
        match wants_dir && info.kind != FileKind::Dir {
            true => Err(Failure::volume(self.written, uxfs::Error::NotDir)),
            false => Ok(()),
        }
    }

    /// Copies all sources into a directory of the target, whose path is given for labels.
    fn copy_all<T: TargetTree>(
        &self,
        target: &T,
        (dir, path): (&Rc<T::Dir>, &[u8]),
        naming: &Naming,
        contexts: Option<&FileContexts>,
    ) -> Result<()> {
        let mut copier = Copier::<T>::new(self.copy);
        if let Some(contexts) = contexts {
            copier = copier.with_labels(contexts);
        }
        if self.options.interactive {
            let question = |path: &[u8]| [b"uxfs: cp: overwrite '", path, b"'"].concat();
            copier = copier.with_confirm(Box::new(move |path| edit::confirm(&question(path))));
        }
        for source in self.sources {
            let name = match naming {
                Naming::Into => self.name_of(source),
                Naming::As(name) => Ok(name.clone()),
            };
            let written = self.written.as_bytes();
            let shown = match naming {
                Naming::Into => name.as_ref().map(|name| {
                    let slash: &[u8] = if written.ends_with(b"/") { b"" } else { b"/" };
                    [written, slash, name].concat()
                }),
                Naming::As(_) => Ok(written.to_vec()),
            };
            let to = name.clone().and_then(|name| {
                let shown = shown.map_err(Clone::clone)?;
                let slash: &[u8] = if path.ends_with(b"/") { b"" } else { b"/" };
                let path = [path, slash, &name].concat();
                Ok(CopyTo { tree: target, dir: Rc::clone(dir), name, display_path: shown, path })
            });
            self.session.ok(to.and_then(|to| self.copy_one(&mut copier, source, to, naming)));
        }
        Ok(())
    }

    /// The name of a source's copy in the target directory.
    fn name_of(&self, source: &OsString) -> Result<Vec<u8>> {
        if source == STREAM {
            return Err(Failure::new(
                self.written,
                "is a directory: name the file for standard input",
            ));
        }
        let name = match Place::parse(source) {
            Place::Image(inside) => inside.base().to_vec(),
            Place::Host(path) => base(path.as_os_str().as_bytes()).to_vec(),
        };
        match name.as_slice() {
            b"" | b"." | b".." => Err(Failure::new(
                source,
                "has no name of its own for a directory: use -T, or name what is in it",
            )),
            _ => Ok(name),
        }
    }

    fn copy_one<T: TargetTree>(
        &self,
        copier: &mut Copier<'_, T>,
        source: &OsString,
        to: CopyTo<'_, T>,
        naming: &Naming,
    ) -> Result<()> {
        let follow = self.copy.follow != Follow::Never;
        let mut listen = |event: Event<'_>| match event {
            Event::Copied(from, to) if self.options.verbose => {
                let line = [b"'", from, b"' -> '", to, b"'\n"].concat();
                self.session.ok(self.session.print(line));
            }
            Event::Copied(..) => {}
            Event::Failed(path, error) => {
                self.session.fail(Failure::at(path, error.to_string()));
            }
        };
        let shown = trim(source.as_bytes()).to_vec();
        if source == STREAM {
            let side = StreamSource::new(io::stdin().lock());
            let (info, shown) = (side.info(), b"standard input".to_vec());
            self.check_kind(naming, &info)?;
            copier.copy(
                CopyFrom { tree: &side, node: (), info, display_path: shown },
                to,
                &mut listen,
            );
            return Ok(());
        }
        match Place::parse(source) {
            Place::Image(inside) => {
                let found = tree::find(self.images, &inside, false, follow)?;
                let side = ImageSource::new(found.fs(), found.image.volume);
                let (node, info) = side
                    .open(|| Ok(found.stat.ino))
                    .map_err(|e| Failure::new(source, e.to_string()))?;
                self.check_kind(naming, &info)?;
                copier.copy(
                    CopyFrom { tree: &side, node, info, display_path: shown },
                    to,
                    &mut listen,
                );
            }
            Place::Host(path) => {
                let side = HostSource;
                let opened = side.open(&path, follow);
                let (node, info) = opened.map_err(|error| match error {
                    CopyError::Host(error) => Failure::host(source, &error),
                    other => Failure::new(source, other.to_string()),
                })?;
                self.check_kind(naming, &info)?;
                copier.copy(
                    CopyFrom { tree: &side, node, info, display_path: shown },
                    to,
                    &mut listen,
                );
            }
        }
        Ok(())
    }
}
