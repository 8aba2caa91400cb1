//! Modules of the command line that read what users type.

#[path = "../../crates/uxfs-cli/src/mode.rs"]
#[allow(dead_code)]
pub(crate) mod mode;
#[path = "../../crates/uxfs-cli/src/number.rs"]
#[allow(dead_code)]
pub(crate) mod number;
#[path = "../../crates/uxfs-cli/src/pattern.rs"]
#[allow(dead_code)]
pub(crate) mod pattern;
#[path = "../../crates/uxfs-cli/src/place.rs"]
#[allow(dead_code)]
pub(crate) mod place;
#[path = "../../crates/uxfs-cli/src/quote.rs"]
#[allow(dead_code)]
pub(crate) mod quote;
#[path = "../../crates/uxfs-cli/src/time.rs"]
#[allow(dead_code)]
pub(crate) mod time;
