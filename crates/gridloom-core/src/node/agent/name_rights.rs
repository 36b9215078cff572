//! Who may read and change a shared name, and what users receive: full names are shortened in answers, and names that a user may
//! not read are left out.
//!
//! A user has the names of their own namespace, those that others share with them, and those that the rules of the grid permit.

use std::collections::{BTreeMap, BTreeSet};

use super::send;
use crate::data::{Catalog, RequestId};
use crate::node::message::{CatalogAnswer, CatalogToClient, ClientToCatalog, NameEntry};
use crate::node::protocol::Effect;
use gridloom_base::limits::SHARED_DATA_PER_MESSAGE;
use gridloom_base::{NameError, NamedDatum, NodeId, Origin, Rules, full_name, name_for, namespace, owner_of};

/// The rights of users to the names in a catalog.
#[derive(Clone, Copy)]
pub(super) struct NameRights<'a> {
    pub(super) catalog: &'a Catalog,
    pub(super) rules: &'a Rules,
}

impl NameRights<'_> {
    /// True if a user may read a name, whether it exists or not.
    pub(super) fn may_read(&self, user: &Origin, name: &str) -> bool {
        let is_shared = || self.catalog.readers(name).is_some_and(|readers| readers.contain(&user.user, self.rules));
        let is_permitted = || self.rules.readable_names(&user.user).any(|pattern| pattern.matches(name));
        user.may_change(&owner_of(name).unwrap_or_default()) || is_shared() || is_permitted()
    }

    /// # Errors
    /// If a user may not read a name.
    pub(super) fn check_reader(&self, user: &Origin, name: &str) -> Result<(), NameError> {
        if self.may_read(user, name) {
            return Ok(());
        }
        let owner = owner_of(name).unwrap_or_default().into_owned();
        Err(NameError::NotShared { name: name.into(), owner, user: user.user.clone() })
    }

    /// Checks that a user may put, share and delete a name.
    ///
    /// # Errors
    /// If it is in the namespace of another user, and the rules do not permit it.
    pub(super) fn check_writer(&self, user: &Origin, name: &str) -> Result<(), NameError> {
        let owner = owner_of(name).unwrap_or_default();
        if user.may_change(&owner) || self.rules.may_write_name(&user.user, name) {
            return Ok(());
        }
        Err(NameError::NotOwner { name: name.into(), owner: owner.into_owned(), user: user.user.clone() })
    }

    /// Returns the error for a name of which no copy is found for this user.
    pub(super) fn not_found(&self, user: &Origin, name: &str) -> NameError {
        let error = self.check_reader(user, name).err().unwrap_or_else(|| self.catalog.not_found(name));
        self.without_foreign(user, error)
    }

    /// Removes similar names that a user may not read from an error.
    pub(super) fn without_foreign(&self, user: &Origin, mut error: NameError) -> NameError {
        if let NameError::Unknown { near, .. } = &mut error {
            near.retain(|name| self.may_read(user, name));
        }
        error
    }

    /// Lists the names of a user, then those of others that the user may read.
    pub(super) fn list(&self, user: &Origin, prefix: &str, after: &str) -> CatalogAnswer {
        let namespace = namespace(&user.user);
        let lists_all = prefix.is_empty();
        let prefix = prefix.strip_prefix(&*namespace).unwrap_or(prefix);
        let (is_foreign, was_foreign) = (prefix.starts_with('~'), after.starts_with('~'));
        let own_prefix = format!("{namespace}{prefix}");
        let own_after = if after.is_empty() { String::new() } else { format!("{namespace}{after}") };
        let own = (!is_foreign && !was_foreign).then(|| self.catalog.list(&own_prefix, &own_after));
        let prefix = if is_foreign { prefix } else { "~" };
        let after = if was_foreign { after } else { "" };
        let (has_foreign, sees_all) = (is_foreign || lists_all, user.may_change_all());
        let all = (has_foreign && sees_all).then(|| self.catalog.list(prefix, after));
        let readable = (has_foreign && !sees_all).then(|| self.readable(user, prefix, after).into_values());
        let foreign = all.into_iter().flatten().chain(readable.into_iter().flatten());
        let foreign = foreign.filter(|(named, _)| !named.name.starts_with(&*namespace));
        let mut listed = own.into_iter().flatten().chain(foreign);
        let of = |(named, holders): (&NamedDatum, &BTreeSet<NodeId>)| NameEntry {
            named: named.clone(),
            owner: named.owner().into_owned(),
            holders: holders.iter().copied().collect(),
        };
        let names = listed.by_ref().take(SHARED_DATA_PER_MESSAGE).map(of).collect();
        CatalogAnswer::Listed { names, has_more: listed.next().is_some() }
    }

    /// Returns the first names that others share with a user or that the rules permit the user to read, one more than fit into a
    /// message.
    fn readable<'b>(&'b self, user: &Origin, prefix: &'b str, after: &str) -> BTreeMap<&'b str, Listed<'b>> {
        let mut first = BTreeMap::new();
        let shared = self.catalog.list_shared(prefix, after);
        add_first(&mut first, shared.filter(|(named, _)| self.may_read(user, &named.name)));
        for pattern in self.rules.readable_names(&user.user) {
            let beginning = pattern.beginning();
            let longer = if beginning.starts_with(prefix) { beginning } else { prefix };
            if longer.starts_with(beginning) {
                let named = self.catalog.list(longer, after);
                add_first(&mut first, named.filter(|(named, _)| pattern.matches(&named.name)));
            }
        }
        first
    }
}

