//! The result as JUnit XML, which CI servers show: one case for each run of the program.

use crate::outcome::Outcome;

/// The XML document of a result. `name` is the tested command.
pub fn junit(outcome: &Outcome, name: &str) -> String {
    let failures = usize::from(outcome.failure.is_some());
    // A run that was interrupted is not one that passed.
    let is_skipped = |pace: &str| {
        let failed = outcome.failure.as_ref().is_some_and(|failure| failure.state.pace == pace);
        let is_last = outcome.runs.last().is_some_and(|run| run.pace == pace);
        outcome.interrupted && is_last && !failed
    };
    let skipped = outcome.runs.iter().filter(|run| is_skipped(&run.pace)).count();
    let seconds = outcome.elapsed.as_secs_f64();
    let mut text = format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuite name=\"uxfs crash-test: {}\" \
         tests=\"{}\" failures=\"{failures}\" skipped=\"{skipped}\" time=\"{seconds:.3}\">\n",
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
        if is_skipped(&run.pace) {
            text.push_str("\n    <skipped message=\"interrupted\"/>\n  ");
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

    #[test]
    fn an_interrupted_run_did_not_pass() {
        let before = uxfs_disk::MemDev::new(4096);
        let run = crate::recorder::Recorder::new(before.clone(), 1 << 20).finish(before);
        let mut outcome = Outcome::new("uxfs", 1);
        ["late", "names"].into_iter().for_each(|pace| outcome.add_run(pace, &run));
        assert!(!junit(&outcome, "program").contains("<skipped"));
        outcome.interrupted = true;
        let text = junit(&outcome, "program");
        assert!(text.contains("skipped=\"1\"") && text.matches("<skipped ").count() == 1, "{text}");
        assert!(text.find("(names)") < text.find("<skipped "), "{text}");
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
