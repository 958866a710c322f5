#include "herd/collectives/request.h"

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
  header.dtype = request.dtype;
  header.in_place = request.in_place;
  return Builder(std::move(header));
}

bool build_alone(Builder& b) {
  if (b.elements() == 0) return true;
  if (b.num_ranks() > 1) return false;
  const Range all{0, b.elements()};
  b.copy(b.input(all), {b.output(all)});
  return true;
}

}  // namespace herd
