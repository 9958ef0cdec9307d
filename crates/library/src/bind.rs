//! Binds interfaces to libraries: loads the libraries, finds the symbols and prepares the calls.
//! `invoke` makes them. If symbols are missing, one error lists all of them, and nothing is bound.

pub(crate) mod callback;

use crate::allocated::Allocated;
use crate::compile::{bodies, symbol};
use crate::identity::Identity;
use crate::kernel;
use crate::loader::{LoadError, Loaded, of_linker};
use crate::texts::ended;
use farcall_idl::{
    Body, Constant, Convention, Document, Interface, Library, Mode, Param, Passed, StringLengths,
    Type,
};
use libffi::middle::{Cif, Type as FfiType};
use std::collections::HashMap;
use std::ffi::c_void;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use thiserror::Error;

/// The functions of one interface file, ready to be called.
#[derive(Debug)]
pub struct Binding {
    libraries: Vec<Loaded>,
    /// Prepared calls by index of the interface. `None` if another engine runs it.
    pub(crate) functions: Vec<Option<Function>>,
    /// What the libraries are, once it was asked.
    identities: OnceLock<Vec<Identity>>,
}

/// A symbol that none of the libraries has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MissingSymbol {
    /// Qualified name of the interface.
    pub interface: String,
    /// The symbols that were tried.
    pub symbols: Vec<String>,
}

/// The reason why an interface file cannot be bound.
#[derive(Debug, Error)]
pub enum BindError {
    /// A library cannot be loaded.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// Symbols are missing. The error lists all of them.
    #[error("symbols are missing in {libraries}:{}", list(missing))]
    Missing {
        /// The libraries searched.
        libraries: String,
        /// The missing symbols.
        missing: Vec<MissingSymbol>,
    },
    /// An interface has a property that makes it impossible to call.
    #[error("`{interface}`: {what}")]
    Unsupported {
        /// Qualified name of the interface.
        interface: String,
        /// The property.
        what: &'static str,
    },
}

/// Loads the libraries that the file names, in their order. The folders of `-L` count for all of
/// them, as for the linker.
fn load(document: &Document, folder: &Path) -> Result<Vec<Loaded>, LoadError> {
    let libraries = document.libraries.iter();
    let names = libraries.filter_map(|library| match library {
        Library::Library(name) => Some(name.as_str()),
        Library::File(_) => None,
    });
    let options = names.clone().filter(|name| name.starts_with('-'));
    let folders: Vec<PathBuf> = options
        .flat_map(|options| of_linker(options, folder).0)
        .collect();
    let names = names.flat_map(|name| match name.starts_with('-') {
        true => of_linker(name, folder).1,
        false => vec![name],
    });
    names
        .filter(|name| name.starts_with("-l") || !name.starts_with('-'))
        .map(|name| Loaded::open_in(name, folder, &folders))
        .collect()
}

fn list(missing: &[MissingSymbol]) -> String {
    let line = |symbol: &MissingSymbol| {
        format!(
            "\n  `{}`: no {}",
            symbol.interface,
            symbol.symbols.join(", ")
        )
    };
    missing.iter().map(line).collect()
}

/// A prepared call.
#[derive(Debug)]
pub(crate) struct Function {
    pub(crate) address: *mut c_void,
    pub(crate) cif: Cif,
    pub(crate) args: Vec<Argument>,
    pub(crate) returns: Returns,
    /// The function that releases what the library has allocated.
    pub(crate) release: Option<*mut c_void>,
    /// Results that the library allocates, by the place of their argument.
    pub(crate) allocated: Vec<(usize, Allocated)>,
    pub(crate) params: usize,
    pub(crate) arrays: usize,
    /// The array of the argument `info`, which reports errors to the caller.
    pub(crate) info: Option<usize>,
    /// Whether it is a body of the interface file.
    pub(crate) is_body: bool,
    /// The functions that the library calls for the callbacks of the interface.
    pub(crate) callbacks: Vec<*mut c_void>,
    /// Index into [`Binding::libraries`].
    pub(crate) library: usize,
}

