// A long run of operations drawn by chance, by the public calls: collectives in flight beside each other, lists,
// messages with tags out of order, and from any source.
#include <algorithm>
#include <array>
#include <optional>
#include <random>
#include <stdexcept>

#include "herd/collectives/registry.h"
#include "herd/schedule/meaning.h"
#include "herd/schedule/message_layout.h"
#include "tests/comm/conformance.h"
#include "tests/comm/exact_values.h"

namespace herd::testing_support {
namespace {

constexpr int64_t kBytes = 1 << 19;  // of input, and of output, of one operation in flight
constexpr size_t kInFlight = 4;

double factor_of(Rank rank) { return 1 + rank % 2; }

class RandomOperations {
 public:
  RandomOperations(Communicator& world, uint64_t seed, bool one_host)
      : world_(world), random_(seed), one_host_(one_host) {
    for (Slot& slot : slots_) {
      for (auto& memory : slot.shared) memory = world.allocate_symmetric(kBytes);
      for (auto& memory : slot.ordinary) memory.resize(kBytes);
    }
  }

  void run(int count) {
    for (int i = 0; i < count; ++i) {
      switch (draw(12)) {
        case 0:
          list();
          break;
        case 1:
          messages();
          break;
        case 2:
          from_any_source();
          break;
        default:
          collective();
      }
    }
    for (Slot& slot : slots_) finish(slot);
    world_.barrier();
  }

 private:
  struct Slot {
    std::array<SymmetricMemory, 2> shared;
    std::array<std::vector<std::byte>, 2> ordinary;
    std::optional<ConformanceCase> running;
    Work work;
    std::byte* memory(size_t index, bool symmetric) {
      return symmetric ? static_cast<std::byte*>(shared[index].data()) : ordinary[index].data();
    }
  };

  uint64_t draw(uint64_t below) { return random_() % below; }
  int64_t draw_count() {
    const int n = world_.size();
    const std::array<int64_t, 8> edges = {0, 1, 2, 3, n - 1, n, n + 1, 40000};
    return draw(3) == 0 ? edges[draw(edges.size())] : static_cast<int64_t>(draw(3000));
  }
  [[noreturn]] void fail(const std::string& what) const {
    throw std::runtime_error(what + " on rank " + std::to_string(world_.rank()) + " of " +
                             std::to_string(world_.size()));
  }

  void finish(Slot& slot) {
    if (!slot.running) return;
    slot.work.wait();
    const Schedule header = header_of(*slot.running, world_.rank(), world_.size());
    if (!ExactOperation(header, slot.running->op, factor_of).right(slot.memory(1, slot.running->symmetric)))
      fail(describe(*slot.running) + " is wrong");
    slot.running.reset();
  }

  ConformanceCase draw_case() {
    constexpr std::array kCollectives = {Collective::kAllReduce, Collective::kAllGather, Collective::kReduceScatter,
                                         Collective::kBroadcast, Collective::kReduce,    Collective::kGather,
                                         Collective::kScatter,   Collective::kAllToAll};
    ConformanceCase c;
    c.collective = kCollectives[draw(kCollectives.size())];
    c.count = draw_count();
    c.uneven = has_counts(c.collective) && draw(2) == 0;
    c.symmetric = draw(2) == 0;
    c.dtype = kAllDTypes[draw(std::size(kAllDTypes))];
    do c.op = kReduceOps[draw(std::size(kReduceOps))];
    while (!supports(c.op, c.dtype));
    c.root = static_cast<Rank>(draw(static_cast<uint64_t>(world_.size())));
    const bool two_buffers = has_counts(c.collective);
    c.in_place = !two_buffers || draw(2) == 0;
    // Without counts, gather, scatter and all_to_all have parts of one size.
    const bool even = !c.uneven && (c.collective == Collective::kGather || c.collective == Collective::kScatter ||
                                    c.collective == Collective::kAllToAll);
    if (even) c.count -= c.count % world_.size();
    if (draw(2) == 0) return c;
    const auto all = algorithms(c.collective);
    const AlgorithmInfo& one = all[draw(all.size())];
    CollectiveRequest request = request_of(header_of(c, 0, world_.size()), one_host_);
    request.direct = one_host_ && c.symmetric;
    if (c.collective == Collective::kGather || c.collective == Collective::kScatter) request.in_place = false;
    const bool packed = c.op == ReduceOp::kPremultipliedSum && is_reduction(c.collective) &&
                        (c.collective == Collective::kReduce || !c.in_place);
    if (packed) request.direct = false;  // a copy of the input is multiplied
    if (why_not(one, request).empty()) c.algorithm = one.name;
    return c;
  }

  void collective() {
    Slot& slot = slots_[draw(kInFlight)];
    finish(slot);
    slot.running = draw_case();
    const bool later = draw(2) == 0;
    const Schedule header = header_of(*slot.running, world_.rank(), world_.size());
    std::byte *in = slot.memory(0, slot.running->symmetric), *out = slot.memory(1, slot.running->symmetric);
    ExactOperation(header, slot.running->op, factor_of).fill(in, out);
    slot.work = issue(header, *slot.running, in, out, later);
  }

