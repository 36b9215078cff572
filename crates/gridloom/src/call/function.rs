//! Functions of the grid: checks calls, and makes plain ones.

use std::collections::BTreeSet;
use std::num::NonZeroU64;
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use gridloom_base::limits::{INLINE_BYTES_MAX, WORK_FLOPS_DEFAULT};
use gridloom_base::near::near_names;
use gridloom_base::{DatumId, Meta, NameKind, NodeId, ObjectId, Priority, TaskId};
use gridloom_core::call::Deferral;
use gridloom_core::graph::{Argument, CallOptions, Failures, Output, Retry, Task, TaskKind};
use gridloom_idl::method::is_automatic;
use gridloom_idl::{ActualArgument, BindError, BoundCall, Signature, class_of, method_of};

use gridloom_perf::ServerView;

use super::arg::Arg;
use super::args::IntoArgs;
use super::pending::{PendingCall, Prepared, SendOptions, TransferLimits};
use super::results::Results;
use super::view::gives_as;
use crate::session::{CallbackHandler, GangCallback, Session, expect_asking};
use crate::{Error, Value};

/// A function that servers of the grid offer.
#[derive(Clone)]
pub struct Function {
    session: Session,
    signature: Arc<Signature>,
    hash: u64,
    /// The server that has to run its calls, if there is one.
    only: Option<NodeId>,
    /// True if it is a method of a class.
    is_method: bool,
    /// The object of which it is a method.
    object: Option<ObjectLocation>,
    /// The errors after which its calls run again.
    retry: Option<Arc<Retry>>,
    /// The serial of an earlier call that its calls repeat.
    repeats: Option<u64>,
    /// File parameters that the caller does not want.
    unwanted_files: Vec<usize>,
    /// The name shown to people instead of its own.
    label: Option<Box<str>>,
    /// Number of ranks for its calls; 0 for the number of the server.
    ranks: u32,
    /// Time limits for the transfers of its calls.
    transfers: TransferLimits,
    /// Set if its calls wait in the client until a server has a free slot.
    deferral: Option<Deferral>,
    /// The priority of its calls; `None` for that of its session.
    priority: Option<Priority>,
}

/// An object and the server that runs its methods.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ObjectLocation {
    pub(crate) object: ObjectId,
    pub(crate) server: NodeId,
}

impl Function {
    /// Returns an offered function by name (`module/function`, or `function` alone if only one module has it).
    pub(crate) fn named(session: &Session, name: &str) -> Result<Function, Error> {
        let (signature, is_method) = {
            let state = session.state_now();
            let signature = state.directory.function(name)?;
            let is_method = method_of(&signature.name, |initialize| state.directory.offers(initialize)).is_some();
            (Arc::new(signature.clone()), is_method)
        };
        Ok(Function { is_method, ..Function::new(session, signature) })
    }

    pub(crate) fn new(session: &Session, signature: Arc<Signature>) -> Function {
        Function {
            session: session.clone(),
            hash: signature.hash(),
            is_method: false,
            signature,
            only: None,
            object: None,
            retry: None,
            repeats: None,
            unwanted_files: Vec::new(),
            transfers: TransferLimits::default(),
            label: None,
            ranks: 0,
            deferral: None,
            priority: None,
        }
    }

    pub(crate) fn session(&self) -> &Session {
        &self.session
    }

    /// Returns the function with calls that are shown under another name, such as that of the function that it is given to run.
    pub fn labelled(&self, label: &str) -> Function {
        Function { label: Some(NameKind::Label.mapped(label).into()), ..self.clone() }
    }

    /// Returns the function with calls on `ranks` ranks, if it runs on ranks of MPI; 0 for as many as the server has,
    /// which is the maximum.
    pub fn on_ranks(self, ranks: u32) -> Function {
        Function { ranks, ..self }
    }

