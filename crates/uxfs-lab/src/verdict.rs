//! Claims about the figures of an experiment, the bounds that decide on them, and the verdicts.
//!
//! 1. Verdicts are computed, and the bounds are printed beside them.
//! 2. A claim taken from a post holds *in size* if our gain is between half and twice the post's, and
//!    *in direction* if it has only the same sign.

use core::fmt;

use serde::{Deserialize, Serialize};

/// The range in which a figure must be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Bounds {
    pub least: Option<f64>,
    pub most: Option<f64>,
}

pub fn at_least(least: f64) -> Bounds {
    Bounds { least: Some(least), most: None }
}

pub fn at_most(most: f64) -> Bounds {
    Bounds { least: None, most: Some(most) }
}

pub fn between(least: f64, most: f64) -> Bounds {
    Bounds { least: Some(least), most: Some(most) }
}

/// The bounds of *in size*: a gain between half and twice that of the post's factor. For a factor below
/// 1, a loss, the same holds of the inverse.
pub fn like(factor: f64) -> Bounds {
    let gain = |factor: f64, part: f64| 1.0 + (factor - 1.0) * part;
    match factor >= 1.0 {
        true => between(gain(factor, 0.5), gain(factor, 2.0)),
        false => between(1.0 / gain(1.0 / factor, 2.0), 1.0 / gain(1.0 / factor, 0.5)),
    }
}

impl Bounds {
    /// Is a figure within the bounds?
    pub fn hold(&self, value: f64) -> bool {
        self.least.is_none_or(|least| value >= least) && self.most.is_none_or(|most| value <= most)
    }

    /// The bounds in words.
    pub fn words(&self, unit: &str) -> String {
        let number = |v: f64| {
            let text = format!("{v:.3}");
            text.trim_end_matches('0').trim_end_matches('.').to_owned()
        };
        match (self.least, self.most) {
            (Some(least), Some(most)) => format!("{} to {}{unit}", number(least), number(most)),
            (Some(least), None) => format!("at least {}{unit}", number(least)),
            (None, Some(most)) => format!("at most {}{unit}", number(most)),
            (None, None) => "anything".into(),
        }
    }
}

/// The verdict on a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// The figure is as large as the post's, by the bounds for that.
    Size,
    /// The figure has the post's direction.
    Direction,
    /// Neither.
    No,
}

/// A claim that a post's figures make, checked against ours; or a goal of this project.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Shape {
    pub claim: String,
    /// The post's figure; empty if there is none.
    pub post: String,
    pub ours: String,
    pub unit: String,
    /// When the claim holds in direction; of a goal, when it is reached.
    pub direction: Bounds,
    /// When it holds in size; `None` where the post gives no size.
    pub size: Option<Bounds>,
    /// The verdict; `None` if the rows that it needs were not run.
    pub verdict: Option<Verdict>,
    /// It is a goal of this project.
    pub goal: bool,
}

impl Shape {
    /// A claim that a post's figures make.
    pub fn new(
        claim: impl Into<String>,
        post: &str,
        ours: Option<f64>,
        unit: &str,
        direction: Bounds,
        size: Option<Bounds>,
    ) -> Self {
        let judge = |value| match size {
            Some(size) if size.hold(value) => Verdict::Size,
            _ if direction.hold(value) => Verdict::Direction,
            _ => Verdict::No,
        };
        Self {
            claim: claim.into(),
            post: post.into(),
            ours: ours.map_or_else(|| "not run".into(), |v| format!("{v:.2}{unit}")),
            unit: unit.into(),
            direction,
            size,
            verdict: ours.map(judge),
            goal: false,
        }
    }

    /// A goal of this project.
    pub fn goal(
        claim: impl Into<String>,
        post: &str,
        ours: Option<f64>,
        unit: &str,
        bounds: Bounds,
    ) -> Self {
        Self { goal: true, ..Self::new(claim, post, ours, unit, bounds, None) }
    }

    /// Does it hold, in direction at least?
    pub fn holds(&self) -> Option<bool> {
        self.verdict.map(|verdict| verdict != Verdict::No)
    }

    /// The verdict in words.
    pub fn words(&self) -> &'static str {
        match (self.verdict, self.goal) {
            (None, _) => "not run",
            (Some(Verdict::No), true) => "not reached",
            (Some(_), true) => "reached",
            (Some(Verdict::Size), _) => "holds in size",
            (Some(Verdict::Direction), _) if self.size.is_none() => "holds in direction",
            (Some(Verdict::Direction), _) => "holds in direction only",
            (Some(Verdict::No), _) => "does not hold",
        }
    }

    /// The bounds in words.
    pub fn bounds(&self) -> String {
        let direction = self.direction.words(&self.unit);
        match (self.goal, &self.size) {
            (true, _) => direction,
            (false, Some(size)) if *size == self.direction => format!("size: {direction}"),
            (false, Some(size)) => {
                format!("size: {}; direction: {direction}", size.words(&self.unit))
            }
            (false, None) => format!("direction: {direction}; no size is given"),
        }
    }
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let goal = if self.goal { "goal " } else { "" };
        write!(f, "{goal}{}: {}; here: {}", self.words(), self.claim, self.ours)?;
        write!(f, " [{}]", self.bounds())?;
        match self.post.as_str() {
            "" => Ok(()),
            post => write!(f, "; the post: {post}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A claim holds in size, in direction only, or not at all, and prints its bounds.
    #[test]
    fn a_claim_has_three_verdicts_and_prints_its_bounds() {
        let of = |value| {
            Shape::new("it wins", "1.26x", Some(value), "x", at_least(1.05), Some(like(1.26)))
        };
        let words = |value| of(value).words();
        assert_eq!(words(1.26), "holds in size");
        assert_eq!(words(1.08), "holds in direction only");
        assert_eq!(words(9.0), "holds in direction only");
        assert_eq!(words(1.02), "does not hold");
        let text = of(1.08).to_string();
        assert!(text.contains("size: 1.13 to 1.52x; direction: at least 1.05x"), "{text}");
        let unsized_claim =
            Shape::new("it loses", "\"it loses\"", Some(0.5), "x", at_most(1.0), None);
        assert_eq!(unsized_claim.words(), "holds in direction");
        assert!(unsized_claim.to_string().contains("at most 1x; no size is given"));
        let goal = |value| Shape::goal("auto", "", value, "x", at_least(0.97));
        assert_eq!(goal(Some(0.98)).words(), "reached");
        assert_eq!(goal(Some(0.9)).words(), "not reached");
        assert_eq!(goal(None).words(), "not run");
    }

    /// A loss is compared by its inverse.
    #[test]
    fn a_gain_within_a_factor_of_two_is_alike() {
        assert_eq!(like(3.0), between(2.0, 5.0));
        let loss = like(1.0 / 3.0);
        assert_eq!((loss.least, loss.most), (Some(0.2), Some(0.5)));
        assert!(like(0.93).hold(0.93) && !like(0.93).hold(0.99));
    }
}
