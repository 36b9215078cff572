//! What nodes keep on disk between runs: models of functions, the usage of users, lines of the audit log, and the descriptions of
//! durable data. The first byte chooses which.

#![no_main]

use gridloom_base::NamedDatum;
use gridloom_core::node::UsageTable;
use gridloom_perf::{FunctionModel, Size};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Some((kind, bytes)) = bytes.split_first() else { return };
    match kind % 3 {
        0 => {
            let Ok(model) = serde_json::from_slice::<FunctionModel>(bytes) else { return };
            if model.is_sane() {
                let written = serde_json::to_string(&model).expect("a model is written");
                let again: FunctionModel = serde_json::from_str(&written).expect("it was written");
                assert!(again.is_sane());
                let seconds = [0.0, 1.0, 1e9, 1e300].map(|work| model.seconds(Size::Work(work), None));
                assert!(seconds.iter().all(|seconds| seconds.is_finite()) && seconds.is_sorted(), "{seconds:?}");
            }
        }
        1 => {
            let Ok(table) = serde_json::from_slice::<UsageTable>(bytes) else { return };
            let written = serde_json::to_string(&table).expect("a table is written");
            assert_eq!(serde_json::from_str::<UsageTable>(&written).expect("it was written"), table);
        }
        _ => {
            if let Ok(named) = postcard::from_bytes::<NamedDatum>(bytes) {
                let written = postcard::to_stdvec(&named).expect("it is written");
                assert_eq!(postcard::from_bytes::<NamedDatum>(&written).expect("it was written"), named);
                let _ = named.meta.size_bytes();
            }
        }
    }
});
