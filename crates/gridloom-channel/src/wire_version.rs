//! Messages in the wire version of an older peer: postcard without the fields that were added since.
//!
//! Postcard writes the fields of a struct one after the other, without names. A field that the peer does not know is
//! therefore left out when writing and gets its default when reading. Such fields are at the end of their structs and
//! have `#[serde(default)]`. Versions differ in nothing else: a variant that the peer does not know is never sent to
//! it.
//!
//! Source: the [wire format of postcard](https://postcard.jamesmunns.com/wire-format).

use serde::de::value::U32Deserializer;
use serde::de::{
    DeserializeOwned, DeserializeSeed, EnumAccess, IntoDeserializer, MapAccess, SeqAccess, VariantAccess, Visitor,
};
use serde::ser::{
    SerializeMap, SerializeSeq, SerializeStruct, SerializeStructVariant, SerializeTuple, SerializeTupleStruct,
    SerializeTupleVariant,
};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use postcard::de_flavors::Slice;
use postcard::{Error, Result};

/// A field of a struct: the struct's name and the field's.
pub type Field = (&'static str, &'static str);

/// A wire version: the set of fields that the peer does not know.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct WireVersion(&'static [Field]);

impl WireVersion {
    /// The wire version of this release, which has all fields.
    pub const CURRENT: WireVersion = WireVersion(&[]);

    /// Returns the wire version of a peer that does not know these fields.
    pub const fn without(fields: &'static [Field]) -> WireVersion {
        WireVersion(fields)
    }

    /// Appends a value in the peer's wire version.
    pub fn append<T: Serialize + ?Sized>(self, value: &T, out: &mut Vec<u8>) {
        let buffer = std::mem::take(out);
        *out = match self.0 {
            [] => postcard::to_extend(value, buffer),
            _ => self.written(value, buffer),
        }
        .expect("postcard into a vector fails for no type of ours");
    }

    fn written<T: Serialize + ?Sized>(self, value: &T, out: Vec<u8>) -> Result<Vec<u8>> {
        let mut writer = Writer { wire_version: self, out };
        value.serialize(&mut writer)?;
        Ok(writer.out)
    }

    /// Parses a value in the peer's wire version.
    ///
    /// # Errors
    /// Why it does not parse, or how many bytes are left over.
    pub fn parse<T: DeserializeOwned>(self, bytes: &[u8]) -> std::result::Result<T, String> {
        let (value, rest) = self.take(bytes)?;
        if rest.is_empty() { Ok(value) } else { Err(format!("{} bytes left over", rest.len())) }
    }

    /// Parses a value that is followed by other bytes. Returns the value and those bytes.
    ///
    /// # Errors
    /// Why it does not parse.
    pub fn take<T: DeserializeOwned>(self, bytes: &[u8]) -> std::result::Result<(T, &[u8]), String> {
        match self.0 {
            [] => postcard::take_from_bytes(bytes),
            _ => self.read(bytes),
        }
        .map_err(|error| error.to_string())
    }

    fn read<T: DeserializeOwned>(self, bytes: &[u8]) -> Result<(T, &[u8])> {
        let mut reader = WireDeserializer { wire_version: self, inner: postcard::Deserializer::from_bytes(bytes) };
        Ok((T::deserialize(&mut reader)?, reader.inner.finalize()?))
    }

    fn omits(self, of: &str, field: &str) -> bool {
        self.0.contains(&(of, field))
    }
}

// ---- writing

struct Writer {
    wire_version: WireVersion,
    out: Vec<u8>,
}

impl Writer {
    /// Writes a value without struct fields, as postcard does.
    fn put<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<()> {
        self.out = postcard::to_extend(value, std::mem::take(&mut self.out))?;
        Ok(())
    }
}

/// A struct that is being written.
struct Fields<'a> {
    writer: &'a mut Writer,
    of: &'static str,
}

/// Methods that write a value of that type.
macro_rules! put {
    ($($method:ident $type:ty),* $(,)?) => {
        $(fn $method(self, value: $type) -> Result<()> { self.put(&value) })*
    };
}

