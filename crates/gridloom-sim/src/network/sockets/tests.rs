use gridloom_base::Time;

use super::super::two_hosts::two_hosts;
use super::*;
use crate::kernel::KernelEvent;

const SERVER: ProcessId = ProcessId(0);
const CLIENT: ProcessId = ProcessId(1);

#[test]
fn messages_are_delivered_in_order_and_the_close_after_them() {
    let (platform, mut kernel, mut routes) = two_hosts();
    let mut sockets = Sockets::default();
    for (host, name) in [(0, "a"), (1, "b")] {
        let spec = ProcessSpec { function: "f".into(), host: name.into(), arguments: Vec::new() };
        sockets.add(HostId(host), &spec);
    }
    assert_eq!(sockets.listen(SERVER, 7), Ok(7));
    sockets.dial(&mut kernel, &mut routes, &platform, CLIENT, "a", 7).unwrap();
    let dialled = kernel.next();
    let Some(KernelEvent::Due(_, ScheduledEvent::ProcessDialled { host, name, .. })) = dialled else { panic!() };
    assert_eq!(kernel.now(), Time(2_000_000));
    assert_eq!(sockets.dialled(&routes, CLIENT, host, name, 7), Some(Wake::Connected(CLIENT)));
    let peer = sockets.take_connected(CLIENT).unwrap().unwrap();
    for size in [1000, 10] {
        let letter = ProcessMessage { kind: "x".into(), payload: vec![1; size] };
        assert_eq!(sockets.send(&mut kernel, &mut routes, CLIENT, peer, Lane::Bulk, letter), Ok(None));
    }
    sockets.close(&mut kernel, &mut routes, CLIENT, peer);
    sockets.check();
    let mut wakes = Vec::new();
    while let Some(KernelEvent::Ended(ended)) = kernel.next() {
        for action in ended {
            let Some(Purpose::Letter(flow)) = kernel.take_purpose(action) else { panic!() };
            wakes.push(sockets.message_arrived(&mut kernel, flow));
        }
    }
    assert_eq!(wakes[0], [], "the short letter waits for the long one");
    let last =
        [Wake::Incoming(SERVER), Wake::Room(CLIENT, peer), Wake::Incoming(SERVER), Wake::Room(SERVER, PeerId(0))];
    assert_eq!(wakes[1], last);
    let read: Vec<_> = std::iter::from_fn(|| sockets.read(SERVER)).collect();
    assert!(matches!(&read[..], [Incoming::Message { letter, .. }, _, Incoming::Closed { .. }]
        if letter.payload.len() == 1000));
    sockets.check();
}
