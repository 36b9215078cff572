//! The program as users see it. All tests are in one binary, because every further binary would link all crates of the
//! program again.

mod advise;
mod both_worlds;
mod c;
mod calls;
mod chares;
mod checkpoints;
mod cli;
mod compiled;
mod conformance;
mod data;
mod deploy;
mod full_disks;
mod hostile;
mod json;
mod keys;
mod log;
#[cfg(feature = "workflows")]
mod map;
mod mixed_hosts;
mod models;
mod node_keys;
mod odd_calls;
mod offered_options;
mod offered_programs;
mod readers;
mod relay;
mod resizes;
mod rules;
mod simulated;
mod standby;
mod striped;
#[allow(dead_code, reason = "the tests of testbeds use the rest of it")]
#[path = "../support/mod.rs"]
mod support;
mod timeline;
mod up;
mod up_allocate;
mod up_code;
mod up_python;
mod up_slurm;
mod up_ssh;
mod up_two_users;
mod usage;
mod worker_users;
