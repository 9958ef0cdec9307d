//! Arrays of texts: their number of texts, and the fields of texts of fixed length. The number of
//! texts in an array is bounded. A text that is too long for its field is refused and never cut.

use super::{ArrayLayout, Axis, DimEvaluator, DimensionPart, LayoutError, Problem, Vec};
use crate::{Interface, Param, Scalar, ScalarError, Values};

/// Largest number of texts in one array.
pub const MOST_TEXTS: usize = 1 << 14;

impl Interface {
    /// Number of texts of the parameter with this index, which is an array of texts.
    pub fn text_count(&self, param: usize, values: Values<'_>) -> Result<usize, LayoutError> {
        self.count_texts(&self.params[param], values)
    }

    /// The lengths of the parameter with this index, which is an array of texts, as declared.
    pub fn text_shape(&self, param: usize, values: Values<'_>) -> Result<Vec<u64>, LayoutError> {
        self.text_lengths(&self.params[param], values).collect()
    }

    fn text_lengths(
        &self,
        param: &Param,
        values: Values<'_>,
    ) -> impl Iterator<Item = Result<u64, LayoutError>> {
        let dims = param.dims.iter().enumerate();
        dims.map(move |(dimension, dim)| {
            let evaluator = DimEvaluator {
                interface: self,
                param,
                dimension,
                values,
            };
            Ok(evaluator.axis(dim)?.size)
        })
    }

    fn count_texts(&self, param: &Param, values: Values<'_>) -> Result<usize, LayoutError> {
        let mut count = 1usize;
        for size in self.text_lengths(param, values) {
            let size = usize::try_from(size?).ok();
            count = size
                .and_then(|size| count.checked_mul(size))
                .filter(|count| *count <= MOST_TEXTS)
                .ok_or_else(|| too_many(param))?;
        }
        Ok(count)
    }

    /// Checks that an array of texts has as many texts as its dimensions state.
    pub(super) fn check_texts(
        &self,
        index: usize,
        param: &Param,
        values: Values<'_>,
    ) -> Result<(), LayoutError> {
        let Some(Scalar::Texts(texts)) = &values.scalars[index] else {
            return Ok(());
        };
        let expected = self.count_texts(param, values)?;
        match texts.len() == expected {
            true => Ok(()),
            false => Err(LayoutError::Scalar(ScalarError {
                argument: param.name.as_str().into(),
                expected: alloc::format!("{expected} strings").into(),
                given: alloc::format!("{}", texts.len()).into(),
            })),
        }
    }

    /// Checks that there are at most [`MOST_TEXTS`] fields and that each has at least one byte.
    pub(super) fn check_fixed_texts(
        &self,
        param: &Param,
        axes: &[Axis],
    ) -> Result<(), LayoutError> {
        let Some((length, others)) = axes.split_last().filter(|_| param.is_fixed_texts()) else {
            return Ok(());
        };
        let mut sizes = others.iter().map(|axis| axis.size);
        let count = sizes.try_fold(1u64, |count, size| count.checked_mul(size));
        if count.is_none_or(|count| count > MOST_TEXTS as u64) {
            return Err(too_many(param));
        }
        if length.size > 0 {
            return Ok(());
        }
        let dimension = axes.len() - 1;
        Err(LayoutError::Dimension {
            array: param.name.as_str().into(),
            dimension,
            part: DimensionPart::Size,
            expression: self.expression(&param.dims[dimension].size),
            problem: Problem::OutOfRange {
                value: 0,
                least: 1,
                greatest: i64::MAX,
            },
        })
    }
}

impl ArrayLayout {
    /// Bytes of each field of an array of texts of fixed length.
    pub fn text_length(&self) -> usize {
        // The fields of a layout have at least one byte.
        self.axes.last().map_or(1, |axis| axis.size.max(1) as usize)
    }

    /// Number of texts in an array of texts of fixed length.
    pub fn text_count(&self) -> usize {
        self.client_bytes as usize / self.text_length()
    }

    /// Writes texts into the fields of an array of texts of fixed length.
    pub fn write_texts<'t>(
        &self,
        param: &Param,
        texts: impl ExactSizeIterator<Item = &'t [u8]>,
        fields: &mut [u8],
    ) -> Result<(), ScalarError> {
        let (count, length) = (self.text_count(), self.text_length());
        let refuse = |expected: alloc::string::String, given: alloc::string::String| {
            Err(ScalarError {
                argument: param.name.as_str().into(),
                expected: expected.into(),
                given: given.into(),
            })
        };
        if texts.len() != count {
            let given = alloc::format!("{}", texts.len());
            return refuse(alloc::format!("{count} strings"), given);
        }
        for (index, (text, field)) in texts.zip(fields.chunks_exact_mut(length)).enumerate() {
            if text.contains(&0) {
                let given = alloc::format!("string {index} with one");
                return refuse("strings without NUL".into(), given);
            }
            let Some((used, rest)) = field.split_at_mut_checked(text.len()) else {
                let given = alloc::format!("string {index} of {}", text.len());
                return refuse(alloc::format!("strings of at most {length} bytes"), given);
            };
            used.copy_from_slice(text);
            rest.fill(0);
        }
        Ok(())
    }
}

/// The texts in fields of `length` bytes.
pub fn read_texts(fields: &[u8], length: usize) -> impl ExactSizeIterator<Item = &[u8]> {
    fields.chunks_exact(length.max(1)).map(text_of)
}

/// The text in a field: the bytes before the first NUL.
pub fn text_of(field: &[u8]) -> &[u8] {
    let end = field.iter().position(|byte| *byte == 0);
    &field[..end.unwrap_or(field.len())]
}

fn too_many(param: &Param) -> LayoutError {
    LayoutError::TooManyTexts {
        array: param.name.as_str().into(),
    }
}
