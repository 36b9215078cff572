//! Signatures: the arguments and results of functions.
//!
//! **Invariants**, established by the parser and by [`Signature::check`]. Parameter names are unique. Extents and the
//! complexity use only constants and scalar integer `IN` parameters; the complexity also real ones. An `OUT` scalar is
//! passed by pointer. Names and sizes of shared data follow the rules of extents; a name may also use `IN` strings.

use std::ffi::OsString;
use std::fmt;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::expr::Expr;
use crate::slice::Slice;
use crate::uses::SharedUse;
use crate::values::AllowedValues;
use gridloom_base::{Dtype, Meta, Order};

/// Direction of a parameter.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Mode {
    /// Passed from caller to function.
    In,
    /// Passed from function to caller.
    Out,
    /// Passed in both directions: the function updates it in place; the caller receives a new version.
    InOut,
    /// Scratch space that the server allocates. It is not sent, though programs in C pass an argument for it.
    Work,
    /// Passed from function to caller: an array whose extents are known when the function has returned.
    VarOut,
}

/// Type of one element.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum BaseType {
    Number(Dtype),
    /// UTF-8 text (Python functions).
    Text,
    /// Uninterpreted bytes (Python functions).
    Bytes,
    /// A C string, which ends in a zero byte (native functions): text if it is UTF-8, else bytes. An empty value means NULL.
    String,
    /// The content of a file, whose path the function receives (native functions). An empty text means no file.
    File,
    /// The content of a file that is open where the function runs (native functions), which receives a `FILE *`. An
    /// empty text means no file.
    Stream,
}

impl BaseType {
    /// True if a value of that description can be one of this type, provided that it is neither an array nor a number.
    pub fn holds(self, meta: &Meta) -> bool {
        match (self, meta) {
            (BaseType::Text | BaseType::String, Meta::Text { .. })
            | (BaseType::Bytes | BaseType::String | BaseType::File | BaseType::Stream, Meta::Bytes { .. }) => true,
            (BaseType::File | BaseType::Stream, Meta::Text { size_bytes }) => *size_bytes == 0,
            _ => false,
        }
    }

    /// True if an array of it is sent as a list: of strings or of files.
    pub fn is_listed(self) -> bool {
        matches!(self, BaseType::String | BaseType::File | BaseType::Stream)
    }
}

/// Memory order of an array that a function expects.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum ArrayOrder {
    /// Row-major (functions called as "C").
    C,
    /// Column-major (functions called as "FORTRAN").
    F,
    /// Either (Python functions).
    Any,
    /// Column-major, for callers in C whose arrays are row-major (GridSolve's routines).
    Transposed,
}

impl ArrayOrder {
    /// The order in memory, if it is a fixed one.
    pub fn in_memory(self) -> Option<Order> {
        match self {
            ArrayOrder::C => Some(Order::C),
            ArrayOrder::F | ArrayOrder::Transposed => Some(Order::F),
            ArrayOrder::Any => None,
        }
    }
}

/// One parameter.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Param {
    pub name: String,
    /// Its direction.
    pub mode: Mode,
    /// Type of the element.
    pub base: BaseType,
    /// Extents, outermost first; empty for a scalar.
    pub dims: Vec<Expr>,
    /// True if the declaration makes it an array even without extents (`gl.Array["float64"]`: 0 dimensions).
    pub is_array: bool,
    /// Expected memory order.
    pub order: ArrayOrder,
    /// True for a size that no caller passes by position: it is inferred from the extents of an array argument (Python functions).
    pub hidden: bool,
    /// By dimension, outermost first: the part that is sent, if only a part is. Then the extents are those of the part, and
    /// both ends have the whole array in memory.
    pub slices: Option<Vec<Slice>>,
    /// The values that it, or each of its elements, may have, if they are listed. It must be an input.
    pub values: Option<AllowedValues>,
    /// Likely size in bytes of a result whose size is only known after the call (a text, bytes, a file). Plans use it, and in
    /// simulation it is the size.
    pub likely_bytes: Option<Expr>,
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Mode::In => "IN",
            Mode::Out => "OUT",
            Mode::InOut => "INOUT",
            Mode::Work => "WORK",
            Mode::VarOut => "VAROUT",
        })
    }
}

impl Param {
    /// Creates a parameter that is a single value.
    pub fn scalar(name: &str, mode: Mode, base: BaseType) -> Param {
        let name = name.to_string();
        Param {
            name,
            mode,
            base,
            dims: Vec::new(),
            is_array: false,
            order: ArrayOrder::Any,
            hidden: false,
            slices: None,
            values: None,
            likely_bytes: None,
        }
    }

