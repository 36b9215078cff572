//! The frame of the program's function that contains a block: whether it still exists, and which memory is in frames of
//! functions that the block calls.
//!
//! `longjmp` leaves a block without any notice. The block's own variable is then in memory that the stack gives to other
//! functions: the stack pointer is above it, or its content has changed. A function that leaves the variable untouched
//! below the stack pointer hides this until a later call.

use std::cell::Cell;

/// Where a block is on its thread's stack.
#[derive(Clone, Copy)]
pub(super) struct Frame {
    /// Address of the block's `grpc_mapped_np`, which begins with its number.
    variable: usize,
    number: u64,
    /// The stack pointer of the function that contains the block.
    pointer: usize,
    stack: (usize, usize),
}

impl Frame {
    /// Returns the frame of a block whose variable is at that address; `None` if it is not on this thread's stack.
    pub(super) fn new(variable: usize, number: u64, pointer: usize) -> Option<Frame> {
        let stack = stack_of_thread()?;
        let is_within = |address: usize| stack.0 <= address && address < stack.1;
        (is_within(variable) && is_within(pointer)).then_some(Frame { variable, number, pointer, stack })
    }

    /// True if the function that contains the block has been left, as far as this can be seen from a function whose
    /// caller has this stack pointer.
    pub(super) fn is_gone(&self, pointer: usize) -> bool {
        if pointer < self.stack.0 || self.stack.1 <= pointer {
            // The program runs on another stack.
            return false;
        }
        if pointer > self.variable {
            return true;
        }
        let number = std::ptr::with_exposed_provenance::<u64>(self.variable);
        // SAFETY: memory of this thread's stack, above its stack pointer.
        let number = unsafe { number.read_volatile() };
        number != self.number
    }

    /// True if an address is in the stack of the block's thread.
    pub(super) fn is_on_stack(&self, address: usize) -> bool {
        self.stack.0 <= address && address < self.stack.1
    }

    /// True if an address belongs to a function that the block has called, or to a variable of variable length: its
    /// memory ends before the block does.
    pub(super) fn is_deeper(&self, address: usize) -> bool {
        self.stack.0 <= address && address < self.pointer
    }
}

/// Returns an address below the frames of the program's functions.
#[inline(never)]
pub(super) fn own_pointer() -> usize {
    let here = 0_u8;
    std::hint::black_box(&raw const here).addr()
}

/// Returns the lowest address of this thread's stack, and the first one after it.
fn stack_of_thread() -> Option<(usize, usize)> {
    thread_local! {
        static STACK: Cell<Option<(usize, usize)>> = const { Cell::new(None) };
    }
    if let Some(known) = STACK.get() {
        return Some(known);
    }
    let mut attributes = std::mem::MaybeUninit::<libc::pthread_attr_t>::uninit();
    let (mut lowest, mut bytes) = (std::ptr::null_mut(), 0);
    // SAFETY: the attributes are initialised by the first call, and destroyed afterwards.
    let is_known = unsafe {
        if libc::pthread_getattr_np(libc::pthread_self(), attributes.as_mut_ptr()) != 0 {
            return None;
        }
        let code = libc::pthread_attr_getstack(attributes.as_ptr(), &raw mut lowest, &raw mut bytes);
        libc::pthread_attr_destroy(attributes.as_mut_ptr());
        code == 0
    };
    let stack = is_known.then(|| (lowest.addr(), lowest.addr() + bytes));
    STACK.set(stack);
    stack
}

#[cfg(test)]
mod tests {
    use super::*;

    #[inline(never)]
    fn with_frame(look: impl FnOnce(&Frame, usize)) {
        let variable = 7_u64;
        let address = std::hint::black_box(&raw const variable).expose_provenance();
        let frame = Frame::new(address, variable, own_pointer()).unwrap();
        look(&frame, address);
        std::hint::black_box(&variable);
    }

    #[test]
    fn a_frame_is_gone_when_the_stack_pointer_is_above_it_or_its_content_has_changed() {
        with_frame(|frame, address| {
            assert!(!frame.is_gone(own_pointer()));
            assert!(frame.is_gone(address + 64));
            assert!(!frame.is_gone(0x1000), "another stack");
            let other = Frame { number: 8, ..*frame };
            assert!(other.is_gone(own_pointer()));
        });
    }

    #[test]
    fn memory_of_called_functions_is_deeper_and_other_memory_is_not() {
        static SHARED: u8 = 0;
        with_frame(|frame, address| {
            let own = 0_u8;
            let heap = Box::new(0_u8);
            assert!(frame.is_deeper(frame.pointer - 1) && !frame.is_deeper(address));
            assert!(!frame.is_deeper((&raw const SHARED).addr()) && !frame.is_deeper((&raw const *heap).addr()));
            std::hint::black_box(&own);
        });
    }
}
