//! Runs groups, and calls at planned places.

use std::collections::BTreeMap;

use gridloom_base::{DatumId, GroupId, NodeId};
use gridloom_core::graph;
use gridloom_core::node::Command;
use gridloom_map::MappingMethod;

use crate::session::Session;

/// Where a call runs, and from where its inputs are sent according to the plan.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct PlannedCall {
    pub(crate) server: NodeId,
    pub(crate) from: BTreeMap<DatumId, NodeId>,
}

/// Maps and runs a group. Then releases those data.
pub(crate) fn run(session: &Session, group: graph::Group, heuristic: MappingMethod, release: Vec<DatumId>) {
    remember(session, &group, None);
    session.commands(vec![Command::Run { group, heuristic }, Command::Release { data: release }]);
}

/// Runs a call at its place in the plan of a declared group.
pub(crate) fn run_planned(
    session: &Session,
    group: graph::Group,
    call: PlannedCall,
    heuristic: MappingMethod,
    plan: GroupId,
) {
    remember(session, &group, Some(plan));
    let PlannedCall { server, from } = call;
    session.command(Command::RunPlanned { group, server, from, heuristic, plan: Some(plan) });
}

/// Starts to record the group's events for its report.
fn remember(session: &Session, group: &graph::Group, plan: Option<GroupId>) {
    session.without_dropped_groups().groups.remember(group, plan);
}
