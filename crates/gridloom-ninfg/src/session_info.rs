//! Records of sessions in Ninf-G's terms, and signal handlers.

use std::ffi::c_int;
use std::time::Duration;

use gridloom_grpc::GRPC_NO_ERROR;
use gridloom_grpc::parts::{Failed, Latest, Outcome, Record, VOID, latest, library, no_session, run};

/// `struct timeval`.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct CTime {
    seconds: i64,
    microseconds: i64,
}

impl CTime {
    /// Converts seconds; unknown times are 0.
    fn new(seconds: f64) -> CTime {
        let whole = Duration::try_from_secs_f64(seconds).unwrap_or_default();
        CTime { seconds: whole.as_secs() as i64, microseconds: i64::from(whole.subsec_micros()) }
    }
}

/// `grpc_session_info_t_np`: pairs of real time and processor time.
#[derive(Debug, Default)]
#[repr(C)]
pub struct CNinfgInfo {
    executable_callbacks: c_int,
    executable: [CTime; 16],
    client_callbacks: c_int,
    client: [CTime; 18],
    compressed: c_int,
    to_remote: usize,
    to_client: usize,
}

/// The indices of `calculationRealTime` in the times of executable and client.
const EXECUTABLE_CALCULATION: usize = 4;
const CLIENT_CALCULATION: usize = 8;

impl CNinfgInfo {
    fn of(record: Option<&Record>) -> CNinfgInfo {
        let mut info = CNinfgInfo::default();
        if let Some(record) = record {
            info.executable[EXECUTABLE_CALCULATION] = CTime::new(record.run_s);
            info.client[CLIENT_CALCULATION] = CTime::new(record.total_s);
        }
        info
    }
}

/// Returns the status: `GRPC_SESSION_DONE` etc.
fn status_of(record: Option<&Record>) -> c_int {
    match record {
        None => 3,
        Some(record) if record.code == GRPC_NO_ERROR => 1,
        Some(_) => 4,
    }
}

const UNKNOWN_STATUS: c_int = 5;

/// Writes the record to the memory of the program.
///
/// # Safety
/// Memory for each, or null.
unsafe fn write_record(found: Outcome<Option<Record>>, info: *mut CNinfgInfo, status: *mut c_int) -> Outcome<()> {
    let code = found.as_ref().map_or(UNKNOWN_STATUS, |record| status_of(record.as_ref()));
    // SAFETY: promised by the caller.
    unsafe {
        if !status.is_null() {
            status.write(code);
        }
        let record = found?;
        if !info.is_null() {
            info.write(CNinfgInfo::of(record.as_ref()));
        }
    }
    Ok(())
}

/// See `grpc_ninfg.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn grpc_session_info_get_np(
    session_id: c_int,
    info: *mut *mut CNinfgInfo,
    status: *mut c_int,
) -> c_int {
    // SAFETY: required by the header.
    run(|| unsafe {
        let found = library().and_then(|library| library.record_of(session_id));
        if info.is_null() || found.is_err() {
            return write_record(found, std::ptr::null_mut(), status);
        }
        let memory: *mut CNinfgInfo = libc::malloc(size_of::<CNinfgInfo>()).cast();
        if memory.is_null() {
            return Err(Failed::other("no memory for the record of a session"));
        }
        write_record(found, memory, status)?;
        info.write(memory);
        Ok(())
    })
}

/// See `grpc_ninfg.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn grpc_session_info_release_np(info: *mut CNinfgInfo) -> c_int {
    // SAFETY: null, or a pointer that the function above returned, as the header requires.
    unsafe { libc::free(info.cast()) };
    GRPC_NO_ERROR
}

/// See `grpc_ninfg.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn grpc_get_info_np(
    session_id: c_int,
    info: *mut CNinfgInfo,
    status: *mut c_int,
) -> c_int {
    // SAFETY: required by the header.
    run(|| unsafe { write_record(library().and_then(|library| library.record_of(session_id)), info, status) })
}

/// See `grpc_ninfg.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn grpc_get_last_info_np(info: *mut CNinfgInfo, status: *mut c_int) -> c_int {
    run(|| {
        let library = library()?;
        let found = match latest() {
            Latest::Nothing => Err(no_session(VOID)),
            Latest::Begun(id) => library.record_of(id),
            Latest::Ended(record) => Ok(Some(record)),
        };
        // SAFETY: required by the header.
        unsafe { write_record(found, info, status) }
    })
}

/// See `grpc_ninfg.h`.
#[unsafe(no_mangle)]
pub extern "C-unwind" fn grpc_session_info_set_threshold_np(count: c_int) -> c_int {
    run(|| {
        library()?.remember(i64::from(count));
        Ok(())
    })
}

/// A signal handler of the program.
pub type SignalHandler = Option<unsafe extern "C" fn(c_int)>;

/// See `grpc_ninfg.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn grpc_signal_handler_set_np(signal_number: c_int, handler: SignalHandler) -> c_int {
    run(|| {
        library()?;
        let handler = handler.map_or(libc::SIG_DFL, |handler| handler as usize);
        // SAFETY: a structure that is filled before it is used; the program is responsible for its handler.
        let is_set = unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = handler;
            libc::sigemptyset(&mut action.sa_mask);
            action.sa_flags = libc::SA_RESTART;
            libc::sigaction(signal_number, &action, std::ptr::null_mut()) == 0
        };
        match is_set {
            true => Ok(()),
            false => {
                let why = std::io::Error::last_os_error();
                Err(Failed::other(format!("signal {signal_number} cannot be handled: {why}; choose another")))
            }
        }
    })
}
