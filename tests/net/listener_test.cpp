#include "herd/net/listener.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <malloc.h>
#include <sys/resource.h>

#include "herd/base/error.h"
#include "tests/net/pair.h"
#include "tests/support/expect_error.h"

namespace herd::net {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;
using testing_support::dial;
using testing_support::Pair;
using testing_support::until;

bool hung_up(const Descriptor& socket) {
  char byte = 0;
  const ssize_t got = recv(socket.fd, &byte, 1, MSG_DONTWAIT);
  return got == 0 || (got < 0 && errno != EAGAIN);
}

TEST(Listener, WhoSaysNothingIsDroppedWhenItsPatienceEnds) {
  const SecureContext context(std::string(32, 'k'));
  Listener listener(context, {"127.0.0.1"}, 0, {.max_strangers = 8, .proof_timeout = 200ms});
  const Descriptor silent = dial(listener.port());
  const auto begin = std::chrono::steady_clock::now();
  pollfd shown = {listener.descriptor(), POLLIN, 0};
  until([&] { return hung_up(silent); },
        [&] {
          poll(&shown, 1, 5000);  // shows when the time is over: no caller needs a clock of its own
          listener.accept();
        });
  EXPECT_TRUE(hung_up(silent));
  EXPECT_GE(std::chrono::steady_clock::now() - begin, 200ms);
  EXPECT_THAT(listener.last_refusal(), HasSubstr("no handshake within 200 ms"));
}

TEST(Listener, WhatIsNoHandshakeIsDroppedAtOnce) {
  const SecureContext context(std::string(32, 'k'));
  Listener listener(context, {"127.0.0.1"}, 0);
  for (const std::string said : {"GET / HTTP/1.1\r\n\r\n", "\x16\x02zzz", "\xff\x00\x00\x00\x00\x00\x00\x00\x01\x7f"}) {
    const Descriptor stranger = dial(listener.port());
    const int64_t before = listener.refused();
    until([&] { return send(stranger.fd, said.data(), said.size(), MSG_NOSIGNAL) > 0; }, [] {});
    EXPECT_TRUE(until([&] { return listener.refused() > before; }, [&] { listener.accept(); }));
    EXPECT_THAT(listener.last_refusal(), HasSubstr("no handshake"));
  }
}

TEST(Listener, HasNothingToDo_WhileAStrangerHasSaidAByteAndNoMore) {
  const SecureContext context(std::string(32, 'k'));
  Listener listener(context, {"127.0.0.1"}, 0);
  const Descriptor stranger = dial(listener.port());
  ASSERT_TRUE(until([&] { return send(stranger.fd, "\x16", 1, MSG_NOSIGNAL) == 1; }, [] {}));
  listener.accept();
  int shown = 0;
  for (int turn = 0; turn < 100; ++turn) {
    pollfd one = {listener.descriptor(), POLLIN, 0};
    if (poll(&one, 1, 1) == 0) continue;
    ++shown;
    listener.accept();
  }
  EXPECT_LT(shown, 5) << "what its timeout is measured by may tick";
  EXPECT_EQ(listener.refused(), 0);
}

// Seconds of this thread's time in which a listener turns away so many connections, while others are silent.
double seconds_to_turn_away(int connections, int silent) {
  const SecureContext context(std::string(32, 'k'));
  Listener listener(context, {"127.0.0.1"}, 0, {.max_strangers = silent + 1, .proof_timeout = 60s});
  std::vector<Descriptor> waiting;
  for (int i = 0; i < silent; ++i) {
    waiting.push_back(dial(listener.port()));
    listener.accept();
  }
  double seconds = 0;
  const auto now = [] {
    timespec time = {};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
  };
  for (int i = 0; i < connections; ++i) {
    const Descriptor stranger = dial(listener.port());
    send(stranger.fd, "GET /", 5, MSG_NOSIGNAL);
    until([&] { return listener.refused() > i; },
          [&] {
            const double begin = now();
            EXPECT_THAT(listener.accept(), testing::IsEmpty());
            seconds += now() - begin;
          });
  }
  return seconds;
}

TEST(Listener, LooksAtNobodyWhoIsSilent) {
  EXPECT_LT(seconds_to_turn_away(300, 400), 4 * seconds_to_turn_away(300, 0));
}

TEST(Listener, AThousandStrangersCostLittle_AndWhoHoldsTheKeyEntersAmongThem) {
  rlimit limit = {};
  getrlimit(RLIMIT_NOFILE, &limit);
  const rlim_t wanted = std::min<rlim_t>(limit.rlim_max, 4096);
  if (wanted < 2500) GTEST_SKIP() << "this machine gives " << wanted << " descriptors";
  limit.rlim_cur = wanted;
  setrlimit(RLIMIT_NOFILE, &limit);
  Pair pair;
  const auto before = mallinfo2().uordblks;
  std::vector<Descriptor> strangers;
  const std::string hello = std::string("\x16\x03\x01\x3f\xff", 5) + std::string(200, '\x01');  // and no more of it
  for (int i = 0; i < 1000; ++i) {
    strangers.push_back(dial(pair.listener.port()));
    if (i % 2 == 0) send(strangers.back().fd, hello.data(), hello.size(), MSG_NOSIGNAL);
    EXPECT_EQ(pair.listener.accept().size(), 0u);
  }
  EXPECT_LT(mallinfo2().uordblks - before, 8u << 20);
  EXPECT_GE(pair.listener.refused(), 1000 - 64 - 1);
  pair.client = SecureSocket::connect(pair.context, dial(pair.listener.port()), "rank 4");
  pair.meet();
  ASSERT_NE(pair.server, nullptr);
  EXPECT_EQ(pair.server->peer_name(), "rank 4");
}

// Dials so often and takes in for a while; returns the connections that were refused.
int64_t refused_of(Listener& listener, int strangers, std::chrono::milliseconds time) {
  const int64_t before = listener.refused();
  std::vector<Descriptor> dialled;
  for (int i = 0; i < strangers; ++i) {
    dialled.push_back(dial(listener.port()));
    send(dialled.back().fd, "GET /", 5, MSG_NOSIGNAL);
  }
  const auto end = std::chrono::steady_clock::now() + time;
  while (std::chrono::steady_clock::now() < end && listener.refused() - before < strangers) {
    pollfd shown = {listener.descriptor(), POLLIN, 0};
    if (poll(&shown, 1, 10) > 0) listener.accept();
  }
  return listener.refused() - before;
}

TEST(Listener, TakesInFewAtATime_WhileNobodyIsExpected) {
  const SecureContext context(std::string(32, 'k'));
  Listener listener(context, {"127.0.0.1"}, 0);
  EXPECT_EQ(refused_of(listener, 100, 5s), 100);
  listener.throttle(true);
  const int64_t slowly = refused_of(listener, 100, 1s);
  EXPECT_GT(slowly, 0) << "whoever comes all the same has an answer";
  EXPECT_LE(slowly, 24) << "four in each quarter of a second";
  listener.throttle(false);
  EXPECT_GE(refused_of(listener, 100, 5s), 100) << "those of before are among them";
}

TEST(Listener, NamesAddressPortAndReason_WhereItCantListen) {
  const SecureContext context(std::string(32, 'k'));
  const Listener first(context, {"127.0.0.1"}, 0);
  int why = 0;
  EXPECT_ERROR(Listener(context, {"127.0.0.1"}, first.port(), {}, &why), Code::kBadConfig, "can't listen on 127.0.0.1",
               std::to_string(first.port()).c_str(), "Address already in use");
  EXPECT_EQ(why, EADDRINUSE);
  EXPECT_ERROR(Listener(context, {"the moon"}, 0), Code::kBadConfig, "\"the moon\" is no numeric address");
}

}  // namespace
}  // namespace herd::net
