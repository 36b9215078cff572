//! Requests plans from the agent.

use gridloom_core::graph;
use gridloom_core::node::Command;
use gridloom_map::MappingMethod;

use crate::Error;
use crate::plan::PlanRecord;
use crate::session::Session;

/// Returns the plan for a group; nothing is run.
pub(crate) fn plan(session: &Session, group: graph::Group, heuristic: MappingMethod) -> Result<PlanRecord, Error> {
    let id = group.id;
    let plan = ask_for_plan(session, group, heuristic, false);
    session.state().groups.take_record(id);
    plan
}

/// Like [`plan`], for a declared group. Its calls are made one by one until the plan is ended. The group is remembered for
/// the report.
pub(crate) fn plan_declared(
    session: &Session,
    group: graph::Group,
    heuristic: MappingMethod,
) -> Result<PlanRecord, Error> {
    let id = group.id;
    let plan = ask_for_plan(session, group, heuristic, true);
    let mut state = session.state();
    match &plan {
        Ok(_) => state.groups.only_planned(id),
        Err(_) => drop(state.groups.take_record(id)),
    }
    plan
}

/// Maps the remaining calls of a declared group again. If that fails, its previous plan stays in use.
pub(crate) fn plan_again(session: &Session, left: graph::Group, heuristic: MappingMethod) -> Result<PlanRecord, Error> {
    let id = left.id;
    let former = session.state().groups.take_record(id);
    let plan = ask_for_plan(session, left, heuristic, true);
    session.state().groups.planned_again(id, former);
    plan
}

fn ask_for_plan(
    session: &Session,
    group: graph::Group,
    heuristic: MappingMethod,
    is_incremental: bool,
) -> Result<PlanRecord, Error> {
    let id = group.id;
    session.state().groups.begin_plan(&group);
    session.command(Command::Plan { group, heuristic, is_incremental });
    let plan = session.wait(None, |state| state.groups.take_plan(id))??;
    Ok(PlanRecord { client_memory_bytes: session.memory_bytes(), ..plan })
}
