//! Clusters: many similar hosts, added as a zone of their own.
//!
//! A flat cluster is a star. Each host has a link of its own (two for split-duplex) to a router, and all share the
//! backbone, if there is one. Names are SimGrid's: host `PREFIXiSUFFIX`, links `ID_link_i` (`_UP`, `_DOWN`, `_loopback`,
//! `_limiter`), backbone `ID_backbone`, router `PREFIXID_routerSUFFIX`.

use super::PlatformBuilder;
use super::zones::routing_named;
use crate::element::{HostId, LinkId, Sharing};
use crate::error::PlatformError;
use crate::route::dragonfly::{Dragonfly, Shape};
use crate::route::fat_tree::FatTree;
use crate::route::leaves::{Leaves, LinkFactory};
use crate::route::point::ZoneId;
use crate::route::routing::{Routing, Spoke};
use crate::route::torus::{self, Torus};

/// A flat cluster, in whichever format the file describes it.
#[derive(Clone, Debug)]
pub(crate) struct FlatCluster<'a> {
    pub(crate) id: &'a str,
    /// Number in link names, and name, of each host.
    pub hosts: Vec<(String, String)>,
    pub speed_flops: f64,
    pub cores: u32,
    pub bandwidth: f64,
    pub latency_s: f64,
    pub split_duplex: bool,
    pub backbone: Option<(f64, f64, Sharing)>,
    pub loopback: Option<(f64, f64)>,
    pub limiter_bandwidth: Option<f64>,
    pub router: String,
    pub properties: Vec<(String, String)>,
}

