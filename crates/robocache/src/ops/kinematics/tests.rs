//! Against a plain product of matrices, one joint after the other, and against finite differences.

use std::collections::HashMap;

use super::pose::{self, Pose};
use super::*;
use crate::tensor::Tensor;
use crate::{ErrorKind, TensorRef, run};

/// Numbers that are the same on every run.
struct Random(u64);

impl Random {
    fn next(&mut self) -> f64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 11) as f64 / (1u64 << 53) as f64
    }

    fn within(&mut self, low: f64, high: f64) -> f64 {
        low + (high - low) * self.next()
    }

    fn below(&mut self, count: usize) -> usize {
        (self.next() * count as f64) as usize
    }
}

/// A tree of `joints` joints, each of which hangs on any link before it.
fn random_tree(random: &mut Random, joints: usize) -> (Vec<String>, Vec<Joint>) {
    let link = |place: usize| format!("link{place}");
    let made = (0..joints)
        .map(|place| {
            let parent = if random.next() < 0.7 { place } else { random.below(place + 1) };
            let motion = match random.below(8) {
                0 | 1 => Motion::Fixed,
                2 | 3 => Motion::Slide,
                _ => Motion::Turn,
            };
            let axes = [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, -1.0]];
            let any = [0; 3].map(|_| random.within(-1.0, 1.0));
            let axis = axes.get(random.below(6)).copied().unwrap_or(any);
            let angles = [0; 3].map(|_| random.within(-3.0, 3.0));
            let origin = pose::from_rpy([0; 3].map(|_| random.within(-0.3, 0.3)), angles);
            Joint {
                name: format!("joint{place}"),
                parent: link(parent),
                child: link(place + 1),
                origin,
                motion,
                axis,
                limits: [-2.0, 2.0],
                mimic: None,
            }
        })
        .collect::<Vec<_>>();
    let mut joints_made = made;
    for place in 1..joints {
        let other = random.below(place);
        let moves = |joint: &Joint| joint.motion != Motion::Fixed;
        if random.next() < 0.15 && moves(&joints_made[place]) && moves(&joints_made[other]) {
            let name = joints_made[other].name.clone();
            joints_made[place].mimic = Some(Mimic { joint: name, factor: random.within(-2.0, 2.0), offset: 0.3 });
        }
    }
    ((0..=joints).map(link).collect(), joints_made)
}

/// The turn about an axis, by Rodrigues.
fn turn(axis: [f64; 3], angle: f64) -> Pose {
    let [x, y, z] = pose::unit(axis);
    let (s, c) = angle.sin_cos();
    let d = 1.0 - c;
    [
        c + x * x * d,
        x * y * d - z * s,
        x * z * d + y * s,
        0.0,
        y * x * d + z * s,
        c + y * y * d,
        y * z * d - x * s,
        0.0,
        z * x * d - y * s,
        z * y * d + x * s,
        c + z * z * d,
        0.0,
    ]
}

/// The poses of all links.
fn reference(links: &[String], joints: &[Joint], positions: &HashMap<String, f64>) -> HashMap<String, Pose> {
    let position = |joint: &Joint| -> f64 {
        let (mut factor, mut offset, mut joint) = (1.0, 0.0, joint);
        while let Some(mimic) = &joint.mimic {
            offset += factor * mimic.offset;
            factor *= mimic.factor;
            joint = joints.iter().find(|other| other.name == mimic.joint).unwrap();
        }
        factor * positions[&joint.name] + offset
    };
    let mut poses = HashMap::from([(links[0].clone(), pose::IDENTITY)]);
    while poses.len() < links.len() {
        for joint in joints {
            let Some(above) = poses.get(&joint.parent).filter(|_| !poses.contains_key(&joint.child)) else { continue };
            let moved = match joint.motion {
                Motion::Turn => turn(joint.axis, position(joint)),
                Motion::Slide => {
                    let [x, y, z] = pose::unit(joint.axis).map(|x| x * position(joint));
                    [1.0, 0.0, 0.0, x, 0.0, 1.0, 0.0, y, 0.0, 0.0, 1.0, z]
                }
                _ => pose::IDENTITY,
            };
            let pose = pose::product(&pose::product(above, &joint.origin), &moved);
            poses.insert(joint.child.clone(), pose);
        }
    }
    poses
}

