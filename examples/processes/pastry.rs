//! A node joins the overlay network Pastry and is welcomed with rows of a routing table: the message of section 5 of the
//! report on GRAS (INRIA RR-5789), 84 bytes on i386 without rows. `pastry.py` is the same in Python.
//!
//! ```text
//! cargo build --release -p gridloom --example pastry
//! gridloom deploy -d examples/processes/pastry.toml -- target/release/examples/pastry
//! ```

use std::collections::BTreeMap;
use std::sync::Arc;

use gridloom::process::{Main, Process, StackKind, run};
use gridloom::{Error, Message};

const PORT: u16 = 4003;

#[derive(Message)]
struct Join {
    #[message(c = "int")]
    id: i32,
    #[message(c = "int")]
    rows_wanted: i32,
}

#[derive(Message, PartialEq, Debug)]
struct Row {
    #[message(c = "int")]
    which_row: i32,
    #[message(c = "int")]
    row: [[i32; 3]; 16],
}

#[derive(Message, PartialEq, Debug)]
struct Welcome {
    #[message(c = "int")]
    id: i32,
    #[message(c = "int")]
    row_count: i32,
    time_sent: f64,
    #[message(length = "row_count")]
    rows: Vec<Row>,
    #[message(c = "int")]
    leaves: [i32; 16],
}

/// A row of a node's routing table: for each prefix of an identifier, the node to contact.
fn row(id: i32, which: i32) -> Row {
    let route = |column: usize, way: usize| id * 1000 + which * 100 + (column * 3 + way) as i32;
    Row { which_row: which, row: std::array::from_fn(|column| std::array::from_fn(|way| route(column, way))) }
}

/// The node that others join. Its argument is the number of nodes that join.
fn node(mut me: Process) -> Result<(), Error> {
    me.listen(PORT)?;
    let guests = me.spec().arguments.first().and_then(|count| count.parse().ok()).unwrap_or(1);
    for _ in 0..guests {
        let (guest, Join { id, rows_wanted }) = me.wait(None, None)?;
        let rows = (0..rows_wanted).map(|which| row(id, which)).collect();
        let leaves = std::array::from_fn(|leaf| id - 8 + leaf as i32);
        me.send(guest, &Welcome { id, row_count: rows_wanted, time_sent: me.now(), rows, leaves })?;
    }
    Ok(())
}

/// A node that joins. Arguments: the host that it joins, its identifier, the number of rows that it wants.
fn guest(mut me: Process) -> Result<(), Error> {
    let arguments = me.spec().arguments.clone();
    let [host, id, rows] = arguments.as_slice() else {
        return Err(Error::Usage("guest: expected a host, an identifier and a number of rows".into()));
    };
    let number = |text: &String| text.parse::<i32>().map_err(|error| Error::Usage(format!("{text}: {error}")));
    let (id, rows_wanted) = (number(id)?, number(rows)?);
    let node = me.connect(host, PORT, 10.0)?;
    me.send(node, &Join { id, rows_wanted })?;
    let (_, welcome) = me.wait::<Welcome>(Some(node), Some(60.0))?;
    assert!(welcome.time_sent <= me.now() && welcome.rows == (0..rows_wanted).map(|n| row(id, n)).collect::<Vec<_>>());
    println!(
        "node {} is welcome: {} rows, leaves {} to {}",
        welcome.id, welcome.row_count, welcome.leaves[0], welcome.leaves[15]
    );
    Ok(())
}

fn main() -> Result<(), Error> {
    let mains =
        BTreeMap::from([("node".to_string(), Arc::new(node) as Main), ("guest".to_string(), Arc::new(guest) as Main)]);
    run(&mains, StackKind::Coroutine).map(drop)
}