impl FlatCluster<'_> {
    /// Adds the cluster as a zone of its own.
    pub(crate) fn add(&self, builder: &mut PlatformBuilder, parent: ZoneId) -> Result<ZoneId, PlatformError> {
        let routing = routing_named("Cluster").expect("the star is a known routing");
        let zone = builder.add_zone(parent, self.id, routing)?;
        let mut spokes = Vec::with_capacity(self.hosts.len());
        for (number, name) in &self.hosts {
            let host = self.add_host(builder, zone, name)?;
            let link = format!("{}_link_{number}", self.id);
            let loopback = match self.loopback {
                Some((bw, lat)) => Some(builder.add_link(&format!("{link}_loopback"), bw, lat, Sharing::Fatpipe)?),
                None => None,
            };
            let limiter = match self.limiter_bandwidth {
                Some(bw) => Some(builder.add_link(&format!("{link}_limiter"), bw, 0.0, Sharing::Shared)?),
                None => None,
            };
            let (up, down) = self.add_cable(builder, &link, 1)?;
            spokes.push((builder.host_point(host), limiter, up, down, loopback));
        }
        let backbone = match self.backbone {
            Some((bw, lat, sharing)) => Some(builder.add_link(&format!("{}_backbone", self.id), bw, lat, sharing)?),
            None => None,
        };
        builder.add_router(zone, &self.router)?;
        if let Routing::Star(table) = &mut builder.zone_mut(zone).routing {
            for (point, limiter, up, down, loopback) in spokes {
                let join = |parts: [Option<LinkId>; 3]| parts.into_iter().flatten().collect::<Vec<_>>();
                let spoke = Spoke {
                    up: join([limiter, Some(up), backbone]),
                    down: join([backbone, Some(down), limiter]),
                    loopback,
                    gateway: None,
                };
                table.insert(point, spoke);
            }
        }
        Ok(zone)
    }

    /// Adds a link of `cables` parallel cables with the cluster's bandwidth each, in both directions.
    pub(crate) fn add_cable(
        &self,
        builder: &mut PlatformBuilder,
        name: &str,
        cables: usize,
    ) -> Result<(LinkId, LinkId), PlatformError> {
        let bandwidth = self.bandwidth * cables as f64;
        if self.split_duplex {
            return builder.add_duplex_link(name, bandwidth, self.latency_s);
        }
        let both = builder.add_link(name, bandwidth, self.latency_s, Sharing::Shared)?;
        Ok((both, both))
    }

    /// Adds the limiter link of the host or switch of that number, if the cluster has limiters.
    pub(crate) fn add_limiter(
        &self,
        builder: &mut PlatformBuilder,
        number: usize,
    ) -> Result<Option<LinkId>, PlatformError> {
        let Some(bandwidth) = self.limiter_bandwidth else { return Ok(None) };
        builder.add_link(&format!("{}_link_{number}_limiter", self.id), bandwidth, 0.0, Sharing::Shared).map(Some)
    }

    /// Adds one of the hosts, without its links.
    pub(crate) fn add_host(
        &self,
        builder: &mut PlatformBuilder,
        zone: ZoneId,
        name: &str,
    ) -> Result<HostId, PlatformError> {
        let host = builder.add_host_in(zone, name, self.speed_flops, self.cores)?;
        for (key, value) in &self.properties {
            builder.set_property(host, key, value);
        }
        Ok(host)
    }

    pub(crate) fn add_fat_tree(
        &self,
        parameters: &str,
        builder: &mut PlatformBuilder,
        parent: ZoneId,
    ) -> Result<(), PlatformError> {
        let mut tree = FatTree::parse(parameters, self.hosts.len()).map_err(PlatformError::new)?;
        let zone = builder.add_zone(parent, self.id, Routing::None)?;
        let leaves = self.add_leaves(builder, zone)?;
        tree.join(leaves, self.hosts.len(), &mut LinkBuilder { cluster: self, builder })?;
        builder.zone_mut(zone).routing = Routing::FatTree(Box::new(tree));
        Ok(())
    }

    pub(crate) fn add_torus(
        &self,
        parameters: &str,
        builder: &mut PlatformBuilder,
        parent: ZoneId,
    ) -> Result<(), PlatformError> {
        let sizes = torus::parse(parameters, self.hosts.len()).map_err(PlatformError::new)?;
        let zone = builder.add_zone(parent, self.id, Routing::None)?;
        let leaves = self.add_leaves(builder, zone)?;
        let torus =
            Torus::build(sizes, leaves, self.hosts.len(), self.id, &mut LinkBuilder { cluster: self, builder })?;
        builder.zone_mut(zone).routing = Routing::Torus(Box::new(torus));
        Ok(())
    }

    pub(crate) fn add_dragonfly(
        &self,
        parameters: &str,
        builder: &mut PlatformBuilder,
        parent: ZoneId,
    ) -> Result<(), PlatformError> {
        let shape = Shape::parse(parameters, self.hosts.len()).map_err(PlatformError::new)?;
        let zone = builder.add_zone(parent, self.id, Routing::None)?;
        let leaves = self.add_leaves(builder, zone)?;
        let mut laid = builder.dragonfly_links;
        let mut cabling = LinkBuilder { cluster: self, builder };
        let dragonfly = Dragonfly::build(shape, leaves, self.hosts.len(), &mut laid, &mut cabling)?;
        builder.dragonfly_links = laid;
        builder.zone_mut(zone).routing = Routing::Dragonfly(Box::new(dragonfly));
        Ok(())
    }

    /// Adds hosts, their loopbacks and the router that represents the whole cluster.
    fn add_leaves(&self, builder: &mut PlatformBuilder, zone: ZoneId) -> Result<Leaves, PlatformError> {
        let mut leaves = Leaves::default();
        for (position, (number, name)) in self.hosts.iter().enumerate() {
            let host = self.add_host(builder, zone, name)?;
            leaves.positions.insert(builder.host_point(host), position);
            if let Some((bandwidth, latency_s)) = self.loopback {
                let loopback = format!("{}_link_{number}_loopback", self.id);
                leaves.loopbacks.push(builder.add_link(&loopback, bandwidth, latency_s, Sharing::Fatpipe)?);
            }
            leaves.limiters.extend(self.add_limiter(builder, position)?);
        }
        builder.add_router(zone, &self.router)?;
        Ok(leaves)
    }
}

/// Adds links of a cluster while its platform is built.
struct LinkBuilder<'a, 'c> {
    cluster: &'a FlatCluster<'c>,
    builder: &'a mut PlatformBuilder,
}

impl LinkFactory for LinkBuilder<'_, '_> {
    fn cable(&mut self, name: &str, cables: usize) -> Result<(LinkId, LinkId), PlatformError> {
        self.cluster.add_cable(self.builder, name, cables)
    }

    fn limiter(&mut self, number: usize) -> Result<Option<LinkId>, PlatformError> {
        self.cluster.add_limiter(self.builder, number)
    }
}