fn tensor(numbers: &[f64], shape: &[usize]) -> Tensor {
    Tensor::from_slice(numbers, shape).unwrap()
}

fn forward(chain: &Chain, q: TensorRef<'_>) -> (Vec<f64>, Vec<f64>) {
    let out = run(&Forward { q, chain, pose: true, jacobian: true, single: false }).unwrap();
    (out[0].as_slice::<f64>().unwrap().to_vec(), out[1].as_slice::<f64>().unwrap().to_vec())
}

fn matrix_of(pose: &[f64]) -> Pose {
    let [x, y, z, w] = [pose[3], pose[4], pose[5], pose[6]];
    [
        1.0 - 2.0 * (y * y + z * z),
        2.0 * (x * y - z * w),
        2.0 * (x * z + y * w),
        pose[0],
        2.0 * (x * y + z * w),
        1.0 - 2.0 * (x * x + z * z),
        2.0 * (y * z - x * w),
        pose[1],
        2.0 * (x * z - y * w),
        2.0 * (y * z + x * w),
        1.0 - 2.0 * (x * x + y * y),
        pose[2],
    ]
}

#[test]
fn trees_of_all_joints_are_where_matrices_say() {
    let mut random = Random(7);
    for joints in (1..=40).chain([3; 40]) {
        let (links, made) = random_tree(&mut random, joints);
        let robot = Robot::new("tree", &links, &made, None, None).unwrap();
        let chain = robot.chain(Some(&links)).unwrap();
        let count = robot.joint_names().len();
        let rows = 5;
        let q: Vec<f64> = (0..rows * count).map(|_| random.within(-4.0, 4.0)).collect();
        let (poses, _) = forward(&chain, tensor(&q, &[rows, count]).view());
        for row in 0..rows {
            let names = robot.joint_names().iter().cloned();
            let mut positions: HashMap<_, _> = names.zip(q[row * count..].iter().copied()).collect();
            // Those that mimic, and those that are not used, have no position of their own.
            for joint in &made {
                positions.entry(joint.name.clone()).or_insert(0.0);
            }
            let expected = reference(&links, &made, &positions);
            for (place, link) in links.iter().enumerate() {
                let got = &poses[(row * links.len() + place) * 7..][..7];
                let reach = 1.0 + joints as f64;
                for (near, exact) in matrix_of(got).iter().zip(&expected[link]) {
                    assert!((near - exact).abs() <= 2e-14 * reach, "{joints} joints, {link}: {near} {exact}");
                }
                assert!(got[6] >= 0.0);
                let length: f64 = got[3..].iter().map(|x| x * x).sum();
                assert!((length - 1.0).abs() < 1e-14);
            }
        }
    }
}

/// The change of a pose between two that are close, as a twist.
fn twist(from: &[f64], to: &[f64]) -> [f64; 6] {
    let (a, b) = (matrix_of(from), matrix_of(to));
    let relative = |row: usize, column: usize| (0..3).map(|k| b[row * 4 + k] * a[column * 4 + k]).sum::<f64>();
    let half = |i: usize, j: usize| 0.5 * (relative(i, j) - relative(j, i));
    [to[0] - from[0], to[1] - from[1], to[2] - from[2], half(2, 1), half(0, 2), half(1, 0)]
}

