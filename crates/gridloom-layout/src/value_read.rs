//! Reads a checked message's values directly from the sender's representation.
//!
//! The recursion is as deep as the declaration: longer (a list) or wider (a shared part) structures are stored in
//! [`Graph::shared`](super::Graph::shared).

use gridloom_base::limits::LAYOUT_DISPLAY_FACTOR;
use gridloom_idl::Expr;
use gridloom_idl::expr::BinaryOp;

use super::error::{LayoutError, Problem};
use super::integer_slot::IntegerSlot;
use super::message::{Message, Target};
use super::schema::params;
use super::slots::{PointerSlot, Rule};
use super::types::{Declaration, Extent, Integer, Pointer, Type};
use super::value::{Graph, Value};

/// Returns the values; of an array of more than `first` elements only the first ones.
pub(super) fn read(message: &Message<'_>, first: u64) -> Result<Graph, LayoutError> {
    let shared = shared_blocks(message)?;
    let numbers = vec![None; message.blocks.len()];
    let left = first.saturating_mul(LAYOUT_DISPLAY_FACTOR);
    let mut reader = Reader { message, shared, numbers, met: Vec::new(), hint: 0, first, left };
    let root = reader.place(Target { block: 0, index: message.root });
    let mut values = Vec::new();
    // Numbered in the order in which they are reached, breadth first, so that equal values are equal graphs whatever the order of
    // their blocks.
    while let Some(block) = reader.met.get(values.len()).copied().filter(|_| (values.len() as u64) < first) {
        let found = &message.blocks[block];
        values.push(match &message.form.schema.targets()[found.target as usize] {
            Type::Integer(Integer::Char) => vec![reader.characters(block)],
            _ => (0..reader.shown(found.count)).map(|index| reader.element(Target { block, index })).collect(),
        });
    }
    Ok(Graph { root, shared: values })
}

/// Returns which blocks are shared: those that pointers of their own type may lead to, and those that are reached from several
/// places or in part.
fn shared_blocks(message: &Message<'_>) -> Result<Vec<bool>, LayoutError> {
    let blocks = &message.blocks;
    let mut reached = vec![false; blocks.len()];
    let mut shared: Vec<bool> =
        blocks.iter().map(|block| message.form.targets[block.target as usize].recursive).collect();
    reached[0] = true;
    shared[0] |= message.root != 0 || blocks[0].count != 1;
    let pass = message.each_pointer(&mut |_, met, place| {
        let block = &blocks[place.block];
        let again = std::mem::replace(&mut reached[place.block], true);
        // Checked once for each block: a string that many pointers lead to is measured only once.
        let whole = !again
            && place.index == 0
            && match met.rule {
                Rule::One | Rule::Count => met.needed == block.count,
                Rule::Text => message.text(place).len() as u64 + 1 == block.count,
            };
        shared[place.block] |= !whole;
        Ok(())
    });
    pass.map_err(|fault| message.form.fail(fault))?;
    Ok(shared)
}

struct Reader<'a, 'm> {
    message: &'a Message<'m>,
    shared: Vec<bool>,
    /// Numbers of the shared blocks that were reached.
    numbers: Vec<Option<usize>>,
    met: Vec<usize>,
    hint: usize,
    /// Maximum number of elements to read of each array.
    first: u64,
    /// Remaining number of elements to read of all arrays together.
    left: u64,
}

impl Reader<'_, '_> {
    /// Returns a reference to a shared value, or the value itself.
    fn place(&mut self, place: Target) -> Value {
        match self.reference(place) {
            Some(reference) => reference,
            None => self.element(place),
        }
    }

    fn reference(&mut self, place: Target) -> Option<Value> {
        if !self.shared[place.block] {
            return None;
        }
        let shared = *self.numbers[place.block].get_or_insert_with(|| {
            self.met.push(place.block);
            self.met.len() - 1
        });
        Some(Value::Reference { shared, index: place.index })
    }

    fn element(&mut self, place: Target) -> Value {
        let message = self.message;
        let (block, form) = (message.blocks[place.block], message.form);
        let at = block.start + place.index * form.targets[block.target as usize].size;
        self.value(&form.schema.targets()[block.target as usize], at)
    }

    fn characters(&self, block: usize) -> Value {
        let block = &self.message.blocks[block];
        let memory = self.message.memory;
        self.bytes(&memory[block.start as usize..(block.start + block.count) as usize])
    }

