//! Messages of processes and processing elements: filters, message bodies, batches of elements, and memory that another process shares.
//! The first byte chooses which.

#![no_main]

use gridloom_net::segment;

#[allow(dead_code, reason = "the writing side writes the seeds only")]
#[path = "../../crates/gridloom-net/src/process/ring.rs"]
mod ring;

use std::sync::Arc;
use std::sync::atomic::Ordering;

use gridloom_base::Time;
use gridloom_channel::{Body, BufferPool};
use gridloom_chare::{Element, Elements, Pe};
use gridloom_process::filter::{FilterChain, FilterSpec, PeerPair, StripeSequencer};
use gridloom_process::parse_message;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Some((kind, bytes)) = bytes.split_first() else { return };
    match kind % 4 {
        0 => filters(bytes),
        1 => {
            if let Ok(message) = parse_message(Body::Borrowed(bytes), &mut BufferPool::default()) {
                assert!(message.payload.len() < bytes.len());
            }
        }
        2 => {
            let mut element = Element::new(Pe(0), Arc::new(Elements::single_site(3)));
            for batch in bytes.chunks(97) {
                if element.receive(Pe(1), batch).is_err() {
                    return;
                }
            }
        }
        _ => shared_memory(bytes),
    }
});

fn filters(bytes: &[u8]) {
    let specs: Vec<FilterSpec> =
        ["compress", "stripe=3", "delay=1ms"].iter().map(|text| text.parse().expect("it is a filter")).collect();
    let mut chain = FilterChain::new(&specs, PeerPair { from: 1, to: 0 });
    let mut order = StripeSequencer::default();
    for payload in bytes.split(|byte| *byte == 0xff) {
        if let Ok((payload, _)) = chain.receive(Time(1), payload.to_vec()) {
            let _ = order.reorder(payload);
        }
    }
}

/// A faulty process writes anything into the words of a ring that its peer reads.
fn shared_memory(bytes: &[u8]) {
    let Ok((memory, _)) = segment::SharedWords::new(ring::RING_WORDS) else { return };
    let memory = Arc::new(memory);
    let mut reader = ring::Reader::new(memory.clone(), 0);
    let mut into = vec![0; 1 << 16];
    for write in bytes.chunks_exact(10) {
        let word = u16::from_le_bytes([write[0], write[1]]);
        // Mostly the head of the ring, where its counters are.
        let word = if word < 0x8000 { usize::from(word) % 64 } else { usize::from(word) % ring::RING_WORDS };
        let value = u64::from_le_bytes(*write[2..].first_chunk().expect("eight bytes"));
        memory.words()[word].store(value, Ordering::Release);
        if reader.read(&mut into).is_err() {
            return;
        }
    }
}
