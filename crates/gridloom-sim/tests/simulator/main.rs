//! Tests of the simulator and its nodes. They form one binary, because a binary per file would link the same crates again.

mod breaking;
mod channel;
mod conformance;
mod contract;
mod independent;
mod keeping;
mod lan;
mod late_binding;
mod methods;
mod model;
mod names;
mod oracle;
mod passing;
mod placing;
mod priced;
mod profiles;
mod recovery;
mod replay;
mod scripted;
mod uploads;
mod uses;
