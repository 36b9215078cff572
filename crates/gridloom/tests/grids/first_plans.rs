//! The first group of a session: its plan is based on guesses, which it lists and which do not move data over slow links.

use crate::support;
use gridloom::{Grid, Value};

const KERNELS: &str = "Module kernels;\n\
    Define turn(IN int n, IN double a[n], OUT double b[n]) CalcOrder 100*n Calls \"C\" turn(n, a, b);\n";

/// Two servers with one slot near the client, and two behind 2 Mbit/s and 150 ms.
fn far_servers() -> String {
    let mut text = String::new();
    for host in ["client", "near", "far-1", "far-2"] {
        text += &format!("[[host]]\nname = '{host}'\nspeed = '2Gf'\n");
    }
    for (name, hosts) in [("here", "'client', 'near'"), ("there", "'far-1', 'far-2'")] {
        text += &format!("[[star]]\nname = '{name}'\nhosts = [{hosts}]\nbandwidth = '1Gbps'\nlatency = '50us'\n");
    }
    text + "[[link]]\nname = 'wan'\nbandwidth = '2Mbps'\nlatency = '150ms'\n[[connect]]\nfrom = 'here'\nto = 'there'\nlinks = ['wan']\n"
}

#[test]
fn the_first_group_keeps_its_data_near_though_no_far_link_is_measured() {
    let grid = Grid::simulate(support::simulation("first-plans", &far_servers(), KERNELS, &[])).unwrap();
    let turn = grid.function("kernels/turn").unwrap();
    let group = grid.group("heft");
    for round in 0..4 {
        let matrix = Value::from_f64(&[1_000_000], &vec![f64::from(round); 1_000_000]);
        let once = group.call(&turn, [matrix]).unwrap().one().unwrap();
        group.call(&turn, [&once]).unwrap();
    }
    let plan = group.plan("heft").unwrap();
    assert!(plan.tasks.iter().all(|task| task.server == "near"), "{plan}");
    assert!(plan.not_measured.contains(&"kernels/turn on near".to_string()), "{:?}", plan.not_measured);
    group.wait().unwrap();
    let report = group.report().unwrap();
    assert!(report.measured_seconds < 5.0 && report.server_bytes == 0, "{report}");
    assert!(report.to_string().contains("guessed, as not measured yet: kernels/turn on near\n"), "{report}");
}
