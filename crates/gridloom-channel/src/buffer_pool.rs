//! A buffer pool: buffers that are no longer needed, kept for later messages.
//!
//! The allocator returns freed memory at its top to the system, and each page of a new buffer then costs a page fault.
//! For a message of 200 kB these faults take several times as long as copying its bytes.
//!
//! **Limit:** [`POOLED_BUFFERS_MAX`] buffers of at most [`POOLED_BYTES_MAX`]. A buffer taken from the pool has at most
//! twice the requested capacity, so that messages that wait for a long time do not hold more memory than that.

use gridloom_base::limits::{POOLED_BUFFERS_MAX, POOLED_BYTES_MAX, POOLED_BYTES_MIN};

/// A pool of buffers for reuse.
#[derive(Clone, Debug)]
pub struct BufferPool<T> {
    buffers: Vec<Vec<T>>,
}

impl<T> Default for BufferPool<T> {
    fn default() -> BufferPool<T> {
        BufferPool { buffers: Vec::new() }
    }
}

impl<T: Copy + Default> BufferPool<T> {
    /// Returns a buffer of `length` elements, with old contents or the default value.
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

    /// Returns the buffer that was put last, emptied. For contents of unknown length if the buffer is put back soon.
    pub fn take_last(&mut self) -> Vec<T> {
        let mut buffer = self.buffers.pop().unwrap_or_default();
        buffer.clear();
        buffer
    }

    /// Keeps a buffer if its size is worth it. If the pool is full, the buffer that was put first is dropped.
    pub fn put(&mut self, buffer: Vec<T>) {
        let bytes = buffer.capacity() * size_of::<T>();
        if !(POOLED_BYTES_MIN..=POOLED_BYTES_MAX).contains(&bytes) {
            return;
        }
        if self.buffers.len() == POOLED_BUFFERS_MAX {
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
        let mut spares = BufferPool::default();
        let buffer = vec![7u8; 2 * POOLED_BYTES_MIN];
        let address = buffer.as_ptr();
        spares.put(buffer);
        let small = spares.take(POOLED_BYTES_MIN - 1);
        assert_ne!(small.as_ptr(), address, "it has more than twice the room");
        let again = spares.take(POOLED_BYTES_MIN);
        assert_eq!((again.as_ptr(), again.len()), (address, POOLED_BYTES_MIN));
        spares.put(again);
        let whole = spares.take(2 * POOLED_BYTES_MIN);
        assert_eq!((whole.as_ptr(), whole.len()), (address, 2 * POOLED_BYTES_MIN));
        spares.put(whole);
        let last = spares.take_last();
        assert_eq!((last.as_ptr(), last.len()), (address, 0));
    }

    #[test]
    fn what_is_kept_is_bounded() {
        let mut spares = BufferPool::default();
        spares.put(vec![0u8; POOLED_BYTES_MIN - 1]);
        spares.put(vec![0u8; POOLED_BYTES_MAX + 1]);
        assert!(spares.buffers.is_empty());
        for more in 0..POOLED_BUFFERS_MAX + 3 {
            spares.put(vec![0u8; POOLED_BYTES_MIN + more]);
        }
        assert_eq!(spares.buffers.len(), POOLED_BUFFERS_MAX);
        assert_eq!(spares.take_last().capacity(), POOLED_BYTES_MIN + POOLED_BUFFERS_MAX + 2);
    }
}
