//! A group's execution as an HTML page: Gantt charts of tasks and transfers, predicted above measured or simulated.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use super::Report;
use crate::plan::{Gantt, PlanRecord, colours};

/// Makes the page: one chart for each plan, and one for the measured or simulated run, on the same scale.
pub fn timeline_html(title: &str, report: &Report) -> String {
    let planned_end = |plan: &PlanRecord| plan.makespan_seconds;
    let end_s = report.plans.iter().map(planned_end).fold(report.measured_seconds, f64::max);
    let mut page = String::new();
    let title = match report.heuristic.as_str() {
        "" => escape(title),
        heuristic => escape(&format!("{title}, mapped by {heuristic}")),
    };
    let _ = write!(
        page,
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>{title}</title>\n<style>\n\
         body {{ font: 14px/1.4 system-ui, sans-serif; margin: 2em; color: #222; background: #fff }}\n\
         pre {{ background: #f4f4f4; padding: 1em; overflow-x: auto }}\n\
         svg {{ display: block; width: 100%; height: auto; margin: .5em 0 1.5em }}\n\
         </style></head><body>\n<h1>{title}</h1>\n<pre>{}</pre>\n",
        escape(&report.to_string())
    );
    let (colours, none, numbers) = (colours(&report.tasks), BTreeSet::new(), report.numbers());
    let chart =
        Gantt { title: "", tasks: &[], transfers: &[], critical: &none, colours: &colours, number_of: &|at| at, end_s };
    for (number, plan) in report.plans.iter().enumerate() {
        let again = if number == 0 { "" } else { ", mapped later" };
        let _ =
            writeln!(page, "<h2>Predicted by {}{again}: {:.4} s</h2>", escape(&plan.heuristic), plan.makespan_seconds);
        let number_of = |at: usize| numbers.get(plan.tasks[at].task.as_str()).copied().unwrap_or(at);
        let chart = Gantt { tasks: &plan.tasks, transfers: &plan.transfers, number_of: &number_of, ..chart };
        page.push_str(&chart.svg());
    }
    let how = if report.simulated { "Simulated" } else { "Measured" };
    let _ = writeln!(page, "<h2>{how}: {:.4} s</h2>", report.measured_seconds);
    let number_of = |at: usize| numbers[report.tasks[at].task.as_str()];
    let chart = Gantt { tasks: &report.tasks, transfers: &report.transfers, number_of: &number_of, ..chart };
    let _ = writeln!(page, "{}</body></html>", chart.svg());
    page
}

/// Escapes text for the page outside of its drawings.
fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
