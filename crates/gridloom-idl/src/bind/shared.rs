//! The shared data of a call: names and sizes that a function declares, evaluated with the call's arguments.

use super::error::BindError;
use super::extents::Sizes;
use crate::scalar::{Scalar, scalar_value};
use crate::uses::{NamePart, SharedUse, UsedName};
use gridloom_base::check_name;

impl Sizes<'_> {
    /// Returns the shared data that the call gets and puts, if its function declares them. Omits those with an unknown value.
    ///
    /// # Errors
    /// If a name is invalid, or a size has no value.
    pub(super) fn uses(&self) -> Result<Vec<UsedName>, BindError> {
        self.signature.uses.iter().filter_map(|used| self.used(used).transpose()).collect()
    }

    fn used(&self, used: &SharedUse) -> Result<Option<UsedName>, BindError> {
        let params = &self.signature.params;
        let known = |index: &usize| self.scalars.get(*index).is_some_and(Option::is_some);
        let numbers = used.name.iter().filter_map(|part| match part {
            NamePart::Number(expr) => Some(expr),
            NamePart::Text(_) | NamePart::Param(_) => None,
        });
        let mut needed: Vec<usize> = numbers.chain([&used.size_bytes]).flat_map(|expr| expr.params()).collect();
        needed.extend(used.name.iter().filter_map(|part| match part {
            NamePart::Param(index) => Some(*index),
            NamePart::Text(_) | NamePart::Number(_) => None,
        }));
        if !needed.iter().all(known) {
            return Ok(None);
        }
        let what = || format!("shared data {:?} ({})", self.signature.pattern(used), used.kind.word());
        let value = |index: usize| scalar_value(&self.scalars, index).and_then(Scalar::integer);
        let mut name = String::new();
        for part in &used.name {
            match part {
                NamePart::Text(text) => name.push_str(text),
                NamePart::Number(expr) => {
                    let number =
                        expr.evaluate_integer(params, &value).map_err(|error| self.eval_error(error, what()))?;
                    name.push_str(&number.to_string());
                }
                NamePart::Param(index) => {
                    let bytes = self.scalars[*index].as_ref().map_or(&[][..], |(_, bytes)| bytes);
                    name.push_str(&String::from_utf8_lossy(bytes));
                }
            }
        }
        let wrong = |why: String| BindError::Value { function: self.function(), what: what(), why };
        check_name(&name).map_err(|error| wrong(error.to_string()))?;
        let size_bytes =
            used.size_bytes.evaluate_extent(params, &value).map_err(|error| self.eval_error(error, what()))?;
        Ok(Some(UsedName { kind: used.kind, name, size_bytes, retention: used.retention }))
    }
}

#[cfg(test)]
mod tests {
    use gridloom_base::{Dtype, Meta, Method};

    use crate::parse::parse;
    use crate::uses::{Retention, UseKind, UsedName};
    use crate::{ActualArgument, ArrayOrder, BaseType, Signature, SignatureBuilder};

    const TEXT: &str = "Module m; Define f(IN int i, IN int n, IN string name, OUT int *r) \"d\" CalcOrder 1 \
                        Gets(\"part/{i}/{i+1}\", 8 * n) Puts(name, n) Replaces(\"{{last}}\", 4) Calls \"C\" f(i, n, r);";

    fn number(value: i32) -> ActualArgument {
        ActualArgument { meta: Meta::scalar(Dtype::Int32), inline: Some(value.to_ne_bytes().to_vec()) }
    }

    fn text(text: &str) -> ActualArgument {
        ActualArgument { meta: Meta::Text { size_bytes: text.len() as u64 }, inline: Some(text.into()) }
    }

    fn used(does: UseKind, name: &str, size_bytes: u64) -> UsedName {
        UsedName { kind: does, name: name.into(), size_bytes, retention: Retention::default() }
    }

    #[test]
    fn names_and_sizes_follow_from_the_arguments() {
        let definition = parse(TEXT, "m.idl").unwrap().remove(0);
        let signature = definition.signature.clone();
        let bound = signature.bind(&[number(3), number(10), text("mesh")], &[]).unwrap();
        let all =
            [used(UseKind::Get, "part/3/4", 80), used(UseKind::Put, "mesh", 10), used(UseKind::Replace, "{last}", 4)];
        assert_eq!(bound.uses, all);
        // Unknown values are omitted.
        let remote = ActualArgument { meta: Meta::scalar(Dtype::Int32), inline: None };
        assert_eq!(signature.bind(&[remote, number(10), text("mesh")], &[]).unwrap().uses, all[1..]);
        assert!(
            signature.bind(&[number(3), number(-1), text("mesh")], &[]).unwrap_err().to_string().contains("part/{i}")
        );
        let error = signature.bind(&[number(3), number(1), text("a\nb")], &[]).unwrap_err().to_string();
        assert!(error.contains("shared data \"{name}\" (Puts)") && error.contains("control character"), "{error}");
        // The printed form can be read back.
        let again = parse(&definition.to_string(), "m.idl").unwrap().remove(0);
        assert_eq!(again.signature, signature);
        let without = Signature { uses: Vec::new(), ..signature.clone() };
        assert_ne!(signature.hash(), without.hash());
    }

