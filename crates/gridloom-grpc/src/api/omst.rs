//! Shared data as in OmniStorage (`omst.h`). In a function, the worker's library does the work ([`super::super::worker_functions`]).

use std::ffi::{c_char, c_int, c_void};
use std::sync::atomic::{AtomicU64, Ordering};

use gridloom::PutOptions;
use gridloom_base::Method;

use super::super::code::{Failed, GRPC_LAST_ERROR_CODE, Outcome, run, run_for};
use super::super::requests::Request;
use super::super::worker_functions::by_worker;
use super::shared::{get, plain_session, shared_name, wait_limit};

const POINT2POINT: c_int = 1;
const BROADCAST: c_int = 2;
const ALL_EXCHANGE: c_int = 4;
/// A flag of Gridloom's own, OR-ed with one of these hints.
const DURABLE: c_int = 0x100;
/// The bits of a hint that select a transfer method.
const METHOD: c_int = 0xF000;
const METHODS: [(c_int, Method); 5] = [
    (0, Method::Auto),
    (0x1000, Method::Direct),
    (0x2000, Method::Tree),
    (0x3000, Method::Swarm),
    (0x4000, Method::Storage),
];

/// How long `OmstGetData` waits: seconds, as bits.
static LIMIT: AtomicU64 = AtomicU64::new((-1.0f64).to_bits());

/// Returns the put options of a hint, and whether all servers should get the data.
fn hint_options(hint: c_int) -> Outcome<(PutOptions, bool)> {
    let method = METHODS.iter().find(|(bits, _)| *bits == hint & METHOD).map(|(_, method)| *method);
    let is_for_all = match hint & !DURABLE & !METHOD {
        0 | POINT2POINT | ALL_EXCHANGE => Some(false),
        BROADCAST => Some(true),
        _ => None,
    };
    match (is_for_all, method) {
        (Some(is_for_all), Some(method)) => {
            Ok((PutOptions { is_durable: hint & DURABLE != 0, method, ..PutOptions::default() }, is_for_all))
        }
        _ => Err(Failed::other(format!(
            "hint {hint:#x} is unknown: use OMST_POINT2POINT, OMST_BROADCAST or OMST_ALL_EXCHANGE, with or without \
             OMST_DURABLE_NP and one of OMST_DIRECT_NP, OMST_TREE_NP, OMST_SWARM_NP and OMST_STORAGE_NP"
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
    // SAFETY: required by the header, here and below.
    let by_worker = by_worker(|worker| unsafe { (worker.omst_put)(id, data, size, hint) }, |request| request.is_null());
    by_worker.unwrap_or_else(|| {
        let begin = || {
            let library = plain_session()?;
            let ((options, is_for_all), name) = (hint_options(hint)?, unsafe { shared_name(id) }?.to_string());
            let begun = library.begin_put_shared(&name, unsafe { library.copied(data, size) }?, options)?;
            let number = library.requests.add(Request::Put { name, begun, is_for_all });
            Ok(std::ptr::without_provenance_mut(number))
        };
        run_for(begin, std::ptr::null_mut())
    })
}

/// See `omst.h`.
#[allow(non_snake_case, reason = "the paper's name")]
#[unsafe(no_mangle)]
pub extern "C-unwind" fn OmstWait(request: *mut c_void) -> c_int {
    if let Some(code) = ended_code(request) {
        return -code;
    }
    by_worker(|worker| (worker.omst_wait)(request), |status| *status != 0).unwrap_or_else(|| {
        // SAFETY: the program has started no get with OmstPutData; other requests are as grpc_shared.h requires.
        -run(|| unsafe { plain_session()?.finish_request(request.addr(), None) })
    })
}

/// See `omst.h`.
#[allow(non_snake_case, reason = "the paper's name")]
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn OmstGetData(id: *const c_char, data: *mut c_void, size: usize) -> *mut c_void {
    // SAFETY: required by the header, here and below.
    by_worker(|worker| unsafe { (worker.omst_get)(id, data, size) }, |ended| ended_code(*ended) != Some(0))
        .unwrap_or_else(|| {
            ended(run(|| {
                let limit = wait_limit(f64::from_bits(LIMIT.load(Ordering::Relaxed)))?;
                unsafe { get(&*plain_session()?, shared_name(id)?, data, size, limit) }
            }))
        })
}

/// Returns a request that has ended with this code: one of the highest numbers, which no pending request has.
fn ended(code: c_int) -> *mut c_void {
    std::ptr::without_provenance_mut(usize::MAX - usize::try_from(code).unwrap_or(0))
}

/// Returns the code of a request that has ended.
fn ended_code(request: *mut c_void) -> Option<c_int> {
    c_int::try_from(usize::MAX - request.addr()).ok().filter(|code| *code < GRPC_LAST_ERROR_CODE)
}

/// See `omst.h`.
#[allow(non_snake_case, reason = "beside the paper's names")]
#[unsafe(no_mangle)]
pub extern "C-unwind" fn OmstSetTimeLimit_np(seconds: f64) -> c_int {
    by_worker(|worker| (worker.omst_limit)(seconds), |status| *status != 0).unwrap_or_else(|| {
        -run(|| {
            wait_limit(seconds)?;
            LIMIT.store(seconds.to_bits(), Ordering::Relaxed);
            Ok(())
        })
    })
}
