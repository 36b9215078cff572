//! The world's contract over real loopback sockets: one test per guarantee (see `node::protocol`).

use std::collections::BTreeSet;
use std::io::Write;
use std::net::{Shutdown, TcpListener};
use std::time::Instant;
use std::{iter, thread};

use crate::transport_support::*;
use gridloom_base::dial::{self, ConnectionError, ConnectionFault};
use gridloom_base::{DatumId, Dtype, Meta, NodeId, TaskError, TaskId};
use gridloom_core::graph::{Task, TaskKind};
use gridloom_core::node::message::{DirectoryToAgent, LinkMessage, MapToClient, Message};
use gridloom_core::node::{Effect, Event, Input, Role, Timer};
use gridloom_keys::{Authority, Role as CertifiedRole, UnixTime};
use gridloom_net::driver::NetConfig;
use gridloom_net::identity::Keys;
use gridloom_net::payload::Payload;
use gridloom_net::transport::handshake::{Handshake, Hello, Purpose, Verdict, run_blocking};

#[test]
fn time_does_not_go_back_and_start_comes_first() {
    let node = server();
    let (mut last, first) = node.next();
    assert_eq!(first, Input::Start);
    for timer in 0..100 {
        node.perform([Effect::SetTimer { timer: Timer::Numbered(timer), at: last }]);
        let (now, input) = node.next();
        assert_eq!(input, Input::Timer(Timer::Numbered(timer)));
        assert!(now >= last);
        last = now;
    }
}

#[test]
fn messages_and_small_data_arrive_in_order_and_once() {
    let (a, b) = (server(), server());
    a.dial(&b);
    let rounds = 2000u64;
    let mut effects = Vec::new();
    for serial in 0..rounds {
        let datum = DatumId { client: a.id(), serial };
        a.node.store().put(datum, Meta::array(Dtype::Uint8, &[100]), Payload::copied(&[serial as u8; 100]));
        effects.push(Effect::Send { to: b.id(), message: LinkMessage::Pong { token: serial }.into() });
        effects.push(Effect::SendDatum { to: b.id(), datum });
    }
    a.perform(effects);
    for serial in 0..rounds {
        let (_, message) = b.next();
        assert_eq!(message, Input::Received { from: a.id(), message: LinkMessage::Pong { token: serial }.into() });
        let (_, arrival) = b.next();
        assert!(matches!(arrival, Input::DatumArrived { datum, .. } if datum.serial == serial), "{arrival:?}");
    }
    let last = DatumId { client: a.id(), serial: rounds - 1 };
    assert_eq!(b.node.store().get(&last).unwrap().1.bytes(), [(rounds - 1) as u8; 100]);
}

#[test]
fn messages_longer_than_any_buffer_arrive() {
    let (a, b) = (server(), client());
    b.dial(&a);
    let why = "x".repeat(20 << 20);
    let group = gridloom_base::GroupId { client: a.id(), serial: 1 };
    let message: Message = MapToClient::GroupNotMapped { group, round: 0, why }.into();
    a.perform((0..3).map(|_| Effect::Send { to: b.id(), message: message.clone() }));
    for _ in 0..3 {
        let got = b.expect("the message", |i| match i {
            Input::Received { message, .. } => Some(message.clone()),
            _ => None,
        });
        assert!(got == message);
    }
}

#[test]
fn a_dial_ends_once_also_when_both_dial() {
    for _ in 0..20 {
        let (a, b) = (server(), server());
        let (to_a, to_b) = (a.node.address().to_string(), b.node.address().to_string());
        thread::scope(|scope| {
            scope.spawn(|| a.perform([Effect::Dial { address: to_b.clone() }, Effect::Dial { address: to_b }]));
            scope.spawn(|| b.perform([Effect::Dial { address: to_a }]));
        });
        let up = |i: &Input| matches!(i, Input::PeerUp { .. }).then_some(());
        a.expect("PeerUp", up);
        b.expect("PeerUp", up);
        a.say(b.id(), 7);
        b.say(a.id(), 8);
        // After that, only the message arrives: no second PeerUp, no loss, and no failed dial except one that began
        // when the other's connection was up.
        for (node, from, token) in [(&b, &a, 7), (&a, &b, 8)] {
            let is_late = |i: &Input| matches!(i, Input::DialFailed { fault: ConnectionFault::ConnectedAlready, .. });
            let input = iter::repeat_with(|| node.next().1).find(|i| !is_late(i));
            assert_eq!(input, Some(Input::Received { from: from.id(), message: LinkMessage::Pong { token }.into() }));
        }
    }
}

