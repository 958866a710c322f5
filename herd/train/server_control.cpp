#include "herd/train/server_control.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "herd/base/error.h"
#include "herd/train/shared_error.h"

namespace herd::train {
namespace {

enum Tag : int { kCommandTag = 1, kContentTag, kAnswerTag };

constexpr std::chrono::seconds kFarewell{10};  // a server has them to hear that the run has failed
constexpr const char* kName = "control of the servers";

Buffer bytes_of(ServerCommand& command) { return {&command, static_cast<int64_t>(sizeof command), DType::kU8}; }
Buffer bytes_of(const std::string& text) {
  return {const_cast<char*>(text.data()), static_cast<int64_t>(text.size()), DType::kU8};
}
Buffer floats_of(std::span<const float> values) {
  return {const_cast<float*>(values.data()), static_cast<int64_t>(values.size()), DType::kF32};
}

}  // namespace

ServerControl::ServerControl(const Communicator& world, const spec::Layout& layout) {
  for (Rank rank = layout.world_size; rank < world.size(); ++rank) servers_.emplace_back(world, rank, kName);
}

void ServerControl::tell(ServerCommand command) {
  for (comm::Connection& server : servers_) server.send(bytes_of(command), kCommandTag);
}

void ServerControl::await_answers() {
  for (comm::Connection& server : servers_) {
    ServerCommand answer;
    server.receive(bytes_of(answer), kAnswerTag);
  }
}

void ServerControl::start(const std::string& name, int64_t updates_before, const param_server::KeyTable& keys,
                          const Weights& weights) {
  tell({.kind = ServerCommand::Kind::kStart,
        .updates = updates_before,
        .text_bytes = static_cast<int64_t>(name.size())});
  const int count = static_cast<int>(servers_.size());
  for (int place = 0; place < count; ++place) {
    comm::Connection& server = servers_[static_cast<size_t>(place)];
    server.send(bytes_of(name), kContentTag);
    for (int64_t key = 0; key < keys.size(); ++key) {
      const kernels::ElementRange piece = keys.piece(key, place, count);
      if (piece.size() > 0) server.send(floats_of(weights(key, piece.begin, piece.size())), kContentTag);
    }
  }
}

void ServerControl::await_lost(int64_t lost) {
  tell({.kind = ServerCommand::Kind::kAwaitLost, .lost = lost});
  await_answers();
}

void ServerControl::begin_save(int64_t step, int64_t sample) {
  tell({.kind = ServerCommand::Kind::kSave, .step = step, .sample = sample});
}

void ServerControl::await_saved() { await_answers(); }

void ServerControl::end(int64_t steps_done) {
  tell({.kind = ServerCommand::Kind::kEnd, .step = steps_done});
  ended_ = true;
}

void ServerControl::fail(const std::exception& error) noexcept {
  if (ended_) return;
  ended_ = true;
  const auto* shared = dynamic_cast<const SharedError*>(&error);
  for (comm::Connection& server : servers_) {
    try {
      ServerCommand command{.kind = ServerCommand::Kind::kFail};
      if (shared != nullptr) command.code = static_cast<int64_t>(shared->code());
      if (shared != nullptr)
        server.send(bytes_of(command), kCommandTag, kFarewell);
      else
        server.abort(error.what());
    } catch (const std::exception&) {  // it is gone already
    }
  }
}

ServerCommands::ServerCommands(const Communicator& world) : root_(world, Rank{0}, kName) {}

ServerCommand ServerCommands::next() {
  ServerCommand command;
  root_.receive(bytes_of(command), kCommandTag);
  return command;
}

void ServerCommands::answer() {
  ServerCommand done;
  root_.send(bytes_of(done), kAnswerTag);
}

std::string ServerCommands::receive_text(int64_t bytes) {
  std::string text(static_cast<size_t>(bytes), '\0');
  root_.receive(bytes_of(text), kContentTag);
  return text;
}

void ServerCommands::receive_weights(std::span<float> weights) { root_.receive(floats_of(weights), kContentTag); }

void ServerCommands::abort(const std::string& reason) noexcept {
  try {
    root_.abort(reason);
  } catch (const std::exception&) {  // rank 0 is gone already
  }
}

std::unique_ptr<ParameterServer> start_server(ServerCommands& commands, const ServerCommand& command,
                                              runtime::ServerShare& share, const Communicator& world) {
  share.set_name(commands.receive_text(command.text_bytes));
  const auto first_weights = std::make_shared<std::vector<std::unique_ptr<float[]>>>();  // until the server has them
  for (int64_t key = 0; key < share.keys().size(); ++key) {
    const auto count = static_cast<size_t>(share.served(key).size());
    first_weights->push_back(std::make_unique_for_overwrite<float[]>(count));
    if (count > 0) commands.receive_weights({first_weights->back().get(), count});
  }
  return share.start_server(world, command.updates, [first_weights](int64_t key, int64_t, std::span<float> weights) {
    const std::unique_ptr<float[]> first = std::move((*first_weights)[static_cast<size_t>(key)]);
    std::copy_n(first.get(), weights.size(), weights.begin());
  });
}

}  // namespace herd::train
