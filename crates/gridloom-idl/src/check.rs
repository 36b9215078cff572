//! Checks a signature's invariants, finds the parameters that can be inferred from others, and computes its hash.

use crate::evaluation::{Use, is_integer_scalar};
use crate::expr::postfix::Token;
use crate::expr::{EXPRESSION_NODES_MAX, Expr};
use crate::signature::{ArrayOrder, BaseType, Mode, Param, Signature};
use crate::slice::Slice;
use crate::uses::{NamePart, Retention, SharedUse};
use crate::values::AllowedValues;
use gridloom_base::limits::{
    CALLBACKS_MAX, DATUM_NAME_BYTES_MAX, DIMENSIONS_MAX, NAME_BYTES_MAX, PARAMETERS_MAX, REPLICAS_MAX,
};
use gridloom_base::{Dtype, Fnv, NameKind};

impl Signature {
    /// Checks the invariants that the rest relies on. Signatures received from a socket are checked before they are used.
    ///
    /// # Errors
    /// The first one that does not hold, in words.
    pub fn check(&self) -> Result<(), String> {
        NameKind::Function.check(&self.name).map_err(|error| error.to_string())?;
        if self.params.len() > PARAMETERS_MAX {
            return Err(format!("{} parameters, and at most {PARAMETERS_MAX} are allowed", self.params.len()));
        }
        for (index, param) in self.params.iter().enumerate() {
            if self.params[..index].iter().any(|earlier| earlier.name == param.name) {
                return Err(format!("parameter '{}' is declared twice", param.name));
            }
            self.check_param(param).map_err(|why| format!("parameter '{}': {why}", param.name))?;
        }
        for (index, param) in self.params.iter().enumerate() {
            if param.hidden && !self.is_inferable(index) {
                let name = &param.name;
                return Err(format!(
                    "size '{name}' does not follow from the arguments: no input array has it as an extent of its own; \
                     declare '{name}' as an input"
                ));
            }
        }
        self.check_callbacks()?;
        self.check_uses()?;
        match &self.work {
            Some(work) => check_expression(work, &self.params, Use::Work).map_err(|why| format!("work: {why}")),
            None => Ok(()),
        }
    }

    fn check_param(&self, param: &Param) -> Result<(), String> {
        NameKind::Parameter.check(&param.name).map_err(|error| error.to_string())?;
        if param.dims.len() > DIMENSIONS_MAX {
            return Err(format!("{} dimensions, and at most {DIMENSIONS_MAX} are allowed", param.dims.len()));
        }
        if !param.dims.is_empty() && !param.is_array {
            return Err("it has extents and is not marked as an array".to_string());
        }
        if param.is_array && !matches!(param.base, BaseType::Number(_)) && !param.is_list() {
            return Err("arrays hold numbers, strings or files only".to_string());
        }
        if param.is_list() && (param.dims.is_empty() || matches!(param.mode, Mode::Work | Mode::VarOut)) {
            return Err("an array of strings or of files has extents, and is IN, OUT or INOUT".to_string());
        }
        if param.mode == Mode::Work && !param.is_array {
            return Err("WORK is scratch space, so it is an array".to_string());
        }
        if param.hidden && (param.mode != Mode::In || !is_integer_scalar(param)) {
            return Err("only an integer IN scalar can be hidden".to_string());
        }
        if param.mode == Mode::VarOut && param.dims.is_empty() {
            return Err("VAROUT is an array whose extents are known after the call".to_string());
        }
        self.check_slices(param)?;
        self.check_values(param)?;
        if let Some(likely) = &param.likely_bytes {
            if param.mode != Mode::Out || param.is_array || param.unknown_result(0).is_none() {
                return Err(
                    "its size is known from its type; a likely one is for a result that is a text, bytes or a file"
                        .into(),
                );
            }
            check_expression(likely, &self.params, Use::Work).map_err(|why| format!("likely size: {why}"))?;
        }
        let used = if param.mode == Mode::VarOut { Use::SizeAfter } else { Use::Size };
        param.dims.iter().try_for_each(|dim| check_expression(dim, &self.params, used))
    }

    /// The name of shared data as it is written, without quotes.
    pub fn pattern(&self, used: &SharedUse) -> String {
        let part = |part: &NamePart| match part {
            NamePart::Text(text) => text.replace('{', "{{").replace('}', "}}"),
            NamePart::Number(expr) => format!("{{{}}}", expr.display(&self.params)),
            NamePart::Param(index) => {
                let name = self.params.get(*index).map(|param| param.name.clone());
                format!("{{{}}}", name.unwrap_or_else(|| format!("#{index}")))
            }
        };
        used.name.iter().map(part).collect()
    }

