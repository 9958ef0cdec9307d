//! The checked model: the contents of an interface file with every name resolved. `check` makes it,
//! `layout` computes sizes from it, and `print` writes it as text. An index in an expression always
//! names an existing parameter or element.

mod fit;

pub use fit::{ScalarError, is_exact};

use crate::{Expr, Op, Scalar};
use alloc::borrow::Cow;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

/// Most GPUs of a call, and of a server.
pub const MOST_GPUS: u32 = 64;

/// The contents of an interface file.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Document {
    /// `Module lapack;`: the first part of the qualified name of every interface in the file.
    pub module: Option<String>,
    /// Libraries that contain the functions, in the order written.
    pub libraries: Vec<Library>,
    /// C text of the `Globals { }` blocks, compiled before the bodies.
    pub globals: Vec<Code>,
    /// `Compiler "cc";`
    pub compiler: Option<String>,
    /// `CompileOptions "-O2";`, in the order written.
    pub compile_options: Vec<String>,
    /// `Linker "cc";`
    pub linker: Option<String>,
    /// `FortranFormat "%s_";`: the symbol of a Fortran name. `%s` is the name as written, `%l` in
    /// lower case, `%u` in upper case.
    pub fortran_format: Option<String>,
    /// `FortranStringConvention last;`
    pub string_lengths: StringLengths,
    /// The interfaces, in the order written.
    pub interfaces: Vec<Interface>,
    /// Classes of the remote-object form, in the order written.
    pub classes: Vec<Class>,
}

/// A source of symbols.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Library {
    /// `Library "libopenblas.so.0";`: a shared library to load, or linker options (`-lm`).
    Library(String),
    /// `LibFile "shim.o";`: an object file or archive to link with compiled bodies.
    File(String),
}

impl Library {
    /// The folder of the file, if the name has an absolute path.
    pub fn folder(&self) -> Option<&str> {
        let (Library::Library(name) | Library::File(name)) = self;
        let (folder, _) = name.rsplit_once('/')?;
        folder.starts_with('/').then_some(folder)
    }
}

/// Where a Fortran compiler passes the hidden lengths of character arguments.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StringLengths {
    /// After all other arguments (gfortran, ifort on Unix).
    #[default]
    Last,
    /// Directly after the string they belong to.
    JustAfter,
}

/// A class of remote objects: a state that is kept between calls, and its methods.
#[derive(Clone, Debug, PartialEq)]
pub struct Class {
    /// Name of the class.
    pub name: String,
    /// Description for the reader.
    pub description: Option<String>,
    /// `Required` object files.
    pub required: Vec<String>,
    /// `Backend` that runs the methods.
    pub backend: Option<String>,
    /// `Shrink "yes"`, for every method.
    pub shrink: bool,
    /// `Language` of the bodies.
    pub language: Option<String>,
    /// `DefState { }`: C declarations of the members.
    pub state: Option<Code>,
    /// The methods.
    pub methods: Vec<Interface>,
}

/// One remote function.
#[derive(Clone, Debug, PartialEq)]
pub struct Interface {
    /// Module the function belongs to.
    pub module: Option<String>,
    /// Class, if this is a method. A method is called on an object.
    pub class: Option<String>,
    /// Name of the function, without module and class.
    pub name: String,
    /// Description for the reader.
    pub description: Option<String>,
    /// Parameters, in the order in which a caller passes them.
    pub params: Vec<Param>,
    /// Functions of the caller that the function can call while it runs. They follow the
    /// parameters.
    pub callbacks: Vec<Callback>,
    /// `Required` object files.
    pub required: Vec<String>,
    /// `Backend`, such as `"MPI"`. `None` is an ordinary call in one process.
    pub backend: Option<String>,
    /// `Shrink "yes"`: the function sees zeros outside of the section, never the caller's array.
    pub shrink: bool,
    /// `Language` of the function.
    pub language: Option<String>,
    /// Number of operations that one call needs, as an expression of the scalars.
    pub calc_order: Option<Expr>,
    /// Number of bytes that one call moves, if it does not follow from the dimensions.
    pub comm_order: Option<Expr>,
    /// Processor elements that one call uses; with `fewest_elements`, the largest number of them.
    pub processor_elements: Option<Expr>,
    /// `ProcessorElements 1, n`: the smallest number of processor elements that one call can use.
    pub fewest_elements: Option<Expr>,
    /// `Gpus 1`: the number of GPUs that a call has for itself, at most [`MOST_GPUS`].
    pub gpus: u32,
    /// `Repeatable "yes"`: a call can run again after a failure.
    pub repeatable: bool,
    /// `Release "free"`: the function of the library that releases the memory of its results.
    pub release: Option<String>,
    /// Elements of IN arrays that expressions use. The caller sends their values with the scalars.
    pub element_refs: Vec<ElementRef>,
    /// The code that runs.
    pub body: Body,
}

