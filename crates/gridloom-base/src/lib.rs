//! Types that every layer uses: identifiers, time, values, limits, errors and the machine trait.

#![forbid(unsafe_code)]

pub mod address;
pub mod dial;
pub mod error;
pub mod escaped;
pub mod fnv;
pub mod id;
pub mod json;
pub mod limits;
mod lines;
pub mod list;
pub mod log;
pub mod machine;
mod method;
pub mod name;
mod name_pattern;
pub mod naming;
pub mod near;
mod origin;
mod parts;
pub mod path_bytes;
mod pattern;
mod priority;
mod random;
mod readers;
mod rules;
pub mod size;
mod slice;
mod stderr_line;
pub mod time;
mod truncated;
pub mod value;

pub use error::{RaisedCause, TaskError};
pub use escaped::{Escaped, EscapedBytes, EscapedLine, bytes_as_text};
pub use fnv::Fnv;
pub use id::{DatumId, GroupId, NodeId, ObjectId, StorageId, TaskId};
pub use lines::each_line;
pub use log::{Level, LogLevels};
pub use machine::Machine;
pub use method::{METHODS, Method, MethodEntry};
pub use name::{
    ALL_USERS, NameError, NamedDatum, PutOrigin, Readers, check_name, full_name, name_for, namespace, owner_of,
    plain_name,
};
pub use name_pattern::NamePattern;
pub use naming::{InvalidName, NameKind, is_identifier_character, is_identifier_start};
pub use origin::{Origin, Program, is_sent_code};
pub use parts::PartSizes;
pub use pattern::Pattern;
pub use priority::Priority;
pub use random::SplitMix64;
pub use readers::check_readers;
pub use rules::{GROUP_PREFIX, Quota, Rules, RulesGroup, RulesLink, RulesSection, UserPattern, UserRules, Users};
pub use slice::{SLICES, slice_bytes};
pub use time::Time;
pub use truncated::truncated;
pub use value::{ByteOrder, Dtype, Meta, Order};