/// What becomes of the value that the function returns.
#[derive(Debug)]
pub(crate) enum Returns {
    Nothing,
    /// It is the element of the array with this index, of so many bytes.
    Number(usize, usize),
    /// It points to the result.
    Pointer(Allocated),
}

// SAFETY: a prepared call is only read after it was made.
unsafe impl Send for Function {}
// SAFETY: as above.
unsafe impl Sync for Function {}

/// The value of a constant argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fixed {
    Int(i32),
    Long(i64),
    /// The bits of a number.
    Double(u64),
    Character(u8),
    /// NULL, or the length of a text.
    Word(usize),
}

impl Fixed {
    fn new(constant: &Constant) -> Fixed {
        match constant {
            Constant::Integer(value) => {
                i32::try_from(*value).map_or(Fixed::Long(*value), Fixed::Int)
            }
            Constant::Real(value) => Fixed::Double(value.to_bits()),
            Constant::Character(code) => Fixed::Character(*code),
            // `of_constant` has taken the texts.
            Constant::Text(_) | Constant::Null => Fixed::Word(0),
        }
    }

    fn ffi(self) -> FfiType {
        match self {
            Fixed::Int(_) => FfiType::i32(),
            Fixed::Long(_) => FfiType::i64(),
            Fixed::Double(_) => FfiType::f64(),
            Fixed::Character(_) => FfiType::i8(),
            Fixed::Word(_) => FfiType::pointer(),
        }
    }
}

/// The source of one argument of the call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Argument {
    /// A scalar by value.
    Value { param: usize, ty: Type },
    /// The address of a private copy of a scalar.
    Reference { param: usize, ty: Type },
    /// The address of a private copy of a text, ended by NUL.
    Text { param: usize },
    /// The address of a NULL-terminated array of such addresses.
    Texts { param: usize },
    /// The same for an array of texts of fixed length, which travel back if the mode says so.
    FixedTexts { array: usize, mode: Mode },
    /// The address of the fields themselves, with texts padded with blanks.
    BlankTexts { array: usize, mode: Mode },
    /// A stream of the C library on the file with that name, opened as the mode requires.
    Stream { param: usize, mode: Mode },
    /// The address of an array in the call buffer, by its index among the arrays.
    Array { array: usize },
    /// The address of a pointer, in which the function returns the memory of its result.
    Allocated { param: usize },
    /// The same at each call.
    Constant(Fixed),
    /// The address of a private copy of a constant, which the function may write to.
    ConstantReference(Fixed),
    /// The address of a private copy of a text with its NUL.
    ConstantText(&'static [u8]),
    /// WORK memory for one number, which is zero: its value, or its address.
    Scratch { ty: Type, by_reference: bool },
    /// A function of the caller, by its index among the callbacks.
    Function { callback: usize },
    /// Hidden length of a text.
    TextLength { param: usize },
    /// Hidden length of one character.
    OneCharacter,
    /// Hidden length of an array of characters: the size of its last dimension.
    RowLength { array: usize },
}

impl Binding {
    /// Loads the libraries of an interface file and finds all symbols.
    ///
    /// Relative names of libraries start at `folder`. `compiled` has the shared libraries built
    /// from bodies. Interfaces with a `Backend` are left to the engine that runs them.
    pub fn load(
        document: &Document,
        folder: &Path,
        compiled: Option<&Path>,
    ) -> Result<Binding, BindError> {
        let mut libraries = Vec::new();
        let compiled_file = |class| {
            let path = compiled?.join(bodies(class));
            path.exists().then_some(path)
        };
        if let Some(path) = compiled_file(None) {
            libraries.push(Loaded::open(&path.to_string_lossy(), folder)?);
        }
        libraries.extend(load(document, folder)?);
        if libraries.is_empty() {
            libraries.push(Loaded::process());
        }
        let shared = libraries.len();
        let mut own = HashMap::new();
        for (index, class) in document.classes.iter().enumerate() {
            if let Some(path) = compiled_file(Some(index)) {
                own.insert(class.name.as_str(), libraries.len());
                libraries.push(Loaded::open(&path.to_string_lossy(), folder)?);
            }
        }
        libraries.iter().for_each(kernel::select);
        let mut binding = Binding {
            libraries,
            functions: Vec::new(),
            identities: OnceLock::new(),
        };
        let mut missing = Vec::new();
        for (index, interface) in document.functions().enumerate() {
            let own = interface.class.as_deref().and_then(|class| own.get(class));
            let searched: Vec<usize> = own.copied().into_iter().chain(0..shared).collect();
            let function = match runs_here(interface) {
                true => binding.function(document, index, interface, &searched, &mut missing)?,
                false => None,
            };
            binding.functions.push(function);
        }
        if missing.is_empty() {
            return Ok(binding);
        }
        let names: Vec<&str> = binding
            .libraries
            .iter()
            .map(|library| library.name.as_str())
            .collect();
        Err(BindError::Missing {
            libraries: names.join(", "),
            missing,
        })
    }