/// What is passed to a function of a library.
#[derive(Clone, Debug, PartialEq)]
pub enum Passed {
    /// An argument of the caller. A number below the number of parameters is an index into
    /// [`Interface::params`]. Larger numbers continue with [`Interface::callbacks`].
    Param(usize),
    /// The same at each call.
    Constant(Constant),
}

impl Passed {
    /// The argument of the caller, if it is one.
    pub fn param(&self) -> Option<usize> {
        match self {
            Passed::Param(param) => Some(*param),
            Passed::Constant(_) => None,
        }
    }
}

/// A constant argument of `Calls`. C receives it by value, as its literals are, Fortran by
/// reference.
#[derive(Clone, Debug, PartialEq)]
pub enum Constant {
    /// An `int`, or a `long` if it is too large for one.
    Integer(i64),
    /// A `double`.
    Real(f64),
    /// A `char`.
    Character(u8),
    /// A text, ended by NUL.
    Text(String),
    /// A pointer to nothing. In a callback, a pointer that the library passes and nobody reads.
    Null,
}

/// The code that runs when the interface is called.
#[derive(Clone, Debug, PartialEq)]
pub enum Body {
    /// A function of a library.
    Calls {
        /// How arguments are passed.
        convention: Convention,
        /// Name of the function as in the interface file, before Fortran mangling.
        function: String,
        /// Arguments in order.
        args: Vec<Passed>,
        /// The OUT array of one element that receives the return value of the function.
        returns: Option<usize>,
    },
    /// C text, compiled when the interface is registered.
    Code(Code),
}

/// C text of an interface file. Two are equal if their texts are.
#[derive(Clone, Debug, Default, Eq)]
pub struct Code {
    /// The text between the braces.
    pub text: String,
    /// The place of the `{` in the text of the file, in bytes.
    pub start: usize,
}

impl PartialEq for Code {
    fn eq(&self, other: &Code) -> bool {
        self.text == other.text
    }
}

/// A calling convention.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Convention {
    /// Scalars by value, arrays by pointer, row-major.
    C,
    /// As [`Convention::C`]; the symbol has C linkage.
    Cpp,
    /// Everything by reference, hidden string lengths, column-major.
    Fortran,
    /// Scalars as numbers and strings of Python, arrays as NumPy arrays, row-major.
    Python,
}

impl Convention {
    /// The name in an interface file.
    pub fn name(self) -> &'static str {
        match self {
            Convention::C => "C",
            Convention::Cpp => "C++",
            Convention::Fortran => "FORTRAN",
            Convention::Python => "Python",
        }
    }
}

/// A parameter: a scalar if it has no dimensions, an array otherwise.
///
/// Arrays of [`Type::String`] are IN; the caller sends them with the scalars, and the names in
/// arrays of [`Type::Filename`]. Arrays of
/// [`Type::FixedString`] are like any other array. `OUT int *info` and `OUT int info[1]` are the
/// same parameter.
#[derive(Clone, Debug, PartialEq)]
pub struct Param {
    /// Name, unique within the interface.
    pub name: String,
    /// Direction. A scalar is always [`Mode::In`], unless it names a file.
    pub mode: Mode,
    /// `allocate`: the library allocates the memory of the result. Under MPI, every rank allocates
    /// memory for the array.
    pub allocate: bool,
    /// For a result that the library allocates: the OUT argument in which the function returns the
    /// number of elements along the first dimension, whose size is then the largest number.
    pub count: Option<usize>,
    /// `broadcast`: under MPI, every rank gets the array.
    pub broadcast: bool,
    /// Type of the scalar or of an element.
    pub ty: Type,
    /// Dimensions as declared. The last one varies fastest.
    pub dims: Vec<Dim>,
}

