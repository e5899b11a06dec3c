//! Poses as three rows of four numbers, in f64: what robots are made of before anything is computed.

/// Row-major `[3,4]`: a rotation, and in the last column a translation.
pub type Pose = [f64; 12];

/// No rotation, no translation.
pub const IDENTITY: Pose = [1.0, 0.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 0.0, 1.0, 0.0];

/// First `second`, then `first`: the matrix product.
#[must_use]
pub fn product(first: &Pose, second: &Pose) -> Pose {
    std::array::from_fn(|index| {
        let (row, column) = (index / 4 * 4, index % 4);
        let sum: f64 = (0..3).map(|k| first[row + k] * second[k * 4 + column]).sum();
        if column == 3 { sum + first[row + 3] } else { sum }
    })
}

/// From roll, pitch and yaw about the fixed axes x, y and z, as URDF has them.
#[must_use]
pub fn from_rpy(position: [f64; 3], [roll, pitch, yaw]: [f64; 3]) -> Pose {
    let ((sr, cr), (sp, cp), (sy, cy)) = (roll.sin_cos(), pitch.sin_cos(), yaw.sin_cos());
    [
        cy * cp,
        cy * sp * sr - sy * cr,
        cy * sp * cr + sy * sr,
        position[0],
        sy * cp,
        sy * sp * sr + cy * cr,
        sy * sp * cr - cy * sr,
        position[1],
        -sp,
        cp * sr,
        cp * cr,
        position[2],
    ]
}

/// A turn about x or z and a step along the same axis: half of a row of Denavit and Hartenberg.
#[must_use]
pub fn screw(about_z: bool, angle: f64, step: f64) -> Pose {
    let (s, c) = angle.sin_cos();
    if about_z {
        [c, -s, 0.0, 0.0, s, c, 0.0, 0.0, 0.0, 0.0, 1.0, step]
    } else {
        [1.0, 0.0, 0.0, step, 0.0, c, -s, 0.0, 0.0, s, c, 0.0]
    }
}

pub(super) fn length([x, y, z]: [f64; 3]) -> f64 {
    (x * x + y * y + z * z).sqrt()
}

pub(super) fn unit(axis: [f64; 3]) -> [f64; 3] {
    // By the largest first, so that no square is too large or too small.
    let largest = axis.iter().fold(0.0f64, |largest, x| largest.max(x.abs()));
    let scaled = axis.map(|x| x / largest);
    scaled.map(|x| x / length(scaled))
}

/// A rotation that takes z to an axis of length 1; of zeros and ones where the axis is one of the frame's.
pub(super) fn turned_to(axis: [f64; 3]) -> Pose {
    let cross =
        |a: [f64; 3], b: [f64; 3]| [a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0]];
    // x becomes a frame's axis that is far from the new z.
    let far = (0..3).min_by(|&a, &b| axis[a].abs().total_cmp(&axis[b].abs())).unwrap_or(0);
    let mut first = [0.0; 3];
    first[far] = 1.0;
    let second = unit(cross(axis, first));
    let first = cross(second, axis);
    std::array::from_fn(|index| {
        let row = index / 4;
        [first[row], second[row], axis[row], 0.0][index % 4]
    })
}

/// The opposite of a rotation without a translation.
pub(super) fn turned_back(rotation: &Pose) -> Pose {
    std::array::from_fn(|index| if index % 4 == 3 { 0.0 } else { rotation[index % 4 * 4 + index / 4] })
}

/// Rounding leaves 6e-17 where a file means 0: such parts cost a multiplication in every call.
pub(super) fn snapped(pose: &Pose) -> Pose {
    let near = |x: f64, whole: f64| (x - whole).abs() < 1e-15;
    pose.map(|x| [0.0, 1.0, -1.0].into_iter().find(|&whole| near(x, whole)).unwrap_or(x))
}
