//! Waits that another thread ends, as Ctrl-C does: it comes to the program's main thread, and a helper waits.
//!
//! Cut short are waits that may last for ever and change nothing: for results, for ends of calls and groups, for a name that is to be
//! put. Nothing is cancelled by that; the agent forgets the question about the name. Waits of other kinds end by themselves.

use std::cell::RefCell;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use super::{Grid, Inner, State};
use crate::Error;

thread_local! {
    static CURRENT: RefCell<Option<Interrupt>> = const { RefCell::new(None) };
}

/// Ends the waits of one thread. Clones are one.
///
/// ```no_run
/// use gridloom::{Error, Grid, Interrupt};
///
/// # fn main() -> Result<(), Error> {
/// let grid = Grid::connect("127.0.0.1:7711")?;
/// let interrupt = Interrupt::default();
/// let waits = {
///     let interrupt = interrupt.clone();
///     std::thread::spawn(move || interrupt.during(|| grid.shared().get("mesh", None)))
/// };
/// interrupt.set();
/// assert!(matches!(waits.join().expect("no panic"), Err(Error::Interrupted)));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Default)]
pub struct Interrupt(Arc<Shared>);

#[derive(Default)]
struct Shared {
    is_set: AtomicBool,
    /// The session in which the thread waits, or has waited last.
    waits_in: Mutex<Weak<Inner>>,
}

impl Interrupt {
    /// Runs `body`. Waits in it on this thread end with [`Error::Interrupted`] once this is [set](Interrupt::set).
    pub fn during<R>(&self, body: impl FnOnce() -> R) -> R {
        struct Restored(Option<Interrupt>);
        impl Drop for Restored {
            fn drop(&mut self) {
                CURRENT.with_borrow_mut(|current| *current = self.0.take());
            }
        }
        let _restored = Restored(CURRENT.with_borrow_mut(|current| current.replace(self.clone())));
        body()
    }

    /// Ends the thread's wait, and those that it begins later within [`Interrupt::during`].
    pub fn set(&self) {
        self.0.is_set.store(true, Ordering::SeqCst);
        let waits_in = self.0.waits_in.lock().unwrap_or_else(PoisonError::into_inner).upgrade();
        if let Some(inner) = waits_in {
            inner.backend.stir();
        }
    }

    fn begin_wait(&self, grid: &Grid) {
        *self.0.waits_in.lock().unwrap_or_else(PoisonError::into_inner) = Arc::downgrade(&grid.0);
    }
}

impl Grid {
    /// As [`Grid::wait`]. If an [`Interrupt`] of this thread is set, it ends.
    pub(super) fn wait_unless_interrupted<R>(
        &self,
        limit: Option<Duration>,
        mut done: impl FnMut(&mut State) -> Option<R>,
    ) -> Result<R, Error> {
        let Some(interrupt) = CURRENT.with_borrow(Clone::clone) else { return self.wait(limit, done) };
        interrupt.begin_wait(self);
        self.wait(limit, |state| match done(state) {
            Some(found) => Some(Ok(found)),
            None => interrupt.0.is_set.load(Ordering::SeqCst).then_some(Err(Error::Interrupted)),
        })?
    }
}
