//! Joint positions that bring a link to a pose.
//!
//! Damped least squares with a damping that falls with the error, so that no step is taken back; joints stay inside their
//! limits. A row that does not get on begins anew from the next seed: the given positions, the middle of the limits,
//! then points that fill the space between the limits evenly, the same for all rows and on every run.

use super::chain::{Chain, NO_LIMIT};
use super::frames::{Fixed, Frame, all_frames, end_frame, quaternion};
use super::solve::{columns, damped_step, one};
use super::velocity::one_link;
use super::wide::{Float, Wide};
use super::{Batch, Count, HEADERS, View, same_type, takes, type_number, type_of};
use crate::chunks::{Cuts, Tensors};
use crate::cpu::{for_each, vectorized};
use crate::cuda::{Grid, KernelFamily, Launcher};
use crate::tensor::{DType, TensorRef};
use crate::{Context, Op, OutputSpec, Outputs, Result, ensure};

/// Rows of one task on the CPU: a hard row takes milliseconds.
const PART: usize = 16;
/// The damping where there is no error.
pub(super) const LEAST_DAMPING: f64 = 1e-6;
/// Steps of a seed that may pass without the error falling by [`FALLS`].
pub(super) const PATIENCE: u32 = 6;
/// What the squared error must fall to, to count.
pub(super) const FALLS: f64 = 0.8;
/// The longest step of a joint, in radians or metres.
pub(super) const LONGEST: f64 = 1.0;

/// When a pose counts as reached.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Tolerance {
    /// Metres.
    pub position: f64,
    /// Radians.
    pub rotation: f64,
}

/// Outputs: `q [B,J]`, `converged [B]`, `position_error [B]`, `rotation_error [B]`, `iterations [B]` int32.
#[derive(Debug)]
pub struct InverseKinematics<'a> {
    /// `[B,7]` or `[7]`, float32 or float64: xyz and a quaternion xyzw of any length.
    pub pose: TensorRef<'a>,
    /// `[B,J]` or `[J]`: where to begin.
    pub q0: Option<TensorRef<'a>>,
    /// What leads to the link.
    pub chain: &'a Chain,
    /// When a pose counts as reached.
    pub tolerance: Tolerance,
    /// Steps for each seed, at most.
    pub max_iterations: u32,
    /// Places to begin at, at most.
    pub seeds: u32,
    /// Whether joints stay inside their limits.
    pub limits: bool,
}

/// The number of rows.
#[derive(Debug)]
pub struct Dims(Count);

/// The kernels, by type.
pub(crate) static KERNELS: KernelFamily = KernelFamily {
    source: include_str!("inverse.cu"),
    headers: HEADERS,
    variants: || vec![0, 1],
    entry: |variant| format!("rc_inverse_kinematics_{}", type_of(variant).0),
    options: |variant| {
        vec![
            format!("-DRC_NUMBER={}", type_of(variant).1),
            format!("-DRC_ARGS_SIZE={}", size_of::<Args>()),
            format!("-DRC_LEAST_DAMPING={LEAST_DAMPING:?}"),
            format!("-DRC_PATIENCE={PATIENCE}"),
            format!("-DRC_FALLS={FALLS:?}"),
            format!("-DRC_LONGEST={LONGEST:?}"),
        ]
    },
};

/// Mirrors `Args` in inverse.cu.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
struct Args {
    pose: View,
    q0: View,
    q: View,
    converged: View,
    position_error: View,
    rotation_error: View,
    iterations: View,
    rows: u64,
    rules: Rules,
}

/// What all rows share. Mirrors `Rules` in inverse.cu.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
struct Rules {
    /// Squares: of the largest distance, and of the sine of half the largest angle.
    near: f64,
    turned: f64,
    /// What metres are multiplied with to weigh as much as radians.
    scale: f64,
    max_iterations: u32,
    seeds: u32,
    limits: u32,
    padding: u32,
}

