//! The layout of one call: which bytes of each array travel, and where each array is in memory. It
//! moves no bytes. All sizes are computed in checked arithmetic, and the memory that this takes
//! does not depend on them.

use crate::{
    Dim, EvalError, Expr, Interface, Mode, Op, Order, Param, Scalar, ScalarError, Type, Values,
};
use alloc::boxed::Box;
use alloc::vec::Vec;

mod elements;
mod runs;
mod texts;

pub use elements::{ElementError, read_integer};
pub use runs::{Run, Runs};
pub use texts::{MOST_TEXTS, read_texts, text_of};

/// Largest number of dimensions of an array.
pub const MAX_RANK: usize = 16;

/// Every array starts at a multiple of this number of bytes in the call buffer.
const ALIGNMENT: u64 = 64;
/// Unused bytes between two arrays in the call buffer, at least. Libraries read past the end of
/// arrays when they load whole vectors, and some write to the first element of an empty one. After
/// the last array, the mapping of the worker has such bytes.
const SLACK: u64 = 64;

/// The positions of the arrays of one call.
#[derive(Clone, Debug, PartialEq)]
pub struct Layout {
    /// The array parameters in the order of the interface, including work space.
    pub arrays: Vec<ArrayLayout>,
    /// Bytes of the whole call buffer.
    pub bytes: u64,
    /// Number of operations from `CalcOrder`. `None` if the interface states no cost or the cost
    /// has no value.
    pub cost: Option<f64>,
    /// Largest number of processor elements that the call can use; at least 1.
    pub processor_elements: Option<i64>,
    /// Smallest number of processor elements that the call can use. The same as
    /// `processor_elements` if the interface leaves no choice.
    pub fewest_elements: Option<i64>,
}

/// One array of one call.
///
/// The client has the array in its declared size. Only the section travels, in the order of the
/// declared indices. The call buffer has the declared size with the section in its place and zeros
/// elsewhere.
#[derive(Clone, Debug, PartialEq)]
pub struct ArrayLayout {
    /// Index of the parameter.
    pub param: usize,
    /// Direction.
    pub mode: Mode,
    /// Type of an element.
    pub element: Type,
    /// Bytes of an element.
    pub element_bytes: u32,
    /// Whether this is a part of an array under `Shrink "yes"`. The rest of the caller's array is
    /// then out of the function's reach, so that the array cannot have a place.
    pub is_shrunk: bool,
    /// Declared dimensions, each with the part that travels. The last one varies fastest.
    pub axes: Vec<Axis>,
    /// Start in the call buffer, a multiple of 64. It has no meaning if the array has a `place`.
    pub offset: u64,
    /// Bytes in the call buffer, or at its place.
    pub bytes: u64,
    /// Bytes of the caller's array; 0 for work space.
    pub client_bytes: u64,
    /// Bytes of the section; 0 for work space. The section travels in each direction of the mode,
    /// unless the array has a place.
    pub wire_bytes: u64,
    /// The place of the array outside the call buffer, in the same form. Such an array does not
    /// travel.
    pub place: Option<SharedRange>,
}

/// A range of memory that both sides share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SharedRange {
    /// Number of the shared memory, known to both sides.
    pub segment: u64,
    /// First byte in it.
    pub offset: u64,
}

/// One dimension of an array.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Axis {
    /// Declared size.
    pub size: u64,
    /// The part that travels.
    pub section: Section,
}

/// A part of a dimension: `start`, `start + step`, ... below `end`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Section {
    /// First index.
    pub start: u64,
    /// One past the last index.
    pub end: u64,
    /// Distance between indices, at least 1.
    pub step: u64,
    /// Number of indices.
    pub count: u64,
}

impl Axis {
    /// Whether the section is the whole dimension.
    pub fn is_full(&self) -> bool {
        self.section.count == self.size
    }
}

