//! The flavour of GR00T: `meta/modality.json` cuts state and action into parts of the robot.

use robocache::Result;

use super::root::Root;
use crate::json::Json;
use crate::model::StreamInfo;

const FILE: &str = "meta/modality.json";
/// Nobody reads the names of more components, and each takes many times its number.
const MOST_NAMES: usize = 1 << 16;

/// Puts the part of the robot before the name of each component: "left_arm.motor_0". Datasets
/// without the file stay as they are.
pub(super) fn name_parts(root: &Root, streams: &mut [StreamInfo]) -> Result<()> {
    let path = root.path.join(FILE);
    if path.symlink_metadata().is_err() {
        return Ok(());
    }
    let json = Json::parse(&path, &root.read(&path)?, &root.limits)?;
    for (group, default) in [("state", "observation.state"), ("action", "action")] {
        for (part, place) in json.get(group).and_then(Json::as_map).unwrap_or_default() {
            let key = place.get("original_key").and_then(Json::as_text).unwrap_or(default);
            let edge =
                |name: &str| place.get(name).and_then(Json::as_count).and_then(|edge| usize::try_from(edge).ok());
            let (Some(start), Some(end)) = (edge("start"), edge("end")) else {
                continue;
            };
            let Some(stream) = streams.iter_mut().find(|stream| stream.name == key) else {
                continue;
            };
            let width = stream.width();
            if width > MOST_NAMES {
                continue;
            }
            let numbers = || (0..width).map(|column| column.to_string()).collect();
            let names: &mut Vec<String> = stream.names.get_or_insert_with(numbers);
            for name in names.get_mut(start..end.min(width)).unwrap_or_default() {
                *name = format!("{part}.{name}");
            }
        }
    }
    Ok(())
}
