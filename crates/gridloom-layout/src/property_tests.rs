//! Random types and values on all pairs of machines, and hostile bytes.

use std::sync::Arc;

use proptest::prelude::*;

use super::abi::Sizes;
use super::c_parse::parse;
use super::types::{Case, Declaration, Enum, Extent, Field, Integer, Pointer, Struct, Type, Union};
use super::{Abi, Graph, MemoryAt, MemoryLayout, Receiver, Schema, Value};
use gridloom_base::ByteOrder;
use gridloom_idl::Expr;
use gridloom_idl::expr::BinaryOp;

/// Choices derived from bytes. When they run out, the first choice is made, so shrinking the bytes makes cases simpler.
struct Chooser<'a>(&'a [u8]);

impl Chooser<'_> {
    fn below(&mut self, limit: usize) -> usize {
        match self.0.split_first() {
            Some((byte, rest)) => {
                self.0 = rest;
                usize::from(*byte) % limit
            }
            None => 0,
        }
    }
}

const STRUCTS: usize = 3;

fn schema(choose: &mut Chooser<'_>) -> Schema {
    let mut declarations = Vec::new();
    for number in 0..STRUCTS {
        let mut fields = Vec::new();
        for member in 0..1 + choose.below(6) {
            add_field(choose, number, member, &mut fields);
        }
        let packed = choose.below(5) == 1;
        declarations.push(Declaration::Struct(Struct { name: format!("S{number}"), fields, packed, dynamic: false }));
    }
    let constants = vec![("ZERO".to_string(), 0), ("MINUS".to_string(), -5), ("MORE".to_string(), 30_000)];
    declarations.push(Declaration::Enum(Enum { name: "E".into(), constants }));
    let cases = vec![
        Case { name: "d".into(), tag: 0, ty: Type::Float64 },
        Case { name: "l".into(), tag: -5, ty: Type::array(Type::Integer(Integer::Long), 2) },
        Case { name: "p".into(), tag: 7, ty: Type::pointer_to(Type::Named(STRUCTS - 1)) },
        Case { name: "t".into(), tag: 8, ty: Type::text() },
    ];
    declarations.push(Declaration::Union(Union { name: "U".into(), cases }));
    let dynamic = super::c_types::dynamic_struct("array_of_long", Type::Integer(Integer::Long));
    declarations.push(Declaration::Struct(dynamic));
    Schema::new(&declarations, 0).unwrap()
}

const ENUM: usize = STRUCTS;
const UNION: usize = STRUCTS + 1;
const DYNAMIC: usize = STRUCTS + 2;

fn plain(choose: &mut Chooser<'_>) -> Type {
    match choose.below(21) {
        18 => Type::Float32,
        19 => Type::Float64,
        20 => Type::Bool,
        integer => Type::Integer(Integer::ALL[integer]),
    }
}

fn add_field(choose: &mut Chooser<'_>, own: usize, member: usize, fields: &mut Vec<Field>) {
    let name = format!("f{member}");
    let ty = match choose.below(12) {
        0..3 => plain(choose),
        3 => Type::array(plain(choose), 1 + choose.below(4) as u64),
        4 if own + 1 < STRUCTS => Type::Named(own + 1 + choose.below(STRUCTS - own - 1)),
        5 if own + 1 < STRUCTS => Type::array(Type::Named(STRUCTS - 1), 2),
        4..6 => Type::Named(ENUM),
        6 => Type::pointer_to(Type::Named(choose.below(STRUCTS))),
        7 => Type::text(),
        8 => Type::Named(DYNAMIC),
        9 => {
            let tag = if choose.below(2) == 0 { Type::Named(ENUM) } else { Type::Integer(Integer::Short) };
            fields.push(Field::new(&format!("t{member}"), tag));
            fields.push(Field { name, ty: Type::Named(UNION), tag: Some(fields.len() - 1) });
            return;
        }
        _ => {
            let target = match choose.below(3) {
                0 => plain(choose),
                1 => Type::Named(choose.below(STRUCTS)),
                _ => Type::text(),
            };
            let length = [Integer::Int, Integer::SizeT, Integer::Uint8][choose.below(3)];
            fields.push(Field::new(&format!("n{member}"), Type::Integer(length)));
            let at = fields.len() - 1;
            // With one more, a struct that contains itself this way would never end.
            let count = match (choose.below(2), &target) {
                (0, _) | (_, Type::Named(_)) => Expr::Param(at),
                _ => Expr::Binary(BinaryOp::Add, Box::new(Expr::Param(at)), Box::new(Expr::Number(1.0))),
            };
            Type::Pointer(Box::new(Pointer { target, extent: Extent::Count(count) }))
        }
    };
    fields.push(Field::new(&name, ty));
}