/// The reason why a call has no layout.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LayoutError {
    /// A scalar is missing or does not fit.
    #[error("{0}")]
    Scalar(ScalarError),
    /// The list of scalars and the list of parameters differ in length.
    #[error("expected {expected} arguments, given {given}")]
    ArgumentCount {
        /// Parameters of the interface.
        expected: usize,
        /// Entries given.
        given: usize,
    },
    /// The list of elements and [`Interface::element_refs`] differ in length.
    #[error("expected the values of {expected} array elements, given {given}")]
    ElementCount {
        /// References of the interface.
        expected: usize,
        /// Entries given.
        given: usize,
    },
    /// A dimension or its range has no acceptable value.
    #[error(
        "array `{array}`: the {part} `{expression}` of dimension {number} {problem}",
        number = dimension + 1
    )]
    Dimension {
        /// Name of the array.
        array: Box<str>,
        /// Index of the dimension, from 0.
        dimension: usize,
        /// The expression of the dimension that failed.
        part: DimensionPart,
        /// The expression as text.
        expression: Box<str>,
        /// The problem with its value.
        problem: Problem,
    },
    /// An argument is the size of a dimension, and less of it than the part that travels.
    #[error(
        "argument `{argument}` is {value}, expected at least {least}: the {part} `{expression}` of \
         dimension {number} of array `{array}`",
        number = dimension + 1
    )]
    TooSmall {
        /// Name of the argument, such as `lda`.
        argument: Box<str>,
        /// Its value.
        value: i64,
        /// The least value that fits.
        least: i64,
        /// The expression that needs it.
        part: DimensionPart,
        /// The expression as text.
        expression: Box<str>,
        /// Index of the dimension, from 0.
        dimension: usize,
        /// Name of the array.
        array: Box<str>,
    },
    /// The bytes of an array, or of all arrays together, do not fit in 64 bits.
    #[error("array `{array}`: its size in bytes does not fit in 64 bits")]
    TooLarge {
        /// Name of the array at which the sum overflowed.
        array: Box<str>,
    },
    /// An array of texts has more of them than a call takes.
    #[error("array `{array}`: it would have more than {MOST_TEXTS} texts")]
    TooManyTexts {
        /// Name of the array.
        array: Box<str>,
    },
    /// `ProcessorElements` has no acceptable value.
    #[error("ProcessorElements `{expression}` {problem}")]
    ProcessorElements {
        /// The expression as text.
        expression: Box<str>,
        /// The problem with its value.
        problem: Problem,
    },
}

/// One of the expressions of a dimension.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::Display)]
#[strum(serialize_all = "lowercase")]
pub enum DimensionPart {
    /// `[size]`
    Size,
    /// `[ : start, ...]`
    Start,
    /// `[ : end]`
    End,
    /// `[ : start, end, step]`
    Step,
}

/// A problem with the value of an expression.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Problem {
    /// The expression has no value.
    #[error("{0}")]
    Eval(EvalError),
    /// The value is this negative number, or zero if at least 1 is needed.
    #[error("is {0}")]
    Negative(i64),
    /// The value is `value`, outside `least ..= greatest`.
    #[error("is {value}, outside {least} to {greatest}")]
    OutOfRange {
        /// The value.
        value: i64,
        /// Least value accepted.
        least: i64,
        /// Greatest value accepted.
        greatest: i64,
    },
}

impl Interface {
    /// The layout of a call with these scalars.
    ///
    /// `scalars` has one entry for each parameter, `None` for arrays. `elements` has the values of
    /// [`Interface::element_refs`]. All sizes are computed in checked 64-bit arithmetic. The memory
    /// that this function uses does not depend on them.
    pub fn layout(
        &self,
        scalars: &[Option<Scalar>],
        elements: &[i64],
    ) -> Result<Layout, LayoutError> {
        self.check_scalars(scalars)?;
        if elements.len() != self.element_refs.len() {
            return Err(LayoutError::ElementCount {
                expected: self.element_refs.len(),
                given: elements.len(),
            });
        }
        let values = Values { scalars, elements };
        let mut arrays = Vec::with_capacity(self.params.len());
        let mut bytes = 0u64;
        for (index, param) in self.params.iter().enumerate() {
            if param.is_value() {
                self.check_texts(index, param, values)?;
                continue;
            }
            let mut array = self.array(index, param, values)?;
            let follows = !arrays.is_empty();
            (array.offset, bytes) =
                place_after(follows, bytes, array.bytes).ok_or_else(|| too_large(param))?;
            arrays.push(array);
        }
        let (fewest_elements, processor_elements) = self.elements(values)?;
        Ok(Layout {
            arrays,
            bytes,
            cost: self.cost(values),
            processor_elements,
            fewest_elements,
        })
    }

    /// Checks that every scalar is present and fits its type, and that arrays have no scalar.
    pub fn check_scalars(&self, scalars: &[Option<Scalar>]) -> Result<(), LayoutError> {
        if scalars.len() != self.params.len() {
            return Err(LayoutError::ArgumentCount {
                expected: self.params.len(),
                given: scalars.len(),
            });
        }
        for (param, scalar) in self.params.iter().zip(scalars) {
            match scalar {
                Some(value) if param.is_value() => {
                    value.check(param).map_err(LayoutError::Scalar)?;
                }
                None if !param.is_value() || param.mode == Mode::Work => {}
                None => return Err(LayoutError::Scalar(ScalarError::missing(param))),
                Some(value) => {
                    return Err(LayoutError::Scalar(ScalarError::not_array(param, value)));
                }
            }
        }
        Ok(())
    }

