//! The result as JUnit XML, which CI servers show: one case for each run of the program.

use crate::outcome::Outcome;

/// The XML document of a result. `name` is the tested command.
pub fn junit(outcome: &Outcome, name: &str) -> String {
    let failures = usize::from(outcome.failure.is_some());
    let seconds = outcome.elapsed.as_secs_f64();
    let mut text = format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuite name=\"uxfs crash-test: {}\" \
         tests=\"{}\" failures=\"{failures}\" time=\"{seconds:.3}\">\n",
        escaped(name),
        outcome.runs.len()
    );
    for run in &outcome.runs {
        let case = format!("{} ({})", outcome.leg, run.pace);
        text.push_str(&format!(
            "  <testcase classname=\"{}\" name=\"{}\">",
            escaped(name),
            escaped(&case)
        ));
        if let Some(failure) = outcome.failure.as_ref().filter(|f| f.state.pace == run.pace) {
            let message = failure.problem.lines().next().unwrap_or_default();
            text.push_str(&format!(
                "\n    <failure message=\"{}\">{}</failure>\n  ",
                escaped(message),
                escaped(&failure.to_string())
            ));
        }
        text.push_str("</testcase>\n");
    }
    text.push_str(&format!(
        "  <system-out>{}</system-out>\n</testsuite>\n",
        escaped(&outcome.to_string())
    ));
    text
}

/// Text for XML and HTML. Control characters and others that XML has no way to write become spaces.
pub(crate) fn escaped(text: &str) -> String {
    clipped(text, usize::MAX)
}

/// Text for XML and HTML, cut off where it would need more than `most` bytes.
pub(crate) fn clipped(text: &str, most: usize) -> String {
    let mut out = String::new();
    for letter in text.chars() {
        // No letter needs more.
        if out.len() + "&quot;…".len() > most {
            out.push('…');
            break;
        }
        match letter {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\n' | '\t' => out.push(letter),
            other if other.is_control() => out.push(' '),
            '\u{fffe}' | '\u{ffff}' => out.push(' '),
            other => out.push(other),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_cannot_leave_its_element() {
        assert_eq!(escaped("a<b>&\"\u{7}\n\u{ffff}"), "a&lt;b&gt;&amp;&quot; \n ");
    }

    /// It ends between letters, and not inside of what stands for one.
    #[test]
    fn long_text_is_cut_off() {
        assert_eq!(clipped("<<<<", 12), "&lt;…");
        assert_eq!(clipped("abc", 12), "abc");
        for most in 9..40 {
            assert!(clipped(&"\"ä".repeat(30), most).len() <= most + "…".len());
        }
    }
}
