//! One-way byte channel between two processes of the same host, in memory that both map.
//!
//! ```text
//!  word  0        8        16               24
//!        | tail   | head   | reader | writer | data: 131,072 words, wrapping around
//!          of the   of the   sleeps   sleeps
//!          writer   reader
//! ```
//! A ring contains runs: a word with a number of bytes, followed by the bytes in whole words. Head and tail count
//! words from the beginning, and only one side writes each. They are in separate cache lines.
//!
//! **Sleep:** a side that has nothing to do sets its sleep word, checks once more, and then sleeps. The other side
//! checks that word after each change and rings. Both use a fence in between, so that at least one of the two sees the
//! other's word. **Guarantee:** whatever the other process writes here, nothing outside the ring is accessed, and an
//! invalid run is an error. **Does not**: wait, or know how the other side is woken ([`super::stream`]).

use std::io::{self, ErrorKind, IoSlice};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering, fence};

use crate::segment::SharedWords;

/// Number of words of a ring, including those before its data.
pub(super) const RING_WORDS: usize = DATA + CAPACITY;

const TAIL: usize = 0;
/// Word in the tail's cache line: the writer has closed the ring.
const IS_CLOSED: usize = 1;
const HEAD: usize = 8;
const READER_SLEEPS: usize = 16;
const WRITER_SLEEPS: usize = 17;
const DATA: usize = 24;
/// Words of data, 1 MiB. A process that is computing neither reads nor writes meanwhile, so the ring must buffer as
/// much as the system does for TCP.
const CAPACITY: usize = 1 << 17;
const WORD: usize = 8;

/// The words of one direction.
#[derive(Clone)]
struct Words {
    memory: Arc<SharedWords>,
    from: usize,
}

impl Words {
    fn at(&self, word: usize) -> &AtomicU64 {
        &self.memory.words()[self.from + word]
    }

    /// Returns the data words from this position to the end of the ring, followed by those from its beginning.
    fn data(&self, position: u64) -> impl Iterator<Item = &AtomicU64> {
        let data = &self.memory.words()[self.from + DATA..self.from + DATA + CAPACITY];
        let (begin, end) = data.split_at(position as usize % CAPACITY);
        end.iter().chain(begin)
    }

    /// Clears the word by which the other side announced that it sleeps. Returns true if it was set.
    fn take_sleep_flag(&self, word: usize) -> bool {
        fence(Ordering::SeqCst);
        self.at(word).load(Ordering::Relaxed) != 0 && self.at(word).swap(0, Ordering::Relaxed) != 0
    }

    fn sleeps(&self, word: usize) {
        self.at(word).store(1, Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }
}

/// The writing side.
pub(super) struct Writer {
    words: Words,
    tail: u64,
    /// Last known head.
    head: u64,
}

/// The reading side.
pub(super) struct Reader {
    words: Words,
    head: u64,
    /// Last known tail.
    tail: u64,
    /// True if nothing beyond that tail is read.
    is_last: bool,
    /// The run being read: its number of bytes, and how many of them are read.
    run: (usize, usize),
}

impl Writer {
    /// Creates the writing side of the ring that begins at word `from`.
    pub(super) fn new(memory: Arc<SharedWords>, from: usize) -> Writer {
        Writer { words: Words { memory, from }, tail: 0, head: 0 }
    }

    /// Returns the number of words that a run may take now, including its first one.
    fn room(&mut self) -> io::Result<usize> {
        let room = |head: u64, tail: u64| {
            let used = tail.wrapping_sub(head);
            if used > CAPACITY as u64 { Err(corrupt()) } else { Ok(CAPACITY - used as usize) }
        };
        // The smallest run has two words.
        if room(self.head, self.tail)? < 2 {
            self.head = self.words.at(HEAD).load(Ordering::Acquire);
        }
        room(self.head, self.tail)
    }

    /// Reports whether something can be written. If not, the reader rings when it has read more.
    pub(super) fn has_room(&mut self) -> bool {
        if self.room().is_ok_and(|room| room < 2) {
            self.announce_sleep();
        }
        // The next write reports an invalid head as an error.
        self.room().map_or(true, |room| room >= 2)
    }

    /// Announces that this side sleeps, and reads the head once more. Each advance of the head clears the
    /// announcement, even an advance by one word, which makes no room for a run.
    fn announce_sleep(&mut self) {
        self.words.sleeps(WRITER_SLEEPS);
        self.head = self.words.at(HEAD).load(Ordering::Acquire);
    }

