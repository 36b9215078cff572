//! All points and zones of a platform, as a tree.

use std::collections::BTreeMap;

use super::point::{Edge, Point, PointId, ZoneId};
use super::routing::Routing;

#[derive(Clone, Debug)]
pub(crate) struct Zone {
    pub point: PointId,
    pub parent: Option<ZoneId>,
    pub members: Vec<PointId>,
    pub routing: Routing,
    /// One-way exceptions that take precedence over the zone's own routing, between members or between any nested zones.
    pub bypass: BTreeMap<(PointId, PointId), Edge>,
}

/// All points and zones. Zone 0 is the root.
#[derive(Clone, Debug, Default)]
pub(crate) struct Net {
    pub points: Vec<Point>,
    pub zones: Vec<Zone>,
}

impl Net {
    pub(crate) fn point(&self, id: PointId) -> &Point {
        &self.points[id.0 as usize]
    }

    pub(crate) fn zone(&self, id: ZoneId) -> &Zone {
        &self.zones[id.0 as usize]
    }

    /// The zones around a point, innermost first, root last.
    pub(crate) fn zones_around(&self, point: PointId) -> Vec<ZoneId> {
        let mut zone = self.point(point).zone;
        let mut path = vec![zone];
        while let Some(parent) = self.zone(zone).parent {
            path.push(parent);
            zone = parent;
        }
        path
    }

    /// True if `point` is `ancestor` or is anywhere inside it.
    pub(crate) fn is_inside(&self, point: PointId, ancestor: PointId) -> bool {
        point == ancestor || self.zones_around(point).iter().any(|zone| self.zone(*zone).point == ancestor)
    }
}
