//! Nodes that others cannot dial: connections and large data pass through a relay, and directly wherever that works.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crate::transport_support::*;
use gridloom_base::NodeId;
use gridloom_core::node::{Effect, Input, LogLine, Role};
use gridloom_keys::{
    Authority, Grant, Identity, Memberships, Revocation, Revocations, Revoked, Role as CertifiedRole, UnixTime,
};
use gridloom_net::driver::NetConfig;
use gridloom_net::identity::Keys;
use gridloom_net::transport::relay::server::{Relay, RelayHandle, RelayStatus};

const SIZE_BYTES: u64 = 5 << 20;

/// A relay on a thread.
struct RunningRelay {
    address: SocketAddr,
    handle: RelayHandle,
    thread: Option<JoinHandle<()>>,
}

impl RunningRelay {
    fn start() -> RunningRelay {
        RunningRelay::start_at(([127, 0, 0, 1], 0).into(), keys_of(authority(), CertifiedRole::Relay))
    }

    fn start_at(address: SocketAddr, keys: Keys) -> RunningRelay {
        let relay = Relay::bind(address, keys).unwrap();
        let (address, handle) = (relay.address(), relay.handle());
        let thread = thread::spawn(move || relay.run().unwrap());
        RunningRelay { address, handle, thread: Some(thread) }
    }

    /// Waits until its state is as wanted.
    fn wait(&self, what: &str, is: impl Fn(RelayStatus) -> bool) {
        let until = Instant::now() + PATIENCE;
        while !is(self.handle.status()) {
            assert!(Instant::now() < until, "{what}: {:?}", self.handle.status());
            thread::yield_now();
        }
    }

    fn stop(&mut self) {
        self.handle.stop();
        self.thread.take().into_iter().for_each(|thread| thread.join().unwrap());
    }
}

impl Drop for RunningRelay {
    fn drop(&mut self) {
        self.stop();
    }
}

/// A server that only dials out.
fn hidden(relays: &[&RunningRelay]) -> TestNode {
    let relays = relays.iter().map(|relay| relay.address.to_string()).collect();
    let server = start(Role::Server, NetConfig { relays, shared_memory: false, ..NetConfig::new(keys()) });
    assert!(server.node.address().contains("/n"), "{}", server.node.address());
    server
}

fn remote_client() -> TestNode {
    start(Role::Client, NetConfig { shared_memory: false, ..NetConfig::new(keys()) })
}

fn connect_to(from: &TestNode, to: NodeId, address: &str) {
    from.perform([Effect::Dial { address: address.into() }]);
    from.expect("PeerUp", |input| match input {
        Input::PeerUp { peer, .. } => {
            assert_eq!(*peer, to);
            Some(())
        }
        Input::DialFailed { why, .. } => panic!("{why}"),
        _ => None,
    });
}

fn dial_fails(from: &TestNode, address: &str) -> String {
    from.perform([Effect::Dial { address: address.into() }]);
    from.expect("DialFailed", |input| match input {
        Input::DialFailed { why, .. } => Some(why.clone()),
        Input::PeerUp { .. } => panic!("it is connected"),
        _ => None,
    })
}

/// Sends a datum each way and compares the bytes.
fn exchange(one: &TestNode, other: &TestNode) {
    static SERIAL: AtomicU64 = AtomicU64::new(1);
    for (from, to) in [(one, other), (other, one)] {
        let serial = SERIAL.fetch_add(1, Ordering::Relaxed);
        let datum = from.put(serial, SIZE_BYTES);
        from.perform([Effect::SendDatum { to: to.id(), datum }]);
        assert_eq!(&*to.expect_datum(datum).read().unwrap(), pattern(serial, SIZE_BYTES));
    }
}

#[test]
fn a_server_that_only_dials_out_is_reached_through_a_relay() {
    let relay = RunningRelay::start();
    let server = hidden(&[&relay]);
    relay.wait("registration", |status| status.nodes == 1);
    let client = remote_client();
    client.dial(&server);
    client.say(server.id(), 7);
    server.expect("a message", |input| matches!(input, Input::Received { .. }).then_some(()));
    exchange(&client, &server);
    relay.wait("bytes", |status| status.forwarded_bytes > 2 * SIZE_BYTES);
    let id = client.id();
    drop(client);
    server.expect_lost(id);
    relay.wait("the end of the connections", |status| status.connections == 0);
}

#[test]
fn two_servers_that_only_dial_out_exchange_data_through_a_relay() {
    let relay = RunningRelay::start();
    let (one, other) = (hidden(&[&relay]), hidden(&[&relay]));
    relay.wait("registrations", |status| status.nodes == 2);
    one.dial(&other);
    exchange(&one, &other);
}