impl Op for InverseKinematics<'_> {
    const NAME: &'static str = "ik";
    type Dims = Dims;
    type On<'t>
        = InverseKinematics<'t>
    where
        Self: 't;

    fn inputs(&self) -> impl Iterator<Item = (&'static str, &TensorRef<'_>)> {
        [("pose", &self.pose)].into_iter().chain(self.q0.as_ref().map(|q0| ("q0", q0)))
    }

    fn check(&self) -> Result<Dims> {
        let mut batch = Batch::default();
        one_link(self.chain)?;
        let dtype = self.pose.dtype();
        ensure!(super::is_float(dtype), "pose", "expected float32 or float64, got {dtype}");
        takes("pose", &self.pose, &[7], || "[B,7] or [7] (xyz and quaternion xyzw)".to_owned(), &mut batch)?;
        if let Some(q0) = &self.q0 {
            same_type("q0", q0, "pose", &self.pose)?;
            self.chain.check("q0", q0, &mut batch)?;
        }
        let Tolerance { position, rotation } = self.tolerance;
        for (name, tolerance) in [("position_tol", position), ("rotation_tol", rotation)] {
            let fits = tolerance > 0.0 && tolerance.is_finite();
            ensure!(fits, name, "expected a number above 0, got {tolerance}");
        }
        ensure!((1..=100_000).contains(&self.max_iterations), "max_iterations", "expected 1 to 100000");
        ensure!((1..=10_000).contains(&self.seeds), "seeds", "expected 1 to 10000");
        Ok(Dims(Count::of(&batch)))
    }

    fn cuts(&self, Dims(count): &Dims) -> Option<Cuts> {
        Some(count.cuts().inputs([(&self.pose, 1)]).inputs(self.q0.as_ref().map(|q0| (q0, 1))))
    }

    fn on<'t>(&'t self, mut tensors: Tensors<'t>) -> InverseKinematics<'t> {
        InverseKinematics { pose: tensors.next(), q0: tensors.next_if(self.q0.is_some()), ..*self }
    }

    fn outputs(&self, Dims(count): &Dims) -> Result<Vec<OutputSpec>> {
        let dtype = self.pose.dtype();
        let (rows, joints) = (count.shape(&[]), count.shape(&[self.chain.joints]));
        Ok(vec![
            OutputSpec::new("q", dtype, &joints)?,
            OutputSpec::new("converged", DType::Bool, &rows)?,
            OutputSpec::new("position_error", dtype, &rows)?,
            OutputSpec::new("rotation_error", dtype, &rows)?,
            OutputSpec::new("iterations", DType::I32, &rows)?,
        ])
    }

    fn cpu(&self, Dims(count): &Dims, out: &mut Outputs<'_, '_>, context: &Context<'_>) -> Result<()> {
        let args = self.args(*count, out);
        if self.pose.dtype() == DType::F64 {
            on_host::<f64>(self.chain, &args, context)
        } else {
            on_host::<f32>(self.chain, &args, context)
        }
    }

    fn cuda(&self, Dims(count): &Dims, out: &mut Outputs<'_, '_>, launcher: &Launcher<'_>) -> Result<()> {
        let args = self.args(*count, out);
        if count.rows == 0 {
            return Ok(());
        }
        // Threads go on to other rows as they finish: as many as run at once are enough.
        let most = u64::from(launcher.gpu().info().multiprocessors) * 8;
        let blocks = (count.rows as u64).div_ceil(64).min(most);
        let grid = Grid { threads: 64, ..Grid::for_blocks(blocks) };
        let variant = type_number(self.pose.dtype());
        // SAFETY: the views were checked and live on this GPU; the framework keeps them until the stream has passed.
        unsafe { launcher.launch_special(&KERNELS, variant, self.chain.special(), grid, &args) }
    }
}

