//! Shared data after OmniStorage (`omst.h`). In a function the worker's library does it ([`super::super::hosted`]).

use std::ffi::{c_char, c_int, c_void};
use std::sync::atomic::{AtomicU64, Ordering};

use super::super::code::{Failed, Outcome, run, run_for};
use super::super::hosted::by_worker;
use super::super::puts::Put;
use super::shared::{get, patience, plain_session, shared_name};

const POINT2POINT: c_int = 1;
const BROADCAST: c_int = 2;
const ALL_EXCHANGE: c_int = 4;

/// How long `OmstGetData` waits: seconds, as bits.
static LIMIT: AtomicU64 = AtomicU64::new((-1.0f64).to_bits());

/// Whether all servers are to get it.
fn is_for_all(hint: c_int) -> Outcome<bool> {
    match hint {
        0 | POINT2POINT | ALL_EXCHANGE => Ok(false),
        BROADCAST => Ok(true),
        _ => Err(Failed::other(format!(
            "hint {hint} is none: give OMST_POINT2POINT, OMST_BROADCAST or OMST_ALL_EXCHANGE, and no method of transfer"
        ))),
    }
}

/// See `omst.h`.
#[allow(non_snake_case, reason = "the paper's name")]
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn OmstPutData(
    id: *const c_char,
    data: *const c_void,
    size: usize,
    hint: c_int,
) -> *mut c_void {
    // SAFETY: as the header asks, here and below.
    let by_worker = by_worker(|worker| unsafe { (worker.omst_put)(id, data, size, hint) }, |request| request.is_null());
    by_worker.unwrap_or_else(|| {
        let begin = || {
            let library = plain_session()?;
            let (is_for_all, name) = (is_for_all(hint)?, unsafe { shared_name(id) }?.to_string());
            let begun = library.begin_put_shared(&name, unsafe { library.copied(data, size) }?)?;
            Ok(std::ptr::without_provenance_mut(library.puts.add(Put { name, begun, is_for_all })))
        };
        run_for(begin, std::ptr::null_mut())
    })
}

/// See `omst.h`.
#[allow(non_snake_case, reason = "the paper's name")]
#[unsafe(no_mangle)]
pub extern "C-unwind" fn OmstWait(request: *mut c_void) -> c_int {
    by_worker(|worker| (worker.omst_wait)(request), |status| *status != 0).unwrap_or_else(|| {
        -run(|| {
            let library = plain_session()?;
            let Put { name, begun, is_for_all } = library.puts.take(request.addr())?;
            begun.wait(None)?;
            if is_for_all {
                // A hint: a server without room, or one that is lost meanwhile, gets it when a call there reads it, or that call
                // says why it cannot.
                let _ = library.grid.shared().place(&name, &[]);
            }
            Ok(())
        })
    })
}

/// See `omst.h`.
#[allow(non_snake_case, reason = "the paper's name")]
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn OmstGetData(id: *const c_char, data: *mut c_void, size: usize) -> c_int {
    // SAFETY: as the header asks, here and below.
    by_worker(|worker| unsafe { (worker.omst_get)(id, data, size) }, |status| *status != 0).unwrap_or_else(|| {
        -run(|| {
            let limit = patience(f64::from_bits(LIMIT.load(Ordering::Relaxed)))?;
            unsafe { get(&*plain_session()?, shared_name(id)?, data, size, limit) }
        })
    })
}

/// See `omst.h`.
#[allow(non_snake_case, reason = "beside the paper's names")]
#[unsafe(no_mangle)]
pub extern "C-unwind" fn OmstSetTimeLimit_np(seconds: f64) -> c_int {
    by_worker(|worker| (worker.omst_limit)(seconds), |status| *status != 0).unwrap_or_else(|| {
        -run(|| {
            patience(seconds)?;
            LIMIT.store(seconds.to_bits(), Ordering::Relaxed);
            Ok(())
        })
    })
}