    /// Returns the function with calls of that priority: among the waiting calls of one user at a server, those with the lowest number start
    /// first. It changes nothing for other users, whose turns do not depend on priorities.
    pub fn with_priority(self, priority: Priority) -> Function {
        Function { priority: Some(priority), ..self }
    }

    /// The priority of its calls; `None` for that of its group or session.
    pub fn priority(&self) -> Option<Priority> {
        self.priority
    }

    /// Returns the function with plain calls that fail if one of their transfers takes longer.
    pub fn with_transfer_limits(self, transfers: TransferLimits) -> Function {
        Function { transfers, ..self }
    }

    /// Number of ranks for its calls; 0 for the number of the server.
    pub fn ranks(&self) -> u32 {
        self.ranks
    }

    /// Returns the function as a method of that object.
    pub(crate) fn method_of(self, object: ObjectLocation) -> Function {
        Function { object: Some(object), is_method: true, ..self }
    }

    /// True if it is a method of a class: its calls run on an object, in their order and at most once.
    pub fn is_method(&self) -> bool {
        self.is_method
    }

    /// The class, `module/class`, if it is a method.
    pub fn class(&self) -> Option<&str> {
        class_of(self.name()).filter(|_| self.is_method).map(|(class, _)| class)
    }

    /// Returns its call in C, as [`Signature::c_prototype`] does.
    ///
    /// # Errors
    /// If a program in C cannot call it.
    pub fn c_prototype(&self) -> Result<String, String> {
        let method = class_of(self.name()).filter(|_| self.is_method).map(|(_, method)| method);
        self.signature.c_prototype(method)
    }

    /// The full name: `module/function`.
    pub fn name(&self) -> &str {
        &self.signature.name
    }

    /// Its parameters and results.
    pub fn signature(&self) -> &Signature {
        &self.signature
    }

    pub(crate) fn shared_signature(&self) -> &Arc<Signature> {
        &self.signature
    }

    /// Returns the function bound to that server: its calls, single or in groups, fail if the server is lost.
    ///
    /// # Errors
    /// If no server of that name is in the grid, or it does not offer the function.
    pub fn on(&self, server: &str) -> Result<Function, Error> {
        let view = self.session.servers();
        let Some(found) = view.servers.iter().find(|other| other.name == server) else {
            let near = near_names(server, view.servers.iter().map(|server| server.name.as_str()));
            let hint = match near.is_empty() {
                true => "'gridloom servers' lists those that there are".to_string(),
                false => format!("did you mean {}?", near.join(" or ")),
            };
            return Err(Error::Input(format!("{}: there is no server '{server}' for it; {hint}", self.name())));
        };
        match found.functions.contains_key(self.name()) {
            true => Ok(self.clone().bound_to(found.node)),
            false => {
                let hint = "'gridloom servers' lists what each offers";
                Err(Error::Input(format!("{}: server '{server}' does not offer it; {hint}", self.name())))
            }
        }
    }

    /// The server that runs all its calls, if that is fixed: the server of its object, or the one to which it is bound.
    pub fn server(&self) -> Option<NodeId> {
        self.object.map(|object| object.server).or(self.only)
    }

    /// Returns the function bound to that server. The server is not checked before a call is made.
    pub fn bound_to(self, server: NodeId) -> Function {
        Function { only: Some(server), ..self }
    }

    /// Returns the function with calls that run again after errors of those kinds, on another server if one offers the
    /// function. Methods and calls with callbacks are excluded: they run once.
    pub fn retried(self, retry: Retry) -> Function {
        Function { retry: Some(Arc::new(retry)), ..self }
    }

    /// Returns the function with calls that repeat an earlier plain call of this session, given by the serial of its
    /// [`PendingCall::task`]. They may put the same data under the same names again. Every repetition refers to the first
    /// call.
    pub fn repeating(self, first_serial: u64) -> Function {
        Function { repeats: Some(first_serial), ..self }
    }

