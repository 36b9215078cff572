//! Chares that are parked, since too much of what they sent waits for credit; and elements that wait for one another in a circle.
//!
//! What comes for a parked chare waits for it, and others run. An element that lacks credit is *blocked* here if this element holds all of its
//! messages for parked chares: it gets no credit before one of these goes on, whatever else runs here. This element asks the elements for which
//! these chares wait. One at which this element is blocked passes the question on. A question that comes back has gone round a circle of
//! elements of which none can go on by itself. Then the one that asked lets those chares send more.
//!
//! A circle closes where an element becomes blocked last, so a question is asked each time that one does.
//!
//! Source: K. M. Chandy, J. Misra, L. M. Haas, *Distributed deadlock detection*, ACM TOCS 1983 (communication model, without replies: a circle
//! that was none costs memory at the sender).

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::id::{ArrayId, Pe};

/// A chare, by array and slot.
pub(crate) type At = (ArrayId, u32);

#[derive(Debug, Default)]
struct Parked {
    /// The elements that it waits for to give credit.
    on: BTreeSet<Pe>,
    /// Those with messages that wait for it.
    senders: BTreeSet<Pe>,
}

/// What the elements of a circle pass on.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub(crate) struct Question {
    /// The element that asks.
    pub(crate) by: Pe,
    /// The element that is blocked at it.
    pub(crate) blocked: Pe,
    /// Later ones have greater numbers.
    pub(crate) number: u64,
}

#[derive(Debug, Default)]
pub(crate) struct Parking {
    parked: BTreeMap<At, Parked>,
    /// What has come for parked chares.
    held: usize,
    questions: u64,
    /// The last question about each blocked element.
    asked: BTreeMap<Pe, u64>,
    /// The last question of each element about each blocked one, and the elements that it was passed on to.
    passed_on: BTreeMap<(Pe, Pe), (u64, BTreeSet<Pe>)>,
}

impl Parking {
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.parked.is_empty()
    }

    pub(crate) fn is_parked(&self, at: At) -> bool {
        self.parked.contains_key(&at)
    }

    pub(crate) fn park(&mut self, at: At, on: Vec<Pe>) {
        if !on.is_empty() {
            self.parked.entry(at).or_default().on.extend(on);
        }
    }

    /// Something more waits for that parked chare; of that element, if of another one.
    pub(crate) fn hold(&mut self, at: At, sender: Option<Pe>) {
        self.held += 1;
        if let (Some(sender), Some(parked)) = (sender, self.parked.get_mut(&at)) {
            parked.senders.insert(sender);
        }
    }

    pub(crate) fn held(&self) -> usize {
        self.held
    }

    /// That chare is parked no more, and so many messages wait for it in the queue again.
    pub(crate) fn free(&mut self, at: At, held: usize) {
        self.parked.remove(&at);
        self.held -= held;
    }

    /// The chares that wait for nobody's credit but that element's.
    pub(crate) fn relieved(&mut self, of: Pe) -> Vec<At> {
        self.parked.values_mut().for_each(|parked| _ = parked.on.remove(&of));
        self.parked.iter().filter(|(_, parked)| parked.on.is_empty()).map(|(at, _)| *at).collect()
    }

    fn with_messages_of(&self, sender: Pe) -> impl Iterator<Item = (&At, &Parked)> {
        self.parked.iter().filter(move |(_, parked)| parked.senders.contains(&sender))
    }

    /// The chares for which messages of that element wait.
    pub(crate) fn holders(&self, sender: Pe) -> Vec<At> {
        self.with_messages_of(sender).map(|(at, _)| *at).collect()
    }

    /// The elements that these chares wait for to give credit.
    pub(crate) fn waits_for(&self, sender: Pe) -> BTreeSet<Pe> {
        self.with_messages_of(sender).flat_map(|(_, parked)| parked.on.iter().copied()).collect()
    }

    /// A new question of this element, at which that one is blocked.
    pub(crate) fn ask(&mut self, me: Pe, blocked: Pe) -> Question {
        self.questions += 1;
        self.asked.insert(blocked, self.questions);
        Question { by: me, blocked, number: self.questions }
    }

    /// Whether this element's question, which has come back, is the last one about that element. It is asked no more.
    pub(crate) fn take_answer(&mut self, question: Question) -> bool {
        let is_last = self.asked.get(&question.blocked) == Some(&question.number);
        if is_last {
            self.asked.remove(&question.blocked);
        }
        is_last
    }

    /// Those of these elements that a question is to be passed on to. An element's own comes to it again where another one is blocked.
    pub(crate) fn pass_on(&mut self, question: Question, to: BTreeSet<Pe>) -> Vec<Pe> {
        let (last, told) = self.passed_on.entry((question.by, question.blocked)).or_default();
        if question.number < *last {
            return Vec::new();
        }
        if question.number > *last {
            (*last, *told) = (question.number, BTreeSet::new());
        }
        to.into_iter().filter(|element| told.insert(*element)).collect()
    }
}
