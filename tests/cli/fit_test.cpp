#include "herd/cli/fit.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>

namespace herd::cli {
namespace {

struct Fitted {
  double figure;
  int asked = 0;
};

Fitted fitted(double measured, double low, double high, const std::function<double(double)>& predicted) {
  int asked = 0;
  const auto counted = [&](double figure) {
    ++asked;
    return predicted(figure);
  };
  const double figure = fit(measured, low, high, counted);
  return {figure, asked};
}

TEST(Fit, FindsAStraightLineAtOnce) {
  const Fitted f = fitted(10, 0, 10, [](double x) { return 4 + 2 * x; });
  EXPECT_NEAR(f.figure, 3, 0.02);
  EXPECT_EQ(f.asked, 3);
}

TEST(Fit, FindsBrokenLines) {
  // What a turn adds may pass while the core waits for something else, or later; and the far end may be far.
  for (const double knee : {0.1, 3.0, 40.0, 90.0}) {
    for (const double steep : {1.0, 10.0, 1000.0}) {
      const auto convex = [&](double x) { return 5 + 0.01 * x + steep * std::max(0.0, x - knee); };
      const auto concave = [&](double x) { return 5 + 0.01 * x + steep * std::min(x, knee); };
      for (const std::function<double(double)>& predicted : {std::function(convex), std::function(concave)}) {
        for (const double from_knee : {-0.09, 0.1, 5.0}) {
          const double wanted = predicted(knee + from_knee);
          const Fitted f = fitted(wanted, 0, 100, predicted);
          EXPECT_NEAR(predicted(f.figure), wanted, 0.002 * wanted) << knee << " " << steep << " " << from_knee;
          EXPECT_LE(f.asked, 22);
        }
      }
    }
  }
}

TEST(Fit, EndsWhereNoFigureFits) {
  const auto predicted = [](double x) { return 5 + x; };
  EXPECT_EQ(fitted(2, 0.3, 10, predicted).figure, 0.3);
  EXPECT_EQ(fitted(5.3, 0.3, 10, predicted).figure, 0.3);
  EXPECT_EQ(fitted(20, 0.3, 10, predicted).figure, 10);
  EXPECT_EQ(fitted(20, 0.3, 10, [](double) { return 7; }).figure, 10);
}

}  // namespace
}  // namespace herd::cli
