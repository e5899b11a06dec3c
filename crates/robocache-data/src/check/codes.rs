//! Every kind of finding: the one list that the command's help and the documentation show.

use serde::Serialize;

use crate::findings::Level;

/// A kind of finding.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub struct Code {
    /// Its stable name.
    pub name: &'static str,
    /// The worst level that it comes with; smaller deviations may come with a lower one.
    pub level: Level,
    /// What it means.
    pub meaning: &'static str,
}

/// Makes a constant of each code, which findings are made with, and the list of all.
macro_rules! codes {
    ($($constant:ident = $name:literal, $level:ident, $meaning:literal;)+) => {
        $(pub(crate) static $constant: Code = Code { name: $name, level: Level::$level, meaning: $meaning };)+

        /// Every kind of finding that a check can give.
        pub static CODES: &[&Code] = &[$(&$constant),+];
    };
}

codes! {
    // What the metadata says of itself.
    COUNTS_DIFFER = "counts_differ", Error, "total_episodes, total_frames, total_tasks or splits are not what the metadata lists";
    EPISODE_GAP = "episode_gap", Warning, "the numbers of the episodes leave some out; those that are there can be used";
    EPISODE_DUPLICATE = "episode_duplicate", Error, "an episode is listed twice";
    EPISODE_EMPTY = "episode_empty", Warning, "an episode has no samples";
    LENGTH_DIFFERS = "length_differs", Error, "the length of an episode is not its number of rows";
    RANGES_DO_NOT_TILE = "ranges_do_not_tile", Error, "rows belong to two episodes, or to none";
    TASKS_UNREADABLE = "tasks_unreadable", Warning, "the list of tasks cannot be read; only the words are lost";
    MODALITY_UNREADABLE = "modality_unreadable", Warning, "meta/modality.json cannot be read; only the names of components are lost";
    TASK_DUPLICATE = "task_duplicate", Warning, "two tasks have one number; the last counts";
    TASK_UNKNOWN = "task_unknown", Warning, "an episode has a task that is not in the list";

    // Files.
    MISSING_FILE = "missing_file", Error, "a file of an episode is not there";
    MISSING_FILES = "missing_files", Warning, "a declared camera has no files at all; everything else can be used";
    UNREADABLE_FILE = "unreadable_file", Error, "a file, or a column of it, cannot be read";
    UNREADABLE_NOW = "unreadable_now", Error, "the system could not read a file this time: no permission, too many open files, a disk at fault";

    // Recordings.
    RECORDING_CUT = "recording_cut", Warning, "a recording ends before its end; the messages before that are read";
    CRC_WRONG = "crc_wrong", Error, "the checksum of a chunk is not that of its bytes (error), or that of the data section (warning)";
    CRC_MISSING = "crc_missing", Note, "chunks have no checksum: damage in them is not seen";
    INDEX_WRONG = "index_wrong", Warning, "the index or the statistics of a recording are not what is in it; they are not used";
    TRAILING_BYTES = "trailing_bytes", Warning, "bytes follow the end of a recording; they are not read";
    CHANNEL_UNKNOWN = "channel_unknown", Warning, "messages are of a channel that is not defined; they are not read";
    MESSAGE_UNREADABLE = "message_unreadable", Error, "a message cannot be decoded, or is not like the others of its topic";
    NAMES_REORDERED = "names_reordered", Note, "the names of joints change their order between messages; the values are put in one order";
    CLOCKS_DISAGREE = "clocks_disagree", Warning, "the stamps in headers are more than 1 s off the log times";

    // Columns.
    STREAM_LEFT_OUT = "stream_left_out", Warning, "a declared stream is of a type that is not read; everything else can be used";
    TEXT_MISSING = "text_missing", Warning, "a text is missing (null) and reads as an empty one, or the words of a task are";
    COLUMN_MISSING = "column_missing", Error, "a declared column is not in a file";
    COLUMN_UNDECLARED = "column_undeclared", Note, "a file has a column that is not declared; it is not read";
    DTYPE_DIFFERS = "dtype_differs", Error, "numbers of another type than declared (warning: the file's type is used) or than in other files (error)";
    SHAPE_DIFFERS = "shape_differs", Error, "samples of another shape than declared (warning for video: the file's size is used)";
    WRONG_EPISODE = "wrong_episode", Error, "rows of an episode say that they belong to another";
    INDEX_DIFFERS = "index_differs", Warning, "the column `index` does not count the rows of the dataset";

    // Stamps.
    STAMPS_DECREASE = "stamps_decrease", Error, "a stamp is before the one before it (warning where a column is not used: LeRobot's `timestamp` beside `frame_index`)";
    STAMPS_RANGE = "stamps_range", Error, "the number of a frame is at a time further from 0 than 146 years (2^62 ns)";
    STAMPS_DUPLICATE = "stamps_duplicate", Warning, "two samples have one stamp";
    STAMPS_GAP = "stamps_gap", Warning, "frames are missing: a number was left out, or more than 3 periods passed between two stamps";
    STAMPS_DRIFT = "stamps_drift", Warning, "stamps leave the rate: by more than a quarter of a period (warning), by more than 0.1 ms (note; LeRobot's own tolerance)";
    STAMPS_START = "stamps_start", Note, "the first stamp of an episode is not 0";

    STAMPS_JUMP = "stamps_jump", Warning, "the stamps in headers jump against the log times by more than 0.5 s";
    STAMPS_UNSET = "stamps_unset", Warning, "messages have headers without a stamp; the log time is taken";
    STAMPS_UNSORTED = "stamps_unsorted", Note, "messages were not recorded in the order of their stamps; they are sorted";

    // Values.
    NOT_FINITE = "not_finite", Error, "values are NaN, infinite or missing (warning in a column that is not used: LeRobot's `timestamp` beside `frame_index`)";
    CONSTANT = "constant", Warning, "a component never changes in the whole dataset";
    SATURATED = "saturated", Note, "a component is exactly at its minimum or maximum in more than 5 % of the samples";
    QUATERNION_NORM = "quaternion_norm", Error, "a quaternion is 0 (error), or its length is off 1 by more than 0.001, 0.01 for 16-bit numbers (warning)";
    QUATERNION_FLIP = "quaternion_flip", Warning, "a quaternion changes its sign between neighbours: the same rotation, but not the same numbers";

    // Statistics.
    STATS_DIFFER = "stats_differ", Warning, "the dataset's statistics are not those of its data";
    STATS_MISSING = "stats_missing", Note, "the dataset has no statistics, or none for a stream";

    // Video.
    VIDEO_SHORT = "video_short", Error, "a video has fewer frames than its episodes have samples, or fewer bytes than its index says";
    VIDEO_LONG = "video_long", Note, "a video has more frames than its episodes have samples";
    VIDEO_NO_FRAME = "video_no_frame", Error, "a sample has no frame within half a period";
    VIDEO_RATE = "video_rate", Warning, "the frames of a video are not evenly spaced, or not at the dataset's rate";
    VIDEO_OFFSET = "video_offset", Error, "where an episode starts or ends in its video is not where the lengths of the episodes before it say: off by half a frame (error), a tenth (warning), less (note)";
    VIDEO_SHIFTED = "video_shifted", Warning, "stamps that start at one period or later over a video that starts at 0; frames are found from the first stamp on";
    CODEC_DIFFERS = "codec_differs", Warning, "the bitstream of a video is not what the dataset says; the bitstream counts";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_in_snake_case() {
        let mut names: Vec<_> = CODES.iter().map(|code| code.name).collect();
        assert!(names.iter().all(|name| name.chars().all(|c| c.is_ascii_lowercase() || c == '_')));
        names.sort_unstable();
        let count = names.len();
        names.dedup();
        assert_eq!(names.len(), count);
    }
}
