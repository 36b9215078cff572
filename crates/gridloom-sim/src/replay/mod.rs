//! Replays a scenario: computes when given transfers and executions end on given hosts, links and routes.
//!
//! [`scenario`] reads and checks the file, and [`mod@run`] advances time. A scenario only uses the models of
//! `gridloom_flow`: no agent, server or mapper is involved.
//!
//! ```
//! # use gridloom_flow::Reach;
//! let text = r#"{"model": "CM02", "crosstraffic": false,
//!   "platform": {"hosts": [{"name": "a", "speed": 1e9, "cores": 1}, {"name": "b", "speed": 1e9, "cores": 1}],
//!     "links": [{"name": "wire", "bandwidth": 1e6, "latency": 0.5, "policy": "SHARED"}],
//!     "routes": [{"src": "a", "dst": "b", "links": ["wire"], "symmetrical": true}]},
//!   "activities": [{"name": "t", "type": "comm", "src": "a", "dst": "b", "bytes": 1000000, "start": 0}]}"#;
//! let scenario = gridloom_sim::replay::Scenario::parse(text, "wire.json").unwrap();
//! assert_eq!(gridloom_sim::replay::run(&scenario, Reach::Connected)[0].end_s, 1.5);
//! ```

mod cycle;
mod engine;
mod fields;
mod read;
mod run;
mod scenario;

pub use run::{ActivityResult, CHANGES_MAX, STALL_S, run};
pub use scenario::{Activity, Kind, Link, LinkPolicy, Problems, Profile, Route, Scenario};