impl Param {
    /// Whether the parameter has no dimensions.
    pub fn is_scalar(&self) -> bool {
        self.dims.is_empty()
    }

    /// Whether its value travels with the scalars: it is a scalar or an array of texts.
    pub fn is_value(&self) -> bool {
        self.is_scalar() || self.is_texts()
    }

    /// Whether it is an array of texts, or of names of files.
    pub fn is_texts(&self) -> bool {
        !self.is_scalar() && matches!(self.ty, Type::String | Type::Filename)
    }

    /// Whether it is an array of names of files, whose contents travel as the mode says.
    pub fn is_files(&self) -> bool {
        !self.is_scalar() && self.ty == Type::Filename
    }

    /// Whether it is an array of texts with a declared largest length.
    pub fn is_fixed_texts(&self) -> bool {
        self.ty == Type::FixedString
    }

    /// Whether the parameter names a file. The contents of the file travel in the direction of the
    /// mode.
    pub fn is_file(&self) -> bool {
        self.is_scalar() && matches!(self.ty, Type::Filename | Type::FilePointer)
    }

    /// The argument that is the length of the lines of a matrix of which the first part travels,
    /// such as `lda` in `a[n][lda:n]`.
    pub fn leading(&self) -> Option<usize> {
        let [_, line] = self.dims.as_slice() else {
            return None;
        };
        let range = line.range.as_ref()?;
        match line.size.ops() {
            [Op::Param(lead)] if range.start.is_none() && range.step.is_none() => {
                Some(usize::from(*lead))
            }
            _ => None,
        }
    }

    /// The arguments that an array of the caller determines: each is a whole dimension. Python
    /// takes them from the array if they are left out.
    pub fn determines(&self) -> impl Iterator<Item = usize> {
        let ops = self.dims.iter().map(|dim| dim.size.ops());
        ops.filter_map(|ops| match ops {
            [Op::Param(size)] => Some(usize::from(*size)),
            _ => None,
        })
    }

    /// Whether a caller passes this parameter: all except work space.
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
    /// In both directions.
    InOut,
    /// Work space at the server. It never travels, and the caller does not pass it. A scalar is
    /// zero.
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

    /// The name in an interface file.
    pub fn name(self) -> &'static str {
        self.into()
    }
}

/// Type of a scalar or of an array's elements. Widths are the same on every machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, strum::IntoStaticStr)]
#[strum(serialize_all = "lowercase")]
pub enum Type {
    /// One byte; as a scalar, a character.
    Char,
    /// 16 bit.
    Short,
    /// 32 bit.
    Int,
    /// 64 bit.
    Long,
    /// 64 bit.
    LongLong,
    /// 8 bit; a number, not a character.
    #[strum(to_string = "signed char")]
    SignedChar,
    /// 8 bit, unsigned.
    #[strum(to_string = "unsigned char")]
    UnsignedChar,
    /// 16 bit, unsigned.
    #[strum(to_string = "unsigned short")]
    UnsignedShort,
    /// 32 bit, unsigned.
    #[strum(to_string = "unsigned int")]
    UnsignedInt,
    /// 64 bit, unsigned.
    #[strum(to_string = "unsigned long")]
    UnsignedLong,
    /// 64 bit, unsigned.
    #[strum(to_string = "unsigned longlong")]
    UnsignedLongLong,
    /// IEEE 754 binary32.
    Float,
    /// IEEE 754 binary64.
    Double,
    /// Two binary32: real part, imaginary part.
    SComplex,
    /// Two binary64: real part, imaginary part.
    DComplex,
    /// Text, ended by NUL for C. Also in arrays, which are then IN.
    String,
    /// `string[length]`: text of at most `length` bytes. Only in arrays, whose last dimension is
    /// the length. Each text has a field of `length` bytes; the bytes after the text are NUL.
    #[strum(to_string = "string")]
    FixedString,
    /// Name of a file whose contents travel.
    Filename,
    /// An open C stream on a file whose contents travel. Only as a scalar.
    FilePointer,
}

