//! The simulator, and nodes in it. One binary: each file of tests of its own would link the same crates anew.

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
