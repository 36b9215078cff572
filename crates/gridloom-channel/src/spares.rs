//! Buffers that are done with, kept for the messages that come next.
//!
//! What the allocator gets back at its top it gives back to the system, and each page of a new buffer is a fault: for a
//! message of 200 kB they take several times as long as its bytes.
//!
//! **Limit:** [`SPARE_BUFFERS_MAX`] buffers of at most [`SPARE_BYTES_MAX`]; a taken buffer has at most twice the room that
//! was asked for, so that messages that wait for long do not hold more.

use gridloom_base::limits::{SPARE_BUFFERS_MAX, SPARE_BYTES_MAX, SPARE_BYTES_MIN};

/// Buffers that are done with.
#[derive(Clone, Debug)]
pub struct Spares<T> {
    buffers: Vec<Vec<T>>,
}

impl<T> Default for Spares<T> {
    fn default() -> Spares<T> {
        Spares { buffers: Vec::new() }
    }
}

impl<T: Copy + Default> Spares<T> {
    /// A buffer of so many elements. They are as they were left, or new.
    pub fn take(&mut self, length: usize) -> Vec<T> {
        let fits = |buffer: &Vec<T>| buffer.capacity() >= length && buffer.capacity() / 2 <= length;
        match self.buffers.iter().position(fits) {
            Some(at) => {
                let mut buffer = self.buffers.swap_remove(at);
                buffer.resize(length, T::default());
                buffer
            }
            None => vec![T::default(); length],
        }
    }

    /// The buffer that was put last, without its elements, for what is of unknown length and soon put back.
    pub fn take_last(&mut self) -> Vec<T> {
        let mut buffer = self.buffers.pop().unwrap_or_default();
        buffer.clear();
        buffer
    }

    /// Keeps a buffer that is worth it; of too many the one that was put first goes.
    pub fn put(&mut self, buffer: Vec<T>) {
        let bytes = buffer.capacity() * size_of::<T>();
        if !(SPARE_BYTES_MIN..=SPARE_BYTES_MAX).contains(&bytes) {
            return;
        }
        if self.buffers.len() == SPARE_BUFFERS_MAX {
            self.buffers.remove(0);
        }
        self.buffers.push(buffer);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_comes_again_if_it_fits() {
        let mut spares = Spares::default();
        let buffer = vec![7u8; 2 * SPARE_BYTES_MIN];
        let address = buffer.as_ptr();
        spares.put(buffer);
        let small = spares.take(SPARE_BYTES_MIN - 1);
        assert_ne!(small.as_ptr(), address, "it has more than twice the room");
        let again = spares.take(SPARE_BYTES_MIN);
        assert_eq!((again.as_ptr(), again.len()), (address, SPARE_BYTES_MIN));
        spares.put(again);
        let whole = spares.take(2 * SPARE_BYTES_MIN);
        assert_eq!((whole.as_ptr(), whole.len()), (address, 2 * SPARE_BYTES_MIN));
        spares.put(whole);
        let last = spares.take_last();
        assert_eq!((last.as_ptr(), last.len()), (address, 0));
    }

    #[test]
    fn what_is_kept_is_bounded() {
        let mut spares = Spares::default();
        spares.put(vec![0u8; SPARE_BYTES_MIN - 1]);
        spares.put(vec![0u8; SPARE_BYTES_MAX + 1]);
        assert!(spares.buffers.is_empty());
        for more in 0..SPARE_BUFFERS_MAX + 3 {
            spares.put(vec![0u8; SPARE_BYTES_MIN + more]);
        }
        assert_eq!(spares.buffers.len(), SPARE_BUFFERS_MAX);
        assert_eq!(spares.take_last().capacity(), SPARE_BYTES_MIN + SPARE_BUFFERS_MAX + 2);
    }
}
