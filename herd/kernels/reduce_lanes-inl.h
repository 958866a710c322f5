// Defines the loops of reduce_kernel.cpp, compiled once for each instruction set. A Lane loads and stores vectors of
// one dtype, an Operation joins two vectors, and a Pass runs both over memory. Threads: any, as reduce().
#if defined(HERD_KERNELS_REDUCE_LANES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HERD_KERNELS_REDUCE_LANES_INL_H_
#undef HERD_KERNELS_REDUCE_LANES_INL_H_
#else
#define HERD_KERNELS_REDUCE_LANES_INL_H_
#endif

#include <algorithm>
#include <cstring>
#include <span>
#include <type_traits>

#include "herd/kernels/half_lanes-inl.h"
#include "herd/kernels/reduce_call_internal.h"

HWY_BEFORE_NAMESPACE();
namespace herd::kernels::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

template <typename T>
struct PlainLane {
  using Element = T;
  using Tag = hn::ScalableTag<T>;
  static HWY_INLINE auto load(Tag d, const Element* from) { return hn::LoadU(d, from); }
  template <class V>
  static HWY_INLINE void store(V v, Tag d, Element* to) {
    hn::StoreU(v, d, to);
  }
  template <class V>
  static HWY_INLINE void stream(V v, Tag d, Element* to) {
    hn::Stream(v, d, to);
  }
};

// Loads 16-bit elements as fp32, and rounds them back. Convert::widen and narrow work on vectors of 16-bit patterns.
template <class Convert>
struct WideningLane {
  using Element = uint16_t;
  using Tag = hn::ScalableTag<float>;
  using Bits = hn::Rebind<uint16_t, Tag>;
  static HWY_INLINE auto load(Tag d, const Element* from) { return Convert::widen(d, hn::LoadU(Bits(), from)); }
  template <class V>
  static HWY_INLINE void store(V v, Tag, Element* to) {
    hn::StoreU(Convert::narrow(v), Bits(), to);
  }
  template <class V>
  static HWY_INLINE void stream(V v, Tag, Element* to) {
    hn::Stream(Convert::narrow(v), Bits(), to);
  }
};

using Bf16Lane = WideningLane<Bf16Convert>;
using Fp16Lane = WideningLane<Fp16Convert>;

struct Sum {
  template <class V>
  static HWY_INLINE V apply(V a, V b) {
    return hn::Add(a, b);
  }
};
struct Product {
  template <class V>
  static HWY_INLINE V apply(V a, V b) {
    return hn::Mul(a, b);
  }
};
struct Min {
  template <class V>
  static HWY_INLINE V apply(V a, V b) {
    return hn::Min(a, b);
  }
};
struct Max {
  template <class V>
  static HWY_INLINE V apply(V a, V b) {
    return hn::Max(a, b);
  }
};
struct And {
  template <class V>
  static HWY_INLINE V apply(V a, V b) {
    return hn::And(a, b);
  }
};
struct Or {
  template <class V>
  static HWY_INLINE V apply(V a, V b) {
    return hn::Or(a, b);
  }
};
struct Xor {
  template <class V>
  static HWY_INLINE V apply(V a, V b) {
    return hn::Xor(a, b);
  }
};
// Gives NaN if either is NaN: IsNaN takes one in b, and one in a stays since both comparisons are false.
struct MinOrNan {
  template <class V>
  static HWY_INLINE V apply(V a, V b) {
    return hn::IfThenElse(hn::Or(hn::Lt(b, a), hn::IsNaN(b)), b, a);
  }
};
struct MaxOrNan {
  template <class V>
  static HWY_INLINE V apply(V a, V b) {
    return hn::IfThenElse(hn::Or(hn::Lt(a, b), hn::IsNaN(b)), b, a);
  }
};

template <class Lane, class Operation>
class Pass {
  using Element = typename Lane::Element;
  using Tag = typename Lane::Tag;
  using Wide = hn::TFromD<Tag>;

 public:
  explicit Pass(const ReduceCall& call) : call_(call), scale_(static_cast<Wide>(call.scale)) {}

  void run() {
    const bool stream = call_.store == WriteKind::kStream;
    const int64_t block = 4 * width();
    int64_t i = stream ? std::min(call_.count, elements_to_alignment()) : 0;
    cached(0, i);
    for (; i + block <= call_.count; i += block) blocks(i, stream);
    cached(i, call_.count);
  }

