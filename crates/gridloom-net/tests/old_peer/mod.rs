//! A peer of another version, on a raw connection. Its handshake is implemented separately here, so that it does not
//! change with that of the nodes.

use std::io::{Read, Write};
use std::net::TcpStream;

use ed25519_compact::{KeyPair, PublicKey, Seed, Signature};
use gridloom_channel::tags::{TAG_BYTES, Tagger};
use gridloom_channel::{Dialect, Key, frame};
use gridloom_net::transport::handshake::Hello;

use super::transport_support::{PATIENCE, raw_frame};

/// The kind of frames of a handshake.
const HELLO: u64 = 3;
/// Prefix of a hello's body: tag, magic number, lowest and highest version. The node's description follows.
const PREFIX_BYTES: usize = 9;

pub struct OldPeer {
    socket: TcpStream,
    /// Number of the next frame, and the tagger.
    sends: (u32, Tagger),
    receives: (u32, Tagger),
}

impl OldPeer {
    /// Dials as the node whose key has this seed; `hello` is the body of its first frame.
    pub fn dial(address: &str, secret: &[u8], seed: [u8; 32], version: u16, hello: &[u8]) -> OldPeer {
        let mut socket = TcpStream::connect(address).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        socket.write_all(&raw_frame(0, HELLO, hello)).unwrap();
        let answer = shaken(&mut socket, 0);
        assert_eq!((answer[0], &answer[1..5]), (1, &b"GRLM"[..]), "{}", String::from_utf8_lossy(&answer));
        let (low, high) = (u16::from_le_bytes([answer[5], answer[6]]), u16::from_le_bytes([answer[7], answer[8]]));
        assert!((low..=high).contains(&version), "{version} is not in {low} to {high}");
        // Fields after the known ones are ignored.
        let acceptor: Hello = frame::parse(&answer[PREFIX_BYTES..], Dialect::OWN).unwrap();
        let own: Hello = frame::parse(&hello[PREFIX_BYTES..], Dialect::OWN).unwrap();
        let secret = blake3::derive_key("gridloom 2026 grid secret v1", secret);
        let prove = |side: &[u8]| prove(&secret, &[side, hello, &answer]);
        let proof = shaken(&mut socket, 1);
        let due = prove(b"gridloom acceptor");
        assert_eq!((proof[0], &proof[1..33]), (2, &due[..]));
        let signature = Signature::from_slice(&proof[33..]).unwrap();
        PublicKey::new(acceptor.key).verify(due, &signature).unwrap();
        let key = KeyPair::from_seed(Seed::new(seed));
        assert_eq!(*key.pk, own.key, "the record was made with another key");
        let own_proof = prove(b"gridloom dialler");
        let signed = key.sk.sign(own_proof, None);
        socket.write_all(&raw_frame(1, HELLO, &[&[2][..], &own_proof, &*signed].concat())).unwrap();
        // The node with the larger identifier decides.
        let (mut sent, mut received) = (2, 2);
        if own.node > acceptor.node {
            socket.write_all(&raw_frame(2, HELLO, &[3, 0])).unwrap();
            sent += 1;
        } else {
            assert_eq!(shaken(&mut socket, 2), [3, 0]);
            received += 1;
        }
        let tagger = |side: &[u8]| Tagger::new(Key(*prove(side).first_chunk().unwrap()));
        let sends = (sent, tagger(b"gridloom key of what the dialler sends"));
        OldPeer { socket, sends, receives: (received, tagger(b"gridloom key of what the acceptor sends")) }
    }

    pub fn send(&mut self, kind: u64, body: &[u8]) {
        let (number, tagger) = &mut self.sends;
        let mut frame = raw_frame(*number, kind, body);
        let tag = tagger.tag(&[&frame]);
        frame.extend_from_slice(&tag);
        *number += 1;
        self.socket.write_all(&frame).unwrap();
    }

    /// Returns all bytes received until the node closes the connection.
    pub fn rest(&mut self) -> Vec<u8> {
        let mut bytes = Vec::new();
        self.socket.read_to_end(&mut bytes).unwrap();
        bytes
    }

    /// Returns kind and body of the next frame.
    pub fn receive(&mut self) -> (u64, Vec<u8>) {
        let (number, tagger) = &mut self.receives;
        let (kind, body) = read(&mut self.socket, *number);
        let mut tag = [0; TAG_BYTES];
        self.socket.read_exact(&mut tag).unwrap();
        assert!(tagger.is_tag(&[&raw_frame(*number, kind, &body)], &tag));
        *number += 1;
        (kind, body)
    }
}

/// Returns the body of the next handshake frame.
fn shaken(socket: &mut TcpStream, number: u32) -> Vec<u8> {
    let (kind, body) = read(socket, number);
    assert_eq!(kind, HELLO);
    body
}

fn read(socket: &mut TcpStream, number: u32) -> (u64, Vec<u8>) {
    let mut header = [0; 16];
    socket.read_exact(&mut header).unwrap();
    let length = u32::from_le_bytes(*header.first_chunk().unwrap());
    let kind = u64::from_le_bytes(*header[8..].first_chunk().unwrap());
    let mut body = vec![0; length as usize];
    socket.read_exact(&mut body).unwrap();
    assert_eq!(header[4..8], number.to_le_bytes());
    (kind, body)
}

fn prove(secret: &[u8; 32], parts: &[&[u8]]) -> [u8; 32] {
    let mut hasher = blake3::Hasher::new_keyed(secret);
    for part in parts {
        hasher.update(&(part.len() as u64).to_le_bytes());
        hasher.update(part);
    }
    *hasher.finalize().as_bytes()
}
