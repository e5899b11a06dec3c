//! Tasks of all sources of a cache under one numbering.

use robocache::DType;

use super::spec::lies_together;
use crate::cache::Cache;

/// The name of the stream, and the column of batches, that tells the task of a frame.
pub(crate) const TASK_INDEX: &str = "task_index";

/// The tasks of a cache: those of the first source as it numbers them, then those of the others
/// that are new. The same text of two sources has the same number.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Tasks {
    pub(crate) texts: Vec<String>,
    /// Of every source, the numbers of its own tasks here.
    numbers: Vec<Vec<i64>>,
    own: Vec<Vec<String>>,
    /// The stream that tells tasks frame by frame.
    pub(crate) stream: Option<usize>,
}

impl Tasks {
    pub(crate) fn new(cache: &Cache) -> Self {
        let own = cache.sources().iter().map(|source| source.tasks.clone()).collect();
        let mut tasks = Self::of(own);
        tasks.stream = cache.streams().iter().position(|stream| {
            let is_one = stream.number_type() == Some(DType::I64) && stream.shape.iter().product::<usize>() == 1;
            stream.name == TASK_INDEX && is_one && lies_together(stream)
        });
        tasks
    }

    fn of(own: Vec<Vec<String>>) -> Self {
        let mut texts: Vec<String> = Vec::new();
        let mut known = std::collections::HashMap::new();
        let mut numbers = Vec::new();
        for (source, list) in own.iter().enumerate() {
            let mut of_source = Vec::new();
            for text in list {
                let next = texts.len();
                // The first source keeps its numbers, even where it has a text twice.
                let number = match known.get(text) {
                    Some(&number) if source > 0 => number,
                    _ => {
                        texts.push(text.clone());
                        known.entry(text.clone()).or_insert(next);
                        next
                    }
                };
                of_source.push(i64::try_from(number).unwrap_or(-1));
            }
            numbers.push(of_source);
        }
        Self { texts, numbers, own, stream: None }
    }

    /// The number here of a task that a source numbers so; -1 for one that it does not list.
    pub(crate) fn number(&self, source: usize, task: i64) -> i64 {
        if self.numbers.len() == 1 {
            return task;
        }
        let of_source = self.numbers.get(source);
        let number = usize::try_from(task).ok().and_then(|task| of_source.and_then(|numbers| numbers.get(task)));
        number.copied().unwrap_or(-1)
    }

    /// The number of a source's task by its text; -1 for one that it does not list.
    pub(crate) fn number_of(&self, source: usize, text: &str) -> i64 {
        let place = self.own.get(source).and_then(|list| list.iter().position(|known| known == text));
        place.and_then(|place| i64::try_from(place).ok()).map_or(-1, |place| self.number(source, place))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tasks_of_all_sources_have_one_numbering() {
        let list = |texts: &[&str]| texts.iter().map(|&text| text.to_owned()).collect::<Vec<_>>();
        let tasks = Tasks::of(vec![list(&["pick", "place"]), list(&["open", "pick"]), list(&["open", "shut"])]);
        assert_eq!(tasks.texts, ["pick", "place", "open", "shut"]);
        let numbers = |source| (0..3).map(|task| tasks.number(source, task)).collect::<Vec<_>>();
        assert_eq!([numbers(0), numbers(1), numbers(2)], [[0, 1, -1], [2, 0, -1], [2, 3, -1]]);
        assert_eq!((tasks.number_of(1, "pick"), tasks.number_of(1, "shut"), tasks.number(1, -1)), (0, -1, -1));
    }

    #[test]
    fn one_source_keeps_its_own_numbers() {
        let tasks = Tasks::of(vec![vec!["a".to_owned(), "a".to_owned()]]);
        assert_eq!((tasks.number(0, 1), tasks.number(0, 7), tasks.texts.len()), (1, 7, 2));
    }
}
