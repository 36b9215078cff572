//! Where the targets begin: `seeds ROOT` writes `ROOT/fuzz/corpus/` from the interface descriptions and recorded messages
//! of the repository at `ROOT`.

use std::fs;
use std::path::{Path, PathBuf};

use gridloom_idl::parse;
use gridloom_core::node::message::{DirectoryToClient, Message};
use gridloom_perf::GridView;
use gridloom_channel::frame::{Encoder, Kind};

fn main() {
    let root = PathBuf::from(std::env::args().nth(1).expect("the repository's folder"));
    let corpus = root.join("fuzz/corpus");
    let write = |target: &str, name: &str, bytes: &[u8]| {
        fs::create_dir_all(corpus.join(target)).expect("the corpus can be written");
        fs::write(corpus.join(target).join(name), bytes).expect("the corpus can be written");
    };
    for (at, file) in files(&root, "idl").into_iter().enumerate() {
        let text = fs::read_to_string(&file).expect("it can be read");
        write("idl", &format!("file-{at}"), text.as_bytes());
        // Templates are no descriptions yet.
        for (number, definition) in parse(&text, "t.idl").into_iter().flatten().enumerate() {
            write("idl", &format!("definition-{at}-{number}"), definition.to_string().as_bytes());
            let bytes = postcard::to_stdvec(&definition).expect("a definition is written");
            write("signature", &format!("definition-{at}-{number}"), &bytes);
            let functions = Some(vec![definition.signature]);
            let message: Message =
                DirectoryToClient::Directory { version: 1, grid: GridView::default(), functions }.into();
            let mut frame = Vec::new();
            Encoder::default().message(Kind::Message, &message, &mut frame).expect("it is short");
            write("frames", &format!("functions-{at}-{number}"), &frame);
        }
    }
    for (at, file) in files(&root, "hex").into_iter().enumerate() {
        let text = fs::read_to_string(&file).expect("it can be read");
        let digits: Vec<u8> = text.bytes().filter(u8::is_ascii_hexdigit).collect();
        let digit = |digit: u8| char::from(digit).to_digit(16).expect("it is one") as u8;
        let bytes: Vec<u8> = digits.chunks_exact(2).map(|pair| digit(pair[0]) * 16 + digit(pair[1])).collect();
        write("messages", &format!("recorded-{at}"), &bytes);
    }
    for (at, file) in files(&root, "h").into_iter().enumerate() {
        write("messages", &format!("header-{at}"), &fs::read(file).expect("it can be read"));
    }
}

/// The files of the sources with that ending, in order.
fn files(root: &Path, ending: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders: Vec<PathBuf> = ["bench", "crates", "examples", "tests"].map(|name| root.join(name)).into();
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).into_iter().flatten().flatten() {
            let path = entry.path();
            match path.is_dir() {
                true => folders.push(path),
                false => found.extend(path.extension().is_some_and(|own| own == ending).then_some(path)),
            }
        }
    }
    found.sort();
    found
}
