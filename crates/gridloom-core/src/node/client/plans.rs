//! Plans of groups: which groups wait for a plan, which requests the agent has not answered, and when a group is
//! mapped again.
//!
//! A group that is run has a record here until its graph forgets it. A group that is only planned has one from its
//! request until the answer.
//!
//! **Invariants.** A group has at most one mapping request: tasks that have to be mapped again are added to it, and an
//! answer to an earlier one is void. A request that waits has not been sent, or was lost with the agent.

use std::collections::{BTreeMap, BTreeSet};

use super::poison::LossCounter;
use super::remapping::{Remapping, is_static_heuristic};
use crate::graph::Group;
use crate::node::message::Purpose;
use gridloom_base::{DatumId, GroupId, NodeId, TaskId, Time};
use gridloom_map::MappingMethod;
use gridloom_perf::LinkModel;

/// See the module's documentation.
#[derive(Debug, Default)]
pub(super) struct Plans {
    groups: BTreeMap<GroupId, GroupPlan>,
    /// Groups to be planned once the links are measured and their inputs have a location.
    early: Vec<Question>,
    /// Declared groups whose plan may be renewed.
    renewable: BTreeSet<GroupId>,
    /// Number of the last mapping request.
    round: u64,
}

#[derive(Debug)]
struct GroupPlan {
    heuristic: MappingMethod,
    /// True if the caller gave the plan of its first mapping.
    is_given: bool,
    mapping: Option<Mapping>,
    /// Set if the group is only planned and not run. Kept because the request may have to be repeated.
    plan_request: Option<Box<Question>>,
    remapping: Remapping,
    /// The declared group whose plan it follows.
    plan_of: Option<GroupId>,
}

impl GroupPlan {
    fn new(heuristic: MappingMethod) -> GroupPlan {
        let (mapping, plan_request, remapping) = (None, None, Remapping::default());
        GroupPlan { heuristic, is_given: false, mapping, plan_request, remapping, plan_of: None }
    }
}

/// A mapping request that was sent, or waits to be sent.
#[derive(Debug)]
pub(super) struct Mapping {
    pub(super) round: u64,
    pub(super) asked: Option<Time>,
    pub(super) tasks: Vec<TaskId>,
    pub(super) data: Vec<DatumId>,
    /// Names of shared data that functions get and put, by index in `data`.
    pub(super) names: BTreeMap<u32, String>,
    /// Losses of the agent while this plan was requested, since the last answer.
    pub(super) vain: LossCounter,
}

/// A group that is only planned and not run.
#[derive(Debug)]
pub(super) struct Question {
    pub(super) group: Group,
    pub(super) heuristic: MappingMethod,
    pub(super) purpose: Purpose,
    /// See [`Mapping`].
    pub(super) vain: LossCounter,
}

/// A mapping request that waits to be sent.
pub(super) enum Waiting {
    Early(Question),
    Group(GroupId),
}

impl Plans {
    // ---- groups

    /// Adds a group that is run. `follows` is the declared group whose plan it follows.
    pub(super) fn add(&mut self, group: GroupId, heuristic: MappingMethod, is_given: bool, follows: Option<GroupId>) {
        self.groups.insert(group, GroupPlan { is_given, plan_of: follows, ..GroupPlan::new(heuristic) });
    }

    pub(super) fn forget(&mut self, group: GroupId) {
        self.groups.remove(&group);
    }

    pub(super) fn has(&self, group: GroupId) -> bool {
        self.groups.contains_key(&group)
    }

    /// Returns the numbers of groups, and of groups to be planned later.
    pub(super) fn len(&self) -> (usize, usize) {
        (self.groups.len(), self.early.len())
    }

    /// Returns the number of groups that wait for a plan.
    pub(super) fn waiting(&self) -> usize {
        self.groups.values().filter(|run| run.mapping.is_some()).count() + self.early.len()
    }

