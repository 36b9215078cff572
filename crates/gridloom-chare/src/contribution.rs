//! Contributions of chares to a reduction, and how two values are combined.

use std::rc::Rc;

use serde::{Deserialize, Serialize};

use super::value::Value;

/// A user-defined reducer: combines two values into one. It must be associative. Unless the contribution is ordered,
/// it must also be commutative. An error ends the program.
pub type Combine = Rc<dyn Fn(Value, Value) -> Result<Value, String>>;

/// How values are combined.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Reducer {
    /// No value; only waits until each chare has contributed.
    Barrier,
    /// Element by element.
    Sum,
    Min,
    Max,
    /// Collects each value with its index.
    Gather,
    /// A user-defined reducer ([`crate::Element::reducer`]).
    Own(u16),
}

/// A chare's contribution to a reduction.
#[derive(Clone, Debug)]
pub struct Contribution {
    pub(crate) reducer: Reducer,
    pub(crate) value: Value,
    pub(crate) is_ordered: bool,
}

impl Contribution {
    pub fn new(reducer: Reducer, value: impl Into<Value>) -> Contribution {
        Contribution { reducer, value: value.into(), is_ordered: false }
    }

    pub fn barrier() -> Contribution {
        Contribution::new(Reducer::Barrier, ())
    }

    pub fn sum(value: impl Into<Value>) -> Contribution {
        Contribution::new(Reducer::Sum, value)
    }

    pub fn min(value: impl Into<Value>) -> Contribution {
        Contribution::new(Reducer::Min, value)
    }

    pub fn max(value: impl Into<Value>) -> Contribution {
        Contribution::new(Reducer::Max, value)
    }

    pub fn gather(value: impl Into<Value>) -> Contribution {
        Contribution::new(Reducer::Gather, value)
    }

    /// Combines the values in the order of the chares' indices, so that a sum of floats has the same bits for any
    /// placement. All values are sent to one element.
    #[must_use]
    pub fn ordered(mut self) -> Contribution {
        self.is_ordered = true;
        self
    }
}

/// Combines two values into one.
///
/// # Errors
/// Returns a message if they cannot be combined.
pub(crate) fn combine(reducer: Reducer, own: &[Combine], left: Value, right: Value) -> Result<Value, String> {
    match (reducer, left, right) {
        (Reducer::Barrier, ..) => Ok(Value::Nothing),
        (Reducer::Own(number), left, right) => match own.get(usize::from(number)) {
            Some(combine) => combine(left, right),
            None => Err(format!("reducer {number} is not registered: register it on every element, in the same order")),
        },
        (reducer, Value::Floats(left), Value::Floats(right)) if left.len() == right.len() => {
            Ok(Value::Floats(each(left, &right, |left, right| match reducer {
                Reducer::Min => left.min(right),
                Reducer::Max => left.max(right),
                _ => left + right,
            })))
        }
        (reducer, Value::Integers(left), Value::Integers(right)) if left.len() == right.len() => {
            Ok(Value::Integers(each(left, &right, |left, right| match reducer {
                Reducer::Min => left.min(right),
                Reducer::Max => left.max(right),
                _ => left.wrapping_add(right),
            })))
        }
        (_, left, right) => Err(format!(
            "{} and {} cannot be combined: every chare must contribute the same number of floats, or of integers",
            left.in_words(),
            right.in_words()
        )),
    }
}

fn each<T: Copy>(mut left: Vec<T>, right: &[T], one: impl Fn(T, T) -> T) -> Vec<T> {
    left.iter_mut().zip(right).for_each(|(left, right)| *left = one(*left, *right));
    left
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_combine_element_by_element() {
        let floats = |all: [f64; 2]| Value::from(all.to_vec());
        let both = |reducer| combine(reducer, &[], floats([1.0, 5.0]), floats([2.0, 3.0])).unwrap();
        assert_eq!(both(Reducer::Sum), floats([3.0, 8.0]));
        assert_eq!(both(Reducer::Min), floats([1.0, 3.0]));
        assert_eq!(both(Reducer::Max), floats([2.0, 5.0]));
        assert_eq!(both(Reducer::Barrier), Value::Nothing);
        assert_eq!(combine(Reducer::Max, &[], 3.into(), 4.into()), Ok(4.into()));
        let longest: Combine = Rc::new(|left, right| {
            let length = |value: &Value| format!("{value:?}").len();
            if length(&left) == length(&right) {
                return Err("none is the longest".into());
            }
            Ok(if length(&left) > length(&right) { left } else { right })
        });
        assert_eq!(combine(Reducer::Own(0), std::slice::from_ref(&longest), 1000.into(), 2.into()), Ok(1000.into()));
        assert_eq!(combine(Reducer::Own(0), &[longest], 3.into(), 2.into()), Err("none is the longest".into()));
    }

    #[test]
    fn values_that_do_not_fit_are_named() {
        let wrong = combine(Reducer::Sum, &[], 1.5.into(), 4.into()).unwrap_err();
        assert!(wrong.starts_with("1 floats and 1 integers cannot be combined"), "{wrong}");
        assert!(
            combine(Reducer::Own(3), &[], 1.5.into(), 4.into()).unwrap_err().contains("reducer 3 is not registered")
        );
    }
}
