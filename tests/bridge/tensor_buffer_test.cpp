// Tensors of every layout in collectives: right, or refused.
#include "herd/bridge/tensor_buffer.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "herd/base/check.h"
#include "herd/base/error.h"
#include "herd/comm/inproc_world.h"

namespace herd {
namespace {

using testing::HasSubstr;

// The tensor in a type that torch calculates with: it has no sums of unsigned integers of more than 8 bits.
at::Tensor calculable(const at::Tensor& x) {
  const bool is_wide =
      x.scalar_type() == at::kUInt16 || x.scalar_type() == at::kUInt32 || x.scalar_type() == at::kUInt64;
  return is_wide ? x.to(at::kLong) : x;
}

// The sum of all ranks, or what the refusal says.
std::string all_reduced(const std::function<at::Tensor(Rank)>& make) {
  std::string result = "right";
  run_inproc(2, [&](Communicator& comm) {
    at::Tensor x = make(comm.rank());
    const at::Tensor want = calculable(make(0)) + calculable(make(1));
    try {
      comm.all_reduce(x);
    } catch (const Error& error) {
      if (error.code() != Code::kBadConfig) throw;
      if (comm.rank() == 0) result = error.message();
      return;
    }
    if (!at::equal(calculable(x), want)) result = "wrong";
  });
  return result;
}

at::Tensor numbers(Rank rank, at::IntArrayRef sizes, at::ScalarType type = at::kFloat) {
  int64_t count = 1;
  for (int64_t size : sizes) count *= size;
  return ((at::arange(count) * 3 + rank) % 7).reshape(sizes).to(type);
}

TEST(TensorBuffer, DenseTensorsAreSummedRight) {
  EXPECT_EQ(all_reduced([](Rank r) { return numbers(r, {6, 8}); }), "right");
  EXPECT_EQ(all_reduced([](Rank r) { return numbers(r, {6, 8}).t(); }), "right") << "transposed on all ranks alike";
  EXPECT_EQ(all_reduced([](Rank r) { return numbers(r, {6, 8}).slice(0, 2, 5); }), "right") << "some rows";
  EXPECT_EQ(all_reduced([](Rank r) {
              return numbers(r, {2, 3, 4, 5}).contiguous(at::MemoryFormat::ChannelsLast);
            }),
            "right");
  EXPECT_EQ(all_reduced([](Rank r) { return numbers(r, {}); }), "right") << "no dimensions";
  EXPECT_EQ(all_reduced([](Rank r) { return numbers(r, {0, 5}); }), "right") << "no elements";
  EXPECT_EQ(all_reduced([](Rank r) { return numbers(r, {3, 1, 4}).transpose(0, 1); }), "right") << "still in order";
}

TEST(TensorBuffer, TensorsWithGapsOrSharedElementsAreRefused) {
  const auto refused = HasSubstr("fix: pass tensor.contiguous()");
  EXPECT_THAT(all_reduced([](Rank r) { return numbers(r, {6, 8}).slice(1, 0, 8, 2); }), refused) << "x[:, ::2]";
  EXPECT_THAT(all_reduced([](Rank r) { return numbers(r, {6, 8}).slice(1, 2, 5); }), refused) << "some columns";
  EXPECT_THAT(all_reduced([](Rank r) { return numbers(r, {6, 1}).expand({6, 8}); }), refused) << "expanded";
  EXPECT_THAT(all_reduced([](Rank r) { return numbers(r, {8}).as_strided({3, 4}, {1, 1}); }), refused) << "overlapping";
}

TEST(TensorBuffer, ATensorTransposedOnOneRankOnlyIsRefusedOnBoth) {
  for (const Rank turned : {0, 1}) {
    EXPECT_THAT(all_reduced([&](Rank r) {
                  return r == turned ? numbers(r, {4, 4}).t() : numbers(r, {4, 4});
                }),
                HasSubstr("differs between ranks"));
  }
}

TEST(TensorBuffer, OperationsThatMovePartsRefuseTransposedTensors) {
  run_inproc(2, [](Communicator& comm) {
    at::Tensor turned = at::ones({3, 4}).t(), whole = at::ones({8, 3});
    for (const bool in : {true, false}) {
      try {
        in ? comm.all_gather(turned, whole) : comm.all_gather(at::ones({4, 3}), whole.t());
        ADD_FAILURE() << "accepted";
      } catch (const Error& error) {
        EXPECT_THAT(error.what(), HasSubstr("logical order"));
      }
    }
    EXPECT_THROW(comm.send(turned, comm.rank()), Error);
  });
}

TEST(TensorBuffer, EveryDTypeIsRightOrRefusedByName) {
  for (const at::ScalarType type : {at::kFloat, at::kDouble, at::kHalf, at::kBFloat16, at::kChar, at::kByte, at::kInt,
                                    at::kLong, at::kShort, at::kUInt16, at::kUInt32, at::kUInt64}) {
    EXPECT_EQ(all_reduced([&](Rank r) { return numbers(r, {5, 7}, type); }), "right") << type;
  }
  EXPECT_THAT(all_reduced([](Rank r) { return numbers(r, {4}).to(at::kBool); }),
              HasSubstr("\"sum\" is not defined for bool"));
  EXPECT_THAT(all_reduced([](Rank r) { return numbers(r, {4}, at::kComplexFloat); }), HasSubstr("type ComplexFloat"));
}

TEST(TensorBuffer, WhatIsNoPlainMemoryIsRefused) {
  EXPECT_THAT(all_reduced([](Rank r) { return numbers(r, {4, 4}).to_sparse(); }), HasSubstr("a sparse tensor"));
  EXPECT_THAT(all_reduced([](Rank r) { return at::imag(at::conj(numbers(r, {4}, at::kComplexFloat))); }),
              HasSubstr("negation"));
  run_inproc(1, [](Communicator& comm) {
    EXPECT_THROW(comm.all_reduce(at::Tensor()), Error);
    EXPECT_THROW(comm.all_reduce(at::empty({4}, at::TensorOptions().device(at::kMeta))), Error);
  });
}

TEST(TensorBuffer, ListsOfTensorsAreOneOperation) {
  run_inproc(2, [](Communicator& comm) {
    std::vector<at::Tensor> list = {numbers(comm.rank(), {3, 4}), numbers(comm.rank(), {}),
                                    numbers(comm.rank(), {0, 2})};
    comm.all_reduce_list(list);
    EXPECT_TRUE(at::equal(list[0], numbers(0, {3, 4}) + numbers(1, {3, 4})));
    EXPECT_TRUE(at::equal(list[1], numbers(0, {}) + numbers(1, {})));
    EXPECT_EQ(comm.algorithms_used().size(), 1u);
  });
}

TEST(TensorResults, AreNewTensorsInTheShapeOfTorchsOwn) {
  run_inproc(3, [](Communicator& comm) {
    const double r = comm.rank();
    const at::Tensor x = at::full({2, 5}, r, at::kDouble).t().requires_grad_();  // its rows lie apart
    const at::Tensor sum = comm.all_reduced(x);
    HERD_CHECK(at::equal(sum, at::full({5, 2}, 3.0, at::kDouble)) && sum.is_contiguous(), "sum of 0, 1 and 2");
    HERD_CHECK(!sum.requires_grad() && at::equal(x.detach(), at::full({5, 2}, r, at::kDouble)), "x is as it was");
    HERD_CHECK(at::equal(comm.all_reduced(x, ReduceOp::kMax), at::full({5, 2}, 2.0, at::kDouble)), "largest");

    const at::Tensor all = comm.all_gathered(at::full({1, 4}, r, at::kBFloat16));
    HERD_CHECK(all.sizes() == at::IntArrayRef({3, 4}) && all.scalar_type() == at::kBFloat16, "one row a rank");
    HERD_CHECK(all[2][3].item<double>() == 2, "in the order of ranks");
    HERD_CHECK(comm.all_gathered(at::scalar_tensor(r)).sizes() == at::IntArrayRef({3}), "a scalar is a row");
    const std::vector<int64_t> rows = {4, 0, 8};
    const at::Tensor uneven =
        comm.all_gathered(at::full({comm.rank() == 1 ? 0 : 1 + comm.rank() / 2, 4}, r), {.counts = rows});
    HERD_CHECK(uneven.sizes() == at::IntArrayRef({3, 4}) && uneven[1][0].item<double>() == 2, "rows of counts");

    const at::Tensor part = comm.reduce_scattered(at::arange(12).view({6, 2}));
    HERD_CHECK(part.sizes() == at::IntArrayRef({2, 2}) && part[0][0].item<int64_t>() == 12 * comm.rank(), "own rows");
    const at::Tensor turned = comm.exchanged(at::full({3, 1}, r));
    HERD_CHECK(turned[2][0].item<double>() == 2, "a row from each rank");
  });
}

TEST(TensorResults, RefuseRowsInPieces) {
  run_inproc(2, [](Communicator& comm) {
    try {
      (void)comm.reduce_scattered(at::zeros({3, 2}));
    } catch (const Error& error) {
      HERD_CHECK(
          error.code() == Code::kBadConfig &&
              error.message().find("rows of 2 elements; this rank's part of the result has 3") != std::string::npos,
          error.message());
      return;
    }
    HERD_CHECK(false, "three elements are no whole number of rows of two");
  });
}

}  // namespace
}  // namespace herd
