//! Splits the output of a process into lines. A line that is too long is delivered in parts, so that a process that
//! never ends its line cannot fill the memory.

use std::io::{BufRead, Read};

use crate::bytes_as_text;

/// Reads to the end and passes each line to `each` without its line break. A part of a longer line has at most
/// `bytes_max` bytes and ends with a complete character. Bytes that are not UTF-8 are written as
/// `\xff`.
pub fn each_line(mut from: impl BufRead, bytes_max: usize, mut each: impl FnMut(&str)) {
    let (mut part, mut is_rest) = (Vec::new(), false);
    loop {
        let room = bytes_max.saturating_sub(part.len()).max(1);
        // A read error is treated as the end.
        let came = from.by_ref().take(room as u64).read_until(b'\n', &mut part).unwrap_or(0);
        if part.is_empty() {
            return;
        }
        let is_line = part.last() == Some(&b'\n');
        if came > 0 && !is_line && part.len() < bytes_max {
            // The input ends soon, and the rest belongs to this part.
            continue;
        }
        let end = if is_line || came == 0 { part.len() } else { complete_prefix_len(&part) };
        let text = &part[..end - usize::from(is_line)];
        if !(is_rest && is_line && text.is_empty()) {
            each(&bytes_as_text(text));
        }
        is_rest = !is_line;
        part.drain(..end);
        if came == 0 {
            return;
        }
    }
}

/// Returns the length of the longest prefix that ends with a complete character, or the full length if the bytes do
/// not end inside one.
fn complete_prefix_len(bytes: &[u8]) -> usize {
    let last = bytes.utf8_chunks().last().map_or(&[][..], |chunk| chunk.invalid());
    let is_begun = std::str::from_utf8(last).is_err_and(|error| error.error_len().is_none());
    if is_begun && last.len() < bytes.len() { bytes.len() - last.len() } else { bytes.len() }
}

#[cfg(test)]
mod tests {
    use std::io::{self, BufReader};

    use super::*;

    fn lines(bytes: &[u8], bytes_max: usize) -> Vec<String> {
        let mut all = Vec::new();
        each_line(bytes, bytes_max, |line| all.push(line.to_string()));
        all
    }

    #[test]
    fn lines_arrive_without_their_ends() {
        assert_eq!(lines(b"one\n\ntwo\r\nend", 8), ["one", "", "two\r", "end"]);
        assert_eq!(lines(b"", 8), [""; 0]);
        assert_eq!(lines(b"\n\n", 8), ["", ""]);
    }

    #[test]
    fn long_lines_arrive_in_parts_of_whole_characters() {
        assert_eq!(lines(b"abcdefgh\nij", 4), ["abcd", "efgh", "ij"]);
        assert_eq!(lines("aäöü\n".as_bytes(), 4), ["aä", "öü"]);
        // Also after bytes that are not UTF-8.
        assert_eq!(lines(b"\xffab\xc3\xa4\n", 4), ["\\xffab", "ä"]);
        assert_eq!(lines("aß".as_bytes(), 1), ["a", "\\xc3", "\\x9f"]);
        assert_eq!(lines(b"a\xffb\xc3", 8), ["a\\xffb\\xc3"]);
    }

    #[test]
    fn a_line_without_an_end_fills_no_memory() {
        let (mut bytes, mut longest) = (0, 0);
        each_line(BufReader::new(io::repeat(b'x').take(100_000)), 1000, |part| {
            bytes += part.len();
            longest = longest.max(part.len());
        });
        assert_eq!((bytes, longest), (100_000, 1000));
    }
}
