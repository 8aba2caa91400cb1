//! `uxfs relabel`: SELinux labels of an image's files by the rules of a policy.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::Args;
use serde_json::{Map, Value, json};
use uxfs::labels::{LabelEvent, RelabelError, RelabelOptions, RelabelSummary};
use uxfs_host::os_str;

use crate::contexts;
use crate::image::Images;
use crate::json;
use crate::place::Inside;
use crate::session::{Failure, Result, Session};
use crate::tree;

/// Give the files in an image the SELinux labels that a policy's rules name
///
/// Sets the attribute security.selinux of each file at and below PATH, as `setfiles -F` does on a
/// mounted volume. A file for which no rule matches, or the rule says `<<none>>`, is left alone. A file
/// with several names gets the label of the first one, in the order of the bytes. No SELinux kernel is
/// needed, and labels need not be known to the policy of the machine.
#[derive(Args)]
#[command(after_help = "Examples:\n  \
    uxfs relabel disk.img --file-contexts auto\n  \
    uxfs relabel -nv disk.img --file-contexts auto\n  \
    uxfs relabel -v disk.img:/etc --file-contexts policy/file_contexts")]
pub(crate) struct Options {
    /// The rules (file_contexts(5)). FILE.homedirs, FILE.local, FILE.subs and FILE.subs_dist are read
    /// too, if they exist. auto: the rules of the policy in the image, which its /etc/selinux/config
    /// names
    #[arg(long, value_name = "FILE,...|auto", value_delimiter = ',', required = true)]
    file_contexts: Vec<PathBuf>,
    /// Change nothing
    #[arg(short = 'n', long)]
    dry_run: bool,
    /// Print each file whose label differs, with its old and new label
    #[arg(short, long)]
    verbose: bool,
    /// Print a JSON document
    #[arg(long)]
    pub(crate) json: bool,
    /// The images, and the paths in them; default: the whole volume
    #[arg(value_name = "IMAGE[:/PATH]", required = true)]
    places: Vec<OsString>,
}

pub(crate) fn run(options: &Options, session: &Session, images: &Images) -> Result<()> {
    let labels = contexts::labels(&options.file_contexts)?;
    let mut document = Document::default();
    for place in &options.places {
        let place = Inside::parse(place);
        let done = one(options, session, images, &labels, &place, &mut document);
        session.ok(done);
    }
    match options.json {
        true => session.print(json::document("relabel", document.finish(options.dry_run))),
        false => Ok(()),
    }
}

fn one(
    options: &Options,
    session: &Session,
    images: &Images,
    labels: &uxfs::labels::Labels,
    place: &Inside,
    document: &mut Document,
) -> Result<()> {
    let image = images.get(&place.image, !options.dry_run)?;
    let rules = labels.of_volume(&image.fs);
    let rules = rules.map_err(|error| Failure::new(&place.image, error.to_string()))?;
    let top = match place.base() {
        b"" => place.clone(),
        name => {
            let parent = Inside { image: place.image.clone(), path: place.parent().to_vec() };
            tree::canonical(images, &parent, true)?.join(name)
        }
    };
    let shown = |path: &[u8]| Inside { image: place.image.clone(), path: path.to_vec() }.shown();
    let mut how = RelabelOptions::default();
    how.dry_run = options.dry_run;
    let mut printed = Ok(());
    let mut listener = |event: LabelEvent<'_>| match event {
        LabelEvent::Changed { path, old, new } if options.json => {
            document.changed(&shown(path), old, new)
        }
        LabelEvent::Changed { path, old, new } if options.verbose && printed.is_ok() => {
            let verb: &[u8] = if options.dry_run { b"Would relabel " } else { b"Relabeled " };
            let old = old.unwrap_or(b"<no context>");
            let line = [verb, &shown(path), b" from ", old, b" to ", new, b"\n"].concat();
            printed = session.print(line);
        }
        LabelEvent::Changed { .. } => {}
        LabelEvent::Failed { path, error } => {
            session.fail(Failure::volume(os_str(&shown(path)), error));
        }
    };
    let done = uxfs::labels::relabel(&image.fs, &top.path, &rules, how, &mut listener);
    printed?;
    let summary = done.map_err(|error| match error {
        RelabelError::Volume(error) => tree::at(&top, error),
        other => Failure::new(&place.image, other.to_string()),
    })?;
    document.add(summary);
    Ok(())
}

/// The JSON document.
#[derive(Default)]
struct Document {
    files: Vec<Value>,
    looked_at: u64,
    failed: u64,
}

impl Document {
    fn changed(&mut self, path: &[u8], old: Option<&[u8]>, new: &[u8]) {
        let mut map = Map::new();
        json::put_bytes(&mut map, "path", path);
        match old {
            Some(old) => json::put_bytes(&mut map, "old", old),
            None => drop(map.insert("old".into(), Value::Null)),
        }
        json::put_bytes(&mut map, "new", new);
        self.files.push(Value::Object(map));
    }

    fn add(&mut self, summary: RelabelSummary) {
        self.looked_at += summary.files;
        self.failed += summary.failed;
    }

    fn finish(self, dry_run: bool) -> Map<String, Value> {
        let mut map = Map::new();
        map.insert("dry_run".into(), json!(dry_run));
        map.insert("files_examined".into(), json!(self.looked_at));
        map.insert("files_failed".into(), json!(self.failed));
        map.insert("changed".into(), Value::Array(self.files));
        map
    }
}
