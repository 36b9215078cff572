//! Repeated puts of one name by the same call: the call runs again after its server was lost, perhaps while the first
//! run continues, or it starts two puts itself.
//!
//! Equal puts count as one. If two puts differ while the first is in progress, the put of the call's later run wins;
//! within one run the first wins.

use gridloom_base::{DatumId, NameError, NamedDatum, PutOrigin};

use super::version::Version;
use super::{Catalog, CatalogUpdate, Content, RequestId};

/// Puts of one call that may wait for its first put of a name. Each is a request of a client.
const JOINED_MAX: usize = 1024;

impl Catalog {
    /// True if an earlier run of the call has put that name with the same content and at least as many replicas.
    ///
    /// # Errors
    /// [`NameError::ContentDiffers`] if the content differs.
    pub fn has_put(&self, name: &str, content: &Content, replicas: u16) -> Result<bool, NameError> {
        let current = self.current.get(name).map(|datum| &self.versions[datum]);
        let current = current.filter(|version| !version.holders.is_empty()).map(|version| &version.named);
        match (current.and_then(|named| named.put_by), content.made_by) {
            (Some(before), Some(now)) if before.task == now.task && before.digest != now.digest => {
                Err(NameError::ContentDiffers { name: name.into() })
            }
            (Some(before), Some(now)) => {
                Ok(before == now && current.is_some_and(|named| is_as_safe(named, content, replicas)))
            }
            _ => Ok(false),
        }
    }

    /// Joins the request to a put in progress of the same call, name and content, if that is at least as safe. Returns
    /// true if it joined: the request then ends with that put.
    ///
    /// # Errors
    /// [`NameError::ContentDiffers`] if the same run of the call puts something else.
    pub fn join_put(
        &mut self,
        question: RequestId,
        name: &str,
        content: &Content,
        replicas: u16,
    ) -> Result<bool, NameError> {
        let Some(datum) = self.put_in_progress(name, content.made_by) else { return Ok(false) };
        let version = self.versions.get_mut(&datum).expect("it was found above");
        let is_same = version.named.put_by == content.made_by;
        if is_same && is_as_safe(&version.named, content, replicas) && version.joined.len() < JOINED_MAX {
            version.joined.push(question);
            return Ok(true);
        }
        let is_one_run = version.put_request().is_some_and(|first| first.client == question.client);
        if is_one_run && !is_same { Err(NameError::ContentDiffers { name: name.into() }) } else { Ok(false) }
    }

    /// Returns a version that an earlier run of the call is still putting through another client.
    pub fn put_of_earlier_run(&self, question: RequestId, name: &str, made_by: Option<PutOrigin>) -> Option<DatumId> {
        let is_earlier =
            |datum: &DatumId| self.versions[datum].put_request().is_some_and(|first| first.client != question.client);
        self.put_in_progress(name, made_by).filter(is_earlier)
    }

    /// Returns the version that a call is putting under a name.
    fn put_in_progress(&self, name: &str, made_by: Option<PutOrigin>) -> Option<DatumId> {
        let task = made_by?.task;
        let is_its = |version: &&Version| version.named.put_by.is_some_and(|maker| maker.task == task);
        self.versions_of(name).filter(|version| version.is_being_put()).find(is_its).map(|version| version.named.datum)
    }
}

impl Version {
    /// Returns the update for the puts that joined this one, once it has succeeded or failed.
    pub(super) fn joined_update(&self, is_put: bool) -> Option<CatalogUpdate> {
        let (name, place, joined) = (self.named.name.clone(), self.place, self.joined.clone());
        (!joined.is_empty()).then_some(CatalogUpdate::Joined { name, place, joined, is_put })
    }
}

fn is_as_safe(named: &NamedDatum, content: &Content, replicas: u16) -> bool {
    named.replicas >= replicas && named.is_durable >= content.is_durable
}

#[cfg(test)]
mod tests {
    use gridloom_base::{Dtype, Meta, NodeId, TaskId};

    use super::super::Stored;
    use super::*;

    const SERVER: NodeId = NodeId(3);
    const FIRST: RequestId = RequestId { client: NodeId(7), number: 1 };
    const AGAIN: RequestId = RequestId { client: NodeId(7), number: 2 };
    const LATER_RUN: RequestId = RequestId { client: NodeId(8), number: 1 };

    fn content(digest: u8) -> Content {
        let made_by = Some(PutOrigin { task: TaskId { client: NodeId(1), serial: 5 }, digest: [digest; 32] });
        Content {
            meta: Meta::array(Dtype::Uint8, &[5]),
            is_durable: false,
            method: gridloom_base::Method::Auto,
            made_by,
        }
    }

    fn joined(joined: Vec<RequestId>, is_put: bool) -> CatalogUpdate {
        CatalogUpdate::Joined { name: "mesh".into(), place: SERVER, joined, is_put }
    }

    fn coming() -> (Catalog, DatumId) {
        let mut catalog = Catalog::new(Default::default());
        let datum = catalog.begin(FIRST, "mesh", content(1), &[SERVER]).datum;
        (catalog, datum)
    }

    #[test]
    fn equal_puts_of_a_call_end_together() {
        let (mut catalog, datum) = coming();
        assert_eq!(catalog.join_put(AGAIN, "mesh", &content(1), 1), Ok(true));
        assert_eq!(catalog.join_put(LATER_RUN, "mesh", &content(1), 1), Ok(true));
        assert_eq!(catalog.join_put(LATER_RUN, "other", &content(1), 1), Ok(false));
        assert_eq!(catalog.join_put(AGAIN, "mesh", &content(1), 2), Ok(false), "it is to be safer");
        assert!(matches!(catalog.stored(SERVER, FIRST.client, datum), Stored::Whole { by: FIRST, .. }));
        assert_eq!(catalog.take_updates(), [joined(vec![AGAIN, LATER_RUN], true)]);
        catalog.check().unwrap();
    }

    #[test]
    fn requests_that_joined_a_put_are_answered_when_it_ends() {
        let (mut catalog, datum) = coming();
        catalog.join_put(LATER_RUN, "mesh", &content(1), 1).unwrap();
        catalog.withdraw(FIRST.client, datum);
        let news = catalog.take_updates();
        assert!(news.contains(&joined(vec![LATER_RUN], false)), "{news:?}");
        catalog.check().unwrap();
    }

    #[test]
    fn of_puts_that_differ_one_holds() {
        let (mut catalog, datum) = coming();
        assert_eq!(
            catalog.join_put(AGAIN, "mesh", &content(2), 1),
            Err(NameError::ContentDiffers { name: "mesh".into() })
        );
        assert_eq!(catalog.put_of_earlier_run(AGAIN, "mesh", content(2).made_by), None, "the first put continues");
        assert_eq!(catalog.join_put(LATER_RUN, "mesh", &content(2), 1), Ok(false));
        assert_eq!(catalog.put_of_earlier_run(LATER_RUN, "mesh", content(2).made_by), Some(datum));
        assert_eq!(catalog.put_of_earlier_run(LATER_RUN, "mesh", None), None);
    }
}
