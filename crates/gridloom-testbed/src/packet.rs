//! What the emulated network has to know of a packet: for whom it is, how long it is on the wire, and of which flow.
//!
//! The kernel hands over several packets of one TCP flow as one (segmentation offload): the offload header in front
//! says how long each would be. They are counted with the headers that each would have had.

use std::net::Ipv4Addr;

use crate::kernel::sys::OFFLOAD_HEADER_BYTES;
use crate::model::link::Train;

/// A packet's destination and its measures.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Parsed {
    /// Where it goes.
    pub destination: Ipv4Addr,
    /// Its bytes and flow.
    pub train: Train,
}

const ETHERNET_BYTES: usize = 14;
const IP_BYTES_MIN: usize = 20;
const TCP: u8 = 6;
const UDP: u8 = 17;

/// Reads an offload header with an Ethernet frame behind it; `None` if it is no whole IPv4 packet.
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
        },
        _ => Train { bytes: ip.len() as f64, packet_bytes: ip.len() as f64, flow },
    };
    Some(Parsed { destination, train })
}

/// A number for the flow: FNV-1a over addresses, protocol and ports.
fn flow(addresses: &[u8], protocol: u8, ports: [u8; 4]) -> u64 {
    let all = addresses.iter().chain(std::iter::once(&protocol)).chain(&ports);
    all.fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A TCP packet with 12 bytes of options and so much payload.
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
