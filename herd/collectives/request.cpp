#include "herd/collectives/request.h"

#include <cmath>
#include <string>

namespace herd {

Builder builder_for(const CollectiveRequest& request, std::string_view algorithm) {
  Schedule header;
  header.collective = request.collective;
  header.algorithm = std::string(algorithm);
  header.self = request.self;
  header.num_ranks = request.num_ranks;
  header.root = request.root;
  header.elements = request.collective == Collective::kBarrier ? 0 : request.elements;
  header.counts = request.counts;
  header.dtype = request.dtype;
  header.in_place = request.in_place;
  return Builder(std::move(header));
}

CollectiveRequest resized(CollectiveRequest request, int64_t elements) {
  if (elements == request.elements) return request;
  const bool all_to_all = request.collective == Collective::kAllToAll;
  if (all_to_all && request.counts.empty()) elements -= elements % request.num_ranks;
  const auto whole = static_cast<double>(request.elements);
  double begin = 0;
  for (int64_t& count : request.counts) {  // parts get rounded ends, so that the counts add up
    const double end = begin + static_cast<double>(count);
    const double scale = static_cast<double>(elements) / whole;
    const auto scaled_count = std::llround(static_cast<double>(count) * scale);  // the same on sender and receiver
    count = all_to_all ? scaled_count : std::llround(end * scale) - std::llround(begin * scale);
    begin = end;
  }
  request.elements =
      request.counts.empty() ? elements : elements_of_counts(request.collective, request.num_ranks, request.counts);
  return request;
}

bool build_if_alone(Builder& b) {
  if (b.elements() == 0) return true;
  if (b.num_ranks() > 1) return false;
  const Range all{0, b.elements()};
  b.copy(b.input(all), {b.output(all)});
  return true;
}

}  // namespace herd