    #[test]
    fn how_they_are_kept_is_declared() {
        let text = "Module m; Define f(IN int n) CalcOrder 1 Puts(\"a\", n, durable, replicas 2) Replaces(\"b\", n, method swarm, replicas 3) \
                    Puts(\"c\", n) Calls \"C\" f(n);";
        let definition = parse(text, "m.idl").unwrap().remove(0);
        let kept: Vec<Retention> =
            definition.signature.bind(&[number(5)], &[]).unwrap().uses.iter().map(|used| used.retention).collect();
        let twice = Retention { replicas: 2, is_durable: true, ..Retention::default() };
        let three = Retention { replicas: 3, method: Method::Swarm, ..Retention::default() };
        assert_eq!(kept, [twice, three, Retention::default()]);
        assert_eq!(parse(&definition.to_string(), "m.idl").unwrap().remove(0).signature, definition.signature);
        let built = SignatureBuilder::new("m/f").uses_kept(UseKind::Put, "a", "8", twice).build().unwrap();
        assert_eq!(built.uses[0].retention, twice);
        // Nodes of version 46 do not know the method, but find the same function.
        let mut older = definition.signature.clone();
        older.uses[1].retention.method = Method::Auto;
        assert!(older != definition.signature && older.hash() == definition.signature.hash());
        let many = Retention { replicas: 17, ..Retention::default() };
        let wrong = SignatureBuilder::new("m/f").uses_kept(UseKind::Put, "a", "8", many).build().unwrap_err();
        assert!(wrong.message.contains("1 to 16"), "{}", wrong.message);
        assert!(SignatureBuilder::new("m/f").uses_kept(UseKind::Get, "a", "8", twice).build().is_err());
    }

    #[test]
    fn programs_declare_them_likewise() {
        let array = |builder: SignatureBuilder| {
            builder.input("x", BaseType::Number(Dtype::Float64), Some(&["n"]), ArrayOrder::Any)
        };
        let signature = array(SignatureBuilder::new("m/f")).uses(UseKind::Get, "part/{n}", "n * 8").build().unwrap();
        let x = ActualArgument { meta: Meta::array(Dtype::Float64, &[5]), inline: None };
        assert_eq!(signature.bind(&[x], &[]).unwrap().uses, [used(UseKind::Get, "part/5", 40)]);
        let wrong = |name: &str, size: &str| {
            let built = array(SignatureBuilder::new("m/f")).uses(UseKind::Put, name, size).build();
            built.unwrap_err().message
        };
        assert!(wrong("part/{n", "n").contains("has no '}'"));
        assert!(wrong("part/{k}", "n").contains("unknown name 'k'"));
        assert!(wrong("part/{x}", "n").contains("'x'"), "{}", wrong("part/{x}", "n"));
        assert!(wrong("part", "x").contains("'x'"));
        assert!(wrong(&"x".repeat(1025), "n").contains("1024 bytes"));
    }

    #[test]
    fn what_is_written_wrongly_is_reported() {
        for (wrong, why) in [
            ("Gets(3, n)", "a name in double quotes"),
            ("Gets(n2, n)", "unknown name 'n2'"),
            ("Gets(\"a\")", "','"),
            ("Gets(\"a\", x)", "'x'"),
            ("Puts(\"a}\", n)", "has no '{'"),
            ("Puts(\"a\", n, lasting)", "'durable', 'replicas' or 'method'"),
            ("Puts(\"a\", n, method sworm)", "did you mean 'swarm'"),
            ("Puts(\"a\", n, method 3)", "a method of transfer"),
            ("Puts(\"a\", n, replicas 17)", "expected 1 to 16"),
            ("Puts(\"a\", n, replicas x)", "how many servers"),
            ("Gets(\"a\", n, durable)", "')'"),
            ("Puts(\"{x}\", n)", "'x'"),
        ] {
            let text = format!("Module m; Define f(IN int n, IN double x[n]) {wrong} Calls \"C\" f(n, x);");
            let error = parse(&text, "m.idl").unwrap_err();
            assert!(error.message.contains(why) && error.line == 1, "{wrong}: {error}");
        }
    }
}