#[test]
fn jacobians_and_gradients_are_the_derivatives() {
    let (mut random, step) = (Random(11), 1e-6);
    for joints in (1..=12).chain([30]) {
        let (links, made) = random_tree(&mut random, joints);
        let robot = Robot::new("tree", &links, &made, None, None).unwrap();
        let wanted = [links[joints].clone(), links[joints / 2].clone()];
        let chain = robot.chain(Some(&wanted)).unwrap();
        let count = robot.joint_names().len();
        let q: Vec<f64> = (0..count).map(|_| random.within(-2.0, 2.0)).collect();
        let (poses, jacobian) = forward(&chain, tensor(&q, &[1, count]).view());
        let grad_pose: Vec<f64> = (0..14).map(|_| random.within(-1.0, 1.0)).collect();
        let grad_jacobian: Vec<f64> = (0..12 * count).map(|_| random.within(-1.0, 1.0)).collect();
        let op_tensors = (tensor(&q, &[1, count]), tensor(&grad_pose, &[1, 2, 7]));
        let given = tensor(&grad_jacobian, &[1, 2, 6, count]);
        let op = ForwardBackward {
            q: op_tensors.0.view(),
            chain: &chain,
            pose: Some(op_tensors.1.view()),
            jacobian: Some(given.view()),
        };
        let grad = run(&op).unwrap()[0].as_slice::<f64>().unwrap().to_vec();
        for joint in 0..count {
            let mut sides = Vec::new();
            for side in [-step, step] {
                let mut moved = q.clone();
                moved[joint] += side;
                sides.push(forward(&chain, tensor(&moved, &[1, count]).view()));
            }
            let mut change = 0.0;
            for link in 0..2 {
                let at = |which: &[f64]| which[link * 7..link * 7 + 7].to_vec();
                let moved = twist(&at(&sides[0].0), &at(&sides[1].0));
                for (row, moved) in moved.iter().enumerate() {
                    let exact = jacobian[(link * 6 + row) * count + joint];
                    assert!((moved / (2.0 * step) - exact).abs() < 1e-7, "{joints} joints, row {row}, {joint}");
                }
                // The sign of the quaternion may turn between the sides.
                let turned: f64 = (3..7).map(|i| at(&sides[0].0)[i] * at(&sides[1].0)[i]).sum();
                let sign = |side: &[f64]| {
                    let same: f64 = (3..7).map(|i| side[i] * at(&poses)[i]).sum();
                    same.signum()
                };
                assert!(turned.abs() > 0.5);
                for i in 0..7 {
                    let signs = [0, 1].map(|side: usize| if i < 3 { 1.0 } else { sign(&at(&sides[side].0)) });
                    let numbers = [0, 1].map(|side: usize| signs[side] * at(&sides[side].0)[i]);
                    change += grad_pose[link * 7 + i] * (numbers[1] - numbers[0]);
                }
            }
            change += grad_jacobian
                .iter()
                .zip(sides[1].1.iter().zip(&sides[0].1))
                .map(|(g, (b, a))| g * (b - a))
                .sum::<f64>();
            let exact = grad[joint];
            assert!((change / (2.0 * step) - exact).abs() < 1e-6 * (1.0 + exact.abs()), "{joints} joints, {joint}");
        }
    }
}

fn panda() -> Robot {
    use std::f64::consts::FRAC_PI_2;
    let rows = [
        (0.0, 0.0, 0.333, [-2.8973, 2.8973]),
        (0.0, -FRAC_PI_2, 0.0, [-1.7628, 1.7628]),
        (0.0, FRAC_PI_2, 0.316, [-2.8973, 2.8973]),
        (0.0825, FRAC_PI_2, 0.0, [-3.0718, -0.0698]),
        (-0.0825, -FRAC_PI_2, 0.384, [-2.8973, 2.8973]),
        (0.0, FRAC_PI_2, 0.0, [-0.0175, 3.7525]),
        (0.088, FRAC_PI_2, 0.107, [-2.8973, 2.8973]),
    ];
    let rows = rows.map(|(a, alpha, d, limits)| DhRow { a, alpha, d, theta: 0.0, slides: false, limits });
    Robot::from_dh(&rows, Convention::Modified).unwrap()
}