    /// Returns the groups that follow the plan of that declared group.
    pub(super) fn following(&self, plan: GroupId) -> impl Iterator<Item = GroupId> {
        self.groups.iter().filter(move |(_, run)| run.plan_of == Some(plan)).map(|(group, _)| *group)
    }

    /// Returns whether tasks of a group may move to servers other than the planned ones, if the group is known.
    pub(super) fn may_move(&self, group: GroupId) -> Option<bool> {
        self.groups.get(&group).map(|run| !run.is_given && !is_static_heuristic(&run.heuristic))
    }

    /// True if a group neither waits for a plan nor has recalled tasks.
    pub(super) fn is_settled(&self, group: GroupId) -> bool {
        self.groups.get(&group).is_some_and(|run| run.mapping.is_none() && !run.remapping.is_asked())
    }

    // ---- requests

    /// Adds tasks of a group to its request, which has to be sent again. A plan in progress becomes void.
    pub(super) fn request(&mut self, group: GroupId, tasks: Vec<TaskId>) {
        let Some(run) = self.groups.get_mut(&group) else { return };
        let (waiting, vain) = run.mapping.take().map_or_else(Default::default, |mapping| (mapping.tasks, mapping.vain));
        let tasks: BTreeSet<TaskId> = tasks.into_iter().chain(waiting).collect();
        let (tasks, data, names) = (tasks.into_iter().collect(), Vec::new(), BTreeMap::new());
        run.mapping = Some(Mapping { round: 0, asked: None, tasks, data, names, vain });
    }

    /// Removes and returns the request of a group.
    pub(super) fn take(&mut self, group: GroupId) -> Option<Mapping> {
        self.groups.get_mut(&group)?.mapping.take()
    }

    /// Puts back the request of a group that was taken.
    pub(super) fn put_back(&mut self, group: GroupId, mapping: Mapping) {
        self.groups.get_mut(&group).expect("its request was taken").mapping = Some(mapping);
    }

    /// Returns the number of the next request.
    pub(super) fn next_round(&mut self) -> u64 {
        self.round += 1;
        self.round
    }

    /// Returns how a group is mapped now. It is mapped by the heuristic when it is mapped again.
    pub(super) fn take_heuristic(&mut self, group: GroupId) -> MappingMethod {
        self.groups.get_mut(&group).expect("its request was taken").heuristic.take()
    }

    /// True if an answer belongs to the last mapping request of that group.
    pub(super) fn is_current(&self, group: GroupId, round: u64) -> bool {
        let mapping = self.groups.get(&group).and_then(|run| run.mapping.as_ref());
        mapping.is_some_and(|mapping| mapping.asked.is_some() && mapping.round == round)
    }

    /// Returns the requests that wait, those that were lost least often with the agent first, and of these the groups
    /// that are only planned.
    pub(super) fn take_waiting(&mut self) -> Vec<Waiting> {
        let early = std::mem::take(&mut self.early).into_iter();
        let waiting = self.groups.iter().filter_map(|(id, run)| Some((*id, run.mapping.as_ref()?)));
        let waiting = waiting.filter(|(_, mapping)| mapping.asked.is_none());
        let waiting = waiting.map(|(id, mapping)| (mapping.vain.count(), Waiting::Group(id)));
        let early = early.map(|question| (question.vain.count(), Waiting::Early(question)));
        let mut waiting: Vec<(u32, Waiting)> = early.chain(waiting).collect();
        waiting.sort_by_key(|(losses, _)| *losses);
        waiting.into_iter().map(|(_, waiting)| waiting).collect()
    }

    // ---- groups that are only planned

    /// Keeps a group that cannot be planned yet.
    pub(super) fn plan_later(&mut self, question: Question) {
        self.early.push(question);
    }

    /// Adds the request of a group that is only planned.
    pub(super) fn ask(&mut self, question: Question, mapping: Mapping) {
        let (group, heuristic) = (question.group.id, question.heuristic.clone());
        let (mapping, question) = (Some(mapping), Some(Box::new(question)));
        self.groups.insert(group, GroupPlan { mapping, plan_request: question, ..GroupPlan::new(heuristic) });
    }

