//! Options of commands that run elements or nodes on this machine as if they were in several sites.

use anyhow::{Error, Result, ensure};
use gridloom::chares::FilterSpec;
use gridloom_net::transport::emulated_sites::Site;

/// The sites, and the filters between them.
#[derive(clap::Args)]
pub struct SitesOptions {
    /// Number of sites; the elements are divided among them in order
    #[arg(long, value_name = "NUMBER", default_value = "1")]
    pub sites: usize,
    /// Delay of messages between sites, such as 16ms: short for '--filter delay=16ms'
    #[arg(long, value_name = "TIME", value_parser = latency)]
    latency: Option<FilterSpec>,
    /// Filter for messages between sites: compress, rate=10MBps, stripe=4, delay=16ms or jitter=2ms; may be repeated,
    /// and filters apply in the order given
    #[arg(long = "filter", value_name = "NAME[=VALUE]", value_parser = filter)]
    filters: Vec<FilterSpec>,
}

impl SitesOptions {
    /// Returns the filters between sites in order; the latency is the last.
    ///
    /// # Errors
    /// If there are filters but only one site.
    pub fn filters(&self) -> Result<Vec<FilterSpec>> {
        let filters = self.all_filters();
        if let Some(first) = filters.first() {
            ensure!(self.sites > 1, "{first}: filters apply between sites, and there is only one: use --sites 2");
        }
        Ok(filters)
    }

    /// Returns the filters between the sites of servers; `sites` is the number of these sites.
    ///
    /// # Errors
    /// If there are filters but only one site.
    pub fn filters_between(&self, sites: usize) -> Result<Vec<FilterSpec>> {
        let filters = self.all_filters();
        if let Some(first) = filters.first() {
            ensure!(
                sites > 1,
                "{first}: filters apply between sites, and all servers are in one: start some with --site"
            );
        }
        Ok(filters)
    }

    fn all_filters(&self) -> Vec<FilterSpec> {
        self.filters.iter().chain(&self.latency).cloned().collect()
    }
}

/// The site of a node.
#[derive(clap::Args, Clone, Debug)]
pub struct SiteOptions {
    /// Site of the node: filters apply to messages for nodes of other sites, and no memory is shared with those nodes
    #[arg(long, value_name = "NAME")]
    site: Option<String>,
    /// Filter for messages that the node sends to other sites: rate=10MB/s, delay=16ms or jitter=2ms; may be repeated,
    /// and filters apply in the order given
    #[arg(long = "filter", value_name = "NAME=VALUE", value_parser = filter, requires = "site")]
    filters: Vec<FilterSpec>,
}

impl SiteOptions {
    /// Returns the site given by the options, else by the environment.
    ///
    /// # Errors
    /// If the site is not valid.
    pub fn site(&self) -> Result<Option<Site>> {
        let site = self.site.as_ref().map(|name| Site::new(name, self.filters.clone()).map(Some));
        site.unwrap_or_else(Site::of_environment).map_err(Error::msg)
    }
}

pub fn filter(text: &str) -> Result<FilterSpec, String> {
    text.parse()
}

fn latency(text: &str) -> Result<FilterSpec, String> {
    filter(&format!("delay={text}"))
}
