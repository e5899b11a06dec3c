//! Records an arm as a ROS 2 recorder does, for demonstrations and measurements.

use std::fs::File;
use std::io::BufWriter;
use std::path::{Path, PathBuf};

use robocache::{Error, Result};

use crate::limits::file_error;
use crate::mcap::{Cdr, Compression, HEADER, McapWriter};

/// Bytes of a message's record beside the message.
const RECORD: u64 = 31;

/// An MCAP file that is recorded.
#[derive(Debug)]
pub struct Recorder {
    writer: McapWriter<BufWriter<File>>,
    path: PathBuf,
    unpacked: u64,
}

/// A topic of a [`Recorder`].
#[derive(Debug, Clone, Copy)]
pub struct Topic(u16);

impl Recorder {
    /// Starts a file, compressed by zstd.
    pub fn create(path: &Path) -> Result<Self> {
        let cannot = |error| file_error(path, "cannot write", error);
        let file = BufWriter::new(File::create(path).map_err(cannot)?);
        let writer = McapWriter::new(file, "ros2", Compression::Zstd).map_err(cannot)?;
        Ok(Self { writer, path: path.to_path_buf(), unpacked: 0 })
    }

    /// A topic of `sensor_msgs/JointState`.
    pub fn joint_states(&mut self, topic: &str) -> Topic {
        let fields =
            "std_msgs/Header header\nstring[] name\nfloat64[] position\nfloat64[] velocity\nfloat64[] effort\n";
        self.topic(topic, "sensor_msgs/msg/JointState", &format!("{fields}{HEADER}"))
    }

    /// A topic of `geometry_msgs/WrenchStamped`.
    pub fn wrenches(&mut self, topic: &str) -> Topic {
        const LINE: &str = "================================================================================\n";
        let text = format!(
            "std_msgs/Header header\ngeometry_msgs/Wrench wrench\n{HEADER}{LINE}MSG: geometry_msgs/Wrench\nVector3 force\n\
             Vector3 torque\n{LINE}MSG: geometry_msgs/Vector3\nfloat64 x\nfloat64 y\nfloat64 z\n"
        );
        self.topic(topic, "geometry_msgs/msg/WrenchStamped", &text)
    }

    fn topic(&mut self, topic: &str, name: &str, text: &str) -> Topic {
        let schema = self.writer.schema(name, "ros2msg", text.as_bytes());
        Topic(self.writer.channel(schema, topic, "cdr"))
    }

    /// Records positions, velocities and efforts of joints; any of them may be empty.
    pub fn joint_state(&mut self, to: Topic, times: [i64; 2], names: &[&str], parts: [&[f64]; 3]) -> Result<()> {
        let mut cdr = Cdr::new();
        cdr.header(times[0])?;
        cdr.size(names.len());
        names.iter().for_each(|name| cdr.text(name.as_bytes()));
        parts.iter().for_each(|part| cdr.f64s(part));
        self.message(to, times[1], cdr)
    }

    /// Records a force and a torque.
    pub fn wrench(&mut self, to: Topic, times: [i64; 2], wrench: [f64; 6]) -> Result<()> {
        let mut cdr = Cdr::new();
        cdr.header(times[0])?;
        cdr.numbers(8, &wrench.map(f64::to_le_bytes).concat());
        self.message(to, times[1], cdr)
    }

    /// Writes a message; the log time is in nanoseconds.
    fn message(&mut self, to: Topic, log: i64, cdr: Cdr) -> Result<()> {
        let log = u64::try_from(log).map_err(|_| Error::invalid("times", format!("expected a log time, got {log}")))?;
        let data = cdr.into_bytes();
        self.unpacked += data.len() as u64 + RECORD;
        self.writer.message(to.0, log, &data).map_err(|error| file_error(&self.path, "cannot write", error))
    }

    /// Ends the file; the bytes of its messages before compression.
    pub fn finish(self) -> Result<u64> {
        let cannot = |error| file_error(&self.path, "cannot write", error);
        let file = self.writer.finish().map_err(cannot)?;
        file.into_inner().map_err(|error| cannot(error.into_error()))?;
        Ok(self.unpacked)
    }
}
