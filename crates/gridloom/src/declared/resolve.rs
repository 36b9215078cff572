//! Resolves a declared graph with the signatures of a grid: tasks and data to map, with ids of their own.

use std::collections::{BTreeMap, BTreeSet};

use gridloom_base::{DatumId, Meta};
use gridloom_core::graph::{self, Source, Task};

use super::{Graph, GraphArg, GraphRef, wrong};
use crate::call::{Arg, Function, Handle};
use crate::session::Session;
use crate::{Error, Value};

/// A declared graph on a session.
pub(crate) struct ResolvedGraph {
    /// The group to map. Its tasks are the declared calls, in order.
    pub(crate) group: graph::Group,
    /// Name of each call.
    pub(crate) names: Vec<String>,
    /// True for each call that is optional.
    pub(crate) is_optional: Vec<bool>,
    /// Declared data, including results.
    pub(crate) data: BTreeMap<DatumId, DeclaredDatum>,
}

/// An input, or a call's result.
pub(crate) struct DeclaredDatum {
    pub(crate) name: String,
    pub(crate) meta: Meta,
    pub(crate) is_result: bool,
}

impl ResolvedGraph {
    /// Marks results that need not be sent to the client.
    pub(crate) fn drop_wanted(&mut self, unwanted: &[GraphRef]) {
        let names: BTreeSet<&str> = unwanted.iter().map(GraphRef::name).collect();
        self.group.wanted.retain(|datum| !names.contains(self.data[datum].name.as_str()));
    }
}