    /// The address of a symbol in the libraries or in the libraries that they are linked with.
    pub(crate) fn symbol(&self, name: &str) -> Option<*mut c_void> {
        self.libraries
            .iter()
            .find_map(|library| library.symbol(name))
    }

    /// Whether the interface with this index can be invoked in this process.
    pub fn is_bound(&self, function: usize) -> bool {
        self.functions.get(function).is_some_and(Option::is_some)
    }

    /// The libraries that provide the functions.
    pub fn identities(&self) -> &[Identity] {
        self.identities.get_or_init(|| {
            let libraries = self.libraries.iter().enumerate();
            libraries
                .map(|(index, library)| Identity::of(library, self.address_in(index)))
                .collect()
        })
    }

    /// The library that provides the function with this index.
    pub fn identity(&self, function: usize) -> Option<&Identity> {
        let function = self.functions.get(function)?.as_ref()?;
        self.identities().get(function.library)
    }

    /// The address of any bound function of the library with this index.
    fn address_in(&self, library: usize) -> Option<*mut c_void> {
        let mut functions = self.functions.iter().flatten();
        functions
            .find(|function| function.library == library)
            .map(|function| function.address)
    }

    /// The function that releases what the library has allocated.
    fn release(&self, interface: &Interface) -> Result<Option<*mut c_void>, &'static str> {
        let Some(name) = &interface.release else {
            return Ok(None);
        };
        let found = self.symbol(name).map(Some);
        found.ok_or("names a function in `Release` that no library has")
    }

    fn function(
        &self,
        document: &Document,
        index: usize,
        interface: &Interface,
        searched: &[usize],
        missing: &mut Vec<MissingSymbol>,
    ) -> Result<Option<Function>, BindError> {
        let unsupported = |what| BindError::Unsupported {
            interface: interface.qualified_name().into_owned(),
            what,
        };
        callable(interface).map_err(unsupported)?;
        let names = match &interface.body {
            Body::Code(_) => vec![symbol(index)],
            Body::Calls {
                convention: Convention::Fortran,
                function,
                ..
            } => fortran_names(function, document.fortran_format.as_deref()),
            Body::Calls { function, .. } => vec![function.clone()],
        };
        let found = names.iter().find_map(|name| {
            let mut searched = searched.iter();
            searched.find_map(|library| Some((*library, self.libraries[*library].symbol(name)?)))
        });
        let Some((library, address)) = found else {
            let interface = interface.qualified_name().into_owned();
            missing.push(MissingSymbol {
                interface,
                symbols: names,
            });
            return Ok(None);
        };
        let args = arguments(interface, document.string_lengths).map_err(unsupported)?;
        let ordinal = Ordinals::of(interface);
        let (result, returns) = value(interface, &ordinal);
        let allocated = allocated(&args, interface, &ordinal);
        let release = self.release(interface).map_err(unsupported)?;
        let callbacks = (0..interface.callbacks.len())
            .map(|callback| callback::closure(interface, callback, document.string_lengths))
            .collect::<Result<_, _>>()
            .map_err(unsupported)?;
        let cif = Cif::new(args.iter().map(|argument| ffi_argument(*argument)), result);
        Ok(Some(Function {
            address,
            cif,
            args,
            returns,
            release,
            allocated,
            params: interface.params.len(),
            arrays: ordinal.count,
            info: info(interface).and_then(|param| ordinal.array(param)),
            is_body: matches!(interface.body, Body::Code(_)),
            callbacks,
            library,
        }))
    }
}

