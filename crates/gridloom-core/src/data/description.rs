//! What a program says of a datum: its type and extents, where it is read, and where its copies go.
//!
//! **Invariants**
//! - A datum of which one copy exists is put to the store of one server at most.
//! - Its size in memory, if its type says it, fits in 64 bits.

use gridloom_base::{Dtype, Meta};

use super::{InvalidData, Mode, Uri};

/// The type of a datum's elements, or of its content.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    Bool,
    Char,
    Short,
    Int,
    Long,
    Float,
    Double,
    /// Of two `float`.
    Complex,
    /// Of two `double`.
    DoubleComplex,
    /// A text that ends with a NUL; its size follows from its content.
    String,
    /// The content of a file, of any size.
    File,
    /// A list of data.
    Container,
}

impl Kind {
    /// All types, in the order of their numbers in C.
    pub const ALL: [Kind; 12] = [
        Kind::Bool,
        Kind::Char,
        Kind::Short,
        Kind::Int,
        Kind::Long,
        Kind::Float,
        Kind::Double,
        Kind::Complex,
        Kind::DoubleComplex,
        Kind::String,
        Kind::File,
        Kind::Container,
    ];

    /// The standard's name, and the type of an element; `None` where the size follows from the content.
    fn about(self) -> (&'static str, Option<Dtype>) {
        match self {
            Kind::Bool => ("GRPC_BOOL", Some(Dtype::Bool)),
            Kind::Char => ("GRPC_CHAR", Some(Dtype::Int8)),
            Kind::Short => ("GRPC_SHORT", Some(Dtype::Int16)),
            Kind::Int => ("GRPC_INT", Some(Dtype::Int32)),
            Kind::Long => ("GRPC_LONG", Some(Dtype::Int64)),
            Kind::Float => ("GRPC_FLOAT", Some(Dtype::Float32)),
            Kind::Double => ("GRPC_DOUBLE", Some(Dtype::Float64)),
            Kind::Complex => ("GRPC_COMPLEX", Some(Dtype::Complex64)),
            Kind::DoubleComplex => ("GRPC_DOUBLE_COMPLEX", Some(Dtype::Complex128)),
            Kind::String => ("GRPC_STRING", None),
            Kind::File => ("GRPC_FILE", None),
            Kind::Container => ("GRPC_CONTAINER_OF_GRPC_DATA", None),
        }
    }

    /// The standard's name.
    pub fn name(self) -> &'static str {
        self.about().0
    }

    /// The type of that name.
    pub fn named(name: &str) -> Option<Kind> {
        Kind::ALL.into_iter().find(|kind| kind.name() == name)
    }

    /// The type of an element; `None` where the size follows from the content.
    pub fn element(self) -> Option<Dtype> {
        self.about().1
    }
}

/// What a program says of a datum.
#[derive(Clone, Debug)]
pub struct Description {
    inputs: Vec<Uri>,
    outputs: Vec<(Uri, Mode)>,
    kind: Kind,
    extents: Vec<u64>,
}

impl Description {
    /// `extents` stand outermost first. A scalar has none, nor has a datum that takes its size from its content.
    ///
    /// # Errors
    /// If a container has not one extent, or too large a one; if a single copy is to be in two stores; if the size overflows.
    pub fn new(
        inputs: Vec<Uri>,
        outputs: Vec<(Uri, Mode)>,
        kind: Kind,
        extents: Vec<u64>,
    ) -> Result<Description, InvalidData> {
        let wrong = |why: String| Err(InvalidData(why));
        if kind == Kind::Container {
            match extents[..] {
                [size] if size <= ITEMS_MAX => {}
                [_] => return wrong(format!("a container has at most {ITEMS_MAX} data")),
                _ => return wrong("a container has one extent, its size".into()),
            }
        }
        let single = outputs.iter().map(|(_, mode)| *mode).find(|mode| mode.is_single());
        let stores = outputs.iter().filter(|(uri, _)| matches!(uri, Uri::Store(_))).count();
        if let Some(mode) = single.filter(|_| stores > 1) {
            return wrong(format!("{mode} is of one place, and {stores} servers are named"));
        }
        let element = kind.element().map_or(0, Dtype::size_bytes);
        let bytes = extents.iter().try_fold(element, |bytes, extent| bytes.checked_mul(*extent));
        if bytes.is_none() {
            return wrong("its size is past 2^64 bytes".into());
        }
        Ok(Description { inputs, outputs, kind, extents })
    }

    /// Bytes of no known type or size.
    pub fn opaque(kind: Kind) -> Description {
        Description { inputs: Vec::new(), outputs: Vec::new(), kind, extents: Vec::new() }
    }

    /// Places from which it can be read.
    pub fn inputs(&self) -> &[Uri] {
        &self.inputs
    }

    /// Places to which it is put, each with the mode of its copy there.
    pub fn outputs(&self) -> &[(Uri, Mode)] {
        &self.outputs
    }