/// Values that every machine can hold.
struct Values<'a, 'b> {
    choose: &'a mut Chooser<'b>,
    schema: &'a Schema,
    /// Types of the shared arrays, and their lengths.
    shared: Vec<(Type, u64)>,
    left: usize,
}

impl Values<'_, '_> {
    fn integer(&mut self, integer: Integer) -> Value {
        let bits = match integer {
            Integer::Int8 | Integer::Uint8 | Integer::Char => 8,
            Integer::Int32 | Integer::Uint32 | Integer::Long | Integer::UnsignedLong | Integer::SizeT => 32,
            Integer::Int64 | Integer::Uint64 | Integer::LongLong | Integer::UnsignedLongLong => 64,
            _ => 16,
        };
        let (least, most) = if integer.is_signed() {
            (-(1i128 << (bits - 1)), (1i128 << (bits - 1)) - 1)
        } else {
            (0, (1i128 << bits) - 1)
        };
        Value::Integer(match self.choose.below(4) {
            0 => 0,
            1 => least,
            2 => most,
            _ => (self.choose.below(256) as i128 - 128).clamp(least, most),
        })
    }

    fn value(&mut self, ty: &Type) -> Value {
        match ty {
            Type::Integer(integer) => self.integer(*integer),
            Type::Float32 | Type::Float64 => Value::Float((self.choose.below(256) as f64 - 100.0) / 8.0),
            Type::Bool => Value::Bool(self.choose.below(2) == 1),
            Type::Array(element, count) if **element == Type::Integer(Integer::Char) => {
                Value::Bytes((0..*count).map(|_| self.choose.below(256) as u8).collect())
            }
            Type::Array(element, count) => Value::List((0..*count).map(|_| self.value(element)).collect()),
            Type::Pointer(pointer) => self.pointer(pointer, 1).unwrap(),
            Type::Named(index) => {
                let schema = self.schema;
                match &schema.declarations()[*index] {
                    Declaration::Struct(declared) if declared.dynamic => {
                        Value::List((0..self.choose.below(4)).map(|_| self.integer(Integer::Long)).collect())
                    }
                    Declaration::Struct(declared) => self.fields(declared),
                    Declaration::Enum(declared) => {
                        let constant = self.choose.below(declared.constants.len());
                        Value::Constant(declared.constants[constant].0.clone())
                    }
                    Declaration::Union(_) => unreachable!(),
                }
            }
        }
    }

    fn fields(&mut self, declared: &Struct) -> Value {
        let mut values: Vec<(String, Value)> = Vec::new();
        for field in &declared.fields {
            let value = match (&field.ty, field.tag) {
                (Type::Named(union), Some(tag)) => {
                    let schema = self.schema;
                    let Declaration::Union(union) = &schema.declarations()[*union] else { unreachable!() };
                    let case = &union.cases[self.choose.below(union.cases.len())];
                    let fits = declared.fields[tag].ty == Type::Integer(Integer::Short) || case.tag <= 0;
                    let case = if fits { case } else { &union.cases[0] };
                    values[tag].1 = Value::Integer(i128::from(case.tag));
                    Value::Case(case.name.clone(), Box::new(self.value(&case.ty)))
                }
                (Type::Pointer(pointer), _) => match &pointer.extent {
                    Extent::Count(count) => {
                        let (Expr::Param(at), extra) = (match count {
                            Expr::Binary(_, left, _) => (&**left, 1),
                            count => (count, 0),
                        }) else {
                            unreachable!()
                        };
                        let length = self.choose.below(4);
                        values[*at].1 = Value::Integer(length as i128);
                        self.pointer(pointer, length + extra).unwrap_or_else(|| Value::List(Vec::new()))
                    }
                    _ => self.value(&field.ty),
                },
                _ => self.value(&field.ty),
            };
            values.push((field.name.clone(), value));
        }
        Value::Struct(values)
    }

