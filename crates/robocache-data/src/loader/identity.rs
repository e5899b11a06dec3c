//! What tells one set of samples from another, so that a state is not continued with other data.

use robocache::Result;

use super::Windows;
use super::order::mix;
use super::spec::Anchor;

/// What samples are made of, in words that are compared.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// The sources of the cache, by their fingerprints.
    pub sources: String,
    /// The chosen episodes, and how many samples each has.
    pub episodes: String,
    /// Which times samples are made for.
    pub anchor: String,
}

impl Windows {
    /// What tells these samples from others.
    pub fn identity(&self) -> Result<Identity> {
        let mut sources = Sum::default();
        for source in self.cache.sources() {
            sources.text(&source.fingerprint);
            sources.text(&source.tag);
        }
        let mut episodes = Sum::default();
        for (episode, &place) in self.selection.places.iter().enumerate() {
            let info = self.cache.episode(place)?;
            episodes.word(info.source as u64);
            episodes.word(info.index);
            episodes.word(self.selection.count(episode));
        }
        let anchor = match &self.anchor {
            Anchor::Frames => "frames".to_owned(),
            Anchor::Stream(name) => format!("the stamps of {name}"),
            Anchor::Rate(rate) => {
                let names: Vec<&str> = self.keys.iter().map(|key| key.name.as_str()).collect();
                format!("{rate} per second of {}", names.join(", "))
            }
        };
        Ok(Identity { sources: sources.hex(), episodes: episodes.hex(), anchor })
    }
}

/// A sum of 64 bits over words and texts, in their order.
#[derive(Debug, Default)]
struct Sum(u64);

impl Sum {
    fn word(&mut self, word: u64) {
        self.0 = mix(self.0 ^ word).wrapping_add(0x9e37_79b9_7f4a_7c15);
    }

    fn text(&mut self, text: &str) {
        self.word(text.len() as u64);
        for byte in text.bytes() {
            self.word(u64::from(byte));
        }
    }

    fn hex(&self) -> String {
        format!("{:016x}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_tell_order_and_edges() {
        let sum = |words: &[&str]| {
            let mut sum = Sum::default();
            words.iter().for_each(|word| sum.text(word));
            sum.hex()
        };
        assert_eq!(sum(&["a", "b"]), sum(&["a", "b"]));
        let others = [sum(&["b", "a"]), sum(&["ab"]), sum(&["a"]), sum(&[""]), sum(&[])];
        assert!(others.iter().all(|other| *other != sum(&["a", "b"])));
        assert_ne!(others[3], others[4]);
    }
}
