// Runs collectives on one rank and compares with what the definition says, on integers that every dtype holds exactly.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "herd/comm/communicator.h"
#include "herd/kernels/half.h"
#include "herd/schedule/parts.h"

namespace herd::testing_support {

inline double value_of(Rank rank, int64_t element) { return static_cast<double>((rank * 3 + element) % 5); }

inline void store(DType dtype, void* at, int64_t i, double value) {
  switch (dtype) {
    case DType::kF32:
      static_cast<float*>(at)[i] = static_cast<float>(value);
      break;
    case DType::kF64:
      static_cast<double*>(at)[i] = value;
      break;
    case DType::kF16:
      static_cast<uint16_t*>(at)[i] = kernels::fp16_from_float(static_cast<float>(value));
      break;
    case DType::kBF16:
      static_cast<uint16_t*>(at)[i] = kernels::bf16_from_float(static_cast<float>(value));
      break;
    case DType::kI8:
      static_cast<int8_t*>(at)[i] = static_cast<int8_t>(value);
      break;
    case DType::kU8:
      static_cast<uint8_t*>(at)[i] = static_cast<uint8_t>(value);
      break;
    case DType::kI32:
      static_cast<int32_t*>(at)[i] = static_cast<int32_t>(value);
      break;
    case DType::kI64:
      static_cast<int64_t*>(at)[i] = static_cast<int64_t>(value);
      break;
    case DType::kBool:
      static_cast<uint8_t*>(at)[i] = value != 0;
      break;
    case DType::kI16:
      static_cast<int16_t*>(at)[i] = static_cast<int16_t>(value);
      break;
    case DType::kU16:
      static_cast<uint16_t*>(at)[i] = static_cast<uint16_t>(value);
      break;
    case DType::kU32:
      static_cast<uint32_t*>(at)[i] = static_cast<uint32_t>(value);
      break;
    case DType::kU64:
      static_cast<uint64_t*>(at)[i] = static_cast<uint64_t>(value);
      break;
  }
}

inline double load(DType dtype, const void* at, int64_t i) {
  switch (dtype) {
    case DType::kF32:
      return static_cast<const float*>(at)[i];
    case DType::kF64:
      return static_cast<const double*>(at)[i];
    case DType::kF16:
      return kernels::float_from_fp16(static_cast<const uint16_t*>(at)[i]);
    case DType::kBF16:
      return kernels::float_from_bf16(static_cast<const uint16_t*>(at)[i]);
    case DType::kI8:
      return static_cast<const int8_t*>(at)[i];
    case DType::kU8:
      return static_cast<const uint8_t*>(at)[i];
    case DType::kI32:
      return static_cast<const int32_t*>(at)[i];
    case DType::kI64:
      return static_cast<double>(static_cast<const int64_t*>(at)[i]);
    case DType::kBool:
      return static_cast<const uint8_t*>(at)[i];
    case DType::kI16:
      return static_cast<const int16_t*>(at)[i];
    case DType::kU16:
      return static_cast<const uint16_t*>(at)[i];
    case DType::kU32:
      return static_cast<const uint32_t*>(at)[i];
    case DType::kU64:
      return static_cast<double>(static_cast<const uint64_t*>(at)[i]);
  }
  return 0;
}

// Memory for elements, ordinary or symmetric.
class Elements {
 public:
  Elements(Communicator& comm, int64_t count, DType dtype, bool symmetric) : count_(count), dtype_(dtype) {
    const int64_t bytes = count * size_of(dtype);
    if (symmetric)
      memory_ = comm.allocate_symmetric(std::max<int64_t>(bytes, 1));
    else
      bytes_.resize(static_cast<size_t>(bytes) + 1);
    data_ = symmetric ? static_cast<std::byte*>(memory_.data()) : bytes_.data();
  }
  Buffer buffer() const { return part({0, count_}); }
  Buffer part(Range range) const { return {data_ + range.begin * size_of(dtype_), range.size(), dtype_}; }
  void fill(Rank rank) {
    for (int64_t i = 0; i < count_; ++i) store(dtype_, data_, i, value_of(rank, i));
  }
  void set(int64_t i, double value) { store(dtype_, data_, i, value); }
  double get(int64_t i) const { return load(dtype_, data_, i); }