    /// Returns the function with plain calls that wait in this program until a server has a free slot. Until then they can be
    /// cancelled ([`Watch::cancel_unsent`](crate::Watch::cancel_unsent)) and held back ([`Grid::hold_back`](crate::Grid::hold_back))
    /// without a message, and no server is chosen for them. So a program can make many more calls than the servers have slots.
    pub fn deferred(self, deferral: Deferral) -> Function {
        Function { deferral: Some(deferral), ..self }
    }

    /// Returns the record of earlier attempts that failed on servers of these names, for [`Deferral`]: calls prefer other
    /// servers, and run on those in `unable` only if there are no others. Servers that are not in the grid are left out.
    pub fn failures(&self, failed: &[String], unable: &[String]) -> Failures {
        let view = self.session.servers();
        let nodes = |names: &[String]| -> Vec<NodeId> {
            let is_named = |server: &&ServerView| names.contains(&server.name);
            view.servers.iter().filter(is_named).map(|server| server.node).collect()
        };
        Failures::of_attempts(nodes(failed), nodes(unable))
    }

    /// Returns the function without the files that it would make for these parameters, by index: it gets no paths for them.
    pub fn without_files(self, params: Vec<usize>) -> Function {
        Function { unwanted_files: params, ..self }
    }

    /// True if a result made as `made` can be read as `wanted`: an array of as many elements of the same type, in their order in
    /// memory, which must be known for this result.
    pub fn can_be_read_as(&self, made: &Meta, wanted: &Meta) -> bool {
        gives_as(&self.signature, made, wanted)
    }

    /// Calls the function now (plain GridRPC): the call is mapped alone and its results return to the client.
    ///
    /// # Errors
    /// If the arguments do not fit (nothing is sent then), or the call fails.
    pub fn call(&self, args: impl IntoArgs) -> Result<Results<Value>, Error> {
        self.submit(args, &[], None)?.wait()
    }

    /// Like [`Function::call`], without waiting; with arguments by name and a time limit.
    ///
    /// # Errors
    /// If the arguments do not fit.
    pub fn submit(
        &self,
        args: impl IntoArgs,
        named: &[(String, Arg)],
        limit: Option<Duration>,
    ) -> Result<PendingCall, Error> {
        self.submit_to(None, &args.into_args(), named, limit, None)
    }

    /// Like [`Function::submit`], on that server and no other: if it is lost, the call fails.
    ///
    /// # Errors
    /// If the arguments do not fit.
    pub fn submit_on(
        &self,
        server: NodeId,
        args: impl IntoArgs,
        named: &[(String, Arg)],
        limit: Option<Duration>,
    ) -> Result<PendingCall, Error> {
        self.submit_to(Some(server), &args.into_args(), named, limit, None)
    }

    /// Like [`Function::submit`] or [`Function::submit_on`], for a function with callbacks: it may call `callee` until it
    /// has ended. It runs at most once: if its server is lost, it fails.
    ///
    /// # Errors
    /// If the arguments do not fit.
    pub fn submit_calling(
        &self,
        server: Option<NodeId>,
        args: impl IntoArgs,
        named: &[(String, Arg)],
        limit: Option<Duration>,
        callee: CallbackHandler,
    ) -> Result<PendingCall, Error> {
        self.submit_to(server, &args.into_args(), named, limit, Some(callee))
    }

    /// Calls the function on that server as a gang that occupies several slots at once, as soon as they are free, until
    /// it ends. Its callbacks are received here, and wait for [`Grid::answer`](crate::Grid::answer). It runs at most once.
    ///
    /// # Errors
    /// If the arguments do not fit.
    pub fn submit_gang(
        &self,
        server: NodeId,
        slots: u32,
        args: impl IntoArgs,
        asking: Sender<GangCallback>,
    ) -> Result<PendingCall, Error> {
        let mut prepared =
            self.prepare_any(&args.into_args(), &[], |value| (self.session.new_datum(), value.clone()))?;
        prepared.task.options.gang = slots;
        expect_asking(&self.session, prepared.task.id, asking);
        let options = SendOptions { transfers: self.transfers, only: Some(server), ..SendOptions::default() };
        PendingCall::send(&self.session, &self.signature, prepared, options)
    }

