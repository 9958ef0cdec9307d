//! The checked model: what a file of interfaces says, with every name resolved.

mod fit;

pub use fit::ScalarError;

use crate::Expr;
use alloc::borrow::Cow;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

/// A file of interfaces.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Document {
    /// `Module lapack;`: the first part of the qualified name of every interface in the file.
    pub module: Option<String>,
    /// Libraries the functions live in, in the order written.
    pub libraries: Vec<Library>,
    /// C text of the `Globals { }` blocks, compiled ahead of the bodies.
    pub globals: Vec<String>,
    /// `Compiler "cc";`
    pub compiler: Option<String>,
    /// `CompileOptions "-O2";`, in the order written.
    pub compile_options: Vec<String>,
    /// `Linker "cc";`
    pub linker: Option<String>,
    /// `FortranFormat "%s_";`: how a Fortran name becomes a symbol; `%s` as written, `%l` in lower
    /// case, `%u` in upper case.
    pub fortran_format: Option<String>,
    /// `FortranStringConvention last;`
    pub string_lengths: StringLengths,
    /// The interfaces, in the order written.
    pub interfaces: Vec<Interface>,
    /// Classes of the remote-object form, in the order written.
    pub classes: Vec<Class>,
}

/// Where symbols come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Library {
    /// `Library "libopenblas.so.0";`: a shared library to load, or linker options (`-lm`).
    Library(String),
    /// `LibFile "shim.o";`: an object file or archive to link with compiled bodies.
    File(String),
}

/// Where a Fortran compiler puts the hidden lengths of character arguments.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StringLengths {
    /// After all other arguments (gfortran, ifort on Unix).
    #[default]
    Last,
    /// Directly after the string they belong to.
    JustAfter,
}

/// A remote object: state held between calls, and its methods.
#[derive(Clone, Debug, PartialEq)]
pub struct Class {
    /// Name of the class.
    pub name: String,
    /// Description for people.
    pub description: Option<String>,
    /// `Required` object files.
    pub required: Vec<String>,
    /// `Backend` that runs the object.
    pub backend: Option<String>,
    /// `Shrink "yes"`, for every method.
    pub shrink: bool,
    /// `Language` of the bodies.
    pub language: Option<String>,
    /// `DefState { }`: C declarations of the members.
    pub state: Option<String>,
    /// The methods.
    pub methods: Vec<Interface>,
}

/// One remote function.
#[derive(Clone, Debug, PartialEq)]
pub struct Interface {
    /// Module the function belongs to.
    pub module: Option<String>,
    /// Class whose method it is: it is called on an object.
    pub class: Option<String>,
    /// Name of the function, without module and class.
    pub name: String,
    /// Description for people.
    pub description: Option<String>,
    /// Parameters, in the order a caller gives them.
    pub params: Vec<Param>,
    /// Functions of the caller that the running function may call; they follow the parameters.
    pub callbacks: Vec<Callback>,
    /// `Required` object files.
    pub required: Vec<String>,
    /// `Backend "MPI"` and the like; none means an ordinary call in one process.
    pub backend: Option<String>,
    /// `Shrink "yes"`: the library sees only the section, packed.
    pub shrink: bool,
    /// `Language` of the function.
    pub language: Option<String>,
    /// Operations one call needs, as an expression of the scalars.
    pub calc_order: Option<Expr>,
    /// Bytes one call moves, where the dimensions do not say it.
    pub comm_order: Option<Expr>,
    /// Processor elements one call is computed on; the most of them where `fewest_elements` is
    /// given.
    pub processor_elements: Option<Expr>,
    /// `ProcessorElements 1, n`: the fewest that will do.
    pub fewest_elements: Option<Expr>,
    /// `Repeatable "yes"`: a call may be run again after a failure.
    pub repeatable: bool,
    /// Elements of IN arrays that expressions use; their values travel beside the scalars.
    pub element_refs: Vec<ElementRef>,
    /// What runs.
    pub body: Body,
}