    fn check_uses(&self) -> Result<(), String> {
        if self.uses.len() > PARAMETERS_MAX {
            let count = self.uses.len();
            return Err(format!("{count} shared data are declared, and at most {PARAMETERS_MAX} are allowed"));
        }
        for used in &self.uses {
            let what = || format!("{} {:?}", used.kind.word(), self.pattern(used));
            if used.name.len() > PARAMETERS_MAX || self.pattern(used).len() > DATUM_NAME_BYTES_MAX {
                let limits = format!("{DATUM_NAME_BYTES_MAX} bytes and {PARAMETERS_MAX} values");
                return Err(format!("{}: a name of shared data is written in at most {limits}", used.kind.word()));
            }
            for part in &used.name {
                let checked = match part {
                    NamePart::Text(_) => Ok(()),
                    NamePart::Number(expr) => check_expression(expr, &self.params, Use::Size),
                    NamePart::Param(index) => self.check_text(*index),
                };
                checked.map_err(|why| format!("{}: {why}", what()))?;
            }
            check_expression(&used.size_bytes, &self.params, Use::Size).map_err(|why| format!("{}: {why}", what()))?;
            check_kept(used).map_err(|why| format!("{}: {why}", what()))?;
        }
        Ok(())
    }

    /// Checks that a parameter can be a part of a name.
    fn check_text(&self, index: usize) -> Result<(), String> {
        let is_text = |param: &Param| {
            param.mode == Mode::In && !param.is_array && matches!(param.base, BaseType::Text | BaseType::String)
        };
        match self.params.get(index) {
            Some(param) if is_text(param) => Ok(()),
            Some(param) => Err(format!("parameter '{}' is not an IN string", param.name)),
            None => Err(format!("it refers to parameter {index} of {}", self.params.len())),
        }
    }

    fn check_callbacks(&self) -> Result<(), String> {
        if self.callbacks.len() > CALLBACKS_MAX || self.params.len() + self.callbacks.len() > PARAMETERS_MAX {
            let (count, all) = (self.callbacks.len(), self.params.len() + self.callbacks.len());
            return Err(format!(
                "{count} callbacks, {all} with the parameters; at most {CALLBACKS_MAX} and {PARAMETERS_MAX} are allowed"
            ));
        }
        for (index, callback) in self.callbacks.iter().enumerate() {
            let name = &callback.name;
            let is_known = self.params.iter().any(|param| param.name == *name)
                || self.callbacks[..index].iter().any(|earlier| earlier.name == *name);
            if is_known || NameKind::Parameter.check(name).is_err() || callback.params.len() > PARAMETERS_MAX {
                return Err(format!(
                    "callback '{name}' needs a name of its own and at most {PARAMETERS_MAX} parameters"
                ));
            }
            for param in &callback.params {
                let is_array = param.is_array
                    && !param.dims.is_empty()
                    && matches!(param.base, BaseType::Number(_) | BaseType::String);
                if !is_array
                    || param.hidden
                    || param.slices.is_some()
                    || param.values.is_some()
                    || matches!(param.mode, Mode::Work | Mode::VarOut)
                {
                    return Err(format!(
                        "parameter '{}' of callback '{name}' is not a plain array of numbers or strings",
                        param.name
                    ));
                }
                self.check_param(param).map_err(|why| format!("parameter '{}' of '{name}': {why}", param.name))?;
            }
        }
        Ok(())
    }

    fn check_values(&self, param: &Param) -> Result<(), String> {
        let Some(values) = &param.values else { return Ok(()) };
        let BaseType::Number(dtype) = param.base else { return Err("only numbers have listed values".to_string()) };
        if !param.is_input() || param.slices.is_some() || !dtype.is_integer() {
            return Err("only whole numbers that are inputs, and are sent whole, have listed values".to_string());
        }
        match values {
            AllowedValues::Characters(letters)
                if letters.is_empty() || !letters.is_ascii() || letters.len() > NAME_BYTES_MAX =>
            {
                Err(format!("its values must be 1 to {NAME_BYTES_MAX} ASCII characters, got {letters:?}"))
            }
            AllowedValues::Characters(_) if dtype.size_bytes() != 1 => {
                Err("only a char has letters as values".to_string())
            }
            AllowedValues::Characters(_) => Ok(()),
            AllowedValues::Range(..) => {
                values.expressions().try_for_each(|expr| check_expression(expr, &self.params, Use::Size))
            }
        }
    }

