//! The properties of a packet that the emulated network needs: its destination, its length on the wire, and its flow.
//!
//! The kernel passes several packets of one TCP flow on as one (segmentation offload): the preceding offload header
//! states how long each would be. They are counted including the headers that each would have had.

use std::net::Ipv4Addr;

use crate::kernel::sys::OFFLOAD_HEADER_BYTES;
use crate::model::link::Train;

/// The destination and size of a packet.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Parsed {
    /// Destination address.
    pub destination: Ipv4Addr,
    /// Its bytes and flow.
    pub train: Train,
}

const ETHERNET_BYTES: usize = 14;
const IP_BYTES_MIN: usize = 20;
/// The field for explicit congestion notification, and its values.
const CONGESTION_EXPERIENCED: u8 = 3;
const CAPABLE_0: u8 = 2;
const CAPABLE_1: u8 = 1;
const TCP: u8 = 6;
const UDP: u8 = 17;

/// Parses an offload header followed by an Ethernet frame; `None` if it is not a complete IPv4 packet.
pub fn parse(bytes: &[u8]) -> Option<Parsed> {
    let ip = bytes.get(OFFLOAD_HEADER_BYTES + ETHERNET_BYTES..)?;
    if ip.len() < IP_BYTES_MIN || ip[0] >> 4 != 4 {
        return None;
    }
    let header_bytes = usize::from(ip[0] & 0xf) * 4;
    let is_fragment = u16::from_be_bytes([ip[6], ip[7]]) & 0x3fff != 0;
    let protocol = ip[9];
    let transport = ip.get(header_bytes..)?;
    let has_ports = matches!(protocol, TCP | UDP) && !is_fragment && transport.len() >= 4;
    let ports = if has_ports { transport[..4].try_into().expect("four bytes") } else { [0; 4] };
    let flow = flow(&ip[12..20], protocol, ports);
    let destination = Ipv4Addr::new(ip[16], ip[17], ip[18], ip[19]);
    let segment_bytes = usize::from(u16::from_le_bytes([bytes[4], bytes[5]]));
    let is_train = bytes[1] != 0 && segment_bytes > 0;
    let transport_bytes = match protocol {
        TCP => transport.get(12).map_or(0, |byte| usize::from(byte >> 4) * 4),
        _ => 8,
    };
    let all_headers = header_bytes + transport_bytes;
    let train = match ip.len().checked_sub(all_headers) {
        Some(payload) if is_train && payload > segment_bytes => Train {
            bytes: (payload + payload.div_ceil(segment_bytes) * all_headers) as f64,
            packet_bytes: (segment_bytes + all_headers) as f64,
            flow,
            is_marked: false,
        },
        _ => Train { bytes: ip.len() as f64, packet_bytes: ip.len() as f64, flow, is_marked: false },
    };
    Some(Parsed { destination, train })
}

/// Marks a packet to notify its receiver that it met a queue (RFC 3168, section 5), if its flow supports this.
///
/// `bytes` must have been accepted by [`parse`].
///
/// `bytes` is one that [`parse`] read.
pub fn mark(bytes: &mut [u8]) {
    let ip = &mut bytes[OFFLOAD_HEADER_BYTES + ETHERNET_BYTES..];
    if !matches!(ip[1] & CONGESTION_EXPERIENCED, CAPABLE_0 | CAPABLE_1) {
        return;
    }
    let word = |ip: &[u8], at: usize| u16::from_be_bytes([ip[at], ip[at + 1]]);
    let old = word(ip, 0);
    ip[1] |= CONGESTION_EXPERIENCED;
    // Update the header's checksum incrementally (RFC 1624, equation 3).
    let sum = u32::from(!word(ip, 10)) + u32::from(!old) + u32::from(word(ip, 0));
    let sum = (sum & 0xffff) + (sum >> 16);
    let sum = (sum & 0xffff) + (sum >> 16);
    ip[10..12].copy_from_slice(&(!(sum as u16)).to_be_bytes());
}

