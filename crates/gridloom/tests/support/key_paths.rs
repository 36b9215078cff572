//! Names in JSON texts, for tests that pin file formats. Other crates include this file by its path.

use std::collections::BTreeSet;

use serde_json::Value;

/// Returns the paths of all names in a JSON text, sorted, one per line: `tasks[].name` for the names of objects in a list.
pub(crate) fn key_paths(text: &str) -> String {
    let mut paths = BTreeSet::new();
    add_paths(&serde_json::from_str(text).expect("the text is JSON"), "", &mut paths);
    paths.into_iter().map(|path| path + "\n").collect()
}

fn add_paths(value: &Value, path: &str, paths: &mut BTreeSet<String>) {
    match value {
        Value::Array(items) => items.iter().for_each(|item| add_paths(item, &format!("{path}[]"), paths)),
        Value::Object(fields) => {
            for (name, field) in fields {
                let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
                add_paths(field, &path, paths);
                paths.insert(path);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}
