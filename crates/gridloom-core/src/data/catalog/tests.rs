//! Tests of the versions of names: put, found, waited for, lost, listed, and reported to a new agent.

use gridloom_base::limits::RECONNECT_NS_MAX;
use gridloom_base::{Dtype, TaskId, Time};

use super::*;

const SERVER: NodeId = NodeId(3);
const OTHER: NodeId = NodeId(4);
const READER: RequestId = RequestId { client: NodeId(8), number: 1 };
const WRITER: RequestId = RequestId { client: NodeId(7), number: 1 };

fn content(meta: Meta) -> Content {
    Content { meta, is_durable: false, method: Method::Auto, made_by: None }
}

fn array(length: u64) -> Meta {
    Meta::array(Dtype::Uint8, &[length])
}

fn put(catalog: &mut Catalog, name: &str) -> DatumId {
    let datum = catalog.begin(WRITER, name, content(array(5)), &[SERVER]).datum;
    catalog.stored(SERVER, WRITER.client, datum);
    datum
}

/// Returns the catalog of an agent that restarted and has not received all reports of its servers and clients.
fn restarted() -> Catalog {
    Catalog::new(IdentifierKey([1; 32]))
}

fn found(catalog: &mut Catalog, name: &str) -> DatumId {
    catalog.find(READER, name, false).unwrap().unwrap().datum
}

fn given_up(datum: DatumId, holders: &[NodeId]) -> CatalogUpdate {
    CatalogUpdate::Dropped { datum, holders: holders.to_vec() }
}

fn former(datum: DatumId) -> CatalogUpdate {
    CatalogUpdate::Superseded { datum, holders: vec![SERVER] }
}

#[test]
fn readers_see_a_version_whole_and_keep_it() {
    let mut catalog = Catalog::new(IdentifierKey::default());
    assert!(matches!(catalog.find(READER, "mesh", false), Err(NameError::Unknown { .. })));
    let first = put(&mut catalog, "mesh");
    assert_eq!(catalog.check_put("mesh", false), Err(NameError::Exists { name: "mesh".into() }));
    assert_eq!(found(&mut catalog, "mesh"), first);
    let coming = catalog.begin(WRITER, "mesh", content(array(6)), &[SERVER]).clone();
    assert_eq!(coming.version, 2);
    assert_eq!(found(&mut catalog, "mesh"), first, "the second version is not complete");
    assert!(catalog.is_complete(first) && !catalog.is_complete(coming.datum));
    let stored = catalog.stored(SERVER, WRITER.client, coming.datum);
    assert_eq!(stored, Stored::Whole { by: WRITER, waiting: vec![] });
    assert_eq!(catalog.take_updates(), [former(first)], "the first version is still read");
    catalog.check().unwrap();
    catalog.release(READER.client, first, 1);
    assert_eq!(catalog.take_updates(), [], "it was found twice");
    catalog.release(READER.client, first, 1);
    assert_eq!(catalog.take_updates(), [given_up(first, &[SERVER])]);
    catalog.check().unwrap();
}

#[test]
fn waiting_clients_are_notified_once_the_name_exists() {
    let mut catalog = Catalog::new(IdentifierKey::default());
    assert_eq!(catalog.find(READER, "mesh", true), Ok(None));
    let datum = catalog.begin(WRITER, "mesh", content(array(5)), &[SERVER]).datum;
    assert_eq!(catalog.check_put("mesh", false), Err(NameError::BeingPut { name: "mesh".into() }));
    assert_eq!(catalog.stored(SERVER, READER.client, datum), Stored::Unknown, "another client put it there");
    let stored = catalog.stored(SERVER, WRITER.client, datum);
    assert_eq!(stored, Stored::Whole { by: WRITER, waiting: vec![READER] });
    assert_eq!(catalog.waits(), 0);
    catalog.check().unwrap();
}

#[test]
fn a_client_that_is_gone_waits_puts_and_reads_no_longer() {
    let mut catalog = Catalog::new(IdentifierKey::default());
    let mesh = put(&mut catalog, "mesh");
    found(&mut catalog, "mesh");
    catalog.delete("mesh").unwrap();
    catalog.find(READER, "other", true).unwrap();
    let coming = catalog.begin(READER, "mine", content(array(5)), &[OTHER]).datum;
    catalog.take_updates();
    catalog.client_lost(Time(5), READER.client);
    catalog.forget_away(Time(4 + RECONNECT_NS_MAX));
    assert_eq!(catalog.take_updates(), [given_up(coming, &[OTHER])], "the client may come back, and continues to read");
    catalog.check().unwrap();
    catalog.forget_away(Time(5 + RECONNECT_NS_MAX));
    assert_eq!(catalog.take_updates(), [given_up(mesh, &[SERVER])]);
    assert_eq!((catalog.waits(), catalog.len(), catalog.placed_bytes(OTHER)), (0, 0, 0));
    catalog.check().unwrap();
}

