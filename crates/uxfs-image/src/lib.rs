//! Whole disk images: a partition table, an EFI system partition, XFS volumes filled with trees, verity
//! hash trees, in the formats that hypervisors and clouds take.
//!
//! [`build`] makes a disk as a TOML file describes it ([`spec::Spec`]); [`info()`](info::info) lists
//! what is on a disk, [`resize`] makes a disk larger or smaller; [`output`] converts raw images, and
//! [`import`] makes an image of one volume in any format. XFS itself is `uxfs`'s business.

#![warn(missing_docs)]

pub mod build;
mod error;
pub mod fat;
pub mod gpt;
mod identity;
pub mod import;
pub mod info;
pub mod output;
mod plan;
pub mod resize;
mod sparse;
pub mod spec;
pub mod types;
pub mod verity;

pub use error::ImageError;