 private:
  int64_t count_;
  DType dtype_;
  SymmetricMemory memory_;
  std::vector<std::byte> bytes_;
  std::byte* data_ = nullptr;
};

inline double reduced(ReduceOp op, DType dtype, int n, int64_t element) {
  double result = dtype == DType::kBool ? value_of(0, element) != 0 : value_of(0, element);
  for (Rank rank = 1; rank < n; ++rank) {
    const double next = dtype == DType::kBool ? value_of(rank, element) != 0 : value_of(rank, element);
    switch (op) {
      case ReduceOp::kSum:
      case ReduceOp::kAverage:
      case ReduceOp::kPremultipliedSum:  // without factors
        result += next;
        break;
      case ReduceOp::kProduct:
        result *= next;
        break;
      case ReduceOp::kMin:
        result = std::min(result, next);
        break;
      case ReduceOp::kAnd:
        result = static_cast<double>(static_cast<int64_t>(result) & static_cast<int64_t>(next));
        break;
      case ReduceOp::kOr:
        result = static_cast<double>(static_cast<int64_t>(result) | static_cast<int64_t>(next));
        break;
      case ReduceOp::kMax:
        result = std::max(result, next);
        break;
      case ReduceOp::kXor:
        result = static_cast<double>(static_cast<int64_t>(result) ^ static_cast<int64_t>(next));
        break;
    }
  }
  return result;
}

// Throws at the first difference: it runs on threads and in forked processes alike.
inline void expect_equal(double got, double want, const std::string& what) {
  if (got != want) throw std::runtime_error(what + ": got " + std::to_string(got) + ", want " + std::to_string(want));
}

struct Case {
  std::string algorithm;
  bool symmetric = false;
  DType dtype = DType::kI32;
  ReduceOp op = ReduceOp::kSum;
};

inline std::string describe(const Communicator& comm, const char* what, const Case& c, int64_t count, int64_t i) {
  return std::string(what) + " " + c.algorithm + " of " + std::string(dtype_name(c.dtype)) + " x " +
         std::to_string(count) + " by " + std::string(reduce_op_name(c.op)) + " on rank " +
         std::to_string(comm.rank()) + " of " + std::to_string(comm.size()) + ", element " + std::to_string(i);
}

// As expect_equal; describes the element only where it is wrong.
inline void expect_element(double got, double want, const Communicator& comm, const char* what, const Case& c,
                           int64_t count, int64_t i) {
  if (got != want) expect_equal(got, want, describe(comm, what, c, count, i));
}

inline void check_all_reduce(Communicator& comm, int64_t count, const Case& c) {
  Elements x(comm, count, c.dtype, c.symmetric);
  x.fill(comm.rank());
  comm.all_reduce(x.buffer(), {.op = c.op, .algorithm = c.algorithm});
  for (int64_t i = 0; i < count; ++i) {
    expect_element(x.get(i), reduced(c.op, c.dtype, comm.size(), i), comm, "all_reduce", c, count, i);
  }
}

inline void check_all_gather(Communicator& comm, int64_t count, const Case& c, bool in_place) {
  const Range mine = part_of(count, comm.size(), comm.rank());
  Elements in(comm, part_of(count, comm.size(), 0).size(), c.dtype, c.symmetric),
      out(comm, count, c.dtype, c.symmetric);
  for (int64_t i = 0; i < mine.size(); ++i) {
    (in_place ? out : in).set(in_place ? mine.begin + i : i, value_of(comm.rank(), mine.begin + i));
  }
  comm.all_gather(in_place ? out.part(mine) : in.part({0, mine.size()}), out.buffer(), {.algorithm = c.algorithm});
  for (Rank rank = 0; rank < comm.size(); ++rank) {
    const Range part = part_of(count, comm.size(), rank);
    for (int64_t i = part.begin; i < part.end; ++i) {
      const double want = c.dtype == DType::kBool ? value_of(rank, i) != 0 : value_of(rank, i);
      expect_element(out.get(i), want, comm, "all_gather", c, count, i);
    }
  }
}

inline void check_reduce_scatter(Communicator& comm, int64_t count, const Case& c, bool in_place) {
  const Range mine = part_of(count, comm.size(), comm.rank());
  Elements in(comm, count, c.dtype, c.symmetric),
      out(comm, part_of(count, comm.size(), 0).size(), c.dtype, c.symmetric);
  in.fill(comm.rank());
  comm.reduce_scatter(in.buffer(), in_place ? in.part(mine) : out.part({0, mine.size()}),
                      {.op = c.op, .algorithm = c.algorithm});
  for (int64_t i = mine.begin; i < mine.end; ++i) {
    expect_element(in_place ? in.get(i) : out.get(i - mine.begin), reduced(c.op, c.dtype, comm.size(), i), comm,
                   "reduce_scatter", c, count, i);
  }
}

inline void check_broadcast(Communicator& comm, int64_t count, const Case& c, Rank root) {
  Elements x(comm, count, c.dtype, c.symmetric);
  x.fill(comm.rank());
  comm.broadcast(x.buffer(), root, {.algorithm = c.algorithm});
  for (int64_t i = 0; i < count; ++i) {
    const double want = c.dtype == DType::kBool ? value_of(root, i) != 0 : value_of(root, i);
    expect_element(x.get(i), want, comm, "broadcast", c, count, i);
  }
}

inline void check_reduce(Communicator& comm, int64_t count, const Case& c, Rank root) {
  Elements x(comm, count, c.dtype, c.symmetric);
  x.fill(comm.rank());
  comm.reduce(x.buffer(), root, {.op = c.op, .algorithm = c.algorithm});
  for (int64_t i = 0; i < count; ++i) {
    const double own = c.dtype == DType::kBool ? value_of(comm.rank(), i) != 0 : value_of(comm.rank(), i);
    expect_element(x.get(i), comm.rank() == root ? reduced(c.op, c.dtype, comm.size(), i) : own, comm, "reduce", c,
                   count, i);
  }
}

// Every collective, by the algorithms named, at the counts where cutting goes wrong.
inline void check_everything(Communicator& comm, const std::vector<int64_t>& counts) {
  const auto each = [&](std::initializer_list<const char*> names, auto&& check) {
    for (const char* name : names) {
      const bool symmetric = std::string(name).rfind("direct", 0) == 0;
      for (int64_t count : counts) check(count, Case{name, symmetric});
    }
  };
  each({"ring", "staged", "direct_pull", "direct_push"},
       [&](int64_t n, const Case& c) { check_all_reduce(comm, n, c); });
  for (bool in_place : {false, true}) {
    each({"ring", "staged", "direct_pull", "direct_push"},
         [&](int64_t n, const Case& c) { check_all_gather(comm, n, c, in_place); });
    each({"ring", "staged", "direct_pull"},
         [&](int64_t n, const Case& c) { check_reduce_scatter(comm, n, c, in_place); });
  }
  const Rank root = comm.size() - 1;
  each({"binomial", "staged", "direct_pull"}, [&](int64_t n, const Case& c) { check_broadcast(comm, n, c, root); });
  each({"binomial", "staged", "direct_push"}, [&](int64_t n, const Case& c) { check_reduce(comm, n, c, root); });
  comm.barrier({.algorithm = "dissemination_send"});
  comm.barrier({.algorithm = "dissemination_signal"});
  comm.barrier({.algorithm = "direct_signal"});
}

// Every collective among ranks of several hosts, by the algorithms that need messages alone.
inline void check_messages(Communicator& comm, const std::vector<int64_t>& counts) {
  for (int64_t count : counts) {
    check_all_reduce(comm, count, {"ring"});
    check_all_reduce(comm, count, {"ring", true, DType::kBF16, ReduceOp::kMax});
    for (bool in_place : {false, true}) {
      check_all_gather(comm, count, {"ring"}, in_place);
      check_reduce_scatter(comm, count, {"ring"}, in_place);
    }
    for (Rank root : {0, comm.size() - 1}) {
      check_broadcast(comm, count, {"binomial"}, root);
      check_reduce(comm, count, {"binomial"}, root);
    }
    check_all_reduce(comm, count, {""});  // chosen
  }
  comm.barrier({.algorithm = "dissemination_send"});
}

// Each rank writes its number into its right neighbour's memory; run by threads and by processes.
inline void pass_on_raw(Communicator& comm) {
  const Rank right = (comm.rank() + 1) % comm.size(), left = (comm.rank() + comm.size() - 1) % comm.size();
  SymmetricMemory memory = comm.allocate_symmetric(4000);
  for (int32_t round = 0; round < 100; ++round) {
    const std::vector<int32_t> x(500, round * 10 + comm.rank());
    comm.copy(x, memory, right, 2000);
    comm.signal(right, 4);
    comm.wait(left, 4);
    for (int32_t value : memory.span<int32_t>().subspan(500)) expect_equal(value, round * 10 + left, "copied");
    comm.signal(left, 5);  // read: it may be overwritten
    comm.wait(right, 5);
  }
}

}  // namespace herd::testing_support