impl<'a> Serializer for &'a mut Writer {
    type Ok = ();
    type Error = Error;
    type SerializeSeq = Self;
    type SerializeTuple = Self;
    type SerializeTupleStruct = Self;
    type SerializeTupleVariant = Self;
    type SerializeMap = Self;
    type SerializeStruct = Fields<'a>;
    type SerializeStructVariant = Self;

    put! {
        serialize_bool bool, serialize_i8 i8, serialize_i16 i16, serialize_i32 i32, serialize_i64 i64, serialize_i128 i128,
        serialize_u8 u8, serialize_u16 u16, serialize_u32 u32, serialize_u64 u64, serialize_u128 u128, serialize_f32 f32,
        serialize_f64 f64, serialize_char char, serialize_str &str,
    }

    fn serialize_bytes(self, bytes: &[u8]) -> Result<()> {
        self.put(&bytes.len())?;
        self.out.extend_from_slice(bytes);
        Ok(())
    }

    fn serialize_none(self) -> Result<()> {
        self.put(&0u8)
    }

    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Result<()> {
        self.put(&1u8)?;
        value.serialize(self)
    }

    fn serialize_unit(self) -> Result<()> {
        Ok(())
    }

    fn serialize_unit_struct(self, _: &'static str) -> Result<()> {
        Ok(())
    }

    fn serialize_unit_variant(self, _: &'static str, number: u32, _: &'static str) -> Result<()> {
        self.put(&number)
    }

    fn serialize_newtype_struct<T: Serialize + ?Sized>(self, _: &'static str, value: &T) -> Result<()> {
        value.serialize(self)
    }

    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        number: u32,
        _: &'static str,
        value: &T,
    ) -> Result<()> {
        self.put(&number)?;
        value.serialize(self)
    }

    fn serialize_seq(self, length: Option<usize>) -> Result<Self> {
        self.put(&length.ok_or(Error::SerializeSeqLengthUnknown)?)?;
        Ok(self)
    }

    fn serialize_tuple(self, _: usize) -> Result<Self> {
        Ok(self)
    }

    fn serialize_tuple_struct(self, _: &'static str, _: usize) -> Result<Self> {
        Ok(self)
    }

    fn serialize_tuple_variant(self, _: &'static str, number: u32, _: &'static str, _: usize) -> Result<Self> {
        self.put(&number)?;
        Ok(self)
    }

    fn serialize_map(self, length: Option<usize>) -> Result<Self> {
        self.serialize_seq(length)
    }

    fn serialize_struct(self, of: &'static str, _: usize) -> Result<Fields<'a>> {
        Ok(Fields { writer: self, of })
    }

    fn serialize_struct_variant(self, _: &'static str, number: u32, _: &'static str, _: usize) -> Result<Self> {
        self.put(&number)?;
        Ok(self)
    }

    fn is_human_readable(&self) -> bool {
        false
    }
}

impl SerializeStruct for Fields<'_> {
    type Ok = ();
    type Error = Error;

    fn serialize_field<T: Serialize + ?Sized>(&mut self, name: &'static str, value: &T) -> Result<()> {
        if self.writer.wire_version.omits(self.of, name) { Ok(()) } else { value.serialize(&mut *self.writer) }
    }

    fn end(self) -> Result<()> {
        Ok(())
    }
}

/// Implements the serializers of plain sequences of values.
macro_rules! in_turn {
    ($($trait:ident $method:ident $(of $name:ty)?),* $(,)?) => {
        $(impl $trait for &mut Writer {
            type Ok = ();
            type Error = Error;

            fn $method<T: Serialize + ?Sized>(&mut self, $(_: $name,)? value: &T) -> Result<()> {
                value.serialize(&mut **self)
            }

            fn end(self) -> Result<()> {
                Ok(())
            }
        })*
    };
}

in_turn! {
    SerializeSeq serialize_element, SerializeTuple serialize_element, SerializeTupleStruct serialize_field,
    SerializeTupleVariant serialize_field, SerializeStructVariant serialize_field of &'static str,
}