/// The results that the library allocates, by the place of their argument.
fn allocated(
    args: &[Argument],
    interface: &Interface,
    ordinals: &Ordinals,
) -> Vec<(usize, Allocated)> {
    let results = args.iter().enumerate().filter_map(|(place, argument)| {
        let Argument::Allocated { param } = argument else {
            return None;
        };
        let result = Allocated::of(interface, *param, |param| ordinals.array(param));
        Some((place, result?))
    });
    results.collect()
}

/// The type of the return value, and what becomes of it.
fn value(interface: &Interface, ordinal: &Ordinals) -> (FfiType, Returns) {
    let Body::Calls {
        returns: Some(param),
        ..
    } = &interface.body
    else {
        return (FfiType::void(), Returns::Nothing);
    };
    let ty = interface.params[*param].ty;
    let array = ordinal.array(*param).unwrap_or(0);
    let is_pointer = interface.is_allocated(*param) || ty == Type::FixedString;
    let result = Allocated::of(interface, *param, |param| ordinal.array(param));
    match result.filter(|_| is_pointer) {
        Some(result) => (FfiType::pointer(), Returns::Pointer(result)),
        None => {
            let bytes = ty.size().unwrap_or(0) as usize;
            (ffi_type(ty), Returns::Number(array, bytes))
        }
    }
}

/// The parameter `info`, if it reports errors: an integer. Libraries also return figures under that
/// name.
fn info(interface: &Interface) -> Option<usize> {
    let is_integer = |ty: Type| ty.is_integer() && matches!(ty.size(), Some(4 | 8));
    let reports = |param: &Param| {
        let is_info = param.name.eq_ignore_ascii_case("info");
        is_info && param.mode.is_returned() && is_integer(param.ty)
    };
    interface.params.iter().position(reports)
}

/// Refuses what neither a worker nor the processes of a parallel function can call.
fn callable(interface: &Interface) -> Result<(), &'static str> {
    if interface.is_python() {
        return Err("belongs to a Python module: serve its .py file");
    }
    match interface.class.is_some() && interface.is_parallel() {
        false => Ok(()),
        true => Err(
            "is a method with a Backend of several processes, and an object is one process: \
             leave the Backend out, or define a function",
        ),
    }
}

/// Whether a worker, or the processes of a parallel function, can call the function.
fn runs_here(interface: &Interface) -> bool {
    match interface.backend.as_deref() {
        None => true,
        Some(backend) => backend.eq_ignore_ascii_case("normal") || interface.is_parallel(),
    }
}

/// The symbols that Fortran compilers make of a name: first gfortran's, then g77's, then the name
/// itself.
fn fortran_names(name: &str, format: Option<&str>) -> Vec<String> {
    let lower = name.to_ascii_lowercase();
    if let Some(format) = format {
        let name = format
            .replace("%s", name)
            .replace("%l", &lower)
            .replace("%u", &name.to_ascii_uppercase());
        return vec![name];
    }
    let mut names = vec![format!("{lower}_"), format!("{lower}__"), lower.clone()];
    if lower != name {
        names.push(name.to_string());
    }
    names
}

/// The index of each array parameter among the arrays.
struct Ordinals {
    by_param: Vec<Option<usize>>,
    count: usize,
}

impl Ordinals {
    fn of(interface: &Interface) -> Ordinals {
        let mut count = 0;
        let mut next = |param: &Param| {
            let ordinal = count;
            count += usize::from(!param.is_value());
            (!param.is_value()).then_some(ordinal)
        };
        let by_param = interface.params.iter().map(&mut next).collect();
        Ordinals { by_param, count }
    }

    fn array(&self, param: usize) -> Option<usize> {
        self.by_param[param]
    }
}

