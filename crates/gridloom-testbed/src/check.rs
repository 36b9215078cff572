//! Accuracy of a testbed: measured with TCP between its hosts, and compared with the platform file.
//!
//! The rate in the file applies to IP packets. Of a full packet, the fraction [`PAYLOAD_PART`] is payload, which is
//! the rate that a program can see. On a link shared by both directions, acknowledgements take another 2 % of it.

use std::path::Path;

use serde::Serialize;

use crate::error::Error;
use crate::kernel::hosts::{MTU, address};
use crate::model::topology::Topology;
use crate::probe::{self, Measure, ProbeResult};

/// Payload of a full TCP packet with time stamps, as a fraction of its bytes.
pub const PAYLOAD_PART: f64 = (MTU as f64 - 52.0) / MTU as f64;
/// Size of the packet that carries one byte.
const PING_BYTES: f64 = 53.0;
const ROUND_TRIPS: usize = 40;
/// Target accuracy of rates.
pub const RATE_ERROR_MAX: f64 = 0.05;
/// Target accuracy of round trips: this, or [`ROUND_TRIP_ERROR_S_MAX`] if that is more.
pub const ROUND_TRIP_ERROR_MAX: f64 = 0.05;
/// Target accuracy of round trips in seconds. See [`ROUND_TRIP_ERROR_MAX`].
pub const ROUND_TRIP_ERROR_S_MAX: f64 = 1e-3;

/// The result for one pair of hosts.
#[derive(Clone, Debug, Serialize)]
pub struct PairCheck {
    /// Host that connects.
    pub from: String,
    /// Host that accepts.
    pub to: String,
    /// Expected seconds according to the platform file, including the transmission times of the packets.
    pub round_trip_expected_s: f64,
    /// Minimum, median and 90th percentile, in seconds.
    pub round_trip_s: [f64; 3],
    /// Expected bytes per second of payload according to the platform file.
    pub rate_expected: f64,
    /// Measured bytes per second of payload.
    pub rate: f64,
}

impl PairCheck {
    /// Returns the relative error of the rate.
    pub fn rate_error(&self) -> f64 {
        self.rate / self.rate_expected - 1.0
    }

    /// Returns the error of the median round trip, in seconds.
    pub fn round_trip_error_s(&self) -> f64 {
        self.round_trip_s[1] - self.round_trip_expected_s
    }

    /// Reports whether both errors are within the target.
    pub fn is_exact(&self) -> bool {
        let allowed = ROUND_TRIP_ERROR_S_MAX.max(ROUND_TRIP_ERROR_MAX * self.round_trip_expected_s);
        self.rate_error().abs() <= RATE_ERROR_MAX && self.round_trip_error_s().abs() <= allowed
    }
}

/// The result for all hosts at once, each sending to the next.
#[derive(Clone, Debug, Serialize)]
pub struct AllHostsCheck {
    /// Bytes of payload per second of all connections together.
    pub rate: f64,
    /// Expected rate: the max-min fair rates of all connections, as payload.
    pub rate_expected: f64,
    pub flows: usize,
}

/// Measures a pair of hosts in the running testbed of this folder.
///
/// # Errors
/// If a probe fails.
pub fn pair(folder: &Path, topology: &Topology, from: usize, to: usize, seconds: f64) -> Result<PairCheck, Error> {
    let no_route = || Error::Usage("a pair without a route cannot be checked".into());
    let way = |src, dst| topology.packet_ns(src, dst, PING_BYTES).ok_or_else(no_route);
    let ProbeResult::RoundTrips(times) = probe::ask(folder, from, address(to), Measure::RoundTrips(ROUND_TRIPS))?
    else {
        unreachable!("a probe answers what it was asked");
    };
    let ProbeResult::Rate(rate) = probe::ask(folder, from, address(to), Measure::Rate(seconds))? else {
        unreachable!("a probe answers what it was asked");
    };
    Ok(PairCheck {
        from: topology.hosts[from].clone(),
        to: topology.hosts[to].clone(),
        round_trip_expected_s: (way(from, to)? + way(to, from)?) / 1e9,
        round_trip_s: [times[0], times[times.len() / 2], times[times.len() * 9 / 10]],
        rate_expected: topology.bandwidth(from, to).ok_or_else(no_route)? * PAYLOAD_PART,
        rate,
    })
}