#[test]
fn a_failed_dial_is_reported() {
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let a = server();
    let own = a.node.address().to_string();
    for (address, part, expected) in [
        (free, "refused", ConnectionFault::NotListening),
        (own, "itself", ConnectionFault::Refused),
        ("nowhere.invalid:1".into(), "resolved", ConnectionFault::Unresolved),
    ] {
        a.perform([Effect::Dial { address: address.clone() }]);
        let (at, fault, why) = a.expect("DialFailed", |i| match i {
            Input::DialFailed { address, fault, why, .. } => Some((address.clone(), *fault, why.clone())),
            _ => None,
        });
        assert_eq!((at, fault), (address, expected));
        assert!(why.contains(part), "{why}");
    }
}

#[test]
fn whoever_speaks_otherwise_is_no_node() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let other = "SSH-2.0-OpenSSH_9.2\r\nand more than a frame's head holds";
    for (said, kind, fault) in
        [("", dial::CLOSED, ConnectionFault::Closed), (other, dial::NOT_A_NODE, ConnectionFault::NotANode)]
    {
        let a = server();
        a.perform([Effect::Dial { address: address.clone() }]);
        let (mut stream, _) = listener.accept().unwrap();
        stream.write_all(said.as_bytes()).unwrap();
        // Unread data would reset the connection before the refusal arrives.
        stream.shutdown(Shutdown::Write).unwrap();
        let error = a.expect_failed_dial();
        assert!(error.fault == fault && error.why.starts_with(kind), "{error:?}");
    }
}

#[test]
fn a_dial_that_reaches_who_is_connected_already_fails() {
    let (a, b) = (server(), server());
    let address = b.node.address().to_string();
    a.perform([Effect::Dial { address: address.clone() }]);
    a.expect("PeerUp", |i| matches!(i, Input::PeerUp { .. }).then_some(()));
    let also_there = address.replace("127.0.0.1", "localhost");
    a.perform([Effect::Dial { address: also_there.clone() }]);
    let failed = a.expect("DialFailed", |i| match i {
        Input::DialFailed { address, why, connected, .. } => Some((address.clone(), why.clone(), *connected)),
        _ => None,
    });
    assert_eq!(failed, (also_there, "'Server' answers there, and is connected already".to_string(), Some(b.id())));
}