impl SerializeMap for &mut Writer {
    type Ok = ();
    type Error = Error;

    fn serialize_key<T: Serialize + ?Sized>(&mut self, key: &T) -> Result<()> {
        key.serialize(&mut **self)
    }

    fn serialize_value<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<()> {
        value.serialize(&mut **self)
    }

    fn end(self) -> Result<()> {
        Ok(())
    }
}

// ---- reading

struct WireDeserializer<'de> {
    wire_version: WireVersion,
    inner: postcard::Deserializer<'de, Slice<'de>>,
}

impl<'de> WireDeserializer<'de> {
    /// Reads a value without struct fields, as postcard does.
    fn take<T: Deserialize<'de>>(&mut self) -> Result<T> {
        T::deserialize(&mut self.inner)
    }
}

/// A sequence of `left` values.
struct Sequence<'a, 'de> {
    reader: &'a mut WireDeserializer<'de>,
    left: usize,
}

/// Methods that read a value without struct fields.
macro_rules! take {
    ($($method:ident)*) => {
        $(fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value> { self.inner.$method(visitor) })*
    };
}

impl<'de> Deserializer<'de> for &mut WireDeserializer<'de> {
    type Error = Error;

    take! {
        deserialize_any deserialize_bool deserialize_i8 deserialize_i16 deserialize_i32 deserialize_i64 deserialize_i128 deserialize_u8
        deserialize_u16 deserialize_u32 deserialize_u64 deserialize_u128 deserialize_f32 deserialize_f64 deserialize_char deserialize_str
        deserialize_string deserialize_bytes deserialize_byte_buf deserialize_identifier deserialize_ignored_any deserialize_unit
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value> {
        match self.take::<u8>()? {
            0 => visitor.visit_none(),
            1 => visitor.visit_some(self),
            _ => Err(Error::DeserializeBadOption),
        }
    }

    fn deserialize_unit_struct<V: Visitor<'de>>(self, _: &'static str, visitor: V) -> Result<V::Value> {
        visitor.visit_unit()
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(self, _: &'static str, visitor: V) -> Result<V::Value> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value> {
        let left = self.take()?;
        visitor.visit_seq(Sequence { reader: self, left })
    }

    fn deserialize_tuple<V: Visitor<'de>>(self, left: usize, visitor: V) -> Result<V::Value> {
        visitor.visit_seq(Sequence { reader: self, left })
    }

    fn deserialize_tuple_struct<V: Visitor<'de>>(self, _: &'static str, left: usize, visitor: V) -> Result<V::Value> {
        visitor.visit_seq(Sequence { reader: self, left })
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value> {
        let left = self.take()?;
        visitor.visit_map(Sequence { reader: self, left })
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        of: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value> {
        let left = fields.iter().filter(|field| !self.wire_version.omits(of, field)).count();
        visitor.visit_seq(Sequence { reader: self, left })
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value> {
        visitor.visit_enum(self)
    }

    fn is_human_readable(&self) -> bool {
        false
    }
}

impl<'de> SeqAccess<'de> for Sequence<'_, 'de> {
    type Error = Error;

    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>> {
        let Some(left) = self.left.checked_sub(1) else { return Ok(None) };
        self.left = left;
        seed.deserialize(&mut *self.reader).map(Some)
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.left)
    }
}

impl<'de> MapAccess<'de> for Sequence<'_, 'de> {
    type Error = Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>> {
        self.next_element_seed(seed)
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value> {
        seed.deserialize(&mut *self.reader)
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.left)
    }
}

impl<'de> EnumAccess<'de> for &mut WireDeserializer<'de> {
    type Error = Error;
    type Variant = Self;

    fn variant_seed<V: DeserializeSeed<'de>>(self, seed: V) -> Result<(V::Value, Self)> {
        let number: U32Deserializer<Error> = self.take::<u32>()?.into_deserializer();
        Ok((seed.deserialize(number)?, self))
    }
}

