// Defines Buffer, the typed memory that a collective reads or writes. herd_core knows no other type of memory.
// A type T becomes usable in collectives by an overload  Buffer to_buffer(T&, BufferTag)  in namespace herd.
// Argument-dependent lookup finds it through the tag, so herd_core never sees T. The overload of at::Tensor is in
// herd/bridge/tensor_buffer.h.
// Threads: plain data, pure functions.
#pragma once

#include <cstdint>
#include <memory>
#include <ranges>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include "herd/base/dtype.h"

namespace herd {

enum class DeviceKind : uint8_t { kCpu, kCuda, kExtension };  // kExtension: a device that an extension of torch adds
using StreamHandle = void*;                                   // of CUDA: a cudaStream_t; null is the default stream

struct Device {
  DeviceKind kind = DeviceKind::kCpu;
  int index = 0;
  bool operator==(const Device&) const = default;
};

struct Buffer {
  void* ptr = nullptr;
  int64_t count = 0;  // elements
  DType dtype = DType::kF32;
  Device device = {};
  std::shared_ptr<void> keep_alive = {};  // held until an asynchronous operation on this buffer is done
  // Order of the elements. 0: elements lie in their logical order. Else it is a hash of another order, as of a
  // transposed tensor. Operations that treat every element alike accept it where all ranks have the same; others refuse
  // it.
  uint64_t layout = 0;
  StreamHandle stream = nullptr;  // on a device: what is enqueued here so far comes before an operation on the buffer
  int64_t bytes() const { return count * size_of(dtype); }
};

struct BufferTag {};

template <typename T>
constexpr DType dtype_of() {
  if constexpr (std::is_same_v<T, float>)
    return DType::kF32;
  else if constexpr (std::is_same_v<T, double>)
    return DType::kF64;
  else if constexpr (std::is_same_v<T, int8_t>)
    return DType::kI8;
  else if constexpr (std::is_same_v<T, uint8_t>)
    return DType::kU8;
  else if constexpr (std::is_same_v<T, int16_t>)
    return DType::kI16;
  else if constexpr (std::is_same_v<T, uint16_t>)
    return DType::kU16;
  else if constexpr (std::is_same_v<T, uint32_t>)
    return DType::kU32;
  else if constexpr (std::is_same_v<T, uint64_t>)
    return DType::kU64;
  else if constexpr (std::is_same_v<T, int32_t>)
    return DType::kI32;
  else if constexpr (std::is_same_v<T, int64_t>)
    return DType::kI64;
  else if constexpr (std::is_same_v<T, bool>)
    return DType::kBool;
  else
    static_assert(sizeof(T) == 0, "no herd::DType for this element type");
}

inline Buffer to_buffer(const Buffer& buffer, BufferTag) { return buffer; }

// Takes spans, std::vector and arrays of an element type that DType has. The caller keeps them alive.
template <typename Range>
requires requires(Range& range) {
  std::span(range);
} &&(!std::is_same_v<std::remove_cvref_t<Range>, Buffer>)Buffer to_buffer(Range& range, BufferTag) {
  auto view = std::span(range);
  using Element = typename decltype(view)::element_type;
  return {const_cast<std::remove_const_t<Element>*>(view.data()), static_cast<int64_t>(view.size()),
          dtype_of<std::remove_const_t<Element>>()};
}

// What the forms of collectives that return their result make it of; at::Tensor has overloads of both in
// herd/bridge/tensor_buffer.h. copy_of() returns the elements of x in new memory, empty_like() memory for `count` of
// its type.
template <typename Range>
requires requires(const Range& range) { std::span(range); }
auto copy_of(const Range& x, BufferTag) {
  const auto view = std::span(x);
  return std::vector<std::remove_const_t<typename decltype(view)::element_type>>(view.begin(), view.end());
}
template <typename Range>
requires requires(const Range& range) { std::span(range); }
auto empty_like(const Range& x, int64_t count, BufferTag) {
  return std::vector<std::remove_const_t<typename decltype(std::span(x))::element_type>>(static_cast<size_t>(count));
}

// The concepts below let the compiler refuse what an operation must not write, or would outlive. T is what a parameter
// T&& deduces: X& for a variable of type X, X for a temporary.
template <typename T>
concept ElementRange = !std::is_same_v<std::remove_cvref_t<T>, Buffer> && requires(std::remove_reference_t<T> & range) {
  std::span(range);
};
// An operation may write to anything but a range of const elements.
template <typename T>
concept Writable =
    !ElementRange<T> ||
    !std::is_const_v<typename decltype(std::span(std::declval<std::remove_reference_t<T>&>()))::element_type>;
// An asynchronous operation may use anything but a temporary that owns its elements, since they die with the call.
template <typename T>
concept Lasting = !ElementRange<T> || std::is_lvalue_reference_v<T> || std::ranges::borrowed_range<T>;
template <typename T>
concept WritableLater = Writable<T> && Lasting<T>;

// The same concepts hold for the buffers of a list.
template <typename List>
concept WritableList = Writable<decltype(*std::begin(std::declval<std::remove_reference_t<List>&>()))>;
template <typename List>
concept LastingList = std::is_lvalue_reference_v<List> || std::ranges::borrowed_range<List> ||
    Lasting<std::remove_cvref_t<decltype(*std::begin(std::declval<std::remove_reference_t<List>&>()))>>;
template <typename List>
concept WritableLaterList = WritableList<List> && LastingList<List>;

}  // namespace herd
