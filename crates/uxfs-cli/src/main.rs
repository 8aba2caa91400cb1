//! The command `uxfs`.
fn main() {}
