//! Native functions: symbols of shared libraries, called through libffi according to their signatures.
//!
//! "C": scalars by value, arrays and results by pointer. "FORTRAN": everything by pointer, and the lengths of all
//! strings after the last argument, as `size_t`. Strings and files: [`super::marshalled`].
//!
//! **Not checked, because it cannot be:** that the symbol is the function that its signature describes. A wrong
//! signature crashes this process and no other.

use std::ffi::{CStr, CString, c_char, c_void};
use std::mem::ManuallyDrop;
use std::path::{Path, PathBuf};

use gridloom_base::{Dtype, Meta, TaskError};
use gridloom_idl::{BaseType, BindError, Body, CallArgument, Callback, Definition, Expr, Language, Mode, Param};
use gridloom_libffi::middle::{Arg, Cif, CodePtr, Ret, Type};
use libloading::Library;
use libloading::os::unix as os;

use super::call_back::{CallbackState, CallbackTarget, Context};
use super::convert::Aligned;
use super::initial::{Modules, QueryInitial, views};
use super::marshalled::MarshalledArgs;
use super::nested;
use super::queries::{QUERIES, QueryFn};
use super::values::refused;
use super::xerbla;
use super::{ArgView, Functions, OutView, Room, Setup};

/// Storage for any scalar, with its alignment.
type Cell = [u128; 2];

/// A C variable that function libraries may define, and the value that it is set to when they are loaded.
#[derive(Clone, Copy, Debug)]
pub struct LibraryVariable {
    pub name: &'static CStr,
    /// Must be valid for as long as the process runs.
    pub value: *const c_void,
}

/// Runs a function as one of several ranks: the compiled function of this symbol, on the call in `file`.
///
/// # Errors
/// If the library or the symbol does not exist.
pub fn rank_main(library: &Path, symbol: &str, file: &str) -> Result<(), String> {
    let file = CString::new(file).map_err(|_| "the file name contains a NUL".to_string())?;
    xerbla::install();
    // SAFETY: the server has loaded this library, too. MPI finds its own symbols through those of the process.
    let library = unsafe { os::Library::open(Some(library), os::RTLD_NOW | os::RTLD_GLOBAL) };
    let library = ManuallyDrop::new(library.map_err(|error| reason(&error))?);
    // SAFETY: the server passes the symbol of a function that was compiled with this type.
    let run = unsafe { library.get::<unsafe extern "C-unwind" fn(*const c_char)>(symbol.as_bytes()) };
    let run = run.map_err(|error| reason(&error))?;
    // SAFETY: the function takes a NUL-terminated path that outlives the call.
    unsafe { run(file.as_ptr()) };
    xerbla::take().map_or(Ok(()), Err)
}

/// The functions of shared libraries.
#[derive(Default)]
pub struct Native {
    libraries: Vec<(PathBuf, Result<Library, String>)>,
    functions: Vec<Option<Prepared>>,
    scratch: PathBuf,
    variables: Vec<LibraryVariable>,
    modules: Modules,
}

/// Sets the variables through which a library's functions query their calls and use services of the worker. A variable
/// may also belong to a library that this one is linked with.
fn set_query_variables(library: &os::Library, variables: &[LibraryVariable]) {
    for LibraryVariable { name, value } in variables {
        // SAFETY: if a library has a variable of this name, it is a pointer, which one thread sets before functions run.
        if let Ok(place) = unsafe { library.get::<*mut *const c_void>(name.to_bytes_with_nul()) } {
            // SAFETY: as above.
            unsafe { place.write(*value) };
        }
    }
    for (name, answer) in QUERIES {
        // SAFETY: if a library has a variable of this name, it has this type (`QUERIES`).
        if let Ok(place) = unsafe { library.get::<*mut Option<QueryFn>>(name) } {
            // SAFETY: as above; no function of the library runs yet.
            unsafe { place.write(Some(answer)) };
        }
    }
}

struct Prepared {
    definition: Definition,
    language: Language,
    args: Vec<CallArgument>,
    result: Option<(Dtype, usize)>,
    cif: Cif,
    code: CodePtr,
    /// For each parameter, its index among the arguments and among the results.
    places: Vec<(Option<usize>, Option<usize>)>,
}

