//! ROS 2 messages (CDR, little-endian), written field by field.

use robocache::{Error, ErrorKind, Result};

/// The definition of `std_msgs/Header`, behind that of a message that has one.
pub(crate) const HEADER: &str = "================================================================================\n\
                                 MSG: std_msgs/Header\nbuiltin_interfaces/Time stamp\nstring frame_id\n\
                                 ================================================================================\n\
                                 MSG: builtin_interfaces/Time\nint32 sec\nuint32 nanosec\n";

/// A message that is written.
#[derive(Debug, Clone)]
pub(crate) struct Cdr(Vec<u8>);

impl Cdr {
    pub(crate) fn new() -> Self {
        Self(vec![0, 1, 0, 0])
    }

    /// Numbers of a size, without their number.
    pub(crate) fn numbers(&mut self, size: usize, bytes: &[u8]) {
        // Relative to the end of the header of 4 bytes.
        let at = self.0.len() - 4;
        self.0.resize(at.next_multiple_of(size.max(1)) + 4, 0);
        self.0.extend_from_slice(bytes);
    }

    pub(crate) fn byte(&mut self, byte: u8) {
        self.0.push(byte);
    }

    /// A number of things, which memory holds.
    pub(crate) fn size(&mut self, size: usize) {
        self.numbers(4, &u32::try_from(size).unwrap_or(u32::MAX).to_le_bytes());
    }

    /// Bytes behind their number.
    pub(crate) fn bytes(&mut self, bytes: &[u8]) {
        self.size(bytes.len());
        self.0.extend_from_slice(bytes);
    }

    pub(crate) fn text(&mut self, text: &[u8]) {
        self.size(text.len() + 1);
        self.0.extend_from_slice(text);
        self.0.push(0);
    }

    /// Numbers behind their number.
    pub(crate) fn f64s(&mut self, numbers: &[f64]) {
        self.size(numbers.len());
        if !numbers.is_empty() {
            self.numbers(8, &[]);
            self.0.extend(numbers.iter().flat_map(|number| number.to_le_bytes()));
        }
    }

    /// A `std_msgs/Header` of no frame.
    pub(crate) fn header(&mut self, time: i64) -> Result<()> {
        let seconds = i32::try_from(time.div_euclid(1_000_000_000))
            .map_err(|_| Error::new(ErrorKind::Unsupported, format!("stamps of ROS 2 end in 2038, got {time} ns")))?;
        self.numbers(4, &seconds.to_le_bytes());
        self.numbers(4, &u32::try_from(time.rem_euclid(1_000_000_000)).unwrap_or(0).to_le_bytes());
        self.text(b"");
        Ok(())
    }

    pub(crate) fn into_bytes(self) -> Vec<u8> {
        self.0
    }
}