#[test]
fn reachable_poses_are_found_and_checked() {
    let (robot, mut random) = (panda(), Random(3));
    let chain = robot.chain::<&str>(None).unwrap();
    let rows = 2000;
    let q: Vec<f64> =
        (0..rows).flat_map(|_| robot.limits().iter().map(|&[l, h]| random.within(l, h)).collect::<Vec<_>>()).collect();
    let (mut poses, _) = forward(&chain, tensor(&q, &[rows, 7]).view());
    // Far outside, and no pose at all.
    poses[0] = 5.0;
    poses[7] = f64::NAN;
    let solve = |poses: &[f64]| {
        let poses = tensor(poses, &[rows, 7]);
        let op = InverseKinematics {
            pose: poses.view(),
            q0: None,
            chain: &chain,
            tolerance: Tolerance { position: 1e-4, rotation: 1e-3 },
            max_iterations: 100,
            seeds: 16,
            limits: true,
        };
        run(&op).unwrap()
    };
    let found = solve(&poses);
    let again = solve(&poses);
    for (one, two) in found.iter().zip(&again) {
        assert_eq!(one.view().shape(), two.view().shape());
    }
    let solution = found[0].as_slice::<f64>().unwrap();
    assert_eq!(format!("{solution:?}"), format!("{:?}", again[0].as_slice::<f64>().unwrap()));
    let converged = found[1].as_slice::<bool>().unwrap();
    let (reached, _) = forward(&chain, found[0].view());
    for row in 0..rows {
        for (q, &[low, high]) in solution[row * 7..].iter().zip(robot.limits()) {
            assert!((low..=high).contains(q));
        }
        if converged[row] {
            let apart = twist(&reached[row * 7..row * 7 + 7], &poses[row * 7..row * 7 + 7]);
            let length = |part: &[f64]| part.iter().map(|x| x * x).sum::<f64>().sqrt();
            assert!(length(&apart[..3]) <= 1.0001e-4 && length(&apart[3..]) <= 1.0001e-3);
        }
    }
    let errors = found[2].as_slice::<f64>().unwrap();
    assert!(!converged[0] && errors[0] > 3.0 && errors[0] < 5.0, "{}", errors[0]);
    assert!(!converged[1] && errors[1].is_nan());
    let share = converged.iter().filter(|converged| **converged).count();
    let steps: i32 = found[4].as_slice::<i32>().unwrap()[2..].iter().sum();
    println!("{share} of {rows} converged, {:.1} steps each", f64::from(steps) / rows as f64);
    assert!(share >= rows - rows / 100, "{share} of {rows} converged");
}

#[test]
fn velocities_move_the_link_as_wished() {
    let (robot, mut random) = (panda(), Random(5));
    let chain = robot.chain::<&str>(None).unwrap();
    let q = [0.1, -0.4, 0.2, -1.8, 0.3, 1.6, 0.5];
    let wish: Vec<f64> = (0..6).map(|_| random.within(-1.0, 1.0)).collect();
    let (q, wished) = (tensor(&q, &[7]), tensor(&wish, &[6]));
    let op = JointVelocity { q: q.view(), twist: wished.view(), chain: &chain, damping: 1e-4 };
    let velocity = run(&op).unwrap();
    assert_eq!(velocity[0].shape(), [7]);
    let velocity = velocity[0].as_slice::<f64>().unwrap();
    let jacobian = run(&Forward { q: q.view(), chain: &chain, pose: false, jacobian: true, single: true }).unwrap();
    let jacobian = jacobian[0].as_slice::<f64>().unwrap();
    for (row, wish) in wish.iter().enumerate() {
        let moved: f64 = (0..7).map(|joint| jacobian[row * 7 + joint] * velocity[joint]).sum();
        assert!((moved - wish).abs() < 1e-5);
    }
}

#[test]
fn single_precision_is_near_and_nan_stays_in_its_row() {
    let mut random = Random(13);
    for joints in [7, 40] {
        let (links, made) = random_tree(&mut random, joints);
        let robot = Robot::new("tree", &links, &made, None, None).unwrap();
        let chain = robot.chain(Some(&links)).unwrap();
        let count = robot.joint_names().len();
        let rows = 19;
        let single: Vec<f32> = (0..rows * count).map(|_| random.within(-3.0, 3.0) as f32).collect();
        let double: Vec<f64> = single.iter().map(|&x| x.into()).collect();
        let (exact, exact_jacobian) = forward(&chain, tensor(&double, &[rows, count]).view());
        let mut single = Tensor::from_slice(&single, &[rows, count]).unwrap();
        let made = |q: &Tensor| {
            run(&Forward { q: q.view(), chain: &chain, pose: true, jacobian: true, single: false }).unwrap()
        };
        let near = made(&single);
        let worst = |near: &[f32], exact: &[f64]| {
            near.iter().zip(exact).fold(0.0f64, |worst, (near, exact)| worst.max((f64::from(*near) - exact).abs()))
        };
        let reach = 1.0
            + chain.steps.iter().map(|step| pose::length([step.fixed[3], step.fixed[7], step.fixed[11]])).sum::<f64>();
        let (poses, jacobians) = (near[0].as_slice::<f32>().unwrap(), near[1].as_slice::<f32>().unwrap());
        println!("{joints}: {:e} of reach {reach}", worst(poses, &exact) / reach);
        assert!(worst(poses, &exact) <= 1e-6 * reach && worst(jacobians, &exact_jacobian) <= 2e-6 * reach);
        // Rows are computed side by side.
        single.as_mut_slice::<f32>().unwrap()[4 * count] = f32::NAN;
        let with_nan = made(&single);
        let with_nan = with_nan[0].as_slice::<f32>().unwrap();
        for (row, (now, before)) in with_nan.chunks(links.len() * 7).zip(poses.chunks(links.len() * 7)).enumerate() {
            if row != 4 {
                assert_eq!(now, before);
            }
        }
    }
}

