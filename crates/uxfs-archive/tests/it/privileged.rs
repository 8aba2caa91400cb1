//! The tests with devices, owners, capabilities and `trusted.*` attributes, which need root.

use crate::{formats, tree, writer};

const MAKE: tree::Make = tree::make_privileged;

#[test]
#[ignore = "needs root"]
fn gnu_tar_pax() {
    formats::of_gnu_tar_pax(MAKE);
}

#[test]
#[ignore = "needs root"]
fn gnu_tar_own_format() {
    formats::of_gnu_tar(MAKE);
}

#[test]
#[ignore = "needs root"]
fn bsdtar_pax() {
    formats::of_bsdtar(MAKE);
}

#[test]
#[ignore = "needs root"]
fn our_reader_takes_back_all_of_it() {
    writer::taken_back(MAKE);
}

#[test]
#[ignore = "needs root"]
fn gnu_tar_and_bsdtar_extract_it() {
    writer::extracted(MAKE);
}

#[test]
#[ignore = "needs root"]
fn python_lists_it() {
    writer::listed(MAKE);
}
