//! Configures interfaces and addresses through rtnetlink: four requests, encoded here so that no `ip` program is needed.
//!
//! Each function acts in the network namespace of the calling thread. Source: rtnetlink(7), `linux/if_link.h`,
//! `linux/veth.h`.

use std::io;
use std::net::Ipv4Addr;
use std::os::fd::{AsRawFd, BorrowedFd};

use super::sys;

/// A pair of interfaces joined by a virtual cable, one end here, the other in another namespace.
pub struct VethPair<'a> {
    /// Name and index of the end here.
    pub here: (&'a str, u32),
    /// Name and index of the end there.
    pub there: (&'a str, u32),
    /// The namespace of the other end.
    pub namespace: BorrowedFd<'a>,
    /// Hardware address of the other end.
    pub address: [u8; 6],
    /// Largest IP packet.
    pub mtu: u32,
    /// Maximum number of packets that the other end may send as one.
    pub segments_max: u32,
    /// Maximum number of bytes that the other end may send as one.
    pub segments_bytes_max: u32,
}

/// Creates the pair.
///
/// # Errors
/// If the kernel refuses.
pub fn add_veth(pair: &VethPair<'_>) -> io::Result<()> {
    let mut request = Request::new(RTM_NEWLINK, NLM_F_CREATE | NLM_F_EXCL);
    request.interface(pair.here.1, 0, 0);
    request.text(IFLA_IFNAME, pair.here.0);
    request.number(IFLA_MTU, pair.mtu);
    request.nested(IFLA_LINKINFO, |request| {
        request.text(IFLA_INFO_KIND, "veth");
        request.nested(IFLA_INFO_DATA, |request| {
            request.nested(VETH_INFO_PEER, |request| {
                request.interface(pair.there.1, 0, 0);
                request.text(IFLA_IFNAME, pair.there.0);
                request.attribute(IFLA_ADDRESS, &pair.address);
                request.number(IFLA_MTU, pair.mtu);
                request.number(IFLA_GSO_MAX_SEGS, pair.segments_max);
                request.number(IFLA_GSO_MAX_SIZE, pair.segments_bytes_max);
                request.number(IFLA_NET_NS_FD, pair.namespace.as_raw_fd() as u32);
            });
        });
    });
    request.send()
}

/// Switches an interface on. Without `resolve` it sends to all addresses without resolving them.
///
/// # Errors
/// If there is no interface with this index.
pub fn set_up(index: u32, resolve: bool) -> io::Result<()> {
    let mut request = Request::new(RTM_NEWLINK, 0);
    let flags = IFF_UP | if resolve { 0 } else { IFF_NOARP };
    request.interface(index, flags, flags);
    request.send()
}

/// Assigns an address in a network to an interface.
///
/// # Errors
/// If there is no interface with this index.
pub fn add_address(index: u32, address: Ipv4Addr, prefix: u8) -> io::Result<()> {
    let mut request = Request::new(RTM_NEWADDR, NLM_F_CREATE | NLM_F_EXCL);
    request.bytes.extend([AF_INET, prefix, 0, 0]);
    request.bytes.extend(index.to_ne_bytes());
    request.attribute(IFA_LOCAL, &address.octets());
    request.attribute(IFA_ADDRESS, &address.octets());
    request.send()
}

struct Request {
    bytes: Vec<u8>,
}

impl Request {
    fn new(kind: u16, flags: u16) -> Request {
        let mut bytes = vec![0; HEADER_BYTES];
        bytes[4..6].copy_from_slice(&kind.to_ne_bytes());
        bytes[6..8].copy_from_slice(&(flags | NLM_F_REQUEST | NLM_F_ACK).to_ne_bytes());
        Request { bytes }
    }

    /// `struct ifinfomsg`.
    fn interface(&mut self, index: u32, flags: u32, change: u32) {
        self.bytes.extend([0; 4]);
        for word in [index, flags, change] {
            self.bytes.extend(word.to_ne_bytes());
        }
    }

    fn attribute(&mut self, kind: u16, value: &[u8]) {
        let length = (ATTRIBUTE_BYTES + value.len()) as u16;
        self.bytes.extend(length.to_ne_bytes());
        self.bytes.extend(kind.to_ne_bytes());
        self.bytes.extend(value);
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }

    fn text(&mut self, kind: u16, value: &str) {
        self.attribute(kind, &[value.as_bytes(), &[0]].concat());
    }

    fn number(&mut self, kind: u16, value: u32) {
        self.attribute(kind, &value.to_ne_bytes());
    }

    fn nested(&mut self, kind: u16, fill: impl FnOnce(&mut Request)) {
        let start = self.bytes.len();
        self.attribute(kind, &[]);
        fill(self);
        let length = (self.bytes.len() - start) as u16;
        self.bytes[start..start + 2].copy_from_slice(&length.to_ne_bytes());
    }

    fn send(mut self) -> io::Result<()> {
        let length = self.bytes.len() as u32;
        self.bytes[..4].copy_from_slice(&length.to_ne_bytes());
        let socket = sys::netlink_socket()?;
        rustix::io::write(&socket, &self.bytes)?;
        let mut answer = [0; 4096];
        let length = rustix::io::read(&socket, &mut answer)?;
        // The reply is an acknowledgement: a header, then the negative error or 0.
        let code = answer.get(HEADER_BYTES..HEADER_BYTES + 4).filter(|_| length >= HEADER_BYTES + 4);
        let code = code.map(|code| i32::from_ne_bytes(code.try_into().expect("four bytes")));
        match code {
            Some(0) => Ok(()),
            Some(code) => Err(io::Error::from_raw_os_error(-code)),
            None => Err(io::Error::other("the kernel's answer is too short")),
        }
    }
}

const HEADER_BYTES: usize = 16;
const ATTRIBUTE_BYTES: usize = 4;
const RTM_NEWLINK: u16 = 16;
const RTM_NEWADDR: u16 = 20;
const NLM_F_REQUEST: u16 = 1;
const NLM_F_ACK: u16 = 4;
const NLM_F_EXCL: u16 = 0x200;
const NLM_F_CREATE: u16 = 0x400;
const IFLA_ADDRESS: u16 = 1;
const IFLA_IFNAME: u16 = 3;
const IFLA_MTU: u16 = 4;
const IFLA_LINKINFO: u16 = 18;
const IFLA_NET_NS_FD: u16 = 28;
const IFLA_GSO_MAX_SEGS: u16 = 40;
const IFLA_GSO_MAX_SIZE: u16 = 41;
const IFLA_INFO_KIND: u16 = 1;
const IFLA_INFO_DATA: u16 = 2;
const VETH_INFO_PEER: u16 = 1;
const IFA_ADDRESS: u16 = 1;
const IFA_LOCAL: u16 = 2;
const AF_INET: u8 = 2;
const IFF_UP: u32 = 1;
const IFF_NOARP: u32 = 0x80;
