//! What a checked call knows of its sizes.

use crate::ops::align;
use crate::tensor::DType;

/// What `check` proved.
#[derive(Debug)]
pub struct Dims {
    pub(super) forward: align::Dims,
    pub(super) grad_strides: [isize; 3],
    /// How many groups the rows are summed in; none when every row has values of its own.
    pub(super) groups: Option<usize>,
    /// What sums are computed in.
    pub(super) accumulator: DType,
}

impl Dims {
    /// Rows of the batch that are summed up together, and how often.
    pub(super) fn row_groups(&self) -> (usize, usize) {
        let batch = self.forward.batch;
        match self.groups {
            None => (1, batch),
            Some(groups) => (batch.div_ceil(groups.max(1)), groups),
        }
    }
}
