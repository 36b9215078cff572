//! Initialization of modules: how a program provides the arguments, and how workers get them.
//!
//! The arguments are shared data under a name of the client. Before a call of a function whose module has an
//! `Initialize`, a worker looks them up, and runs it if the version differs from the one that it has run last.

use std::time::Duration;

use gridloom_base::{Meta, NameError, NodeId, list};
use gridloom_net::payload::Payload;
use gridloom_net::worker::initial::InitialArguments;

use crate::call::{Arg, Function};
use crate::session::Session;
use crate::shared_data::{PutOptions, SharedData};
use crate::{Error, Value};

/// Values of the inputs, in their order.
type Arguments = Vec<(Meta, Vec<u8>)>;

/// Returns the shared name of a client's arguments for a module.
fn name_of(client: NodeId, module: &str) -> String {
    format!("initialize/{}/{module}", client.0)
}

/// Returns the module of a function.
fn module_of(function: &str) -> &str {
    function.rsplit_once('/').map_or("", |(module, _)| module)
}

/// Makes each worker run the function `Initialize` of a module, with these arguments, before the first call of its
/// functions by this session, and again after the worker has restarted. The values that it sets in the module's
/// `Globals` last from call to call. Other arguments may be set later. They are sent to all servers immediately,
/// and stay until [`Grid::end_modules`](crate::Grid::end_modules).
///
/// # Errors
/// If the module has no such function, the arguments do not fit, it has results, or there is no agent, as in a simulation.
pub(crate) fn initialize(session: &Session, module: &str, args: &[Arg], named: &[(String, Arg)]) -> Result<(), Error> {
    let function = Function::named(session, &format!("{module}/Initialize"))?;
    if session.is_simulated() {
        return Err(Error::Usage(
            "modules are not initialised in a simulation: its functions have no shared data".into(),
        ));
    }
    if function.signature().params.iter().any(|param| param.is_output()) {
        let name = function.name();
        return Err(Error::Usage(format!(
            "{name} has results, which nobody would receive: all its parameters must be IN"
        )));
    }
    let args = args.iter().map(Arg::resolved).collect::<Result<Vec<_>, _>>()?;
    let resolved = |(name, arg): &(String, Arg)| Ok::<_, Error>((name.clone(), arg.resolved()?));
    let named = named.iter().map(resolved).collect::<Result<Vec<_>, _>>()?;
    let bound = function.bind(&args, &named)?;
    let all: Vec<&Arg> = args.iter().chain(named.iter().map(|(_, arg)| arg)).collect();
    let mut values = Arguments::new();
    let inputs = function.signature().params.iter().enumerate().filter(|(_, param)| param.is_input());
    for ((index, _), actual) in inputs.zip(&bound.actual_of) {
        values.push(match (&bound.scalars[index], actual.map(|actual| all[actual])) {
            (Some(known), _) => known.clone(),
            (None, Some(Arg::Value(value))) => {
                let bytes = value.inline_bytes();
                (value.meta().clone(), bytes.ok_or_else(|| Error::Usage("an argument has no content".into()))?)
            }
            (None, _) => unreachable!("an input is inferred or given, and was resolved"),
        });
    }
    let module = module_of(function.name());
    let name = name_of(session.client(), module);
    let packed = pack(function.signature().hash(), &values)?;
    SharedData::new(session).put(&name, &packed, PutOptions { replaces: true, ..PutOptions::default() })?;
    session.modules().insert(module.to_string());
    // A server without room for the arguments now gets them with its first call.
    let _ = SharedData::new(session).place(&name, &[]);
    Ok(())
}

/// Deletes the arguments of all modules, before the session ends.
pub(crate) fn end(session: &Session) {
    let modules = std::mem::take(&mut *session.modules());
    for module in modules {
        // If the agent is gone, they stay until somebody deletes them.
        let _ = SharedData::new(session).delete(&name_of(session.client(), &module));
    }
}

/// Returns how a worker has to initialize a module for a client; `known` is the version that the worker has run.
///
/// # Errors
/// If that cannot be determined.
pub(crate) fn initial(
    session: &Session,
    client: NodeId,
    module: &str,
    known: Option<u64>,
) -> Result<Option<InitialArguments>, Error> {
    let name = name_of(client, module);
    let Some(version) =
        SharedData::new(session).list(&name)?.into_iter().find(|one| one.name == name).map(|one| one.version)
    else {
        return Ok(None);
    };
    if Some(version) == known {
        return Ok(Some(InitialArguments { version, hash: 0, values: Vec::new() }));
    }
    let packed = match SharedData::new(session).get(&name, Some(Duration::ZERO)) {
        // The client deleted it a moment ago.
        Err(Error::Name(NameError::Unknown { .. })) => return Ok(None),
        packed => packed?,
    };
    let (hash, values) = unpack(&packed).ok_or_else(|| Error::Usage(format!("'{name}' has no arguments")))?;
    Ok(Some(InitialArguments { version, hash, values }))
}
/// Encodes the signature's hash and the descriptions, then the bytes of each value.
fn pack(hash: u64, values: &[(Meta, Vec<u8>)]) -> Result<Value, Error> {
    let metas: Vec<&Meta> = values.iter().map(|(meta, _)| meta).collect();
    let head = serde_json::to_vec(&(hash, metas)).expect("descriptions are plain");
    let items: Vec<Option<&[u8]>> =
        std::iter::once(&head[..]).chain(values.iter().map(|(_, bytes)| &bytes[..])).map(Some).collect();
    let packed = list::pack(items.into_iter());
    Value::new(Meta::Bytes { size_bytes: packed.len() as u64 }, Payload::copied(&packed))
}

fn unpack(packed: &Value) -> Option<(u64, Arguments)> {
    let items = list::unpack(packed.payload()?.bytes())?.into_iter().collect::<Option<Vec<_>>>()?;
    let (head, bytes) = items.split_first()?;
    let (hash, metas): (u64, Vec<Meta>) = serde_json::from_slice(head).ok()?;
    (metas.len() == bytes.len())
        .then(|| (hash, metas.into_iter().zip(bytes.iter().map(|bytes| bytes.to_vec())).collect()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use gridloom_base::Dtype;

    #[test]
    fn arguments_are_unpacked_as_they_were_packed() {
        let values = vec![
            (Meta::scalar(Dtype::Int32), 3i32.to_ne_bytes().to_vec()),
            (Meta::array(Dtype::Float64, &[2]), vec![7; 16]),
            (Meta::Text { size_bytes: 0 }, Vec::new()),
        ];
        let packed = pack(5, &values).unwrap();
        assert_eq!(unpack(&packed), Some((5, values)));
        assert_eq!(unpack(&Value::text("no arguments")), None);
    }
}