impl Graph {
    /// Resolves the graph with the functions of a session. `inputs` are those inputs that are results already, by name.
    pub(crate) fn resolve(&self, session: &Session, inputs: &[(String, Handle)]) -> Result<ResolvedGraph, Error> {
        let id = session.new_group();
        let mut group = graph::Group { id, tasks: Vec::new(), sources: BTreeMap::new(), wanted: Vec::new() };
        let mut data = BTreeMap::new();
        // A placeholder represents each datum; its identity distinguishes it.
        let mut values: BTreeMap<GraphRef, (DatumId, Value)> = BTreeMap::new();
        let mut makers: BTreeMap<DatumId, Function> = BTreeMap::new();
        // Results that are read with another description. They are kept alive so that their identities stay unique.
        let mut views: Vec<(DatumId, Value)> = Vec::new();
        let mut datum_of = BTreeMap::new();
        for input in &self.inputs {
            let bound = inputs.iter().find(|(name, _)| *name == input.name).map(|(_, handle)| handle);
            if let Some(handle) = bound.filter(|handle| !same_type_and_shape(handle.meta(), &input.meta)) {
                let (name, given) = (&input.name, handle.meta());
                return Err(wrong(format!("input '{name}' is {}, but {given} was given for it", input.meta)));
            }
            let datum = bound.map_or_else(|| session.new_datum(), Handle::datum);
            let at = if bound.is_some() { Vec::new() } else { vec![session.client()] };
            group.sources.insert(datum, Source { meta: input.meta.clone(), at });
            let (name, meta) = (input.name.clone(), input.meta.clone());
            let value = Value::placeholder(meta.clone());
            datum_of.extend(value.identity().map(|identity| (identity, datum)));
            values.insert(GraphRef(name.clone()), (datum, value));
            data.insert(datum, DeclaredDatum { name, meta, is_result: false });
        }
        if let Some((name, _)) = inputs.iter().find(|(name, _)| !self.inputs.iter().any(|input| input.name == *name)) {
            return Err(wrong(format!("'{name}' is given, but is not an input{}", self.near(name))));
        }
        let mut read = BTreeSet::new();
        for call in &self.calls {
            let of_call = |error: Error| match error {
                Error::Input(why) => Error::Input(why),
                error => wrong(format!("call '{}': {error}", call.name)),
            };
            let mut function = Function::named(session, &call.function).map_err(of_call)?;
            if let Some(server) = &call.server {
                function = function.on(server).map_err(|error| wrong(format!("call '{}': {error}", call.name)))?;
            }
            let known = |node: &GraphRef| {
                values.get(node).ok_or_else(|| {
                    let results: Vec<&str> =
                        values.keys().filter(|known| known.node() == node.node()).map(GraphRef::name).collect();
                    let none = if results.is_empty() { "it has no result".into() } else { results.join("', '") };
                    wrong(format!("call '{}' reads '{}'; results of '{}' are '{none}'", call.name, node.0, node.node()))
                })
            };
            let mut value = |arg: &GraphArg| match arg {
                GraphArg::Ref(node) => Ok(known(node)?.1.clone().into()),
                GraphArg::View(node, meta) => {
                    let (datum, value) = known(node)?;
                    let is_view = makers.get(datum).is_some_and(|maker| maker.can_be_read_as(value.meta(), meta));
                    if !is_view {
                        let (name, node) = (&call.name, &node.0);
                        let rule = "a view is an array of as many elements of the same type as a call's result";
                        return Err(wrong(format!(
                            "call '{name}' reads '{node}', {}, as {meta}; {rule}",
                            value.meta()
                        )));
                    }
                    let view = Value::placeholder(meta.clone());
                    views.push((*datum, view.clone()));
                    Ok(view.into())
                }
                GraphArg::Integer(number) => Ok(Value::from(*number).into()),
                GraphArg::Real(number) => Ok(Value::from(*number).into()),
                GraphArg::Truth(truth) => Ok(Value::scalar(gridloom_base::Dtype::Bool, &[u8::from(*truth)]).into()),
                GraphArg::Text(text) => Ok(Value::text(text).into()),
            };
            let args = call.args.iter().map(&mut value).collect::<Result<Vec<Arg>, Error>>()?;
            let named = call.named.iter().map(|(name, arg)| Ok((name.clone(), value(arg)?)));
            let named = named.collect::<Result<Vec<_>, Error>>()?;
            datum_of.extend(views.iter().filter_map(|(datum, view)| Some((view.identity()?, *datum))));
            let prepared = function.prepare(&args, &named, |value| {
                let known = value.identity().and_then(|identity| datum_of.get(&identity)).copied();
                (known.unwrap_or_else(|| session.new_datum()), value.clone())
            });
            let prepared = prepared.map_err(of_call)?;
            for (datum, value) in prepared.values {
                // A long text, which is not an input of its own.
                if !data.contains_key(&datum) {
                    let at = vec![session.client()];
                    group.sources.entry(datum).or_insert_with(|| Source { meta: value.meta().clone(), at });
                }
            }
            let results: Vec<&str> =
                function.signature().params.iter().filter(|param| param.is_output()).map(|p| p.name.as_str()).collect();
            for ((datum, meta), parameter) in prepared.outputs.iter().zip(&results) {
                let node = GraphRef(call.name.clone());
                let node = if results.len() == 1 { node } else { node.result(parameter) };
                let value = Value::placeholder(meta.clone());
                datum_of.extend(value.identity().map(|identity| (identity, *datum)));
                makers.insert(*datum, function.clone());
                data.insert(*datum, DeclaredDatum { name: node.0.clone(), meta: meta.clone(), is_result: true });
                values.insert(node, (*datum, value));
            }
            read.extend(prepared.task.inputs());
            group.tasks.push(prepared.task);
        }
        let results = group.tasks.iter().flat_map(|task: &Task| &task.outputs).map(|output| output.datum);
        let mut wanted: BTreeSet<DatumId> = results.filter(|datum| !read.contains(datum)).collect();
        for node in &self.wanted {
            // The node itself, or its results, which follow it in order.
            let named = values.range(node..).take_while(|(known, _)| known.0.starts_with(&node.0));
            let found = named.filter(|(known, _)| *known == node || known.node() == node.0);
            let before = wanted.len();
            wanted.extend(found.clone().map(|(_, (datum, _))| *datum));
            if wanted.len() == before && found.count() == 0 {
                return Err(wrong(format!("'{}' is wanted, but is not a result of '{}'", node.0, node.node())));
            }
        }
        group.wanted = wanted.into_iter().collect();
        let names = self.calls().map(str::to_string).collect();
        Ok(ResolvedGraph { group, names, is_optional: self.calls.iter().map(|call| call.is_optional).collect(), data })
    }
}

/// True if types and extents are equal; memory order and byte order do not matter to a plan.
pub(super) fn same_type_and_shape(a: &Meta, b: &Meta) -> bool {
    match (a, b) {
        (Meta::Array { dtype, shape, .. }, Meta::Array { dtype: other, shape: extents, .. }) => {
            (dtype, shape) == (other, extents)
        }
        (Meta::Scalar { dtype, .. }, Meta::Scalar { dtype: other, .. }) => dtype == other,
        (Meta::Text { size_bytes }, Meta::Text { size_bytes: other })
        | (Meta::Bytes { size_bytes }, Meta::Bytes { size_bytes: other })
        | (Meta::List { size_bytes }, Meta::List { size_bytes: other }) => size_bytes == other,
        _ => false,
    }
}