#[test]
fn a_direct_path_is_preferred() {
    let relay = RunningRelay::start();
    let relays = vec![relay.address.to_string()];
    let open = start(Role::Server, NetConfig { relays, shared_memory: false, ..listening() });
    let client = remote_client();
    relay.wait("registration", |status| status.nodes == 1);
    client.dial(&open);
    exchange(&client, &open);
    assert_eq!(relay.handle.status().forwarded_bytes, 0);
    // A server that others cannot dial opens the connections for data in both directions.
    let hidden = hidden(&[&relay]);
    hidden.dial(&open);
    exchange(&hidden, &open);
    relay.wait("no connection", |status| status.connections == 0);
    assert_eq!(relay.handle.status().forwarded_bytes, 0);
}

#[test]
fn a_direct_address_that_does_not_answer_costs_little() {
    let relay = RunningRelay::start();
    let server = hidden(&[&relay]);
    relay.wait("registration", |status| status.nodes == 1);
    // A program that listens and says nothing, and a port on which nobody listens.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    for address in [silent.local_addr().unwrap(), closed] {
        let client = remote_client();
        connect_to(&client, server.id(), &format!("{address}+{}", server.node.address()));
        exchange(&client, &server);
    }
}

#[test]
fn another_node_at_a_private_address_is_not_taken_for_the_wanted_one() {
    let relay = RunningRelay::start();
    let (server, stranger) = (hidden(&[&relay]), server());
    relay.wait("registration", |status| status.nodes == 1);
    let client = remote_client();
    connect_to(&client, server.id(), &format!("{}+{}", stranger.node.address(), server.node.address()));
    exchange(&client, &server);
    // Without a relay that leads to the wanted node, the error says who answers.
    drop(relay);
    let other = remote_client();
    let why = dial_fails(&other, &format!("{}+{}", stranger.node.address(), server.node.address()));
    assert!(why.starts_with("'Server' answers there, but it is a different node; "), "{why}");
}

/// Two sites may use the same private addresses. Earlier, a sender waited 5 s for a program that is no node.
#[test]
fn large_data_do_not_wait_for_a_program_at_the_address_of_their_receiver() {
    let relay = RunningRelay::start();
    let sender = hidden(&[&relay]);
    relay.wait("registration", |status| status.nodes == 1);
    let (silent, stranger) = (TcpListener::bind("127.0.0.1:0").unwrap(), server());
    let addresses = [silent.local_addr().unwrap().to_string(), stranger.node.address().to_string()];
    for (serial, address) in (1..).zip(addresses) {
        let config = NetConfig { advertise: Some(address), shared_memory: false, ..listening() };
        let receiver = start(Role::Server, config);
        connect_to(&receiver, sender.id(), sender.node.address());
        let (datum, began) = (sender.put(serial, SIZE_BYTES), Instant::now());
        sender.perform([Effect::SendDatum { to: receiver.id(), datum }]);
        assert_eq!(&*receiver.expect_datum(datum).read().unwrap(), pattern(serial, SIZE_BYTES));
        assert!(began.elapsed() < Duration::from_millis(4500), "{:?}", began.elapsed());
    }
    stranger.still_serves();
}

#[test]
fn a_relay_that_restarts_has_its_nodes_again() {
    let mut relay = RunningRelay::start();
    let server = hidden(&[&relay]);
    relay.wait("registration", |status| status.nodes == 1);
    let client = remote_client();
    client.dial(&server);
    relay.stop();
    client.expect_lost(server.id());
    let why = dial_fails(&client, server.node.address());
    assert!(why.contains("Connection refused"), "{why}");
    let again = RunningRelay::start_at(relay.address, keys_of(authority(), CertifiedRole::Relay));
    again.wait("registration", |status| status.nodes == 1);
    connect_to(&client, server.id(), server.node.address());
    exchange(&client, &server);
}

#[test]
fn with_two_relays_one_may_be_down() {
    let (mut one, other) = (RunningRelay::start(), RunningRelay::start());
    let server = hidden(&[&one, &other]);
    other.wait("registration", |status| status.nodes == 1);
    one.stop();
    let client = remote_client();
    client.dial(&server);
    exchange(&client, &server);
}

#[test]
fn an_agent_is_reached_by_its_role() {
    let relay = RunningRelay::start();
    let relays = vec![relay.address.to_string()];
    let agent = start(Role::Agent, NetConfig { relays, ..NetConfig::new(keys()) });
    assert_eq!(agent.node.address(), format!("{}/agent", relay.address));
    relay.wait("registration", |status| status.nodes == 1);
    let client = remote_client();
    client.dial(&agent);
}