pub(crate) fn arguments(
    interface: &Interface,
    lengths: StringLengths,
) -> Result<Vec<Argument>, &'static str> {
    let ordinals = Ordinals::of(interface);
    let all: Vec<Passed>;
    let (fortran, order) = match &interface.body {
        Body::Calls {
            convention, args, ..
        } => (*convention == Convention::Fortran, args),
        Body::Code(_) => {
            let count = interface.params.len() + interface.callbacks.len();
            all = (0..count).map(Passed::Param).collect();
            (false, &all)
        }
    };
    let mut arguments = Vec::with_capacity(order.len() * 2);
    let mut hidden = Vec::new();
    for passed in order {
        let (argument, length) = match passed {
            Passed::Param(param) => of_param(interface, *param, &ordinals, fortran)?,
            Passed::Constant(constant) => of_constant(constant, fortran),
        };
        arguments.push(argument);
        match lengths {
            _ if !fortran => {}
            StringLengths::JustAfter => arguments.extend(length),
            StringLengths::Last => hidden.extend(length),
        }
    }
    arguments.append(&mut hidden);
    Ok(arguments)
}

/// The argument for a constant, and its hidden length in Fortran, which receives addresses.
fn of_constant(constant: &Constant, fortran: bool) -> (Argument, Option<Argument>) {
    let length = |length| Some(Argument::Constant(Fixed::Word(length)));
    match (constant, Fixed::new(constant)) {
        // It is never freed, because the binding is not either.
        (Constant::Text(text), _) => (
            Argument::ConstantText(Box::leak(ended(text))),
            length(text.len()),
        ),
        (Constant::Null, null) => (Argument::Constant(null), None),
        (_, value) if !fortran => (Argument::Constant(value), None),
        (Constant::Character(_), value) => (Argument::ConstantReference(value), length(1)),
        (_, value) => (Argument::ConstantReference(value), None),
    }
}

/// The argument for a parameter or a callback, and its hidden length in Fortran.
fn of_param(
    interface: &Interface,
    param: usize,
    ordinals: &Ordinals,
    fortran: bool,
) -> Result<(Argument, Option<Argument>), &'static str> {
    let Some(Param { ty, mode, .. }) = interface.params.get(param) else {
        let callback = param - interface.params.len();
        return Ok((Argument::Function { callback }, None));
    };
    let (ty, mode) = (*ty, *mode);
    if interface.params[param].is_texts() {
        return match fortran {
            true => Err("an array of Fortran strings needs a length: write string[length] a[n]"),
            false => Ok((Argument::Texts { param }, None)),
        };
    }
    if mode == Mode::Work && interface.params[param].is_scalar() {
        let by_reference = fortran;
        return Ok((Argument::Scratch { ty, by_reference }, None));
    }
    if interface.is_allocated(param) {
        return Ok((Argument::Allocated { param }, None));
    }
    Ok(match (ordinals.array(param), ty) {
        (Some(array), Type::FixedString) if fortran => (
            Argument::BlankTexts { array, mode },
            Some(Argument::RowLength { array }),
        ),
        (Some(array), Type::FixedString) => (Argument::FixedTexts { array, mode }, None),
        (Some(array), Type::Char) => (
            Argument::Array { array },
            Some(Argument::RowLength { array }),
        ),
        (Some(array), _) => (Argument::Array { array }, None),
        (None, Type::FilePointer) if fortran => {
            return Err("Fortran cannot use a filepointer parameter; use filename");
        }
        (None, Type::FilePointer) => (Argument::Stream { param, mode }, None),
        (None, Type::String | Type::Filename) => (
            Argument::Text { param },
            Some(Argument::TextLength { param }),
        ),
        (None, Type::Char) if fortran => (
            Argument::Reference { param, ty },
            Some(Argument::OneCharacter),
        ),
        (None, _) if fortran => (Argument::Reference { param, ty }, None),
        (None, _) => (Argument::Value { param, ty }, None),
    })
}

