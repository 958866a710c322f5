// The store over sockets: server and clients in one process, over loopback.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <thread>

#include "herd/base/error.h"
#include "herd/launch/keys.h"
#include "herd/launch/local_meeting.h"
#include "herd/launch/message_stream.h"
#include "herd/launch/status.h"
#include "herd/launch/store_client.h"
#include "herd/launch/store_protocol.h"
#include "herd/launch/store_server.h"
#include "herd/net/listener.h"

namespace herd::launch {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;
using testing::AllOf;
using testing::HasSubstr;

const std::string kToken = "a token of the tests, which no other program has";

Error thrown(const std::function<void()>& body) {
  try {
    body();
  } catch (const Error& error) {
    return error;
  }
  ADD_FAILURE() << "nothing thrown";
  return Error(Code::kBug, "nothing thrown");
}

std::unique_ptr<StoreClient> join(const StoreServer& server, int rank, int size, uint32_t scope = 0) {
  return std::make_unique<StoreClient>(server.rendezvous(), kToken, ClientIdentity{rank, size, scope},
                                       Clock::now() + 5s);
}

int open_port(int backlog = 8) {
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  const int on = 1;  // else connections that this end closed hold the port for a minute
  EXPECT_EQ(setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on), 0);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  EXPECT_EQ(bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  if (backlog) {
    EXPECT_EQ(listen(fd, backlog), 0);
  }
  return fd;
}
int port_of(int fd) {
  sockaddr_in address = {};
  socklen_t length = sizeof address;
  getsockname(fd, reinterpret_cast<sockaddr*>(&address), &length);
  return ntohs(address.sin_port);
}
int connect_to(int port) {
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  EXPECT_EQ(connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  return fd;
}

TEST(StoreOverSockets, KeepsBytesCountsAndForgets) {
  StoreServer server({}, kToken);
  auto a = join(server, 0, 2), b = join(server, 1, 2);
  const std::string bytes("\0\x01 any\nbytes", 12);
  a->set("key", bytes);
  EXPECT_EQ(b->get("key", Clock::now() + 5s), bytes);
  EXPECT_EQ(a->add("n", 3), 3);
  EXPECT_EQ(b->add("n", -5), -2);
  b->erase("key");
  EXPECT_EQ(thrown([&] { a->get("key", Clock::now()); }).code(), Code::kTimeout);
  const std::string big(3 << 20, 'x');
  a->set("big", big);
  EXPECT_EQ(b->get("big", Clock::now() + 5s), big);
}

TEST(StoreOverSockets, GetWaitsForASetAndForAnAdd) {
  StoreServer server({}, kToken);
  auto a = join(server, 0, 2), b = join(server, 1, 2);
  std::thread setter([&] {
    std::this_thread::sleep_for(20ms);
    b->set("late", "1");
    b->add("counter", 7);
  });
  EXPECT_EQ(a->get("late", Clock::now() + 5s), "1");
  EXPECT_EQ(a->get("counter", Clock::now() + 5s), "7");
  setter.join();
}

TEST(StoreOverSockets, ATimeoutSaysWhoIsNotHereYet) {
  StoreServer server({}, kToken);
  auto a = join(server, 1, 3);
  const Error error = thrown([&] { a->get("absent", Clock::now() + 300ms); });
  EXPECT_EQ(error.code(), Code::kTimeout);
  EXPECT_THAT(error.message(),
              AllOf(HasSubstr("\"absent\""), HasSubstr("here: 1 of 3"), HasSubstr("not here yet: 0, 2")));
}

TEST(StoreOverSockets, ADeadlineThatHasPassedStillAsksOnce) {
  StoreServer server({}, kToken);
  auto a = join(server, 0, 1);
  a->set("here", "yes");
  const auto started = Clock::now();
  EXPECT_EQ(a->get("here", started - 1s), "yes");
  EXPECT_EQ(thrown([&] { a->get("absent", started - 1s); }).code(), Code::kTimeout);
  EXPECT_LT(Clock::now() - started, 5s);
}

TEST(StoreOverSockets, AFailureReachesWaitingAndLaterGets) {
  StoreServer server({}, kToken);
  auto a = join(server, 0, 2), b = join(server, 1, 2);
  std::thread failing([&] {
    std::this_thread::sleep_for(20ms);
    server.fail(0, {Code::kPeerLost, "rank 1 was killed by signal 9"});
  });
  const auto started = Clock::now();
  const Error error = thrown([&] { a->get("never", Clock::now() + 30s); });
  failing.join();
  EXPECT_LT(Clock::now() - started, 5s);
  EXPECT_EQ(error.code(), Code::kPeerLost);
  EXPECT_THAT(error.message(), HasSubstr("rank 1 was killed by signal 9"));
  EXPECT_EQ(thrown([&] { b->get("later", Clock::now() + 30s); }).code(), Code::kPeerLost);
  b->set("still", "works");
  EXPECT_EQ(a->get("still", Clock::now() + 5s), "works");
}

TEST(StoreOverSockets, AClientsFailureReachesOthers) {
  StoreServer server({}, kToken);
  auto a = join(server, 0, 2), b = join(server, 1, 2);
  b->fail({Code::kAborted, "stop: a reason"});
  const auto until = Clock::now() + 5s;
  while (!a->failure() && Clock::now() < until) std::this_thread::sleep_for(5ms);
  ASSERT_TRUE(a->failure());
  EXPECT_EQ(a->failure()->reason, "stop: a reason");
  EXPECT_EQ(a->failure()->code, Code::kAborted);
}

TEST(StoreOverSockets, AttemptsDoNotSeeEachOther) {
  StoreServer server({}, kToken);
  auto old_attempt = join(server, 0, 1, 0), new_attempt = join(server, 0, 1, 1);
  old_attempt->set("key", "old");
  server.fail(0, {Code::kPeerLost, "died"});
  new_attempt->set("key", "new");
  EXPECT_EQ(new_attempt->get("key", Clock::now() + 5s), "new");
  EXPECT_FALSE(new_attempt->failure());
}

TEST(StoreOverSockets, RefusesTheSameRankTwiceAndAnotherJobSize) {
  StoreServer server({}, kToken);
  auto a = join(server, 0, 2);
  const Error twice = thrown([&] { join(server, 0, 2); });
  EXPECT_EQ(twice.code(), Code::kBadConfig);
  EXPECT_THAT(twice.message(), HasSubstr("number 0 is in the job already: process"));
  EXPECT_THAT(twice.message(), HasSubstr("fix: keep the first communicator, and make more groups of it by split()"));
  EXPECT_THAT(thrown([&] { join(server, 1, 3); }).message(), HasSubstr("expects 3 in the job, but rank 0"));
}

TEST(StoreOverSockets, AWrongTokenIsRefusedWithinSeconds) {
  StoreServer server({}, kToken);
  const auto started = Clock::now();
  const Error error = thrown([&] {
    StoreClient(server.rendezvous(), "another token, not ours, but as long as it has to be", {0, 1, 0},
                Clock::now() + 20s);
  });
  EXPECT_EQ(error.code(), Code::kBadConfig);
  EXPECT_THAT(error.message(), HasSubstr("refuses this job's token"));
  EXPECT_LT(Clock::now() - started, 5s);
  EXPECT_TRUE(server.peers(0).empty());
}

TEST(StoreOverSockets, AStrangersBytesChangeNothing) {
  StoreServer server({}, kToken);
  auto a = join(server, 0, 1);
  const int port = parse_address(server.rendezvous()).port;
  testing::internal::CaptureStderr();
  for (const std::string& bytes : {std::string("GET / HTTP/1.1\r\n\r\n"), std::string(4096, '\xff'),
                                   std::string("\xff\0\0\0\0\0\0\0\x01\x7f\x03\0NULL", 16)}) {
    const int fd = connect_to(port);
    EXPECT_EQ(send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL), static_cast<ssize_t>(bytes.size()));
    char ignored[256];
    timeval limit = {0, 200'000};
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    while (recv(fd, ignored, sizeof ignored, 0) > 0) {
    }
    close(fd);
  }
  a->set("key", "value");
  EXPECT_EQ(a->get("key", Clock::now() + 5s), "value");
  EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("refused a connection"));
}

TEST(StoreOverSockets, NothingListeningIsAnErrorAtTheDeadline) {
  const int fd = open_port(0);  // bound, so nobody else takes it; not listening
  const auto started = Clock::now();
  const Error error = thrown([&] {
    StoreClient("127.0.0.1:" + std::to_string(port_of(fd)), kToken, {0, 1, 0}, Clock::now() + 500ms);
  });
  EXPECT_EQ(error.code(), Code::kTimeout);
  EXPECT_THAT(error.message(), AllOf(HasSubstr("nothing listens at 127.0.0.1:"), HasSubstr("fix:")));
  EXPECT_LT(Clock::now() - started, 5s);
  close(fd);
}

TEST(StoreOverSockets, AListenerThatIsNoStoreIsAnErrorAtTheDeadline) {
  const int fd = open_port();
  const Error error = thrown([&] {
    StoreClient("127.0.0.1:" + std::to_string(port_of(fd)), kToken, {0, 1, 0}, Clock::now() + 500ms);
  });
  EXPECT_EQ(error.code(), Code::kTimeout);
  EXPECT_THAT(error.message(), HasSubstr("did not answer as a store of herd"));
  close(fd);
}

TEST(StoreOverSockets, AStoreThatIsGoneIsAnErrorWithinSeconds) {
  auto server = std::make_unique<StoreServer>(StoreAddress{}, kToken);
  auto a = join(*server, 0, 1);
  std::thread stopping([&] {
    std::this_thread::sleep_for(50ms);
    server.reset();
  });
  const auto started = Clock::now();
  const Error error = thrown([&] { a->get("never", Clock::now() + 30s); });
  stopping.join();
  EXPECT_EQ(error.code(), Code::kPeerLost);
  EXPECT_THAT(error.message(), HasSubstr("is gone"));
  EXPECT_LT(Clock::now() - started, 6s);
}

TEST(StoreOverSockets, AStoreThatWasStartedAgainOnThePortTellsItsOldClients) {
  auto server = std::make_unique<StoreServer>(StoreAddress{}, kToken);
  const StoreAddress same = parse_address(server->rendezvous());
  auto a = join(*server, 0, 1);
  server.reset();
  StoreServer second(same, kToken);
  const auto started = Clock::now();
  const Error error = thrown([&] { a->get("never", Clock::now() + 30s); });
  EXPECT_EQ(error.code(), Code::kPeerLost);
  EXPECT_THAT(error.message(), AllOf(HasSubstr("is gone"), HasSubstr("its process was started again")));
  EXPECT_LT(Clock::now() - started, 6s);
}

TEST(StoreOverSockets, KnowsWhoseConnectionEndedAndWhoCameLater) {
  StoreServer server({}, kToken);
  auto a = join(server, 0, 2);
  auto b = join(server, 1, 2);
  const auto of_rank = [&](size_t rank) { return server.peers(0)[rank]; };
  EXPECT_FALSE(of_rank(1).disconnected);
  EXPECT_GT(of_rank(1).joined, of_rank(0).joined);
  b.reset();
  const auto until = Clock::now() + 5s;
  while (!of_rank(1).disconnected && Clock::now() < until) std::this_thread::sleep_for(5ms);
  EXPECT_TRUE(of_rank(1).disconnected);
  EXPECT_FALSE(of_rank(0).disconnected);
}

TEST(StoreOverSockets, AClientThatComesAfterTheFailureIsToldAtOnce) {
  StoreServer server({}, kToken);
  server.fail(0, {Code::kStorage, "node 1 has left"});
  auto a = join(server, 0, 1);
  const auto until = Clock::now() + 5s;
  while (!a->reported_failure(0) && Clock::now() < until) std::this_thread::sleep_for(5ms);
  ASSERT_TRUE(a->reported_failure(0));
  EXPECT_EQ(a->reported_failure(0)->reason, "node 1 has left");
}

TEST(StoreOverSockets, ALauncherOfAnotherNumberOfNodesIsRefusedWithTheFix_AndTheStoreRemembersIt) {
  StoreServer server({}, kToken);
  auto first = join(server, 0, 2, kLaunchers);
  EXPECT_FALSE(server.refusal(kLaunchers));
  const Error error = thrown([&] { join(server, 1, 3, kLaunchers); });
  EXPECT_THAT(error.message(), AllOf(HasSubstr("node 1 expects 3 nodes in the job, but node 0 (process"),
                                     HasSubstr("fix: the same --nnodes on every node")));
  ASSERT_TRUE(server.refusal(kLaunchers));
  EXPECT_THAT(error.message(), HasSubstr(server.refusal(kLaunchers)->rule));
}

TEST(StoreOverSockets, ASecondJobOnThePortIsToldWhoHoldsIt) {
  StoreServer first({}, kToken);
  const StoreAddress same = parse_address(first.rendezvous());
  const Error error = thrown([&] { StoreServer(same, kToken); });
  EXPECT_EQ(error.code(), Code::kBadConfig);
  EXPECT_THAT(error.message(),
              AllOf(HasSubstr("port " + std::to_string(same.port) + " is taken by process " + std::to_string(getpid())),
                    HasSubstr("fix:")));
}

TEST(StoreOverSockets, AHostThatIsNotOursCannotListen) {
  const Error error = thrown([] { StoreServer({"192.0.2.1", 0}, kToken); });
  EXPECT_EQ(error.code(), Code::kBadConfig);
  EXPECT_THAT(error.message(), HasSubstr("192.0.2.1"));
}

TEST(StoreOverSockets, KeysThatAreTooLongAreRefusedInTheCaller) {
  StoreServer server({}, kToken);
  auto a = join(server, 0, 1);
  EXPECT_EQ(thrown([&] { a->set(std::string(kMaxKeyBytes + 1, 'k'), ""); }).code(), Code::kBadConfig);
}

TEST(StoreOverSockets, PublishesStatusWithTheHeartbeat) {
  StoreServer server({}, kToken);
  auto a = join(server, 0, 2), b = join(server, 1, 2);
  publish_status(*a, 0, "all_reduce #3 grad", 3);
  const auto until = Clock::now() + 20s;
  std::optional<Status> seen;
  while (!(seen = read_status(*b, 0)) && Clock::now() < until) {
  }
  ASSERT_TRUE(seen);
  EXPECT_EQ(seen->sequence, 3);
  EXPECT_EQ(seen->text, "all_reduce #3 grad");
  ASSERT_TRUE(heartbeat_age(*b, 0));
  EXPECT_LT(*heartbeat_age(*b, 0), 2000ms);
  EXPECT_FALSE(heartbeat_age(*b, 5));

  const auto publisher = [&] {
    const std::vector<ClientState> peers = server.peers(0);
    return *std::ranges::find(peers, 0, &ClientState::rank);
  };
  const ClientState first = publisher();
  while (publisher().status_heard == first.status_heard && Clock::now() < until) std::this_thread::sleep_for(20ms);
  EXPECT_GT(publisher().status_heard, first.status_heard);
  EXPECT_EQ(publisher().status_since, first.status_since);
  publish_status(*a, 0, "barrier #4", 4);
  while (publisher().status_since == first.status_since && Clock::now() < until) std::this_thread::sleep_for(20ms);
  EXPECT_GT(publisher().status_since, first.status_since);
}

// Counts those of the sockets that the other end has closed.
int64_t num_hung_up(const std::vector<int>& sockets) {
  return std::ranges::count_if(sockets, [](int one) {
    char byte = 0;
    const ssize_t got = recv(one, &byte, 1, MSG_DONTWAIT);
    return got == 0 || (got < 0 && errno != EAGAIN);
  });
}

TEST(StoreOverSockets, AnswersStrangersSlowly_WhileEverybodyIsConnected) {
  StoreServer server({}, kToken, 2);
  auto a = join(server, 0, 2), b = join(server, 1, 2);
  b->set("here", "yes");
  EXPECT_EQ(a->get("here", Clock::now() + 5s), "yes");
  std::vector<int> strangers;
  for (int i = 0; i < 60; ++i) {
    strangers.push_back(connect_to(parse_address(server.rendezvous()).port));
    send(strangers.back(), "GET /", 5, MSG_NOSIGNAL);
  }
  std::this_thread::sleep_for(1s);
  const int64_t slowly = num_hung_up(strangers);
  EXPECT_GT(slowly, 0);
  EXPECT_LE(slowly, 24) << "four in each quarter of a second";
  EXPECT_EQ(a->get("here", Clock::now() + 5s), "yes");
  b.reset();
  const auto until = Clock::now() + 5s;
  while (num_hung_up(strangers) < 60 && Clock::now() < until) std::this_thread::sleep_for(10ms);
  EXPECT_EQ(num_hung_up(strangers), 60) << "one is expected again, so all are heard";
  for (int one : strangers) close(one);
}

TEST(StoreOverSockets, AllRanksShareASecretThatDependsOnTheToken) {
  StoreServer server({}, kToken);
  auto a = join(server, 0, 2), b = join(server, 1, 2);
  EXPECT_EQ(job_secret(*a, {}), job_secret(*b, {}));
  EXPECT_EQ(job_secret(*a, {}).size(), 32u);
  EXPECT_NE(job_secret(*a, {}), derive_transport_key(kToken + "!"));
}

TEST(JobSecret, IsTheTokensInAStoreOfTheProgramsOwn_AndNeverMissing) {
  const MemoryStore store;
  Environment with_token;
  with_token.token = kToken;
  EXPECT_EQ(job_secret(store, with_token), derive_transport_key(kToken));
  EXPECT_EQ(thrown([&] { job_secret(store, {}); }).code(), Code::kBadConfig);
  EXPECT_THAT(thrown([&] { job_secret(store, {}); }).message(), HasSubstr("HERD_TOKEN_FILE"));
}

TEST(Keys, RefuseAWeakToken_WithTheRuleAndTheFix) {
  EXPECT_THAT(thrown([] { derive_transport_key("short"); }).message(),
              AllOf(HasSubstr("5 characters, 5 different ones: at least 32"), HasSubstr("fix: export HERD_TOKEN")));
  EXPECT_THAT(thrown([] { derive_store_key(std::string(64, '0')); }).message(),
              HasSubstr("64 characters, 1 different"));
  EXPECT_NE(derive_store_key(kToken), derive_transport_key(kToken));
}

TEST(LocalMeeting, TellsAddressAndTokenAndRefusesASecondJob) {
  const std::string id = "test-" + std::to_string(getpid());
  std::unique_ptr<LocalMeeting> meeting;
  std::thread later([&] {
    std::this_thread::sleep_for(50ms);
    meeting = std::make_unique<LocalMeeting>(id, MeetingPoint{"127.0.0.1:1", "t0"});
  });
  const MeetingPoint point = ask_local_meeting(id, Clock::now() + 5s);
  later.join();
  EXPECT_EQ(point.rendezvous, "127.0.0.1:1");
  EXPECT_EQ(point.token, "t0");
  EXPECT_THAT(thrown([&] { LocalMeeting(id, {"a", "b"}); }).message(), HasSubstr("has the id \"" + id + "\""));
  meeting.reset();
  EXPECT_EQ(thrown([&] { ask_local_meeting(id, Clock::now() + 60ms); }).code(), Code::kTimeout);
}

TEST(ConnectStore, MeetsOnOneHostWithoutAnAddress) {
  Environment env;
  env.source = "mpirun";
  env.size = env.local_size = 2;
  env.job_id = "test-connect-" + std::to_string(getpid());
  std::thread other([env]() mutable {
    env.rank = env.local_rank = 1;
    auto store = connect_store(env);
    store->set("from 1", "hello");
    EXPECT_EQ(store->get("from 0", Clock::now() + 5s), "hi");
  });
  {
    auto store = connect_store(env);
    EXPECT_EQ(store->get("from 1", Clock::now() + 5s), "hello");
    store->set("from 0", "hi");
  }
  other.join();
}

TEST(ConnectStore, IsMemoryForARankAlone) {
  auto store = connect_store(Environment{});
  EXPECT_EQ(store->add("n", 1), 1);
}

TEST(NumberedEnvironment, MeetsByNameAtLoopback_AndWithATokenAtAnAddress) {
  Environment by_name = numbered_environment({}, "tcp://127.0.0.1:29500", 1, 4);
  EXPECT_EQ(by_name.rendezvous, "");
  EXPECT_EQ(by_name.job_id, "tcp-29500");
  EXPECT_EQ(by_name.rank, 1);
  EXPECT_EQ(by_name.size, 4);
  Environment settings;
  settings.token = std::string(64, 'a');
  EXPECT_EQ(numbered_environment(settings, "tcp://127.0.0.1:29500", 0, 2).rendezvous, "127.0.0.1:29500");
  EXPECT_EQ(numbered_environment(settings, "tcp://10.1.2.3:29500", 0, 2).rendezvous, "10.1.2.3:29500");
}

TEST(NumberedEnvironment, NamesWhatIsWrong) {
  const auto message = [](const std::string& init_method, int rank, int size) {
    return thrown([&] { numbered_environment({}, init_method, rank, size); }).message();
  };
  EXPECT_THAT(message("tcp://10.1.2.3:29500", 0, 2), AllOf(HasSubstr("need a secret"), HasSubstr("HERD_TOKEN_FILE")));
  EXPECT_THAT(message("env://", 0, 2), HasSubstr("init_method = \"env://\" names no place"));
  EXPECT_THAT(message("", 0, 2), HasSubstr("fix: \"tcp://HOST:PORT\""));
  EXPECT_THAT(message("tcp://127.0.0.1:29500", 2, 2), HasSubstr("a world of 2 ranks has no rank 2"));
  EXPECT_EQ(thrown([&] { numbered_environment({}, "tcp://127.0.0.1", 0, 2); }).code(), Code::kBadConfig);
}

// Serves one client by hand: reads its hello, and returns it with the stream.
std::pair<std::unique_ptr<MessageStream>, Message> next_hello(net::Listener& listener) {
  const auto until = Clock::now() + 5s;
  std::unique_ptr<MessageStream> stream;
  while (Clock::now() < until) {
    for (auto& socket : listener.accept()) stream = std::make_unique<MessageStream>(std::move(socket));
    if (const auto frame = stream ? stream->next() : std::nullopt) return {std::move(stream), *decode(*frame)};
    std::this_thread::sleep_for(1ms);
  }
  throw std::runtime_error("no hello");
}

TEST(StoreOverSockets, SaysHelloAgain_WhereTheStoreClosedBeforeItAnswered) {
  const net::SecureContext context(derive_store_key(kToken));
  net::Listener listener(context, {"127.0.0.1"}, 0);
  std::thread server([&] {
    next_hello(listener);  // closes without an answer
    auto [stream, hello] = next_hello(listener);
    EXPECT_EQ(hello.verb, Verb::kHello);
    stream->post(encode({Verb::kOk, hello.id, hello.scope, "", ""}));
    stream->flush();
    std::this_thread::sleep_for(100ms);
  });
  EXPECT_NO_THROW(
      StoreClient("127.0.0.1:" + std::to_string(listener.port()), kToken, ClientIdentity{0, 2, 0}, Clock::now() + 4s));
  server.join();
}

// The store takes a heartbeat of a client that it does not know for one of a client of an earlier store.
TEST(StoreOverSockets, SendsNoHeartbeat_BeforeItsHelloIsAnswered) {
  const net::SecureContext context(derive_store_key(kToken));
  net::Listener listener(context, {"127.0.0.1"}, 0);
  std::thread server([&] {
    auto [stream, hello] = next_hello(listener);
    EXPECT_EQ(hello.verb, Verb::kHello);
    const auto until = Clock::now() + 500ms;  // two heartbeats and a half
    while (Clock::now() < until) {
      if (const auto frame = stream->next()) ADD_FAILURE() << "verb " << static_cast<int>(decode(*frame)->verb);
      std::this_thread::sleep_for(5ms);
    }
    stream->post(encode({Verb::kOk, hello.id, hello.scope, "", ""}));
    stream->flush();
    std::this_thread::sleep_for(100ms);
  });
  EXPECT_NO_THROW(
      StoreClient("127.0.0.1:" + std::to_string(listener.port()), kToken, ClientIdentity{0, 2, 0}, Clock::now() + 10s));
  server.join();
}

// On a machine with many more ranks than cores, a handshake may take longer than either end waits.
TEST(StoreOverSockets, AStoreThatIsTooBusyForItsHandshakesRefusesNobody) {
  const int fd = open_port();
  const int port = port_of(fd);
  const timeval limit = {.tv_sec = 5, .tv_usec = 0};  // where the client gives up, nobody connects any more
  ASSERT_EQ(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit), 0);
  std::unique_ptr<StoreServer> store;
  std::thread busy([&] {
    for (int i = 0; i < 5; ++i) close(accept(fd, nullptr, nullptr));
    close(fd);
    store = std::make_unique<StoreServer>(StoreAddress{.port = port}, kToken);
  });
  EXPECT_NO_THROW(StoreClient("127.0.0.1:" + std::to_string(port), kToken, {0, 2, 0}, Clock::now() + 20s));
  busy.join();
}