#[test]
fn a_client_that_reconnects_reads_what_it_reports() {
    let mut catalog = Catalog::new(IdentifierKey::default());
    let [kept, released, found_again] = ["a", "b", "c"].map(|name| put(&mut catalog, name));
    ["a", "a", "b", "c"].into_iter().for_each(|name| _ = found(&mut catalog, name));
    catalog.client_lost(Time(0), READER.client);
    // The client found 'a' twice, and released one of the two while it was away.
    catalog.reads(READER.client, kept, 1);
    found(&mut catalog, "c");
    ["a", "b", "c"].into_iter().for_each(|name| catalog.delete(name).unwrap());
    catalog.take_updates();
    catalog.forget_away(Time(RECONNECT_NS_MAX));
    assert_eq!(catalog.take_updates(), [given_up(released, &[SERVER])]);
    for datum in [kept, found_again] {
        catalog.release(READER.client, datum, 1);
        assert_eq!(catalog.take_updates(), [given_up(datum, &[SERVER])]);
    }
    catalog.check().unwrap();
}

#[test]
fn a_new_agent_learns_names_from_servers() {
    let mut catalog = Catalog::new(IdentifierKey::default());
    let [old, new] = [0, 1].map(|_| {
        let datum = put(&mut catalog, "mesh");
        catalog.named(datum).unwrap().clone()
    });
    let mut restarted = restarted();
    restarted.find(READER, "mesh", true).unwrap();
    assert_eq!(restarted.server_reported(SERVER, new.clone(), true), [READER]);
    assert_eq!(restarted.server_reported(SERVER, old.clone(), true), []);
    assert_eq!(restarted.take_updates(), [former(old.datum)], "a client may report that it reads the old version");
    let third = put(&mut restarted, "mesh");
    assert_eq!(restarted.named(third).unwrap().version, 3);
    restarted.check().unwrap();
    restarted.take_updates();
    restarted.release(READER.client, new.datum, 1);
    assert_eq!(restarted.take_updates(), []);
    assert!(restarted.settle().is_empty());
    let (mut given, mut expected) =
        (restarted.take_updates(), [old.datum, new.datum].map(|datum| given_up(datum, &[SERVER])));
    given.sort_by_key(|news| format!("{news:?}"));
    expected.sort_by_key(|news| format!("{news:?}"));
    assert_eq!(given, expected);
    restarted.check().unwrap();
}

#[test]
fn a_put_at_a_new_agent_replaces_what_servers_report() {
    let mut catalog = Catalog::new(IdentifierKey::default());
    (0..3).for_each(|_| _ = put(&mut catalog, "mesh"));
    let old = found(&mut catalog, "mesh");
    let old = catalog.named(old).unwrap().clone();
    let mut restarted = restarted();
    let new = put(&mut restarted, "mesh");
    assert_eq!(restarted.server_reported(SERVER, old.clone(), true), []);
    assert_eq!(found(&mut restarted, "mesh"), new);
    _ = restarted.settle();
    assert_eq!(restarted.take_updates(), [former(old.datum), given_up(old.datum, &[SERVER])]);
}

#[test]
fn readers_of_a_deleted_name_keep_it_when_the_agent_restarts() {
    for reader_is_first in [true, false] {
        let mut catalog = Catalog::new(IdentifierKey::default());
        let mesh = put(&mut catalog, "mesh");
        let mesh = catalog.named(mesh).unwrap().clone();
        let mut restarted = restarted();
        if reader_is_first {
            restarted.reads(READER.client, mesh.datum, 2);
        }
        assert_eq!(restarted.server_reported(SERVER, mesh.clone(), false), []);
        if !reader_is_first {
            restarted.reads(READER.client, mesh.datum, 2);
        }
        assert!(restarted.find(READER, "mesh", false).is_err(), "it is deleted");
        _ = restarted.settle();
        restarted.release(READER.client, mesh.datum, 1);
        assert_eq!(restarted.take_updates(), []);
        restarted.check().unwrap();
        restarted.release(READER.client, mesh.datum, 1);
        assert_eq!(restarted.take_updates(), [given_up(mesh.datum, &[SERVER])]);
        assert_eq!(restarted.server_reported(SERVER, mesh.clone(), false), []);
        assert_eq!(restarted.take_updates(), [given_up(mesh.datum, &[SERVER])], "later reports are too late");
        restarted.check().unwrap();
    }
}

