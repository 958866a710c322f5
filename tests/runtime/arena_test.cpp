// Places of values in an arena: which of them share memory, and which must not.
#include "herd/runtime/arena.h"

#include <gtest/gtest.h>

#include "herd/comm/inproc_world.h"
#include "herd/program/program_names.h"
#include "tests/support/expect_error.h"

namespace herd::runtime {
namespace {

using program::Tier;
using program::Value;
using program::ValueInfo;

const program::Placement kShard = program::kWhole.shard_on(0);
constexpr int kShardOfRank = 1;  // of two

program::Program step_of(std::map<Value, ValueInfo> values) {
  program::Program step;
  step.values = std::move(values);
  return step;
}

Arena laid_out(const program::Program& step, int64_t alignment = 64) {
  Arena arena(at::kFloat, alignment);
  arena.lay_out(
      step, [](const Value&) { return true; }, [](int) { return kShardOfRank; });
  return arena;
}

TEST(Arena, PutsAShardInsideTheWholeWithWhichItSharesASlot) {
  const Value whole = program::weight(0), shard = program::weight(0, kShard), apart = program::weight(1, kShard);
  const Arena arena = laid_out(step_of({{whole, {.bytes = 256, .persistent = true, .slot = 0}},
                                        {shard, {.bytes = 128, .persistent = true, .slot = 0}},
                                        {program::weight(1), {.bytes = 256, .persistent = true, .slot = 1}},
                                        {apart, {.bytes = 128, .persistent = true, .slot = 2}}}));
  EXPECT_EQ(arena.place(shard).begin, arena.place(whole).begin + kShardOfRank * 32);
  EXPECT_GE(arena.place(apart).begin, arena.place(program::weight(1)).begin + 64);
  EXPECT_EQ(arena.elements(), 64 + 64 + 32);
}

TEST(Arena, BeginsPlacesAtMultiplesOfItsAlignment) {
  const program::Program step = step_of({{program::weight(0), {.bytes = 4, .persistent = true}},
                                         {program::weight(1), {.bytes = 68, .persistent = true}},
                                         {program::weight(2), {.bytes = 4, .persistent = true}}});
  const Arena lines = laid_out(step), dense = laid_out(step, 0);
  EXPECT_EQ(lines.place(program::weight(1)).begin, 16);
  EXPECT_EQ(lines.place(program::weight(2)).begin, 16 + 32);
  EXPECT_EQ(dense.place(program::weight(2)).begin, 1 + 17);
  EXPECT_EQ(dense.elements(), 19);
}

// Those of a pool on the device; on the host all that do not persist; in files all with a slot.
TEST(Arena, LetsValuesOfASlotTakeTurns) {
  for (const Tier tier : {Tier::kDevice, Tier::kHost, Tier::kNvme}) {
    SCOPED_TRACE(static_cast<int>(tier));
    const Value small = program::in_tier(program::gradient(0), tier),
                big = program::in_tier(program::gradient(1), tier),
                other = program::in_tier(program::gradient(2), tier),
                stays = program::in_tier(program::gradient(3), tier);
    const Arena arena = laid_out(step_of({{small, {.bytes = 64, .slot = 4, .pooled = true}},
                                          {big, {.bytes = 192, .slot = 4, .pooled = true}},
                                          {other, {.bytes = 64, .slot = 5, .pooled = true}},
                                          {stays, {.bytes = 64, .persistent = true}}}));
    EXPECT_EQ(arena.place(small).begin, arena.place(big).begin);
    EXPECT_EQ(arena.place(small).elements, 16);
    EXPECT_EQ(arena.place(other).begin, 48);
    EXPECT_EQ(arena.place(stays).begin, 64);  // after the slots
    EXPECT_EQ(arena.slot_elements(), 64);
    EXPECT_EQ(arena.elements(), 80);
  }
}

TEST(Arena, CopiesBetweenDeviceAndHost) {
  comm::run_inproc(2, [](Communicator& comm) {
    const Value value = program::weight(0), waiting = program::in_tier(value, Tier::kHost);
    Arena device(at::kFloat, 64), host(at::kFloat);
    device.add(value, 16);
    host.add(waiting, 16);
    device.allocate({.label = MemoryLabel::kWeights, .symmetric = true}, at::kCPU, comm);
    host.allocate_on_host(at::kCPU);
    device.memory(value).fill_(comm.rank() + 1.0);
    host.memory(waiting).copy_(device.memory(value));
    EXPECT_EQ(host.memory().sum().item<double>(), 16.0 * (comm.rank() + 1));
    comm.all_reduce(std::span(static_cast<float*>(device.memory().mutable_data_ptr()), 16));
    EXPECT_EQ(device.memory(value).sum().item<double>(), 16.0 * 3);
    EXPECT_EQ(host.memory().sum().item<double>(), 16.0 * (comm.rank() + 1));
    EXPECT_FALSE(host.memory(value).defined());  // that of the device
  });
}

TEST(Arena, NamesAValueWithoutAPlace) {
  const Arena arena(at::kFloat);
  EXPECT_ERROR(arena.place(program::weight(0)), Code::kBug, "has no place");
}

}  // namespace
}  // namespace herd::runtime