    /// Returns the first characters, if there are too many.
    fn beginning<'b>(&self, bytes: &'b [u8]) -> Option<&'b [u8]> {
        let shown = usize::try_from(self.first.saturating_mul(LAYOUT_DISPLAY_FACTOR)).ok()?;
        bytes.get(..shown).filter(|first| first.len() < bytes.len())
    }

    fn bytes(&self, bytes: &[u8]) -> Value {
        match self.beginning(bytes) {
            None => Value::Bytes(bytes.to_vec()),
            Some(first) => {
                let values = vec![Value::Bytes(first.to_vec())];
                Value::Truncated { element: "char".into(), shape: vec![bytes.len() as u64], values }
            }
        }
    }

    fn text(&self, place: Target) -> Value {
        let bytes = self.message.text(place);
        if let Some(first) = self.beginning(bytes) {
            // An incomplete character at the end is left out.
            let first = String::from_utf8_lossy(first);
            let values = vec![Value::Text(first.trim_end_matches(char::REPLACEMENT_CHARACTER).into())];
            return Value::Truncated { element: "char".into(), shape: vec![bytes.len() as u64], values };
        }
        match std::str::from_utf8(bytes) {
            Ok(text) => Value::Text(text.to_string()),
            Err(_) => Value::Bytes(bytes.to_vec()),
        }
    }

    /// Returns how many of `count` elements are read.
    fn shown(&mut self, count: u64) -> u64 {
        let shown = count.min(self.first).min(self.left);
        self.left -= shown;
        shown
    }

    /// An array of that shape.
    fn list(
        &mut self,
        element: &Type,
        shape: Vec<u64>,
        count: u64,
        mut value: impl FnMut(&mut Self, u64) -> Value,
    ) -> Value {
        let shown = self.shown(count);
        let values = (0..shown).map(|index| value(self, index)).collect();
        if shown == count {
            return Value::List(values);
        }
        let element = element_name(element, self.message.form.schema.declarations());
        Value::Truncated { element, shape, values }
    }

    fn value(&mut self, ty: &Type, at: u64) -> Value {
        let form = self.message.form;
        let memory = self.message.memory;
        let order = form.abi.byte_order();
        match ty {
            Type::Integer(integer) => Value::Integer(IntegerSlot::new(&form.abi, *integer, at).get(memory, 0)),
            Type::Float32 => {
                let word = IntegerSlot { at, bytes: 4, signed: false, order };
                Value::Float(f64::from(f32::from_bits(word.get(memory, 0) as u32)))
            }
            Type::Float64 => {
                let word = IntegerSlot { at, bytes: 8, signed: false, order };
                Value::Float(f64::from_bits(word.get(memory, 0) as u64))
            }
            Type::Bool => Value::Bool(memory[at as usize] != 0),
            Type::Array(element, count) if **element == Type::Integer(Integer::Char) => {
                self.bytes(&memory[at as usize..(at + count) as usize])
            }
            Type::Array(element, count) => {
                let (leaf, shape) = flat(element, *count);
                let total = shape.iter().product::<u64>();
                // An array that is too long is shown as one row.
                let (element, count) = if total > self.first { (leaf, total) } else { (&**element, *count) };
                let stride = form.size_of(element);
                self.list(leaf, shape, count, |reader, index| reader.value(element, at + index * stride))
            }
            Type::Pointer(pointer) => self.pointer(pointer, 1, Vec::new(), at),
            Type::Named(index) => self.declaration(*index, at),
        }
    }

    fn declaration(&mut self, index: usize, at: u64) -> Value {
        let form = self.message.form;
        let memory = self.message.memory;
        let declared = match &form.schema.declarations()[index] {
            Declaration::Struct(declared) => declared,
            Declaration::Enum(declared) => {
                let value = IntegerSlot::new(&form.abi, Integer::Int, at).get(memory, 0) as i64;
                let name = declared.constant(value).expect("enums were checked with the message");
                return Value::Constant(name.to_string());
            }
            Declaration::Union(_) => unreachable!("a union is a field, and the struct reads it"),
        };
        let offsets = &form.shape(index).offsets;
        let integer = |field: usize| match &declared.fields[field].ty {
            Type::Integer(integer) => Some(IntegerSlot::new(&form.abi, *integer, at + offsets[field]).get(memory, 0)),
            Type::Named(_) => Some(IntegerSlot::new(&form.abi, Integer::Int, at + offsets[field]).get(memory, 0)),
            _ => None,
        };
        let mut fields = Vec::with_capacity(declared.fields.len());
        for (field, offset) in declared.fields.iter().zip(offsets) {
            let at = at + offset;
            let value = match (&field.ty, field.tag) {
                (Type::Named(union), Some(tag)) => {
                    let Declaration::Union(union) = &form.schema.declarations()[*union] else {
                        unreachable!("only unions have tags")
                    };
                    let tag = integer(tag).expect("a tag is an integer");
                    match union.cases.iter().find(|case| i128::from(case.tag) == tag) {
                        Some(case) => Value::Case(case.name.clone(), Box::new(self.value(&case.ty, at))),
                        None => Value::Null,
                    }
                }
                (Type::Pointer(pointer), _) => {
                    let Extent::Count(count) = &pointer.extent else {
                        fields.push((field.name.clone(), self.pointer(pointer, 1, Vec::new(), at)));
                        continue;
                    };
                    let evaluate = |extent: &Expr| extent.evaluate_extent(&params(&declared.fields), &integer);
                    let needed = evaluate(count).expect("lengths were checked with the message");
                    // A single factor may have any value: (m - n) of (m - n) * (m - n).
                    let shape: Option<Vec<u64>> = factors(count).into_iter().map(|part| evaluate(part).ok()).collect();
                    self.pointer(pointer, needed, shape.unwrap_or_else(|| vec![needed]), at)
                }
                (ty, _) => self.value(ty, at),
            };
            fields.push((field.name.clone(), value));
        }
        if declared.dynamic {
            return fields.swap_remove(0).1;
        }
        Value::Struct(fields)
    }

    fn pointer(&mut self, pointer: &Pointer, needed: u64, shape: Vec<u64>, at: u64) -> Value {
        let characters = pointer.target == Type::Integer(Integer::Char);
        let address = self.message.address_at(at);
        if address == 0 {
            return match pointer.extent {
                Extent::Count(_) if characters => Value::Bytes(Vec::new()),
                Extent::Count(_) => Value::List(Vec::new()),
                Extent::One | Extent::Text => Value::Null,
            };
        }
        let target = self.message.form.schema.target_number(&pointer.target);
        let met = PointerSlot { at, target, needed: 1, rule: Rule::One };
        let found: Result<_, Problem> = self.message.follow(&met, address, &mut self.hint);
        let place = found.expect("pointers were checked with the message").expect("it is not null");
        if let Some(reference) = self.reference(place) {
            return reference;
        }
        match pointer.extent {
            Extent::One => Value::Pointee(Box::new(self.element(place))),
            Extent::Text => self.text(place),
            Extent::Count(_) if characters => self.characters(place.block),
            Extent::Count(_) => {
                let block = place.block;
                self.list(&pointer.target, shape, needed, |reader, index| reader.element(Target { block, index }))
            }
        }
    }
}

/// Returns the innermost element type of nested arrays, and their extents.
fn flat(element: &Type, count: u64) -> (&Type, Vec<u64>) {
    let (mut leaf, mut shape) = (element, vec![count]);
    while let Type::Array(element, count) = leaf {
        shape.push(*count);
        leaf = element;
    }
    (leaf, shape)
}

/// Splits `m * n` into `m` and `n`.
fn factors(extent: &Expr) -> Vec<&Expr> {
    match extent {
        Expr::Binary(BinaryOp::Multiply, left, right) => [factors(left), factors(right)].concat(),
        factor => vec![factor],
    }
}

/// Returns the NumPy name of a type, if it has one.
fn element_name(ty: &Type, declarations: &[Declaration]) -> String {
    match ty {
        Type::Integer(integer) => integer.name().trim_end_matches("_t").to_string(),
        Type::Float32 => "float32".into(),
        Type::Float64 => "float64".into(),
        Type::Bool => "bool".into(),
        Type::Named(index) => declarations[*index].name().to_string(),
        Type::Array(element, count) => format!("{}[{count}]", element_name(element, declarations)),
        Type::Pointer(pointer) => format!("{} *", element_name(&pointer.target, declarations)),
    }
}
