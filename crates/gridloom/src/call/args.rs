//! Arguments of a call as a program writes them: tuples and arrays of anything that converts.

use super::arg::Arg;

/// Arguments of a call: a tuple or an array of values and handles, or of anything that converts to them; `()` for none.
///
/// ```no_run
/// # use gridloom::{Error, Function, Group, Value};
/// # fn body(group: &Group, solve: &Function, a: &Value) -> Result<(), Error> {
/// let x = group.call(solve, (2, a, vec![1.0, 2.0]))?.one()?;
/// let y = group.call(solve, (2, a, &x))?.one()?;
/// # Ok(())
/// # }
/// ```
pub trait IntoArgs<A = Arg> {
    fn into_args(self) -> Vec<A>;
}

impl<A> IntoArgs<A> for () {
    fn into_args(self) -> Vec<A> {
        Vec::new()
    }
}

impl<A, T: Into<A>, const N: usize> IntoArgs<A> for [T; N] {
    fn into_args(self) -> Vec<A> {
        self.into_iter().map(T::into).collect()
    }
}

impl<A, T: Into<A>> IntoArgs<A> for Vec<T> {
    fn into_args(self) -> Vec<A> {
        self.into_iter().map(T::into).collect()
    }
}

impl<A: Clone, const N: usize> IntoArgs<A> for &[A; N] {
    fn into_args(self) -> Vec<A> {
        self.to_vec()
    }
}

impl<A: Clone> IntoArgs<A> for &[A] {
    fn into_args(self) -> Vec<A> {
        self.to_vec()
    }
}

impl<A: Clone> IntoArgs<A> for &Vec<A> {
    fn into_args(self) -> Vec<A> {
        self.clone()
    }
}

macro_rules! tuples {
    ($($name:ident)+) => {
        impl<A, $($name: Into<A>),+> IntoArgs<A> for ($($name,)+) {
            #[allow(non_snake_case, reason = "a type and its value have one name here")]
            fn into_args(self) -> Vec<A> {
                let ($($name,)+) = self;
                vec![$($name.into()),+]
            }
        }
    };
    ($($name:ident)+; $next:ident $($rest:ident)*) => {
        tuples!($($name)+);
        tuples!($($name)+ $next; $($rest)*);
    };
    ($($name:ident)+;) => {
        tuples!($($name)+);
    };
}

tuples!(T1; T2 T3 T4 T5 T6 T7 T8 T9 T10 T11 T12 T13 T14 T15 T16);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Value;
    use gridloom_base::{Dtype, Meta};

    fn metas(args: impl IntoArgs) -> Vec<Meta> {
        let meta = |arg: Arg| match arg {
            Arg::Value(value) => value.meta().clone(),
            Arg::Handle(handle) => handle.meta().clone(),
        };
        args.into_args().into_iter().map(meta).collect()
    }

    #[test]
    fn tuples_arrays_and_slices_are_arguments() {
        let matrix = Value::from_f64(&[2, 1], &[1.0, 2.0]);
        let expected = [
            Meta::scalar(Dtype::Int32),
            Meta::array(Dtype::Float64, &[2, 1]),
            Meta::array(Dtype::Float64, &[3]),
            Meta::Text { size_bytes: 1 },
        ];
        assert_eq!(metas((7, &matrix, vec![1.0, 2.0, 3.0], "N")), expected);
        assert_eq!(metas([&matrix, &matrix]), metas(vec![matrix.clone(), matrix.clone()]));
        let args: Vec<Arg> = vec![matrix.into()];
        assert_eq!((metas(&args), metas(&args[..0]), metas(())), (expected[1..2].to_vec(), Vec::new(), Vec::new()));
    }
}
