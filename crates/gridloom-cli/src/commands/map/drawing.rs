//! The plan of a recorded workflow as a drawing.

use std::collections::BTreeSet;

use gridloom::{TaskRecord, TransferRecord, gantt_svg};
use gridloom_workflows::{Case, Evaluated, WorkflowTask};

use super::super::count;

/// Draws servers over time and, for model m2, the links on which files are copied.
pub fn svg(case: &Case<'_>, found: &Evaluated, by: &str) -> String {
    let workflow = case.workflow;
    let digits = case.servers.len().saturating_sub(1).to_string().len();
    // Padded, so that ten or more servers are sorted by number.
    let place = |place: u32| match place as usize {
        client if client == case.servers.len() => "client".to_string(),
        server => format!("server {server:0digits$}"),
    };
    let task = |(number, task): (usize, &WorkflowTask)| TaskRecord {
        task: [task.id.as_str(), task.name.as_str()].join(" ").trim_end().to_string(),
        function: kind(task).to_string(),
        server: place(found.plan.servers[number]),
        start_seconds: found.plan.start_s[number],
        end_seconds: found.end_s[number],
        error: None,
    };
    let tasks: Vec<TaskRecord> = workflow.tasks.iter().enumerate().map(task).collect();
    let copies = found.copies.iter().map(|copy| TransferRecord {
        datum: workflow.files[copy.datum as usize].name.clone(),
        from: place(copy.from),
        to: place(copy.to),
        size_bytes: workflow.files[copy.datum as usize].size_bytes,
        start_seconds: copy.start_s,
        end_seconds: copy.end_s,
    });
    let title = format!(
        "{} by {by}, model {}: {:.4} s, at least {:.4} s",
        count(tasks.len(), "task"),
        format!("{:?}", case.model).to_lowercase(),
        found.makespan_s,
        case.lower_bound_s()
    );
    gantt_svg(&title, &tasks, &copies.collect::<Vec<_>>(), &BTreeSet::new())
}

/// Returns the name that decides the colour: without the number that distinguishes tasks of the same kind, as in
/// `mProject_ID0000001`.
fn kind(task: &WorkflowTask) -> &str {
    let name = if task.name.is_empty() { &task.id } else { &task.name };
    let kind = name.trim_end_matches(|c: char| c.is_ascii_digit());
    let kind = kind.strip_suffix("_ID").unwrap_or(kind).trim_end_matches(['_', '-', '.']);
    if kind.is_empty() { name } else { kind }
}
