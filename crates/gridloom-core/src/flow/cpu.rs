//! How an execution enters the sharing of a host (SimGrid's Cas01): n tasks on k cores of speed s each run at
//! min(s, k s / n).
//!
//! **Not done.** Speeds that vary with time, several threads in one task, memory bandwidth shared by cores.
//!
//! Source: SimGrid 4.1, `cpu_cas01`.

/// What a host can do, floating-point operations per second.
pub fn capacity(speed_flops: f64, cores: u32) -> f64 {
    f64::from(cores) * speed_flops
}

/// Penalty of a task: all alike.
pub const PENALTY: f64 = 1.0;

/// Bound of a task: one core.
pub fn bound(speed_flops: f64) -> f64 {
    speed_flops
}
