//! What is on its way to a host: says how far it has come, if it takes long.

use std::io::{self, Read};
use std::time::{Duration, Instant};

use gridloom_base::size::size_text;

/// How often it is said.
const SAID_EVERY: Duration = Duration::from_secs(10);

/// Input of a command on a host.
pub struct Passing<'a, R> {
    input: R,
    host: &'a str,
    what: &'a str,
    bytes: u64,
    passed: u64,
    said: Instant,
}

impl<'a, R: Read> Passing<'a, R> {
    /// `what` goes to `host`, and is so long.
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
