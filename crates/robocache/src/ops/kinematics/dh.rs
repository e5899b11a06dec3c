//! Robots from Denavit and Hartenberg's parameters.

use super::pose::{self, IDENTITY, product, screw};
use super::robot::{Joint, Motion, Robot};
use crate::{Result, ensure};

/// What a row of parameters stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Convention {
    /// A turn and a step along z, then along x: the frame is at the far end of the link.
    Standard,
    /// Along x first, then z (Craig): the frame is at the joint.
    Modified,
}

impl Convention {
    /// By its name.
    pub fn by_name(name: &str) -> Result<Self> {
        let names = [("standard", Self::Standard), ("modified", Self::Modified)];
        crate::ops::rows::by_name("convention", &names, name)
    }
}

/// Parameters of a joint.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct DhRow {
    /// The step along x.
    pub a: f64,
    /// The turn about x.
    pub alpha: f64,
    /// The step along z; added to the position of a joint that slides.
    pub d: f64,
    /// The turn about z; added to the position of a joint that turns.
    pub theta: f64,
    /// Whether the joint slides.
    pub slides: bool,
    /// Lowest and highest position.
    pub limits: [f64; 2],
}

impl Robot {
    /// A chain of joints `joint1`, `joint2`, ... between links `link0`, `link1`, ....
    pub fn from_dh(rows: &[DhRow], convention: Convention) -> Result<Self> {
        ensure!(!rows.is_empty(), "rows", "expected at least one row, got none");
        let link = |number: usize| format!("link{number}");
        let (mut links, mut joints) = (vec![link(0)], Vec::new());
        for (index, row) in rows.iter().enumerate() {
            let numbers = [row.a, row.alpha, row.d, row.theta];
            ensure!(numbers.iter().all(|x| x.is_finite()), "rows", "row {index} is not finite: {numbers:?}");
            let [low, high] = row.limits;
            ensure!(low <= high, "rows", "row {index} has limits from {low} to {high}");
            let (about_z, about_x) = (screw(true, row.theta, row.d), screw(false, row.alpha, row.a));
            let moving = |parent: String, child: String, origin: pose::Pose| Joint {
                name: format!("joint{}", index + 1),
                parent,
                child,
                origin,
                motion: if row.slides { Motion::Slide } else { Motion::Turn },
                axis: [0.0, 0.0, 1.0],
                limits: row.limits,
                mimic: None,
            };
            let (above, below) = (link(index), link(index + 1));
            match convention {
                Convention::Modified => joints.push(moving(above, below.clone(), product(&about_x, &about_z))),
                Convention::Standard => {
                    let axis = format!("axis{}", index + 1);
                    joints.push(moving(above, axis.clone(), IDENTITY));
                    joints.push(Joint {
                        name: format!("fixed{}", index + 1),
                        parent: axis.clone(),
                        child: below.clone(),
                        origin: product(&about_z, &about_x),
                        motion: Motion::Fixed,
                        axis: [0.0, 0.0, 1.0],
                        limits: [0.0, 0.0],
                        mimic: None,
                    });
                    links.push(axis);
                }
            }
            links.push(below);
        }
        Self::new("dh", &links, &joints, None, None)
    }
}
