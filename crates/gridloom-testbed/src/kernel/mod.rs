//! The kernel's side: interfaces, packet sockets, namespaces, control groups. Linux only.

pub mod groups;
pub mod hosts;
pub mod netlink;
pub mod sys;