    /// Records how often a request that is sent was lost.
    pub(super) fn set_losses(&mut self, group: GroupId, vain: LossCounter) {
        if let Some(mapping) = self.groups.get_mut(&group).and_then(|run| run.mapping.as_mut()) {
            mapping.vain = vain;
        }
    }

    /// Records that a group which is only planned has its plan. Returns false if the group is run.
    pub(super) fn answered(&mut self, group: GroupId) -> bool {
        let Some(question) = self.take_question(group) else { return false };
        if question.purpose == Purpose::Reserve && !is_static_heuristic(&question.heuristic) {
            self.renewable.insert(group);
        }
        true
    }

    /// True if calls follow the plan of that declared group, and it may be renewed.
    pub(super) fn is_renewable(&self, group: GroupId) -> bool {
        self.renewable.contains(&group)
    }

    /// Records that no more calls will follow the plan of a declared group.
    pub(super) fn end(&mut self, group: GroupId) {
        self.forget(group);
        self.renewable.remove(&group);
    }

    /// Removes and returns a group that is only planned, if it is one.
    pub(super) fn take_question(&mut self, group: GroupId) -> Option<Question> {
        let question = self.groups.get_mut(&group)?.plan_request.take()?;
        self.groups.remove(&group);
        Some(*question)
    }

    // ---- agents that are lost or cannot map

    /// Records that the agent is lost: the requests that it had wait again. Returns those that were lost too often.
    ///
    /// An agent that is lost repeatedly with the same request may be lost because of it.
    pub(super) fn agent_lost(&mut self) -> Vec<GroupId> {
        let (mut given_up, mut questions) = (Vec::new(), Vec::new());
        for (id, run) in &mut self.groups {
            let Some(mapping) = run.mapping.as_mut().filter(|mapping| mapping.asked.is_some()) else { continue };
            mapping.asked = None;
            if mapping.vain.lose() {
                given_up.push(*id);
            } else if let Some(question) = &mut run.plan_request {
                question.vain = mapping.vain;
                questions.push(*id);
            }
        }
        for id in questions {
            let question = self.take_question(id);
            self.early.extend(question);
        }
        given_up
    }

    /// Has a group that cannot be mapped on the available servers wait for others. Returns false if it is only planned.
    pub(super) fn wait_for_nodes(&mut self, group: GroupId) -> bool {
        let run = self.groups.get_mut(&group).filter(|run| run.plan_request.is_none());
        let Some(mapping) = run.and_then(|run| run.mapping.as_mut()) else { return false };
        mapping.asked = None;
        mapping.vain = LossCounter::default();
        true
    }

    /// Handles the agent's answer to a ping: it has read the requests before it.
    pub(super) fn agent_has_read(&mut self, token: u64) {
        for mapping in self.groups.values_mut().filter_map(|run| run.mapping.as_mut()) {
            mapping.vain.answer(token);
        }
    }

    /// True if a suspect is pending, so that no other one may be sent.
    pub(super) fn awaits_suspect(&self) -> bool {
        let mut mappings = self.groups.values().filter_map(|run| run.mapping.as_ref());
        mappings.any(|mapping| mapping.asked.is_some() && mapping.vain.is_awaited())
    }

    /// True if a suspect waits to be sent.
    pub(super) fn has_waiting_suspect(&self) -> bool {
        let mut mappings = self.groups.values().filter_map(|run| run.mapping.as_ref());
        mappings.any(|mapping| mapping.asked.is_none() && mapping.vain.is_suspect())
            || self.early.iter().any(|question| question.vain.is_suspect())
    }

    // ---- mapping again

    /// Returns the remapping state of a group.
    pub(super) fn remapping(&mut self, group: GroupId) -> Option<&mut Remapping> {
        self.groups.get_mut(&group).map(|run| &mut run.remapping)
    }

