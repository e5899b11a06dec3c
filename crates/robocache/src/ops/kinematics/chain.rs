//! What leads from the base to some links: a list of steps, one for each joint that moves.
//!
//! The frame of a step has the joint's axis as its z, so that a joint turns columns 0 and 1 of a rotation or moves along
//! column 2. All that is fixed between two joints is one pose.

use super::pose::{self, Pose};
use super::robot::Robot;

/// Limits beyond this are none.
pub(super) const NO_LIMIT: f64 = 1e30;

/// A joint that moves, and all that is fixed between it and the one before.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Step {
    /// The step that it stands on; None for the base.
    pub(super) parent: Option<usize>,
    pub(super) slides: bool,
    /// The position that moves it, `factor * q + offset`.
    pub(super) joint: usize,
    pub(super) factor: f64,
    pub(super) offset: f64,
    pub(super) fixed: Pose,
}

/// A link that was asked for.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct End {
    /// The last step on the way to it.
    pub(super) step: Option<usize>,
    pub(super) fixed: Pose,
    /// The steps that move it, from the base on.
    pub(super) path: Vec<usize>,
}

/// What leads from a robot's base to some of its links.
#[derive(Debug, PartialEq)]
pub struct Chain {
    pub(super) joints: usize,
    pub(super) names: Vec<String>,
    pub(super) limits: Vec<[f64; 2]>,
    pub(super) steps: Vec<Step>,
    pub(super) ends: Vec<End>,
    /// The same as a header for kernels, and its hash.
    pub(super) header: String,
    pub(super) id: u64,
}

impl Chain {
    pub(super) fn new(robot: &Robot, wanted: &[usize]) -> Self {
        let mut needed = vec![false; robot.links.len()];
        for &link in wanted {
            let mut next = Some(link);
            while let Some(link) = next.filter(|&link| !needed[link]) {
                needed[link] = true;
                next = robot.links[link].parent;
            }
        }
        // For each link the step that it hangs on, and its pose there.
        let mut places: Vec<(Option<usize>, Pose)> = Vec::with_capacity(robot.links.len());
        let mut steps: Vec<Step> = Vec::new();
        for (link, needed) in robot.links.iter().zip(&needed) {
            let (step, above) = link.parent.map_or((None, pose::IDENTITY), |parent| places[parent]);
            let here = pose::product(&above, &link.origin);
            let Some(drive) = link.drive.filter(|_| *needed) else {
                places.push((step, here));
                continue;
            };
            let turned = pose::turned_to(drive.axis);
            steps.push(Step {
                parent: step,
                slides: drive.slides,
                joint: drive.joint,
                factor: drive.factor,
                offset: drive.offset,
                fixed: pose::snapped(&pose::product(&here, &turned)),
            });
            places.push((Some(steps.len() - 1), pose::turned_back(&turned)));
        }
        let ends: Vec<_> = wanted
            .iter()
            .map(|&link| {
                let (step, fixed) = places[link];
                let mut path = Vec::new();
                let mut next = step;
                while let Some(step) = next {
                    path.push(step);
                    next = steps[step].parent;
                }
                path.reverse();
                End { step, fixed: pose::snapped(&fixed), path }
            })
            .collect();
        let mut chain = Self {
            joints: robot.joint_names().len(),
            names: robot.joint_names().to_vec(),
            limits: robot.limits().to_vec(),
            steps,
            ends,
            header: String::new(),
            id: 0,
        };
        chain.header = chain.as_header();
        chain.id = crate::cuda::stable_hash(chain.header.as_bytes());
        chain
    }

    /// How many links it leads to.
    pub fn links(&self) -> usize {
        self.ends.len()
    }

    /// How many positions it takes.
    pub fn joints(&self) -> usize {
        self.joints
    }

    /// Constants of a kernel; `robot.cuh` is an example of them. Lists have at least one row, since C++ has no empty ones.
    fn as_header(&self) -> String {
        let Self { joints, steps, ends, .. } = self;
        let place = |step: Option<usize>| step.map_or(-1, |step| step as i64);
        let rows = |rows: Vec<String>| if rows.is_empty() { "    {},\n".to_owned() } else { rows.concat() };
        let row = |numbers: &[f64]| format!("    {{{}}},\n", listed(numbers));
        let step_row = |step: &Step| {
            let Step { parent, slides, joint, factor, offset, fixed } = step;
            let (parent, slides) = (place(*parent), i32::from(*slides));
            format!("    {{{parent}, {slides}, {joint}, {factor:?}, {offset:?}, {{{}}}}},\n", listed(fixed))
        };
        let end_row = |end: &End| format!("    {{{}, {{{}}}}},\n", place(end.step), listed(&end.fixed));
        let path_row = |end: &End| {
            let on = |step| if end.path.contains(&step) { "1" } else { "0" };
            format!("    {{{}}},\n", (0..steps.len().max(1)).map(on).collect::<Vec<_>>().join(", "))
        };
        let limits = self.limits.iter().map(|limits| row(&limits.map(|limit| limit.clamp(-NO_LIMIT, NO_LIMIT))));
        let mut text = String::from("#pragma once\nnamespace rc {\n");
        text += &format!("const int JOINTS = {joints}, STEPS = {}, ENDS = {};\n", steps.len(), ends.len());
        text += "struct Step { int parent, slides, joint; double factor, offset, fixed[12]; };\n";
        text += "struct End { int step; double fixed[12]; };\n";
        let lists = [
            ("Step ROBOT_STEPS[]", rows(steps.iter().map(step_row).collect())),
            ("End ROBOT_ENDS[]", rows(ends.iter().map(end_row).collect())),
            ("bool ON_PATH[][STEPS > 0 ? STEPS : 1]", rows(ends.iter().map(path_row).collect())),
            ("double LIMITS[][2]", rows(limits.collect())),
            ("double SEEDS[][3]", rows(self.seeds().iter().map(|seed| row(seed)).collect())),
        ];
        for (name, rows) in lists {
            text += &format!("constexpr {name} = {{\n{rows}}};\n");
        }
        text + "}  // namespace rc\n"
    }
}

fn listed(numbers: &[f64]) -> String {
    numbers.iter().map(|x| format!("{x:?}")).collect::<Vec<_>>().join(", ")
}
