//! A revocation that one node brings ends all connections of a peer, and no others.

use std::time::{Duration, Instant};

use crate::transport_support::*;
use gridloom_base::dial::{ConnectionError, ConnectionFault};
use gridloom_core::node::message::LinkMessage;
use gridloom_core::node::{Effect, Input, Role};
use gridloom_keys::{Bundle, Grant, Identity, Revocation, Revocations, Revoked, Role as CertifiedRole, UnixTime};
use gridloom_net::driver::NetConfig;
use gridloom_net::identity::Keys;

fn issued(name: &str) -> Bundle {
    let identity = Identity::new(authority().grid(), CertifiedRole::Client, name).unwrap();
    authority().issue_bundle(&Grant::new(identity), UnixTime::now()).unwrap()
}

/// Returns the keys of a client that knows this revocation.
fn informed(revocation: Revocation) -> Keys {
    let membership = issued("informed").membership().unwrap();
    let mut all = Revocations::default();
    all.add(revocation);
    assert!(membership.trust.add_revocations(&all));
    Keys::new(membership)
}

/// Reports whether a thread of this process receives bulk data from a node.
fn receives_from(peer: &TestNode) -> bool {
    let name: String = format!("from {}", peer.id()).chars().take(15).collect();
    let tasks = std::fs::read_dir("/proc/self/task").unwrap().flatten();
    tasks.filter_map(|task| std::fs::read_to_string(task.path().join("comm")).ok()).any(|comm| comm.trim_end() == name)
}

#[test]
fn a_revocation_ends_control_and_bulk_connections_of_its_peer() {
    for shared_memory in [false, true] {
        let agent = start(Role::Agent, NetConfig { shared_memory, ..listening() });
        let client = |keys| start_as_is(Role::Client, NetConfig { shared_memory, ..NetConfig::new(keys) });
        let name = format!("anna {shared_memory}");
        let (bundle, other) = (issued(&name), client(keys()));
        let revoked = client(Keys::new(bundle.membership().unwrap()));
        for one in [&revoked, &other] {
            one.dial(&agent);
            // The bulk connection stays open.
            let datum = one.put(1, 3 << 20);
            one.perform([Effect::SendDatum { to: agent.id(), datum }]);
            agent.expect_datum(datum);
        }
        let is_receiving = || !shared_memory && receives_from(&revoked);
        assert_eq!(is_receiving(), !shared_memory);
        let serial = bundle.issued.certificate.serial;
        let revocation = Revocation::new(Revoked::Certificate(serial), UnixTime::now(), "stolen").unwrap();
        let informed = client(informed(authority().sign(revocation).unwrap()));
        informed.dial(&agent);
        for (at, lost) in [(&agent, &revoked), (&revoked, &agent)] {
            let ConnectionError { fault, why } = at.expect_loss(lost.id());
            let begin = format!("certificate revoked: client '{name}' of the grid 'tests', at ");
            assert!(why.starts_with(&begin) && why.ends_with(": stolen"), "{why}");
            assert_eq!(fault, ConnectionFault::Revoked);
        }
        let until = Instant::now() + PATIENCE;
        while is_receiving() {
            assert!(Instant::now() < until, "the bulk connection is still open");
            std::thread::sleep(Duration::from_millis(5));
        }
        revoked.perform([Effect::Dial { address: agent.node.address().to_string() }]);
        // A node that was away when it was revoked learns the reason, too.
        let ConnectionError { fault, why } = revoked.expect_failed_dial();
        assert_eq!(fault, ConnectionFault::Revoked);
        let reason = format!("refused: certificate revoked: client '{name}' of the grid 'tests', at ");
        assert!(why.contains(&reason) && why.ends_with(": stolen"), "{why}");
        other.perform([Effect::Send { to: agent.id(), message: LinkMessage::Ping { token: 7 }.into() }]);
        other.expect("Pong", |input| matches!(input, Input::Received { .. }).then_some(()));
    }
}