/// The current version of a name, and its holders.
type Listed<'a> = (&'a NamedDatum, &'a BTreeSet<NodeId>);

/// Adds names, which are in order, and keeps the first ones.
fn add_first<'a>(first: &mut BTreeMap<&'a str, Listed<'a>>, listed: impl Iterator<Item = Listed<'a>>) {
    for (named, holders) in listed {
        let is_full = first.len() > SHARED_DATA_PER_MESSAGE;
        if is_full && first.last_key_value().is_some_and(|(last, _)| named.name.as_str() > *last) {
            return;
        }
        first.insert(&named.name, (named, holders));
        if first.len() > SHARED_DATA_PER_MESSAGE + 1 {
            first.pop_last();
        }
    }
}

/// Makes the names in a request full names.
pub(super) fn complete_names(user: &Origin, message: &mut ClientToCatalog) {
    match message {
        ClientToCatalog::Put { name, .. }
        | ClientToCatalog::Find { name, .. }
        | ClientToCatalog::CancelRequest { name, .. }
        | ClientToCatalog::Delete { name, .. }
        | ClientToCatalog::Share { name, .. }
        | ClientToCatalog::Explain { name, .. } => *name = full_name(&user.user, name).into_owned(),
        ClientToCatalog::List { .. }
        | ClientToCatalog::CheckPut { .. }
        | ClientToCatalog::Withdraw { .. }
        | ClientToCatalog::Locate { .. }
        | ClientToCatalog::Reads { .. }
        | ClientToCatalog::Release { .. } => {}
    }
}

