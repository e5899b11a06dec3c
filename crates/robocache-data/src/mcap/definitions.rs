//! The channels of each file, and the topics that they are of.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use robocache::{Error, Result};

use super::layout::{Layout, McapFile, Placed};
use super::piece::load;
use super::records::{Channel, Records, Schema, kind};
use super::topic::Topic;
use crate::Limits;
use crate::check::work::in_order;
use crate::files::is_lasting;
use crate::findings::Progress;
use crate::limits::corrupt;

/// The channels of a file.
#[derive(Debug, Default, Clone)]
pub(super) struct Known {
    pub(super) schemas: HashMap<u16, Schema>,
    pub(super) channels: HashMap<u16, (Channel, Option<usize>)>,
}

/// What is known of the channels of all files.
pub(super) struct Definitions {
    pub(super) files: Vec<Known>,
    pub(super) topics: Vec<Arc<Topic>>,
    by_name: HashMap<(String, u64), Option<usize>>,
    /// Topics that are not read, each with the reason.
    pub(super) left_out: Vec<(String, String)>,
    depth: usize,
}

impl Definitions {
    /// What the files define outside of chunks.
    pub(super) fn of(files: &[McapFile], layouts: &[Layout], limits: &Limits) -> Result<Self> {
        let mut definitions = Self {
            files: vec![Known::default(); files.len()],
            topics: Vec::new(),
            by_name: HashMap::new(),
            left_out: Vec::new(),
            depth: limits.max_depth,
        };
        for (at, (file, layout)) in files.iter().zip(layouts).enumerate() {
            for schema in &layout.schemas {
                definitions.schema(at, &file.path, schema.clone())?;
            }
            for channel in &layout.channels {
                definitions.channel(at, &file.path, channel.clone())?;
            }
        }
        Ok(definitions)
    }

    fn schema(&mut self, file: usize, path: &Path, schema: Schema) -> Result<()> {
        let Some(known) = self.files.get_mut(file) else { return Ok(()) };
        match known.schemas.get(&schema.id) {
            Some(other) if *other != schema => Err(defined_twice(path, "schema", schema.id, &other.name, &schema.name)),
            Some(_) => Ok(()),
            None => {
                known.schemas.insert(schema.id, schema);
                Ok(())
            }
        }
    }

    fn channel(&mut self, file: usize, path: &Path, channel: Channel) -> Result<()> {
        let Some(known) = self.files.get(file) else { return Ok(()) };
        if let Some((other, _)) = known.channels.get(&channel.id) {
            if *other != channel {
                return Err(defined_twice(path, "channel", channel.id, &other.topic, &channel.topic));
            }
            return Ok(());
        }
        let schema = known.schemas.get(&channel.schema);
        if channel.schema != 0 && schema.is_none() {
            let text =
                format!("the channel of {:?} has the schema {}, which is not defined", channel.topic, channel.schema);
            return Err(corrupt(path, text));
        }
        // The same topic in several files, or of several publishers, is one.
        let mut sum = crc32c::crc32c(channel.encoding.as_bytes());
        for bytes in schema.iter().flat_map(|schema| [schema.name.as_bytes(), schema.encoding.as_bytes(), &schema.data])
        {
            sum = crc32c::crc32c_append(sum, bytes);
        }
        let key = (channel.topic.clone(), u64::from(sum));
        let place = match self.by_name.get(&key) {
            Some(place) => *place,
            None => {
                let place = match Topic::new(&channel, schema, self.depth) {
                    Ok(topic) => {
                        self.topics.push(Arc::new(topic));
                        Some(self.topics.len() - 1)
                    }
                    Err(why) => {
                        self.left_out.push((channel.topic.clone(), why));
                        None
                    }
                };
                self.by_name.insert(key, place);
                place
            }
        };
        if let Some(known) = self.files.get_mut(file) {
            known.channels.insert(channel.id, (channel, place));
        }
        Ok(())
    }
}

#[cold]
pub(super) fn defined_twice(path: &Path, what: &str, id: u16, one: &str, other: &str) -> Error {
    corrupt(path, format!("{what} {id} is defined twice, differently: {one:?} and {other:?}"))
}

/// Finds the definitions that are in chunks.
pub(super) fn search_definitions(
    files: &[McapFile],
    pieces: &[Placed],
    definitions: &mut Definitions,
    limits: &Limits,
    progress: &Progress<'_>,
) -> Result<()> {
    let look = |at: usize| -> Result<(Vec<Schema>, Vec<Channel>)> {
        let (mut schemas, mut channels) = (Vec::new(), Vec::new());
        let Some((placed, file)) = pieces.get(at).and_then(|placed| Some((placed, files.get(placed.file)?))) else {
            return Ok((schemas, channels));
        };
        let bytes = match load(file, &placed.piece, limits) {
            Ok(bytes) => bytes,
            // The pass tells.
            Err(error) if is_lasting(&error) => return Ok((schemas, channels)),
            Err(error) => return Err(error),
        };
        for record in Records::new(&bytes) {
            match record.kind {
                kind::SCHEMA => schemas.extend(Schema::parse(record.body)),
                kind::CHANNEL => channels.extend(Channel::parse(record.body)),
                _ => {}
            }
        }
        Ok((schemas, channels))
    };
    let mut outcome = Ok(());
    in_order(pieces.len(), progress, &|at, _| look(at), &mut |at, found| {
        let (Some(placed), true) = (pieces.get(at), outcome.is_ok()) else { return };
        let (file, path) = (placed.file, path_of(files, placed.file));
        outcome = found.and_then(|(schemas, channels)| {
            schemas.into_iter().try_for_each(|schema| definitions.schema(file, &path, schema))?;
            channels.into_iter().try_for_each(|channel| definitions.channel(file, &path, channel))
        });
    })?;
    outcome
}

pub(super) fn path_of(files: &[McapFile], file: usize) -> PathBuf {
    files.get(file).map(|file| file.path.clone()).unwrap_or_default()
}
