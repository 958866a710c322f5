// The figure with which a model says what was measured. Threads: any.
#pragma once

#include <functional>

namespace herd::cli {

// From `low` to `high`, with which predicted() gives `measured` to within a five-hundredth; `low` where even that gives
// more, `high` where even that gives less. `predicted` grows with the figure, by pieces of straight lines, and is asked
// 22 times at most; where these are not enough, the last figure. (Regula falsi and bisection by turns: a line is found
// at once, and a knee in steps.)
double fit(double measured, double low, double high, const std::function<double(double)>& predicted);

}  // namespace herd::cli
