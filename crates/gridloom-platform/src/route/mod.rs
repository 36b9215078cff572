//! Zones, their internal routing, and the route from one host to another.
//!
//! Each file imports only those listed before it: `point`, `leaves`, the topologies (`fat_tree`, `torus`, `dragonfly`),
//! `routing`, `net`, `walk`.

pub(crate) mod dragonfly;
pub(crate) mod fat_tree;
pub(crate) mod leaves;
pub(crate) mod net;
pub(crate) mod point;
pub(crate) mod routing;
pub(crate) mod torus;
pub(crate) mod walk;
