//! Options of commands that run elements on this machine as if these stood in several sites.

use anyhow::{Result, ensure};
use gridloom::chares::FilterSpec;

/// Sites, and what stands between them.
#[derive(clap::Args)]
pub struct Apart {
    /// Number of sites, over which the elements are divided in order
    #[arg(long, value_name = "NUMBER", default_value = "1")]
    pub sites: usize,
    /// Time for which messages between sites are held back, such as 16ms: short for '--filter delay=16ms'
    #[arg(long, value_name = "TIME", value_parser = latency)]
    latency: Option<FilterSpec>,
    /// What messages between sites pass, as often as you like, in that order: compress, rate=10MBps, delay=16ms or jitter=2ms
    #[arg(long = "filter", value_name = "NAME[=VALUE]", value_parser = filter)]
    filters: Vec<FilterSpec>,
}

impl Apart {
    /// The filters between sites, in their order: the latency is the last.
    ///
    /// # Errors
    /// If there is only one site.
    pub fn filters(&self) -> Result<Vec<FilterSpec>> {
        let filters: Vec<FilterSpec> = self.filters.iter().chain(&self.latency).cloned().collect();
        if let Some(first) = filters.first() {
            ensure!(self.sites > 1, "{first}: filters stand between sites, and there is one: give --sites 2");
        }
        Ok(filters)
    }
}

pub fn filter(text: &str) -> Result<FilterSpec, String> {
    text.parse()
}

fn latency(text: &str) -> Result<FilterSpec, String> {
    filter(&format!("delay={text}"))
}