    fn check_slices(&self, param: &Param) -> Result<(), String> {
        let Some(slices) = &param.slices else { return Ok(()) };
        if !matches!(param.mode, Mode::In | Mode::Out | Mode::InOut) {
            return Err(format!("a {} array has no slices", param.mode));
        }
        if slices.len() != param.dims.len() || slices.iter().zip(&param.dims).any(|(s, dim)| s.extent() != *dim) {
            return Err("its extents are not those of its slices".to_string());
        }
        let mut expressions = slices.iter().flat_map(Slice::expressions);
        expressions.try_for_each(|expr| check_expression(expr, &self.params, Use::Size))
    }

    /// Parameters that a caller gives by position: the `IN` and `INOUT` ones, except those in [`Signature::inferable`].
    /// (f2py's convention.)
    pub fn positional(&self) -> Vec<usize> {
        self.inputs().filter(|index| !self.is_inferable(*index)).collect()
    }

    /// Integer `IN` scalars that are an extent of an input array, or a branch of a conditional that is one. They are inferred from
    /// the array, and may be given by name.
    pub fn inferable(&self) -> Vec<usize> {
        self.inputs().filter(|index| self.is_inferable(*index)).collect()
    }

    /// The `IN` and `INOUT` parameters, in declaration order.
    pub(crate) fn inputs(&self) -> impl Iterator<Item = usize> + '_ {
        (0..self.params.len()).filter(|index| self.params[*index].is_input())
    }

    fn is_inferable(&self, index: usize) -> bool {
        let param = &self.params[index];
        // A slice shows only its own extents, and a list only its number of items.
        let tells = |array: &Param| array.slices.is_none() && (!array.is_list() || array.dims.len() == 1);
        let extent_of_input =
            |array: &Param| array.is_input() && tells(array) && array.dims.iter().any(|dim| may_be(dim, index));
        param.mode == Mode::In && is_integer_scalar(param) && self.params.iter().any(extent_of_input)
    }

    /// A hash of all that callers rely on: the name, the parameters and the complexity, not the description. It is the
    /// same on every machine and in every version that keeps this encoding (64-bit FNV-1a).
    pub fn hash(&self) -> u64 {
        let mut hash = Fnv::default();
        hash.text(&self.name);
        hash.number(self.params.len() as u64);
        for param in self.params.iter().chain(self.callbacks.iter().flat_map(|callback| &callback.params)) {
            hash.text(&param.name);
            hash.byte(match param.mode {
                Mode::In => 0,
                Mode::Out => 1,
                Mode::InOut => 2,
                Mode::Work => 3,
                Mode::VarOut => 4,
            });
            hash.byte(match param.base {
                BaseType::Number(dtype) => Dtype::ALL.iter().position(|one| *one == dtype).map_or(255, |at| at as u8),
                BaseType::Text => 64,
                BaseType::Bytes => 65,
                BaseType::String => 66,
                BaseType::File => 67,
                BaseType::Stream => 68,
            });
            hash.number(param.dims.len() as u64);
            param.dims.iter().for_each(|dim| hash.expression(dim));
            hash.byte(u8::from(param.is_array));
            hash.byte(match param.order {
                ArrayOrder::C => 0,
                ArrayOrder::F => 1,
                ArrayOrder::Any => 2,
                ArrayOrder::Transposed => 3,
            });
            hash.byte(u8::from(param.hidden));
            // A parameter without slices keeps the hash that it had before slices existed.
            if let Some(slices) = &param.slices {
                hash.byte(2);
                slices.iter().flat_map(Slice::expressions).for_each(|expr| hash.expression(expr));
            }
            if let Some(values) = &param.values {
                hash.byte(3);
                if let AllowedValues::Characters(letters) = values {
                    hash.text(letters);
                }
                values.expressions().for_each(|expr| hash.expression(expr));
            }
            if let Some(likely) = &param.likely_bytes {
                hash.byte(4);
                hash.expression(likely);
            }
        }
        for callback in &self.callbacks {
            hash.text(&callback.name);
            hash.number(callback.params.len() as u64);
        }
        hash.byte(u8::from(self.work.is_some()));
        self.work.iter().for_each(|work| hash.expression(work));
        // A function without uses keeps the hash that it had before uses existed. The method is left out: nodes of
        // version 46 do not know it.
        for used in &self.uses {
            hash.text(used.kind.word());
            hash.text(&self.pattern(used));
            hash.expression(&used.size_bytes);
            if used.retention != Retention::default() {
                hash.number(u64::from(used.retention.replicas));
                hash.byte(u8::from(used.retention.is_durable));
            }
        }
        hash.0
    }
}

