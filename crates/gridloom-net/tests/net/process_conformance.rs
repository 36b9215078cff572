//! The conformance suite of processes on real sockets: each process is a thread, each host a loopback address.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::{LazyLock, Mutex};
use std::thread;

use gridloom_conformance::process::{CASES, Case, ProcessBody};
use gridloom_keys::{Authority, Role, UnixTime};
use gridloom_net::identity::{IssuedKeys, Keys};
use gridloom_net::process::{Addresses, NetProcess, ProcessConfig};
use gridloom_process::{Incoming, ProcessMessage, ProcessSpec, ProcessWorld};

#[derive(Clone, Copy, PartialEq, Debug)]
enum By {
    Tcp,
    SharedMemory,
    Pointer,
}

/// Returns keys of a client of that grid.
fn keys_of(grid: &str) -> Keys {
    static AUTHORITIES: LazyLock<Mutex<BTreeMap<String, Authority>>> = LazyLock::new(Mutex::default);
    let mut authorities = AUTHORITIES.lock().unwrap();
    let new = || Authority::new(grid, UnixTime::now()).unwrap();
    let authority = authorities.entry(grid.into()).or_insert_with(new);
    IssuedKeys::by_authority(authority, Role::Client, "test").unwrap().keys().unwrap()
}

fn run((name, case): &Case, number: u8, by: By) {
    println!("{name}, by {by:?}");
    // Addresses that other runs of these tests do not use at the same time.
    let [high, low] = (std::process::id() as u16).to_be_bytes();
    let address = |host: u8| IpAddr::V4(Ipv4Addr::new(127, 128 | (high & 63), low, 1 + 2 * number + host));
    let addresses = Addresses::from([("a".into(), address(0)), ("b".into(), address(1))]);
    case(&mut |processes| {
        let keys = keys_of("suite");
        let config = |(host, function): (&str, &str)| {
            let spec = ProcessSpec { function: function.into(), host: host.into(), arguments: Vec::new() };
            let (addresses, by_tcp) = (addresses.clone(), by == By::Tcp);
            ProcessConfig { spec, addresses, by_tcp, ..ProcessConfig::default() }
        };
        let (names, bodies): (Vec<_>, Vec<_>) =
            processes.into_iter().map(|(host, name, body)| ((host, name), body)).unzip();
        let configs = names.into_iter().map(config);
        let worlds = match by {
            By::Pointer => NetProcess::new_siblings(configs.collect(), &keys).unwrap(),
            By::Tcp | By::SharedMemory => {
                configs.map(|config| NetProcess::new(config, keys.clone()).unwrap()).collect()
            }
        };
        let run = |(mut world, body): (NetProcess, ProcessBody)| thread::spawn(move || body(&mut world));
        let threads: Vec<_> = worlds.into_iter().zip(bodies).map(run).collect();
        for thread in threads {
            thread.join().unwrap();
        }
    });
}

#[test]
fn real_processes_conform() {
    for (number, case) in CASES.iter().enumerate() {
        for by in [By::Tcp, By::SharedMemory, By::Pointer] {
            run(case, number as u8, by);
        }
    }
}

fn process(function: &str, grid: &str) -> NetProcess {
    let spec = ProcessSpec { function: function.into(), host: "a".into(), arguments: Vec::new() };
    NetProcess::new(ProcessConfig { spec, ..ProcessConfig::default() }, keys_of(grid)).unwrap()
}

#[test]
fn a_stranger_delays_nobody_and_gets_nowhere() {
    let mut server = process("server", "suite");
    let port = server.listen(0).unwrap();
    let mut wrong = process("wrong", "another");
    let error = wrong.connect("127.0.0.1", port).unwrap_err().to_string();
    assert!(error.contains("certificate is of the grid 'suite'"), "{error}");
    let mut noise = std::net::TcpStream::connect(("127.0.0.1", port)).unwrap();
    std::io::Write::write_all(&mut noise, b"GET / HTTP/1.1\r\n\r\n").unwrap();
    let mut client = process("client", "suite");
    let peer = client.connect("127.0.0.1", port).unwrap();
    client.send(peer, ProcessMessage { kind: "x".into(), payload: vec![1] }).unwrap();
    assert!(matches!(server.receive(None), Ok(Some(Incoming::Message { .. }))));
}

#[test]
fn strangers_who_say_nothing_delay_nobody() {
    let mut server = process("server", "suite");
    let port = server.listen(0).unwrap();
    let connect = |_| std::net::TcpStream::connect(("127.0.0.1", port)).unwrap();
    // More connections than there are handshake slots.
    let _silent: Vec<std::net::TcpStream> = (0..100).map(connect).collect();
    let mut client = process("client", "suite");
    let began = std::time::Instant::now();
    let peer = client.connect("127.0.0.1", port).unwrap();
    // If they were handled one at a time, the first would take five seconds.
    assert!(began.elapsed() < std::time::Duration::from_secs(4), "{:?}", began.elapsed());
    client.send(peer, ProcessMessage { kind: "x".into(), payload: vec![1] }).unwrap();
    assert!(matches!(server.receive(None), Ok(Some(Incoming::Message { .. }))));
}

#[test]
fn a_thread_that_has_ended_is_dialled_no_more() {
    let [high, low] = (std::process::id() as u16).to_be_bytes();
    let own = IpAddr::V4(Ipv4Addr::new(127, 192 | (high & 63), low, 250));
    let config = |function: &str| {
        let spec = ProcessSpec { function: function.into(), host: "a".into(), arguments: Vec::new() };
        ProcessConfig { spec, addresses: Addresses::from([("a".into(), own)]), ..ProcessConfig::default() }
    };
    let both = vec![config("ends"), config("dials")];
    let [mut ends, mut dials] =
        NetProcess::new_siblings(both, &keys_of("suite")).unwrap().try_into().unwrap_or_else(|_| panic!("two of them"));
    let port = ends.listen(0).unwrap();
    // This connection is open but has not been accepted yet.
    let peer = dials.connect("a", port).unwrap();
    dials.send(peer, ProcessMessage { kind: "x".into(), payload: vec![1] }).unwrap();
    drop(ends);
    let until = Some(dials.now() + 10_000_000_000);
    assert!(matches!(dials.receive(until), Ok(Some(Incoming::Closed { .. }))), "it is never closed");
    let why = dials.connect("a", port).unwrap_err().to_string();
    assert!(why.contains("nobody listens"), "{why}");
}