    fn submit_to(
        &self,
        server: Option<NodeId>,
        args: &[Arg],
        named: &[(String, Arg)],
        limit: Option<Duration>,
        callee: Option<CallbackHandler>,
    ) -> Result<PendingCall, Error> {
        if callee.is_none() {
            self.refuse_callbacks()?;
        }
        // A plain call reads its arguments from the client, so remote ones are fetched first.
        let args = args.iter().map(Arg::resolved).collect::<Result<Vec<_>, _>>()?;
        let named = named.iter().map(|(n, a)| Ok((n.clone(), a.resolved()?))).collect::<Result<Vec<_>, Error>>()?;
        let prepared = self.prepare_any(&args, &named, |value| (self.session.new_datum(), value.clone()))?;
        let only = self.object.map(|object| object.server).or(server).or(self.only);
        let (transfers, deferral) = (self.transfers, self.deferral.clone());
        let options = SendOptions { limit, transfers, only, calibrates: false, callee, deferral };
        PendingCall::send(&self.session, &self.signature, prepared, options)
    }

    /// Sends a call that measures the server, which runs it only while idle.
    pub(crate) fn submit_measured(
        &self,
        server: NodeId,
        named: &[(String, Arg)],
        limit: Option<Duration>,
    ) -> Result<PendingCall, Error> {
        let prepared = self.prepare(&[], named, |value| (self.session.new_datum(), value.clone()))?;
        let options = SendOptions { limit, only: Some(server), calibrates: true, ..SendOptions::default() };
        PendingCall::send(&self.session, &self.signature, prepared, options)
    }

    /// Rejects functions with callbacks: only [`Function::submit_calling`] allows them.
    fn refuse_callbacks(&self) -> Result<(), Error> {
        let Some(callback) = self.signature.callbacks.first() else { return Ok(()) };
        Err(Error::Usage(format!(
            "{} has the callback '{}', which only plain calls of programs in C and Rust support",
            self.signature.name, callback.name
        )))
    }

    /// Checks the arguments and makes the task. `name` returns the id of each data value (the same for the same value).
    pub(crate) fn prepare(
        &self,
        args: &[Arg],
        named: &[(String, Arg)],
        name: impl FnMut(&Value) -> (DatumId, Value),
    ) -> Result<Prepared, Error> {
        self.refuse_callbacks()?;
        if self.object.is_some() {
            let name = self.name();
            return Err(Error::Usage(format!(
                "{name} is a method of an object, whose calls cannot be part of a group: call it outside of the group"
            )));
        }
        self.prepare_any(args, named, name)
    }

