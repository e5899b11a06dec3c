#pragma once
namespace rc {
// An example: for a call, chain.rs writes this file for the robot at hand, and the kernel is compiled for it alone.
const int JOINTS = 3, STEPS = 4, ENDS = 1;
struct Step { int parent, slides, joint; double factor, offset, fixed[12]; };
struct End { int step; double fixed[12]; };
constexpr Step ROBOT_STEPS[] = {
    {-1, 0, 0, 1.0, 0.0, {1.0, 0.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 0.0, 1.0, 0.333}},
    {0, 0, 1, 1.0, 0.0, {1.0, 0.0, 0.0, 0.1, 0.0, 0.0, 1.0, 0.0, 0.0, -1.0, 0.0, 0.2}},
    {1, 1, 2, 1.0, 0.0, {0.6, 0.0, 0.8, 0.0, 0.0, 1.0, 0.0, -0.316, -0.8, 0.0, 0.6, 0.0}},
    {2, 0, 2, 0.5, 0.1, {1.0, 0.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 0.0, 1.0, 0.1}},
};
constexpr End ROBOT_ENDS[] = {
    {3, {1.0, 0.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 0.0, 1.0, 0.107}},
};
constexpr bool ON_PATH[][STEPS > 0 ? STEPS : 1] = {
    {1, 1, 1, 1},
};
constexpr double LIMITS[][2] = {
    {-2.8, 2.8},
    {-1.7, 1.7},
    {0.0, 0.3},
};
constexpr double SEEDS[][3] = {
    {-2.8, 5.6, 0.819},
    {-1.7, 3.4, 0.671},
    {0.0, 0.3, 0.549},
};
}  // namespace rc
