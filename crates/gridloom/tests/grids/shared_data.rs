//! Shared data in simulated grids: how they are distributed to servers, and over which links.

use crate::support;
use std::time::Duration;

use gridloom::{BegunGet, BegunPut, Error, Grid, PutOptions, SimulationReport, Value};
use gridloom_base::{Dtype, Meta, NameError, TaskError};
use gridloom_core::data::Verdict;
use gridloom_core::node::message::LinkBasis;

const FUNCTIONS: &str = "Module kernels;\nDefine null(IN int n) CalcOrder 1 Calls \"C\" null(n);\n";
const BYTES: u64 = 64 << 20;
const BANDWIDTH: f64 = 12.5e6;

/// Copies a datum from the first server of a grid to all others. Returns the time that it took, seconds.
fn broadcast(test: &str, platform: &str) -> (f64, SimulationReport) {
    let grid = Grid::simulate(support::simulation(test, platform, FUNCTIONS, &[])).unwrap();
    grid.shared()
        .put("mydat", &Value::placeholder(Meta::array(Dtype::Uint8, &[BYTES])), PutOptions::default())
        .unwrap();
    // Servers measure the links between them when they join.
    grid.advance(30.0);
    let begun = grid.now();
    grid.shared().place("mydat", &[]).unwrap();
    let seconds = grid.now() - begun;
    let listed = grid.shared().list("").unwrap();
    assert_eq!(listed[0].servers.len(), platform.matches("name = \"s").count(), "{listed:?}");
    (seconds, grid.simulation().unwrap())
}

/// A client, and servers around a switch at 100 Mb/s.
fn lan(servers: usize) -> String {
    let names: Vec<String> = (0..servers).map(|number| format!("s{number}")).collect();
    let hosts: Vec<(&str, &str)> =
        std::iter::once("client").chain(names.iter().map(String::as_str)).map(|name| (name, "1Gf")).collect();
    support::star(&hosts, "100Mbps", "100us")
}

#[test]
fn a_datum_gets_to_any_number_of_servers_in_little_more_than_one_transfer() {
    for servers in [2, 4, 8, 16] {
        let (seconds, _) = broadcast("broadcast", &lan(servers));
        let alone = BYTES as f64 / BANDWIDTH;
        assert!(seconds <= 1.25 * alone, "{servers} servers: {seconds} s, and one transfer takes {alone} s");
    }
}

#[test]
fn a_slow_link_between_two_sites_is_crossed_once() {
    let (seconds, report) = broadcast("two-sites", &two_sites());
    let crossed: f64 =
        report.bytes_by_link.iter().filter(|(link, _)| link.starts_with("wan")).map(|(_, bytes)| bytes).sum();
    let share = crossed / BYTES as f64;
    assert!((1.0..1.1).contains(&share), "the link was crossed {share} times");
    assert!(seconds <= 1.25 * BYTES as f64 / (BANDWIDTH / 2.0), "{seconds} s");
}

#[test]
fn a_copy_that_fails_is_reported_by_the_placement_alone_and_only_for_a_named_server() {
    let all = ["s0", "s1", "s2", "s3"].map(String::from);
    for (name, servers) in [("lost", &[][..]), ("lost-named", &all[..])] {
        let faults = "at 32s kill s1\nat 33s kill s2\n";
        let mut config = support::simulation(name, &lan(4), FUNCTIONS, &[("lost.faults", faults)]);
        config.faults = Some(config.platform.with_file_name("lost.faults"));
        let grid = Grid::simulate(config).unwrap();
        grid.shared()
            .put("mydat", &Value::placeholder(Meta::array(Dtype::Uint8, &[BYTES])), PutOptions::default())
            .unwrap();
        grid.advance(30.0 - grid.now());
        let placed = grid.shared().place("mydat", servers);
        let is_lost = matches!(placed, Err(Error::Task(TaskError::ServerLost { .. })));
        assert!(if servers.is_empty() { placed.is_ok() } else { is_lost }, "{placed:?}");
        assert_eq!(grid.take_unread(true), Default::default(), "the program made no call that failed");
    }
}

#[test]
fn what_is_explained_is_what_happens() {
    let grid = Grid::simulate(support::simulation("explained", &two_sites(), FUNCTIONS, &[])).unwrap();
    let shared = grid.shared();
    shared.put("mydat", &Value::placeholder(Meta::array(Dtype::Uint8, &[BYTES])), PutOptions::default()).unwrap();
    grid.advance(30.0);
    let copied = |name: &str| {
        let begun = grid.now();
        shared.place("mydat", &[name.to_string()]).unwrap();
        grid.now() - begun
    };
    let source = |name: &str| {
        let explained = shared.explain("mydat").unwrap();
        let holders = explained.versions[0].holders.len();
        assert_eq!((explained.versions.len(), explained.copies.len()), (1, 8 - holders));
        let copy = explained.copies.iter().find(|copy| explained.name_of(copy.server) == name).unwrap();
        assert!(!copy.is_in_transfer && copy.count as usize == holders, "{explained:?}");
        let best = &copy.candidates[0];
        assert_eq!(best.basis, LinkBasis::Measured);
        (explained.name_of(best.from), best.seconds, copy.candidates.last().unwrap().verdict)
    };
    let (here, _, _) = source("s5");
    assert_eq!(here, shared.list("").unwrap()[0].servers[0]);
    copied("s5");
    // The first server of a site gets it from the other site, and the next one from the first.
    let (near, seconds, other) = source("s6");
    assert_eq!((near.as_str(), other), ("s5", Verdict::Later));
    let took = copied("s6");
    assert!((took / seconds - 1.0).abs() < 0.1, "from {near}: {took} s and not {seconds} s");
    shared.delete("mydat").unwrap();
    assert!(matches!(shared.explain("mydat"), Err(Error::Name(NameError::Unknown { .. }))));
}

