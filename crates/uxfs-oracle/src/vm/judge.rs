//! The requests that most tests make of a kernel: list images, age images, cut the power.

use std::path::Path;

use super::machine::{Engine, Kernel, Output, Vm};
use crate::{Finding, Listing};

/// Mounts each image read-only, which recovers its log if necessary, and lists it. The images stay
/// untouched. One boot serves many images.
///
/// # Errors
/// The kernel refused to mount an image, or complained.
///
/// # Panics
/// As [`Vm::run`].
pub fn list(kernel: Kernel, images: &[&Path]) -> Result<Vec<Listing>, Finding> {
    in_machines(
        kernel,
        images,
        |image| image,
        |some| {
            let mut vm = Vm::new(kernel);
            let mut script = "set -e\n".to_owned();
            for (number, image) in some.iter().enumerate() {
                vm = vm.drive(image, false);
                script.push_str(&listing_script(number));
            }
            let judge = vm.judge();
            let output = vm.script(&script).run()?;
            let all = some.iter().enumerate();
            all.map(|(number, image)| listing(&output, number, &judge, image)).collect()
        },
    )
}

/// Mounts the image for writing, lets `uxfs-ager` carry out `ops` operations chosen by `seed`,
/// unmounts it, mounts it again and lists it. Changes the image.
///
/// # Errors
/// The kernel refused to mount it or complained, or an operation failed with an error that is not
/// expected.
///
/// # Panics
/// As [`Vm::run`].
pub fn age(kernel: Kernel, image: &Path, seed: u64, ops: u32) -> Result<Listing, Finding> {
    Ok(age_all(kernel, &[(image, seed)], ops)?.remove(0))
}

/// [`age`] for many images in one boot, each with a seed of its own.
///
/// # Errors
/// As [`age`], of the first that it is true of.
///
/// # Panics
/// As [`Vm::run`].
pub fn age_all(kernel: Kernel, images: &[(&Path, u64)], ops: u32) -> Result<Vec<Listing>, Finding> {
    in_machines(
        kernel,
        images,
        |(image, _)| image,
        |some| {
            let mut vm = Vm::new(kernel);
            let mut script = "set -e\n".to_owned();
            for (number, (image, seed)) in some.iter().enumerate() {
                vm = vm.drive(image, true);
                script.push_str(&format!(
                    "step ageing drive {number} with seed {seed}\n\
                mount -t xfs /drive/{number} /mnt\n\
                uxfs-ager /mnt {seed} {ops} >&2\numount /mnt\n{}",
                    listing_script(number)
                ));
            }
            let judge = vm.judge();
            let output = vm.script(&script).run()?;
            let all = some.iter().enumerate();
            all.map(|(number, (image, _))| listing(&output, number, &judge, image)).collect()
        },
    )
}

/// A volume whose machine loses power while it is in use.
#[derive(Clone, Debug)]
pub struct Crash<'a> {
    /// The image, which is changed.
    pub image: &'a Path,
    /// Options to mount it with.
    pub options: &'a str,
    pub seed: u64,
    /// Number of operations before the power may be cut.
    pub ops: u32,
}

/// Mounts the images for writing, works on all of them at once, and resets the machine meanwhile,
/// without a sync: their logs are dirty.
///
/// # Errors
/// The kernel refused to mount an image, or complained.
///
/// # Panics
/// As [`Vm::run`].
pub fn crash(kernel: Kernel, volumes: &[Crash<'_>]) -> Result<(), Finding> {
    in_machines(kernel, volumes, |volume| volume.image, |some| crash_one(kernel, some)).map(drop)
}

/// The end of a script whose volumes are cut off as they are: the end of init, but with a reset. A shutdown would
/// first remove the drives, and the kernel would complain about that.
pub const POWER_CUT: &str = "echo 0 >/out/.status\ntar -c -f /drive/out -C /out .\n\
    echo uxfs-done >/dev/console\necho b >/proc/sysrq-trigger\n";

/// Runs one machine for [`crash`].
fn crash_one(kernel: Kernel, volumes: &[&Crash<'_>]) -> Result<Vec<()>, Finding> {
    let mut vm = Vm::new(kernel);
    let mut script = "set -e\n".to_owned();
    for (number, volume) in volumes.iter().enumerate() {
        let Crash { image, options, seed, ops } = volume;
        let options = if options.is_empty() { "rw" } else { options };
        vm = vm.drive(image, true);
        script.push_str(&format!(
            "step cutting off drive {number}, seed {seed}\nmkdir /tree{number}\n\
            mount -t xfs -o {options} /drive/{number} /tree{number}\n\
            uxfs-storm /tree{number} {seed} {ops} /out/ready{number} >&2 &\n"
        ));
    }
    for number in 0..volumes.len() {
        script.push_str(&format!("while [ ! -e /out/ready{number} ]; do sleep 0.1; done\n"));
    }
    script.push_str(POWER_CUT);
    vm.script(&script).run().map(|_| vec![(); volumes.len()])
}

/// Calls `run` for groups of `all` that fit into one machine: no more images than it has drives,
/// all of one engine. Returns the results in the order of `all`.
fn in_machines<T, R>(
    kernel: Kernel,
    all: &[T],
    image: impl Fn(&T) -> &Path,
    mut run: impl FnMut(&[&T]) -> Result<Vec<R>, Finding>,
) -> Result<Vec<R>, Finding> {
    let mut results: Vec<(usize, R)> = Vec::with_capacity(all.len());
    let engines: Vec<_> = all.iter().map(|one| Engine::for_image(kernel, image(one))).collect();
    for engine in [Engine::Uml, Engine::Qemu] {
        let those: Vec<usize> = (0..all.len()).filter(|at| engines[*at] == engine).collect();
        for some in those.chunks(Vm::DRIVES_MAX) {
            let group: Vec<&T> = some.iter().map(|at| &all[*at]).collect();
            results.extend(some.iter().copied().zip(run(&group)?));
        }
    }
    results.sort_by_key(|(at, _)| *at);
    Ok(results.into_iter().map(|(_, result)| result).collect())
}

/// Mounts a drive read-only and lists it to `/out`.
fn listing_script(number: usize) -> String {
    format!(
        "step listing drive {number}\nmount -t xfs -o ro /drive/{number} /mnt\n\
        uxfs-lister /mnt >/out/{number}\numount /mnt\n"
    )
}

fn listing(output: &Output, number: usize, judge: &str, image: &Path) -> Result<Listing, Finding> {
    let text = output.files.get(&number.to_string()).map(Vec::as_slice).unwrap_or_default();
    let parsed = String::from_utf8_lossy(text).parse::<Listing>();
    parsed.map_err(|e| Finding::new(judge, Some(image), vec![e]))
}
