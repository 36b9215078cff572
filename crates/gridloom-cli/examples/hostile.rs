//! The attackers of `bench/hostile.py`: `hostile TARGET GRID [BEHIND]`, with keys of a member in the folder that `GRIDLOOM_KEYS` names.
//!
//! Each line of the input is an attack and a number of connections; the answer is a line of JSON. `slow COUNT` holds slow connections
//! until the next line. BEHIND is the node that is registered if TARGET is a relay, as in its address after the slash.

use std::io::{BufRead, stdin};

use gridloom_keys::KeysFolder;
use gridloom_net::identity::Keys;
use serde_json::json;

#[allow(dead_code, reason = "the tests use the rest of it")]
#[path = "../tests/support/attacks.rs"]
mod attacks;

use attacks::{Attack, Attackers};

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let target = arguments[0].parse().expect("the address of the target");
    let grid = KeysFolder::find().and_then(|folder| folder.existing(Some(&arguments[1]))).expect("keys of a member");
    let member = Keys::new(grid.membership().expect("keys of a member"));
    let behind = arguments.get(2).map(|behind| behind.parse().expect("a node behind the relay"));
    let all = if behind.is_some() { &Attack::ON_RELAYS[..] } else { &Attack::ON_NODES };
    let attackers = Attackers::new(target, member, behind);
    println!("{}", json!(all.iter().map(|attack| format!("{attack:?}")).collect::<Vec<_>>()));
    let mut slow = None;
    for line in stdin().lock().lines() {
        let line = line.expect("text");
        let (name, count) = line.split_once(' ').expect("an attack and a number");
        let count = count.parse().expect("a number");
        drop(slow.take());
        if name == "slow" {
            slow = Some(attackers.slow(count));
            println!("{{}}");
            continue;
        }
        let attack = all.iter().find(|attack| format!("{attack:?}") == name).expect("one of the attacks");
        let outcome = attackers.run(*attack, count);
        println!("{}", json!({"refused": outcome.refused, "got_in": outcome.got_in, "served": outcome.served}));
    }
}
