//! The CUDA stream of a call.

/// As the driver knows it.
pub(crate) struct Stream {
    pub(crate) handle: usize,
    /// Whether it is another than the framework's own, which then must not reuse memory early.
    pub(crate) foreign: bool,
}