/// What runs when the interface is called.
#[derive(Clone, Debug, PartialEq)]
pub enum Body {
    /// A function of a library.
    Calls {
        /// How arguments are passed.
        convention: Convention,
        /// Name of the function as the IDL has it, before Fortran mangling.
        function: String,
        /// Arguments in order: indices into [`Interface::params`], and above them, counted on from
        /// the number of parameters, into [`Interface::callbacks`].
        args: Vec<usize>,
        /// The OUT array of one element that takes the value of the function.
        returns: Option<usize>,
    },
    /// C text, compiled when the interface is registered.
    Code(String),
}

/// A calling convention.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Convention {
    /// Scalars by value, arrays by pointer, row-major.
    C,
    /// As C; the symbol has C linkage.
    Cpp,
    /// Everything by reference, hidden string lengths, column-major.
    Fortran,
    /// Scalars as Python's numbers and texts, arrays as NumPy's, row-major.
    Python,
}

impl Convention {
    /// The name as the IDL writes it.
    pub fn name(self) -> &'static str {
        match self {
            Convention::C => "C",
            Convention::Cpp => "C++",
            Convention::Fortran => "FORTRAN",
            Convention::Python => "Python",
        }
    }
}

/// A parameter: a scalar when it has no dimensions, an array otherwise. Arrays of [`Type::String`]
/// are IN, and travel beside the call as scalars do; those of [`Type::FixedString`] are arrays as
/// any others.
///
/// `OUT int *info` and `OUT int info[1]` are the same parameter.
#[derive(Clone, Debug, PartialEq)]
pub struct Param {
    /// Name, unique within the interface.
    pub name: String,
    /// Direction. A scalar is always [`Mode::In`], unless it names a file.
    pub mode: Mode,
    /// `allocate`: under MPI, memory is made on every rank.
    pub allocate: bool,
    /// `broadcast`: under MPI, the array is sent to every rank.
    pub broadcast: bool,
    /// Type of the scalar or of an element.
    pub ty: Type,
    /// Dimensions as declared: the last varies fastest.
    pub dims: Vec<Dim>,
}

impl Param {
    /// Whether the parameter has no dimensions.
    pub fn is_scalar(&self) -> bool {
        self.dims.is_empty()
    }

    /// Whether its value travels beside the call: it is a scalar or an array of texts.
    pub fn is_value(&self) -> bool {
        self.is_scalar() || self.is_texts()
    }

    /// Whether it is an array of texts.
    pub fn is_texts(&self) -> bool {
        !self.is_scalar() && self.ty == Type::String
    }

    /// Whether it is an array of texts whose longest one is declared.
    pub fn is_fixed_texts(&self) -> bool {
        self.ty == Type::FixedString
    }

    /// Whether the parameter names a file, whose contents travel as the mode says.
    pub fn is_file(&self) -> bool {
        self.is_scalar() && matches!(self.ty, Type::Filename | Type::FilePointer)
    }

    /// Whether a caller passes this parameter: all but work space.
    pub fn is_passed(&self) -> bool {
        self.mode != Mode::Work
    }
}

/// Direction of a parameter, seen from the function.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, strum::IntoStaticStr)]
#[strum(serialize_all = "UPPERCASE")]
pub enum Mode {
    /// From the caller to the function.
    In,
    /// From the function to the caller.
    Out,
    /// Both ways.
    InOut,
    /// Work space at the server; never travels and is not passed by the caller.
    Work,
}

impl Mode {
    /// Whether the data travel to the server.
    pub fn is_sent(self) -> bool {
        matches!(self, Mode::In | Mode::InOut)
    }

    /// Whether the data travel back.
    pub fn is_returned(self) -> bool {
        matches!(self, Mode::Out | Mode::InOut)
    }

    /// The name as the IDL writes it.
    pub fn name(self) -> &'static str {
        self.into()
    }
}

/// Type of a scalar or of an array's elements. Widths are the same on every machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Type {
    /// One byte; a character where a scalar is one.
    Char,
    /// 16 bit.
    Short,
    /// 32 bit.
    Int,
    /// 64 bit.
    Long,
    /// 64 bit.
    LongLong,
    /// 8 bit, unsigned.
    UnsignedChar,
    /// 16 bit, unsigned.
    UnsignedShort,
    /// 32 bit, unsigned.
    UnsignedInt,
    /// 64 bit, unsigned.
    UnsignedLong,
    /// 64 bit, unsigned.
    UnsignedLongLong,
    /// IEEE 754 binary32.
    Float,
    /// IEEE 754 binary64.
    Double,
    /// Two binary32: real part, imaginary part.
    SComplex,
    /// Two binary64: real part, imaginary part.
    DComplex,
    /// Text, ended by NUL for C; also in arrays, which are IN.
    String,
    /// `string[length]`: text of at most so many bytes, in arrays, whose last dimension is the
    /// length. Its place has as many bytes, those behind the text NUL.
    FixedString,
    /// Name of a file whose contents travel; only as a scalar.
    Filename,
    /// An open C stream on a file whose contents travel; only as a scalar.
    FilePointer,
}

