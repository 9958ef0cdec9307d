//! Iterates over the contiguous byte ranges of a section. `layout` has checked the sizes, so every
//! range lies within the array, and no product overflows. A full section is a single range.

use super::{Axis, MAX_RANK};

/// A contiguous range of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// First byte.
    pub offset: u64,
    /// Number of bytes, at least 1.
    pub len: u64,
}

/// Iterator over the runs of a section, in index order. A full section is exactly one run.
#[derive(Clone, Debug)]
pub struct Runs {
    /// Bytes of each run.
    len: u64,
    /// Offset of the next run.
    offset: u64,
    /// Number of runs left.
    left: u64,
    /// Outer dimensions in use, fastest first.
    rank: usize,
    /// The outer dimensions, fastest first: distance in bytes, number of indices, current index.
    outer: [Outer; MAX_RANK],
}

#[derive(Clone, Copy, Debug, Default)]
struct Outer {
    stride: u64,
    count: u64,
    index: u64,
}

impl Runs {
    pub(super) fn empty() -> Runs {
        Runs::single(0, 0)
    }

    pub(super) fn single(offset: u64, len: u64) -> Runs {
        let left = u64::from(len > 0);
        Runs {
            len,
            offset,
            left,
            rank: 0,
            outer: [Outer::default(); MAX_RANK],
        }
    }

    /// The runs of a section. The layout has checked the sizes, so no product below exceeds the
    /// declared bytes.
    pub(super) fn section(base: u64, element_bytes: u32, axes: &[Axis]) -> Runs {
        if axes.iter().any(|axis| axis.section.count == 0) {
            return Runs::empty();
        }
        let mut runs = Runs::single(base, u64::from(element_bytes));
        let mut stride = u64::from(element_bytes);
        let mut contiguous = true;
        for axis in axes.iter().rev() {
            let section = axis.section;
            runs.offset += section.start * stride;
            if contiguous && (section.step == 1 || section.count == 1) {
                runs.len *= section.count;
            } else if section.count > 1 {
                let distance = stride * section.step;
                runs.outer[runs.rank] = Outer {
                    stride: distance,
                    count: section.count,
                    index: 0,
                };
                runs.rank += 1;
                runs.left *= section.count;
            }
            contiguous &= axis.is_full();
            stride *= axis.size;
        }
        runs
    }
}

impl Iterator for Runs {
    type Item = Run;

    fn next(&mut self) -> Option<Run> {
        self.left = self.left.checked_sub(1)?;
        let run = Run {
            offset: self.offset,
            len: self.len,
        };
        for outer in &mut self.outer[..self.rank] {
            outer.index += 1;
            if outer.index < outer.count {
                self.offset += outer.stride;
                break;
            }
            self.offset -= outer.stride * (outer.count - 1);
            outer.index = 0;
        }
        Some(run)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        match usize::try_from(self.left) {
            Ok(left) => (left, Some(left)),
            Err(_) => (usize::MAX, None),
        }
    }
}