impl Type {
    /// All types except [`Type::FixedString`], which has no name of its own.
    pub const ALL: [Type; 18] = [
        Type::Char,
        Type::Short,
        Type::Int,
        Type::Long,
        Type::LongLong,
        Type::SignedChar,
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

    /// Bytes of one element. For [`Type::FixedString`] this is 1, one byte of the text. `None` for
    /// other texts and for files, which have no fixed size.
    pub fn size(self) -> Option<u32> {
        match self {
            Type::Char | Type::SignedChar | Type::UnsignedChar | Type::FixedString => Some(1),
            Type::Short | Type::UnsignedShort => Some(2),
            Type::Int | Type::UnsignedInt | Type::Float => Some(4),
            Type::Long | Type::UnsignedLong | Type::LongLong | Type::UnsignedLongLong => Some(8),
            Type::Double | Type::SComplex => Some(8),
            Type::DComplex => Some(16),
            Type::String | Type::Filename | Type::FilePointer => None,
        }
    }

    /// Number of bytes to reverse together if the byte order differs. A complex number has two
    /// parts.
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

    /// Least and greatest value of an integer type that [`crate::Scalar::Int`] can hold. The
    /// unsigned 64-bit types end at 2^63 - 1. `char` takes -128 to 255.
    pub fn integer_range(self) -> Option<(i64, i64)> {
        match self {
            Type::Char => Some((-128, 255)),
            Type::SignedChar => Some((i8::MIN as i64, i8::MAX as i64)),
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

    /// The name in an interface file.
    pub fn name(self) -> &'static str {
        self.into()
    }
}

/// One dimension of an array, `[size]` or `[size : start, end, step]`.
#[derive(Clone, Debug, PartialEq)]
pub struct Dim {
    /// Number of elements along the dimension.
    pub size: Expr,
    /// The part that travels. `None` is the whole dimension.
    pub range: Option<Range>,
}

/// The part of a dimension that travels.
///
/// A single value is the end. `end` is exclusive; an end of 0 means the size, a step of 0 means 1.
/// Only of a result that the library allocates, an end of 0 is 0.
#[derive(Clone, Debug, PartialEq)]
pub struct Range {
    /// First index; 0 if it is left out.
    pub start: Option<Expr>,
    /// One past the last index.
    pub end: Expr,
    /// Distance between indices; 1 if it is left out.
    pub step: Option<Expr>,
}

/// An element of an IN array that an expression uses, as in `val[rowptr[n]]`.
#[derive(Clone, Debug, PartialEq)]
pub struct ElementRef {
    /// The array: one dimension, integer elements, mode IN or INOUT, no range.
    pub param: usize,
    /// Index of the element, as an expression of the scalars.
    pub index: Expr,
}

/// A function of the caller that the function can call while it runs.
#[derive(Clone, Debug, PartialEq)]
pub struct Callback {
    /// Name of the callback.
    pub name: String,
    /// Parameters. Dimensions refer to the other parameters of the callback. The last ones, of mode
    /// [`Mode::Work`], are the scalars of the function that the dimensions use; neither the library
    /// nor the caller passes them.
    pub params: Vec<Param>,
    /// The parameters of the function whose values the last parameters have.
    pub outer: Vec<usize>,
    /// What the library passes: its parameters without the value, and `void *user` as NULL.
    pub args: Vec<Passed>,
    /// The parameter for the value, if the callback returns one: an OUT array of one element.
    pub returns: Option<usize>,
}

/// Memory order of a caller's matrix.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Order {
    /// Shapes are as declared; the last index varies fastest.
    RowMajor,
    /// Shapes are the declared dimensions reversed; the first index varies fastest.
    ColumnMajor,
}

impl Callback {
    /// Number of parameters that the caller's function has.
    pub fn passed(&self) -> usize {
        self.params.len() - self.outer.len()
    }

    /// The callback as an interface, which gives the layout of its arguments. Arrays have the order
    /// of the interface `of` that declares the callback.
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
            gpus: 0,
            repeatable: false,
            release: None,
            element_refs: Vec::new(),
            body: Body::Calls {
                convention,
                function: self.name.clone(),
                args: self.args.clone(),
                returns: self.returns,
            },
        }
    }
}