    pub fn kind(&self) -> Kind {
        self.kind
    }

    pub fn extents(&self) -> &[u64] {
        &self.extents
    }

    /// Places of a container; 0 for any other datum.
    pub fn places(&self) -> usize {
        match self.kind {
            Kind::Container => usize::try_from(self.extents[0]).expect("a container has a small extent"),
            _ => 0,
        }
    }

    /// Whether it is erased right after a call has read it.
    pub fn is_strictly_volatile(&self) -> bool {
        self.outputs.iter().any(|(_, mode)| *mode == Mode::StrictlyVolatile)
    }

    /// The mode that allows one copy only, if an output has such a one: calls that read the datum run where it lies.
    pub fn single(&self) -> Option<Mode> {
        self.outputs.iter().map(|(_, mode)| *mode).find(|mode| mode.is_single())
    }

    /// The server that has to have the one copy, if there is one copy only and a server is named.
    pub fn only_store(&self) -> Option<&str> {
        self.single()?;
        self.outputs.iter().find_map(|(uri, _)| match uri {
            Uri::Store(server) => Some(server.as_str()),
            _ => None,
        })
    }

    /// Type and number of the elements of a value of that size.
    pub fn elements(&self, size_bytes: u64) -> (Dtype, u64) {
        match self.kind.element() {
            Some(dtype) if size_bytes.is_multiple_of(dtype.size_bytes()) => (dtype, size_bytes / dtype.size_bytes()),
            _ => (Dtype::Int8, size_bytes),
        }
    }

    /// How a value of that size lies in the program's memory.
    pub fn meta(&self, size_bytes: u64) -> Meta {
        let (dtype, count) = self.elements(size_bytes);
        match self.extents.iter().product::<u64>() == count {
            true if !self.extents.is_empty() => Meta::array(dtype, &self.extents),
            _ => Meta::array(dtype, &[count]),
        }
    }

    /// Bytes in memory, if its type says it.
    pub fn size_bytes(&self) -> Option<u64> {
        Some(self.kind.element()?.size_bytes() * self.extents.iter().product::<u64>())
    }

    /// Refuses content of another size than the described one, if extents were given.
    ///
    /// # Errors
    /// If the sizes differ.
    pub fn check_size(&self, uri: &Uri, got: u64) -> Result<(), InvalidData> {
        let Some(needed) = self.size_bytes().filter(|needed| !self.extents.is_empty() && *needed != got) else {
            return Ok(());
        };
        let extents: Vec<String> = self.extents.iter().map(u64::to_string).collect();
        let (what, extents) = (self.kind.name(), extents.join(" x "));
        Err(InvalidData(format!("'{uri}' has {got} bytes, and the datum is {extents} of {what}, {needed} bytes")))
    }
}

/// Data in a container.
const ITEMS_MAX: u64 = 1 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    fn stores(names: &[&str], mode: Mode) -> Vec<(Uri, Mode)> {
        names.iter().map(|name| (Uri::Store(name.to_string()), mode)).collect()
    }

    fn described(outputs: Vec<(Uri, Mode)>, kind: Kind, extents: &[u64]) -> Result<Description, InvalidData> {
        Description::new(Vec::new(), outputs, kind, extents.to_vec())
    }

    #[test]
    fn a_single_copy_has_one_store() {
        for mode in Mode::ALL {
            assert_eq!(described(stores(&["a", "b"], mode), Kind::Int, &[]).is_err(), mode.is_single(), "{mode}");
            let one = described(stores(&["a"], mode), Kind::Int, &[]).unwrap();
            assert_eq!(
                (one.single(), one.only_store()),
                (mode.is_single().then_some(mode), mode.is_single().then_some("a"))
            );
        }
    }

    #[test]
    fn sizes_are_checked() {
        let matrix = described(Vec::new(), Kind::Double, &[2, 3]).unwrap();
        assert_eq!((matrix.size_bytes(), matrix.elements(48)), (Some(48), (Dtype::Float64, 6)));
        assert_eq!(matrix.meta(48), Meta::array(Dtype::Float64, &[2, 3]));
        let failed = matrix.check_size(&Uri::Grid, 40).unwrap_err().to_string();
        assert!(failed.contains("40 bytes") && failed.contains("2 x 3 of GRPC_DOUBLE, 48 bytes"), "{failed}");
        assert!(described(Vec::new(), Kind::Double, &[1 << 62]).is_err());
        assert_eq!(Description::opaque(Kind::File).meta(5), Meta::array(Dtype::Int8, &[5]));
    }

    #[test]
    fn a_container_has_its_size() {
        assert_eq!(described(Vec::new(), Kind::Container, &[3]).unwrap().places(), 3);
        for extents in [&[][..], &[1, 2], &[ITEMS_MAX + 1]] {
            assert!(described(Vec::new(), Kind::Container, extents).is_err());
        }
    }
}
