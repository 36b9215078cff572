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

mod checkpoints;
mod course;
mod drive;
mod epochs;
mod job;
mod kept;
mod links;
mod memory;
mod options;
mod places;
mod run;
mod timeline;
mod trace;

pub use checkpoints::CheckpointFolder;
pub use epochs::{Epochs, Generation, Request, RunFile};
pub use gridloom_chare::balance::{BALANCERS, Balancer, Load, Loads};
pub use gridloom_chare::{
    ArrayId, AsyncContext, Callback, Channel, Chare, ChareError, ChareId, Codec, Combine, Context, Contribution,
    Elements, Index, Migrate, Packing, Payload, Pe, Placement, Priority, Proxy, Receive, ReceiveOnChannel, Reducer,
    Reply, ReplyTo, Shape, Start, Target, Value,
};
pub use gridloom_process::filter::{FILTERS, FilterKind, FilterSpec};
pub use job::Job;
pub use options::{Bounds, Changing, InMemory, Keep, Restart};
pub use places::{ELEMENT_FUNCTION, Places};
pub use run::{Around, Ended, is_simulated, run, run_on};
pub use timeline::{Records, keep_record, monotonic_ns};
pub use trace::{Lacks, write_elements};
