//! Tests of the simulator and its nodes. They form one binary, because a binary per file would link the same crates again.

mod breaking;
mod channel;
mod conformance;
mod contract;
mod deferred;
mod durable;
mod forwarding;
mod independent;
mod lan;
mod late_binding;
mod methods;
mod model;
mod names;
mod oracle;
mod placing;
mod predictions;
mod processes;
mod profiles;
mod recovery;
mod replay;
mod scripted;
mod sharing;
mod standstill;
mod uploads;
mod users;
mod uses;