#[test]
fn of_dials_to_one_node_by_several_addresses_each_ends() {
    for _ in 0..20 {
        // A node that cannot be dialled itself, like a client.
        let (a, b) = (start(Role::Client, NetConfig::new(keys())), server());
        let address = b.node.address().to_string();
        let named = |host: &str| address.replace("127.0.0.1", host);
        let addresses = BTreeSet::from([address.clone(), named("localhost"), named("LOCALHOST")]);
        a.perform(addresses.iter().map(|address| Effect::Dial { address: address.clone() }));
        let (mut up, mut failed) = (Vec::new(), Vec::new());
        while up.len() + failed.len() < addresses.len() {
            match a.next().1 {
                Input::PeerUp { address, .. } => up.push(address),
                Input::DialFailed { address, connected, .. } => {
                    assert_eq!(connected, Some(b.id()));
                    failed.push(address);
                }
                Input::Start => {}
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(up.len(), 1);
        assert_eq!(up.into_iter().chain(failed).collect::<BTreeSet<_>>(), addresses);
    }
}

/// Returns why a dial to this node fails.
fn why_refused(dialler: &TestNode, to: &TestNode) -> ConnectionError {
    dialler.perform([Effect::Dial { address: to.node.address().to_string() }]);
    dialler.expect_failed_dial()
}

#[test]
fn another_authority_and_missing_keys_are_refused_in_words() {
    let other = Authority::new("tests", UnixTime::now()).unwrap();
    for shared_memory in [true, false] {
        let agent = start(Role::Agent, NetConfig { shared_memory, ..listening() });
        let of_other = NetConfig { shared_memory, ..NetConfig::new(keys_of(&other, CertifiedRole::Client)) };
        let stranger = start_as_is(Role::Client, of_other);
        let ConnectionError { fault, why } = why_refused(&stranger, &agent);
        assert!(why.contains("the peer's certificate is of the grid 'tests' (authority "), "{why}");
        assert_eq!(fault, ConnectionFault::WrongGrid);
        let without = NetConfig { shared_memory, ..NetConfig::new(Keys::missing("there are no keys in /here")) };
        let error = why_refused(&start_as_is(Role::Client, without), &agent);
        let missing = ConnectionError::new(ConnectionFault::NoCertificate, "refused: there are no keys in /here");
        assert_eq!(error, missing);
        agent.still_serves();
    }
    let listens = NetConfig { keys: Keys::missing("there are no keys"), ..listening() };
    let error = gridloom_net::driver::NetNode::start_with(listens, |_, _| unreachable!()).err().unwrap();
    assert_eq!(error.to_string(), "a node cannot listen without keys: there are no keys");
}

#[test]
fn what_is_sent_to_who_is_not_up_vanishes() {
    let (a, b) = (server(), client());
    a.perform([
        Effect::Send { to: NodeId(5), message: DirectoryToAgent::Subscribe.into() },
        Effect::SendDatum { to: NodeId(5), datum: DatumId { client: a.id(), serial: 1 } },
        Effect::SendProbe { to: a.id(), size_bytes: 1 << 20 },
        Effect::Disconnect { peer: NodeId(5) },
    ]);
    b.dial(&a);
    a.say(b.id(), 1);
    b.expect("Pong", |i| matches!(i, Input::Received { .. }).then_some(()));
}

#[test]
fn hanging_up_is_a_loss_for_the_other_only_and_comes_last() {
    let (a, b) = (server(), client());
    b.dial(&a);
    b.perform([
        Effect::Send { to: a.id(), message: LinkMessage::Pong { token: 3 }.into() },
        Effect::Disconnect { peer: a.id() },
        Effect::Send { to: a.id(), message: LinkMessage::Pong { token: 4 }.into() },
    ]);
    assert_eq!(a.next().1, Input::Received { from: b.id(), message: LinkMessage::Pong { token: 3 }.into() });
    assert!(matches!(a.next().1, Input::PeerLost { peer, .. } if peer == b.id()));
    b.dial(&a);
    b.say(a.id(), 5);
    assert_eq!(a.next().1, Input::Received { from: b.id(), message: LinkMessage::Pong { token: 5 }.into() });
}

#[test]
fn a_node_that_ends_is_lost_to_its_peers() {
    let (a, b) = (server(), server());
    a.dial(&b);
    let id = b.id();
    drop(b);
    a.expect_lost(id);
}

#[test]
fn a_task_ends_once_also_where_none_can_run() {
    let node = server();
    let id = TaskId { client: NodeId(1), serial: 1 };
    let task = Task {
        id,
        kind: TaskKind::call("m/f", 0),
        args: vec![],
        outputs: vec![],
        work_flops: None,
        options: Default::default(),
    };
    node.perform([Effect::StartTask { task: task.into() }, Effect::StopTask { task: id }]);
    let outcome = node.expect("TaskEnded", |i| match i {
        Input::TaskEnded { outcome, .. } => Some(outcome.clone()),
        _ => None,
    });
    assert!(matches!(outcome, Err(TaskError::CannotRun { .. })));
}

#[test]
fn timers_fire_once_in_time_and_not_when_cancelled() {
    let node = server();
    let (start, _) = node.next();
    let set = |timer, ms: u64| Effect::SetTimer { timer: Timer::Numbered(timer), at: start + ms * 1_000_000 };
    node.perform([
        set(1, 30),
        set(2, 10),
        set(3, 15),
        set(4, 900_000),
        Effect::CancelTimer { timer: Timer::Numbered(3) },
        set(4, 20),
    ]);
    for (timer, ms) in [(2, 10), (4, 20), (1, 30)] {
        let (now, input) = node.next();
        assert_eq!(input, Input::Timer(Timer::Numbered(timer)));
        assert!(now >= start + ms * 1_000_000);
    }
}

#[test]
fn a_command_that_sets_a_timer_wakes_the_loop() {
    let node = client();
    let (start, _) = node.next();
    // The background thread is in epoll without any timer: only a wake-up makes it check again.
    node.perform([Effect::SetTimer { timer: Timer::Numbered(1), at: start + 5_000_000 }]);
    assert_eq!(node.next().1, Input::Timer(Timer::Numbered(1)));
}

#[test]
fn speed_is_measured() {
    let node = server();
    node.perform([Effect::MeasureSpeed]);
    let flops = node.expect("SpeedMeasured", |i| match i {
        Input::SpeedMeasured { flops } => Some(*flops),
        _ => None,
    });
    assert!(flops > 1e6, "{flops}");
}

#[test]
fn every_waiter_gets_its_event() {
    let (server, client) = (server(), client());
    client.dial(&server);
    thread::scope(|scope| {
        for waiter in 0..4u64 {
            let (server, client) = (&server, &client);
            scope.spawn(move || {
                for round in 0..200 {
                    let token = waiter * 1000 + round;
                    let ping = Effect::Send { to: server.id(), message: LinkMessage::Ping { token }.into() };
                    let wanted = Event::Log(pong(token));
                    // `perform` is not atomic between threads: another thread's command may carry this effect.
                    client.perform([ping]);
                    let found = client.node.wait(Some(Instant::now() + PATIENCE), |events| {
                        events.iter().position(|event| *event == wanted).and_then(|at| events.remove(at))
                    });
                    assert_eq!(found, Some(wanted));
                }
            });
        }
    });
}

#[test]
fn a_deadline_and_the_end_of_the_node_end_a_wait() {
    let node = client();
    assert_eq!(node.node.wait(Some(Instant::now()), |_| None::<()>), None);
    thread::scope(|scope| {
        let waiter = scope.spawn(|| node.node.wait(None, |_| None::<()>));
        node.perform([Effect::Exit { why: "enough".into() }]);
        assert_eq!(waiter.join().unwrap(), None);
    });
}

#[test]
fn listening_on_all_addresses_needs_one_that_others_can_dial() {
    let config = || NetConfig { listen: Some("0.0.0.0:0".parse().unwrap()), ..NetConfig::new(keys()) };
    let make = |config| gridloom_net::driver::NetNode::start_with(config, |_, _| unreachable!());
    let error = make(config()).err().unwrap().to_string();
    assert!(error.contains("--advertise"), "{error}");
}

#[test]
fn an_abstract_name_that_another_process_has_bound_is_of_no_use_to_it() {
    use std::os::linux::net::SocketAddrExt;
    use std::os::unix::net::{SocketAddr, UnixListener};
    // A port that is free now and likely to stay free for a moment.
    let address = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let name = SocketAddr::from_abstract_name(format!("gridloom-{address}")).unwrap();
    let squatter = UnixListener::bind_addr(&name).unwrap();
    squatter.set_nonblocking(true).unwrap();
    let server = start(Role::Server, NetConfig { listen: Some(address), ..listening() });
    server.still_serves();
    assert_eq!(squatter.accept().unwrap_err().kind(), std::io::ErrorKind::WouldBlock, "it can relay no connection");
}

/// A client that knows the ids of another client's data cannot replace them.
#[test]
fn a_client_sends_its_own_data_alone() {
    for (shared_memory, size_bytes) in [(true, 100), (false, 3 << 20), (true, 3 << 20)] {
        let victim = client();
        let server = start(Role::Server, NetConfig { shared_memory, ..listening() });
        let insider = start(Role::Client, NetConfig { shared_memory, ..NetConfig::new(keys()) });
        insider.dial(&server);
        let (own, other) = (insider.put(1, size_bytes), DatumId { client: victim.id(), serial: 1 });
        let bytes = Payload::copied(&pattern(2, size_bytes));
        insider.node.store().put(other, Meta::array(Dtype::Uint8, &[size_bytes]), bytes);
        insider.perform([own, other].map(|datum| Effect::SendDatum { to: server.id(), datum }));
        assert!(server.expect_datum(own).bytes() == pattern(1, size_bytes));
        let why = server.expect_lost(insider.id());
        assert!(why.contains("another client's") && server.node.store().get(&other).is_none(), "{why}");
    }
}

#[test]
fn a_certificate_allows_its_role_and_to_be_a_client() {
    for shared_memory in [true, false] {
        let of = |role| NetConfig { shared_memory, ..NetConfig::new(keys_of(authority(), role)) };
        let server = start(Role::Server, NetConfig { shared_memory, ..listening() });
        for (number, role) in (1..).zip(CertifiedRole::NODES) {
            let client = start_as_is(Role::Client, of(role));
            client.dial(&server);
            // Large data in both directions: over TCP, and over the local sockets of both.
            let (there, back) = (client.put(1, 3 << 20), server.put(number, 3 << 20));
            client.perform([Effect::SendDatum { to: server.id(), datum: there }]);
            assert!(server.expect_datum(there).bytes() == pattern(1, 3 << 20));
            server.perform([Effect::SendDatum { to: client.id(), datum: back }]);
            assert!(client.expect_datum(back).bytes() == pattern(number, 3 << 20));
        }
        for role in [CertifiedRole::Client, CertifiedRole::Administrator, CertifiedRole::Agent] {
            let error = why_refused(&start_as_is(Role::Server, of(role)), &server);
            assert!(error.why.contains("does not allow it to be a server"), "{error}");
            assert_eq!(error.fault, ConnectionFault::WrongRole);
        }
        for role in [Role::Client, Role::Server] {
            let error = why_refused(&start_as_is(role, of(CertifiedRole::Relay)), &server);
            assert!(error.why.contains("certificate is for another role"), "{error}");
            assert_eq!(error.fault, ConnectionFault::WrongRole);
        }
        let listens = NetConfig { keys: keys_of(authority(), CertifiedRole::Client), ..listening() };
        let false_server = start_as_is(Role::Server, listens);
        let error = why_refused(&client(), &false_server);
        assert!(error.why.contains("does not allow it to be a server"), "{error}");
        assert_eq!(error.fault, ConnectionFault::WrongRole);
    }
}

#[test]
fn a_malicious_client_cannot_take_the_identifier_of_another_node_nor_the_role_of_the_agent() {
    let server = start(Role::Server, listening());
    let victim = client();
    victim.dial(&server);
    let own = Hello { node: victim.id(), ..hello(Purpose::Control, 0) };
    let (handshake, first) = Handshake::dial(raw_credentials(), own).unwrap();
    let done = run_blocking(&mut connect(&server), handshake, Some(first), |_| Ok(Verdict::Welcome));
    let error = done.unwrap_err().to_string();
    assert!(error.contains("somebody is using the identifier of another node"), "{error}");

    let ConnectionError { fault, why } = why_refused(&start(Role::Agent, NetConfig::new(keys())), &server);
    assert!(fault == ConnectionFault::WrongRole && why.contains("agents never dial other nodes"), "{why}");
    server.still_serves();
}
