//! One `name=value` of an option group, and the types of values.

use crate::error::{MkfsError, usage};
use crate::size::{Size, parse_integer};

/// One `name` or `name=value` of an option letter.
pub(crate) struct Sub<'a> {
    letter: char,
    pub(crate) name: &'a str,
    value: Option<&'a str>,
}

impl core::fmt::Display for Sub<'_> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "-{} {}", self.letter, self.name)
    }
}

impl<'a> Sub<'a> {
    pub(crate) fn new(letter: char, part: &'a str) -> Self {
        match part.split_once('=') {
            Some((name, value)) if !value.is_empty() => Self { letter, name, value: Some(value) },
            Some((name, _)) => Self { letter, name, value: None },
            None => Self { letter, name: part, value: None },
        }
    }

    /// An option whose name and value are separate; an empty value means no value.
    pub(crate) fn with(letter: char, name: &'a str, value: &'a str) -> Self {
        Self { letter, name, value: (!value.is_empty()).then_some(value) }
    }

    /// The error for an unknown name.
    pub(crate) fn unknown<T>(&self) -> Result<T, MkfsError> {
        let value = self.value.map(|v| format!("={v}")).unwrap_or_default();
        usage(format!("unknown option {self}{value}"))
    }

    /// The error for an invalid value.
    pub(crate) fn invalid<T>(&self, why: &str) -> Result<T, MkfsError> {
        let value = self.value.unwrap_or_default();
        usage(format!("Invalid value {value} for {self} option. {why}"))
    }

    /// Fails if `other` was given, too.
    pub(crate) fn conflict(&self, other: &str, given: bool) -> Result<(), MkfsError> {
        if given { usage(format!("Cannot specify both {self} and {other}")) } else { Ok(()) }
    }

    /// The value as text; fails if there is none.
    pub(crate) fn text(&self) -> Result<&'a str, MkfsError> {
        match self.value {
            Some(value) => Ok(value),
            None => usage(format!("{self} option requires a value")),
        }
    }

    /// An integer without suffix in `min..=max`; `default` if there is no value.
    pub(crate) fn integer(
        &self,
        min: u32,
        max: u32,
        default: Option<u32>,
    ) -> Result<u32, MkfsError> {
        if self.value.is_none()
            && let Some(default) = default
        {
            return Ok(default);
        }
        let text = self.text()?.trim_start();
        let Some(number) = parse_integer(text.strip_prefix('+').unwrap_or(text)) else {
            return self.invalid("Not a number, or one with a suffix, which is not allowed.");
        };
        match u32::try_from(number) {
            Ok(n) if n < min => self.invalid("Value is too small."),
            Ok(n) if n <= max => Ok(n),
            _ => self.invalid("Value is too large."),
        }
    }

    /// An integer without suffix that is a power of two.
    pub(crate) fn plain_power(&self, min: u32, max: u32) -> Result<u32, MkfsError> {
        match self.integer(min, max, None)? {
            n if n.is_power_of_two() => Ok(n),
            _ => self.invalid("Value must be a power of 2."),
        }
    }

    /// 0 or 1; 1 if there is no value.
    pub(crate) fn flag(&self) -> Result<bool, MkfsError> {
        Ok(self.integer(0, 1, Some(1))? == 1)
    }

    /// A size whose unit is resolved later.
    pub(crate) fn size(&self) -> Result<Size, MkfsError> {
        let text = self.text()?.trim_start();
        match Size::parse(text.strip_prefix('+').unwrap_or(text)) {
            Ok(size) => Ok(size),
            Err(_) => self.invalid("Not a valid value or illegal suffix."),
        }
    }

    /// A size in bytes that is a power of two; blocks and sectors are not allowed as units.
    pub(crate) fn power(&self, min: u32, max: u32) -> Result<u32, MkfsError> {
        let Size::Bytes(bytes) = self.size()? else {
            return self.invalid("Not a valid value or illegal suffix.");
        };
        match u32::try_from(bytes) {
            Ok(n) if n < min => self.invalid("Value is too small."),
            Ok(n) if n <= max && n.is_power_of_two() => Ok(n),
            Ok(n) if n <= max => self.invalid("Value must be a power of 2."),
            _ => self.invalid("Value is too large."),
        }
    }
}
