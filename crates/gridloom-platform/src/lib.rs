//! Machines, links and the routes between them: what a plan is made for and a simulation runs on.
//!
//! A [`Platform`] is read from our TOML or from SimGrid's XML, or put together with a [`PlatformBuilder`]. It is
//! immutable and checked. Every route names links that exist, every gateway lies in its zone, every number is finite and
//! has the right sign.
//!
//! Routes are computed when asked for, from the zones of the file. Nothing quadratic is kept for clusters, so callers
//! that ask often keep the answers.
//!
//! It does not model sharing or time (that is `flow`); it only reads profiles and keeps them.
//!
//! Source of the XML format and of route resolution: SimGrid 4.1, DTD 4.1.

#![forbid(unsafe_code)]

mod build;
pub mod deployment;
mod element;
mod error;
pub mod outline;
mod platform;
pub mod profile;
mod read;
mod route;
#[cfg(test)]
mod tests;
pub mod units;

pub use build::PlatformBuilder;
pub use deployment::Process;
pub use element::{Host, HostId, LOOPBACK, Link, LinkId, Route, Sharing};
pub use error::PlatformError;
pub use platform::Platform;
pub use profile::{Profile, ProfileKind, ProfileTarget};

impl Platform {
    /// Reads a platform from text: SimGrid's XML if it starts with `<`, otherwise our TOML. `load` gives the text of
    /// another file that this one names, relative to it.
    ///
    /// # Errors
    /// The first mistake of the file, with its place.
    pub fn parse(
        text: &str,
        file_name: &str,
        load: &mut dyn FnMut(&str) -> Result<String, String>,
    ) -> Result<Platform, PlatformError> {
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        let result = if text.trim_start().starts_with('<') {
            read::xml::parse(text, load)
        } else {
            read::toml_format::parse(text, load)
        };
        let platform = result.map_err(|error| error.at(file_name, (0, 0)))?;
        Ok(Platform { file: file_name.to_owned(), ..platform })
    }
}
