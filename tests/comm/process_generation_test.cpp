#include "herd/comm/process_generation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "herd/base/error.h"
#include "herd/comm/fork_world.h"
#include "tests/comm/require.h"

namespace herd::comm {
namespace {

using testing::HasSubstr;
using testing_support::require;

// Forks a child that runs `body`, and returns its exit status, or -1 where a signal ended it.
int status_of_child(const std::function<int()>& body) {
  const pid_t child = fork();
  if (child == 0) {
    alarm(20);
    _exit(body());
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST(ProcessGeneration, DiffersInEachChildAndStaysInTheParent) {
  const uint64_t here = process_generation();
  EXPECT_EQ(status_of_child([&] {
              const uint64_t child = process_generation();
              return child != here && status_of_child([&] { return process_generation() != child ? 0 : 1; }) == 0 ? 0
                                                                                                                  : 1;
            }),
            0);
  EXPECT_EQ(process_generation(), here);
}

TEST(ProcessGeneration, LeavesDestructorsToTheProcessThatMadeTheObject) {
  int pipe_ends[2];
  ASSERT_EQ(pipe(pipe_ends), 0);
  struct Tells {
    explicit Tells(int to) : fd(to) {}
    ~Tells() { [[maybe_unused]] const auto wrote = write(fd, "x", 1); }
    int fd;
  };
  auto object = make_shared_of_process<Tells>(pipe_ends[1]);
  EXPECT_EQ(status_of_child([&] {
              object.reset();
              return 0;
            }),
            0);
  object.reset();
  close(pipe_ends[1]);
  char bytes[4];
  EXPECT_EQ(read(pipe_ends[0], bytes, sizeof bytes), 1) << "once, from the parent";
  close(pipe_ends[0]);
}

// Tells whether a call throws kBadConfig that says that this is a fork.
bool refuses(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.code() == Code::kBadConfig && error.message().find("is a fork of it") != std::string::npos;
  }
  return false;
}

void use_world_beside_a_child(Communicator& comm) {
  std::vector<float> x = {1}, y = {1};
  Work later = comm.all_reduce_async(y);
  SymmetricMemory memory = comm.allocate_symmetric(64);
  if (comm.rank() == 0) {
    const int status = status_of_child([&] {
      float z = 100;
      const bool refused = refuses([&] { comm.all_reduce(x); }) && refuses([&] { comm.barrier(); }) &&
                           refuses([&] { comm.send(std::span(&z, 1), 1); }) && refuses([&] { comm.abort("child"); }) &&
                           refuses([&] { comm.show_activity("child"); }) && refuses([&] { (void)comm.rank(); }) &&
                           refuses([&] { (void)comm.bytes_moved(); }) && refuses([&] { (void)comm.split(0, 0); }) &&
                           refuses([&] { later.wait(); }) && refuses([&] { (void)later.done(); });
      {
        const SymmetricMemory freed = std::move(memory);
        const Communicator closed = std::move(comm);
        const Work dropped = std::move(later);
      }
      return refused ? 0 : 1;
    });
    require(status == 0, "the child ended with status " + std::to_string(status));
    require(status_of_child([] { return 0; }) == 0, "a child that does nothing");
  }
  later.wait();
  comm.all_reduce(x);
  require(x[0] == 2 && y[0] == 2, "the ranks reduced " + std::to_string(x[0]) + " and " + std::to_string(y[0]));
  comm.barrier();
}

TEST(ProcessGeneration, AForkedChildNeitherUsesNorClosesItsParentsGroup) {
  run_forked(2, use_world_beside_a_child);
  run_forked(2, use_world_beside_a_child, one_rank_per_host(2));
}

TEST(NumberedWorld, IsMadeOfRanksThatTheProgramNumbers) {
  const std::string meeting = "tcp://127.0.0.1:" + std::to_string(20000 + getpid() % 10000);  // a name: nobody listens
  run_forked(3, [meeting](Communicator& launched) {
    auto comm =
        Communicator::create({.init_method = meeting, .rank = 2 - launched.rank(), .world_size = launched.size()});
    require(comm.rank() == 2 - launched.rank() && comm.size() == 3, "the rank that was asked for");
    require(comm.all_gathered(std::vector<int32_t>{comm.rank()}) == std::vector<int32_t>{0, 1, 2}, "the world works");
  });
}

}  // namespace
}  // namespace herd::comm
