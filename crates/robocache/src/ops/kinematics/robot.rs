//! What a robot is: links in a tree, each moved against its parent by one joint or none.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use super::chain::Chain;
use super::pose::{self, Pose};
use crate::{Error, ErrorKind, Result, ensure};

/// Links that a robot may have.
const MOST_LINKS: usize = 1024;

/// How a joint moves the link below it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Motion {
    /// Not at all.
    Fixed,
    /// It turns about the axis.
    Turn,
    /// It slides along the axis.
    Slide,
    /// In a way that this engine does not know, named as its file names it. An error only where the joint is used.
    Other(&'static str),
}

/// A joint that follows another: `factor * q + offset`.
#[derive(Debug, Clone, PartialEq)]
pub struct Mimic {
    /// The joint that is followed.
    pub joint: String,
    /// What its position is multiplied with.
    pub factor: f64,
    /// What is added.
    pub offset: f64,
}

/// A joint between two links.
#[derive(Debug, Clone, PartialEq)]
pub struct Joint {
    /// Its name.
    pub name: String,
    /// The link above.
    pub parent: String,
    /// The link below.
    pub child: String,
    /// The child's frame in the parent's where the joint is at 0.
    pub origin: Pose,
    /// How it moves.
    pub motion: Motion,
    /// The axis in the child's frame, of any length but 0.
    pub axis: [f64; 3],
    /// Lowest and highest position; infinite where there is none.
    pub limits: [f64; 2],
    /// The joint that it follows.
    pub mimic: Option<Mimic>,
}

/// The joint that moves a link.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Drive {
    pub(super) slides: bool,
    /// Of length 1, in the link's frame.
    pub(super) axis: [f64; 3],
    /// The actuated joint that it is, or follows.
    pub(super) joint: usize,
    pub(super) factor: f64,
    pub(super) offset: f64,
}

/// A link and where it hangs.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Link {
    pub(super) name: String,
    /// Earlier in the list; None for the base.
    pub(super) parent: Option<usize>,
    pub(super) origin: Pose,
    pub(super) drive: Option<Drive>,
}

/// A robot between its base and its tip, or all that hangs on its base.
#[derive(Debug)]
pub struct Robot {
    name: String,
    key: String,
    /// Parents first, depth first in the order of the file; the base is the first.
    pub(super) links: Vec<Link>,
    joint_names: Vec<String>,
    limits: Vec<[f64; 2]>,
    /// The link whose pose is meant where none is named.
    tip: Option<usize>,
    chains: Mutex<HashMap<Vec<usize>, Arc<Chain>>>,
}

/// What a joint was followed to.
struct Followed {
    leader: usize,
    factor: f64,
    offset: f64,
}

/// What is wrong with a robot itself.
fn wrong(message: impl Into<String>) -> Error {
    Error::new(ErrorKind::CorruptData, message)
}

/// The places of names.
fn places<'a>(kind: &str, names: impl Iterator<Item = &'a str>) -> Result<HashMap<&'a str, usize>> {
    let mut places = HashMap::new();
    for (place, name) in names.enumerate() {
        if places.insert(name, place).is_some() {
            return Err(wrong(format!("two {kind}s are called {name:?}")));
        }
    }
    Ok(places)
}

impl Robot {
    /// A robot of these links and joints, of which only what lies between `base` and `tip` is kept. Without a base it
    /// begins at the root, without a tip it goes on to all leaves.
    pub fn new(name: &str, links: &[String], joints: &[Joint], base: Option<&str>, tip: Option<&str>) -> Result<Self> {
        ensure_size(links.len())?;
        let link_places = places("link", links.iter().map(String::as_str))?;
        let joint_places = places("joint", joints.iter().map(|joint| joint.name.as_str()))?;
        let mut above: Vec<Option<usize>> = vec![None; links.len()];
        let mut below: Vec<Vec<usize>> = vec![Vec::new(); links.len()];
        for (place, joint) in joints.iter().enumerate() {
            let find = |which: &str, link: &str| {
                let text = || wrong(format!("joint {:?}: its {which} {link:?} is no link", joint.name));
                link_places.get(link).copied().ok_or_else(text)
            };
            let (parent, child) = (find("parent", &joint.parent)?, find("child", &joint.child)?);
            joint.check()?;
            if let Some(other) = above[child].replace(place) {
                let [first, second] = [&joints[other].name, &joint.name];
                return Err(wrong(format!(
                    "link {:?} is the child of two joints, {first:?} and {second:?}",
                    joint.child
                )));
            }
            below[parent].push(place);
        }
        let roots: Vec<_> = (0..links.len()).filter(|&link| above[link].is_none()).collect();
        let named = |argument, wanted: &str| {
            let error = || Error::no_such(argument, "links", wanted, links.iter().map(String::as_str));
            link_places.get(wanted).copied().ok_or_else(error)
        };
        let base = match base {
            Some(base) => named("base", base)?,
            None => one_root(&roots, links)?,
        };
        let tip = tip.map(|tip| named("tip", tip)).transpose()?;
        let hanging: usize = roots.iter().map(|&root| depth_first(root, &below, joints, &link_places).len()).sum();
        if hanging != links.len() {
            return Err(wrong("some joints form a loop"));
        }
        let order = match tip {
            Some(tip) => path(base, tip, links, joints, &above, &link_places)?,
            None => depth_first(base, &below, joints, &link_places),
        };
        Self::assemble(name, links, joints, &order, tip.is_some(), &above, &link_places, &joint_places)
    }

