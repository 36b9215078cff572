//! Several elements joined by a network in memory, which carries letters in any order.

mod awaits;
mod bounds;
mod buddies;
mod checkpoints;
mod network;
mod one_element;
mod resizes;
mod seeds;
mod waits;
