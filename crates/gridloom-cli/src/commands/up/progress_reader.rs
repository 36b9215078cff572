//! Input that is being sent to a host; reports the progress if it takes long.

use std::io::{self, Read};
use std::time::{Duration, Instant};

use gridloom_base::size::size_text;

/// Interval between progress reports.
const REPORT_INTERVAL: Duration = Duration::from_secs(10);

/// The input of a command on a host.
pub struct ProgressReader<'a, R> {
    input: R,
    host: &'a str,
    what: &'a str,
    bytes: u64,
    passed: u64,
    reported: Instant,
}

impl<'a, R: Read> ProgressReader<'a, R> {
    /// `what` names the input, which is sent to `host` and has `bytes` bytes.
    pub fn new(input: R, host: &'a str, what: &'a str, bytes: u64) -> ProgressReader<'a, R> {
        ProgressReader { input, host, what, bytes, passed: 0, reported: Instant::now() }
    }
}

impl<R: Read> Read for ProgressReader<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.reported.elapsed() >= REPORT_INTERVAL && self.passed < self.bytes {
            let (passed, bytes) = (size_text(self.passed), size_text(self.bytes));
            gridloom_base::stderr_line!("gridloom: {}: {passed} of {bytes} of {} have passed", self.host, self.what);
            self.reported = Instant::now();
        }
        let bytes = self.input.read(buffer)?;
        self.passed += bytes as u64;
        Ok(bytes)
    }
}