#[test]
fn what_is_no_robot_is_refused() {
    let link = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect::<Vec<_>>();
    let joint = |name: &str, parent: &str, child: &str| Joint {
        name: name.to_owned(),
        parent: parent.to_owned(),
        child: child.to_owned(),
        origin: pose::IDENTITY,
        motion: Motion::Turn,
        axis: [0.0, 0.0, 1.0],
        limits: [-1.0, 1.0],
        mimic: None,
    };
    let (ab, bc) = (joint("ab", "a", "b"), joint("bc", "b", "c"));
    let abc = link(&["a", "b", "c"]);
    let mimic = |joint: &Joint, of: &str| {
        let mimic = Some(Mimic { joint: of.to_owned(), factor: 1.0, offset: 0.0 });
        Joint { mimic, ..joint.clone() }
    };
    let cases: Vec<(Vec<String>, Vec<Joint>, &str)> = vec![
        (vec![], vec![], "there are no links"),
        (link(&["a", "a"]), vec![], "two links are called"),
        (link(&["a", "b"]), vec![], "2 links have no parent (a, b)"),
        (abc.clone(), vec![ab.clone()], "2 links have no parent"),
        (abc.clone(), vec![ab.clone(), ab.clone()], "two joints are called"),
        (abc.clone(), vec![ab.clone(), joint("x", "c", "b")], "is the child of two joints"),
        (abc.clone(), vec![ab.clone(), joint("x", "nobody", "c")], "its parent \"nobody\" is no link"),
        (abc.clone(), vec![ab.clone(), bc.clone(), joint("x", "c", "a")], "form a loop"),
        (abc.clone(), vec![joint("x", "b", "c"), joint("y", "c", "b")], "some joints form a loop"),
        (abc.clone(), vec![Joint { axis: [0.0; 3], ..ab.clone() }, bc.clone()], "has no direction"),
        (abc.clone(), vec![Joint { limits: [1.0, -1.0], ..ab.clone() }, bc.clone()], "limits from 1 to -1"),
        (abc.clone(), vec![Joint { origin: [f64::NAN; 12], ..ab.clone() }, bc.clone()], "must be finite"),
        (abc.clone(), vec![mimic(&ab, "nothing"), bc.clone()], "which is no joint"),
        (abc.clone(), vec![mimic(&ab, "bc"), mimic(&bc, "ab")], "mimic each other in a circle"),
        (abc.clone(), vec![mimic(&ab, "bc"), Joint { motion: Motion::Fixed, ..bc.clone() }], "which does not move"),
        (abc.clone(), vec![Joint { motion: Motion::Other("planar"), ..ab.clone() }, bc.clone()], "is planar"),
    ];
    for (links, joints, text) in cases {
        let error = Robot::new("robot", &links, &joints, None, None).unwrap_err();
        assert!(error.to_string().contains(text), "{error}");
        assert_ne!(error.kind(), ErrorKind::InvalidArgument, "{error}");
    }
    let joints = [ab.clone(), bc.clone()];
    for (base, tip, text) in [
        (Some("d"), None, "base: there is no \"d\"; the links are a, b, c"),
        (None, Some("x"), "tip: there is no \"x\""),
        (Some("c"), Some("a"), "does not hang on the base"),
    ] {
        let error = Robot::new("robot", &abc, &joints, base, tip).unwrap_err();
        assert!(error.to_string().contains(text) && error.kind() == ErrorKind::InvalidArgument, "{error}");
    }
    let part =
        Robot::new("robot", &abc, &[Joint { motion: Motion::Other("planar"), ..ab }, bc], Some("b"), None).unwrap();
    assert_eq!((part.joint_names(), part.tip()), (&["bc".to_owned()][..], Some("c")));
}