#[test]
fn a_server_that_was_away_does_not_bring_a_deleted_name_back() {
    let mut catalog = Catalog::new(IdentifierKey::default());
    let [read, unread] = ["a", "b"].map(|name| put(&mut catalog, name));
    let named = [read, unread].map(|datum| catalog.named(datum).unwrap().clone());
    found(&mut catalog, "a");
    catalog.server_lost(SERVER, "server 's' is gone");
    catalog.delete("a").unwrap();
    catalog.delete("b").unwrap();
    catalog.take_updates();
    named.into_iter().for_each(|named| assert_eq!(catalog.server_reported(SERVER, named, true), []));
    assert_eq!(catalog.take_updates(), [former(read), given_up(unread, &[SERVER])]);
    assert!(!catalog.has_copy(unread, SERVER));
    assert_eq!(catalog.list("", "").count(), 0);
    catalog.check().unwrap();
}

#[test]
fn what_is_lost_is_reported_and_can_be_put_again() {
    let mut catalog = Catalog::new(IdentifierKey::default());
    let lost = put(&mut catalog, "mesh");
    catalog.server_lost(SERVER, "server 's' is gone");
    let error = catalog.find(READER, "mesh", false).unwrap_err();
    assert_eq!(error, NameError::Lost { name: "mesh".into(), why: "server 's' is gone".into() });
    assert_eq!(catalog.check_put("mesh", false), Ok(()));
    assert_eq!(catalog.placed_bytes(SERVER), 0);
    let again = put(&mut catalog, "mesh");
    assert_eq!(catalog.take_updates(), [given_up(lost, &[])]);
    assert_eq!(found(&mut catalog, "mesh"), again);
    catalog.delete("mesh").unwrap();
    assert_eq!(catalog.take_updates(), [former(again)], "it is read");
    catalog.client_lost(Time(0), READER.client);
    catalog.forget_away(Time(RECONNECT_NS_MAX));
    assert_eq!(catalog.take_updates(), [given_up(again, &[SERVER])]);
}

#[test]
fn names_are_listed_by_how_they_begin() {
    let mut catalog = Catalog::new(IdentifierKey::default());
    for name in ["run/1", "run/2", "runs", "a"] {
        put(&mut catalog, name);
    }
    let list = |prefix: &str, after: &str| -> Vec<String> {
        catalog.list(prefix, after).map(|(named, _)| named.name.clone()).collect()
    };
    assert_eq!(list("run/", ""), ["run/1", "run/2"]);
    assert_eq!(list("run", "run/1"), ["run/2", "runs"]);
    assert_eq!(list("run/", "runs"), Vec::<String>::new());
    assert_eq!(list("", "").len(), 4);
}

fn keep(datum: DatumId, at: &[NodeId]) -> CatalogUpdate {
    CatalogUpdate::Keep { datum, at: at.to_vec() }
}

#[test]
fn a_version_is_whole_once_all_its_replicas_are_there() {
    let mut catalog = Catalog::new(IdentifierKey::default());
    let datum = catalog.begin(WRITER, "mesh", content(array(5)), &[SERVER, OTHER]).datum;
    assert_eq!(catalog.placed_bytes(OTHER), 5);
    assert_eq!(catalog.stored(SERVER, WRITER.client, datum), Stored::Copy);
    assert_eq!(catalog.take_updates(), [keep(datum, &[OTHER])]);
    assert!(catalog.find(READER, "mesh", false).is_err() && !catalog.is_complete(datum));
    catalog.check().unwrap();
    let stored = catalog.stored(OTHER, NodeId::CATALOG, datum);
    assert_eq!(stored, Stored::Whole { by: WRITER, waiting: vec![] });
    assert_eq!(found(&mut catalog, "mesh"), datum);
    assert_eq!(catalog.lacking_keepers(None).count(), 0);
    catalog.check().unwrap();
}