pub(crate) fn ffi_argument(argument: Argument) -> FfiType {
    match argument {
        Argument::Value { ty, .. } => ffi_type(ty),
        Argument::Constant(value) => value.ffi(),
        Argument::Scratch {
            ty,
            by_reference: false,
        } => ffi_type(ty),
        Argument::TextLength { .. } | Argument::OneCharacter | Argument::RowLength { .. } => {
            FfiType::usize()
        }
        Argument::Reference { .. }
        | Argument::Text { .. }
        | Argument::Texts { .. }
        | Argument::FixedTexts { .. }
        | Argument::BlankTexts { .. }
        | Argument::Stream { .. }
        | Argument::Array { .. }
        | Argument::Allocated { .. }
        | Argument::ConstantReference(_)
        | Argument::ConstantText(_)
        | Argument::Scratch { .. }
        | Argument::Function { .. } => FfiType::pointer(),
    }
}

/// The type for libffi. A complex number is passed and returned as a structure of its two parts,
/// which the ABIs of x86-64 and aarch64 treat alike.
fn ffi_type(ty: Type) -> FfiType {
    match ty {
        Type::Char => FfiType::i8(),
        Type::Short => FfiType::i16(),
        Type::Int => FfiType::i32(),
        Type::Long | Type::LongLong => FfiType::i64(),
        Type::SignedChar => FfiType::i8(),
        Type::UnsignedChar => FfiType::u8(),
        Type::UnsignedShort => FfiType::u16(),
        Type::UnsignedInt => FfiType::u32(),
        Type::UnsignedLong | Type::UnsignedLongLong => FfiType::u64(),
        Type::Float => FfiType::f32(),
        Type::Double => FfiType::f64(),
        Type::SComplex => FfiType::structure([FfiType::f32(), FfiType::f32()]),
        Type::DComplex => FfiType::structure([FfiType::f64(), FfiType::f64()]),
        Type::String | Type::FixedString | Type::Filename | Type::FilePointer => FfiType::pointer(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::process::Command;

    #[test]
    fn an_object_is_one_process() {
        let load = |backend: &str| {
            let text = format!(
                "DefClass C Backend \"{backend}\" {{ DefMethod f(IN int n) Calls \"C\" abs(n); }}"
            );
            let document = farcall_idl::parse_document(&text).document;
            Binding::load(&document, Path::new("."), None)
        };
        assert!(load("normal").is_ok());
        for backend in ["MPI", "blacs"] {
            let error = load(backend).unwrap_err().to_string();
            assert!(error.contains("`C.f`: is a method"), "{error}");
        }
    }

    #[test]
    fn only_an_integer_reports_a_wrong_argument() {
        let of = |result: &str| {
            let text = format!("Define f(IN int n, OUT {result}) Calls \"C\" f(n);");
            info(&farcall_idl::parse_interface(&text).unwrap())
        };
        assert_eq!([of("int *info"), of("long INFO[n]")], [Some(1), Some(1)]);
        for other in ["double info[2]", "string[8] *info", "char *info"] {
            assert_eq!(of(other), None, "{other}");
        }
    }

    #[test]
    fn folders_of_the_linker_are_searched_for_all_libraries_of_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let (body, library) = (folder.path().join("one.c"), folder.path().join("lib"));
        fs::create_dir(&library).unwrap();
        fs::write(&body, "int one(void) { return 1; }").unwrap();
        let mut cc = Command::new("cc");
        let made = library.join("libone.so");
        cc.args(["-shared", "-fPIC", "-o"]).arg(made).arg(body);
        assert!(cc.status().unwrap().success());
        let absolute = format!("Library \"-L{} -lone\";", library.display());
        for libraries in [
            absolute.as_str(),
            "Library \"-Llib -lone\";",
            "Library \"-L lib -lm -lone\";",
            "Library \"-lone\"; Library \"-Llib\";",
            "Library \"libone.so\"; Library \"-Llib\";",
        ] {
            let text = format!("{libraries} Define f(OUT int *n) Calls \"C\" n = one();");
            let document = farcall_idl::parse_document(&text).document;
            let bound = Binding::load(&document, folder.path(), None);
            assert!(bound.is_ok_and(|bound| bound.is_bound(0)), "{libraries}");
        }
    }
}
