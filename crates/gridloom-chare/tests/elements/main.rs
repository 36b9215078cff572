//! Tests of several elements, connected by an in-memory network that reorders batches.

mod awaits;
mod bounds;
mod buddies;
mod checkpoints;
mod network;
mod one_element;
mod resizes;
mod seeds;
mod waits;