/// Measures all hosts at once, each sending to the next one to which it has a route.
///
/// # Errors
/// If a probe fails.
pub fn together(folder: &Path, topology: &Topology, seconds: f64) -> Result<AllHostsCheck, Error> {
    let count = topology.hosts.len();
    let pairs: Vec<(usize, usize)> = (0..count)
        .map(|from| (from, (from + 1) % count))
        .filter(|(from, to)| from != to && topology.bandwidth(*from, *to).is_some())
        .collect();
    let rates: Vec<Result<ProbeResult, Error>> = std::thread::scope(|scope| {
        let all: Vec<_> = pairs
            .iter()
            .map(|(from, to)| scope.spawn(|| probe::ask(folder, *from, address(*to), Measure::Rate(seconds))))
            .collect();
        all.into_iter().map(|one| one.join().expect("a probe's thread does not panic")).collect()
    });
    let mut rate = 0.0;
    for measured in rates {
        if let ProbeResult::Rate(one) = measured? {
            rate += one;
        }
    }
    let rate_expected = topology.fair_rates(&pairs).iter().sum::<f64>() * PAYLOAD_PART;
    Ok(AllHostsCheck { rate, rate_expected, flows: pairs.len() })
}

/// Returns at most `count` pairs of hosts that routes connect, spread evenly over all pairs.
pub fn choose_pairs(topology: &Topology, count: usize) -> Vec<(usize, usize)> {
    let hosts = topology.hosts.len();
    let all: Vec<(usize, usize)> = (0..hosts * hosts)
        .map(|index| (index / hosts, index % hosts))
        .filter(|(from, to)| topology.bandwidth(*from, *to).is_some())
        .collect();
    // Steps of about 0.618 of the whole that share no factor with it, so that the pairs differ, as do their sources
    // and destinations.
    let length = all.len();
    let step = (length * 618 / 1000..=length).find(|step| *step > 0 && gcd(*step, length) == 1).unwrap_or(1);
    let mut chosen: Vec<_> = (0..count.min(length)).map(|index| all[index * step % length]).collect();
    chosen.sort_unstable();
    chosen
}

fn gcd(a: usize, b: usize) -> usize {
    if b == 0 { a } else { gcd(b, a % b) }
}

#[cfg(test)]
mod tests {
    use gridloom_platform::Platform;

    use super::*;
    use crate::model::topology::Tuning;

    #[test]
    fn pairs_are_different_and_spread() {
        let names: Vec<String> = (0..16).map(|number| format!("\"h{number}\"")).collect();
        let hosts: String = names.iter().map(|name| format!("[[host]]\nname = {name}\nspeed = \"1Gf\"\n")).collect();
        let star = "bandwidth = \"1MBps\"\nlatency = \"1ms\"\n";
        let text = format!("{hosts}[[star]]\nname = \"s\"\nhosts = [{}]\n{star}", names.join(", "));
        let platform = Platform::parse(&text, "star.toml", &mut |name| Err(name.into())).unwrap();
        let topology = Topology::new(&platform, &Tuning::default()).unwrap();
        assert_eq!(choose_pairs(&topology, 1000).len(), 240);
        let mut pairs = choose_pairs(&topology, 8);
        pairs.dedup();
        let mut destinations: Vec<usize> = pairs.iter().map(|(_, to)| *to).collect();
        destinations.sort_unstable();
        destinations.dedup();
        assert!(pairs.len() == 8 && destinations.len() >= 6, "{pairs:?}");
    }
}