/// Returns a hash of the flow: FNV-1a over addresses, protocol and ports.
fn flow(addresses: &[u8], protocol: u8, ports: [u8; 4]) -> u64 {
    let all = addresses.iter().chain(std::iter::once(&protocol)).chain(&ports);
    all.fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a TCP packet with 12 bytes of options and `payload` bytes of payload.
    fn packet(payload: usize, segment: u16, port: u16) -> Vec<u8> {
        let mut bytes = vec![0; OFFLOAD_HEADER_BYTES + ETHERNET_BYTES + 20 + 32 + payload];
        bytes[1] = u8::from(segment > 0);
        bytes[4..6].copy_from_slice(&segment.to_le_bytes());
        let ip = &mut bytes[OFFLOAD_HEADER_BYTES + ETHERNET_BYTES..];
        ip[0] = 0x45;
        ip[9] = TCP;
        ip[12..20].copy_from_slice(&[10, 77, 0, 1, 10, 77, 0, 2]);
        ip[20..22].copy_from_slice(&port.to_be_bytes());
        ip[32] = 8 << 4;
        bytes
    }

    #[test]
    fn one_packet_is_as_long_as_it_is() {
        let parsed = parse(&packet(100, 0, 5)).unwrap();
        assert_eq!(parsed.destination, Ipv4Addr::new(10, 77, 0, 2));
        assert_eq!((parsed.train.bytes, parsed.train.packet_bytes), (152.0, 152.0));
        assert_eq!(parse(&packet(1448, 1448, 5)).unwrap().train.bytes, 1500.0);
    }

    #[test]
    fn a_train_has_the_headers_of_all_its_packets() {
        let parsed = parse(&packet(3 * 1448 + 10, 1448, 5)).unwrap();
        assert_eq!((parsed.train.bytes, parsed.train.packet_bytes), (4.0 * 52.0 + 3.0 * 1448.0 + 10.0, 1500.0));
    }

    #[test]
    fn connections_are_flows() {
        let flow = |port| parse(&packet(1, 0, port)).unwrap().train.flow;
        assert_eq!(flow(5), flow(5));
        assert_ne!(flow(5), flow(6));
    }

    /// Returns the one's complement sum over an IP header: all ones if its checksum is right.
    fn header_sum(bytes: &[u8]) -> u32 {
        let ip = &bytes[OFFLOAD_HEADER_BYTES + ETHERNET_BYTES..][..20];
        let sum: u32 = ip.chunks(2).map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]]))).sum();
        (sum & 0xffff) + (sum >> 16)
    }

    #[test]
    fn marking_keeps_the_checksum_right_and_skips_flows_that_cannot_react() {
        for (before, after) in [(0, 0), (CAPABLE_0, 3), (CAPABLE_1, 3), (3, 3), (0xb8, 0xb8), (0xb8 | CAPABLE_0, 0xbb)]
        {
            let mut bytes = packet(100, 0, 5);
            let ip = OFFLOAD_HEADER_BYTES + ETHERNET_BYTES;
            bytes[ip + 1] = before;
            let checksum = !(header_sum(&bytes) as u16);
            bytes[ip + 10..ip + 12].copy_from_slice(&checksum.to_be_bytes());
            mark(&mut bytes);
            assert_eq!((bytes[ip + 1], header_sum(&bytes)), (after, 0xffff));
        }
    }

    #[test]
    fn what_is_no_packet_is_refused() {
        let whole = packet(0, 0, 1);
        for length in 0..OFFLOAD_HEADER_BYTES + ETHERNET_BYTES + 20 {
            assert_eq!(parse(&whole[..length]), None);
        }
        let mut six = whole.clone();
        six[OFFLOAD_HEADER_BYTES + ETHERNET_BYTES] = 0x65;
        assert_eq!(parse(&six), None);
    }
}