/// A simulated value of that size.
fn bytes(size_bytes: u64) -> Value {
    Value::placeholder(Meta::array(Dtype::Uint8, &[size_bytes]))
}

#[test]
fn puts_and_gets_run_at_once() {
    let grid = Grid::simulate(support::simulation("begun", &lan(4), FUNCTIONS, &[])).unwrap();
    let shared = grid.shared();
    let begun = grid.now();
    let gets: Vec<BegunGet> = ["a", "b"].map(|name| shared.begin_get(name, None)).into();
    let wait = shared.begin_wait("b", Some(Duration::from_secs(60)));
    let puts: Vec<BegunPut> =
        ["a", "b", "c"].map(|name| shared.begin_put(name, &bytes(BYTES), PutOptions::default()).unwrap()).into();
    assert!(!puts[0].is_done() && grid.now() == begun, "nothing was waited for");
    // A put that nobody waits for continues, also if the program has dropped the value.
    drop(puts);
    let timed_out = gets[0].wait(Some(Duration::from_millis(1)));
    assert!(matches!(timed_out, Err(Error::TimedOut { .. })), "{timed_out:?}");
    wait.wait(None).unwrap();
    shared.wait("c", None).unwrap();
    for get in &gets {
        assert_eq!(get.wait(None).unwrap().meta().size_bytes(), BYTES);
        assert!(get.is_done() && get.wait(None).is_ok());
    }
    // The client's link carries three values out and two in, and both directions share it.
    let alone = BYTES as f64 / BANDWIDTH;
    let took = grid.now() - begun;
    assert!((5.0 * alone..5.1 * alone).contains(&took), "{took} s, where one transfer takes {alone} s");
    drop(gets);
    ["a", "b", "c"].iter().for_each(|name| shared.delete(name).unwrap());
    assert!(shared.list("").unwrap().is_empty());
}

#[test]
fn what_has_begun_ends_at_its_limit_or_when_it_is_cancelled() {
    let grid = Grid::simulate(support::simulation("ended", &lan(2), FUNCTIONS, &[])).unwrap();
    let shared = grid.shared();
    shared.put("mesh", &bytes(10), PutOptions::default()).unwrap();
    let near = |error| match error {
        Err(Error::Name(NameError::Unknown { near, .. })) => near,
        other => panic!("{other:?}"),
    };
    let begun = grid.now();
    let get = shared.begin_get("mehs", Some(Duration::from_secs(5)));
    assert_eq!(near(get.wait(None).map(drop)), ["mesh"]);
    assert!((5.0..5.1).contains(&(grid.now() - begun)), "{}", grid.now() - begun);
    assert_eq!(near(shared.begin_wait("mehs", Some(Duration::ZERO)).wait(None)), ["mesh"]);

    let get = shared.begin_get("mehs", None);
    get.cancel();
    assert!(get.is_done() && matches!(get.wait(None), Err(Error::Task(TaskError::Cancelled))));
    let put = shared.begin_put("large", &bytes(BYTES), PutOptions::default()).unwrap();
    grid.advance(1.0);
    put.cancel();
    assert!(matches!(put.wait(None), Err(Error::Task(TaskError::Cancelled))));
    assert!(!shared.exists("large").unwrap());
    shared.put("large", &bytes(20), PutOptions::default()).unwrap();
    put.cancel();
    assert_eq!(shared.meta("large", None).unwrap().size_bytes(), 20);
    let twice = shared.begin_put("large", &bytes(20), PutOptions::default()).unwrap();
    assert!(matches!(twice.wait(None), Err(Error::Name(NameError::Exists { .. }))));
    // A dropped get no longer reads the version, so the version is deleted with the name.
    let get = shared.begin_get("large", None);
    assert!(get.wait(None).is_ok());
    drop(get);
    drop(shared.begin_get("large", None));
    shared.delete("large").unwrap();
    grid.advance(5.0);
    assert!(matches!(shared.explain("large"), Err(Error::Name(NameError::Unknown { .. }))), "nobody reads it");
}

/// Two sites with four servers each, a client at the first, and a slow link between the sites.
fn two_sites() -> String {
    let site = |name: &str, numbers: std::ops::Range<u32>, more: &str| {
        let hosts: Vec<String> = numbers.map(|number| format!("\"s{number}\"")).collect();
        let list = format!("{more}{}", hosts.join(", "));
        let host = |name: &String| format!("[[host]]\nname = {name}\nspeed = \"1Gf\"\n");
        let hosts: String = hosts.iter().map(host).collect();
        format!("{hosts}[[star]]\nname = \"{name}\"\nhosts = [{list}]\nbandwidth = \"100Mbps\"\nlatency = \"100us\"\n")
    };
    "[[host]]\nname = \"client\"\nspeed = \"1Gf\"\n".to_string()
        + &site("here", 0..4, "\"client\", ")
        + &site("there", 4..8, "")
        + "[[link]]\nname = \"wan\"\nbandwidth = \"50Mbps\"\nlatency = \"10ms\"\n"
        + "[[connect]]\nfrom = \"here\"\nto = \"there\"\nlinks = [\"wan\"]\n"
}