    fn array(
        &self,
        index: usize,
        param: &Param,
        values: Values<'_>,
    ) -> Result<ArrayLayout, LayoutError> {
        let element_bytes = param.ty.size().ok_or_else(|| too_large(param))?;
        let mut axes = Vec::with_capacity(param.dims.len());
        let mut declared = Some(u64::from(element_bytes));
        let mut section = declared;
        for (dimension, dim) in param.dims.iter().enumerate() {
            let evaluator = DimEvaluator {
                interface: self,
                param,
                dimension,
                values,
            };
            let axis = evaluator.axis(dim)?;
            declared = declared.and_then(|bytes| bytes.checked_mul(axis.size));
            section = section.and_then(|bytes| bytes.checked_mul(axis.section.count));
            axes.push(axis);
        }
        self.check_fixed_texts(param, &axes)?;
        let declared = declared.ok_or_else(|| too_large(param))?;
        let section = section.ok_or_else(|| too_large(param))?;
        let passed = param.is_passed();
        Ok(ArrayLayout {
            param: index,
            mode: param.mode,
            element: param.ty,
            element_bytes,
            is_shrunk: self.shrink && passed && section != declared,
            axes,
            offset: 0,
            bytes: declared,
            client_bytes: if passed { declared } else { 0 },
            wire_bytes: if passed { section } else { 0 },
            place: None,
        })
    }

    fn cost(&self, values: Values<'_>) -> Option<f64> {
        let cost = self.calc_order.as_ref()?.real(values).ok()?;
        (cost.is_finite() && cost >= 0.0).then_some(cost)
    }

    /// The smallest and the largest number of processor elements.
    fn elements(&self, values: Values<'_>) -> Result<(Option<i64>, Option<i64>), LayoutError> {
        let Some(most) = &self.processor_elements else {
            return Ok((None, None));
        };
        let Some(fewest) = &self.fewest_elements else {
            let count = self.element_count(most, values, 1)?;
            return Ok((Some(count), Some(count)));
        };
        let fewest = self.element_count(fewest, values, 1)?;
        // A small problem gains little from many elements: `1, n / 500`.
        let most = self.element_count(most, values, i64::MIN)?.max(fewest);
        Ok((Some(fewest), Some(most)))
    }

    fn element_count(
        &self,
        expr: &Expr,
        values: Values<'_>,
        least: i64,
    ) -> Result<i64, LayoutError> {
        let problem = match expr.integer(values) {
            Ok(count) if count >= least => return Ok(count),
            Ok(count) => Problem::Negative(count),
            Err(error) => Problem::Eval(error),
        };
        Err(LayoutError::ProcessorElements {
            expression: self.expression(expr),
            problem,
        })
    }

    fn expression(&self, expr: &Expr) -> Box<str> {
        self.expr_text(expr).into_boxed_str()
    }
}

/// The start of an array of `bytes` bytes that is put at the end of a call buffer, and the new end.
/// `None` if the end does not fit in 63 bits.
fn place_after(follows: bool, end: u64, bytes: u64) -> Option<(u64, u64)> {
    let offset = end.checked_add(if follows { SLACK } else { 0 })?;
    let end = offset
        .checked_add(bytes)?
        .checked_next_multiple_of(ALIGNMENT)?;
    (end <= i64::MAX as u64).then_some((offset, end))
}

fn too_large(param: &Param) -> LayoutError {
    LayoutError::TooLarge {
        array: param.name.as_str().into(),
    }
}

/// Evaluates the expressions of one dimension. Its errors name the expression that failed.
struct DimEvaluator<'a> {
    interface: &'a Interface,
    param: &'a Param,
    dimension: usize,
    values: Values<'a>,
}

impl DimEvaluator<'_> {
    fn axis(&self, dim: &Dim) -> Result<Axis, LayoutError> {
        let size = self.value(&dim.size, DimensionPart::Size, i64::MAX)?;
        let full = Section {
            start: 0,
            end: size as u64,
            step: 1,
            count: size as u64,
        };
        let Some(range) = &dim.range else {
            return Ok(Axis {
                size: size as u64,
                section: full,
            });
        };
        self.check_size(&dim.size, size, &range.end)?;
        let end = match self.value(&range.end, DimensionPart::End, size)? {
            // Of an allocated result, nothing exists beyond the end.
            0 if !self.interface.allocates(self.param) => size,
            end => end,
        };
        let start = match &range.start {
            Some(start) => self.value(start, DimensionPart::Start, end)?,
            None => 0,
        };
        let step = match &range.step {
            Some(step) => self.value(step, DimensionPart::Step, i64::MAX)?.max(1),
            None => 1,
        };
        let (start, end, step) = (start as u64, end as u64, step as u64);
        let count = (end - start).div_ceil(step);
        Ok(Axis {
            size: size as u64,
            section: Section {
                start,
                end,
                step,
                count,
            },
        })
    }

    /// Names the argument that is the size of the dimension, if the end lies beyond it.
    fn check_size(&self, size: &Expr, value: i64, end: &Expr) -> Result<(), LayoutError> {
        let ([Op::Param(argument)], Ok(least)) = (size.ops(), end.integer(self.values)) else {
            return Ok(());
        };
        if least <= value {
            return Ok(());
        }
        Err(LayoutError::TooSmall {
            argument: self.interface.params[usize::from(*argument)]
                .name
                .as_str()
                .into(),
            value,
            least,
            part: DimensionPart::End,
            expression: self.interface.expression(end),
            dimension: self.dimension,
            array: self.param.name.as_str().into(),
        })
    }

    fn value(&self, expr: &Expr, part: DimensionPart, greatest: i64) -> Result<i64, LayoutError> {
        let problem = match expr.integer(self.values) {
            Ok(value) if (0..=greatest).contains(&value) => return Ok(value),
            Ok(value) if greatest == i64::MAX => Problem::Negative(value),
            Ok(value) => Problem::OutOfRange {
                value,
                least: 0,
                greatest,
            },
            Err(error) => Problem::Eval(error),
        };
        Err(LayoutError::Dimension {
            array: self.param.name.as_str().into(),
            dimension: self.dimension,
            part,
            expression: self.interface.expression(expr),
            problem,
        })
    }
}

