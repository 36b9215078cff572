//! Plans, and heuristics that are Python functions.

use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use gridloom::{Mapping, PlanRecord};
use gridloom_core::map::{Given, Heuristic, MapError, Plan, Problem, Spec};
use pyo3::prelude::*;
use serde_json::{Value, json};

use crate::errors::{OrRaise, error};
use crate::session::lock;
use crate::wait::detached;

/// A mapped group.
#[pyclass(frozen, module = "gridloom._gridloom")]
pub(crate) struct RawPlan(pub(crate) PlanRecord);

#[pymethods]
impl RawPlan {
    #[staticmethod]
    fn load(py: Python<'_>, path: PathBuf) -> PyResult<RawPlan> {
        detached(py, move || PlanRecord::load(path)).or_raise(py).map(RawPlan)
    }

    fn __str__(&self) -> String {
        self.0.to_string()
    }

    /// What is shown of it, as JSON.
    fn json(&self) -> String {
        serde_json::to_string(&self.0).expect("names and numbers")
    }

    /// As it is saved.
    fn file(&self, py: Python<'_>) -> String {
        py.detach(|| self.0.to_json())
    }

    fn moved(&self, py: Python<'_>, task: usize, server: &str) -> PyResult<RawPlan> {
        py.detach(|| self.0.moved(task, server)).or_raise(py).map(RawPlan)
    }

    fn gantt(&self, py: Python<'_>) -> String {
        py.detach(|| self.0.gantt_svg())
    }

    /// Why a task is where it is, as JSON and in words.
    fn explain(&self, py: Python<'_>, task: usize) -> PyResult<(String, String)> {
        let explained = py.detach(|| self.0.explain(task)).or_raise(py)?;
        Ok((serde_json::to_string(&explained).expect("names and numbers"), explained.to_string()))
    }

    /// The critical path as JSON.
    fn critical_path(&self, py: Python<'_>) -> PyResult<String> {
        let path = py.detach(|| self.0.critical_path()).or_raise(py)?;
        Ok(serde_json::to_string(&path).expect("names and numbers"))
    }
}

/// What a group is mapped by, as Python hands it over.
#[derive(FromPyObject)]
pub(crate) enum RawMapping<'py> {
    /// A spec.
    Spec(String),
    /// A plan.
    Plan(PyRef<'py, RawPlan>),
    /// Name and function of a heuristic: it takes a problem as JSON, and gives the server of each task and their order, or
    /// says what is wrong with what the user's function gave.
    Own(String, Py<PyAny>),
}

/// What a heuristic raised.
pub(crate) type Raised = Arc<Mutex<Option<PyErr>>>;

impl RawMapping<'_> {
    /// With the place where what a function raises is kept.
    pub(crate) fn mapping(self, py: Python<'_>) -> PyResult<(Mapping, Raised)> {
        let raised = Raised::default();
        let mapping = match self {
            RawMapping::Spec(spec) => {
                // A mistake in it is told where it stands, not when the group is mapped.
                let parsed = Spec::parse(&spec).and_then(|spec| spec.heuristic().map(drop));
                parsed.map_err(|mistake| error(py, "InputError", &mistake.to_string()))?;
                Mapping::from(spec)
            }
            RawMapping::Plan(plan) => Mapping::from(&plan.0),
            RawMapping::Own(name, function) => {
                Mapping::own(&name, PythonHeuristic { function, raised: raised.clone() })
            }
        };
        Ok((mapping, raised))
    }
}

/// The error of a launch; what the heuristic raised is its cause.
pub(crate) fn with_cause<T>(py: Python<'_>, outcome: PyResult<T>, raised: &Raised) -> PyResult<T> {
    outcome.inspect_err(|error| {
        if let Some(cause) = lock(raised).take() {
            error.set_cause(py, Some(cause));
        }
    })
}

struct PythonHeuristic {
    function: Py<PyAny>,
    raised: Raised,
}

/// What the function's wrapper gives.
#[derive(FromPyObject)]
enum Returned {
    Wrong(String),
    Places(Vec<usize>, Option<Vec<u32>>),
}

impl Heuristic for PythonHeuristic {
    fn map(&self, problem: &Problem) -> Result<Plan, MapError> {
        let told = described(problem).to_string();
        let returned = Python::attach(|py| {
            let called = self.function.call1(py, (told,));
            called.and_then(|returned| returned.extract::<Returned>(py)).map_err(|raised| {
                let why = format!(
                    "it raised {}",
                    raised.value(py).repr().map_or_else(|_| "?".into(), |text| text.to_string())
                );
                *lock(&self.raised) = Some(raised);
                MapError::Failed { why }
            })
        })?;
        let (places, order) = match returned {
            Returned::Wrong(why) => return Err(MapError::Unfit { subject: String::new(), why }),
            Returned::Places(places, order) => (places, order),
        };
        let given = Given::of_places(&places, problem);
        Given { order: order.unwrap_or(given.order), ..given }.plan(problem)
    }
}

/// The problem as Python sees it.
fn described(problem: &Problem) -> Value {
    let finite = |number: f64| number.is_finite().then_some(number);
    let servers = 0..problem.client();
    let tasks = (0..problem.task_count()).map(|task| {
        json!({
            "function": problem.function(task),
            "work_flops": problem.work_flops(task),
            "inputs": problem.inputs(task),
            "outputs": problem.outputs(task),
            "seconds": servers.clone().map(|server| problem.seconds(task, server)).collect::<Vec<_>>(),
        })
    });
    let data = problem.data().iter().enumerate().map(|(number, datum)| {
        json!({
            "size_bytes": datum.size_bytes,
            "producer": datum.producer,
            "readers": datum.readers,
            "wanted": datum.wanted,
            "held_by": problem.holders(number),
        })
    });
    let described = problem.servers().iter().map(|server| {
        json!({
            "name": server.name,
            "slots": server.slots,
            "busy_seconds": server.busy_s,
            "memory_bytes": server.memory_bytes,
        })
    });
    let link = |from: usize| {
        let links = problem.links_from(from).iter().map(|link| (finite(link.latency_s), finite(link.bandwidth)));
        links.collect::<Vec<_>>()
    };
    json!({
        "tasks": tasks.collect::<Vec<_>>(),
        "data": data.collect::<Vec<_>>(),
        "servers": described.collect::<Vec<_>>(),
        "links": (0..=problem.client()).map(link).collect::<Vec<_>>(),
    })
}
