//! System calls of a process: ending with its parent, its processors, its inherited socket.

use std::io;
use std::net::TcpListener;

use rustix::thread::CpuSet;

/// Makes this operating-system process end with the thread that started it.
///
/// # Errors
/// If the system refuses.
pub fn end_with_parent() -> io::Result<()> {
    Ok(rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL))?)
}

/// Returns the processors that this thread, and those that it starts, may use.
///
/// # Errors
/// If the system cannot report the affinity.
pub fn processors() -> io::Result<Vec<usize>> {
    let all = rustix::thread::sched_getaffinity(None)?;
    Ok((0..CpuSet::MAX_CPU).filter(|processor| all.is_set(*processor)).collect())
}

/// Returns the listening socket that is standard input. Standard input is empty from then on.
pub(super) fn given_listener() -> io::Result<TcpListener> {
    let socket = rustix::stdio::stdin().try_clone_to_owned()?;
    rustix::stdio::dup2_stdin(std::fs::File::open("/dev/null")?)?;
    Ok(TcpListener::from(socket))
}
