//! Where an address ends and a path in the image begins. It knows no device, so that the fuzzers can read
//! arguments as the command does.

/// Names of the schemes.
const SCHEMES: [&str; 8] = ["nbd", "nbds", "nbd+unix", "nbds+unix", "s3", "gs", "az", "file"];

/// What stands between the scheme and the rest.
const MARK: &[u8] = b"://";

/// Where an address ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// At the end of the argument.
    Whole,
    /// At a colon. What follows it is a path in the image.
    Colon(usize),
}

/// The scheme of an argument that is an address.
pub(crate) fn scheme(arg: &[u8]) -> Option<&'static str> {
    SCHEMES.into_iter().find(|scheme| {
        arg.strip_prefix(scheme.as_bytes()).is_some_and(|rest| rest.starts_with(MARK))
    })
}

/// The end of the address that an argument begins with; `None` if it begins with none.
pub(crate) fn end(arg: &[u8]) -> Option<End> {
    let from = scheme(arg)?.len() + MARK.len();
    let colon = arg[from..].windows(2).position(|pair| pair == b":/");
    Some(colon.map_or(End::Whole, |at| End::Colon(from + at)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_colon_and_slash_behind_the_scheme_end_an_address() {
        let ends = |arg: &str, address: &str| {
            let at = if arg == address { End::Whole } else { End::Colon(address.len()) };
            assert_eq!(end(arg.as_bytes()), Some(at), "{arg}");
        };
        ends("nbd+unix:///v?socket=/run/x.sock:/two", "nbd+unix:///v?socket=/run/x.sock");
        ends("nbd://host:10809/a:/b:/c", "nbd://host:10809/a");
        ends("nbd://[::1]:10809/a", "nbd://[::1]:10809/a");
        ends("file:///dir/store:/two", "file:///dir/store");
        ends("s3://b/p@12:/a", "s3://b/p@12");
        ends("s3://b/p%3A/q", "s3://b/p%3A/q");
        for arg in ["disk.img://etc", "./nbd://a", "nbd:/a", "unknown://a", "NBD://a", "nbd"] {
            assert_eq!(end(arg.as_bytes()), None, "{arg}");
        }
    }
}