    fn pointer(&mut self, pointer: &Pointer, needed: usize) -> Option<Value> {
        let characters = pointer.target == Type::Integer(Integer::Char);
        if pointer.extent == Extent::Text {
            let text = ["", "a", "Grüße", "longer than a word"][self.choose.below(4)];
            return Some(if self.choose.below(4) == 3 { Value::Null } else { Value::Text(text.into()) });
        }
        let fitting: Vec<usize> = (0..self.shared.len())
            .filter(|n| self.shared[*n].0 == pointer.target && self.shared[*n].1 >= needed as u64)
            .collect();
        if !fitting.is_empty() && needed > 0 && self.choose.below(2) == 1 {
            let shared = fitting[self.choose.below(fitting.len())];
            let spare = self.shared[shared].1 - needed as u64;
            return Some(Value::Reference { shared, index: self.choose.below(spare as usize + 1) as u64 });
        }
        if pointer.extent == Extent::One {
            if self.left == 0 || self.choose.below(3) == 0 {
                return Some(Value::Null);
            }
            self.left -= 1;
            return Some(Value::Pointee(Box::new(self.value(&pointer.target))));
        }
        if characters {
            return Some(Value::Bytes(vec![b'x'; needed]));
        }
        self.left = self.left.saturating_sub(needed);
        Some(Value::List(
            (0..needed)
                .map(|_| match (&pointer.target, self.left) {
                    (Type::Named(_), 0) => self.shallow(&pointer.target),
                    (target, _) => self.value(target),
                })
                .collect(),
        ))
    }

    /// Once enough was made: every remaining choice is the first.
    fn shallow(&mut self, ty: &Type) -> Value {
        let rest = std::mem::take(&mut self.choose.0);
        let shared = std::mem::take(&mut self.shared);
        let value = self.value(ty);
        (self.choose.0, self.shared) = (rest, shared);
        value
    }
}

fn graph(choose: &mut Chooser<'_>, schema: &Schema) -> Graph {
    let mut kinds = Vec::new();
    for _ in 0..choose.below(3) {
        let number = choose.below(schema.declarations().len());
        if let Declaration::Struct(Struct { dynamic: false, .. }) = &schema.declarations()[number] {
            kinds.push((Type::Named(number), 1 + choose.below(3) as u64));
        }
    }
    let mut values = Values { choose, schema, shared: kinds.clone(), left: 12 };
    let root = values.value(&Type::Named(0));
    let shared = kinds.iter().map(|(ty, count)| (0..*count).map(|_| values.value(ty)).collect()).collect();
    Graph { root, shared }
}

