//! The report of a testbed: written by the box at its end, and shown while it runs.

use serde::{Deserialize, Serialize};

use crate::forwarder::{Shared, Traffic};
use crate::model::topology::Topology;
use crate::processors::ProcessorLoad;

/// A link in a report.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LinkReport {
    /// Its name in the platform.
    pub name: String,
    /// Bytes per second.
    pub bandwidth: f64,
    /// Seconds.
    pub latency_s: f64,
    /// Maximum waiting bytes of a flow.
    pub queue_bytes: f64,
    /// True if it carries traffic.
    pub is_up: bool,
    /// IP bytes carried.
    pub bytes: f64,
    /// Packets that were marked, so that their flow slows down.
    pub marked: u64,
    /// Packets dropped because the queue was full.
    pub dropped_full: u64,
    /// Packets dropped because the link was cut.
    pub dropped_cut: u64,
}

/// A host in a report.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct HostReport {
    /// Its name in the platform.
    pub name: String,
    /// Its address in the testbed.
    pub address: String,
}

/// The report of a testbed: its hosts, its links and their traffic.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// Hosts in the platform's order.
    pub hosts: Vec<HostReport>,
    /// Links that some route crosses.
    pub links: Vec<LinkReport>,
    /// Packets between hosts that no route connects.
    pub unroutable: u64,
    pub traffic: Traffic,
    /// Load of the machine.
    #[serde(default)]
    pub processors: ProcessorLoad,
}

impl Report {
    pub fn now(topology: &Topology, shared: &Shared, processors: ProcessorLoad) -> Report {
        let state = shared.lock();
        let links = topology.link_names.iter().zip(state.network.links()).map(|(name, link)| {
            let (shape, counters) = (link.shape(), link.counters());
            LinkReport {
                name: name.clone(),
                bandwidth: shape.bandwidth,
                latency_s: shape.latency_ns / 1e9,
                queue_bytes: shape.queue_bytes,
                is_up: link.is_up(),
                bytes: counters.bytes,
                marked: counters.marked,
                dropped_full: counters.dropped_full,
                dropped_cut: counters.dropped_cut,
            }
        });
        let hosts = topology.hosts.iter().enumerate().map(|(index, name)| HostReport {
            name: name.clone(),
            address: crate::kernel::hosts::address(index).to_string(),
        });
        Report {
            hosts: hosts.collect(),
            links: links.collect(),
            unroutable: state.network.unroutable(),
            traffic: state.traffic_now(),
            processors,
        }
    }
}

#[cfg(test)]
#[path = "../../gridloom/tests/support/key_paths.rs"]
mod key_paths;

#[cfg(test)]
mod tests {
    use super::key_paths::key_paths;
    use super::*;

    /// `gridloom testbed` prints it for programs.
    #[test]
    fn the_names_in_a_report_are_fixed() {
        let link = LinkReport {
            name: "l".into(),
            bandwidth: 1.0,
            latency_s: 0.0,
            queue_bytes: 1.0,
            is_up: true,
            bytes: 0.0,
            marked: 0,
            dropped_full: 0,
            dropped_cut: 0,
        };
        let hosts = vec![HostReport { name: "h".into(), address: "a".into() }];
        let (traffic, processors) = (Traffic::default(), ProcessorLoad::default());
        let report = Report { hosts, links: vec![link], unroutable: 0, traffic, processors };
        let found = key_paths(&serde_json::to_string(&report).unwrap());
        assert_eq!(found, include_str!("../tests/formats/report.keys"));
    }
}
