#include "herd/strategies/precision.h"

namespace herd::strategies {

Technique precision_row() {
  return {.name = "precision",
          .supports = {{"strategy.precision", {}}, {"strategy.gradient_precision", {}}},
          .in_equations = true,
          .alternatives = {{.key = "strategy.precision",
                            .result_change = "numbers are rounded to 16 bit",
                            .values = [](const spec::RunFile& run, const RankCounts&) {
                              return values_if(run.strategy.precision == "fp32", "bf16");
                            }}}};
}

}  // namespace herd::strategies
