//! The parameters with which a transfer shares links: its latency phase, penalty, bound and progress.
//!
//! ```text
//! S weight (bytes)    g TCP window (bytes)    lf, bf latency and bandwidth factor    bw, lat of the route's links
//!
//! latency phase  lf * lat          lat = sum of the links' latencies
//! penalty        p = lat + sum S / bw       (1 if lat = 0, or if the model shares evenly)
//! bound          b = min bw, at most g / (2 lat) if both are positive
//! progress       bf * x, where x is the value that the solver gives
//! ```
//!
//! **`warm-tcp`**, the default for running programs, models connections that are kept open, as Gridloom's are. The
//! window has grown, no connection is opened, and a small message pays the latency once. `lv08` charges 13.01
//! latencies per message, which account for opening a new connection and its slow start. `warm-tcp` was measured
//! against warm blocking TCP over loopback only. The latency (4.5 to 5 us) was taken from round trips of one byte, the
//! bandwidth from messages of 64 MiB. With these, 16 MB took 0.94 to 1.01 of the predicted time. Messages of 10 kB to
//! 4 MB were up to 17 times faster, because they fit into caches and socket buffers. Not measured: long or lossy
//! links.
//!
//! **Validity.** Steady transfers of at least 100 kB or so. Slow start, losses and queues are not modelled beyond the
//! factors. Known to be wrong: in `cm02` and `lv08`, a transfer without latency has the penalty 1, while others have
//! about 1e-3. Where they share a link, the one without latency is starved, as in SimGrid. `warm-tcp` does not have
//! this problem.
//!
//! **Not modelled.** Factors that depend on the size (SMPI's), Vivaldi coordinates, Wi-Fi.
//!
//! Source: SimGrid 4.1; `lv08`: Velho and Legrand, "Accuracy study and improvement of network simulation in the SimGrid
//! framework" (SIMUTools 2009); `cm02`: Casanova and Marchal, INRIA RR-4596 (2002).

use thiserror::Error;

use super::resources::LinkIndex;

/// Share of a flow's rate that its acknowledgements use on the return path.
pub const CROSS_TRAFFIC_WEIGHT: f64 = 0.05;
/// TCP window that SimGrid assumes, bytes.
const WINDOW_BYTES: f64 = 4_194_304.0;

/// Parameters of a network model.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct NetworkModel {
    pub name: &'static str,
    /// Factor that multiplies the latency.
    pub latency_factor: f64,
    /// Factor that multiplies the progress.
    pub bandwidth_factor: f64,
    /// S: a link adds S / bandwidth to the penalty; bytes.
    pub weight_bytes: f64,
    /// g: the TCP window, bytes; 0 for no window limit.
    pub window_bytes: f64,
    /// True if a flow also uses [`CROSS_TRAFFIC_WEIGHT`] of its rate on the return path.
    pub cross_traffic: bool,
    /// True if all flows have the penalty 1, whatever their latency.
    pub shares_evenly: bool,
}

/// A transfer to start.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Transfer<'a> {
    /// The links crossed, in order.
    pub links: &'a [LinkIndex],
    /// The links that the acknowledgements cross.
    pub return_links: &'a [LinkIndex],
    /// Links outside the route that the transfer uses too, and the bytes that pass there per byte of the transfer. They limit
    /// its rate, but have no effect on its penalty.
    pub beside: &'a [(LinkIndex, f64)],
    /// Latency of the forward path, seconds.
    pub latency_s: f64,
    pub size_bytes: f64,
    /// Upper limit on the rate, bytes per second; infinite for no limit.
    pub rate_max: f64,
    /// The part of the latency phase that has already passed, seconds. It is positive if the transfer follows another
    /// over the same connection.
    pub latency_passed_s: f64,
}

impl<'a> Transfer<'a> {
    /// Creates a transfer over these links with no rate limit and no acknowledgements.
    pub fn new(links: &'a [LinkIndex], latency_s: f64, size_bytes: f64) -> Transfer<'a> {
        let (rate_max, latency_passed_s) = (f64::INFINITY, 0.0);
        Transfer { links, return_links: &[], beside: &[], latency_s, size_bytes, rate_max, latency_passed_s }
    }
}

/// A network model with its description.
#[derive(Clone, Copy, Debug)]
pub struct ModelDescription {
    pub model: NetworkModel,
    /// One-line description.
    pub about: &'static str,
    /// Literature reference.
    pub source: &'static str,
}

/// The error for an unknown model name.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[error("no network model '{name}'; there are {known}")]
pub struct UnknownModel {
    /// The requested name.
    pub name: String,
    /// The known names, separated by commas.
    pub known: String,
}

impl NetworkModel {
    /// Pays the latency once, full bandwidth, equal shares: a connection that is kept open.
    pub const WARM_TCP: NetworkModel = NetworkModel {
        name: "warm-tcp",
        latency_factor: 1.0,
        bandwidth_factor: 1.0,
        weight_bytes: 0.0,
        window_bytes: 0.0,
        cross_traffic: false,
        shares_evenly: true,
    };
    /// Latency and bandwidth, shares by round-trip time, TCP window.
    pub const CM02: NetworkModel = NetworkModel {
        name: "cm02",
        window_bytes: WINDOW_BYTES,
        cross_traffic: true,
        shares_evenly: false,
        ..NetworkModel::WARM_TCP
    };
    /// CM02 with factors fitted to packet-level simulation.
    pub const LV08: NetworkModel = NetworkModel {
        name: "lv08",
        latency_factor: 13.01,
        bandwidth_factor: 0.97,
        weight_bytes: 20537.0,
        ..NetworkModel::CM02
    };