impl InverseKinematics<'_> {
    fn args(&self, count: Count, out: &mut Outputs<'_, '_>) -> Args {
        let Tolerance { position, rotation } = self.tolerance;
        let half = (0.5 * rotation).min(std::f64::consts::FRAC_PI_2).sin();
        // Metres count as radians of an arm of about half the reach.
        let reach = self.chain.reach();
        Args {
            pose: View::new(&self.pose, 1),
            q0: View::optional(self.q0.as_ref(), 1),
            q: View::output(out.get(0), 1),
            converged: View::output(out.get(1), 0),
            position_error: View::output(out.get(2), 0),
            rotation_error: View::output(out.get(3), 0),
            iterations: View::output(out.get(4), 0),
            rows: count.rows as u64,
            rules: Rules {
                near: position * position,
                turned: half * half,
                scale: if reach > 0.0 { 2.0 / reach } else { 1.0 },
                max_iterations: self.max_iterations,
                seeds: self.seeds,
                limits: u32::from(self.limits),
                padding: 0,
            },
        }
    }
}

impl Chain {
    /// The length of all that is fixed on the way to the first link.
    fn reach(&self) -> f64 {
        let long = |pose: &super::pose::Pose| super::pose::length([pose[3], pose[7], pose[11]]);
        let end = &self.ends[0];
        let sum: f64 = end.path.iter().map(|&step| long(&self.steps[step].fixed)).sum();
        sum + long(&end.fixed)
    }

    /// For each joint where it may begin: the lowest position, the range, and the step from one seed to the next, as a
    /// part of the range. The steps are powers of a number for which points never come close to each other.
    pub(super) fn seeds(&self) -> Vec<[f64; 3]> {
        let mut ratio = 1.5f64;
        for _ in 0..64 {
            ratio = (1.0 + ratio).powf(1.0 / (self.joints as f64 + 1.0));
        }
        let slides = |joint| self.steps.iter().any(|step| step.joint == joint && step.slides);
        let ranges = self.limits.iter().enumerate().map(|(joint, &[low, high])| {
            let free = if slides(joint) { 1.0 } else { std::f64::consts::PI };
            match (low > -NO_LIMIT, high < NO_LIMIT) {
                (true, true) => [low, high],
                (true, false) => [low, low + 2.0 * free],
                (false, true) => [high - 2.0 * free, high],
                (false, false) => [-free, free],
            }
        });
        let steps = (1..).map(|power| ratio.powi(-power));
        ranges.zip(steps).map(|([low, high], step)| [low, high - low, step]).collect()
    }
}

/// What a row has come to.
#[derive(Debug, Clone, Copy)]
struct Found<T> {
    converged: bool,
    /// The squared distance, and the squared sine of half the angle.
    near: T,
    turned: T,
    iterations: i32,
}

/// Memory of a task.
struct Work<T> {
    frames: Vec<Frame<T, 1>>,
    q: Vec<Wide<T, 1>>,
    best: Vec<T>,
    columns: Vec<[T; 6]>,
    step: Vec<T>,
    held: Vec<bool>,
}

fn on_host<T: Float>(chain: &Chain, args: &Args, context: &Context<'_>) -> Result<()> {
    let fixed = Fixed::<T>::new(chain);
    let seeds: Vec<_> = chain.seeds().into_iter().map(|seed| seed.map(T::of)).collect();
    let (rows, joints) = (args.rows as usize, chain.joints);
    for_each(rows.div_ceil(PART), context, &|task| {
        let mut work = Work {
            frames: vec![Frame::<T, 1>::zero(); fixed.steps.len()],
            q: vec![one(T::ZERO); joints],
            best: vec![T::ZERO; joints],
            columns: vec![[T::ZERO; 6]; joints],
            step: vec![T::ZERO; joints],
            held: vec![false; joints],
        };
        let end = ((task + 1) * PART).min(rows);
        // SAFETY: the views were checked; no other task has these rows.
        unsafe { solve_part(&fixed, &seeds, args, task * PART, end, &mut work) };
    })
}

