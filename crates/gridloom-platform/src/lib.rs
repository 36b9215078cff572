//! Machines, links and the routes between them: the input of mapping and simulation. Also the [rules] of a grid, a file of the same form.
//!
//! A [`Platform`] is read from our TOML or from SimGrid's XML, or built with a [`PlatformBuilder`]. It is
//! immutable and checked. Every route names links that exist, every gateway is inside its zone, every number is finite and
//! has the right sign.
//!
//! Routes are computed on demand, from the zones of the file. Nothing quadratic is stored for clusters, so callers
//! with frequent queries cache the routes.
//!
//! It does not model sharing or time (that is `flow`); it only reads profiles and stores them.
//!
//! Source of the XML format and of route resolution: SimGrid 4.1, DTD 4.1.

#![forbid(unsafe_code)]

mod build;
pub mod deployment;
mod element;
mod error;
mod firewall;
#[cfg(test)]
mod names_tests;
pub mod outline;
mod platform;
pub mod profile;
mod read;
mod route;
pub mod rules;
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
    /// Reads a platform from text: SimGrid's XML if it starts with `<`, otherwise our TOML. `load` returns the text of
    /// another file that this one names, relative to it.
    ///
    /// # Errors
    /// The first mistake in the file, with its position.
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
