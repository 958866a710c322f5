#include "herd/planner/model_sizes.h"

#include <cstdio>

#include "herd/draw/table.h"

namespace herd::planner {
namespace {

constexpr PublishedSize kPublishedSizes[] = {{"BERT-Large", "bert-large", 0.32e9},
                                             {"GPT-2", "gpt2-xl", 1.5e9},
                                             {"Turing-NLG", "turing-nlg", 17.2e9},
                                             {"GPT-3", "gpt3-175b", 175e9}};

std::string in_units_of_1e9(double value, const char* unit) {
  char text[32];
  std::snprintf(text, sizeof text, "%.4g %s", value / 1e9, unit);
  return text;
}

}  // namespace

std::span<const PublishedSize> published_sizes() { return kPublishedSizes; }

std::string model_sizes_text(std::span<const int64_t> exact) {
  draw::Table table{{{"model"},
                     {"lectures count", true},
                     {"16 bytes each", true},
                     {"run file"},
                     {"parameters", true},
                     {"16 bytes each", true}},
                    {}};
  for (size_t i = 0; i < published_sizes().size(); ++i) {
    const PublishedSize& size = published_sizes()[i];
    const double bytes = spec::kFp32Adam.total() * static_cast<double>(exact[i]);
    table.rows.push_back({std::string(size.name), in_units_of_1e9(size.parameters, "B"),
                          in_units_of_1e9(size.bytes(), "GB"), std::string(size.preset), std::to_string(exact[i]),
                          in_units_of_1e9(bytes, "GB")});
  }
  return "weights, gradients and two moments in fp32, GB of 1e9 bytes\n\n" + draw::text_table(table);
}

}  // namespace herd::planner
