//! The capacity of this machine compared with that of a platform: processor speed of all cores and of one, and bytes
//! per second of the emulated network.
//!
//! A platform with a path that is more than [`OVERLOAD_MAX`] times as fast as the machine can forward is rejected: any
//! transfer over it would be slower than on the platform by at least that factor. Below that, transfers that fill the
//! path are slower, and others are not: the command warns before the run, and the report shows it afterwards
//! ([`crate::forwarder::Traffic::is_late`]). The sum of all links is not limited: they are seldom full at once, and
//! the report shows if they were.
//!
//! Beyond the machine's capacity a platform is emulated in proportion only if everything is made slower (`slower` in
//! [`crate::model::topology::Tuning`]): rates and speeds divided, latencies multiplied.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use gridloom_platform::Platform;

use crate::model::topology::Topology;

/// Fraction of the processors available to hosts; the rest is for the forwarder and the kernel's packet processing.
pub const PROCESSOR_PART: f64 = 0.8;
/// Throughput of the emulated network as a fraction of loopback's: every packet is copied twice more and crosses the
/// kernel's stack twice (measured: 0.3 to 0.6).
pub const LOOPBACK_PART: f64 = 0.3;
/// Factor by which a path may be faster than the machine can forward. It is large because other processes lower the
/// measured capacity temporarily, and a platform should not be rejected for that.
pub const OVERLOAD_MAX: f64 = 4.0;
const CALIBRATION: Duration = Duration::from_millis(15);
/// Number of measurements, of which the best counts: other processes may have used the processors.
const CALIBRATIONS: usize = 4;

/// The capacity that a machine has or a platform needs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Capacity {
    /// Speed of all processors, flop/s.
    pub speed: f64,
    /// Speed of one core, flop/s; for a platform, of its fastest.
    pub core_speed: f64,
    /// Total bytes per second of packets; for a platform, of its fastest path.
    pub rate: f64,
}

impl Capacity {
    /// Measures this machine, with `core_speed` as the speed of one core. Takes some ten milliseconds.
    ///
    /// # Errors
    /// If not even loopback works.
    pub fn of_machine(core_speed: f64) -> io::Result<Capacity> {
        let cores = gridloom_resources::processors() as f64;
        let mut loopback = loopback_rate()?;
        for _ in 1..CALIBRATIONS {
            loopback = loopback.max(loopback_rate()?);
        }
        Ok(Capacity { speed: cores * core_speed * PROCESSOR_PART, core_speed, rate: loopback * LOOPBACK_PART })
    }

    /// Returns the capacity that the platform needs if these of its hosts compute.
    pub fn of_platform(platform: &Platform, topology: &Topology, computing: &[usize]) -> Capacity {
        let hosts = || computing.iter().map(|host| &platform.hosts()[*host]);
        let count = topology.hosts.len();
        let ways = (0..count * count).filter_map(|index| topology.bandwidth(index / count, index % count));
        Capacity {
            speed: hosts().map(|host| host.speed_flops * f64::from(host.cores)).sum(),
            core_speed: hosts().map(|host| host.speed_flops).fold(0.0, f64::max),
            rate: ways.fold(0.0, f64::max),
        }
    }

    /// Returns the factor by which the processors of `needed` have to be made slower to fit; 1 if they fit.
    pub fn slower_for_speed(&self, needed: &Capacity) -> f64 {
        (needed.speed / self.speed).max(needed.core_speed / self.core_speed).max(1.0)
    }

    /// Returns the factor by which the links of `needed` have to be made slower for the fastest path to fit; 1 if it fits.
    pub fn slower_for_rate(&self, needed: &Capacity) -> f64 {
        (needed.rate / self.rate).max(1.0)
    }
}

/// Returns the factor to suggest, with a margin so that it still suffices if the next measurement is slightly lower.
pub fn with_margin(slower: f64) -> f64 {
    (slower * 1.1 * 10.0).ceil() / 10.0
}

fn loopback_rate() -> io::Result<f64> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let mut sender = TcpStream::connect(listener.local_addr()?)?;
    let (mut receiver, _) = listener.accept()?;
    let reader = std::thread::spawn(move || {
        let mut block = vec![0; BLOCK_BYTES];
        let mut bytes = 0;
        while let Ok(length @ 1..) = receiver.read(&mut block) {
            bytes += length;
        }
        bytes
    });
    let (block, start) = (vec![0; BLOCK_BYTES], Instant::now());
    while start.elapsed() < CALIBRATION {
        sender.write_all(&block)?;
    }
    drop(sender);
    let bytes = reader.join().expect("the reader does not panic");
    Ok(bytes as f64 / start.elapsed().as_secs_f64())
}

const BLOCK_BYTES: usize = 1 << 18;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::topology::Tuning;

    #[test]
    fn a_platform_that_fits_is_not_made_slower() {
        let text = include_str!("../../../examples/two-sites.toml");
        let platform = Platform::parse(text, "two-sites.toml", &mut |name| Err(name.into())).unwrap();
        let topology = Topology::new(&platform, &Tuning::default()).unwrap();
        let needed = Capacity::of_platform(&platform, &topology, &[0, 1, 2, 3]);
        assert_eq!(needed, Capacity { speed: 90e9, core_speed: 40e9, rate: 1.25e9 });
        let machine = |speed, core_speed, rate| Capacity { speed, core_speed, rate };
        assert_eq!(machine(100e9, 50e9, 2e9).slower_for_speed(&needed), 1.0);
        assert_eq!(machine(45e9, 50e9, 2e9).slower_for_speed(&needed), 2.0);
        assert_eq!(machine(100e9, 10e9, 2e9).slower_for_speed(&needed), 4.0);
        assert_eq!(machine(100e9, 10e9, 0.5e9).slower_for_rate(&needed), 2.5);
        let slow = Topology::new(&platform, &Tuning { slower: 4.0, ..Tuning::default() }).unwrap();
        assert_eq!(slow.bandwidth(2, 3), Some(1.25e9 / 4.0));
        assert!((slow.latency_ns(0, 2).unwrap() - 4.0 * 20.15e6).abs() < 1.0);
    }
}
