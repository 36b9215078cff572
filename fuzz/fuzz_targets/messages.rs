//! Typed messages of processes in the representation of any machine, and declarations in C.

#![no_main]

use std::sync::{Arc, LazyLock};

use gridloom_layout::{Abi, Receiver, Schema, parse};
use libfuzzer_sys::fuzz_target;

static SCHEMA: LazyLock<Arc<Schema>> = LazyLock::new(|| {
    let header = include_str!("../../crates/gridloom-derive/tests/frames/drawing.h");
    Arc::new(parse(header, "drawing.h").expect("it is valid").schema("Drawing").expect("it is there"))
});

fuzz_target!(|bytes: &[u8]| {
    let mut receiver = Receiver::new(SCHEMA.clone(), Abi::NATIVE).expect("its size is within the limit");
    if let Ok(incoming) = receiver.open(bytes) {
        let graph = incoming.to_graph().expect("an opened message has values");
        let _ = incoming.to_graph_of_first(2);
        let _ = format!("{graph:?}");
        if let Ok(native) = incoming.to_native() {
            receiver.open(&native).expect("a message in the native representation can be received");
        }
    }
    let text = String::from_utf8_lossy(bytes);
    if let Ok(declarations) = parse(&text, "t.h") {
        let names: Vec<String> = declarations.names().map(str::to_string).collect();
        for name in names {
            if let Ok(schema) = declarations.schema(&name) {
                let _ = (schema.to_string(), Receiver::new(Arc::new(schema), Abi::NATIVE).is_ok());
            }
        }
    }
});
