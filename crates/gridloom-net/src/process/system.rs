//! What a process asks of the system: to end with its parent, its processors, the socket that it was given.

use std::io;
use std::net::TcpListener;

use rustix::thread::CpuSet;

/// From now on this operating-system process ends with the thread that started it.
///
/// # Errors
/// If the system refuses.
pub fn end_with_parent() -> io::Result<()> {
    Ok(rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL))?)
}

/// The processors that this thread, and those that it starts, may use.
///
/// # Errors
/// If the system does not say.
pub fn processors() -> io::Result<Vec<usize>> {
    let all = rustix::thread::sched_getaffinity(None)?;
    Ok((0..CpuSet::MAX_CPU).filter(|processor| all.is_set(*processor)).collect())
}

/// The socket that standard input is. Standard input is empty from then on.
pub(super) fn given_listener() -> io::Result<TcpListener> {
    let socket = rustix::stdio::stdin().try_clone_to_owned()?;
    rustix::stdio::dup2_stdin(std::fs::File::open("/dev/null")?)?;
    Ok(TcpListener::from(socket))
}