    /// Writes as much of `parts` as there is room for. Returns the number of bytes, and whether the reader must be woken.
    ///
    /// # Errors
    /// [`ErrorKind::WouldBlock`] if there is no room: the reader rings when there is some.
    pub(super) fn write(&mut self, parts: &[IoSlice<'_>]) -> io::Result<(usize, bool)> {
        let all: usize = parts.iter().map(|part| part.len()).sum();
        if all == 0 {
            return Ok((0, false));
        }
        if self.room()? * WORD < all + 2 * WORD {
            // The known head may be outdated.
            self.head = self.words.at(HEAD).load(Ordering::Acquire);
        }
        if self.room()? < 2 {
            self.announce_sleep();
        }
        let room = self.room()?;
        if room < 2 {
            return Err(ErrorKind::WouldBlock.into());
        }
        let length = all.min((room - 1) * WORD);
        let mut data = self.words.data(self.tail);
        let mut put = |word: u64| data.next().expect("there is room").store(word, Ordering::Relaxed);
        put(length as u64);
        let (mut left, mut word, mut filled) = (length, 0_u64, 0);
        for part in parts {
            let part = &part[..part.len().min(left)];
            left -= part.len();
            let whole = part.chunks_exact(WORD);
            let rest = whole.remainder();
            for bytes in whole {
                let next = u64::from_le_bytes(bytes.try_into().expect("a word"));
                put(if filled == 0 { next } else { word | next << (8 * filled) });
                word = if filled == 0 { 0 } else { next >> (8 * (WORD - filled)) };
            }
            for byte in rest {
                word |= u64::from(*byte) << (8 * filled);
                filled += 1;
                if filled == WORD {
                    put(std::mem::take(&mut word));
                    filled = 0;
                }
            }
        }
        if filled > 0 {
            put(word);
        }
        self.tail += 1 + length.div_ceil(WORD) as u64;
        self.words.at(TAIL).store(self.tail, Ordering::Release);
        Ok((length, self.words.take_sleep_flag(READER_SLEEPS)))
    }

    /// Announces that nothing more will be written.
    pub(super) fn close(&self) {
        self.words.at(IS_CLOSED).store(1, Ordering::Release);
    }
}

impl Reader {
    /// Creates the reading side of the ring that begins at word `from`.
    pub(super) fn new(memory: Arc<SharedWords>, from: usize) -> Reader {
        Reader { words: Words { memory, from }, head: 0, tail: 0, is_last: false, run: (0, 0) }
    }

    /// Reports whether something can be read.
    pub(super) fn has_bytes(&mut self) -> bool {
        if self.run.1 == self.run.0 && self.head == self.tail && !self.is_last {
            self.tail = self.words.at(TAIL).load(Ordering::Acquire);
        }
        self.run.1 < self.run.0 || self.head != self.tail
    }

    /// Makes the current content of the ring the last that is read: the other side is gone or has closed the ring, and
    /// a faulty one might write forever.
    pub(super) fn stop_after_current(&mut self) {
        if !self.is_last {
            self.tail = self.words.at(TAIL).load(Ordering::Acquire);
            self.is_last = true;
        }
    }

    /// Reports whether the other side has stopped writing; earlier data may still be unread.
    pub(super) fn is_closed(&self) -> bool {
        self.words.at(IS_CLOSED).load(Ordering::Acquire) != 0
    }

    /// Reads into `into` as much as is available. Returns the number of bytes, and whether the writer must be woken.
    ///
    /// # Errors
    /// If the ring contains an invalid run.
    pub(super) fn read(&mut self, into: &mut [u8]) -> io::Result<(usize, bool)> {
        let (mut length, before) = (0, self.head);
        while length < into.len() && self.has_bytes() {
            if self.run.1 == self.run.0 {
                self.begin_run()?;
            }
            length += self.read_of_run(&mut into[length..]);
        }
        if self.head == before {
            return Ok((length, false));
        }
        self.words.at(HEAD).store(self.head, Ordering::Release);
        Ok((length, self.words.take_sleep_flag(WRITER_SLEEPS)))
    }

    fn begin_run(&mut self) -> io::Result<()> {
        let used = self.tail.wrapping_sub(self.head);
        let length = self.words.data(self.head).next().expect("a ring has words").load(Ordering::Relaxed);
        if used > CAPACITY as u64 || length == 0 || length > (CAPACITY * WORD) as u64 || length.div_ceil(8) >= used {
            return Err(corrupt());
        }
        self.head += 1;
        self.run = (length as usize, 0);
        Ok(())
    }

    fn read_of_run(&mut self, into: &mut [u8]) -> usize {
        let (all, mut read) = self.run;
        let length = into.len().min(all - read);
        let mut rest = &mut into[..length];
        let mut data = self.words.data(self.head).peekable();
        let mut passed = 0;
        while !rest.is_empty() {
            let word = data.peek().expect("the run is there").load(Ordering::Relaxed).to_le_bytes();
            let from = read % WORD;
            let count = rest.len().min(WORD - from);
            let (now, later) = rest.split_at_mut(count);
            now.copy_from_slice(&word[from..from + count]);
            rest = later;
            read += count;
            if read % WORD == 0 || read == all {
                data.next();
                passed += 1;
            }
        }
        self.head += passed;
        self.run = (all, read);
        length
    }

    /// Announces that this side sleeps. The caller must check for bytes once more before it does.
    pub(super) fn sleeps(&self) {
        self.words.sleeps(READER_SLEEPS);
    }