#[test]
fn refusals_say_why() {
    let relay = RunningRelay::start();
    let client = remote_client();
    let unknown = format!("{}/n1@nowhere", relay.address);
    let why = dial_fails(&client, &unknown);
    assert!(why.ends_with(&format!("relay {}: the node is not registered with the relay", relay.address)), "{why}");
    assert!(dial_fails(&client, &format!("{}/agent", relay.address)).ends_with("is not registered with the relay"));
    // A node is no relay, and a relay is no node.
    let server = server();
    let why = dial_fails(&client, &format!("{}/agent", server.node.address()));
    assert!(why.contains(&format!("relay {}: ", server.node.address())), "{why}");
    dial_fails(&client, &relay.address.to_string());
    // Only agents and servers register, and only agents as the agent.
    for role in [CertifiedRole::Client, CertifiedRole::Functions, CertifiedRole::Administrator] {
        let relays = vec![relay.address.to_string()];
        let node = start_as_is(Role::Client, NetConfig { relays, ..NetConfig::new(keys_of(authority(), role)) });
        let why = wait_for_warning(&node);
        assert!(why.contains("does not allow it to register here"), "{why}");
    }
    for role in [CertifiedRole::Server, CertifiedRole::Agent] {
        let refused = Relay::bind(([127, 0, 0, 1], 0).into(), keys_of(authority(), role)).err().unwrap();
        assert!(refused.to_string().contains("does not allow it to be a relay"), "{refused}");
    }
    assert_eq!(relay.handle.status().nodes, 0);
}

#[test]
fn nodes_and_relays_of_other_grids_are_refused() {
    let other = Authority::new("others", UnixTime::now()).unwrap();
    let foreign = RunningRelay::start_at(([127, 0, 0, 1], 0).into(), keys_of(&other, CertifiedRole::Relay));
    let relays = vec![foreign.address.to_string()];
    let server =
        start_as_is(Role::Client, NetConfig { relays, ..NetConfig::new(keys_of(authority(), CertifiedRole::Server)) });
    let why = wait_for_warning(&server);
    assert!(why.contains("is of the grid 'others'"), "{why}");
    let why = dial_fails(&remote_client(), server.node.address());
    assert!(why.contains("is of the grid 'others'"), "{why}");
    assert_eq!(foreign.handle.status(), RelayStatus::default());
}

/// A program that listens as a relay does, with a certificate for this role.
fn false_relay(role: CertifiedRole) -> (SocketAddr, JoinHandle<Vec<u8>>) {
    let identity = Identity::new(authority().grid(), role, "false relay").unwrap();
    let bundle = authority().issue_bundle(&Grant::new(identity), UnixTime::now()).unwrap();
    let memberships = Memberships::from(bundle.membership().unwrap());
    let config = Arc::new(memberships.server_config(&[b"gridloom-relay/1"], &CertifiedRole::NODES));
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let thread = thread::spawn(move || {
        let (mut socket, _) = listener.accept().unwrap();
        let mut tls = rustls::ServerConnection::new(config).unwrap();
        let mut received = Vec::new();
        // Ends with the alert by which the node refuses the certificate.
        let _ = rustls::Stream::new(&mut tls, &mut socket).read_to_end(&mut received);
        received
    });
    (address, thread)
}

#[test]
fn a_relay_with_a_certificate_of_another_role_is_refused() {
    for role in [CertifiedRole::Server, CertifiedRole::Client, CertifiedRole::Agent] {
        let (address, requests) = false_relay(role);
        let why = dial_fails(&remote_client(), &format!("{address}/agent"));
        assert!(why.contains(&format!("relay {address}: the {role} 'false relay' of the grid 'tests' cannot do this")));
        assert!(why.ends_with("it takes a relay"), "{why}");
        assert_eq!(requests.join().unwrap(), b"", "the false relay receives no request");
    }
}