 private:
  static HWY_INLINE int64_t width() { return static_cast<int64_t>(hn::Lanes(Tag())); }
  const Element* source(size_t k) const { return static_cast<const Element*>(call_.sources[k]); }
  Element* target(size_t k) const { return static_cast<Element*>(call_.targets[k]); }

  int64_t elements_to_alignment() const {
    const auto address = reinterpret_cast<uintptr_t>(call_.targets[0]);
    return static_cast<int64_t>((64 - address % 64) % 64 / sizeof(Element));
  }

  template <class V>
  HWY_INLINE V finish(V v) const {
    if constexpr (std::is_floating_point_v<Wide>) {
      return scale_ == Wide{1} ? v : hn::Mul(v, hn::Set(Tag(), scale_));
    } else {
      return v;
    }
  }

  // Reduces four vectors from element i on, since so many loads in flight hide their latency.
  HWY_INLINE void blocks(int64_t i, bool stream) const {
    const Tag d;
    const int64_t n = width();
    auto v0 = Lane::load(d, source(0) + i);
    auto v1 = Lane::load(d, source(0) + i + n);
    auto v2 = Lane::load(d, source(0) + i + 2 * n);
    auto v3 = Lane::load(d, source(0) + i + 3 * n);
    for (size_t k = 1; k < call_.sources.size(); ++k) {
      const Element* from = source(k) + i;
      v0 = Operation::apply(v0, Lane::load(d, from));
      v1 = Operation::apply(v1, Lane::load(d, from + n));
      v2 = Operation::apply(v2, Lane::load(d, from + 2 * n));
      v3 = Operation::apply(v3, Lane::load(d, from + 3 * n));
    }
    v0 = finish(v0), v1 = finish(v1), v2 = finish(v2), v3 = finish(v3);
    for (size_t k = 0; k < call_.targets.size(); ++k) {
      Element* to = target(k) + i;
      if (stream && reinterpret_cast<uintptr_t>(to) % 64 == 0) {
        Lane::stream(v0, d, to), Lane::stream(v1, d, to + n), Lane::stream(v2, d, to + 2 * n),
            Lane::stream(v3, d, to + 3 * n);
      } else {
        Lane::store(v0, d, to), Lane::store(v1, d, to + n), Lane::store(v2, d, to + 2 * n),
            Lane::store(v3, d, to + 3 * n);
      }
    }
  }

  void cached(int64_t begin, int64_t end) const {
    for (; begin < end; begin += width()) vector_or_less(begin, std::min(width(), end - begin));
  }

  // Reduces `num` elements, at most one vector. A padded copy goes through the same arithmetic as whole vectors.
  void vector_or_less(int64_t i, int64_t num) const {
    const Tag d;
    HWY_ALIGN Element piece[HWY_MAX_BYTES / sizeof(Element)] = {};
    const size_t bytes = static_cast<size_t>(num) * sizeof(Element);
    std::memcpy(piece, source(0) + i, bytes);
    auto v = Lane::load(d, piece);
    for (size_t k = 1; k < call_.sources.size(); ++k) {
      std::memcpy(piece, source(k) + i, bytes);
      v = Operation::apply(v, Lane::load(d, piece));
    }
    Lane::store(finish(v), d, piece);
    for (size_t k = 0; k < call_.targets.size(); ++k) std::memcpy(target(k) + i, piece, bytes);
  }

  const ReduceCall& call_;
  const Wide scale_;
};

template <class Lane, class Operation>
void reduce_lanes(const ReduceCall& call) {
  Pass<Lane, Operation>(call).run();
}

// Multiplies integers in unsigned arithmetic, which wraps by definition. Narrow types widen to 32 bits, since int would
// overflow.
template <typename T>
void integer_product(const ReduceCall& call) {
  using Wrapping = std::conditional_t<sizeof(T) == 8, uint64_t, uint32_t>;
  for (int64_t i = 0; i < call.count; ++i) {
    Wrapping product = 1;
    for (const void* from : call.sources) product *= static_cast<Wrapping>(static_cast<const T*>(from)[i]);
    for (void* to : call.targets) static_cast<T*>(to)[i] = static_cast<T>(product);
  }
}

}  // namespace herd::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
