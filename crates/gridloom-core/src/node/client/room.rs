//! Write-back: if a server has no room for results, the client fetches copies, so that the server can evict its own.

use super::Client;
use crate::node::message::TaskToServer;
use crate::node::protocol::Effect;
use crate::node::{Category, LogLine};
use gridloom_base::{DatumId, Level, NodeId};

impl Client {
    /// Handles a server's request that the client fetch copies of these data.
    pub(super) fn on_make_room(&mut self, from: NodeId, data: Vec<DatumId>, out: &mut Vec<Effect>) {
        for datum in data {
            let Some(run) = self.data.get_mut(&datum) else {
                // The message that releases it is in transit.
                continue;
            };
            run.holders.insert(from);
            if run.here {
                self.contacts.post(from, TaskToServer::HasCopies { data: vec![datum] }, out);
            } else {
                self.supplies.take_home(datum, from);
                self.fetch_here(datum, out);
            }
        }
    }

    /// Handles a server's report that it dropped copies: the client has others, or used more than its share of the
    /// store.
    pub(super) fn on_dropped(&mut self, from: NodeId, data: &[DatumId], out: &mut Vec<Effect>) {
        let mut last_ones = 0;
        for datum in data {
            if let Some(run) = self.data.get_mut(datum) {
                run.holders.remove(&from);
                last_ones += usize::from(run.holders.is_empty() && !run.here);
            }
        }
        if last_ones > 0 {
            let text = format!("a server dropped the last copies of data: {last_ones}");
            let why = "other clients needed their shares of its store; data that are still read are recomputed";
            let line = LogLine::new(Level::Warning, Category::Client, text);
            out.push(line.peer(self.contacts.name_of(from)).why(why).into());
        }
    }

    /// Handles the arrival of a datum: servers that requested the write-back may evict their copies.
    pub(super) fn has_copy(&mut self, datum: DatumId, out: &mut Vec<Effect>) {
        for server in self.supplies.taken_home(datum) {
            self.contacts.post(server, TaskToServer::HasCopies { data: vec![datum] }, out);
        }
    }

    /// Handles a datum that cannot arrive.
    pub(super) fn has_no_copy(&mut self, datum: DatumId, out: &mut Vec<Effect>) {
        for server in self.supplies.taken_home(datum) {
            self.contacts.post(server, TaskToServer::CannotCopy { data: vec![datum] }, out);
        }
    }
}
