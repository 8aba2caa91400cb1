//! Imports a tree straight into an image of any format.
//!
//! 1. The volume grows in a work directory beside the image: in a qcow2 image if one without
//!    compression is wanted, otherwise in a sparse raw file, which is converted to other formats.
//! 2. The image appears when it is complete; nothing else is left.

use std::path::PathBuf;

use uxfs::clock::Clock;
use uxfs::import::{self, ImportOptions, ImportSummary, Progress};
use uxfs::new_file::WorkDir;

use crate::error::ImageError;
use crate::identity::Identity;
use crate::output::{self, Format, Label};

/// Runs an import into a new image of this format. An image that exists is replaced if the options say
/// so ([`ImportOptions::force`]).
///
/// # Errors
/// [`ImageError`]; nothing is left then, and an existing image is unchanged.
pub fn run(
    mut options: ImportOptions,
    format: Format,
    progress: &mut dyn FnMut(Progress),
) -> Result<ImportSummary, ImageError> {
    let refused = |problem: &str| Err(ImageError::Usage(problem.into()));
    if !options.location.is_whole() {
        return refused(
            "an image of another format is made as a whole: give no partition or offset",
        );
    }
    if options.durable {
        let problem =
            "an image that is converted at the end holds nothing before: leave out --durable";
        return refused(problem);
    }
    let target = options.image.clone();
    output::check_target(&target, options.force)?;
    let work = WorkDir::beside(&target).map_err(ImageError::host(&target))?;
    // An import fills the format that the name ends in.
    let fills_qcow2 = matches!(format, Format::Qcow2 { compress: false });
    let disk: PathBuf = work.path().join(if fills_qcow2 { "disk.qcow2" } else { "disk" });
    options.image.clone_from(&disk);
    options.left_out.extend([target.clone(), work.path().to_owned()]);
    let summary = import::run(&options, progress)?;
    let identity = match options.mkfs.uuid {
        Some(uuid) => Identity::Seed(uuid.0.to_vec()),
        None => Identity::Random,
    };
    let time = options.source_date_epoch.unwrap_or_else(|| Clock::Real.now().sec);
    let label = Label { uuid: identity.uuid("image")?, time };
    let image = if fills_qcow2 { disk } else { output::convert(&disk, &work, format, &label)? };
    work.release(&image, &target).map_err(ImageError::host(&target))?;
    Ok(summary)
}
