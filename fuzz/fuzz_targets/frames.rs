//! Control connections: no bytes make the decoder panic, and messages that it accepts are unchanged when written and
//! read again. Both the current protocol version and the oldest supported version are tested.

#![no_main]

use gridloom_channel::frame::{Decoder, Encoder, Kind, parse, parse_data};
use gridloom_channel::{FrameLimits, WireVersion};
use gridloom_core::node::Message;
use gridloom_core::node::version::{VERSIONS, fields_unknown_to};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    for version in [WireVersion::CURRENT, WireVersion::without(fields_unknown_to(VERSIONS.0))] {
        frames(bytes, version);
        message(bytes, version);
        let _ = parse_data(bytes, version);
    }
});

fn frames(bytes: &[u8], version: WireVersion) {
    let (mut decoder, mut rest) = (Decoder::default(), bytes);
    while let Ok(Some((frame, length))) = decoder.next(rest, FrameLimits::CONTROL) {
        match frame.kind {
            Kind::Message => message(frame.body, version),
            Kind::Data => drop(parse_data(frame.body, version)),
            Kind::Hello | Kind::ProcessMessage => {}
        }
        rest = &rest[length..];
    }
}

fn message(body: &[u8], version: WireVersion) {
    let Ok(message) = parse::<Message>(body, version) else { return };
    let (mut encoder, mut written) = (Encoder::default(), Vec::new());
    encoder.set_wire_version(version);
    if encoder.message(Kind::Message, &message, &mut written).is_ok() {
        let (frame, _) =
            Decoder::default().next(&written, FrameLimits::CONTROL).expect("it is a frame").expect("it is whole");
        let again = parse::<Message>(frame.body, version).expect("it was written");
        // Compared as text, since NaN is not equal to itself.
        assert_eq!(format!("{again:?}"), format!("{message:?}"));
    }
}