impl Functions for Native {
    fn setup(&mut self, setup: &Setup) -> Result<(), String> {
        self.scratch.clone_from(&setup.scratch);
        if !setup.libraries.is_empty() {
            xerbla::install();
        }
        for path in &setup.libraries {
            // SAFETY: loading runs the library's initialisers. The server's operator chose the library, and this
            // process exists to run its code. All symbols are resolved now, so that a missing one is noticed here and
            // not in the middle of a call.
            let library = unsafe { os::Library::open(Some(path), os::RTLD_NOW | os::RTLD_LOCAL) };
            let library = library.inspect(|library| set_query_variables(library, &self.variables));
            self.libraries.push((path.clone(), library.map(Library::from).map_err(|error| reason(&error))));
        }
        Ok(())
    }

    fn load(&mut self, function: u32, definition: &Definition) -> Result<(), String> {
        let Body::Native { language, symbol, args, result } = &definition.body else {
            return Err("it is not a native function".into());
        };
        let code = super::files::function(symbol).map_or_else(|| self.find(symbol), Ok)?;
        let params = &definition.signature.params;
        let mut types = Vec::with_capacity(args.len());
        for arg in args {
            types.push(argument_type(arg, *language, params)?);
        }
        if *language == Language::Fortran {
            types.extend(args.iter().filter(|arg| is_text(arg, params)).map(|_| Type::usize()));
        }
        let returns = match result {
            None => Type::void(),
            Some((dtype, param)) => {
                let fits = params.get(*param).is_some_and(|param| param.base == BaseType::Number(*dtype));
                if !fits {
                    return Err(format!("it returns {dtype}, but its parameter number {param} has another type"));
                }
                if *dtype == Dtype::ComplexLongDouble {
                    return Err(format!("a {dtype} cannot be the return value of a function"));
                }
                value_type(*dtype)?
            }
        };
        let cif = Cif::try_new(types, returns).map_err(|error| format!("libffi: {error:?}"))?;
        let (mut input, mut output) = (0, 0);
        let places = params
            .iter()
            .map(|param| {
                let at = (param.is_input().then_some(input), param.is_output().then_some(output));
                input += usize::from(param.is_input());
                output += usize::from(param.is_output());
                at
            })
            .collect();
        let prepared = Prepared {
            definition: definition.clone(),
            language: *language,
            args: args.clone(),
            result: *result,
            cif,
            code,
            places,
        };
        let index = function as usize;
        if self.functions.len() <= index {
            self.functions.resize_with(index + 1, || None);
        }
        self.functions[index] = Some(prepared);
        self.modules.loaded(function, &definition.signature.name);
        Ok(())
    }

