#include "herd/spec/compute.h"

namespace herd::spec {

double decoder_parameters(double vocab, double width, double layers) {
  return decoder_parameters(vocab, width, layers, 1, width, 4 * width);
}

double decoder_parameters(double vocab, double width, double layers, double heads, double head_width, double ffn) {
  return vocab * width + layers * (4 * heads * head_width * width + 2 * ffn * width + 5 * width);
}

double training_flops(double parameters, double tokens) { return 6 * parameters * tokens; }

double devices_needed(double parameters, double tokens, double flops_per_second, double seconds) {
  return training_flops(parameters, tokens) / (flops_per_second * seconds);
}

}  // namespace herd::spec