/// The relay does not know the file of the authority. It learns the revocation from a registered server.
#[test]
fn a_relay_learns_revocations_from_registered_nodes_and_cuts_revoked_ones() {
    let identity = |name: &str, role| Identity::new(authority().grid(), role, name).unwrap();
    let bundle =
        |name: &str, role| authority().issue_bundle(&Grant::new(identity(name, role)), UnixTime::now()).unwrap();
    let of = |bundle: &gridloom_keys::Bundle| bundle.membership().unwrap();
    let relay = RunningRelay::start();
    let address = relay.address.to_string();
    let (target, other) = (hidden(&[&relay]), hidden(&[&relay]));
    let (revoked, stays) = (bundle("revoked", CertifiedRole::Client), remote_client());
    let client =
        start_as_is(Role::Client, NetConfig { shared_memory: false, ..NetConfig::new(Keys::new(of(&revoked))) });
    let revoked_server = bundle("revoked server", CertifiedRole::Server);
    let config = NetConfig {
        relays: vec![address.clone()],
        shared_memory: false,
        ..NetConfig::new(Keys::new(of(&revoked_server)))
    };
    // A client, because the thread of a server takes its events.
    let server = start_as_is(Role::Client, config);
    relay.wait("registrations", |status| status.nodes == 3);
    client.dial(&target);
    stays.dial(&other);
    relay.wait("connections", |status| status.connections == 2);

    let mut all = Revocations::default();
    // More than are sent at a time.
    for number in 0..100 {
        let someone = Revoked::Identity(identity(&format!("client {number}"), CertifiedRole::Client));
        all.add(authority().sign(Revocation::new(someone, UnixTime::now(), &"x".repeat(100)).unwrap()).unwrap());
    }
    for bundle in [&revoked, &revoked_server] {
        let serial = Revoked::Certificate(bundle.issued.certificate.serial);
        all.add(authority().sign(Revocation::new(serial, UnixTime::now(), "stolen").unwrap()).unwrap());
    }
    // This server knows them, and is connected to nobody but the relay.
    let informant = of(&bundle("informant", CertifiedRole::Server));
    assert!(informant.trust.add_revocations(&all));
    let config = NetConfig { relays: vec![address], shared_memory: false, ..NetConfig::new(Keys::new(informant)) };
    let _informant = start_as_is(Role::Server, config);
    relay.wait("the end of the revoked ones", |status| status.connections == 1 && status.nodes == 3);
    client.expect_lost(target.id());
    target.expect_lost(client.id());
    let why = dial_fails(&client, target.node.address());
    assert!(why.contains("certificate revoked: client 'revoked' of the grid 'tests', at "), "{why}");
    assert!(why.ends_with(": stolen"), "{why}");
    let why = wait_for_warning(&server);
    assert!(why.contains("certificate revoked: server 'revoked server' of the grid 'tests', at "), "{why}");
    exchange(&stays, &other);
}

/// Waits for the reason in a warning of a node.
fn wait_for_warning(node: &TestNode) -> String {
    let until = Instant::now() + PATIENCE;
    let found = node.node.wait(Some(until), |events| {
        events.drain(..).find_map(|event| match event {
            gridloom_core::node::Event::Log(LogLine { why: Some(why), text, .. }) if text.contains("relay") => {
                Some(why)
            }
            _ => None,
        })
    });
    found.expect("a warning comes")
}

#[test]
fn strangers_and_slow_connections_do_not_keep_nodes_away() {
    let relay = RunningRelay::start();
    let server = hidden(&[&relay]);
    relay.wait("registration", |status| status.nodes == 1);
    let connect = || TcpStream::connect(relay.address).unwrap();
    let slow: Vec<TcpStream> = (0..400).map(|_| connect()).collect();
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut seed = 1u64;
            while !stop.load(Ordering::Relaxed) {
                let mut stream = connect();
                let noise: Vec<u8> = (0..300)
                    .map(|_| {
                        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                        (seed >> 33) as u8
                    })
                    .collect();
                // The relay may close the connection first.
                let _ = stream.write_all(&noise).and_then(|()| stream.read_to_end(&mut Vec::new()));
            }
        });
        for _ in 0..5 {
            let client = remote_client();
            client.dial(&server);
            exchange(&client, &server);
        }
        stop.store(true, Ordering::Relaxed);
    });
    drop(slow);
    assert_eq!(relay.handle.status().nodes, 1, "the registration was lost");
}

#[test]
fn the_registration_of_a_node_that_is_gone_ends() {
    let relay = RunningRelay::start();
    let server = hidden(&[&relay]);
    relay.wait("registration", |status| status.nodes == 1);
    let address = server.node.address().to_string();
    drop(server);
    relay.wait("the end of the registration", |status| status.nodes == 0);
    assert!(dial_fails(&remote_client(), &address).ends_with("the node is not registered with the relay"));
}

#[test]
fn a_server_that_takes_connections_all_the_time_stays_registered() {
    let relay = RunningRelay::start();
    let server = hidden(&[&relay]);
    relay.wait("registration", |status| status.nodes == 1);
    // Longer than the silence after which a registration ends.
    let until = Instant::now() + Duration::from_secs(12);
    while Instant::now() < until {
        let client = remote_client();
        connect_to(&client, server.id(), server.node.address());
        assert_eq!(relay.handle.status().nodes, 1, "the registration was lost");
        // More often than the node would ping if nothing else arrived.
        thread::sleep(Duration::from_millis(200));
    }
}

#[test]
fn a_relay_given_twice_is_used_once() {
    let relay = RunningRelay::start();
    let server = hidden(&[&relay, &relay]);
    relay.wait("registration", |status| status.nodes == 1);
    let client = remote_client();
    client.dial(&server);
    exchange(&client, &server);
}
