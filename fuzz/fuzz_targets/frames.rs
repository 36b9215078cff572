//! Control connections: no bytes make the decoder panic, and messages that it accepts are unchanged when written and
//! read again. Tested
//! with the current protocol version, as between nodes, and with the oldest supported version, as with an old peer.

#![no_main]

use gridloom_channel::frame::{Decoder, Encoder, Kind, parse, parse_data};
use gridloom_channel::{Dialect, Limits};
use gridloom_core::node::Message;
use gridloom_core::node::version::{VERSIONS, unknown_to};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    for dialect in [Dialect::OWN, Dialect::without(unknown_to(VERSIONS.0))] {
        frames(bytes, dialect);
        message(bytes, dialect);
        let _ = parse_data(bytes, dialect);
    }
});

fn frames(bytes: &[u8], dialect: Dialect) {
    let (mut decoder, mut rest) = (Decoder::default(), bytes);
    while let Ok(Some((frame, length))) = decoder.next(rest, Limits::CONTROL) {
        match frame.kind {
            Kind::Message => message(frame.body, dialect),
            Kind::Data => drop(parse_data(frame.body, dialect)),
            Kind::Hello | Kind::Letter => {}
        }
        rest = &rest[length..];
    }
}

fn message(body: &[u8], dialect: Dialect) {
    let Ok(message) = parse::<Message>(body, dialect) else { return };
    let (mut encoder, mut written) = (Encoder::default(), Vec::new());
    encoder.speak(dialect);
    if encoder.message(Kind::Message, &message, &mut written).is_ok() {
        let (frame, _) =
            Decoder::default().next(&written, Limits::CONTROL).expect("it is a frame").expect("it is whole");
        let again = parse::<Message>(frame.body, dialect).expect("it was written");
        // Compared as text, since NaN is not equal to itself.
        assert_eq!(format!("{again:?}"), format!("{message:?}"));
    }
}
