//! A token is passed around a ring of processes; `ring.c` and `ring.py` are the same in C and in Python.
//!
//! ```text
//! cargo build --release -p gridloom --example ring
//! gridloom simulate -p examples/two-sites.toml -d examples/processes/ring.toml -- target/release/examples/ring
//! ```
//! Arguments of a process: its port, host and port of the next process, the number of rounds, and `first` for one process.

use std::collections::BTreeMap;
use std::sync::Arc;

use gridloom::process::{Main, Process, StackKind, run};
use gridloom::{Error, Message};

#[derive(Message)]
#[message(name = "token")]
struct Token {
    #[message(c = "int")]
    round: i32,
    steps: i64,
}

fn member(mut me: Process) -> Result<(), Error> {
    let arguments = me.spec().arguments.clone();
    let [port, next_host, next_port, rounds, first @ ..] = arguments.as_slice() else {
        return Err(Error::Usage("member: arguments are PORT NEXT_HOST NEXT_PORT ROUNDS [first]".into()));
    };
    let number = |text: &String| text.parse::<u16>().map_err(|error| Error::Usage(format!("{text}: {error}")));
    me.listen(number(port)?)?;
    let next = me.connect(next_host, number(next_port)?, 30.0)?;
    if !first.is_empty() {
        me.send(next, &Token { round: 1, steps: 0 })?;
    }
    let rounds = number(rounds)?;
    for seen in 1..=rounds {
        let (_, mut token) = me.wait::<Token>(None, Some(60.0))?;
        token.steps += 1;
        if !first.is_empty() {
            if seen == rounds {
                println!("the token went {} steps", token.steps);
                return Ok(());
            }
            token.round += 1;
        }
        me.send(next, &token)?;
    }
    Ok(())
}

fn main() -> Result<(), Error> {
    run(&BTreeMap::from([("member".to_string(), Arc::new(member) as Main)]), StackKind::Coroutine).map(drop)
}