    fn call(
        &mut self,
        function: u32,
        args: &[ArgView<'_>],
        outs: &mut [OutView<'_>],
        program: &mut dyn CallbackTarget,
    ) -> Result<(), TaskError> {
        let find = |function: u32| self.functions.get(function as usize).and_then(Option::as_ref);
        let prepared = find(function).expect("only loaded functions are called");
        if let Some(first) = self.modules.before(&prepared.definition.signature.name, nested::client())? {
            let initialiser = find(first.function).expect("it was noted when it was loaded");
            let arguments = first.arguments(&initialiser.definition.signature)?;
            initialiser.call(&views(&arguments), &mut [], &self.scratch, program)?;
            self.modules.note(first);
        }
        prepared.call(args, outs, &self.scratch, program)
    }
}

impl Native {
    /// Creates the functions. Libraries get these variables, and `ask` determines how their modules are initialised.
    pub(super) fn new(variables: &[LibraryVariable], ask: Option<QueryInitial>) -> Native {
        let modules = ask.map_or_else(Modules::default, Modules::new);
        Native { variables: variables.to_vec(), modules, ..Native::default() }
    }

    /// Returns the libraries that cannot be loaded, with the system's error for each.
    pub fn unloadable(&self) -> impl Iterator<Item = (&Path, &str)> {
        self.libraries.iter().filter_map(|(path, library)| Some((path.as_path(), library.as_ref().err()?.as_str())))
    }

    fn find(&self, symbol: &str) -> Result<CodePtr, String> {
        for library in self.libraries.iter().filter_map(|(_, library)| library.as_ref().ok()) {
            // SAFETY: the symbol is only looked up here; the signature defines its type (see the module
            // documentation). The library is never unloaded, since `self` lives as long as the process.
            if let Ok(found) = unsafe { library.get::<unsafe extern "C" fn()>(symbol.as_bytes()) } {
                return Ok(CodePtr::from_fun(*found));
            }
        }
        if let Some((path, why)) = self.unloadable().next() {
            return Err(format!("library {} cannot be loaded: {why}", path.display()));
        }
        if self.libraries.is_empty() {
            return Err(format!("symbol '{symbol}' cannot be found: the server has no library"));
        }
        let searched: Vec<String> = self.libraries.iter().map(|(path, _)| path.display().to_string()).collect();
        Err(format!("symbol '{symbol}' is in none of its libraries: {}", searched.join(", ")))
    }
}

/// Returns the system's error message, which names the missing symbol or file.
fn reason(error: &libloading::Error) -> String {
    std::error::Error::source(error).map_or_else(|| error.to_string(), ToString::to_string)
}

impl Prepared {
    fn call(
        &self,
        args: &[ArgView<'_>],
        outs: &mut [OutView<'_>],
        scratch: &Path,
        program: &mut dyn CallbackTarget,
    ) -> Result<(), TaskError> {
        let signature = &self.definition.signature;
        let params = &signature.params;
        let misfit = |error: BindError| refused(error.reason(&signature.name));
        let line = CallbackState::new(program);
        let contexts = self.contexts(args, &line)?;
        let closures = contexts.iter().map(Context::closure).collect::<Result<Vec<_>, TaskError>>()?;
        // Native code may leave parts of a result unset.
        outs.iter_mut().for_each(OutView::clear);
        // Each argument has a cell with its value or the pointer to it; FORTRAN values that are passed by pointer are
        // stored in `referred`.
        let mut cells: Vec<Cell> = vec![[0; 2]; self.args.len()];
        let mut referred: Vec<Cell> = vec![[0; 2]; self.args.len()];
        let mut works: Vec<Aligned> = Vec::new();
        let mut marshalled = MarshalledArgs::new(self.language, scratch);
        for (at, arg) in self.args.iter().enumerate() {
            let by_value = self.language == Language::C;
            cells[at] = match arg {
                CallArgument::Value { dtype, expr } => {
                    let value = expr.value_bytes(*dtype, params, &self.scalars(args));
                    let value = cell_of(&value.map_err(|error| refused(error.to_string()))?);
                    if by_value { value } else { pointer_to_cell(&mut referred[at], value) }
                }
                CallArgument::Text(text) => address(marshalled.constant(text)),
                CallArgument::Callback(index) => address(*closures[*index].code_ptr() as *const u8),
                CallArgument::Param(index) => {
                    let param = &params[*index];
                    let (input, output) = self.places[*index];
                    let old = input.map(|input| &args[input]);
                    if param.is_list() {
                        let count = self.count_of(param, args)?;
                        address(marshalled.list(param, count, old, output)?)
                    } else if MarshalledArgs::are_for(param) {
                        let whole = match param.slices {
                            Some(_) => signature.whole(*index, self.scalars(args)).map_err(misfit)?,
                            None => None,
                        };
                        if by_value && whole.as_ref().is_some_and(|whole| whole.size_bytes == 0) {
                            NULL
                        } else {
                            // A file result with text as its description is one that the caller does not want.
                            let is_wanted =
                                output.is_none_or(|at| !(param.base == BaseType::File && is_text_meta(&outs[at].meta)));
                            address(marshalled.param(*index, param, whole, old, output, is_wanted)?)
                        }
                    } else if param.mode == Mode::Work {
                        let mut work = Aligned::zeroed(self.size_of(param, args)?);
                        let at = array(work.bytes_mut(), by_value);
                        works.push(work);
                        at
                    } else if let Some(output) = output {
                        match &mut outs[output].room {
                            Room::Fixed(bytes) => array(bytes, by_value && is_array(param)),
                            Room::Growing(_) => return Err(refused("a number is expected, not text".into())),
                        }
                    } else if is_array(param) {
                        let bytes = old.map_or(&[][..], |old| old.bytes);
                        if by_value && bytes.is_empty() { NULL } else { address(bytes.as_ptr()) }
                    } else {
                        let value = cell_of(input.map_or(&[][..], |input| args[input].bytes));
                        if by_value { value } else { pointer_to_cell(&mut referred[at], value) }
                    }
                }
            };
        }
        let lengths = if self.language == Language::Fortran { marshalled.lengths() } else { Vec::new() };
        let passed: Vec<Arg<'_>> = cells.iter().map(Arg::new).chain(lengths.iter().map(Arg::new)).collect();
        let mut returned: Cell = [0; 2];
        let ret = if self.result.is_some() { Ret::new(&mut returned) } else { Ret::void() };
        // SAFETY: the call interface was made from the same list of arguments as `passed`; each cell is at least as
        // large and aligned as its type, and all memory pointed to (arguments, results, `works`, `marshalled`,
        // `referred`) outlives the call. The signature guarantees that the symbol has this type; see the module
        // documentation.
        unsafe { self.cif.call_return_into(self.code, &passed, ret) };
        let invalid = xerbla::take();
        if let Some((dtype, param)) = self.result
            && let Some(output) = self.places[param].1
            && let Room::Fixed(room) = &mut outs[output].room
        {
            room.copy_from_slice(&bytes_of(&returned)[..dtype.size_bytes() as usize]);
        }
        drop(closures);
        drop(contexts);
        line.end()?;
        if let Some(why) = invalid {
            return Err(refused(why));
        }
        marshalled.finish(args, outs, |index, outs| self.meta_after(index, args, outs))
    }

    /// Returns the values of the scalar parameters, for expressions.
    fn scalars(&self, args: &[ArgView<'_>]) -> Vec<Option<(Meta, Vec<u8>)>> {
        let scalar = |place: &(Option<usize>, Option<usize>)| {
            let arg = &args[place.0?];
            matches!(arg.meta, Meta::Scalar { .. }).then(|| (arg.meta.clone(), arg.bytes.to_vec()))
        };
        self.places.iter().map(scalar).collect()
    }

    /// Returns the contexts of this call's closures.
    fn contexts<'a, 'p>(
        &'a self,
        args: &[ArgView<'_>],
        line: &'a CallbackState<'p>,
    ) -> Result<Vec<Context<'a, 'p>>, TaskError> {
        let signature = &self.definition.signature;
        let context = |(index, callback): (usize, &'a Callback)| {
            let metas = signature.callback_metas(index, self.scalars(args));
            let metas = metas.map_err(|error| refused(error.reason(&signature.name)))?;
            Ok(Context::new(line, index, callback, metas))
        };
        signature.callbacks.iter().enumerate().map(context).collect()
    }

    /// Returns the description of an array whose extents are known only after the call.
    fn meta_after(&self, index: usize, args: &[ArgView<'_>], outs: &[OutView<'_>]) -> Result<Meta, TaskError> {
        let mut scalars = self.scalars(args);
        for (scalar, (_, output)) in scalars.iter_mut().zip(&self.places) {
            if let Some(out) = output.map(|output| &outs[output])
                && matches!(out.meta, Meta::Scalar { .. })
            {
                *scalar = Some((out.meta.clone(), out.room.bytes().to_vec()));
            }
        }
        let params = &self.definition.signature.params;
        let param = &params[index];
        let wrong = |why: String| {
            let why = format!("an extent of '{}' is invalid: {why}", param.name);
            TaskError::WrongResult { function: String::new(), server: String::new(), why }
        };
        let extent = |dim: &Expr| dim.extent_of(params, &scalars).map_err(|error| wrong(error.to_string()));
        let shape = param.dims.iter().map(extent).collect::<Result<Vec<u64>, TaskError>>()?;
        let BaseType::Number(dtype) = param.base else { unreachable!("arrays contain only numbers") };
        let meta = Meta::array(dtype, &shape);
        match meta.checked_size_bytes().filter(|bytes| isize::try_from(*bytes).is_ok()) {
            Some(_) => Ok(meta),
            None => Err(wrong(format!("{shape:?} is larger than memory"))),
        }
    }

    fn size_of(&self, param: &Param, args: &[ArgView<'_>]) -> Result<usize, TaskError> {
        let size = match param.base {
            BaseType::Number(dtype) => dtype.size_bytes() as usize,
            _ => 1,
        };
        self.sized(size, param, args)
    }

    /// Returns the number of elements of an array.
    fn count_of(&self, param: &Param, args: &[ArgView<'_>]) -> Result<usize, TaskError> {
        self.sized(1, param, args)
    }

    fn sized(&self, mut size: usize, param: &Param, args: &[ArgView<'_>]) -> Result<usize, TaskError> {
        let scalars = self.scalars(args);
        for extent in &param.dims {
            let extent = extent.extent_of(&self.definition.signature.params, &scalars);
            let extent = extent.map_err(|error| refused(error.to_string()))?;
            size = usize::try_from(extent)
                .ok()
                .and_then(|extent| size.checked_mul(extent))
                .filter(|size| *size < isize::MAX as usize / 2)
                .ok_or_else(|| refused(format!("extent {extent} of parameter '{}' is out of range", param.name)))?;
        }
        Ok(size)
    }
}

fn is_array(param: &Param) -> bool {
    param.is_array || !param.dims.is_empty()
}

fn is_text_meta(meta: &Meta) -> bool {
    matches!(meta, Meta::Text { .. })
}

/// Reports whether FORTRAN receives the length of such a parameter.
fn is_string(base: BaseType) -> bool {
    matches!(base, BaseType::Text | BaseType::String | BaseType::File)
}

fn is_text(arg: &CallArgument, params: &[Param]) -> bool {
    match arg {
        CallArgument::Text(_) => true,
        CallArgument::Param(index) => params.get(*index).is_some_and(|param| is_string(param.base)),
        CallArgument::Value { .. } | CallArgument::Callback(_) => false,
    }
}

fn argument_type(arg: &CallArgument, language: Language, params: &[Param]) -> Result<Type, String> {
    match arg {
        CallArgument::Text(_) | CallArgument::Callback(_) => Ok(Type::pointer()),
        CallArgument::Value { dtype, .. } => {
            if matches!(dtype, Dtype::Float16 | Dtype::LongDouble | Dtype::ComplexLongDouble) {
                return Err(format!("an expression cannot be passed as {dtype}"));
            }
            if language == Language::C { value_type(*dtype) } else { Ok(Type::pointer()) }
        }
        CallArgument::Param(index) => {
            let param = params.get(*index).ok_or_else(|| format!("it has no parameter number {index}"))?;
            match param.base {
                BaseType::Bytes => {
                    Err(format!("parameter '{}' has type bytes, which native code cannot receive", param.name))
                }
                BaseType::Number(dtype) if language == Language::C && param.mode == Mode::In && !is_array(param) => {
                    value_type(dtype)
                }
                _ => Ok(Type::pointer()),
            }
        }
    }
}

/// Returns the type by which a value is passed. A complex number is passed like a structure of its two halves, as the
/// C calling conventions of x86-64, AArch64, POWER and RISC-V define it (except for the return of a complex long
/// double).
fn value_type(dtype: Dtype) -> Result<Type, String> {
    Ok(match dtype {
        Dtype::Bool | Dtype::Uint8 => Type::u8(),
        Dtype::Int8 => Type::i8(),
        Dtype::Int16 => Type::i16(),
        Dtype::Int32 => Type::i32(),
        Dtype::Int64 => Type::i64(),
        Dtype::Uint16 => Type::u16(),
        Dtype::Uint32 => Type::u32(),
        Dtype::Uint64 => Type::u64(),
        Dtype::Float16 => return Err("a float16 cannot be passed by value; declare it as an array of one".into()),
        Dtype::Float32 => Type::f32(),
        Dtype::Float64 => Type::f64(),
        Dtype::LongDouble => Type::longdouble(),
        Dtype::Complex64 => Type::structure([Type::f32(), Type::f32()]),
        Dtype::Complex128 => Type::structure([Type::f64(), Type::f64()]),
        Dtype::ComplexLongDouble => Type::structure([Type::longdouble(), Type::longdouble()]),
    })
}

/// Returns the cell of an array. A C function gets NULL for an array without elements, as in Ninf-G.
fn array(bytes: &mut [u8], is_null_if_empty: bool) -> Cell {
    if is_null_if_empty && bytes.is_empty() { NULL } else { address(bytes.as_mut_ptr()) }
}

const NULL: Cell = [0; 2];

fn address(at: *const u8) -> Cell {
    cell_of(&(at as *const c_void as usize).to_ne_bytes())
}

fn pointer_to_cell(place: &mut Cell, value: Cell) -> Cell {
    *place = value;
    address(std::ptr::from_mut(place).cast())
}

/// Places the bytes of a scalar at the start of a cell, where C expects them.
fn cell_of(bytes: &[u8]) -> Cell {
    let mut all = [0; 32];
    all[..bytes.len()].copy_from_slice(bytes);
    let (low, high) = all.split_at(16);
    [low, high].map(|half| u128::from_ne_bytes(half.try_into().expect("a half has 16 bytes")))
}

fn bytes_of(cell: &Cell) -> [u8; 32] {
    let mut all = [0; 32];
    all[..16].copy_from_slice(&cell[0].to_ne_bytes());
    all[16..].copy_from_slice(&cell[1].to_ne_bytes());
    all
}