TEST(StoreOverSockets, AClientThatWasNotAnsweredYetTriesUntilItsDeadline) {
  const net::SecureContext context(derive_store_key(kToken));
  auto listener = std::make_unique<net::Listener>(context, std::vector<std::string>{"127.0.0.1"}, 0);
  const int port = listener->port();
  std::unique_ptr<StoreServer> store;
  std::thread busy([&] {
    next_hello(*listener);  // closes without an answer
    listener.reset();
    std::this_thread::sleep_for(2500ms);
    store = std::make_unique<StoreServer>(StoreAddress{.port = port}, kToken);
  });
  EXPECT_NO_THROW(StoreClient("127.0.0.1:" + std::to_string(port), kToken, {0, 2, 0}, Clock::now() + 20s));
  busy.join();
}

TEST(StoreOverSockets, RanksThatComeAtTheSameTimeDoNotCrowdEachOtherOut) {
  StoreServer server({}, kToken, 200);
  const int port = parse_address(server.rendezvous()).port;
  std::vector<int> sockets;
  for (int rank = 0; rank < 150; ++rank) sockets.push_back(connect_to(port));
  join(server, 0, 1);  // by now the others have been accepted
  for (const int socket : sockets) {
    char byte = 0;
    EXPECT_EQ(recv(socket, &byte, 1, MSG_DONTWAIT), -1) << "the store has closed it";
    close(socket);
  }
}

}  // namespace
}  // namespace herd::launch