impl Layout {
    /// The layout of the array with this parameter index.
    pub fn array(&self, param: usize) -> Option<&ArrayLayout> {
        self.arrays.iter().find(|array| array.param == param)
    }

    /// Gives arrays a place outside the call buffer, in the order of [`Layout::arrays`], and moves
    /// the other arrays together. If the list is shorter, the remaining arrays stay in the call
    /// buffer.
    pub fn place(&mut self, places: impl IntoIterator<Item = Option<SharedRange>>) {
        for (array, place) in self.arrays.iter_mut().zip(places) {
            array.place = place;
        }
        self.bytes = 0;
        let here = self.arrays.iter_mut().filter(|array| array.place.is_none());
        for (index, array) in here.enumerate() {
            // It fits: the sum is at most that of all arrays.
            if let Some((offset, end)) = place_after(index > 0, self.bytes, array.bytes) {
                (array.offset, self.bytes) = (offset, end);
            }
        }
    }

    /// The places of the arrays, in the form that [`Layout::place`] takes. Empty if no array has
    /// one.
    pub fn places(&self) -> Vec<Option<SharedRange>> {
        let places = self.arrays.iter().map(|array| array.place);
        match self.arrays.iter().any(|array| array.place.is_some()) {
            true => places.collect(),
            false => Vec::new(),
        }
    }

    /// Bytes of array sections that travel to the server.
    pub fn sent_bytes(&self) -> u64 {
        let sent = self.travelling().filter(|array| array.mode.is_sent());
        sent.fold(0, |sum, array| sum.saturating_add(array.wire_bytes))
    }

    /// Bytes of array sections that travel back to the caller.
    pub fn returned_bytes(&self) -> u64 {
        let returned = self.travelling().filter(|array| array.mode.is_returned());
        returned.fold(0, |sum, array| sum.saturating_add(array.wire_bytes))
    }

    /// The arrays in the call buffer. Their sections travel in the directions of their modes.
    pub fn travelling(&self) -> impl Iterator<Item = &ArrayLayout> {
        self.arrays.iter().filter(|array| array.place.is_none())
    }
}

impl ArrayLayout {
    /// Whether the section is the whole array and therefore one run of bytes.
    pub fn is_full(&self) -> bool {
        self.axes.iter().all(Axis::is_full)
    }

    /// Shape of the caller's array: slowest index first for [`Order::RowMajor`], fastest first for
    /// [`Order::ColumnMajor`]. `a[n][lda:n]` under `Calls "FORTRAN"` is (lda, n).
    pub fn shape(&self, order: Order) -> Vec<u64> {
        let mut shape: Vec<u64> = self.axes.iter().map(|axis| axis.size).collect();
        if order == Order::ColumnMajor {
            shape.reverse();
        }
        shape
    }

    /// The byte ranges of the caller's array that travel, in the order in which they travel.
    pub fn client_runs(&self) -> Runs {
        match self.mode {
            Mode::Work => Runs::empty(),
            _ => Runs::section(0, self.element_bytes, &self.axes),
        }
    }

    /// The byte ranges of the call buffer that travel, in the order in which they travel. Their
    /// total length is that of [`ArrayLayout::client_runs`]. Offsets count from the start of the
    /// call buffer. If the array has a place in shared memory, they count from the start of that
    /// memory.
    pub fn buffer_runs(&self) -> Runs {
        let start = self.place.map_or(self.offset, |place| place.offset);
        match self.mode {
            Mode::Work => Runs::empty(),
            _ => Runs::section(start, self.element_bytes, &self.axes),
        }
    }
}

#[cfg(test)]
mod tests;