    /// Returns the remapping state of a group whose plan may be replaced now.
    pub(super) fn to_remap(&self, now: Time, group: GroupId) -> Option<&Remapping> {
        let run = self.groups.get(&group)?;
        // A caller that gives a plan wants that plan.
        let is_steadfast = run.is_given || is_static_heuristic(&run.heuristic);
        let is_idle = run.mapping.is_none() && !run.remapping.is_asked() && run.plan_request.is_none();
        Some(&run.remapping).filter(|remapping| is_idle && !is_steadfast && !remapping.is_paused(now))
    }

    /// Returns the groups that have recalled tasks from a server.
    pub(super) fn recalled_from(&self, server: NodeId) -> Vec<GroupId> {
        self.groups.iter().filter(|(_, run)| run.remapping.is_asked_of(server)).map(|(id, _)| *id).collect()
    }

    /// Records another estimate of the link to a server. Returns the groups whose plans are based on another one, each
    /// with the factor between the two.
    pub(super) fn link_changed(&mut self, server: NodeId, model: &LinkModel) -> Vec<(GroupId, f64)> {
        let groups = self.groups.iter_mut();
        groups.filter_map(|(group, run)| Some((*group, run.remapping.link_changed(server, model)?))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GROUP: GroupId = GroupId { client: NodeId(9), serial: 1 };

    fn id(serial: u64) -> TaskId {
        TaskId { client: NodeId(9), serial }
    }

    fn plans() -> Plans {
        let mut plans = Plans::default();
        plans.add(GROUP, "heft".into(), false, None);
        plans
    }

    /// Marks the request of the group as sent.
    fn send(plans: &mut Plans) -> u64 {
        let round = plans.next_round();
        let mapping = plans.take(GROUP).expect("it has a request");
        plans.put_back(GROUP, Mapping { round, asked: Some(Time(1)), ..mapping });
        round
    }

    #[test]
    fn tasks_that_are_added_to_a_request_make_its_answer_void() {
        let mut plans = plans();
        plans.request(GROUP, vec![id(2)]);
        let round = send(&mut plans);
        assert!(plans.is_current(GROUP, round) && plans.take_waiting().is_empty());
        plans.request(GROUP, vec![id(1)]);
        assert!(!plans.is_current(GROUP, round) && !plans.is_settled(GROUP));
        assert_eq!(plans.take_waiting().len(), 1);
        assert_eq!(plans.take(GROUP).unwrap().tasks, [id(1), id(2)]);
        assert!(plans.is_settled(GROUP));
    }

    #[test]
    fn a_request_that_was_lost_with_the_agent_waits_again() {
        let mut plans = plans();
        plans.request(GROUP, vec![id(1)]);
        let round = send(&mut plans);
        assert!(plans.agent_lost().is_empty() && plans.has_waiting_suspect());
        assert!(!plans.is_current(GROUP, round));
        assert!(plans.agent_lost().is_empty(), "it was not sent again");
    }

    #[test]
    fn a_group_that_is_only_planned_is_forgotten_when_it_is_answered() {
        let mut plans = Plans::default();
        let group = Group { id: GROUP, tasks: Vec::new(), sources: BTreeMap::new(), wanted: Vec::new() };
        let (heuristic, vain) = (MappingMethod::from("heft"), LossCounter::default());
        let (data, names) = (Vec::new(), BTreeMap::new());
        let mapping = Mapping { round: plans.next_round(), asked: Some(Time(1)), tasks: Vec::new(), data, names, vain };
        plans.ask(Question { group, heuristic, purpose: Purpose::PlanOnly, vain }, mapping);
        assert!(!plans.wait_for_nodes(GROUP) && plans.to_remap(Time(1), GROUP).is_none());
        assert!(plans.agent_lost().is_empty());
        assert_eq!(plans.len(), (0, 1), "it is planned by the next agent");
        assert!(plans.take_question(GROUP).is_none());
    }
}
