//! Results that servers have no room for come here, so that their copies there can make way.

use super::Client;
use crate::node::message::TaskToServer;
use crate::node::protocol::Effect;
use crate::node::{Category, LogLine};
use gridloom_base::{DatumId, Level, NodeId};

impl Client {
    /// A server wants the client to have copies of these.
    pub(super) fn on_make_room(&mut self, from: NodeId, data: Vec<DatumId>, out: &mut Vec<Effect>) {
        for datum in data {
            let Some(run) = self.data.get_mut(&datum) else {
                // Its release is on its way.
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

    /// A server has given up its copies: the client has others, or held more than its share of the store.
    pub(super) fn on_dropped(&mut self, from: NodeId, data: &[DatumId], out: &mut Vec<Effect>) {
        let mut last_ones = 0;
        for datum in data {
            if let Some(run) = self.data.get_mut(datum) {
                run.holders.remove(&from);
                last_ones += usize::from(run.holders.is_empty() && !run.here);
            }
        }
        if last_ones > 0 {
            let text = format!("a server dropped data of which no other copy is left: {last_ones}");
            let why = "other clients needed their shares of its store; what is read is computed again";
            let line = LogLine::new(Level::Warning, Category::Client, text);
            out.push(line.peer(self.contacts.name_of(from)).why(why).into());
        }
    }

    /// A datum has come: servers that wanted that may give up their copies.
    pub(super) fn has_copy(&mut self, datum: DatumId, out: &mut Vec<Effect>) {
        for server in self.supplies.taken_home(datum) {
            self.contacts.post(server, TaskToServer::HasCopies { data: vec![datum] }, out);
        }
    }

    /// A datum cannot come.
    pub(super) fn has_no_copy(&mut self, datum: DatumId, out: &mut Vec<Effect>) {
        for server in self.supplies.taken_home(datum) {
            self.contacts.post(server, TaskToServer::HasNoCopies { data: vec![datum] }, out);
        }
    }
}
