//! The log of long-running commands: lines on standard error with a time, a level, a category and fields.
//!
//! ```text
//! 2026-01-31T12:00:00.123456Z  INFO gridloom.agent: a server offers 4 functions node="agent" peer="one" address="10.0.0.2:7801"
//! ```
//!
//! The result of a command and the error that ends it are not log lines, but plain lines.

use std::io;

use gridloom_base::{Level, LogLevels};
use tracing::Subscriber;
use tracing::level_filters::LevelFilter;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt;

/// Options of the log.
#[derive(clap::Args, Clone, Debug)]
pub struct LogOptions {
    /// Levels of the log on standard error, for all categories or one: debug, info, warning, error, off
    #[arg(long, env = "GRIDLOOM_LOG", hide_env_values = true, default_value = "info", value_name = "LEVELS",
          value_parser = LogLevels::read)]
    log: LogLevels,
}

impl LogOptions {
    /// Starts logging with these levels.
    pub fn start(&self) {
        tracing::subscriber::set_global_default(subscriber(&self.log)).expect("a command starts its log once");
    }
}

/// Returns a subscriber that writes events enabled by `levels` to standard error.
fn subscriber(levels: &LogLevels) -> impl Subscriber + Send + Sync {
    let categories = levels.categories().map(|(category, level)| (category.to_string(), filter(level)));
    let wanted = Targets::new().with_default(filter(levels.minimum())).with_targets(categories);
    // If standard error is closed, there is no place to report that; trying to would panic.
    let written = tracing_subscriber::fmt::layer().with_writer(io::stderr).log_internal_errors(false);
    tracing_subscriber::registry().with(written).with(wanted)
}

fn filter(level: Option<Level>) -> LevelFilter {
    match level {
        None => LevelFilter::OFF,
        Some(Level::Error) => LevelFilter::ERROR,
        Some(Level::Warning) => LevelFilter::WARN,
        Some(Level::Info) => LevelFilter::INFO,
        Some(Level::Debug) => LevelFilter::DEBUG,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An event above the most verbose level costs its caller only a comparison with that level.
    #[test]
    fn what_no_category_wants_is_off_for_all() {
        let most = |text| subscriber(&LogLevels::read(text).unwrap()).max_level_hint();
        assert_eq!(most("info,gridloom.net=warning"), Some(LevelFilter::INFO));
        assert_eq!(most("error,gridloom.net=debug"), Some(LevelFilter::DEBUG));
        assert_eq!(most("off"), Some(LevelFilter::OFF));
    }
}
