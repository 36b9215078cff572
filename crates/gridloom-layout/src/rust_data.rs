//! Numbers, strings, arrays and pointers as [`Data`].

use super::error::{Fault, Problem};
use super::rust_counterpart::{Characters, Data, Declare, Reader, Writer};
use super::types::{Integer, Type};

macro_rules! numbers {
    ($($rust:ty => $c:expr),* $(,)?) => { $(
        impl Data for $rust {
            const SIZE: usize = size_of::<$rust>();
            const ALIGN: usize = align_of::<$rust>();

            fn ty(_: &mut Declare) -> Type {
                $c
            }

            fn write(&self, writer: &mut Writer<'_>, at: usize) -> Result<(), Box<Fault>> {
                writer.bytes(at, Self::SIZE).copy_from_slice(&self.to_ne_bytes());
                Ok(())
            }

            fn read(reader: &mut Reader<'_>, at: usize) -> Result<Self, Box<Fault>> {
                Ok(Self::from_ne_bytes(reader.bytes(at, Self::SIZE).try_into().expect("of that length")))
            }

            fn write_all(values: &[Self], writer: &mut Writer<'_>, at: usize) -> Result<(), Box<Fault>> {
                let bytes = writer.bytes(at, values.len() * Self::SIZE).as_chunks_mut().0;
                bytes.iter_mut().zip(values).for_each(|(bytes, value)| *bytes = value.to_ne_bytes());
                Ok(())
            }

            fn read_all(reader: &mut Reader<'_>, at: usize, count: usize) -> Result<Vec<Self>, Box<Fault>> {
                let bytes = reader.bytes(at, count * Self::SIZE).as_chunks().0;
                Ok(bytes.iter().map(|bytes| Self::from_ne_bytes(*bytes)).collect())
            }
        }
    )* };
}

numbers! {
    i8 => Type::Integer(Integer::Int8),
    i16 => Type::Integer(Integer::Int16),
    i32 => Type::Integer(Integer::Int32),
    i64 => Type::Integer(Integer::Int64),
    u8 => Type::Integer(Integer::Uint8),
    u16 => Type::Integer(Integer::Uint16),
    u32 => Type::Integer(Integer::Uint32),
    u64 => Type::Integer(Integer::Uint64),
    usize => Type::Integer(Integer::SizeT),
    f32 => Type::Float32,
    f64 => Type::Float64,
}

impl Data for bool {
    const SIZE: usize = 1;
    const ALIGN: usize = 1;

    fn ty(_: &mut Declare) -> Type {
        Type::Bool
    }

    fn write(&self, writer: &mut Writer<'_>, at: usize) -> Result<(), Box<Fault>> {
        writer.bytes(at, 1)[0] = u8::from(*self);
        Ok(())
    }

    fn read(reader: &mut Reader<'_>, at: usize) -> Result<bool, Box<Fault>> {
        Ok(reader.bytes(at, 1)[0] != 0)
    }
}

impl<T: Data, const N: usize> Data for [T; N] {
    const SIZE: usize = N * T::SIZE;
    const ALIGN: usize = T::ALIGN;

    fn ty(declare: &mut Declare) -> Type {
        Type::array(T::ty(declare), N as u64)
    }

    fn write(&self, writer: &mut Writer<'_>, at: usize) -> Result<(), Box<Fault>> {
        T::write_all(self, writer, at)
    }

    fn read(reader: &mut Reader<'_>, at: usize) -> Result<[T; N], Box<Fault>> {
        let mut fault = None;
        let values: [Option<T>; N] = std::array::from_fn(|index| {
            // After a fault nothing more is read.
            let value = if fault.is_none() { Some(T::read(reader, at + index * T::SIZE)) } else { None };
            value?.map_err(|found| fault = Some(found.element(index as u64))).ok()
        });
        match fault {
            Some(fault) => Err(fault),
            None => Ok(values.map(|value| value.expect("each was read"))),
        }
    }
}

const POINTER: usize = size_of::<usize>();
const POINTER_ALIGN: usize = align_of::<usize>();

fn null(at: usize, target: &str) -> Box<Fault> {
    Fault::new(at as u64, Problem::Null { needed: 1, target: target.to_string() })
}

fn text_type(declare: &mut Declare) -> Type {
    declare.record_type::<Characters>(&Type::Integer(Integer::Char));
    Type::text()
}

impl Data for String {
    const SIZE: usize = POINTER;
    const ALIGN: usize = POINTER_ALIGN;

    fn ty(declare: &mut Declare) -> Type {
        text_type(declare)
    }

    fn write(&self, writer: &mut Writer<'_>, at: usize) -> Result<(), Box<Fault>> {
        writer.text(at, self)
    }

    fn read(reader: &mut Reader<'_>, at: usize) -> Result<String, Box<Fault>> {
        reader.text(at)?.ok_or_else(|| null(at, "char"))
    }
}

impl Data for Option<String> {
    const SIZE: usize = POINTER;
    const ALIGN: usize = POINTER_ALIGN;

    fn ty(declare: &mut Declare) -> Type {
        text_type(declare)
    }

    fn write(&self, writer: &mut Writer<'_>, at: usize) -> Result<(), Box<Fault>> {
        self.as_ref().map_or(Ok(()), |text| writer.text(at, text))
    }

    fn read(reader: &mut Reader<'_>, at: usize) -> Result<Option<String>, Box<Fault>> {
        reader.text(at)
    }
}

impl<T: Data> Data for Box<T> {
    const SIZE: usize = POINTER;
    const ALIGN: usize = POINTER_ALIGN;

    fn ty(declare: &mut Declare) -> Type {
        Type::pointer_to(declare.target::<T>())
    }

    fn write(&self, writer: &mut Writer<'_>, at: usize) -> Result<(), Box<Fault>> {
        writer.pointer(at, std::slice::from_ref(&**self))
    }

    fn read(reader: &mut Reader<'_>, at: usize) -> Result<Box<T>, Box<Fault>> {
        reader.one(at)?.map(Box::new).ok_or_else(|| null(at, "what a Box holds"))
    }
}

impl<T: Data> Data for Option<Box<T>> {
    const SIZE: usize = POINTER;
    const ALIGN: usize = POINTER_ALIGN;

    fn ty(declare: &mut Declare) -> Type {
        Type::pointer_to(declare.target::<T>())
    }

    fn write(&self, writer: &mut Writer<'_>, at: usize) -> Result<(), Box<Fault>> {
        self.as_ref().map_or(Ok(()), |value| value.write(writer, at))
    }

    fn read(reader: &mut Reader<'_>, at: usize) -> Result<Option<Box<T>>, Box<Fault>> {
        Ok(reader.one(at)?.map(Box::new))
    }
}