  Work issue(const Schedule& h, const ConformanceCase& c, std::byte* in, std::byte* out, bool later) {
    const Rank self = world_.rank();
    const int64_t size = size_of(h.dtype);
    const auto buffer = [&](std::byte* at, int64_t first, int64_t count) {
      return Buffer{at + first * size, count, h.dtype};
    };
    OpOptions o{.op = c.op, .algorithm = c.algorithm, .counts = h.counts};
    if (c.op == ReduceOp::kPremultipliedSum && is_reduction(c.collective)) o.factor = factor_of(self);
    const MessageLayout layout(h);
    const Range part = layout.part(self);
    const bool at_root = self == h.root;
    const auto call = [&](auto&& here, auto&& there) { return later ? there() : (here(), Work()); };
    switch (h.collective) {
      case Collective::kAllReduce: {
        const Buffer x = buffer(out, 0, h.elements);
        return call([&] { world_.all_reduce(x, o); }, [&] { return world_.all_reduce_async(x, o); });
      }
      case Collective::kBroadcast: {
        const Buffer x = buffer(out, 0, h.elements);
        return call([&] { world_.broadcast(x, h.root, o); }, [&] { return world_.broadcast_async(x, h.root, o); });
      }
      case Collective::kReduce: {
        const Buffer x = buffer(out, 0, h.elements);
        return call([&] { world_.reduce(x, h.root, o); }, [&] { return world_.reduce_async(x, h.root, o); });
      }
      case Collective::kAllGather: {
        const Buffer y = buffer(out, 0, h.elements);
        const Buffer x = h.in_place ? buffer(out, part.begin, part.size()) : buffer(in, 0, part.size());
        return call([&] { world_.all_gather(x, y, o); }, [&] { return world_.all_gather_async(x, y, o); });
      }
      case Collective::kReduceScatter: {
        const Buffer x = buffer(h.in_place ? out : in, 0, h.elements);
        const Buffer y = h.in_place ? buffer(out, part.begin, part.size()) : buffer(out, 0, part.size());
        return call([&] { world_.reduce_scatter(x, y, o); }, [&] { return world_.reduce_scatter_async(x, y, o); });
      }
      case Collective::kGather: {
        const Buffer y = buffer(out, 0, at_root ? h.elements : 0);
        const Buffer x = h.in_place && at_root ? buffer(out, part.begin, part.size()) : buffer(in, 0, part.size());
        return call([&] { world_.gather(x, y, h.root, o); }, [&] { return world_.gather_async(x, y, h.root, o); });
      }
      case Collective::kScatter: {
        const bool inside = h.in_place && at_root;
        const Buffer x = buffer(inside ? out : in, 0, at_root ? h.elements : 0);
        const Buffer y = inside ? buffer(out, part.begin, part.size()) : buffer(out, 0, part.size());
        return call([&] { world_.scatter(x, y, h.root, o); }, [&] { return world_.scatter_async(x, y, h.root, o); });
      }
      case Collective::kAllToAll: {
        const Buffer x = buffer(h.in_place ? out : in, 0, layout.num_sent(self));
        const Buffer y = buffer(out, 0, layout.num_received(self));
        return call([&] { world_.all_to_all(x, y, o); }, [&] { return world_.all_to_all_async(x, y, o); });
      }
      case Collective::kBarrier:
        break;
    }
    return {};
  }

  // Buffers with gaps between them, or without, so that both ways of making one message are taken.
  void list() {
    const int n = world_.size();
    const bool gaps = draw(2) == 0;
    std::vector<int32_t> memory(8192, -1);
    std::vector<std::span<int32_t>> xs;
    size_t at = 0;
    for (uint64_t i = draw(6); i > 0; --i) {
      const size_t count = draw(400);
      xs.push_back(std::span(memory).subspan(at, count));
      at += count + (gaps ? draw(20) + 1 : 0);
    }
    int32_t number = 0;
    for (auto& x : xs) {
      for (int32_t& one : x) one = ++number * (world_.rank() + 1);
    }
    world_.all_reduce_list(xs);
    number = 0;
    for (auto& x : xs) {
      for (int32_t one : x) {
        if (one != ++number * (n * (n + 1) / 2)) fail("a list is wrong");
      }
    }
    if (gaps && std::count(memory.begin(), memory.end(), -1) != static_cast<std::ptrdiff_t>(memory.size()) - number)
      fail("a list is written beyond its buffers");
  }

  void messages() {
    const int n = world_.size();
    const int shift = static_cast<int>(draw(static_cast<uint64_t>(n)));  // 0: to itself
    const int tag = static_cast<int>(draw(1000)) - 500;
    const Rank to = (world_.rank() + shift) % n, from = (world_.rank() + n - shift) % n;
    std::vector<int32_t> one(draw(20000), world_.rank()), two(draw(300), -world_.rank());
    std::vector<int32_t> first(one.size()), second(two.size());
    Work a = world_.send_async(one, to, tag), b = world_.send_async(two, to, tag + 1);
    world_.receive(second, from, tag + 1);
    world_.receive(first, from, tag);
    a.wait(), b.wait();
    if (first != std::vector<int32_t>(one.size(), from) || second != std::vector<int32_t>(two.size(), -from))
      fail("a message is wrong");
  }

  void from_any_source() {
    const Rank root = static_cast<Rank>(draw(static_cast<uint64_t>(world_.size())));
    const size_t count = draw(500) + 1;
    const std::vector<int32_t> mine(count, world_.rank());
    Work sent = world_.send_async(mine, root, 7);
    if (world_.rank() == root) {
      std::vector<bool> heard(static_cast<size_t>(world_.size()), false);
      for (Rank i = 0; i < world_.size(); ++i) {
        std::vector<int32_t> got(count, -1);
        const Rank from = world_.receive_from_any(got, 7);
        if (heard[static_cast<size_t>(from)] || got != std::vector<int32_t>(count, from)) fail("any source is wrong");
        heard[static_cast<size_t>(from)] = true;
      }
    }
    sent.wait();
    world_.barrier();  // the next ones have the same tag
  }

  Communicator& world_;
  std::mt19937_64 random_;
  bool one_host_;
  std::array<Slot, kInFlight> slots_;
};

}  // namespace

void run_random_operations(Communicator& world, uint64_t seed, int count, bool one_host) {
  RandomOperations(world, seed, one_host).run(count);
}

}  // namespace herd::testing_support
