//! Reads the output of a command while it runs.

use std::io::{BufRead, BufReader, Read};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// The output of a pipe, until the pipe is closed or its last line has been read.
pub struct PipeReader {
    so_far: Arc<Mutex<PipeOutput>>,
    /// Nothing is ever sent on it; it is closed when reading ends.
    is_closed: Receiver<()>,
}

#[derive(Default)]
struct PipeOutput {
    bytes: Vec<u8>,
    /// The last line has been read, and the pipe is still open.
    has_last_line: bool,
}

impl PipeReader {
    pub fn of(pipe: impl Read + Send + 'static, is_last: impl Fn(&str) -> bool + Send + 'static) -> PipeReader {
        let (closes, is_closed) = channel();
        let so_far = Arc::new(Mutex::new(PipeOutput::default()));
        let heard = so_far.clone();
        std::thread::spawn(move || {
            let _closes: Sender<()> = closes;
            let (mut pipe, mut line) = (BufReader::new(pipe), Vec::new());
            // After a read error, the output read so far is kept.
            while let Ok(1..) = pipe.read_until(b'\n', &mut line) {
                let mut heard = heard.lock().unwrap_or_else(PoisonError::into_inner);
                heard.bytes.extend_from_slice(&line);
                heard.has_last_line = is_last(&String::from_utf8_lossy(&line));
                if heard.has_last_line {
                    return;
                }
                line.clear();
            }
        });
        PipeReader { so_far, is_closed }
    }

    /// Waits until the pipe is closed or its last line has been read, but at most `limit`.
    pub fn wait(&self, limit: Option<Duration>) {
        match limit {
            None => _ = self.is_closed.recv(),
            Some(limit) => _ = self.is_closed.recv_timeout(limit),
        }
    }

    pub fn has_last_line(&self) -> bool {
        self.so_far.lock().unwrap_or_else(PoisonError::into_inner).has_last_line
    }

    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.so_far.lock().unwrap_or_else(PoisonError::into_inner).bytes).into_owned()
    }
}