    /// Returns the model with that name.
    ///
    /// # Errors
    /// Returns an error that lists the known names if the name is unknown.
    pub fn by_name(name: &str) -> Result<NetworkModel, UnknownModel> {
        // The first name of `warm-tcp`.
        let name = if name == "plain" { "warm-tcp" } else { name };
        MODELS.iter().map(|entry| entry.model).find(|model| model.name == name).ok_or_else(|| {
            let known: Vec<&str> = MODELS.iter().map(|entry| entry.model.name).collect();
            UnknownModel { name: name.into(), known: known.join(", ") }
        })
    }

    /// Returns the time before the first byte moves, seconds.
    pub fn latency_phase_s(&self, latency_s: f64) -> f64 {
        self.latency_factor * latency_s
    }

    /// Returns the penalty of a transfer over links of these bandwidths, in route order. The sum starts with the
    /// latency and adds from left to right, because the last bit decides ties on fat pipes.
    pub fn penalty(&self, latency_s: f64, bandwidths: impl Iterator<Item = f64>) -> f64 {
        if self.shares_evenly {
            return 1.0;
        }
        bandwidths.fold(latency_s, |penalty, bandwidth| penalty + self.weight_bytes / bandwidth)
    }

    /// Returns the penalty of a transfer that has no latency phase.
    pub fn penalty_without_latency(&self) -> f64 {
        1.0
    }

    /// Returns the share of each link that a transfer takes per byte. A link that occurs twice is returned twice.
    pub fn link_weights(&self, links: &[LinkIndex], way_back: &[LinkIndex]) -> impl Iterator<Item = (LinkIndex, f64)> {
        let there = links.iter().map(|link| (*link, 1.0));
        there.chain(way_back.iter().map(|link| (*link, CROSS_TRAFFIC_WEIGHT)))
    }

    /// Returns the bound of a transfer; `narrowest` is the least bandwidth of its links.
    pub fn bound(&self, latency_s: f64, narrowest: f64) -> f64 {
        if latency_s > 0.0 && self.window_bytes > 0.0 {
            narrowest.min(self.window_bytes / (2.0 * latency_s))
        } else {
            narrowest
        }
    }
}

impl Default for NetworkModel {
    fn default() -> NetworkModel {
        NetworkModel::WARM_TCP
    }
}

/// All network models.
pub const MODELS: &[ModelDescription] = &[
    ModelDescription {
        model: NetworkModel::WARM_TCP,
        about: "latency + size / bandwidth, even shares: connections that are kept open (the default)",
        source: "Gridloom; against blocking TCP on loopback only",
    },
    ModelDescription {
        model: NetworkModel::CM02,
        about: "latency + size / bandwidth, shares inverse to round-trip times, TCP window, acknowledgements",
        source: "Casanova and Marchal, INRIA RR-4596",
    },
    ModelDescription {
        model: NetworkModel::LV08,
        about: "CM02 with latency x 13.01 and bandwidth x 0.97, fitted to packet-level simulation of TCP",
        source: "Velho and Legrand, SIMUTools 2009",
    },
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_found_and_unknown_ones_list_them() {
        assert_eq!(NetworkModel::by_name("lv08"), Ok(NetworkModel::LV08));
        let error = NetworkModel::by_name("lv09").unwrap_err().to_string();
        assert_eq!(error, "no network model 'lv09'; there are warm-tcp, cm02, lv08");
    }

    #[test]
    fn the_window_bounds_long_routes() {
        assert_eq!(NetworkModel::CM02.bound(0.1, 1e9), WINDOW_BYTES / 0.2);
        assert_eq!(NetworkModel::WARM_TCP.bound(0.1, 1e9), 1e9);
        assert_eq!(NetworkModel::CM02.bound(0.0, 1e9), 1e9);
    }
}
