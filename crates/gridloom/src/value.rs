//! Values: a description and its bytes.

mod arranged;

use std::borrow::Cow;
use std::sync::Arc;

use gridloom_base::{ByteOrder, Dtype, Meta, list};
use gridloom_net::payload::Payload;

use crate::Error;
use arranged::in_layout;

/// A value. Clones share the bytes, which never change.
#[derive(Clone)]
pub struct Value {
    pub(crate) meta: Meta,
    /// `None` for a placeholder: a simulated result of a body that did not run.
    pub(crate) payload: Option<Payload>,
    /// Distinguishes placeholders, as the address of the bytes distinguishes values.
    token: Option<Arc<()>>,
}

impl Value {
    /// Creates a value with that description.
    ///
    /// # Errors
    /// If the number of bytes does not match the description.
    pub fn new(meta: Meta, payload: Payload) -> Result<Value, Error> {
        if meta.checked_size_bytes() != Some(payload.size_bytes()) {
            return Err(Error::Usage(format!("a {meta} does not have {} bytes", payload.size_bytes())));
        }
        Ok(Value::from_checked(meta, payload))
    }

    /// Creates a value without bytes, for simulations.
    pub fn placeholder(meta: Meta) -> Value {
        Value { meta, payload: None, token: Some(Arc::new(())) }
    }

    /// Creates a row-major array of doubles.
    ///
    /// # Panics
    /// If the number of elements is not the product of the shape.
    pub fn from_f64(shape: &[u64], elements: &[f64]) -> Value {
        assert_eq!(shape.iter().product::<u64>(), elements.len() as u64, "one element for each index");
        let bytes: Vec<u8> = elements.iter().flat_map(|x| x.to_ne_bytes()).collect();
        Value::from_checked(Meta::array(Dtype::Float64, shape), Payload::Inline(bytes.into()))
    }

    /// Creates a scalar from its bytes in this machine's byte order.
    pub fn scalar(dtype: Dtype, bytes: &[u8]) -> Value {
        Value::from_checked(Meta::scalar(dtype), Payload::copied(bytes))
    }

    pub fn text(text: &str) -> Value {
        let meta = Meta::Text { size_bytes: text.len() as u64 };
        Value::from_checked(meta, Payload::copied(text.as_bytes()))
    }

    /// Creates a list of strings or file contents, for a parameter that is an array of those; `None` marks a missing item.
    pub fn list<'a>(items: impl ExactSizeIterator<Item = Option<&'a [u8]>>) -> Value {
        let packed = list::pack(items);
        Value::from_checked(Meta::List { size_bytes: packed.len() as u64 }, Payload::Inline(packed.into()))
    }

    /// Returns the items of a list; `None` if the value is something else, or a placeholder.
    pub fn items(&self) -> Option<Vec<Option<&[u8]>>> {
        let payload = self.payload.as_ref().filter(|_| matches!(self.meta, Meta::List { .. }))?;
        list::unpack(payload.bytes())
    }

    /// Creates a value whose description was checked against its bytes, or was received with them.
    pub(crate) fn from_checked(meta: Meta, payload: Payload) -> Value {
        Value { meta, payload: Some(payload), token: None }
    }

    pub fn meta(&self) -> &Meta {
        &self.meta
    }

    /// The bytes; `None` for a placeholder.
    pub fn payload(&self) -> Option<&Payload> {
        self.payload.as_ref()
    }

    /// Returns the bytes in this machine's byte order, and an array's elements in the memory order of `wanted`; `None`
    /// for a placeholder.
    pub fn bytes_as(&self, wanted: &Meta) -> Option<Cow<'_, [u8]>> {
        self.payload.as_ref().map(|payload| in_layout(&self.meta, payload.bytes(), wanted))
    }

    /// Returns the elements of an array or scalar of doubles in this machine's byte order; zeros for a placeholder.
    ///
    /// # Errors
    /// If the value has another type.
    pub fn to_f64(&self) -> Result<Vec<f64>, Error> {
        match &self.meta {
            Meta::Scalar { dtype: Dtype::Float64, byte_order: ByteOrder::NATIVE }
            | Meta::Array { dtype: Dtype::Float64, byte_order: ByteOrder::NATIVE, .. } => {}
            other => return Err(Error::Usage(format!("expected float64, the value is {other}"))),
        }
        Ok(match &self.payload {
            None => vec![0.0; self.meta.size_bytes() as usize / 8],
            Some(payload) => {
                let (elements, _) = payload.bytes().as_chunks::<8>();
                elements.iter().map(|bytes| f64::from_ne_bytes(*bytes)).collect()
            }
        })
    }

    /// Identity of the bytes: a value that is passed twice is sent once.
    pub(crate) fn identity(&self) -> Option<(usize, u64)> {
        match (&self.payload, &self.token) {
            (Some(payload), _) => Some((payload.bytes().as_ptr() as usize, payload.size_bytes())),
            (None, Some(token)) => Some((Arc::as_ptr(token) as usize, self.meta.size_bytes())),
            (None, None) => None,
        }
    }

    pub(crate) fn inline_bytes(&self) -> Option<Vec<u8>> {
        self.payload.as_ref().map(|payload| payload.bytes().to_vec())
    }
}

impl std::fmt::Debug for Value {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Value({}{})", self.meta, if self.payload.is_some() { "" } else { ", placeholder" })
    }
}

impl From<&Value> for Value {
    fn from(value: &Value) -> Value {
        value.clone()
    }
}

/// A number is a scalar; a vector, slice or array of numbers is an array of one dimension.
macro_rules! numbers {
    ($($number:ty: $dtype:ident),+) => {$(
        impl From<$number> for Value {
            fn from(number: $number) -> Value {
                Value::scalar(Dtype::$dtype, &number.to_ne_bytes())
            }
        }

        impl From<&[$number]> for Value {
            fn from(elements: &[$number]) -> Value {
                let bytes: Vec<u8> = elements.iter().flat_map(|element| element.to_ne_bytes()).collect();
                let meta = Meta::array(Dtype::$dtype, &[elements.len() as u64]);
                Value::from_checked(meta, Payload::Inline(bytes.into()))
            }
        }

        impl From<&Vec<$number>> for Value {
            fn from(elements: &Vec<$number>) -> Value {
                elements.as_slice().into()
            }
        }

        impl From<Vec<$number>> for Value {
            fn from(elements: Vec<$number>) -> Value {
                elements.as_slice().into()
            }
        }

        impl<const N: usize> From<&[$number; N]> for Value {
            fn from(elements: &[$number; N]) -> Value {
                elements.as_slice().into()
            }
        }

        impl<const N: usize> From<[$number; N]> for Value {
            fn from(elements: [$number; N]) -> Value {
                elements.as_slice().into()
            }
        }
    )+};
}

numbers!(f64: Float64, f32: Float32, i64: Int64, i32: Int32, u64: Uint64, u32: Uint32);

impl From<bool> for Value {
    fn from(truth: bool) -> Value {
        Value::scalar(Dtype::Bool, &[u8::from(truth)])
    }
}

impl From<&str> for Value {
    fn from(text: &str) -> Value {
        Value::text(text)
    }
}

impl From<&String> for Value {
    fn from(text: &String) -> Value {
        Value::text(text)
    }
}

impl From<String> for Value {
    fn from(text: String) -> Value {
        Value::text(&text)
    }
}

impl From<Arc<[u8]>> for Value {
    fn from(bytes: Arc<[u8]>) -> Value {
        Value::from_checked(Meta::Bytes { size_bytes: bytes.len() as u64 }, Payload::Inline(bytes))
    }
}
