//! Versions of names: put, found, waited for, lost, listed.

use gridloom_base::Dtype;

use super::*;

const SERVER: NodeId = NodeId(3);
const READER: Question = Question { client: NodeId(8), ask: 1 };
const WRITER: Question = Question { client: NodeId(7), ask: 1 };

fn put(catalog: &mut Catalog, name: &str) -> (DatumId, Vec<DatumId>) {
    let meta = Meta::array(Dtype::Uint8, &[5]);
    let datum = catalog.begin(WRITER, name, meta, SERVER).datum;
    let (_, superseded) = catalog.stored(SERVER, WRITER.client, datum);
    (datum, superseded)
}

#[test]
fn readers_see_a_version_whole_and_keep_it() {
    let mut catalog = Catalog::new(NodeId(1));
    assert!(matches!(catalog.find(READER, "mesh", false), Err(NameError::Unknown { .. })));
    let (first, _) = put(&mut catalog, "mesh");
    assert_eq!(catalog.check_put("mesh", false), Err(NameError::Exists { name: "mesh".into() }));
    assert_eq!(catalog.find(READER, "mesh", false).unwrap().unwrap().datum, first);
    let coming = catalog.begin(WRITER, "mesh", Meta::array(Dtype::Uint8, &[6]), SERVER).clone();
    assert_eq!(coming.version, 2);
    assert_eq!(catalog.find(READER, "mesh", false).unwrap().unwrap().datum, first, "the second is not whole");
    let (stored, superseded) = catalog.stored(SERVER, WRITER.client, coming.datum);
    assert_eq!((stored, superseded), (Stored::Whole { by: WRITER, waiting: vec![] }, vec![]), "the first is read");
    catalog.check().unwrap();
    assert!(catalog.release(READER.client, first));
    assert_eq!(catalog.give_up(first), [SERVER]);
    catalog.check().unwrap();
}

#[test]
fn who_waits_is_told_once_it_is_there() {
    let mut catalog = Catalog::new(NodeId(1));
    assert_eq!(catalog.find(READER, "mesh", true), Ok(None));
    let datum = catalog.begin(WRITER, "mesh", Meta::array(Dtype::Uint8, &[5]), SERVER).datum;
    assert_eq!(catalog.check_put("mesh", false), Err(NameError::BeingPut { name: "mesh".into() }));
    assert_eq!(catalog.stored(SERVER, READER.client, datum).0, Stored::Unknown, "another client put it there");
    let (stored, _) = catalog.stored(SERVER, WRITER.client, datum);
    assert_eq!(stored, Stored::Whole { by: WRITER, waiting: vec![READER] });
    assert_eq!(catalog.waits(), 0);
    catalog.check().unwrap();
}

#[test]
fn a_new_agent_learns_names_from_servers() {
    let mut catalog = Catalog::new(NodeId(1));
    let (old, _) = put(&mut catalog, "mesh");
    let old = catalog.named(old).unwrap().clone();
    let (new, superseded) = put(&mut catalog, "mesh");
    assert_eq!(superseded, [old.datum]);
    let new = catalog.named(new).unwrap().clone();
    let mut restarted = Catalog::new(NodeId(2));
    restarted.find(READER, "mesh", true).unwrap();
    assert_eq!(restarted.told(SERVER, new.clone()), (vec![READER], vec![]));
    assert_eq!(restarted.told(SERVER, old.clone()), (vec![], vec![old.datum]), "an older version is of no use");
    restarted.give_up(old.datum);
    let (third, _) = put(&mut restarted, "mesh");
    assert_eq!(restarted.named(third).unwrap().version, 3);
    restarted.check().unwrap();
}

#[test]
fn what_is_lost_is_told_and_can_be_put_again() {
    let mut catalog = Catalog::new(NodeId(1));
    put(&mut catalog, "mesh");
    catalog.server_lost(SERVER, "server 's' is gone");
    let error = catalog.find(READER, "mesh", false).unwrap_err();
    assert_eq!(error, NameError::Lost { name: "mesh".into(), why: "server 's' is gone".into() });
    assert_eq!(catalog.check_put("mesh", false), Ok(()));
    let (again, superseded) = put(&mut catalog, "mesh");
    superseded.into_iter().for_each(|datum| drop(catalog.give_up(datum)));
    assert_eq!(catalog.find(READER, "mesh", false).unwrap().unwrap().datum, again);
    assert_eq!(catalog.delete("mesh"), Ok(None), "it is read");
    assert_eq!(catalog.client_lost(READER.client), [again]);
}

#[test]
fn names_are_listed_by_how_they_begin() {
    let mut catalog = Catalog::new(NodeId(1));
    for name in ["run/1", "run/2", "runs", "a"] {
        put(&mut catalog, name);
    }
    let list = |prefix: &str, after: &str| -> Vec<String> {
        catalog.list(prefix, after).map(|(named, _)| named.name.clone()).collect()
    };
    assert_eq!(list("run/", ""), ["run/1", "run/2"]);
    assert_eq!(list("run", "run/1"), ["run/2", "runs"]);
    assert_eq!(list("", "").len(), 4);
}