impl Type {
    /// All types but [`Type::FixedString`], which is not known by its name alone.
    pub const ALL: [Type; 17] = [
        Type::Char,
        Type::Short,
        Type::Int,
        Type::Long,
        Type::LongLong,
        Type::UnsignedChar,
        Type::UnsignedShort,
        Type::UnsignedInt,
        Type::UnsignedLong,
        Type::UnsignedLongLong,
        Type::Float,
        Type::Double,
        Type::SComplex,
        Type::DComplex,
        Type::String,
        Type::Filename,
        Type::FilePointer,
    ];

    /// Bytes of one element, of a text of fixed length those of one byte of it; none for other
    /// texts and files, which have no fixed size.
    pub fn size(self) -> Option<u32> {
        match self {
            Type::Char | Type::UnsignedChar | Type::FixedString => Some(1),
            Type::Short | Type::UnsignedShort => Some(2),
            Type::Int | Type::UnsignedInt | Type::Float => Some(4),
            Type::Long | Type::UnsignedLong | Type::LongLong | Type::UnsignedLongLong => Some(8),
            Type::Double | Type::SComplex => Some(8),
            Type::DComplex => Some(16),
            Type::String | Type::Filename | Type::FilePointer => None,
        }
    }

    /// Bytes to reverse together when the byte order differs: a complex number has two parts.
    pub fn swap_unit(self) -> u32 {
        match self {
            Type::SComplex => 4,
            Type::DComplex => 8,
            other => other.size().unwrap_or(1),
        }
    }

    /// Whether values are whole numbers, `char` included.
    pub fn is_integer(self) -> bool {
        self.integer_range().is_some()
    }

    /// Least and greatest value of an integer type that [`crate::Scalar::Int`] can hold: the
    /// unsigned 64-bit types end at 2^63 - 1. `char` takes -128 to 255.
    pub fn integer_range(self) -> Option<(i64, i64)> {
        match self {
            Type::Char => Some((-128, 255)),
            Type::Short => Some((i16::MIN as i64, i16::MAX as i64)),
            Type::Int => Some((i32::MIN as i64, i32::MAX as i64)),
            Type::Long | Type::LongLong => Some((i64::MIN, i64::MAX)),
            Type::UnsignedChar => Some((0, u8::MAX as i64)),
            Type::UnsignedShort => Some((0, u16::MAX as i64)),
            Type::UnsignedInt => Some((0, u32::MAX as i64)),
            Type::UnsignedLong | Type::UnsignedLongLong => Some((0, i64::MAX)),
            _ => None,
        }
    }

    /// The name as the IDL writes it.
    pub fn name(self) -> &'static str {
        match self {
            Type::Char => "char",
            Type::Short => "short",
            Type::Int => "int",
            Type::Long => "long",
            Type::LongLong => "longlong",
            Type::UnsignedChar => "unsigned char",
            Type::UnsignedShort => "unsigned short",
            Type::UnsignedInt => "unsigned int",
            Type::UnsignedLong => "unsigned long",
            Type::UnsignedLongLong => "unsigned longlong",
            Type::Float => "float",
            Type::Double => "double",
            Type::SComplex => "scomplex",
            Type::DComplex => "dcomplex",
            Type::String | Type::FixedString => "string",
            Type::Filename => "filename",
            Type::FilePointer => "filepointer",
        }
    }
}

/// One dimension of an array, `[size]` or `[size : start, end, step]`.
#[derive(Clone, Debug, PartialEq)]
pub struct Dim {
    /// Elements along the dimension.
    pub size: Expr,
    /// The part that travels; none means all.
    pub range: Option<Range>,
}

