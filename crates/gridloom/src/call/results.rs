//! Results of a call, in the order in which its function declares them.

use std::ops::Deref;
use std::sync::Arc;

use gridloom_idl::Signature;

use crate::Error;

/// The results of a call, in the order in which its function declares them: values of a plain call, handles of a call in a
/// group.
///
/// ```no_run
/// # use gridloom::{Error, Function, Group, Value};
/// # fn body(group: &Group, dgemm: &Function, factor: &Function, a: &Value) -> Result<(), Error> {
/// let aa = group.call(dgemm, (a, a))?.one()?;
/// let [q, r] = group.call(factor, (&aa,))?.array()?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Results<T> {
    signature: Arc<Signature>,
    all: Vec<T>,
}

impl<T> Results<T> {
    pub(crate) fn new(signature: &Arc<Signature>, all: Vec<T>) -> Results<T> {
        Results { signature: signature.clone(), all }
    }

    /// Returns the only result.
    ///
    /// # Errors
    /// [`Error::Usage`] if there is another number of results.
    pub fn one(self) -> Result<T, Error> {
        self.array().map(|[one]| one)
    }

    /// Returns the results as an array, for example to name each of them.
    ///
    /// # Errors
    /// [`Error::Usage`] if there is another number of results.
    pub fn array<const N: usize>(self) -> Result<[T; N], Error> {
        let Results { signature, all } = self;
        all.try_into().map_err(|all: Vec<T>| {
            let params = signature.params.iter().filter(|param| param.is_output());
            let names: Vec<&str> = params.map(|param| param.name.as_str()).collect();
            let names = if names.is_empty() { String::new() } else { format!(" ({})", names.join(", ")) };
            let results = |count: usize| format!("{count} result{}", if count == 1 { "" } else { "s" });
            let (expected, actual) = (results(N), results(all.len()));
            Error::Usage(format!("{}: {expected} expected, but it returns {actual}{names}", signature.name))
        })
    }

    pub fn into_vec(self) -> Vec<T> {
        self.all
    }
}

impl<T> Deref for Results<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        &self.all
    }
}

impl<T> IntoIterator for Results<T> {
    type Item = T;
    type IntoIter = std::vec::IntoIter<T>;

    fn into_iter(self) -> Self::IntoIter {
        self.all.into_iter()
    }
}

impl<'a, T> IntoIterator for &'a Results<T> {
    type Item = &'a T;
    type IntoIter = std::slice::Iter<'a, T>;

    fn into_iter(self) -> Self::IntoIter {
        self.all.iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_number_of_results_is_an_error_with_their_names() {
        let text = "Module m;\n\
            Define pair(IN double a, OUT double *low, OUT double *high) Calls \"C\" pair(a, low, high);\n\
            Define none(IN double a) Calls \"C\" none(a);\n";
        let parsed = gridloom_idl::parse_file(text, "m.idl").expect("it parses");
        let of = |at: usize| Arc::new(parsed.definitions[at].signature.clone());
        let pair = Results::new(&of(0), vec![1, 2]);
        assert_eq!(pair.clone().array().map(|[low, high]| (low, high)).unwrap(), (1, 2));
        let told = pair.one().unwrap_err().to_string();
        assert_eq!(told, "m/pair: 1 result expected, but it returns 2 results (low, high)");
        let told = Results::<i32>::new(&of(1), Vec::new()).array::<2>().unwrap_err().to_string();
        assert_eq!(told, "m/none: 2 results expected, but it returns 0 results");
    }
}
