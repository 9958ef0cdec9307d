//! Conversions of `ndarray` views into arguments, with their shape and order. A view with gaps in
//! memory becomes an argument of length 0 without an order, which the call refuses. No element is
//! copied.

use super::array::Form;
use super::{Argument, Array, Element};
use ndarray::{ArrayBase, ArrayView, ArrayViewMut, Data, DataMut, Dimension};

/// An array that the call reads. The call refuses a view with gaps in memory.
impl<'a, T: Element, D: Dimension> From<ArrayView<'a, T, D>> for Argument<'a> {
    fn from(view: ArrayView<'a, T, D>) -> Self {
        let form = form(&view);
        // SAFETY: a view without gaps covers this many elements from its first one on, for as long
        // as it lives. A view with gaps has the length 0 here.
        let elements = unsafe { std::slice::from_raw_parts(view.as_ptr(), lengths(&view, &form)) };
        Argument::Array(Array::read(elements).of_form(form))
    }
}

/// An array that the call may write. The call refuses a view with gaps in memory.
impl<'a, T: Element, D: Dimension> From<ArrayViewMut<'a, T, D>> for Argument<'a> {
    fn from(mut view: ArrayViewMut<'a, T, D>) -> Self {
        let form = form(&view);
        let length = lengths(&view, &form);
        // SAFETY: as above, and the view is exclusive.
        let elements = unsafe { std::slice::from_raw_parts_mut(view.as_mut_ptr(), length) };
        Argument::Array(Array::write(elements).of_form(form))
    }
}

impl<'a, S: Data<Elem: Element>, D: Dimension> From<&'a ArrayBase<S, D>> for Argument<'a> {
    fn from(array: &'a ArrayBase<S, D>) -> Self {
        array.view().into()
    }
}

impl<'a, S: DataMut<Elem: Element>, D: Dimension> From<&'a mut ArrayBase<S, D>> for Argument<'a> {
    fn from(array: &'a mut ArrayBase<S, D>) -> Self {
        array.view_mut().into()
    }
}

fn form<S: Data, D: Dimension>(array: &ArrayBase<S, D>) -> Form {
    Form {
        shape: array.shape().iter().map(|size| *size as u64).collect(),
        is_row_major: array.is_standard_layout(),
        is_column_major: array.t().is_standard_layout(),
    }
}

fn lengths<S: Data, D: Dimension>(array: &ArrayBase<S, D>, form: &Form) -> usize {
    match form.is_row_major || form.is_column_major {
        true => array.len(),
        false => 0,
    }
}
