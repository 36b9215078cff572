//! Waits that another thread interrupts, for example for Ctrl-C: the program's main thread handles it while a helper waits.
//!
//! Only waits that may last forever and change nothing are interrupted: for results, for ends of calls and groups, for
//! a name to be put. This cancels nothing; the agent forgets the request about the name. Other waits end by themselves.

use std::cell::RefCell;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use crate::backend::Backend;

thread_local! {
    static CURRENT: RefCell<Option<Interrupt>> = const { RefCell::new(None) };
}

/// Interrupts the waits of one thread. Clones share their state.
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
    /// The client node of the session in which the thread waits, or has waited last.
    waits_in: Mutex<Option<Weak<dyn Backend>>>,
}

impl Interrupt {
    /// Runs `body`. Its waits on this thread end with [`Error::Interrupted`](crate::Error::Interrupted) once this is [set](Interrupt::set).
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

    /// Interrupts the thread's wait, and those that it begins later within [`Interrupt::during`].
    pub fn set(&self) {
        self.0.is_set.store(true, Ordering::SeqCst);
        let waits_in = self.0.waits_in.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some(backend) = waits_in.and_then(|backend| backend.upgrade()) {
            backend.wake();
        }
    }

    /// Returns that of this thread, if there is one.
    pub(super) fn current() -> Option<Interrupt> {
        CURRENT.with_borrow(Clone::clone)
    }

    pub(super) fn is_set(&self) -> bool {
        self.0.is_set.load(Ordering::SeqCst)
    }

    /// Notes the client node of the session in which the thread begins to wait.
    pub(super) fn begin_wait(&self, backend: &Arc<dyn Backend>) {
        *self.0.waits_in.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::downgrade(backend));
    }
}
