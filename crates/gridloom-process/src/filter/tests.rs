//! The contract of all filters, alone and in chains.

use gridloom_base::SplitMix64;
use gridloom_base::time::MILLISECOND_NS;

use super::*;

const PAIR: PeerPair = PeerPair { from: 0, to: 1 };

fn spec(text: &str) -> FilterSpec {
    text.parse().unwrap()
}

/// Returns each filter alone, all filters, and all in reverse order.
fn chains() -> Vec<Vec<FilterSpec>> {
    let all: Vec<FilterSpec> = FILTERS.iter().map(|kind| spec(kind.example)).collect();
    let opposite = all.iter().rev().cloned().collect();
    all.iter().map(|one| vec![one.clone()]).chain([all.clone(), opposite]).collect()
}

/// Returns zeros, random bytes, or bytes of low entropy, of various lengths.
fn payload(random: &mut SplitMix64) -> Vec<u8> {
    let length = [0, 1, 40, 1023, 1024, 5000, 70_000][random.below(7) as usize];
    let width = [0, 8, 256][random.below(3) as usize];
    (0..length).map(|_| if width == 0 { 0 } else { random.below(width) as u8 }).collect()
}

/// Sends messages at random times and receives them a while later. Returns each message's sending and due times.
fn through(specs: &[FilterSpec], seed: u64) -> Vec<(Time, Time)> {
    let mut random = SplitMix64::new(seed);
    let (mut sender, mut receiver) = (FilterChain::new(specs, PAIR), FilterChain::new(specs, PAIR));
    let mut now = Time(1_000_000 * MILLISECOND_NS);
    let mut times = Vec::new();
    for _ in 0..200 {
        now = now + random.below(5 * MILLISECOND_NS);
        let bytes = payload(&mut random);
        let (sent, from) = sender.send(now, bytes.clone());
        let came = now.max(from) + random.below(MILLISECOND_NS);
        let (received, due) = receiver.receive(came, sent).unwrap();
        assert!(received == bytes, "{specs:?}: bytes changed");
        assert!(due <= receiver.closed(came) && came <= receiver.closed(came), "{specs:?}: a close before a message");
        times.push((now, due));
    }
    times
}

#[test]
fn letters_come_whole_in_order_and_never_early() {
    for specs in chains() {
        for seed in 0..20 {
            let times = through(&specs, seed);
            assert!(times.iter().all(|(sent, due)| due >= sent), "{specs:?}, seed {seed}: early");
            assert!(times.is_sorted_by_key(|(_, due)| *due), "{specs:?}, seed {seed}: out of order");
            assert_eq!(times, through(&specs, seed), "{specs:?}, seed {seed}: not the same again");
        }
    }
}

#[test]
fn a_letter_of_another_chain_is_refused_or_changed_but_takes_no_more() {
    for specs in chains() {
        for length in 0..200 {
            let mut chain = FilterChain::new(&specs, PAIR);
            let is_short = length < 8;
            let outcome = chain.receive(Time(5), vec![1; length]);
            assert!(!is_short || matches!(outcome, Err(FilterError::Truncated { .. })), "{specs:?}: {outcome:?}");
            assert!(outcome.is_err() || outcome.unwrap().0.len() <= 255 * length, "{specs:?}");
        }
    }
}

#[test]
fn times_add_up() {
    let due = |specs: &[&str], came: u64| {
        let specs: Vec<FilterSpec> = specs.iter().map(|text| spec(text)).collect();
        let (mut sender, mut receiver) = (FilterChain::new(&specs, PAIR), FilterChain::new(&specs, PAIR));
        let (sent, _) = sender.send(Time(MILLISECOND_NS), vec![0; 2000]);
        receiver.receive(Time(came * MILLISECOND_NS), sent).unwrap().1.0 as f64 / MILLISECOND_NS as f64
    };
    assert_eq!(due(&["delay=16ms"], 2), 17.0, "from its sending");
    assert_eq!(due(&["delay=16ms"], 0), 16.0, "a clock that is ahead holds nothing longer");
    assert_eq!(due(&["rate=2MBps"], 1), 2.0);
    assert_eq!(due(&["rate=2MBps", "delay=16ms", "delay=1ms"], 1), 19.0);
    let mixed = due(&["delay=16ms", "jitter=2ms"], 1);
    assert!((17.0..=19.0).contains(&mixed) && mixed != due(&["delay=16ms", "jitter=2ms:7"], 1), "{mixed}");
    assert!(due(&["compress", "rate=20kBps"], 1) < due(&["rate=20kBps", "compress"], 1), "in their order");
}

#[test]
fn filters_are_known_by_name() {
    for kind in FILTERS {
        let written = spec(kind.example);
        assert_eq!(written.to_string(), kind.example);
        assert_eq!(FilterSpec::try_from(String::from(written.clone())), Ok(written));
    }
    assert_eq!(spec(" delay= 16ms\n").to_string(), "delay=16ms");
    for (text, why) in [
        ("jitter=2ms :7", "filter jitter: '2ms :7' has blanks: write it without them, such as jitter=2ms"),
        ("fast", "filter 'fast' is unknown; filters are compress, rate, stripe, delay, jitter"),
        ("delay", "filter delay needs a value, such as delay=16ms"),
        ("compress=9", "filter compress takes no value: write compress"),
        ("delay=2m", "delay=2m: expected 0s to 60s"),
        ("jitter=2ms:x", "jitter=2ms:x: seed 'x' is not a number, such as in jitter=2ms:7"),
        ("rate=0Bps", "rate=0Bps: expected 100 to 1e12 bytes per second, such as 10MBps"),
    ] {
        assert_eq!(text.parse::<FilterSpec>(), Err(why.to_string()));
    }
}