impl Document {
    /// All callable functions: first the functions, then the methods of all classes, in the order
    /// written.
    pub fn functions(&self) -> impl Iterator<Item = &Interface> {
        let methods = self.classes.iter().flat_map(|class| &class.methods);
        self.interfaces.iter().chain(methods)
    }

    /// The same as [`Document::functions`], but consumes the document.
    pub fn into_functions(self) -> Vec<Interface> {
        let methods = self.classes.into_iter().flat_map(|class| class.methods);
        self.interfaces.into_iter().chain(methods).collect()
    }
}

impl Interface {
    /// Whether several processes compute a call together: `Backend "MPI"` or `"BLACS"`.
    pub fn is_parallel(&self) -> bool {
        let backend = self.backend.as_deref().unwrap_or_default();
        ["MPI", "BLACS"]
            .iter()
            .any(|known| backend.eq_ignore_ascii_case(known))
    }

    /// The expressions of its sizes, its cost and its processor elements.
    pub fn expressions(&self) -> impl Iterator<Item = &Expr> {
        fn of_range(range: &Range) -> [Option<&Expr>; 3] {
            [range.start.as_ref(), Some(&range.end), range.step.as_ref()]
        }
        let dims = self.params.iter().flat_map(|param| &param.dims);
        let sizes = dims.flat_map(|dim| {
            let range = dim.range.as_ref().map(of_range).into_iter().flatten();
            range.flatten().chain([&dim.size])
        });
        let costs = [
            &self.calc_order,
            &self.comm_order,
            &self.processor_elements,
            &self.fewest_elements,
        ];
        sizes.chain(costs.into_iter().flatten())
    }

    /// `module/name`, or only the name if there is no module. A method is `module/class.name`.
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

    /// Whether a Python module has the function.
    pub fn is_python(&self) -> bool {
        matches!(
            &self.body,
            Body::Calls {
                convention: Convention::Python,
                ..
            }
        )
    }

    /// Whether the library allocates the memory of the result with this index.
    pub fn is_allocated(&self, param: usize) -> bool {
        self.allocates(&self.params[param])
    }

    /// The same for a parameter of it.
    pub(crate) fn allocates(&self, param: &Param) -> bool {
        let is_part = param.dims.first().is_some_and(|dim| dim.range.is_some());
        let is_limited = is_part || param.count.is_some() || param.is_fixed_texts();
        param.allocate && param.mode == Mode::Out && is_limited && !self.is_parallel()
    }

    /// Whether files of the caller travel with a call.
    pub fn moves_files(&self) -> bool {
        let mut params = self.params.iter();
        params.any(|param| param.is_file() || param.is_files())
    }

    /// The names of files in the scalars of a call, each with its parameter. A scalar has the
    /// number of its parameter; the elements of arrays have the numbers after those of all
    /// parameters. NULL is no file.
    pub fn file_names<'a>(
        &'a self,
        scalars: &'a mut [Option<Scalar>],
    ) -> impl Iterator<Item = (usize, &'a Param, &'a mut String)> {
        let mut elements = self.params.len()..;
        let params = self.params.iter().enumerate().zip(scalars);
        let names = params.flat_map(move |((index, param), scalar)| {
            let texts = match scalar {
                Some(Scalar::Text(text)) if param.is_file() => core::slice::from_mut(text),
                Some(Scalar::Texts(texts)) if param.is_files() => texts.as_mut_slice(),
                _ => &mut [],
            };
            let is_scalar = param.is_scalar();
            let texts = texts.iter_mut().map(|text| {
                let number = if is_scalar {
                    Some(index)
                } else {
                    elements.next()
                };
                (number.unwrap_or(index), param, text)
            });
            texts.collect::<Vec<_>>()
        });
        names.filter(|(_, _, text)| *text != Scalar::NULL_TEXT)
    }

    /// Index of the parameter with this name.
    pub fn param(&self, name: &str) -> Option<usize> {
        self.params.iter().position(|param| param.name == name)
    }

    /// Order in which a caller sees matrices. `Calls "FORTRAN"` is column-major, so that
    /// `a[n][lda:n]` has shape (lda, n) and `a[i, j]` is A(i, j). Everything else is as declared.
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
