//! Control connections: no bytes make the decoder panic, and messages that it takes are written and read again the same.

#![no_main]

use gridloom_channel::Limits;
use gridloom_channel::Dialect;
use gridloom_channel::frame::{Decoder, Encoder, Kind, parse, parse_data};
use gridloom_core::node::Message;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let (mut decoder, mut rest) = (Decoder::default(), bytes);
    while let Ok(Some((frame, length))) = decoder.next(rest, Limits::CONTROL) {
        match frame.kind {
            Kind::Message => message(frame.body),
            Kind::Data => drop(parse_data(frame.body, Dialect::OWN)),
            Kind::Hello | Kind::Letter => {}
        }
        rest = &rest[length..];
    }
    message(bytes);
    let _ = parse_data(bytes, Dialect::OWN);
});

fn message(body: &[u8]) {
    let Ok(message) = parse::<Message>(body, Dialect::OWN) else { return };
    let mut written = Vec::new();
    if Encoder::default().message(Kind::Message, &message, &mut written).is_ok() {
        let (frame, _) =
            Decoder::default().next(&written, Limits::CONTROL).expect("it is a frame").expect("it is whole");
        let again = parse::<Message>(frame.body, Dialect::OWN).expect("it was written");
        // Compared as text: not a number is not equal to itself.
        assert_eq!(format!("{again:?}"), format!("{message:?}"));
    }
}