/// Answers a request of a user. Names in the namespace of the user are stated without the user.
pub(super) fn answer(
    user: &Origin,
    request: RequestId,
    result: Result<CatalogAnswer, NameError>,
    out: &mut Vec<Effect>,
) {
    let shorten = |name: &mut String| *name = name_for(&user.user, name).to_string();
    let mut answer = result.map_err(|error| error.map_names(|name| name_for(&user.user, name).to_string()));
    match &mut answer {
        Ok(CatalogAnswer::Found { named, .. }) => shorten(&mut named.name),
        Ok(CatalogAnswer::Listed { names, .. }) => names.iter_mut().for_each(|one| shorten(&mut one.named.name)),
        Ok(CatalogAnswer::Explained { versions, .. }) => {
            versions.iter_mut().for_each(|version| shorten(&mut version.named.name));
        }
        Ok(CatalogAnswer::Put | CatalogAnswer::Deleted | CatalogAnswer::Shared) | Err(_) => {}
    }
    send(out, request.client, CatalogToClient::Answer { request: request.number, answer });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::{Content, IdentifierKey};
    use gridloom_base::{Dtype, Meta, Method, RulesGroup, RulesSection, SplitMix64};

    const SERVER: NodeId = NodeId(3);
    const WRITER: RequestId = RequestId { client: NodeId(7), number: 1 };

    fn put(catalog: &mut Catalog, name: &str) {
        let (meta, method) = (Meta::array(Dtype::Uint8, &[5]), Method::Auto);
        let content = Content { meta, is_durable: false, method, made_by: None };
        let datum = catalog.begin(WRITER, name, content, &[SERVER]).datum;
        catalog.stored(SERVER, WRITER.client, datum);
    }

    fn user(name: &str) -> Origin {
        Origin { user: name.into(), ..Origin::default() }
    }

    /// Returns rules of a group `climate` of `anna` that may read these names.
    fn rules(read: &[&str]) -> Rules {
        let read_names = read.iter().map(|pattern| pattern.parse().unwrap()).collect();
        let section = RulesSection { read_names, ..RulesSection::default() };
        let group = RulesGroup { name: "climate".into(), members: vec!["anna".parse().unwrap()], section };
        Rules { groups: vec![group], ..Rules::default() }
    }

    /// Returns all names that a list shows to a user, page by page.
    fn listed(rights: NameRights<'_>, user: &Origin, prefix: &str) -> Vec<String> {
        let (mut all, mut after) = (Vec::new(), String::new());
        loop {
            let CatalogAnswer::Listed { names, has_more } = rights.list(user, prefix, &after) else { unreachable!() };
            assert!(names.len() <= SHARED_DATA_PER_MESSAGE && (!names.is_empty() || !has_more));
            all.extend(names.into_iter().map(|entry| entry.named.name));
            if !has_more {
                return all;
            }
            after.clone_from(all.last().expect("a page with successors has names"));
        }
    }

    #[test]
    fn a_list_has_the_names_that_a_user_may_read_each_once_and_in_order() {
        let mut random = SplitMix64::new(1);
        let mut catalog = Catalog::new(IdentifierKey::default());
        let all: BTreeSet<String> = (0..12_000)
            .map(|number| {
                let owner = ["bert", "climate", "ocean", "public"][random.below(4) as usize];
                format!("~{owner}/run-{}/{number}", random.below(3))
            })
            .collect();
        all.iter().for_each(|name| put(&mut catalog, name));
        for name in &all {
            let readers = ["anna", "group:climate", "dora", "group:gone"][random.below(4) as usize];
            if random.below(3) == 0 {
                catalog.share(name, vec![readers.into()]).unwrap();
            }
        }
        let anna = user("anna");
        for read in [&[][..], &["~climate/*"], &["~climate/run-1/*", "~*/run-*/7*", "~public/*"], &["~*/*"]] {
            let rules = rules(read);
            let rights = NameRights { catalog: &catalog, rules: &rules };
            for prefix in ["", "~climate/", "~climate/run-1/1", "~b"] {
                let is_its = |name: &&String| name.starts_with(prefix) && rights.may_read(&anna, name);
                let expected: Vec<String> = all.iter().filter(is_its).cloned().collect();
                assert_eq!(listed(rights, &anna, prefix), expected, "{read:?} {prefix}");
            }
        }
    }

    #[test]
    fn similar_names_are_those_that_the_user_may_read() {
        let mut catalog = Catalog::new(IdentifierKey::default());
        ["~climate/mesh", "~climate/mush"].into_iter().for_each(|name| put(&mut catalog, name));
        let rules = rules(&["~climate/me*"]);
        let rights = NameRights { catalog: &catalog, rules: &rules };
        let near = |user| match rights.not_found(&user, "~climate/mesj") {
            NameError::Unknown { near, .. } => Some(near),
            _ => None,
        };
        assert_eq!((near(user("anna")), near(user("bert"))), (Some(vec!["~climate/mesh".to_string()]), None));
    }
}