vectorized! {
    /// # Safety
    /// The rows must exist in all views, and nobody else may use those of results.
    unsafe fn solve_part[T: Float](
        fixed: &Fixed<'_, T>,
        seeds: &[[T; 3]],
        args: &Args,
        begin: usize,
        end: usize,
        work: &mut Work<T>,
    ) {
        for row in begin..end {
            // SAFETY: the caller's promise.
            unsafe {
                let found = solve_row(fixed, seeds, args, row, work);
                for (joint, &q) in work.best.iter().enumerate() {
                    args.q.set(row, [0, 0, joint], q);
                }
                args.converged.set(row, [0; 3], u8::from(found.converged));
                args.position_error.set(row, [0; 3], found.near.sqrt());
                args.rotation_error.set(row, [0; 3], T::of(angle(found.turned.to_f64())));
                args.iterations.set(row, [0; 3], found.iterations);
            }
        }
    }
}

/// The angle with this squared sine of its half.
fn angle(turned: f64) -> f64 {
    // `min` would take NaN for 1.
    2.0 * if turned > 1.0 { 1.0 } else { turned }.sqrt().asin()
}

/// # Safety
/// The row must exist in the views.
#[inline(always)]
unsafe fn solve_row<T: Float>(
    fixed: &Fixed<'_, T>,
    seeds: &[[T; 3]],
    args: &Args,
    row: usize,
    work: &mut Work<T>,
) -> Found<T> {
    let rules = &args.rules;
    // SAFETY: the caller's promise.
    let mut pose: [T; 7] = std::array::from_fn(|i| unsafe { args.pose.get(row, [0, 0, i]) });
    let [x, y, z, w] = [pose[3], pose[4], pose[5], pose[6]];
    let length = w.mul_add(w, z.mul_add(z, y.mul_add(y, x * x))).sqrt();
    for number in &mut pose[3..] {
        *number = *number / length;
    }
    let hopeless = pose.iter().any(|number| !number.is_finite());
    let mut found = Found { converged: false, near: T::NAN, turned: T::NAN, iterations: 0 };
    let mut best = T::of(f64::INFINITY);
    for seed in 0..rules.seeds {
        // SAFETY: the caller's promise.
        unsafe { begin(fixed, seeds, args, row, seed, &mut work.q) };
        if seed == 0 {
            for (best, q) in work.best.iter_mut().zip(&work.q) {
                *best = q.0[0];
            }
        }
        if hopeless {
            break;
        }
        let (mut lowest, mut waited) = (T::of(f64::INFINITY), 0);
        for iteration in 0..=rules.max_iterations {
            all_frames(fixed, &work.q, &mut work.frames);
            let last = end_frame(fixed, &work.frames, 0);
            let (wish, near, turned) = difference(&pose, &last, T::of(rules.scale));
            let mut cost = wish[0] * wish[0];
            for part in &wish[1..] {
                cost = part.mul_add(*part, cost);
            }
            if cost < best {
                best = cost;
                (found.near, found.turned) = (near, turned);
                for (best, q) in work.best.iter_mut().zip(&work.q) {
                    *best = q.0[0];
                }
            }
            if near <= T::of(rules.near) && turned <= T::of(rules.turned) {
                for (best, q) in work.best.iter_mut().zip(&work.q) {
                    *best = q.0[0];
                }
                return Found { converged: true, near, turned, ..found };
            }
            if cost < T::of(FALLS) * lowest {
                (lowest, waited) = (cost, 0);
            } else {
                waited += 1;
            }
            if waited > PATIENCE || iteration == rules.max_iterations {
                break;
            }
            found.iterations += 1;
            columns(fixed, &work.frames, &last, T::of(rules.scale), &mut work.columns);
            let damping = cost + T::of(LEAST_DAMPING);
            work.held.fill(false);
            damped_step(&work.columns, &work.held, damping, wish, &mut work.step);
            if rules.limits != 0 && hold(fixed, work) {
                damped_step(&work.columns, &work.held, damping, wish, &mut work.step);
            }
            advance(fixed, rules.limits != 0, work);
        }
    }
    found
}

