//! Message-driven objects (*chares*): many objects on each processor, each of which runs when it has a message.
//!
//! A program is started once for each *processing element*: `gridloom chares run -n 4 -- PROGRAM`. Every element runs the same
//! code, which makes the arrays. Then the chares send each other messages, until one of them ends the program. A program that is
//! started directly has one element.
//!
//! ```
//! use gridloom::Message;
//! use gridloom::chares::{self, Callback, Chare, Context, Contribution, Placement};
//!
//! #[derive(Clone, Message)]
//! enum Ask {
//!     Square { of: f64 },
//! }
//!
//! struct Worker;
//!
//! impl Chare for Worker {
//!     type Message = Ask;
//!
//!     fn entry(&mut self, Ask::Square { of }: Ask, cx: &mut Context<'_, Worker>) {
//!         let own = of + f64::from(cx.index()[0]);
//!         cx.contribute(Contribution::sum(own * own), Callback::exit());
//!     }
//! }
//!
//! # fn main() -> Result<(), gridloom::Error> {
//! let ended = chares::run(|job| {
//!     let workers = job.array(4, Placement::Blocks, |_| Worker)?;
//!     job.start(|cx| cx.send(workers.all(), Ask::Square { of: 1.0 }));
//!     Ok(())
//! })?;
//! assert_eq!(ended.value.float(), Some(1.0 + 4.0 + 9.0 + 16.0));
//! # Ok(())
//! # }
//! ```

mod checkpoint_store;
mod checkpoints;
mod drive;
mod job;
mod links;
mod membership;
mod memory;
mod options;
mod placement;
mod run;
mod run_folder;
mod timeline;
mod trace;

pub use checkpoints::CheckpointFolder;
pub use gridloom_chare::balance::{BALANCERS, Balancer, Load, Loads};
pub use gridloom_chare::{
    ArrayId, AsyncContext, Callback, Channel, Chare, ChareError, ChareId, Codec, Combine, Context, Contribution,
    Elements, Index, Migrate, Packing, Payload, Pe, Placement, Priority, Proxy, Receive, ReceiveOnChannel, Reducer,
    Reply, ReplyTo, Shape, Start, Target, Value,
};
pub use gridloom_process::filter::{FILTERS, FilterKind, FilterSpec};
pub use job::Job;
pub use options::{CheckpointOptions, ElementLimits, InMemory, Resizing, Restart};
pub use placement::{ELEMENT_FUNCTION, ElementPlacement};
pub use run::{Around, Ended, is_simulated, run, run_on};
pub use run_folder::{Generation, ResizeRequest, RunDescription, RunFolder};
pub use timeline::{Records, keep_record, monotonic_ns};
pub use trace::{TimelineGaps, write_element_trace};