#[test]
fn a_server_that_is_lost_is_replaced_by_another() {
    const THIRD: NodeId = NodeId(5);
    let mut catalog = Catalog::new(IdentifierKey::default());
    let datum = catalog.begin(WRITER, "mesh", content(array(5)), &[SERVER, OTHER]).datum;
    catalog.stored(SERVER, WRITER.client, datum);
    catalog.stored(OTHER, NodeId::CATALOG, datum);
    let named = catalog.named(datum).unwrap().clone();
    catalog.take_updates();
    assert_eq!(catalog.server_lost(SERVER, "gone"), []);
    assert_eq!(catalog.lacking_keepers(None).collect::<Vec<_>>(), [datum]);
    catalog.keep_at(datum, THIRD);
    assert_eq!((catalog.lacking_keepers(None).count(), catalog.missing_keepers(datum)), (0, 0));
    catalog.refused(datum, THIRD, "its disk is full".into());
    assert!(!catalog.has_refused(datum, THIRD) && catalog.missing_keepers(datum) == 1, "it may be asked again");
    catalog.keep_at(datum, THIRD);
    assert_eq!(catalog.stored(THIRD, NodeId::CATALOG, datum), Stored::Copy);
    catalog.check().unwrap();
    assert_eq!(catalog.server_reported(SERVER, named, true), []);
    assert_eq!(catalog.take_updates(), [given_up(datum, &[SERVER])], "it is not needed any more");
    assert_eq!(catalog.keepers(datum).collect::<Vec<_>>(), [OTHER, THIRD]);
    catalog.check().unwrap();
}

#[test]
fn a_put_of_which_a_replica_is_lost_needs_another() {
    let mut catalog = Catalog::new(IdentifierKey::default());
    let datum = catalog.begin(WRITER, "mesh", content(array(5)), &[SERVER, OTHER]).datum;
    catalog.stored(SERVER, WRITER.client, datum);
    catalog.take_updates();
    catalog.server_lost(OTHER, "gone");
    assert_eq!(
        (catalog.take_updates(), catalog.missing_keepers(datum)),
        (vec![CatalogUpdate::KeeperMissing { datum }], 1)
    );
    let (question, named) = catalog.server_lost(SERVER, "gone").remove(0);
    assert_eq!((question, named.datum), (WRITER, datum));
    assert_eq!((catalog.len(), catalog.placed_bytes(SERVER)), (0, 0));
    catalog.check().unwrap();
}

#[test]
fn a_server_that_was_not_notified_does_not_restore_an_abandoned_version() {
    let mut catalog = Catalog::new(IdentifierKey::default());
    let deleted = put(&mut catalog, "a");
    let deleted = catalog.named(deleted).unwrap().clone();
    let withdrawn = catalog.begin(WRITER, "b", content(array(5)), &[SERVER]).clone();
    catalog.delete("a").unwrap();
    catalog.withdraw(WRITER.client, withdrawn.datum);
    catalog.take_updates();
    // The updates were in transit when the server's connection broke.
    catalog.server_lost(SERVER, "gone");
    for named in [deleted, withdrawn] {
        assert_eq!(catalog.server_reported(SERVER, named.clone(), true), []);
        assert_eq!(catalog.take_updates(), [given_up(named.datum, &[SERVER])]);
    }
    assert_eq!(catalog.list("", "").count(), 0);
}

#[test]
fn a_copy_that_arrives_late_is_found_and_kept() {
    let mut catalog = Catalog::new(IdentifierKey::default());
    let of_disk = Content { is_durable: true, ..content(array(5)) };
    let mesh = catalog.begin(WRITER, "mesh", of_disk, &[SERVER]).datum;
    catalog.stored(SERVER, WRITER.client, mesh);
    catalog.server_lost(SERVER, "gone");
    assert_eq!(catalog.find(READER, "mesh", true), Ok(None), "its server may return");
    assert_eq!(catalog.take_hopeless_waits(), []);
    assert!(matches!(catalog.not_found("mesh"), NameError::Lost { .. }));
    assert!(catalog.has_copy(mesh, OTHER));
    assert_eq!(catalog.take_waiting(mesh), [READER]);
    assert_eq!(catalog.lacking_keepers(None).collect::<Vec<_>>(), [mesh], "the only copy is that of a reader");
    catalog.check().unwrap();
}

fn lost(why: &str) -> NameError {
    NameError::Lost { name: "mesh".into(), why: why.into() }
}

#[test]
fn a_wait_for_lost_data_ends_unless_they_are_put_again() {
    let mut catalog = Catalog::new(IdentifierKey::default());
    put(&mut catalog, "mesh");
    catalog.server_lost(SERVER, "gone");
    assert_eq!(catalog.find(READER, "mesh", true), Err(lost("gone")));
    let coming = catalog.begin(WRITER, "mesh", content(array(5)), &[OTHER]).datum;
    assert_eq!(catalog.find(READER, "mesh", true), Ok(None));
    assert_eq!(catalog.take_hopeless_waits(), []);
    catalog.withdraw(WRITER.client, coming);
    assert_eq!(catalog.take_hopeless_waits(), [(READER, "mesh".into())]);
    assert_eq!(catalog.not_found("mesh"), lost("gone"));
    assert_eq!(catalog.take_hopeless_waits(), []);
    catalog.check().unwrap();
}

