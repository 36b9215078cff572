//! Options of commands that run elements or nodes on this machine as if these stood in several sites.

use anyhow::{Error, Result, ensure};
use gridloom::chares::FilterSpec;
use gridloom_net::transport::apart::Site;

/// Sites, and what stands between them.
#[derive(clap::Args)]
pub struct Apart {
    /// Number of sites, over which the elements are divided in order
    #[arg(long, value_name = "NUMBER", default_value = "1")]
    pub sites: usize,
    /// Time for which messages between sites are held back, such as 16ms: short for '--filter delay=16ms'
    #[arg(long, value_name = "TIME", value_parser = latency)]
    latency: Option<FilterSpec>,
    /// What messages between sites pass, as often as you like, in that order: compress, rate=10MBps, stripe=4, delay=16ms or jitter=2ms
    #[arg(long = "filter", value_name = "NAME[=VALUE]", value_parser = filter)]
    filters: Vec<FilterSpec>,
}

impl Apart {
    /// The filters between sites, in their order: the latency is the last.
    ///
    /// # Errors
    /// If there is only one site.
    pub fn filters(&self) -> Result<Vec<FilterSpec>> {
        let filters = self.all_filters();
        if let Some(first) = filters.first() {
            ensure!(self.sites > 1, "{first}: filters stand between sites, and there is one: give --sites 2");
        }
        Ok(filters)
    }

    /// The same between the sites of servers, of which there are so many.
    ///
    /// # Errors
    /// If there is only one.
    pub fn filters_between(&self, sites: usize) -> Result<Vec<FilterSpec>> {
        let filters = self.all_filters();
        if let Some(first) = filters.first() {
            ensure!(
                sites > 1,
                "{first}: filters stand between sites, and the servers are of one: start some with --site"
            );
        }
        Ok(filters)
    }

    fn all_filters(&self) -> Vec<FilterSpec> {
        self.filters.iter().chain(&self.latency).cloned().collect()
    }
}

/// Where a node stands.
#[derive(clap::Args, Clone, Debug)]
pub struct SiteOptions {
    /// Site of the node: what it sends to nodes of other sites passes the filters, and it shares no memory with them
    #[arg(long, value_name = "NAME")]
    site: Option<String>,
    /// What the node sends to other sites passes that, in this order: rate=10MB/s, delay=16ms or jitter=2ms; may be repeated
    #[arg(long = "filter", value_name = "NAME=VALUE", value_parser = filter, requires = "site")]
    filters: Vec<FilterSpec>,
}

impl SiteOptions {
    /// The site of the options, else of the environment.
    ///
    /// # Errors
    /// If there can be none such.
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
