//! Calls of Fortran from compiled functions, such as those on several ranks: everything is passed by pointer, and the
//! lengths of all strings follow the last argument, as `size_t`. A string that the function sets has memory of its own,
//! padded with blanks.
//!
//! The generated declaration gives the symbol another name, so the file may also declare it, with other types.

use std::fmt::Write as _;

use crate::print::quoted;
use crate::signature::{BaseType, CallArgument, Mode, Param, Signature};
use gridloom_base::Dtype;

/// A call of one symbol.
pub(crate) struct FortranCall<'a> {
    /// The symbol of the compiled function that makes the call.
    pub(crate) caller: &'a str,
    /// The called symbol.
    pub(crate) symbol: &'a str,
    pub(crate) args: &'a [CallArgument],
    /// The parameter that receives the return value.
    pub(crate) result: Option<usize>,
    pub(crate) signature: &'a Signature,
    pub(crate) c_type: &'a dyn Fn(Dtype) -> &'static str,
}

/// An argument as C text.
struct Passed {
    /// Statements before the call.
    before: String,
    /// Statements after the call.
    after: String,
    pointer: String,
    length: Option<String>,
}

impl FortranCall<'_> {
    fn name(&self) -> String {
        format!("{}_calls", self.caller)
    }

    fn param(&self, index: usize) -> &Param {
        &self.signature.params[index]
    }

    /// Appends the declaration of the called function. `linkage` begins it.
    pub(crate) fn push_prototype(&self, source: &mut String, linkage: &str) {
        let value = match self.result.map(|index| self.param(index).base) {
            Some(BaseType::Number(dtype)) => (self.c_type)(dtype),
            _ => "void",
        };
        let texts = self.args.iter().filter(|arg| self.is_text(arg)).count();
        let types = std::iter::repeat_n("void *", self.args.len()).chain(std::iter::repeat_n("size_t", texts));
        let types: Vec<&str> = types.collect();
        let types = if types.is_empty() { "void".to_string() } else { types.join(", ") };
        let _ = writeln!(source, "{linkage} {value} {}({types}) __asm__({});", self.name(), quoted(self.symbol));
    }

    /// Appends the call, as a block.
    pub(crate) fn push_call(&self, source: &mut String) {
        let passed: Vec<Passed> = self.args.iter().enumerate().map(|(at, arg)| self.passed(at, arg)).collect();
        let pointers = passed.iter().map(|one| one.pointer.clone());
        let all: Vec<String> = pointers.chain(passed.iter().filter_map(|one| one.length.clone())).collect();
        let value = self.result.map_or(String::new(), |index| format!("*{} = ", self.param(index).name));
        source.push_str("{\n");
        passed.iter().for_each(|one| source.push_str(&one.before));
        let _ = writeln!(source, "{value}{}({});", self.name(), all.join(", "));
        passed.iter().for_each(|one| source.push_str(&one.after));
        source.push_str("}\n");
    }

    fn passed(&self, at: usize, arg: &CallArgument) -> Passed {
        let plain = |pointer: String, length: Option<String>| Passed {
            before: String::new(),
            after: String::new(),
            pointer: format!("(void *) {pointer}"),
            length,
        };
        match arg {
            CallArgument::Text(text) => plain(quoted(text), Some(text.len().to_string())),
            CallArgument::Value { dtype, expr } => {
                let (kind, value) = ((self.c_type)(*dtype), expr.display(&self.signature.params));
                let before = format!("{kind} gridloom_value_{at} = ({kind}) ({value});\n");
                Passed { before, ..plain(format!("&gridloom_value_{at}"), None) }
            }
            CallArgument::Param(index) => {
                let Param { name, base, .. } = self.param(*index);
                let length = format!("({name} == NULL ? 0 : strlen({name}))");
                match base {
                    BaseType::Number(_) if self.is_value(*index) => plain(format!("&{name}"), None),
                    BaseType::String if self.param(*index).is_output() => {
                        let (room, length) = (format!("gridloom_text_{at}"), format!("gridloom_length_{at}"));
                        Passed {
                            before: format!(
                                "size_t {length};\nchar *{room} = gridloom_fortran_text(*{name}, &{length});\n"
                            ),
                            after: format!("gridloom_fortran_set({name}, {room}, {length});\n"),
                            ..plain(room.clone(), Some(length.clone()))
                        }
                    }
                    BaseType::String => plain(format!("({name} == NULL ? \"\" : {name})"), Some(length)),
                    BaseType::File => plain(name.clone(), Some(length)),
                    _ => plain(name.clone(), None),
                }
            }
            CallArgument::Callback(index) => plain(self.signature.callbacks[*index].name.clone(), None),
        }
    }

    fn is_value(&self, index: usize) -> bool {
        let param = self.param(index);
        param.mode == Mode::In && !param.is_array
    }

    fn is_text(&self, arg: &CallArgument) -> bool {
        match arg {
            CallArgument::Text(_) => true,
            CallArgument::Param(index) => matches!(self.param(*index).base, BaseType::String | BaseType::File),
            CallArgument::Value { .. } | CallArgument::Callback(_) => false,
        }
    }
}