fn machines() -> Vec<Abi> {
    let small = Sizes {
        byte_order: ByteOrder::Big,
        short: 2,
        int: 2,
        long: 4,
        long_long: 8,
        pointer: 4,
        size_t: 4,
        align_integers: [2, 2, 2],
        align_float: 2,
        align_double: 2,
        align_pointer: 2,
    };
    Abi::known().map(|(_, abi)| abi).chain([Abi::new(small).unwrap()]).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn values_are_the_same_on_all_pairs_of_machines(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        let mut choose = Chooser(&bytes);
        let schema = Arc::new(schema(&mut choose));
        let given = graph(&mut choose, &schema);
        let machines = machines();
        let mut receivers: Vec<Receiver> =
            machines.iter().map(|abi| Receiver::new(schema.clone(), *abi).unwrap()).collect();
        let first = MemoryLayout::new(schema.clone(), machines[0]).unwrap().encode_values(&given).unwrap();
        // Elements of a shared array that nothing points to are not sent from memory, so one pass through it leaves a message
        // that is unchanged by further passes.
        let incoming = receivers[0].open(&first).unwrap();
        let mut memory = vec![0; incoming.size_bytes()];
        let root = incoming.place(&mut memory, 0x1000).unwrap();
        let first = receivers[0].form().encode(&MemoryAt { base: 0x1000, bytes: &memory }, root).unwrap();
        let values = receivers[0].open(&first).unwrap().to_graph().unwrap();
        for sender in &machines {
            let form = MemoryLayout::new(schema.clone(), *sender).unwrap();
            let message = form.encode_values(&values).unwrap();
            for receiver in &mut receivers {
                let incoming = receiver.open(&message).unwrap();
                prop_assert_eq!(&incoming.to_graph().unwrap(), &values);
                let native = incoming.to_native().unwrap();
                let base = 0x1000;
                let mut memory = vec![0; incoming.size_bytes()];
                let root = incoming.place(&mut memory, base).unwrap();
                prop_assert_eq!(&receiver.open(&native).unwrap().to_graph().unwrap(), &values);
                // The placed memory is that of a program on that machine, which sends it again.
                let again = receiver.form().encode(&MemoryAt { base, bytes: &memory }, root).unwrap();
                prop_assert_eq!(&receiver.open(&again).unwrap().to_graph().unwrap(), &values);
            }
        }
    }

    #[test]
    fn declarations_are_read_from_their_text(bytes in prop::collection::vec(any::<u8>(), 0..100)) {
        let schema = schema(&mut Chooser(&bytes));
        let again = parse(&schema.to_string(), "text").unwrap().schema("S0").unwrap();
        prop_assert_eq!(&again, &schema);
        prop_assert_eq!(again.hash(), schema.hash());
    }

    #[test]
    fn hostile_bytes_are_errors_or_messages(
        bytes in prop::collection::vec(any::<u8>(), 0..300),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..5),
        cut in any::<prop::sample::Index>(),
    ) {
        let mut choose = Chooser(&bytes);
        let schema = Arc::new(schema(&mut choose));
        let given = graph(&mut choose, &schema);
        for abi in machines() {
            let mut message = MemoryLayout::new(schema.clone(), abi).unwrap().encode_values(&given).unwrap();
            let mut receiver = Receiver::new(schema.clone(), Abi::from_name("ppc").unwrap()).unwrap();
            prop_assert!(receiver.open(&message[..cut.index(message.len())]).is_err());
            for (place, byte) in &changes {
                let place = place.index(message.len());
                message[place] = *byte;
            }
            if let Ok(incoming) = receiver.open(&message) {
                incoming.to_graph().unwrap();
                let mut memory = vec![0; incoming.size_bytes()];
                if let Ok(root) = incoming.place(&mut memory, 64) {
                    let bytes = &memory[..];
                    receiver.form().encode(&MemoryAt { base: 64, bytes }, root).unwrap();
                }
            }
        }
    }

    #[test]
    fn no_text_makes_the_parser_panic(text in "[a-z0-9 \\n{}();,*=/\\[\\]GRIDLOOM_LENGTH\"'+-]{0,200}") {
        let _ = parse(&text, "text");
    }

    #[test]
    fn mutated_declarations_never_panic(
        bytes in prop::collection::vec(any::<u8>(), 0..100),
        changes in prop::collection::vec((any::<prop::sample::Index>(), 32u8..127), 1..4),
    ) {
        let mut text = schema(&mut Chooser(&bytes)).to_string().into_bytes();
        for (place, byte) in changes {
            let place = place.index(text.len());
            text[place] = byte;
        }
        if let Ok(found) = parse(std::str::from_utf8(&text).unwrap(), "text") {
            let names: Vec<String> = found.names().map(str::to_string).collect();
            for name in names {
                if let Ok(schema) = found.schema(&name) {
                    let _ = MemoryLayout::new(Arc::new(schema), Abi::NATIVE);
                }
            }
        }
    }
}