fn check_kept(used: &SharedUse) -> Result<(), String> {
    let Retention { replicas, .. } = used.retention;
    if !(1..=REPLICAS_MAX).contains(&replicas) {
        return Err(format!("{replicas} replicas: expected 1 to {REPLICAS_MAX}"));
    }
    match used.kind.puts() || used.retention == Retention::default() {
        true => Ok(()),
        false => Err("only data that are put have replicas or a method, or are durable".into()),
    }
}

fn check_expression(expr: &Expr, params: &[Param], used: Use) -> Result<(), String> {
    expr.checked(params, used)?;
    if expr.postfix().len() > EXPRESSION_NODES_MAX {
        return Err(format!("the expression has more than {EXPRESSION_NODES_MAX} operators and operands"));
    }
    Ok(())
}

/// Adds expressions to the hash token by token.
trait ExpressionSink {
    fn expression(&mut self, expr: &Expr);
}

impl ExpressionSink for Fnv {
    fn expression(&mut self, expr: &Expr) {
        let tokens = expr.postfix();
        self.number(tokens.len() as u64);
        for token in tokens {
            match token {
                Token::Number(number) => {
                    self.byte(0);
                    self.number(number.to_bits());
                }
                Token::Param(index) => {
                    self.byte(1);
                    self.number(u64::from(index));
                }
                Token::Unary(op) => [2, op as u8].into_iter().for_each(|byte| self.byte(byte)),
                Token::Binary(op) => [3, op as u8].into_iter().for_each(|byte| self.byte(byte)),
                Token::Conditional => self.byte(4),
            }
        }
    }
}

/// True if an extent is that parameter, or can be by a conditional.
fn may_be(extent: &Expr, index: usize) -> bool {
    match extent {
        Expr::Param(param) => *param == index,
        Expr::Conditional(_, then, otherwise) => may_be(then, index) || may_be(otherwise, index),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parse::parse;

    fn signature(text: &str) -> Signature {
        parse(text, "t.idl").unwrap().remove(0).signature
    }

    const AXPY: &str =
        "Define axpy(IN int n, IN double s, IN double x[n], INOUT double y[n]) \"a\" Calls f(n, s, x, y);";

    #[test]
    fn sizes_of_input_arrays_are_inferable() {
        let axpy = signature(AXPY);
        assert_eq!((axpy.inferable(), axpy.positional()), (vec![0], vec![1, 2, 3]));
        let fill = signature("Define fill(IN int n, IN int m, IN int x[m+1], OUT double y[n]) Calls f(n, m, x, y);");
        assert_eq!((fill.inferable(), fill.positional()), (vec![], vec![0, 1, 2]));
    }

    #[test]
    fn the_hash_is_pinned_and_ignores_the_description() {
        let axpy = signature(AXPY);
        let mut other = axpy.clone();
        other.about = "b".into();
        assert_eq!(axpy.hash(), other.hash());
        assert_eq!(axpy.hash(), PINNED, "a changed hash means that old and new versions refuse each other's calls");
        other.params[2].order = ArrayOrder::F;
        assert_ne!(axpy.hash(), other.hash());
    }

    const PINNED: u64 = 13_215_049_175_475_245_312;

    #[test]
    fn broken_invariants_are_refused() {
        let broken = |change: &dyn Fn(&mut Signature)| {
            let mut signature = signature(AXPY);
            change(&mut signature);
            signature.check().unwrap_err()
        };
        assert!(broken(&|s| s.name = "axpy".into()).contains("module/function"));
        assert!(broken(&|s| s.name = "a/b/c".into()).contains("'/' is not allowed"));
        assert!(broken(&|s| s.params[1].name = "n".into()).contains("declared twice"));
        assert!(broken(&|s| s.params[2].dims = vec![Expr::Param(99)]).contains("parameter 99 of 4"));
        assert!(broken(&|s| s.params[2].dims = vec![Expr::Param(1)]).contains("sizes use only integers"));
        assert!(broken(&|s| s.params[2].dims = vec![Expr::Number(0.5)]).contains("not an exact integer"));
        assert!(broken(&|s| s.params[2].is_array = false).contains("not marked as an array"));
        assert!(broken(&|s| s.params[1].hidden = true).contains("only an integer IN scalar"));
        assert!(broken(&|s| s.params[2].base = BaseType::Text).contains("strings or files only"));
        assert!(broken(&|s| s.work = Some(Expr::Param(3))).contains("INOUT"));
        assert!(broken(&|s| s.params = vec![s.params[0].clone(); 129]).contains("at most 128"));
    }
}
