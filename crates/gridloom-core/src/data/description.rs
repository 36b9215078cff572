//! A program's description of a datum: its type and extents, where it is read from, and where its copies are placed.
//!
//! **Invariants**
//! - A datum of which only one copy may exist is placed in the store of at most one server.
//! - Its size in memory, if its type determines it, fits into 64 bits.

use gridloom_base::{Dtype, Meta};

use super::{InvalidData, Mode, Uri};

/// The type of a datum's elements or of its contents.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    Bool,
    Char,
    Short,
    Int,
    Long,
    Float,
    Double,
    /// Two `float`.
    Complex,
    /// Two `double`.
    DoubleComplex,
    /// A text that ends with a NUL; its size depends on its contents.
    String,
    /// The contents of a file, of any size.
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

    /// Returns the standard's name and the type of an element, which is `None` if the size depends on the contents.
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

    /// Returns the standard's name.
    pub fn name(self) -> &'static str {
        self.about().0
    }

    /// Returns the type with that name.
    pub fn named(name: &str) -> Option<Kind> {
        Kind::ALL.into_iter().find(|kind| kind.name() == name)
    }

    /// Returns the type of an element, or `None` if the size depends on the contents.
    pub fn element(self) -> Option<Dtype> {
        self.about().1
    }
}

/// A program's description of a datum.
#[derive(Clone, Debug)]
pub struct Description {
    inputs: Vec<Uri>,
    outputs: Vec<(Uri, Mode)>,
    kind: Kind,
    extents: Vec<u64>,
}

impl Description {
    /// Checks and creates a description. `extents` are outermost first. Scalars and data whose size depends on their
    /// contents have none.
    ///
    /// # Errors
    /// If a container does not have exactly one extent, or too large a one; if a single copy is placed in two stores;
    /// if the size overflows.
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
            return wrong(format!("{mode} allows one place, and {stores} servers are named"));
        }
        let element = kind.element().map_or(0, Dtype::size_bytes);
        let bytes = extents.iter().try_fold(element, |bytes, extent| bytes.checked_mul(*extent));
        if bytes.is_none() {
            return wrong("its size exceeds 2^64 bytes".into());
        }
        Ok(Description { inputs, outputs, kind, extents })
    }

    /// Returns the description of bytes of unknown type or size.
    pub fn opaque(kind: Kind) -> Description {
        Description { inputs: Vec::new(), outputs: Vec::new(), kind, extents: Vec::new() }
    }

    /// Returns the locations from which it can be read.
    pub fn inputs(&self) -> &[Uri] {
        &self.inputs
    }

    /// Returns the locations of its copies, each with the mode of its copy.
    pub fn outputs(&self) -> &[(Uri, Mode)] {
        &self.outputs
    }

    pub fn kind(&self) -> Kind {
        self.kind
    }

    pub fn extents(&self) -> &[u64] {
        &self.extents
    }

    /// Returns the number of items of a container; 0 for any other datum.
    pub fn places(&self) -> usize {
        match self.kind {
            Kind::Container => usize::try_from(self.extents[0]).expect("a container has a small extent"),
            _ => 0,
        }
    }

    /// True if it is erased right after a call has read it.
    pub fn is_strictly_volatile(&self) -> bool {
        self.outputs.iter().any(|(_, mode)| *mode == Mode::StrictlyVolatile)
    }

    /// Returns the mode that allows only one copy, if an output has one. Calls that read the datum must run where it
    /// is stored.
    pub fn single(&self) -> Option<Mode> {
        self.outputs.iter().map(|(_, mode)| *mode).find(|mode| mode.is_single())
    }

    /// Returns the server that must store the only copy, if there is one copy only and a server is given.
    pub fn only_store(&self) -> Option<&str> {
        self.single()?;
        self.outputs.iter().find_map(|(uri, _)| match uri {
            Uri::Store(server) => Some(server.as_str()),
            _ => None,
        })
    }

    /// Returns the type and number of the elements of a value of that size.
    pub fn elements(&self, size_bytes: u64) -> (Dtype, u64) {
        match self.kind.element() {
            Some(dtype) if size_bytes.is_multiple_of(dtype.size_bytes()) => (dtype, size_bytes / dtype.size_bytes()),
            _ => (Dtype::Int8, size_bytes),
        }
    }

    /// Returns the memory layout of a value of that size in the program.
    pub fn meta(&self, size_bytes: u64) -> Meta {
        let (dtype, count) = self.elements(size_bytes);
        match self.extents.iter().product::<u64>() == count {
            true if !self.extents.is_empty() => Meta::array(dtype, &self.extents),
            _ => Meta::array(dtype, &[count]),
        }
    }

    /// Returns its size in memory in bytes, if its type determines it.
    pub fn size_bytes(&self) -> Option<u64> {
        Some(self.kind.element()?.size_bytes() * self.extents.iter().product::<u64>())
    }

    /// Refuses contents whose size differs from the described one, if extents were given.
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

/// Largest number of items of a container.
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
