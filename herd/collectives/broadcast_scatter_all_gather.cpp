#include "herd/collectives/binomial.h"
#include "herd/collectives/broadcast.h"

namespace herd {

Schedule broadcast_scatter_all_gather(const CollectiveRequest& request) {
  Builder b = builder_for(request, "scatter_all_gather");
  if (build_alone(b)) return b.finish();
  const int n = b.num_ranks();
  const BinomialTree tree(n, request.root);
  const int place = tree.place_of(b.self());
  // Part q is for place q. The scatter leaves a rank with the parts of its whole subtree.
  const auto parts = [&](int first, int count) { return Range{b.part(first).begin, b.part(first + count - 1).end}; };
  const auto has = [&](int at, int part) { return part >= at && part < at + tree.num_below(at); };
  const auto source = [&](Range range) { return place == 0 ? b.input(range) : b.output(range); };
  if (place > 0) b.receive(tree.rank_at(tree.parent(place)), b.output(parts(place, tree.num_below(place))));
  const std::vector<int> children = tree.children(place);
  for (auto child = children.rbegin(); child != children.rend(); ++child) {
    b.send(tree.rank_at(*child), source(parts(*child, tree.num_below(*child))));
  }
  const int next = (place + 1) % n;
  for (int step = 0; step < n - 1; ++step) {
    const int out = (place - step + n) % n, in = (place - step - 1 + n) % n;
    if (!has(next, out)) b.send(b.neighbor(1), source(b.part(out)));
    if (!has(place, in)) b.receive(b.neighbor(-1), b.output(b.part(in)));
  }
  if (place == 0) b.copy(b.input({0, b.elements()}), {b.output({0, b.elements()})});
  return b.finish();
}

}  // namespace herd
