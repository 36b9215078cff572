//! Input that is being sent to a host; reports the progress if it takes long.

use std::io::{self, Read};
use std::time::{Duration, Instant};

use gridloom_base::size::size_text;

/// Interval between progress reports.
const SAID_EVERY: Duration = Duration::from_secs(10);

/// The input of a command on a host.
pub struct Passing<'a, R> {
    input: R,
    host: &'a str,
    what: &'a str,
    bytes: u64,
    passed: u64,
    said: Instant,
}

impl<'a, R: Read> Passing<'a, R> {
    /// `what` names the input, which is sent to `host` and has `bytes` bytes.
    pub fn new(input: R, host: &'a str, what: &'a str, bytes: u64) -> Passing<'a, R> {
        Passing { input, host, what, bytes, passed: 0, said: Instant::now() }
    }
}

impl<R: Read> Read for Passing<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.said.elapsed() >= SAID_EVERY && self.passed < self.bytes {
            let (passed, bytes) = (size_text(self.passed), size_text(self.bytes));
            gridloom_base::say!("gridloom: {}: {passed} of {bytes} of {} have passed", self.host, self.what);
            self.said = Instant::now();
        }
        let bytes = self.input.read(buffer)?;
        self.passed += bytes as u64;
        Ok(bytes)
    }
}