/// The part of a dimension that travels.
///
/// A single value is the end. `end` is exclusive; an end of 0 means the size, a step of 0 means 1.
#[derive(Clone, Debug, PartialEq)]
pub struct Range {
    /// First index; 0 where it is left out.
    pub start: Option<Expr>,
    /// One past the last index.
    pub end: Expr,
    /// Distance between indices; 1 where it is left out.
    pub step: Option<Expr>,
}

/// An element of an IN array that an expression uses, as in `val[rowptr[n]]`.
#[derive(Clone, Debug, PartialEq)]
pub struct ElementRef {
    /// The array: one dimension, integer elements, mode IN or INOUT, no range.
    pub param: usize,
    /// Which element, as an expression of the scalars.
    pub index: Expr,
}

/// A function of the caller that the running function may call.
#[derive(Clone, Debug, PartialEq)]
pub struct Callback {
    /// Name.
    pub name: String,
    /// Parameters; dimensions refer to the other parameters of the callback.
    pub params: Vec<Param>,
}

/// How a caller's matrix lies in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Order {
    /// Shapes are as declared, the last index varies fastest.
    RowMajor,
    /// Shapes are the declared dimensions reversed, the first index varies fastest.
    ColumnMajor,
}

impl Callback {
    /// The callback as an interface of its own, which gives the layout of its arguments. Arrays lie
    /// as in the interface that has it.
    pub fn interface(&self, of: &Interface) -> Interface {
        let convention = match of.body {
            Body::Calls { convention, .. } => convention,
            Body::Code(_) => Convention::C,
        };
        Interface {
            module: None,
            class: None,
            name: self.name.clone(),
            description: None,
            params: self.params.clone(),
            callbacks: Vec::new(),
            required: Vec::new(),
            backend: None,
            shrink: false,
            language: None,
            calc_order: None,
            comm_order: None,
            processor_elements: None,
            fewest_elements: None,
            repeatable: false,
            element_refs: Vec::new(),
            body: Body::Calls {
                convention,
                function: self.name.clone(),
                args: (0..self.params.len()).collect(),
                returns: None,
            },
        }
    }
}

impl Document {
    /// Everything that can be called: the functions, and behind them the methods of all classes, in
    /// the order written.
    pub fn functions(&self) -> impl Iterator<Item = &Interface> {
        let methods = self.classes.iter().flat_map(|class| &class.methods);
        self.interfaces.iter().chain(methods)
    }

    /// The same, for who keeps nothing else.
    pub fn into_functions(self) -> Vec<Interface> {
        let methods = self.classes.into_iter().flat_map(|class| class.methods);
        self.interfaces.into_iter().chain(methods).collect()
    }
}

impl Interface {
    /// Whether several processes compute it together: `Backend "MPI"` or `"BLACS"`.
    pub fn is_parallel(&self) -> bool {
        let backend = self.backend.as_deref().unwrap_or_default();
        ["MPI", "BLACS"]
            .iter()
            .any(|known| backend.eq_ignore_ascii_case(known))
    }

    /// `module/name`, or the name alone where there is no module; of a method `module/class.name`.
    pub fn qualified_name(&self) -> Cow<'_, str> {
        match &self.module {
            Some(module) => Cow::Owned(format!("{module}/{}", self.plain_name())),
            None => self.plain_name(),
        }
    }

    /// The qualified name without the module.
    pub fn plain_name(&self) -> Cow<'_, str> {
        match &self.class {
            Some(class) => Cow::Owned(format!("{class}.{}", self.name)),
            None => Cow::Borrowed(&self.name),
        }
    }

    /// Whether files of the caller travel with a call.
    pub fn moves_files(&self) -> bool {
        self.params.iter().any(Param::is_file)
    }

    /// Index of the parameter of that name.
    pub fn param(&self, name: &str) -> Option<usize> {
        self.params.iter().position(|param| param.name == name)
    }

    /// How a caller sees matrices: `Calls "FORTRAN"` is column-major, so that `a[n][lda:n]` has
    /// shape (lda, n) and `a[i, j]` is A(i, j); everything else is as declared.
    pub fn order(&self) -> Order {
        match self.body {
            Body::Calls {
                convention: Convention::Fortran,
                ..
            } => Order::ColumnMajor,
            _ => Order::RowMajor,
        }
    }
}
