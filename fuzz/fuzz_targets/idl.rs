//! Interface descriptions: no text makes the parser panic, and accepted definitions are valid and unchanged when
//! printed and read again.

#![no_main]

use gridloom_idl::{parse, parse_file};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let text = String::from_utf8_lossy(bytes);
    let Ok(file) = parse_file(&text, "t.idl") else { return };
    file.build.c_source(&file.definitions, "t.idl");
    file.classes.iter().for_each(|class| drop(file.build.class_source(class, "t.idl")));
    for definition in &file.definitions {
        definition.signature.check().expect("accepted definitions are valid");
        let _ = definition.signature.c_prototype(None);
        let _ = (definition.signature.to_string(), definition.signature.hash());
        let printed = definition.to_string();
        let read = parse(&printed, "t.idl").unwrap_or_else(|error| panic!("{error}\n{printed}"));
        assert_eq!(&read[..], std::slice::from_ref(definition), "{printed}");
    }
});
