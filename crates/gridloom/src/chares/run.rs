//! Runs a program of chares: alone, as one of several processes, or with all elements in simulation.

use std::sync::{Arc, Mutex, PoisonError};

use gridloom_chare::{Element, Pe, Value};
use gridloom_net::process::Gang;

use super::drive::{ElementEnd, alone, one_of};
use super::job::Job;
use super::membership::Membership;
use super::placement::{ELEMENT_FUNCTION, ElementPlacement, check_connections};
use crate::process::{DEPLOY_VARIABLE, Main, Process, ProcessFunctions, StackKind};
use crate::simulate::SimulateConfig;
use crate::{Error, process};

/// The result of a program of chares.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Ended {
    /// The value passed to [`Context::exit`](super::Context::exit), or the result of the reduction that ended the program.
    pub value: Value,
    /// True on the first element, so that only one element prints. It is always true in simulation.
    pub is_first: bool,
    /// Number of chares that the load balancer moved. Only the first element knows it.
    pub moved: u64,
    /// True if the program continues without this element, so that its process has to end. [`run`] ends it.
    pub has_left: bool,
}

/// Runs the program on this element, if `gridloom chares run` has started it; on all elements in simulation; or else on
/// a single element. `program` makes the arrays. Returns when a chare has ended the program. If the program continues
/// without this element ([`Context::resize`](super::Context::resize)), it does not return: the process exits with
/// status 0.
///
/// # Errors
/// The error of `program`; [`Error::Chares`] if the chares cannot continue, or another element is lost.
pub fn run(program: impl Fn(&mut Job<'_>) -> Result<(), Error> + Send + Sync + 'static) -> Result<Ended, Error> {
    let ended = run_on(StackKind::Coroutine, |body| body(), program)?;
    if ended.has_left {
        std::process::exit(0);
    }
    Ok(ended)
}

/// True if [`run`] would run all elements in simulation.
///
/// # Errors
/// If the configuration of `gridloom simulate` cannot be read.
pub fn is_simulated() -> Result<bool, Error> {
    Ok(std::env::var_os(DEPLOY_VARIABLE).is_none() && SimulateConfig::from_environment(None)?.is_some())
}

/// A wrapper around everything that an element does, called on the element's thread. A language binding with
/// thread-local state creates it before it calls the body, so that it lasts from one entry method to the next.
pub type Around = fn(Box<dyn FnOnce() + Send + '_>);

/// Like [`run`], with simulated elements on stacks of that kind.
///
/// # Errors
/// As [`run`].
pub fn run_on(
    kind: StackKind,
    around: Around,
    program: impl Fn(&mut Job<'_>) -> Result<(), Error> + Send + Sync + 'static,
) -> Result<Ended, Error> {
    let make = move |element: &mut Element| program(&mut Job::new(element));
    if std::env::var_os(DEPLOY_VARIABLE).is_none() && !is_simulated()? {
        return Ok(Ended { value: alone(&make)?, is_first: true, ..Ended::default() });
    }
    if let Some(config) = process::config_from_environment()? {
        let own = std::iter::once(&config.spec).chain(&config.threads);
        let own = own.map(|spec| {
            let places = ElementPlacement::from_arguments(&spec.arguments).map_err(Error::Input)?;
            Ok(places.in_generation(&Membership::real(&places).first(&places)?))
        });
        check_connections(&own.collect::<Result<Vec<ElementPlacement>, Error>>()?)?;
    }
    let ended = Arc::new(Mutex::new(Ended::default()));
    let (to_tell, make, shared) = (ended.clone(), Arc::new(make), Arc::default());
    let main: Main = Arc::new(move |process: Process| {
        let mut world = process.world;
        let mut places = ElementPlacement::from_arguments(&world.spec().arguments).map_err(Error::Input)?;
        if let Some(gang) = Gang::of_environment().map_err(Error::Input)? {
            places = places.on_server(&gang).map_err(Error::Input)?;
        }
        let is_first = places.me() == Pe(0);
        let mut went = Ok(ElementEnd::Left);
        let told_went = &mut went;
        let course = Membership::of(&places, &*world, &shared);
        let make = make.clone();
        around(Box::new(move || *told_went = one_of(&mut *world, places, &course, &*make)));
        let went = went?;
        let mut told = to_tell.lock().unwrap_or_else(PoisonError::into_inner);
        match went {
            ElementEnd::Ended { value, moved } => {
                let (is_first, moved) = (is_first || told.is_first, moved.max(told.moved));
                *told = Ended { value, is_first, moved, has_left: false };
            }
            // In simulation the first element is in this process too, and it never leaves.
            ElementEnd::Left => told.has_left = !told.is_first,
        }
        Ok(())
    });
    process::run(&ProcessFunctions::from([(ELEMENT_FUNCTION.to_string(), main)]), kind)?;
    let ended = ended.lock().unwrap_or_else(PoisonError::into_inner).clone();
    Ok(ended)
}
