//! The view of a heuristic defined by the program, laid out for C, and the conversion of its result.

use std::ffi::{CString, c_char, c_int, c_void};

use gridloom::map::{Heuristic, ImposedPlan, MapError, Plan, Problem};

use crate::code::to_c;

/// `grpc_heuristic_np`.
pub type CHeuristic = Option<HeuristicFunction>;

type HeuristicFunction = unsafe extern "C-unwind" fn(*const CProblem, *mut c_int, *mut c_int, *mut c_void) -> c_int;

/// `grpc_problem_call_np`.
#[derive(Debug)]
#[repr(C)]
pub struct CProblemCall {
    function: *const c_char,
    work_flops: f64,
    inputs_count: usize,
    inputs: *const c_int,
    outputs_count: usize,
    outputs: *const c_int,
    seconds: *const f64,
}

/// `grpc_problem_server_np`.
#[derive(Debug)]
#[repr(C)]
pub struct CProblemServer {
    name: *const c_char,
    memory_bytes: u64,
    slots: usize,
    busy_seconds: *const f64,
}

/// `grpc_problem_datum_np`.
#[derive(Debug)]
#[repr(C)]
pub struct CProblemDatum {
    size_bytes: u64,
    producer: c_int,
    readers: c_int,
    is_wanted: c_int,
    holders_count: usize,
    holders: *const c_int,
}

/// `grpc_problem_np`.
#[derive(Debug)]
#[repr(C)]
pub struct CProblem {
    calls_count: usize,
    calls: *const CProblemCall,
    servers_count: usize,
    servers: *const CProblemServer,
    data_count: usize,
    data: *const CProblemDatum,
    links: *const Problem,
}

impl CProblem {
    /// # Safety
    /// The heuristic that was given this is running.
    pub(crate) unsafe fn problem(&self) -> &Problem {
        // SAFETY: promised by the caller: it belongs to a `ProblemArrays`, which borrows the problem.
        unsafe { &*self.links }
    }
}

/// A function of the program, with its context.
pub(crate) struct ProgramHeuristic {
    function: HeuristicFunction,
    context: *mut c_void,
}

// SAFETY: the header requires a function and a context that any thread may use.
unsafe impl Send for ProgramHeuristic {}
// SAFETY: as above.
unsafe impl Sync for ProgramHeuristic {}

impl ProgramHeuristic {
    pub(crate) fn new(function: HeuristicFunction, context: *mut c_void) -> ProgramHeuristic {
        ProgramHeuristic { function, context }
    }
}

impl Heuristic for ProgramHeuristic {
    fn map(&self, problem: &Problem) -> Result<Plan, MapError> {
        let count = problem.task_count();
        let in_order: Vec<c_int> = (0..count as c_int).collect();
        let (mut servers, mut order) = (vec![-1; count], in_order.clone());
        let laid = ProblemArrays::new(problem);
        let seen = laid.as_c(problem);
        // SAFETY: both arrays have an element for each call, and the view outlives the call.
        let returned =
            unsafe { (self.function)(&raw const seen, servers.as_mut_ptr(), order.as_mut_ptr(), self.context) };
        if returned != 0 {
            return Err(MapError::Failed { why: format!("it returned {returned}, which means that it failed") });
        }
        let unfit = |why: String| MapError::Unfit { subject: String::new(), why };
        let place = |(call, server): (usize, &c_int)| {
            let known = usize::try_from(*server).ok().filter(|server| *server < problem.client());
            known.ok_or_else(|| {
                let last = problem.client().saturating_sub(1);
                unfit(format!("server {server} for call {call}; servers have the numbers 0 to {last}"))
            })
        };
        let places = servers.iter().enumerate().map(place).collect::<Result<Vec<usize>, MapError>>()?;
        let given = ImposedPlan::of_places(&places, problem);
        let mut sorted = order.clone();
        sorted.sort_unstable();
        if sorted != in_order {
            return Err(unfit("an order that does not contain each call exactly once".into()));
        }
        let order = order.into_iter().map(|call| call as u32).collect();
        ImposedPlan { order, ..given }.plan(problem)
    }
}

/// A problem in arrays that C can read.
///
/// **Invariant:** its pointers point into its own arrays, none of which changes.
struct ProblemArrays {
    _texts: Vec<CString>,
    _numbers: Vec<Vec<c_int>>,
    _seconds: Vec<Vec<f64>>,
    calls: Vec<CProblemCall>,
    servers: Vec<CProblemServer>,
    data: Vec<CProblemDatum>,
}

impl ProblemArrays {
    fn new(problem: &Problem) -> ProblemArrays {
        let (mut texts, mut numbers, mut seconds) = (Vec::new(), Vec::new(), Vec::new());
        // The content of a vector does not move when the vector is moved.
        let mut text = |told: &str| push_and_borrow(&mut texts, to_c(told)).as_ptr();
        let mut list = |all: &[u32]| {
            let all: Vec<c_int> = all.iter().map(|number| *number as c_int).collect();
            push_and_borrow(&mut numbers, all).as_ptr()
        };
        let mut times = |all: Vec<f64>| push_and_borrow(&mut seconds, all).as_ptr();
        let call = |call: usize| {
            let on = |server| problem.seconds(call, server).unwrap_or(f64::INFINITY);
            CProblemCall {
                function: text(problem.function(call)),
                work_flops: problem.work_flops(call).unwrap_or(-1.0),
                inputs_count: problem.inputs(call).len(),
                inputs: list(problem.inputs(call)),
                outputs_count: problem.outputs(call).len(),
                outputs: list(problem.outputs(call)),
                seconds: times((0..problem.client()).map(on).collect()),
            }
        };
        let calls = (0..problem.task_count()).map(call).collect();
        let server = |server: &gridloom::map::Server| CProblemServer {
            name: text(&server.name),
            memory_bytes: server.memory_bytes,
            slots: server.slots as usize,
            busy_seconds: times(server.busy_s.clone()),
        };
        let servers = problem.servers().iter().map(server).collect();
        let datum = |(number, datum): (usize, &gridloom::map::Datum)| CProblemDatum {
            size_bytes: datum.size_bytes,
            producer: datum.producer.map_or(-1, |call| call as c_int),
            readers: datum.readers as c_int,
            is_wanted: c_int::from(datum.wanted),
            holders_count: problem.holders(number).len(),
            holders: list(problem.holders(number)),
        };
        let data = problem.data().iter().enumerate().map(datum).collect();
        ProblemArrays { _texts: texts, _numbers: numbers, _seconds: seconds, calls, servers, data }
    }

    fn as_c(&self, problem: &Problem) -> CProblem {
        CProblem {
            calls_count: self.calls.len(),
            calls: self.calls.as_ptr(),
            servers_count: self.servers.len(),
            servers: self.servers.as_ptr(),
            data_count: self.data.len(),
            data: self.data.as_ptr(),
            links: problem,
        }
    }
}

/// Appends an item, and returns a reference to it.
fn push_and_borrow<T>(all: &mut Vec<T>, one: T) -> &T {
    all.push(one);
    all.last().expect("it was just put there")
}
