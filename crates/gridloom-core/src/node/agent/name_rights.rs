//! Who may read and change a shared name, and what users receive: full names are shortened in answers, and names that a user may
//! not read are left out.

use std::collections::BTreeSet;

use super::send;
use crate::data::{Catalog, RequestId};
use crate::node::message::{CatalogAnswer, CatalogToClient, ClientToCatalog, NameEntry};
use crate::node::protocol::Effect;
use gridloom_base::limits::SHARED_DATA_PER_MESSAGE;
use gridloom_base::{NameError, NamedDatum, NodeId, Origin, full_name, name_for, namespace, owner_of};

/// The rights of users to the names in a catalog.
#[derive(Clone, Copy)]
pub(super) struct NameRights<'a> {
    pub(super) catalog: &'a Catalog,
}

impl NameRights<'_> {
    /// True if a user may read a name, whether it exists or not.
    pub(super) fn may_read(&self, user: &Origin, name: &str) -> bool {
        check_owner(user, name).is_ok() || self.catalog.is_shared_with(name, &user.user)
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
        let shared = (has_foreign && !sees_all).then(|| self.catalog.list_shared(prefix, after));
        let foreign = all.into_iter().flatten().chain(shared.into_iter().flatten());
        let is_readable = |named: &NamedDatum| !named.name.starts_with(&*namespace) && self.may_read(user, &named.name);
        let foreign = foreign.filter(|(named, _)| is_readable(named));
        let mut listed = own.into_iter().flatten().chain(foreign);
        let of = |(named, holders): (&NamedDatum, &BTreeSet<NodeId>)| NameEntry {
            named: named.clone(),
            owner: named.owner().into_owned(),
            holders: holders.iter().copied().collect(),
        };
        let names = listed.by_ref().take(SHARED_DATA_PER_MESSAGE).map(of).collect();
        CatalogAnswer::Listed { names, has_more: listed.next().is_some() }
    }
}

/// Checks that a user may put, share and delete a name.
///
/// # Errors
/// If it is in the namespace of another user.
pub(super) fn check_owner(user: &Origin, name: &str) -> Result<(), NameError> {
    let owner = owner_of(name).unwrap_or_default();
    if user.may_change(&owner) {
        return Ok(());
    }
    Err(NameError::NotOwner { name: name.into(), owner: owner.into_owned(), user: user.user.clone() })
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