    #[expect(clippy::too_many_arguments, reason = "called once, with what `new` has found out")]
    fn assemble(
        name: &str,
        links: &[String],
        joints: &[Joint],
        order: &[usize],
        has_tip: bool,
        above: &[Option<usize>],
        link_places: &HashMap<&str, usize>,
        joint_places: &HashMap<&str, usize>,
    ) -> Result<Self> {
        let new_places: HashMap<usize, usize> = order.iter().enumerate().map(|(new, &old)| (old, new)).collect();
        let (mut kept, mut actuated) = (Vec::with_capacity(order.len()), Vec::<usize>::new());
        for (place, &link) in order.iter().enumerate() {
            let joint = if place == 0 { None } else { above[link].map(|joint| &joints[joint]) };
            let Some(joint) = joint else {
                let origin = pose::IDENTITY;
                kept.push(Link { name: links[link].clone(), parent: None, origin, drive: None });
                continue;
            };
            let slides = match joint.motion {
                Motion::Fixed => None,
                Motion::Turn => Some(false),
                Motion::Slide => Some(true),
                Motion::Other(kind) => {
                    let text = format!("joint {:?} is {kind}; choose a base below it, or a tip above", joint.name);
                    return Err(Error::new(ErrorKind::Unsupported, text));
                }
            };
            let drive = slides.map(|slides| -> Result<Drive> {
                let Followed { leader, factor, offset } = follow(joint, joints, joint_places)?;
                let known = actuated.iter().position(|&known| known == leader);
                let number = known.unwrap_or_else(|| {
                    actuated.push(leader);
                    actuated.len() - 1
                });
                Ok(Drive { slides, axis: pose::unit(joint.axis), joint: number, factor, offset })
            });
            let parent = link_places.get(joint.parent.as_str()).and_then(|parent| new_places.get(parent)).copied();
            let drive = drive.transpose()?;
            kept.push(Link { name: links[link].clone(), parent, origin: joint.origin, drive });
        }
        let leaves: Vec<_> =
            (0..kept.len()).filter(|&link| kept.iter().all(|other| other.parent != Some(link))).collect();
        let tip = if has_tip || leaves.len() == 1 { Some(kept.len() - 1) } else { None };
        let joint_names: Vec<_> = actuated.iter().map(|&joint| joints[joint].name.clone()).collect();
        let limits: Vec<_> = actuated.iter().map(|&joint| joints[joint].limits).collect();
        let key = key_of(name, &kept, &joint_names, &limits, tip);
        Ok(Self { name: name.to_owned(), key, links: kept, joint_names, limits, tip, chains: Mutex::default() })
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its name and a hash of all that it is: the same for the same robot in every process.
    pub fn key(&self) -> &str {
        &self.key
    }

    /// Actuated joints, in the order of positions.
    pub fn joint_names(&self) -> &[String] {
        &self.joint_names
    }

    /// Lowest and highest position of each actuated joint.
    pub fn limits(&self) -> &[[f64; 2]] {
        &self.limits
    }

    /// Links, the base first.
    pub fn link_names(&self) -> impl ExactSizeIterator<Item = &str> {
        self.links.iter().map(|link| link.name.as_str())
    }

    /// The link whose pose is meant where none is named.
    pub fn tip(&self) -> Option<&str> {
        self.tip.and_then(|tip| self.links.get(tip)).map(|link| link.name.as_str())
    }

    /// What leads from the base to some links, by name; without names to the tip. Made once and kept.
    pub fn chain<S: AsRef<str>>(&self, links: Option<&[S]>) -> Result<Arc<Chain>> {
        let wanted = match links {
            Some(links) => links.iter().map(|link| self.place(link.as_ref())).collect::<Result<Vec<_>>>()?,
            None => vec![self.tip.ok_or_else(|| self.no_tip())?],
        };
        ensure!(!wanted.is_empty(), "links", "expected at least one link, got none");
        ensure!(wanted.len() <= MOST_LINKS, "links", "expected at most {MOST_LINKS} links, got {}", wanted.len());
        let mut chains = self.chains.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(chain) = chains.get(&wanted) {
            return Ok(Arc::clone(chain));
        }
        let chain = Arc::new(Chain::new(self, &wanted));
        chains.insert(wanted, Arc::clone(&chain));
        Ok(chain)
    }

    fn place(&self, name: &str) -> Result<usize> {
        let found = self.links.iter().position(|link| link.name == name);
        found.ok_or_else(|| Error::no_such("links", "links", name, self.link_names()))
    }

    fn no_tip(&self) -> Error {
        let is_leaf = |place: usize| self.links.iter().all(|other| other.parent != Some(place));
        let leaves: Vec<_> = (0..self.links.len()).filter(|&place| is_leaf(place)).collect();
        let names: Vec<_> = leaves.iter().take(8).map(|&place| self.links[place].name.as_str()).collect();
        let more = if leaves.len() > names.len() { ", ..." } else { "" };
        let text =
            format!("{} has {} leaves ({}{more}): name links, or a tip", self.name, leaves.len(), names.join(", "));
        Error::invalid("links", text)
    }
}

fn ensure_size(links: usize) -> Result<()> {
    if links == 0 {
        return Err(wrong("there are no links"));
    }
    if links > MOST_LINKS {
        let text = format!("{links} links, at most {MOST_LINKS} are read");
        return Err(Error::new(ErrorKind::LimitExceeded, text));
    }
    Ok(())
}

impl Joint {
    fn check(&self) -> Result<()> {
        let wrong = |text: String| Err(wrong(format!("joint {:?}: {text}", self.name)));
        if !self.origin.iter().chain(&self.axis).all(|number| number.is_finite()) {
            return wrong("origin and axis must be finite".to_owned());
        }
        if matches!(self.motion, Motion::Turn | Motion::Slide) {
            let length = pose::length(self.axis);
            if !(length > 1e-9 && length.is_finite()) {
                return wrong(format!("axis {:?} has no direction", self.axis));
            }
            let [low, high] = self.limits;
            if low.is_nan() || high.is_nan() || low > high {
                return wrong(format!("limits from {low} to {high}"));
            }
        }
        match &self.mimic {
            Some(Mimic { factor, offset, .. }) if !factor.is_finite() || !offset.is_finite() => {
                wrong(format!("mimic with multiplier {factor} and offset {offset}"))
            }
            _ => Ok(()),
        }
    }
}

/// The joint that a joint follows, through all that follow others.
fn follow(joint: &Joint, joints: &[Joint], places: &HashMap<&str, usize>) -> Result<Followed> {
    let place_of = |name: &str, follower: &Joint| {
        let text = || wrong(format!("joint {:?}: it mimics {name:?}, which is no joint", follower.name));
        places.get(name).copied().ok_or_else(text)
    };
    let mut found = Followed { leader: place_of(&joint.name, joint)?, factor: 1.0, offset: 0.0 };
    for _ in 0..=joints.len() {
        let current = &joints[found.leader];
        let Some(mimic) = &current.mimic else {
            if !matches!(current.motion, Motion::Turn | Motion::Slide) {
                return Err(wrong(format!(
                    "joint {:?}: it mimics {:?}, which does not move",
                    joint.name, current.name
                )));
            }
            return Ok(found);
        };
        found.offset += found.factor * mimic.offset;
        found.factor *= mimic.factor;
        found.leader = place_of(&mimic.joint, current)?;
    }
    Err(wrong(format!("joint {:?}: joints mimic each other in a circle", joint.name)))
}

fn one_root(roots: &[usize], links: &[String]) -> Result<usize> {
    match roots {
        [root] => Ok(*root),
        [] => Err(wrong("every link has a parent: the joints form a loop")),
        _ => {
            let names: Vec<_> = roots.iter().take(8).map(|&root| links[root].as_str()).collect();
            Err(wrong(format!("{} links have no parent ({}): they are no tree", roots.len(), names.join(", "))))
        }
    }
}

fn path(
    base: usize,
    tip: usize,
    links: &[String],
    joints: &[Joint],
    above: &[Option<usize>],
    places: &HashMap<&str, usize>,
) -> Result<Vec<usize>> {
    let mut path = vec![tip];
    let mut link = tip;
    while link != base {
        let Some(&parent) = above[link].and_then(|joint| places.get(joints[joint].parent.as_str())) else {
            let text = format!("{:?} does not hang on the base {:?}", links[tip], links[base]);
            return Err(Error::invalid("tip", text));
        };
        path.push(parent);
        link = parent;
    }
    path.reverse();
    Ok(path)
}

fn depth_first(base: usize, below: &[Vec<usize>], joints: &[Joint], places: &HashMap<&str, usize>) -> Vec<usize> {
    let (mut order, mut open) = (Vec::new(), vec![base]);
    while let Some(link) = open.pop() {
        order.push(link);
        open.extend(below[link].iter().rev().filter_map(|&joint| places.get(joints[joint].child.as_str())));
    }
    order
}

fn key_of(name: &str, links: &[Link], joints: &[String], limits: &[[f64; 2]], tip: Option<usize>) -> String {
    let mut text = format!("{joints:?}{tip:?}");
    let mut add = |numbers: &[f64]| {
        for number in numbers {
            text.push_str(&format!("{:x},", number.to_bits()));
        }
    };
    limits.iter().for_each(|limits| add(limits));
    for link in links {
        add(&link.origin);
        if let Some(drive) = link.drive {
            add(&drive.axis);
            add(&[drive.factor, drive.offset, f64::from(u8::from(drive.slides)), drive.joint as f64]);
        }
        add(&[link.parent.map_or(-1.0, |parent| parent as f64)]);
    }
    for link in links {
        text.push_str(&format!("{:?}", link.name));
    }
    format!("{name}-{:016x}", crate::cuda::stable_hash(text.as_bytes()))
}
