//! The output of a call to its program, within limits: a call that prints endlessly must fill neither its program's
//! memory nor the network.

use std::time::{Duration, Instant};

use gridloom_core::call::OutputItem;

/// Bytes of text that a call may send at once, and per second from then on.
const BURST_BYTES: f64 = (1 << 20) as f64;
const BYTES_PER_S: f64 = (64 << 10) as f64;
/// Longer lines are sent in parts.
pub(super) const LINE_BYTES_MAX: usize = 8 << 10;
/// Minimum interval between two progress reports.
const PROGRESS_PAUSE: Duration = Duration::from_millis(50);

/// Destination of text that exceeds the program's limit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum ExcessOutput {
    /// The server's log.
    Log,
    /// Dropped, because the program would show the server's log.
    Dropped,
}

impl ExcessOutput {
    /// Returns the notice that is sent once, when the program gets no more output.
    fn notice(self) -> String {
        let goes = match self {
            ExcessOutput::Log => "goes to the server's log",
            ExcessOutput::Dropped => "is dropped",
        };
        format!(
            "(this call prints too much: the program receives 1 MiB at once and then 64 KiB per second; the rest \
             {goes})\n"
        )
    }
}

/// The output of one call.
#[derive(Debug)]
pub(super) struct CallOutput {
    /// Unfinished lines of standard output and standard error.
    unfinished_lines: [String; 2],
    left_bytes: f64,
    since: Instant,
    excess_to: ExcessOutput,
    is_beyond: bool,
    progress: Option<Instant>,
}

impl CallOutput {
    pub(super) fn new(now: Instant, rest: ExcessOutput) -> CallOutput {
        CallOutput {
            unfinished_lines: Default::default(),
            left_bytes: BURST_BYTES,
            since: now,
            excess_to: rest,
            is_beyond: false,
            progress: None,
        }
    }

    /// Adds text and returns the output to send now. Returns it as `Err` if the text exceeds the limit.
    pub(super) fn print(
        &mut self,
        now: Instant,
        is_error: bool,
        text: &str,
    ) -> Result<Option<OutputItem>, Option<OutputItem>> {
        let earned = now.saturating_duration_since(self.since).as_secs_f64() * BYTES_PER_S;
        self.left_bytes = (self.left_bytes + earned).min(BURST_BYTES);
        self.since = now;
        if text.len() as f64 > self.left_bytes {
            let is_first = !std::mem::replace(&mut self.is_beyond, true);
            return Err(
                is_first.then(|| OutputItem::Text { is_error, text: self.whole(is_error) + &self.excess_to.notice() })
            );
        }
        self.left_bytes -= text.len() as f64;
        let begun = &mut self.unfinished_lines[usize::from(is_error)];
        begun.push_str(text);
        // A carriage return also ends a line, as progress bars use it.
        let ended = match begun.rfind(['\n', '\r']) {
            Some(end) => end + 1,
            None if begun.len() > LINE_BYTES_MAX => begun.len(),
            None => return Ok(None),
        };
        let rest = begun.split_off(ended);
        let text = std::mem::replace(begun, rest);
        Ok(Some(OutputItem::Text { is_error, text }))
    }

    /// Returns the progress report to send. Reports that follow too soon are dropped, except the final one.
    pub(super) fn progress(&mut self, now: Instant, done: f64, total: Option<f64>) -> Option<OutputItem> {
        let is_recent = self.progress.is_some_and(|last| now.saturating_duration_since(last) < PROGRESS_PAUSE);
        if is_recent && total != Some(done) {
            return None;
        }
        self.progress = Some(now);
        Some(OutputItem::Progress { done, total })
    }

    /// Returns the unfinished lines at the end of the call.
    pub(super) fn rest(&mut self) -> Vec<OutputItem> {
        let texts =
            [false, true].map(|is_error| (is_error, std::mem::take(&mut self.unfinished_lines[usize::from(is_error)])));
        let begun = texts.into_iter().filter(|(_, text)| !text.is_empty());
        begun.map(|(is_error, text)| OutputItem::Text { is_error, text }).collect()
    }

    fn whole(&mut self, is_error: bool) -> String {
        let mut begun = std::mem::take(&mut self.unfinished_lines[usize::from(is_error)]);
        if !begun.is_empty() {
            begun.push('\n');
        }
        begun
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: &str) -> OutputItem {
        OutputItem::Text { is_error: false, text: text.into() }
    }

    #[test]
    fn lines_are_reported_when_they_end() {
        let now = Instant::now();
        let mut speech = CallOutput::new(now, ExcessOutput::Log);
        assert_eq!(speech.print(now, false, "one"), Ok(None));
        assert_eq!(speech.print(now, false, " line\nand "), Ok(Some(text("one line\n"))));
        assert_eq!(speech.print(now, true, "half"), Ok(None));
        assert_eq!(speech.rest(), [text("and "), OutputItem::Text { is_error: true, text: "half".into() }]);
        assert_eq!(speech.rest(), []);
    }

    #[test]
    fn what_is_too_much_is_refused_and_said_once() {
        let now = Instant::now();
        let (mut speech, megabyte) = (CallOutput::new(now, ExcessOutput::Log), "x".repeat((1 << 20) - 2) + "\n");
        assert!(speech.print(now, false, &megabyte).is_ok());
        assert_eq!(speech.print(now, false, "a"), Ok(None));
        assert_eq!(speech.print(now, false, "bc"), Err(Some(text(&format!("a\n{}", ExcessOutput::Log.notice())))));
        assert_eq!(speech.print(now, false, "bc"), Err(None));
        let later = now + Duration::from_secs(1);
        assert_eq!(speech.print(later, false, "again\n"), Ok(Some(text("again\n"))));
        assert_eq!(speech.print(later, false, &"y".repeat(70_000)), Err(None));
    }

    #[test]
    fn progress_is_reported_now_and_then_and_at_the_end() {
        let now = Instant::now();
        let mut speech = CallOutput::new(now, ExcessOutput::Log);
        assert!(speech.progress(now, 1.0, Some(9.0)).is_some() && speech.progress(now, 2.0, Some(9.0)).is_none());
        assert!(speech.progress(now, 9.0, Some(9.0)).is_some());
        assert!(speech.progress(now + PROGRESS_PAUSE, 3.0, None).is_some());
    }
}
