//! Every bound in one place, with its reason.

use super::time::{MILLISECOND_NS, SECOND_NS};

/// Largest control frame. Graphs and plans are cut into parts well below it; a longer one is an error or an attack.
pub const FRAME_BYTES_MAX: usize = 64 << 20;
/// A datum up to this size travels on the control connection and is pushed unasked (eager); a larger one waits until
/// its receiver has room and asks (rendezvous), and travels on a bulk connection.
pub const EAGER_BYTES_MAX: u64 = 32 << 10;
/// Largest value inside a task's description (scalars and short strings).
pub const INLINE_BYTES_MAX: usize = 1 << 10;
/// Tasks in one message to a server, so that no control frame is long.
pub const TASKS_PER_MESSAGE: usize = 512;
/// Tasks in one group. Past it, close the group and open another.
pub const GROUP_TASKS_MAX: usize = 2_000_000;
/// Dimensions of an array (NumPy's own bound).
pub const DIMENSIONS_MAX: usize = 64;
/// Parameters of one function.
pub const PARAMETERS_MAX: usize = 128;
/// Nesting of an expression, so that hostile text cannot exhaust the stack.
pub const EXPRESSION_DEPTH_MAX: usize = 64;
/// Length of a name (function, module, server, parameter).
pub const NAME_BYTES_MAX: usize = 255;

/// Interval between heartbeats on a connection.
pub const HEARTBEAT_NS: u64 = SECOND_NS;
/// A peer that said nothing for so long is taken for dead. Ten heartbeats: a host that swaps or a link that stalls
/// for some seconds is slow, not dead.
pub const SILENCE_NS_MAX: u64 = 10 * SECOND_NS;
/// How long a client waits for its agent to answer a request.
pub const AGENT_REPLY_NS_MAX: u64 = 10 * SECOND_NS;
/// How long a dial may take.
pub const DIAL_NS_MAX: u64 = 5 * SECOND_NS;
/// How often one task is started again after its server was lost, before its call fails.
pub const TASK_ATTEMPTS_MAX: u32 = 4;
/// Bytes of one bandwidth probe between two servers: long enough to leave the start-up behind on a fast link.
pub const PROBE_BYTES: u64 = 4 << 20;
/// Pause between a server's registration and its probes, so that start-up is not slowed by them.
pub const PROBE_DELAY_NS: u64 = 300 * MILLISECOND_NS;
/// Default bound on the store of one server.
pub const STORE_BYTES_DEFAULT: u64 = 4 << 30;
/// Work assumed for a function that states no complexity, in floating-point operations.
pub const WORK_FLOPS_DEFAULT: f64 = 1e6;
/// Speed assumed for a server that has not yet measured its own, in floating-point operations per second.
pub const SPEED_FLOPS_DEFAULT: f64 = 1e9;
