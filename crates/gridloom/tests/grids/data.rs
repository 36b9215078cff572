//! Data that a Rust program describes: read from their places, written to their places, and the effect of their modes on calls.

use crate::support;
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex};

use gridloom::Grid;
use gridloom::base::{Dtype, Meta};
use gridloom::data::{
    Argument, DataError, DataPlaces, Datum, DatumStatus, Description, Kind, Memory, Mode, SingleCopyData, Uri,
};
use gridloom_net::payload::Payload;

/// A program's memory, accessed by keys.
#[derive(Default)]
struct Keys(Mutex<HashMap<String, Vec<u8>>>);

impl Memory for Keys {
    fn read(&self, uri: &Uri, _: Option<u64>) -> Result<Payload, String> {
        let found = self.0.lock().unwrap().get(&uri.to_string()).cloned();
        found.map(|bytes| Payload::copied(&bytes)).ok_or_else(|| "nothing is there".into())
    }

    fn write(&self, uri: &Uri, bytes: &[u8]) -> Result<(), String> {
        self.0.lock().unwrap().insert(uri.to_string(), bytes.to_vec());
        Ok(())
    }
}

fn grid(test: &str) -> Grid {
    let hosts = [("client", "1Gf"), ("one", "1Gf"), ("two", "1Gf")];
    let platform = support::star(&hosts, "100MBps", "50us");
    Grid::simulate(support::simulation(test, &platform, support::SQUARE, &[])).unwrap()
}

/// Eight doubles under the key `x`, to be put into the store of `two`.
fn datum(mode: Mode) -> std::sync::Arc<Datum> {
    let (inputs, outputs) = (vec![Uri::Key("x".into())], vec![(Uri::Store("two".into()), mode)]);
    Datum::managed(Description::new(inputs, outputs, Kind::Double, vec![2, 4]).unwrap())
}

fn program() -> Keys {
    let keys = Keys::default();
    keys.write(&Uri::Key("x".into()), &[7; 64]).unwrap();
    keys
}

#[test]
fn a_datum_of_one_copy_goes_to_its_server_and_calls_follow() {
    let (grid, names, memory) = (grid("data-ties"), BTreeMap::from([("second".into(), "two".into())]), program());
    let places = DataPlaces { grid: &grid, server_names: Arc::new(names.clone()), memory: &memory };
    let square = grid.function("kernels/product").unwrap();
    let datum = datum(Mode::UniqueSticky);
    let uses = || std::iter::once(Argument { datum: &datum, argument: "a", is_input: true, is_output: false });
    let (one, two) = (places.server("one").unwrap().0, places.server("two").unwrap().0);
    let ties = SingleCopyData::new(&places, &square, None, uses()).unwrap();
    assert_eq!(ties.server(), Some(two));
    assert_eq!(datum.status(), (DatumStatus::Ready, vec!["two".to_string()]));
    let refused = SingleCopyData::new(&places, &square, Some(one), uses()).err().unwrap();
    assert!(matches!(&refused, DataError::Invalid(why) if why.contains("(GRPC_UNIQUE_STICKY), on server 'two'")));
    let moved = datum.write(&places, &[(Uri::Store("one".into()), Mode::Sticky)]).unwrap_err().to_string();
    assert!(moved.contains("only on server 'two'"), "{moved}");
}

#[test]
fn what_a_call_reads_once_is_gone_then() {
    let (grid, names, memory) = (grid("data-once"), BTreeMap::new(), program());
    let places = DataPlaces { grid: &grid, server_names: Arc::new(names.clone()), memory: &memory };
    let square = grid.function("kernels/product").unwrap();
    let datum = datum(Mode::StrictlyVolatile);
    let uses = std::iter::once(Argument { datum: &datum, argument: "a", is_input: true, is_output: false });
    let ties = SingleCopyData::new(&places, &square, None, uses).unwrap();
    let meta = Meta::array(Dtype::Float64, &[2, 4]);
    assert!(datum.argument(&places, "kernels/product", "a", &meta).is_ok());
    ties.sent();
    assert_eq!(datum.status(), (DatumStatus::Undefined, vec![]));
}

#[test]
fn places_are_read_and_written() {
    let (grid, names, memory) = (grid("data-places"), BTreeMap::new(), program());
    let places = DataPlaces { grid: &grid, server_names: Arc::new(names.clone()), memory: &memory };
    let datum = datum(Mode::Sticky);
    let file = Uri::File(support::folder("data-places", &[]).join("x"));
    let outputs = vec![(file.clone(), Mode::Volatile), (Uri::Key("y".into()), Mode::Volatile)];
    datum.begin_transfer(&places, &[], outputs).unwrap();
    datum.end_transfers(&places).unwrap();
    let Uri::File(path) = &file else { unreachable!() };
    assert_eq!(std::fs::read(path).unwrap(), [7; 64]);
    assert_eq!(memory.0.lock().unwrap()["memory:y"], [7; 64]);
    // A saved description leads to the same datum, or to a new one that is read from the file.
    datum.save(&places, Uri::Key("saved".into())).unwrap();
    let load = |known| Datum::load(&places, &Uri::Key("saved".into()), |_| known).unwrap();
    assert_eq!(load(Some(datum.clone())).number(), datum.number());
    assert_eq!(load(None).description().unwrap().inputs(), [file.clone(), Uri::Key("x".into())]);
    datum.delete(&places, None).unwrap();
    assert!(!path.exists() && datum.status().0 == DatumStatus::Undefined);
}
