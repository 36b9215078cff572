//! `gridloom_main`: a program's processes, one of them in the real world or all in simulation.

use std::collections::BTreeMap;
use std::ffi::{CStr, CString, OsStr, OsString, c_char, c_int};
use std::io::Write as _;
use std::os::unix::ffi::OsStrExt;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{Arc, Mutex};

use gridloom::Error;
use gridloom::process::{DEPLOY_VARIABLE, Main, Process, ProcessError, StackKind, run};
use gridloom_base::Time;
use gridloom_base::time::SECOND_NS;

use crate::code::GRIDLOOM_ENDED;
use crate::config;
use crate::current::{self, Context, to_c};
use crate::declare::{self, ProcessFunction};
use crate::globals::Globals;
use crate::overflow;
use crate::process_world::{ProcessPlace, Shared, SwitchingWorld, lock};
use crate::types::{self, Types};

/// Exit status of a program that cannot start.
const CANNOT_BEGIN: c_int = 2;

/// Largest exit status.
const STATUS_MAX: c_int = 255;

/// The return value of the first process that failed.
static RETURNED: AtomicI32 = AtomicI32::new(0);

/// See `gridloom.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn gridloom_main(argc: c_int, argv: *mut *mut c_char) -> c_int {
    let count = usize::try_from(argc).unwrap_or_default();
    // SAFETY: arguments as for `main`.
    let argument = |index: usize| unsafe { CStr::from_ptr(*argv.add(index)) };
    let argument = |index| OsStr::from_bytes(argument(index).to_bytes()).to_owned();
    let arguments: Vec<OsString> = (1..count).map(argument).collect();
    // A session would wait inside the process's world, which would not restore the process's variables.
    gridloom_grpc::parts::refuse_sessions_if(current::is_simulated);
    match catch_unwind(AssertUnwindSafe(|| run_program(&arguments))) {
        Ok(Ok(status)) => status,
        Ok(Err(text)) => {
            complain(&text);
            CANNOT_BEGIN
        }
        // It was printed where it occurred.
        Err(_) => 101,
    }
}

fn complain(text: &str) {
    // If standard error is closed, there is no place to report it.
    let _ = writeln!(std::io::stderr(), "gridloom: {text}");
}

fn run_program(arguments: &[OsString]) -> Result<c_int, String> {
    config::read(arguments)?;
    let program = declare::program().clone();
    if let Some(name) = program.duplicates.first() {
        return Err(format!("the process function '{name}' is declared twice; give one of the two another name"));
    }
    types::set_types(Types::new(&program.declarations)?);
    let is_simulated = std::env::var_os(DEPLOY_VARIABLE).is_none();
    let globals: Shared = match (is_simulated, config::own_globals()?) {
        (true, true) => Some(Arc::new(Mutex::new(Globals::of_program()?))),
        _ => None,
    };
    let mut mains: BTreeMap<String, Main> = BTreeMap::new();
    for (name, function) in program.processes {
        let globals = globals.clone();
        mains.insert(name, Arc::new(move |process| run_process(process, function, &globals)));
    }
    if is_simulated {
        overflow::install_handler();
    }
    RETURNED.store(0, Ordering::Relaxed);
    let outcome = run(&mains, StackKind::Coroutine);
    if let Some(globals) = globals {
        lock(&globals).restore();
    }
    match outcome {
        Ok(_) => Ok(0),
        Err(error) => {
            complain(&error.to_string());
            Ok(Some(RETURNED.load(Ordering::Relaxed)).filter(|code| *code > 0).unwrap_or(1))
        }
    }
}

/// Runs a process's function.
fn run_process(process: Process, function: ProcessFunction, globals: &Shared) -> Result<(), Error> {
    let failed = |text: String| Error::Process(ProcessError::Failed(text));
    let is_simulated = process.is_simulated();
    // A real process uses the program's stack, whose overflow the system handles.
    let stack = if is_simulated { std::ptr::from_ref(&is_simulated).addr() } else { 0 };
    let now = Time((process.now() * SECOND_NS as f64) as u64);
    let place = ProcessPlace::enter(if is_simulated { globals } else { &None }, stack, now).map_err(failed)?;
    let leaves = GlobalsGuard(place.clone());
    let mut process =
        if is_simulated { process.wrap_world(|inner| Box::new(SwitchingWorld { inner, place })) } else { process };
    let context = Context::new(&process);
    let spec = process.spec();
    let texts: Vec<CString> = std::iter::once(&spec.function).chain(&spec.arguments).map(|text| to_c(text)).collect();
    // C may write to its arguments.
    let mut bytes: Vec<Vec<u8>> = texts.into_iter().map(CString::into_bytes_with_nul).collect();
    let mut argv: Vec<*mut c_char> = bytes.iter_mut().map(|text| text.as_mut_ptr().cast()).collect();
    let argc = c_int::try_from(argv.len()).map_err(|_| failed("it has more arguments than C can count".into()))?;
    argv.push(std::ptr::null_mut());
    // SAFETY: a function that the program declared as such, with arguments like those of `main`.
    let run = || context.run(&mut process, || unsafe { function(argc, argv.as_mut_ptr()) });
    let code = match catch_unwind(AssertUnwindSafe(run)) {
        Ok(code) => code,
        // It continued although it was asked to end, so its world unwound it.
        Err(_) if leaves.0.was_told_to_end() => GRIDLOOM_ENDED,
        Err(panic) => resume_unwind(panic),
    };
    if code == 0 || code == GRIDLOOM_ENDED {
        return Ok(());
    }
    // The first failure's status is the program's, as in the real world.
    let _ = RETURNED.compare_exchange(0, status_of(code), Ordering::Relaxed, Ordering::Relaxed);
    let why = context.failure.take();
    Err(failed(if why.is_empty() { format!("it returned {code}") } else { format!("it returned {code}: {why}") }))
}

/// Returns a failure's exit status: the system keeps eight bits of it, and no failure may become a success.
fn status_of(code: c_int) -> c_int {
    if code > 0 { code.min(STATUS_MAX) } else { 1 }
}

/// Drops a process's globals, whatever happens to it.
struct GlobalsGuard(ProcessPlace);

impl Drop for GlobalsGuard {
    fn drop(&mut self) {
        self.0.leave();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_failure_has_the_status_of_success() {
        assert_eq!([1, 255, 256, 512, -1, c_int::MIN].map(status_of), [1, 255, 255, 255, 1, 1]);
    }
}