/// A durable datum with two replicas.
fn durable_mesh() -> NamedDatum {
    NamedDatum {
        datum: DatumId::shared(7),
        name: "mesh".into(),
        version: 1,
        meta: array(5),
        replicas: 2,
        is_durable: true,
        method: Method::Auto,
        put_by: None,
        readers: Default::default(),
    }
}

#[test]
fn damaged_files_are_the_reason_why_data_are_lost() {
    let mut catalog = restarted();
    let named = durable_mesh();
    assert_eq!(catalog.find(READER, "mesh", true), Ok(None));
    catalog.damaged(SERVER, named.clone(), "changed".into());
    assert_eq!(catalog.find(READER, "mesh", false), Err(lost("changed")));
    assert_eq!(catalog.take_hopeless_waits(), [], "another server may return with a copy");
    catalog.check().unwrap();
    assert_eq!(catalog.server_reported(OTHER, named.clone(), true), [READER]);
    catalog.damaged(SERVER, named.clone(), "changed".into());
    assert_eq!(found(&mut catalog, "mesh"), named.datum, "one copy is intact");
    catalog.release(READER.client, named.datum, 2);
    catalog.server_lost(OTHER, "gone");
    assert_eq!(catalog.find(READER, "mesh", true), Ok(None));
    catalog.damaged(OTHER, named.clone(), "changed, too".into());
    assert_eq!(catalog.take_hopeless_waits(), [(READER, "mesh".into())]);
    assert_eq!(catalog.not_found("mesh"), lost("changed, too"));
    assert_eq!(catalog.find(READER, "mesh", true), Err(lost("changed, too")));
    catalog.check().unwrap();
    // Once the name is put again, the servers forget the damage, also one that was away.
    _ = catalog.settle();
    catalog.take_updates();
    put(&mut catalog, "mesh");
    // A durable version is also to be removed from the disks.
    let removed = |at: &[NodeId]| {
        let sync = CatalogUpdate::Sync { name: "mesh".into(), holders: at.to_vec() };
        [given_up(named.datum, at), sync]
    };
    assert_eq!(catalog.take_updates(), removed(&[SERVER, OTHER]));
    catalog.damaged(SERVER, named.clone(), "changed".into());
    assert_eq!(catalog.take_updates(), removed(&[SERVER]));
    catalog.check().unwrap();
}

#[test]
fn a_server_that_restarts_reports_its_damage_once() {
    let mut catalog = restarted();
    let named = durable_mesh();
    catalog.damaged(SERVER, named.clone(), "changed".into());
    catalog.server_lost(SERVER, "gone");
    // The server has restarted, so it is another node.
    catalog.damaged(OTHER, named, "changed".into());
    assert_eq!(catalog.find(READER, "mesh", true), Ok(None), "the second server may return with an intact copy");
    catalog.check().unwrap();
}

#[test]
fn a_call_that_runs_again_may_put_the_same_again() {
    let mut catalog = restarted();
    let maker =
        |serial, digest| Some(PutOrigin { task: TaskId { client: READER.client, serial }, digest: [digest; 32] });
    let has_put = |catalog: &Catalog, made_by, is_durable| {
        catalog.has_put("mesh", &Content { made_by, is_durable, ..content(array(5)) }, 1)
    };
    let first = Content { made_by: maker(1, 1), ..content(array(5)) };
    assert_eq!(has_put(&catalog, maker(1, 1), false), Ok(false));
    let coming = catalog.begin(WRITER, "mesh", first, &[SERVER]).datum;
    assert_eq!(has_put(&catalog, maker(1, 1), false), Ok(false), "it is not there yet");
    let broken_off = |catalog: &Catalog, question, made_by| catalog.put_of_earlier_run(question, "mesh", made_by);
    assert_eq!(broken_off(&catalog, READER, maker(1, 2)), Some(coming));
    assert_eq!(broken_off(&catalog, WRITER, maker(1, 2)), None, "the first put continues");
    assert_eq!((broken_off(&catalog, READER, maker(2, 1)), broken_off(&catalog, READER, None)), (None, None));
    catalog.stored(SERVER, WRITER.client, coming);
    assert_eq!(has_put(&catalog, maker(1, 1), false), Ok(true));
    assert_eq!(has_put(&catalog, maker(1, 1), true), Ok(false), "it is not durable");
    assert_eq!(has_put(&catalog, maker(1, 2), false), Err(NameError::ContentDiffers { name: "mesh".into() }));
    assert_eq!((has_put(&catalog, maker(2, 1), false), has_put(&catalog, None, false)), (Ok(false), Ok(false)));
    assert_eq!(broken_off(&catalog, READER, maker(1, 1)), None);
}
