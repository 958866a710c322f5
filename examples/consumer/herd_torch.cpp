// Calls nothing of torch itself: builds a model of herd's and counts its weights.   consumer_herd_torch
#include <cstdio>

#include "herd/base/error.h"
#include "herd/models/decoder.h"

int main() {
  try {
    const herd::models::Model model = herd::models::make_model({.layers = 2, .width = 32, .heads = 2, .vocab = 100});
    std::printf("%lld weights\n", static_cast<long long>(model.parameters()));
  } catch (const herd::Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
