//! Threads of a node. They block all signals, which are left to the program, and are joined when the node ends.

use std::io;
use std::mem::MaybeUninit;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

/// Stack size of a thread that calls little more than the kernel, such as one that moves bulk data.
pub const STACK_BYTES: usize = 256 << 10;

/// The threads of one node that nothing else joins.
#[derive(Clone, Debug, Default)]
pub struct Threads(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    running: Mutex<Running>,
    ended: Condvar,
}

#[derive(Debug, Default)]
struct Running {
    count: usize,
    handles: Vec<JoinHandle<()>>,
}

/// Counts a thread until it ends, also by a panic.
struct Counted(Arc<Shared>);

impl Threads {
    /// Starts a thread.
    ///
    /// # Errors
    /// If the system cannot start a thread.
    pub fn spawn(&self, thread: Builder, run: impl FnOnce() + Send + 'static) -> io::Result<()> {
        let counted = Counted(self.0.clone());
        self.0.lock().count += 1;
        let handle = spawn(thread, move || {
            let _counted = counted;
            run();
        })?;
        let mut running = self.0.lock();
        // Ended threads need not be joined.
        running.handles.retain(|handle| !handle.is_finished());
        running.handles.push(handle);
        Ok(())
    }

    /// Waits for all threads, at most for `limit` in total: a thread that resolves a name cannot be interrupted.
    pub fn join(&self, limit: Duration) {
        let waiting = self.0.ended.wait_timeout_while(self.0.lock(), limit, |running| running.count > 0);
        let (mut running, _) = waiting.unwrap_or_else(PoisonError::into_inner);
        let handles = std::mem::take(&mut running.handles);
        let all_ended = running.count == 0;
        drop(running);
        for handle in handles.into_iter().filter(|handle| all_ended || handle.is_finished()) {
            if handle.thread().id() != std::thread::current().id() {
                // The panic was reported on its own thread.
                let _ = handle.join();
            }
        }
    }
}

impl Shared {
    fn lock(&self) -> std::sync::MutexGuard<'_, Running> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.lock().count -= 1;
        self.0.ended.notify_all();
    }
}

/// Starts a thread that blocks all signals except those of its own faults.
///
/// # Errors
/// If the system cannot start a thread.
pub fn spawn<T: Send + 'static>(
    thread: Builder,
    run: impl FnOnce() -> T + Send + 'static,
) -> io::Result<JoinHandle<T>> {
    let (mut blocked, mut before) = (MaybeUninit::<libc::sigset_t>::zeroed(), MaybeUninit::<libc::sigset_t>::zeroed());
    // SAFETY: the set is filled before it is used; a thread inherits the blocked signals of the thread that starts it.
    let is_changed = unsafe {
        libc::sigfillset(blocked.as_mut_ptr());
        for fault in [libc::SIGSEGV, libc::SIGBUS, libc::SIGFPE, libc::SIGILL, libc::SIGABRT] {
            libc::sigdelset(blocked.as_mut_ptr(), fault);
        }
        libc::pthread_sigmask(libc::SIG_SETMASK, blocked.as_ptr(), before.as_mut_ptr()) == 0
    };
    let spawned = thread.spawn(run);
    if is_changed {
        // SAFETY: restores the previous mask.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, before.as_ptr(), std::ptr::null_mut()) };
    }
    spawned
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;

    /// Reports whether this thread blocks the signal.
    fn blocks(signal: i32) -> bool {
        let mut set = MaybeUninit::<libc::sigset_t>::zeroed();
        // SAFETY: the set is filled by the call.
        unsafe {
            libc::pthread_sigmask(libc::SIG_SETMASK, std::ptr::null(), set.as_mut_ptr());
            libc::sigismember(set.as_ptr(), signal) == 1
        }
    }

    #[test]
    fn threads_take_no_signals_and_are_waited_for() {
        let (threads, (tell, told)) = (Threads::default(), channel());
        threads
            .spawn(Builder::new(), move || tell.send((blocks(libc::SIGINT), blocks(libc::SIGSEGV))).unwrap())
            .unwrap();
        threads.join(Duration::from_secs(60));
        assert_eq!((told.recv().unwrap(), blocks(libc::SIGINT)), ((true, false), false));
        assert_eq!(threads.0.lock().count, 0);
    }

    #[test]
    fn one_that_does_not_end_is_not_waited_for_longer() {
        let (threads, (tell, told)) = (Threads::default(), channel::<()>());
        threads.spawn(Builder::new(), move || assert!(told.recv().is_err())).unwrap();
        threads.join(Duration::from_millis(1));
        assert_eq!(threads.0.lock().count, 1);
        drop(tell);
        threads.join(Duration::from_secs(60));
        assert_eq!(threads.0.lock().count, 0);
    }
}