    /// Creates a parameter that is an array of these extents.
    pub fn array(name: &str, mode: Mode, base: BaseType, dims: Vec<Expr>, order: ArrayOrder) -> Param {
        Param { dims, is_array: true, order, ..Param::scalar(name, mode, base) }
    }

    /// True if the caller gives a value.
    pub fn is_input(&self) -> bool {
        matches!(self.mode, Mode::In | Mode::InOut)
    }

    /// True if the caller receives a value.
    pub fn is_output(&self) -> bool {
        matches!(self.mode, Mode::Out | Mode::InOut | Mode::VarOut)
    }

    /// True if it is an array of strings or of files.
    pub fn is_list(&self) -> bool {
        self.is_array && self.base.is_listed()
    }

    /// True if a value of that description can be passed for it, provided that it is neither a number nor an array of numbers.
    pub fn holds(&self, meta: &Meta) -> bool {
        if self.is_list() { matches!(meta, Meta::List { .. }) } else { self.base.holds(meta) }
    }

    /// The memory order of its array unless stated otherwise.
    pub fn memory_order(&self) -> Order {
        if self.order == ArrayOrder::F { Order::F } else { Order::C }
    }

    /// The description of a result whose size is only known after the call, with its likely size in bytes.
    pub fn unknown_result(&self, size_bytes: u64) -> Option<Meta> {
        match (self.mode, self.base) {
            (Mode::VarOut, _) => Some(Meta::Bytes { size_bytes: 0 }),
            (_, BaseType::Number(_)) => None,
            _ if self.is_list() => Some(Meta::List { size_bytes: 0 }),
            (_, BaseType::Text | BaseType::String) => Some(Meta::Text { size_bytes }),
            (_, BaseType::Bytes | BaseType::File | BaseType::Stream) => Some(Meta::Bytes { size_bytes }),
        }
    }
}

/// A function of the calling program that is called back while a function runs. It takes arrays of numbers or of strings, whose
/// extents use the scalars of the function.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Callback {
    pub name: String,
    /// Its arguments (`IN`) and results (`OUT`).
    pub params: Vec<Param>,
}

/// The arguments and results of a function: all that a caller must know.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Signature {
    /// `module/function`.
    pub name: String,
    /// Parameters in declaration order.
    pub params: Vec<Param>,
    /// Its callbacks, which are passed after the parameters.
    pub callbacks: Vec<Callback>,
    /// Work in floating-point operations (CalcOrder), if stated.
    pub work: Option<Expr>,
    /// Shared data that it declares to get and put.
    #[serde(default)]
    pub uses: Vec<SharedUse>,
    /// One line of description, may be empty.
    pub about: String,
}

/// Calling convention of a native function.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Language {
    /// Scalars by value, arrays by pointer, row-major.
    C,
    /// Everything by pointer, column-major, lengths of strings appended.
    Fortran,
}

impl Language {
    /// Memory order of its routines' arrays, as seen by callers in C.
    pub(crate) fn array_order(self) -> ArrayOrder {
        match self {
            Language::C => ArrayOrder::C,
            Language::Fortran => ArrayOrder::Transposed,
        }
    }
}

/// One actual argument of the native function behind a signature.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub enum CallArgument {
    /// A parameter, by its index.
    Param(usize),
    /// A constant or an expression over scalar parameters, passed with the given type.
    Value {
        /// The type with which it is passed.
        dtype: Dtype,
        expr: Expr,
    },
    /// A text constant (such as the "N" of BLAS).
    Text(String),
    /// A callback, by its index.
    Callback(usize),
}

/// How a server runs the function. It is never sent.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub enum Body {
    /// A symbol of a shared library.
    Native {
        /// Calling convention.
        language: Language,
        /// Symbol to look up.
        symbol: String,
        /// Actual arguments in order.
        args: Vec<CallArgument>,
        /// Type of the returned value, and the index of the `OUT` parameter that receives it, if it is used.
        result: Option<(Dtype, usize)>,
    },
    /// A function of a Python module, called with its input parameters by position.
    Python {
        /// Path of the module's file, or its import name.
        #[serde(with = "gridloom_base::path_bytes")]
        module: PathBuf,
        /// Name of the function in it.
        function: String,
    },
    /// A program that is started several times as one gang of processes ([`crate::program`]).
    Program {
        /// The program, and arguments that precede those of a call.
        #[serde(with = "gridloom_base::path_bytes::list")]
        command: Vec<OsString>,
        /// The IP address on which its processes listen for one another.
        listen: String,
        /// Folder in which its checkpoints are kept, if it may keep any.
        #[serde(with = "gridloom_base::path_bytes::option")]
        checkpoints: Option<PathBuf>,
    },
}

/// A signature and its body.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Definition {
    /// The signature that callers see.
    pub signature: Signature,
    /// How the server runs it.
    pub body: Body,
}
