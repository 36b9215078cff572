//! A client in Rust and a server in C.

use std::sync::Arc;

use gridloom::Message;
use gridloom::process::{DEPLOY_VARIABLE, Process, ProcessError, StackKind};

use crate::support::file;

use super::{compiled, deployed, example};

/// Like `struct Multiply` in the example.
#[derive(Message)]
struct Multiply {
    m: usize,
    k: usize,
    n: usize,
    #[message(length = "m * k")]
    a: Vec<f64>,
    #[message(length = "k * n")]
    b: Vec<f64>,
}

#[derive(Message, PartialEq, Debug)]
struct Product {
    m: usize,
    n: usize,
    #[message(length = "m * n")]
    c: Vec<f64>,
}

#[derive(Message)]
struct Done;

/// Declarations that differ from the C program's.
mod other {
    use gridloom::Message;

    #[derive(Message)]
    pub struct Multiply {
        pub factor: f32,
    }
}

/// A client of the example, in Rust.
fn rust_client(mut process: Process) -> Result<(), gridloom::Error> {
    let host = process.spec().arguments[0].clone();
    let server = process.connect(&host, 4002, 30.0)?;
    let (a, b) = (vec![-2.0, -1.0, 0.0, 1.0, 2.0, 3.0], vec![-2.0, -1.0, 0.5]);
    process.send(server, &Multiply { m: 2, k: 3, n: 1, a, b })?;
    let (_, product) = process.wait::<Product>(Some(server), Some(60.0))?;
    assert_eq!(product, Product { m: 2, n: 1, c: vec![5.0, -2.5] });

    process.send(server, &Multiply { m: 0, k: 1, n: 1, a: vec![], b: vec![1.0] })?;
    let error = process.wait::<Product>(Some(server), Some(60.0)).unwrap_err();
    let ProcessError::Remote { why, .. } = &error else { panic!("{error}") };
    assert_eq!(why, "code 1: nothing to multiply: 0 x 1 times 1 x 1");

    process.send(server, &other::Multiply { factor: 2.0 })?;
    let error = process.wait::<Product>(Some(server), Some(60.0)).unwrap_err().to_string();
    assert!(error.contains("sender and receiver declare it differently: ") && error.contains("factor"), "{error}");
    process.send(server, &Done)?;
    println!("rust and c agree");
    Ok(())
}

/// Run by the next test as a process of a deployment.
#[test]
#[ignore = "a process of another test"]
fn the_client_in_rust() {
    if std::env::var_os(DEPLOY_VARIABLE).is_some() {
        let mains = [("client".to_string(), Arc::new(rust_client) as gridloom::process::Main)].into();
        gridloom::process::run(&mains, StackKind::Coroutine).unwrap();
    }
}

#[test]
fn a_client_in_rust_has_a_server_in_c_multiply_matrices() {
    let Some(program) = compiled(&example("matmul.c"), "matmul-rust", &[]) else { return };
    let own = std::env::current_exe().unwrap();
    let (_, this_module) = module_path!().split_once("::").unwrap();
    let test = format!("{this_module}::the_client_in_rust");
    let script = format!(
        "case \"${DEPLOY_VARIABLE}\" in\n*'\"function\":\"client\"'*) exec '{}' --exact --ignored --nocapture \
         {test};;\n*) exec '{program}';;\nesac\n",
        own.display()
    );
    let script = file("rust-and-c.sh", &script);
    let deployment = example("deployment.toml").display().to_string();
    let (output, out, error) = deployed(&deployment, &["sh", &script]);
    assert!(output.status.success() && out.contains("client@laptop| rust and c agree\n"), "{out}{error}");
    assert!(error.contains("done after 1 products"), "{error}");
}