    /// Announces that this side no longer sleeps.
    pub(super) fn clear_sleeping(&self) {
        self.words.at(READER_SLEEPS).store(0, Ordering::Relaxed);
    }
}

fn corrupt() -> io::Error {
    io::Error::new(ErrorKind::InvalidData, "the memory shared with it is corrupt")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ring() -> (Writer, Reader, Arc<SharedWords>) {
        let memory = Arc::new(SharedWords::new(RING_WORDS).unwrap().0);
        (Writer::new(memory.clone(), 0), Reader::new(memory.clone(), 0), memory)
    }

    #[test]
    fn bytes_are_read_as_they_were_written() {
        let (mut writer, mut reader, _memory) = ring();
        let (mut sent, mut came, mut byte) = (Vec::new(), Vec::new(), 0_u8);
        for turn in 0..100_000_usize {
            let parts: Vec<Vec<u8>> = [turn % 23, (turn * 7) % 9, turn % 2, (turn * 131) % 2000]
                .map(|length| {
                    std::iter::repeat_with(|| {
                        byte = byte.wrapping_add(1);
                        byte
                    })
                    .take(length)
                    .collect()
                })
                .into();
            let slices: Vec<IoSlice<'_>> = parts.iter().map(|part| IoSlice::new(part)).collect();
            let all = parts.concat();
            if !all.is_empty() {
                match writer.write(&slices) {
                    Ok((length, wakes)) => {
                        assert!(!wakes, "nobody sleeps");
                        sent.extend_from_slice(&all[..length]);
                    }
                    Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock),
                }
            }
            // The reader sometimes lags behind.
            let mut into = vec![0; if turn % 97 < 40 { turn % 31 } else { 3000 }];
            let (length, _) = reader.read(&mut into).unwrap();
            came.extend_from_slice(&into[..length]);
        }
        while reader.has_bytes() {
            let mut into = [0; 1000];
            let (length, _) = reader.read(&mut into).unwrap();
            came.extend_from_slice(&into[..length]);
        }
        assert!(sent.len() > 3 * CAPACITY * WORD);
        assert_eq!(sent, came);
    }

    #[test]
    fn a_side_that_sleeps_is_woken_once() {
        let (mut writer, mut reader, _memory) = ring();
        reader.sleeps();
        assert!(!reader.has_bytes());
        assert_eq!(writer.write(&[IoSlice::new(b"a")]).unwrap(), (1, true));
        assert_eq!(writer.write(&[IoSlice::new(b"b")]).unwrap(), (1, false));
        let all = vec![7; CAPACITY * WORD];
        let (written, _) = writer.write(&[IoSlice::new(&all)]).unwrap();
        assert_eq!(written, (CAPACITY - 5) * WORD);
        assert_eq!(writer.write(&[IoSlice::new(b"c")]).unwrap_err().kind(), ErrorKind::WouldBlock);
        assert!(!writer.has_room());
        assert_eq!(reader.read(&mut [0; 2]).unwrap(), (2, true));
        assert!(writer.has_room());
        assert_eq!(writer.write(&[IoSlice::new(b"d")]).unwrap(), (1, false));
    }

    #[test]
    fn a_writer_is_woken_again_if_it_was_woken_for_too_little() {
        let (mut writer, mut reader, _memory) = ring();
        let all = vec![7; CAPACITY * WORD];
        assert_eq!(writer.write(&[IoSlice::new(&all)]).unwrap(), ((CAPACITY - 1) * WORD, false));
        assert_eq!(writer.write(&[IoSlice::new(b"a")]).unwrap_err().kind(), ErrorKind::WouldBlock);
        // The word with the number of bytes is free now, but the next one still has bytes.
        assert_eq!(reader.read(&mut [0; 1]).unwrap(), (1, true));
        assert!(!writer.has_room());
        assert_eq!(reader.read(&mut [0; 7]).unwrap(), (7, true));
        assert!(writer.has_room());
        assert_eq!(writer.write(&[IoSlice::new(b"a")]).unwrap(), (1, false));
    }

    #[test]
    fn what_is_written_after_the_end_is_not_read() {
        let (mut writer, mut reader, _memory) = ring();
        writer.write(&[IoSlice::new(b"before")]).unwrap();
        reader.stop_after_current();
        let mut into = [0; 100];
        writer.write(&[IoSlice::new(b"after")]).unwrap();
        assert_eq!(reader.read(&mut into).unwrap().0, 6);
        assert_eq!(&into[..6], b"before");
        reader.stop_after_current();
        assert!(!reader.has_bytes());
    }

    #[test]
    fn what_no_writer_writes_is_an_error() {
        for (word, value) in [(TAIL, u64::MAX), (DATA, 0), (DATA, 17), (DATA, u64::MAX)] {
            let (mut writer, mut reader, memory) = ring();
            writer.write(&[IoSlice::new(&[1; 16])]).unwrap();
            memory.words()[word].store(value, Ordering::Release);
            assert_eq!(reader.read(&mut [0; 100]).unwrap_err().kind(), ErrorKind::InvalidData, "{word} {value}");
        }
        let (mut writer, _reader, memory) = ring();
        memory.words()[HEAD].store(5, Ordering::Release);
        let all = vec![7; CAPACITY * WORD];
        assert_eq!(writer.write(&[IoSlice::new(&all)]).unwrap_err().kind(), ErrorKind::InvalidData);
    }
}
