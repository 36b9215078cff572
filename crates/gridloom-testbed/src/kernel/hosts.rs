//! Hosts as network namespaces, each with one interface: its cable ends at the forwarder.
//!
//! ```text
//!  namespace of host i                    the box's namespace
//!    eth0  10.77.x.y/16 ══ veth cable ══ h<i>  ◀── packet ring of the forwarder
//! ```
//!
//! All `eth0` have the same hardware address and never resolve others, so that a frame can be moved from one cable to
//! another unchanged. Within a host, loopback is the kernel's own.

use std::fs;
use std::net::Ipv4Addr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::thread::{LinkNameSpaceType, UnshareFlags, move_into_link_name_space};

use super::netlink::{self, VethPair};
use super::sys::{self, PacketRing};
use crate::error::Error;
use crate::model::topology::Topology;

/// Size of the largest IP packet in bytes, as on Ethernet.
pub const MTU: u32 = 1500;
/// Payload of a full TCP packet with time stamps.
const SEGMENT_BYTES: f64 = 1448.0;
/// Transmission time of the longest train: packets that a host sends as one are at most what its links carry in this
/// time, which is also what the kernel sends of a paced flow at once. Longer trains would save work but delay other
/// flows in bursts.
const TRAIN_S: f64 = 1e-3;
/// Maximum number of packets in a train; 64 KiB of headers and payload.
const TRAIN_PACKETS_MAX: f64 = 40.0;
/// Size of a host's ring: what its links carry while the forwarder is not scheduled for some milliseconds.
const RING_BYTES: usize = 4 << 20;
/// Minimum number of packets that fit into a ring.
const RING_SLOTS_MIN: usize = 128;
/// Index of a host's only interface other than loopback.
const INSIDE_INDEX: u32 = 1000;
/// Index of the first interface at the forwarder's end.
const OUTSIDE_INDEX: u32 = 2000;
const LOOPBACK_INDEX: u32 = 1;
const ADDRESS: [u8; 6] = [0x02, 0, 0, 0, 0x4c, 1];
const PREFIX: u8 = 16;
/// Settings of a host's namespace; those that the kernel lacks or forbids are left unchanged.
const SETTINGS: [(&str, &str); 7] = [
    // Long fast links need windows of their bandwidth-delay product.
    ("net/ipv4/tcp_wmem", "4096 65536 33554432"),
    ("net/ipv4/tcp_rmem", "4096 131072 33554432"),
    ("net/ipv4/tcp_congestion_control", "cubic"),
    // Links mark before they drop.
    ("net/ipv4/tcp_ecn", "1"),
    // Each connection measures for itself, so that runs do not depend on earlier ones.
    ("net/ipv4/tcp_no_metrics_save", "1"),
    ("net/ipv6/conf/all/disable_ipv6", "1"),
    ("net/ipv4/ping_group_range", "0 2147483647"),
];

/// A host's namespace and address.
#[derive(Debug)]
pub struct HostNetwork {
    /// Address in the common network of all hosts.
    pub address: Ipv4Addr,
    /// The network namespace.
    pub namespace: OwnedFd,
}

/// Returns the address of a host, by its number.
pub fn address(host: usize) -> Ipv4Addr {
    let number = host as u32 + 1;
    Ipv4Addr::from(u32::from(Ipv4Addr::new(10, 77, 0, 0)) + number)
}

/// Builds a namespace for each host, and the forwarder's end of its cable. The thread returns to its original namespace.
///
/// # Errors
/// If the kernel refuses namespaces, interfaces or packet sockets.
pub fn build(topology: &Topology) -> Result<(Vec<HostNetwork>, Vec<PacketRing>), Error> {
    let outside = own_namespace()?;
    loopback_up()?;
    let (mut hosts, mut rings) = (Vec::new(), Vec::new());
    for index in 0..topology.hosts.len() {
        let namespace = new_namespace(outside.as_fd())?;
        let segments = train_packets(topology, index);
        let segments_bytes = segments * 1500;
        let outside_index = OUTSIDE_INDEX + index as u32;
        netlink::add_veth(&VethPair {
            here: (&format!("h{index}"), outside_index),
            there: ("eth0", INSIDE_INDEX),
            namespace: namespace.as_fd(),
            address: ADDRESS,
            mtu: MTU,
            segments_max: segments,
            segments_bytes_max: segments_bytes,
        })
        .map_err(Error::system("a pair of virtual interfaces (veth)"))?;
        netlink::set_up(outside_index, true).map_err(Error::system("the forwarder's end of a cable"))?;
        let slot_bytes = (segments_bytes as usize + 512).next_power_of_two().max(2048);
        let slots = (RING_BYTES / slot_bytes).max(RING_SLOTS_MIN);
        rings.push(PacketRing::open(outside_index, slot_bytes, slots).map_err(Error::system("a packet socket"))?);
        let address = address(index);
        within(namespace.as_fd(), outside.as_fd(), || {
            netlink::set_up(INSIDE_INDEX, false).map_err(Error::system("a host's interface"))?;
            netlink::add_address(INSIDE_INDEX, address, PREFIX).map_err(Error::system("a host's address"))
        })?;
        hosts.push(HostNetwork { address, namespace });
    }
    Ok((hosts, rings))
}

/// Moves this thread, or a child before it runs its program, into a network namespace.
///
/// # Errors
/// If the kernel refuses.
pub fn enter(namespace: BorrowedFd<'_>) -> std::io::Result<()> {
    Ok(move_into_link_name_space(namespace, Some(LinkNameSpaceType::Network))?)
}

fn own_namespace() -> Result<OwnedFd, Error> {
    let file = fs::File::open("/proc/thread-self/ns/net").map_err(Error::system("this thread's network namespace"))?;
    Ok(file.into())
}

fn new_namespace(back: BorrowedFd<'_>) -> Result<OwnedFd, Error> {
    sys::unshare(UnshareFlags::NEWNET).map_err(Error::system("a network namespace for a host"))?;
    let namespace = own_namespace()?;
    loopback_up()?;
    for (name, value) in SETTINGS {
        // Kernels without IPv6, or without this congestion control, work without it.
        let _ = fs::write(format!("/proc/sys/{name}"), value);
    }
    enter(back).map_err(Error::system("back from a host's namespace"))?;
    Ok(namespace)
}

fn within(
    namespace: BorrowedFd<'_>,
    back: BorrowedFd<'_>,
    act: impl FnOnce() -> Result<(), Error>,
) -> Result<(), Error> {
    enter(namespace).map_err(Error::system("into a host's namespace"))?;
    let result = act();
    enter(back).map_err(Error::system("back from a host's namespace"))?;
    result
}

fn loopback_up() -> Result<(), Error> {
    netlink::set_up(LOOPBACK_INDEX, true).map_err(Error::system("a loopback interface"))
}

/// Returns the number of packets that the host may send as one, derived from the fastest of its paths.
fn train_packets(topology: &Topology, host: usize) -> u32 {
    let widest = (0..topology.hosts.len()).filter_map(|other| topology.bandwidth(host, other)).fold(0.0, f64::max);
    (widest * TRAIN_S / SEGMENT_BYTES).clamp(1.0, TRAIN_PACKETS_MAX) as u32
}
