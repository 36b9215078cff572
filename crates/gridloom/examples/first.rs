//! The README's first program, in Rust: a group of calls, mapped together.

use gridloom::{Error, Grid, LocalConfig, Value};

fn main() -> Result<(), Error> {
    let a = Value::from_f64(&[2, 2], &[1.0, 2.0, 3.0, 4.0]);
    let b = Value::from_f64(&[2, 2], &[0.0, 1.0, 1.0, 0.0]);
    let grid = Grid::local(LocalConfig::default())?; // or Grid::connect("agent.example.org:7711")
    let dgemm = grid.function("linalg/dgemm")?;
    let group = grid.group("auto"); // calls are recorded, then mapped together
    let ab = group.call(&dgemm, (&a, &b))?.one()?;
    let abb = group.call(&dgemm, (&ab, &b))?.one()?; // ab never visits the client
    group.launch()?;
    println!("{:?}", abb.get()?.to_f64()?);
    println!("{}", group.report()?);
    Ok(())
}