/// Where a seed begins.
///
/// # Safety
/// The row must exist in the views.
#[inline(always)]
unsafe fn begin<T: Float>(
    fixed: &Fixed<'_, T>,
    seeds: &[[T; 3]],
    args: &Args,
    row: usize,
    seed: u32,
    q: &mut [Wide<T, 1>],
) {
    let given = !args.q0.is_none();
    for (joint, (q, &[low, range, step])) in q.iter_mut().zip(seeds).enumerate() {
        let position = if given && seed == 0 {
            // SAFETY: the caller's promise.
            unsafe { args.q0.get(row, [0, 0, joint]) }
        } else {
            let part = T::of(f64::from(seed - u32::from(given))).mul_add(step, T::of(0.5));
            range.mul_add(part - part.floor(), low)
        };
        let [low, high] = fixed.limits[joint];
        let inside = if args.rules.limits != 0 { within(position, low, high) } else { position };
        // A NaN would stay one in all steps.
        *q = one(if inside.is_finite() { inside } else { low });
    }
}

#[inline(always)]
fn within<T: Float>(x: T, low: T, high: T) -> T {
    if x < low {
        low
    } else if x > high {
        high
    } else {
        x
    }
}

/// The way from a frame to a pose: place and rotation, the squared distance, the squared sine of half the angle.
#[inline(always)]
fn difference<T: Float>(pose: &[T; 7], last: &Frame<T, 1>, scale: T) -> ([T; 6], T, T) {
    let way: [T; 3] = std::array::from_fn(|i| pose[i] - last.origin[i].0[0]);
    let [a, b, c, d] = quaternion(&last.axes).map(|number| number.0[0]);
    let [x, y, z, w] = [pose[3], pose[4], pose[5], pose[6]];
    // The vector part of the wanted quaternion times the opposite of what is there, and its real part.
    let turn = [
        d.mul_add(x, (-w).mul_add(a, z.mul_add(b, -(y * c)))),
        d.mul_add(y, (-w).mul_add(b, x.mul_add(c, -(z * a)))),
        d.mul_add(z, (-w).mul_add(c, y.mul_add(a, -(x * b)))),
    ];
    let real = w.mul_add(d, z.mul_add(c, y.mul_add(b, x * a)));
    let twice = if real < T::ZERO { T::of(-2.0) } else { T::of(2.0) };
    let square = |v: [T; 3]| v[2].mul_add(v[2], v[1].mul_add(v[1], v[0] * v[0]));
    let wish = std::array::from_fn(|i| if i < 3 { way[i] * scale } else { turn[i - 3] * twice });
    (wish, square(way), square(turn))
}

/// Holds the joints that stand at a limit and would leave it; says whether there are any.
#[inline(always)]
fn hold<T: Float>(fixed: &Fixed<'_, T>, work: &mut Work<T>) -> bool {
    let mut any = false;
    for (joint, held) in work.held.iter_mut().enumerate() {
        let ([low, high], q, step) = (fixed.limits[joint], work.q[joint].0[0], work.step[joint]);
        *held = (q <= low && step < T::ZERO) || (q >= high && step > T::ZERO);
        any |= *held;
    }
    any
}

/// Takes a step, which is shortened as a whole where a joint would go too far, and stays inside the limits.
#[inline(always)]
fn advance<T: Float>(fixed: &Fixed<'_, T>, limits: bool, work: &mut Work<T>) {
    let mut longest = T::ZERO;
    for &step in &work.step {
        let size = step.abs();
        longest = if size > longest { size } else { longest };
    }
    let most = T::of(LONGEST);
    let part = if longest > most { most / longest } else { T::ONE };
    for (joint, q) in work.q.iter_mut().enumerate() {
        let moved = work.step[joint].mul_add(part, q.0[0]);
        let [low, high] = fixed.limits[joint];
        *q = one(if limits { within(moved, low, high) } else { moved });
    }
}