impl<'de> VariantAccess<'de> for &mut WireDeserializer<'de> {
    type Error = Error;

    fn unit_variant(self) -> Result<()> {
        Ok(())
    }

    fn newtype_variant_seed<T: DeserializeSeed<'de>>(self, seed: T) -> Result<T::Value> {
        seed.deserialize(self)
    }

    fn tuple_variant<V: Visitor<'de>>(self, length: usize, visitor: V) -> Result<V::Value> {
        self.deserialize_tuple(length, visitor)
    }

    fn struct_variant<V: Visitor<'de>>(self, fields: &'static [&'static str], visitor: V) -> Result<V::Value> {
        self.deserialize_tuple(fields.len(), visitor)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[derive(PartialEq, Debug, Serialize, Deserialize)]
    struct Grown {
        name: String,
        #[serde(default)]
        since: u32,
    }

    #[derive(PartialEq, Debug, Serialize, Deserialize)]
    struct Ungrown {
        name: String,
    }

    /// Has every form that a message may have.
    #[derive(PartialEq, Debug, Serialize, Deserialize)]
    enum EveryForm<T> {
        Unit,
        New(Box<T>),
        Pair(T, (i64, f64)),
        Named { list: Vec<T>, map: BTreeMap<u16, T>, some: Option<T>, none: Option<T>, bytes: [u8; 3], letter: char },
    }

    fn forms<T>(value: impl Fn(&str) -> T) -> Vec<EveryForm<T>> {
        let list = vec![value("a"), value("ä")];
        let map = BTreeMap::from([(300, value("b"))]);
        let (some, none) = (Some(value("c")), None);
        let named = EveryForm::Named { list, map, some, none, bytes: [1, 2, 3], letter: 'ß' };
        vec![EveryForm::Unit, EveryForm::New(Box::new(value("d"))), EveryForm::Pair(value("e"), (-300, 0.5)), named]
    }

    const OLD: WireVersion = WireVersion::without(&[("Grown", "since")]);

    #[test]
    fn a_peer_reads_what_it_knows_and_the_rest_gets_its_default() {
        let grown = |since| forms(move |name| Grown { name: name.into(), since });
        let ungrown = postcard::to_stdvec(&forms(|name| Ungrown { name: name.into() })).unwrap();
        let mut written = Vec::new();
        OLD.append(&grown(7), &mut written);
        assert_eq!(written, ungrown);
        assert_eq!(OLD.parse::<Vec<EveryForm<Grown>>>(&ungrown), Ok(grown(0)));
        written.clear();
        WireVersion::CURRENT.append(&grown(7), &mut written);
        assert_eq!(WireVersion::CURRENT.parse::<Vec<EveryForm<Grown>>>(&written), Ok(grown(7)));
        assert!(OLD.parse::<Vec<EveryForm<Grown>>>(&written).is_err());
    }

    #[test]
    fn what_stands_behind_a_value_is_given_as_well() {
        let ungrown = postcard::to_stdvec(&Ungrown { name: "a".into() }).unwrap();
        let bytes = [&ungrown[..], b"new"].concat();
        assert_eq!(OLD.take::<Grown>(&bytes), Ok((Grown { name: "a".into(), since: 0 }, &b"new"[..])));
        assert_eq!(WireVersion::CURRENT.take::<Ungrown>(&bytes), Ok((Ungrown { name: "a".into() }, &b"new"[..])));
    }

    #[test]
    fn bytes_that_are_cut_or_left_over_are_refused() {
        let bytes = postcard::to_stdvec(&forms(|name| Ungrown { name: name.into() })).unwrap();
        for cut in 0..bytes.len() {
            assert!(OLD.parse::<Vec<EveryForm<Grown>>>(&bytes[..cut]).is_err(), "{cut}");
        }
        assert!(OLD.parse::<Vec<EveryForm<Grown>>>(&[&bytes[..], &[0]].concat()).is_err());
    }

    #[test]
    fn a_length_that_nothing_follows_takes_no_memory() {
        assert!(OLD.parse::<Vec<Grown>>(&[0xff, 0xff, 0xff, 0xff, 0x7f]).is_err());
    }
}