    fn prepare_any(
        &self,
        args: &[Arg],
        named: &[(String, Arg)],
        mut name: impl FnMut(&Value) -> (DatumId, Value),
    ) -> Result<Prepared, Error> {
        if self.object.is_none()
            && let Some(class) = self.class()
        {
            let name = self.name();
            return Err(Error::Usage(format!(
                "{name} is a method: make an object of class '{class}', and call it there"
            )));
        }
        let bound = self.bind(args, named)?;
        let is_run = self.is_method && class_of(self.name()).is_some_and(|(_, method)| is_automatic(method));
        if bound.work_flops.is_none() && self.session.is_simulated() && !is_run {
            warn_of_unknown_work(&self.signature.name);
        }
        let all: Vec<&Arg> = args.iter().chain(named.iter().map(|(_, arg)| arg)).collect();
        let mut values = Vec::new();
        let mut arguments = Vec::with_capacity(self.signature.params.len());
        let inputs = self.signature.params.iter().enumerate().filter(|(_, param)| param.is_input());
        for ((index, _), actual) in inputs.zip(&bound.actual_of) {
            if let Some((meta, bytes)) = &bound.scalars[index]
                && bytes.len() <= INLINE_BYTES_MAX
            {
                arguments.push(Argument::Inline { meta: meta.clone(), bytes: bytes.clone() });
                continue;
            }
            let actual = actual.expect("an input is inferred or given");
            arguments.push(match all[actual] {
                Arg::Handle(handle) => Argument::Datum(handle.datum()),
                Arg::Value(value) => {
                    let (datum, value) = name(value);
                    values.push((datum, value));
                    Argument::Datum(datum)
                }
            });
        }
        let output = |(index, meta): &(usize, Meta)| {
            let is_wanted = !self.unwanted_files.contains(index);
            (self.session.new_datum(), if is_wanted { meta.clone() } else { Meta::Text { size_bytes: 0 } })
        };
        let outputs: Vec<(DatumId, Meta)> = bound.outputs.iter().map(output).collect();
        let options = self.session.call_options();
        let task = Task {
            id: TaskId { client: self.session.client(), serial: self.session.next_serial() },
            kind: match self.object {
                None => TaskKind::call(self.name(), self.hash),
                Some(location) => TaskKind::method(self.name(), location.object, self.hash),
            },
            args: arguments,
            outputs: outputs.iter().map(|(datum, meta)| Output { datum: *datum, meta: meta.clone() }).collect(),
            work_flops: bound.work_flops,
            options: CallOptions {
                bound_to: self.server(),
                retry: self.retry.clone(),
                label: self.label.clone(),
                retry_of: self.repeats.and_then(NonZeroU64::new),
                ranks: self.ranks,
                uses: bound.uses.into(),
                priority: self.priority.unwrap_or(options.priority),
                ..options
            },
        };
        Ok(Prepared { task, values, outputs })
    }

    pub(crate) fn bind(&self, args: &[Arg], named: &[(String, Arg)]) -> Result<BoundCall, Error> {
        let positional: Vec<ActualArgument> = args.iter().map(Arg::actual).collect();
        let by_name: Vec<(String, ActualArgument)> =
            named.iter().map(|(name, arg)| (name.clone(), arg.actual())).collect();
        match self.signature.bind(&positional, &by_name) {
            Ok(bound) => Ok(bound),
            Err(BindError::NeedsValue { .. }) => {
                // A size that is itself a remote result: the calls recorded so far are run, and its value is used.
                let args = args.iter().map(resolve_scalar).collect::<Result<Vec<_>, _>>()?;
                let named = named.iter().map(|(name, arg)| Ok((name.clone(), resolve_scalar(arg)?))).collect::<Result<
                    Vec<_>,
                    Error,
                >>(
                )?;
                let positional: Vec<ActualArgument> = args.iter().map(Arg::actual).collect();
                let by_name: Vec<(String, ActualArgument)> =
                    named.iter().map(|(name, arg)| (name.clone(), arg.actual())).collect();
                Ok(self.signature.bind(&positional, &by_name)?)
            }
            Err(error) => Err(error.into()),
        }
    }
}

fn resolve_scalar(arg: &Arg) -> Result<Arg, Error> {
    match arg {
        Arg::Handle(handle) if matches!(handle.meta(), Meta::Scalar { .. }) => arg.resolved(),
        Arg::Handle(_) | Arg::Value(_) => Ok(arg.clone()),
    }
}

impl std::fmt::Debug for Function {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Function({})", self.signature)
    }
}

/// Warns, once for each function, that a simulation does not know how long its calls take.
fn warn_of_unknown_work(function: &str) {
    static TOLD: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());
    if TOLD.lock().unwrap_or_else(PoisonError::into_inner).insert(function.to_string()) {
        gridloom_base::stderr_line!(
            "gridloom: the work of '{function}' is not declared: in simulation each call takes {WORK_FLOPS_DEFAULT:e} \
             floating-point operations, whatever its sizes; declare it with CalcOrder, COMPLEXITY or @gl.function(work=…)"
        );
    }
}
