#include "herd/draw/category_colour.h"

#include <cstdint>
#include <utility>

#include "herd/draw/svg.h"

namespace herd::draw {
namespace {

// Ops that stand side by side in a picture differ; those that take no time to speak of are grey.
constexpr std::pair<std::string_view, int> kKnown[] = {{"forward", 0},
                                                       {"backward", 1},
                                                       {"all_gather", 2},
                                                       {"reduce_scatter", 3},
                                                       {"recompute", 4},
                                                       {"send", 5},
                                                       {"step", 6},
                                                       {"all_reduce", 8},
                                                       {"receive", 9},
                                                       {"loss", 10},
                                                       {"logits", 10},
                                                       {"fetch", 12},
                                                       {"backward_weight", 11},
                                                       {"evict", 13},
                                                       {"encode", 14},
                                                       {"decode", 15},
                                                       {"load", 7},
                                                       {"add", 7},
                                                       {"norm", 7},
                                                       {"clip", 7},
                                                       {"release", 7},
                                                       {"copy", 2},
                                                       {"reduce", 1},
                                                       {"receive_reduce", 3},
                                                       {"signal", 7},
                                                       {"wait", 10}};

}  // namespace

int category_colour(std::string_view category) {
  for (const auto& [name, colour] : kKnown)
    if (name == category) return colour;
  uint32_t hash = 2166136261;  // FNV-1a
  for (const char c : category) hash = (hash ^ static_cast<unsigned char>(c)) * 16777619;
  return static_cast<int>(hash % kColours);
}

}  // namespace herd::draw
