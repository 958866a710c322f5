#include "herd/program/verify_program.h"

#include <algorithm>

#include "herd/program/collective_message.h"
#include "herd/program/op_dependencies.h"
#include "herd/program/passes.h"
#include "herd/program/program_names.h"
#include "herd/program/program_symbols_internal.h"

namespace herd::program {
namespace {

constexpr int kSteps = 2;  // steps that each rank runs
constexpr size_t kMaxFindings = 20;

// Holds the symbol of a value, and whether an op has read it.
struct Cell {
  Symbol symbol;
  bool read = false;
};

// Holds the state of one rank while its unrolled steps run.
struct RankState {
  const Program* step = nullptr;
  std::vector<std::vector<Dependency>> waits;
  using LanePart = std::pair<Lane, bool>;      // the ops of a lane, or its deferred releases
  std::map<LanePart, std::vector<int>> lanes;  // positions, in order
  std::map<LanePart, size_t> heads;
  std::vector<bool> done;
  std::map<Value, Cell> memory;
  const Op& op(int position) const { return step->ops[static_cast<size_t>(position) % step->ops.size()]; }
  LanePart part(int position) const { return {op(position).lane, is_deferred_release(op(position))}; }
  int iteration(int position) const { return position / static_cast<int>(step->ops.size()); }
};

// Runs the programs of all ranks on symbols, and collects findings.
class SymbolicMachine {
 public:
  SymbolicMachine(const std::vector<Program>& programs, const Expectation& expected)
      : programs_(programs), model_(expected) {}

  std::vector<Finding> run() {
    if (!shapes_fit()) return std::move(findings_);
    for (size_t r = 0; r < programs_.size(); ++r) start(static_cast<int>(r));
    for (bool progress = true; progress && findings_.size() < kMaxFindings;) {
      progress = false;
      for (size_t r = 0; r < ranks_.size(); ++r) progress = advance(static_cast<int>(r)) || progress;
    }
    if (findings_.size() < kMaxFindings) finish();
    return std::move(findings_);
  }

 private:
  void add_finding(int rank, int op, const std::string& text) {
    if (findings_.size() < kMaxFindings) findings_.push_back({rank, op, text});
  }
  void add_finding_at(int rank, int position, const std::string& text) {
    const RankState& state = ranks_[static_cast<size_t>(rank)];
    const int n = static_cast<int>(state.step->ops.size());
    add_finding(rank, position % n, text + (position < n ? "" : " (in the second step)"));
  }

  bool shapes_fit() {
    const Expectation& expected = model_.expected();
    if (programs_.size() != static_cast<size_t>(expected.mesh.world_size)) {
      add_finding(0, -1,
                  "there are " + std::to_string(programs_.size()) + " programs for " +
                      std::to_string(expected.mesh.world_size) + " ranks");
    }
    for (size_t r = 0; r < programs_.size() && findings_.empty(); ++r) {
      const Program& p = programs_[r];
      const int rank = static_cast<int>(r);
      if (p.rank != rank) add_finding(rank, -1, "is the program of rank " + std::to_string(p.rank));
      if (p.block_groups != expected.block_groups || p.num_blocks != model_.num_blocks())
        add_finding(rank, -1, "is of another model");
      if (p.micro_batches != expected.micro_batches)
        add_finding(
            rank, -1,
            "has " + std::to_string(p.micro_batches) + " micro-batches, not " + std::to_string(expected.micro_batches));
      if (p.mesh != expected.mesh) add_finding(rank, -1, "is of another mesh");
      for (size_t i = 0; i < p.ops.size(); ++i) {
        for (const auto* side : {&p.ops[i].reads, &p.ops[i].writes}) {
          for (const Value& value : *side) {
            if (!p.values.contains(value))
              add_finding(rank, static_cast<int>(i), "names " + name(value) + ", which is not declared");
          }
        }
      }
    }
    return findings_.empty();
  }

  void start(int rank) {
    RankState state;
    state.step = &programs_[static_cast<size_t>(rank)];
    state.waits = dependencies(*state.step);
    const int total = kSteps * static_cast<int>(state.step->ops.size());
    state.done.assign(static_cast<size_t>(total), false);
    for (int position = 0; position < total; ++position) state.lanes[state.part(position)].push_back(position);
    for (const auto& [lane, positions] : state.lanes) state.heads[lane] = 0;
    const Proof& proof = model_.expected().proof;
    const Mesh& mesh = model_.expected().mesh;
    for (const auto& [value, info] : state.step->values) {
      const bool is_kept =
          value.kind == ValueKind::kWeight || value.kind == ValueKind::kState || value.kind == ValueKind::kResidual;
      if (!info.persistent || !is_kept || !model_.groups_of(rank).contains(value.index)) continue;
      const int axis = model_.has_experts(value.index) ? proof.expert_shard_axis : proof.shard_axis;
      const bool fits =
          value.kind == ValueKind::kWeight && value.codec == proof.weight_codec && !value.placement.is_whole();
      if (value.codec != Codec::kPlain && !fits)
        add_finding(rank, -1, "keeps " + name(value) + ", which is encoded, from step to step");
      Symbol symbol{value.kind, value.index, 0, 0, 1, {}};
      symbol.lost = value.codec;
      set_piece(rank, *state.step, value, symbol);
      const int owner = model_.owner_of(value.index);
      if (owner != kNoOwner && value.placement == kWhole.owned_on(axis)) {
        symbol.owned = true;
        if (mesh.index(axis, rank) != owner)
          add_finding(rank, -1,
                      "keeps " + name(value) + ", which place " + std::to_string(owner) + " of " +
                          axis_name(mesh, axis) + " owns");
      } else if (owner == kNoOwner && value.placement == kWhole.shard_on(axis))
        symbol.shard = mesh.index(axis, rank), symbol.shards = mesh.size(axis);
      else if (!value.placement.is_whole())
        add_finding(rank, -1, "keeps " + name(value) + ", where shards are cut along " + axis_name(mesh, axis));
      state.memory[value] = {symbol, true};  // counts as read before the first step
    }
    add_waiting(rank, state);
    for (int block = 0; block < model_.num_blocks(); ++block) {
      const bool held = model_.keeps_cache(block) && state.step->values.contains(cache(block));
      if (!held || !model_.expected().continues_caches) continue;
      const Symbol symbol{.kind = ValueKind::kCache, .atoms = {{block, 0, model_.data_rank(rank), 0}}};
      state.memory[cache(block)] = {symbol, true};
    }
    ranks_.push_back(std::move(state));
  }

  // Says which piece of its group a value is, and checks that all of them are kept.
  void set_piece(int rank, const Program& step, const Value& value, Symbol& symbol) {
    if (value.tensor == 0) return;
    symbol.tensor = value.tensor;
    symbol.pieces = 0;
    for (Value piece = value; piece.tensor = symbol.pieces + 1, step.values.contains(piece);) ++symbol.pieces;
    if (value.tensor > symbol.pieces) add_finding(rank, -1, "keeps " + name(value) + ", but not all pieces before it");
  }

  // Adds what an update of the first step finds where updates are delayed: gradients and the factor of the step before.
  void add_waiting(int rank, RankState& state) const {
    const Proof& proof = model_.expected().proof;
    if (proof.update_delay == 0) return;
    const Mesh& mesh = model_.expected().mesh;
    for (const auto& [value, info] : state.step->values) {
      const bool waits = value.kind == ValueKind::kGradient || value.kind == ValueKind::kFactor;
      if (!info.persistent || !waits || value.tier != Tier::kHost) continue;
      Symbol symbol{.kind = value.kind, .index = value.index, .version = -proof.update_delay};
      symbol.tensor = value.tensor;
      if (value.kind == ValueKind::kGradient) symbol.atoms = model_.contributions(value.index, rank);
      const bool has_experts = value.kind == ValueKind::kGradient && model_.has_experts(value.index);
      const int axis = has_experts ? proof.expert_shard_axis : proof.shard_axis;
      if (value.placement == kWhole.owned_on(axis) && axis != kNoAxis)
        symbol.owned = true;
      else if (value.placement == kWhole.shard_on(axis))
        symbol.shard = mesh.index(axis, rank), symbol.shards = mesh.size(axis);
      state.memory[value] = {std::move(symbol), true};
    }
  }

  std::string name(const Value& value) const { return value_name(model_.expected().mesh, value); }

  // Checks that what an op makes is placed as the value's name says. Symbols of graphs have no placement.
  void check_name(int rank, int position, const Value& value, const Symbol& symbol) {
    const bool has_placement = value.kind == ValueKind::kWeight || value.kind == ValueKind::kGradient ||
                               value.kind == ValueKind::kState || is_activation_or_gradient(value);
    if (!has_placement) return;
    if (!is_activation_or_gradient(value) && symbol.tensor != value.tensor)
      add_finding_at(rank, position,
                     "writes " + name(value) + ", but what it makes is " +
                         (symbol.tensor == 0 ? std::string("no piece") : "piece " + std::to_string(symbol.tensor)));
    const Mesh& mesh = model_.expected().mesh;
    int shards = 1;
    std::map<int, Dimension> named, made;  // axes that cut an activation
    for (int axis = 0; axis < static_cast<int>(mesh.axes.size()); ++axis) {
      if (!value.placement.is_shard(axis)) continue;
      if (is_activation_or_gradient(value))
        named[axis] = value.placement.dimension(axis);
      else
        shards *= mesh.size(axis);
    }
    for (const auto& [axis, cut] : symbol.cuts) made[axis] = cut.by;
    if (shards == symbol.shards && named == made && (value.placement.partial != 0) == symbol.partial &&
        (value.placement.owned != 0) == symbol.owned)
      return;
    add_finding_at(rank, position,
                   "writes " + name(value) + ", but what it makes is " +
                       (symbol.partial                     ? std::string("partial")
                        : symbol.owned                     ? std::string("at its owner alone")
                        : is_activation_or_gradient(value) ? cuts_text(mesh, symbol.cuts)
                                                           : "1 of " + std::to_string(symbol.shards) + " shards"));
  }

  bool ready(const RankState& state, int position) const {
    const int n = static_cast<int>(state.step->ops.size());
    for (const Dependency& dependency : state.waits[static_cast<size_t>(position % n)]) {
      const int earlier = position - position % n - dependency.distance * n + dependency.op;
      if (earlier >= 0 && !state.done[static_cast<size_t>(earlier)]) return false;
    }
    return true;
  }

  bool advance(int rank) {
    bool progress = false;
    RankState& state = ranks_[static_cast<size_t>(rank)];
    for (auto& [lane, positions] : state.lanes) {
      while (state.heads[lane] < positions.size() && findings_.size() < kMaxFindings) {
        const int position = positions[state.heads[lane]];
        if (!ready(state, position) || !run_op(rank, position)) break;
        progress = true;
      }
    }
    return progress;
  }

  void complete(int rank, int position) {
    RankState& state = ranks_[static_cast<size_t>(rank)];
    state.done[static_cast<size_t>(position)] = true;
    ++state.heads[state.part(position)];
  }

  // Runs an op, and returns false if it has to wait for another rank.
  bool run_op(int rank, int position) {
    const Op& op = ranks_[static_cast<size_t>(rank)].op(position);
    if (is_collective(op)) return run_collective_op(rank, position);
    if (is_pass(op) && op.axis != kNoAxis) return run_joint_op(rank, position);
    if (op.kind == OpKind::kSend || op.kind == OpKind::kReceive) return run_message(rank, position);
    if (op.kind == OpKind::kPush || op.kind == OpKind::kPull) return run_server_op(rank, position);
    if (op.kind == OpKind::kRelease)
      release(rank, position);
    else
      run_alone(rank, position);
    complete(rank, position);
    return true;
  }

  void run_alone(int rank, int position) {
    OpContext context = read(rank, position);
    const std::vector<Symbol> results = run_local(model_, context);
    for (const std::string& text : context.wrong) add_finding_at(rank, position, text);
    write(rank, position, results);
  }

  // Returns the positions of all members of the op's group once each has come to an op of this lane; nothing before.
  // Sets `group_exists` to false and adds a finding if there is no such group.
  std::map<int, int> meet(int rank, int position, bool& group_exists) {
    const Op& op = ranks_[static_cast<size_t>(rank)].op(position);
    const Mesh& mesh = model_.expected().mesh;
    const bool axis_exists = op.axis >= 0 && op.axis < static_cast<int>(mesh.axes.size());
    group_exists = axis_exists && mesh.index(op.axis, rank) >= 0;
    if (!group_exists) {
      add_finding_at(rank, position,
                     "is on " + axis_name(mesh, op.axis) +
                         (axis_exists ? ", which this rank is no member of" : ", which the mesh does not have"));
      return {};
    }
    const std::vector<int> members = mesh.ranks(op.axis, rank);
    auto& waiting = waiting_[{op.axis, members.front(), op.lane}];
    if (!waiting.try_emplace(rank, position).second || waiting.size() < members.size()) return {};
    std::map<int, int> all = std::move(waiting);
    waiting_.erase({op.axis, members.front(), op.lane});
    return all;
  }

  // Runs an op that the ranks of an axis compute together; false until all have come to it.
  bool run_joint_op(int rank, int position) {
    bool group_exists = true;
    const std::map<int, int> all = meet(rank, position, group_exists);
    if (!group_exists) complete(rank, position);
    if (all.empty()) return !group_exists;
    const Op& op = ranks_[static_cast<size_t>(rank)].op(position);
    for (const auto& [member, at] : all) {
      const Op& other = ranks_[static_cast<size_t>(member)].op(at);
      if (other.kind != op.kind || other.block != op.block || other.micro_batch != op.micro_batch)
        add_finding_at(rank, position,
                       "meets another op on rank " + std::to_string(member) + ": " +
                           describe(*ranks_[static_cast<size_t>(member)].step, other));
      run_alone(member, at);
    }
    for (const auto& [member, at] : all) complete(member, at);
    return true;
  }

  // Runs a send and its receive together, since nothing holds a message on its way; false until both are there.
  bool run_message(int rank, int position) {
    const Op& op = ranks_[static_cast<size_t>(rank)].op(position);
    const bool sends = op.kind == OpKind::kSend;
    const Mesh& mesh = model_.expected().mesh;
    const bool is_member =
        op.axis >= 0 && op.axis < static_cast<int>(mesh.axes.size()) && mesh.index(op.axis, rank) >= 0;
    std::string wrong;
    if (!is_member || op.peer < 0 || op.peer >= mesh.size(op.axis) || op.peer == mesh.index(op.axis, rank))
      wrong = "has no rank at the other end: " + axis_name(mesh, op.axis) + " " + std::to_string(op.peer);
    if (op.reads.size() != (sends ? 1u : 0u) || op.writes.size() != (sends ? 0u : 1u))
      wrong = sends ? "must read one value and write none" : "must write one value and read none";
    if (!wrong.empty()) {
      add_finding_at(rank, position, wrong);
      complete(rank, position);
      return true;
    }
    const int other = mesh.peer(op.axis, rank, op.peer);
    const std::pair<int, int> ranks = sends ? std::pair(rank, other) : std::pair(other, rank);
    (sends ? sends_ : receives_)[ranks] = position;
    const auto send = sends_.find(ranks), receive = receives_.find(ranks);
    if (send == sends_.end() || receive == receives_.end()) return false;
    OpContext context = read(ranks.first, send->second);
    for (const std::string& text : context.wrong) add_finding_at(ranks.first, send->second, text);
    const Value& from = context.op.reads[0];
    const Value& to = ranks_[static_cast<size_t>(ranks.second)].op(receive->second).writes[0];
    const Value term = placed(from, from.placement.partial_on(op.axis));
    const bool is_term = from.kind == ValueKind::kActivationGradient && to == term && to != from;
    if (from != to && !is_term)
      add_finding_at(ranks.second, receive->second, "takes " + name(from) + " for " + name(to));
    context.reads[0].partial = context.reads[0].partial || is_term;
    write(ranks.second, receive->second, context.reads);
    const int sent = send->second, received = receive->second;
    sends_.erase(send);
    receives_.erase(receive);
    complete(ranks.first, sent);
    complete(ranks.second, received);
    return true;
  }

  // Runs a push or a pull; false for a pull that waits for pushes of other ranks.
  bool run_server_op(int rank, int position) {
    const Op& op = ranks_[static_cast<size_t>(rank)].op(position);
    const Mesh& mesh = model_.expected().mesh;
    const Proof& proof = model_.expected().proof;
    const bool has_servers = proof.has_servers() && op.axis == proof.shard_axis && mesh.index(op.axis, rank) >= 0;
    if (!has_servers) add_finding_at(rank, position, "is on " + axis_name(mesh, op.axis) + ", which has no servers");
    if (!has_servers || op.reads.empty()) {
      complete(rank, position);
      return true;
    }
    const std::vector<int> members = mesh.ranks(op.axis, rank);
    ServedGroup& served = servers_[{op.axis, members.front(), op.reads[0].index}];
    if (op.kind == OpKind::kPull) {
      auto& pushes = served.parts[{op.part, op.parts}].pushes;
      const size_t own_pushes = pushes[rank].size();
      const auto lags = [&](int member) {
        return pushes[member].size() + static_cast<size_t>(proof.staleness) < own_pushes;
      };
      if (proof.staleness != kNoBound && std::any_of(members.begin(), members.end(), lags)) return false;
    }
    OpContext context = read(rank, position);
    const std::vector<Symbol> results =
        op.kind == OpKind::kPush ? run_push(model_, context, served) : run_pull(model_, context, served, members);
    for (const std::string& text : context.wrong) add_finding_at(rank, position, text);
    write(rank, position, results);
    complete(rank, position);
    return true;
  }

  // Runs a collective; false until all its ranks have come to it.
  bool run_collective_op(int rank, int position) {
    const Op& op = ranks_[static_cast<size_t>(rank)].op(position);
    bool group_exists = true;
    const std::map<int, int> all = meet(rank, position, group_exists);
    if (!group_exists) complete(rank, position);
    if (all.empty()) return !group_exists;
    const std::vector<int> members = model_.expected().mesh.ranks(op.axis, rank);
    std::vector<OpContext> contexts;
    for (const int member : members) {
      contexts.push_back(read(member, all.at(member)));
      const Op& other = contexts.back().op;
      if (!is_same_collective(op, other)) {
        add_finding_at(rank, position,
                       "meets another collective on rank " + std::to_string(member) + ": " +
                           std::string(op_name(other.kind)) + " " +
                           subject(*ranks_[static_cast<size_t>(member)].step, other));
        for (const int m : members) complete(m, all.at(m));
        return true;
      }
    }
    const auto results = run_collective(model_, contexts);
    for (size_t q = 0; q < members.size(); ++q) {
      for (const std::string& text : contexts[q].wrong) add_finding_at(members[q], all.at(members[q]), text);
      write(members[q], all.at(members[q]), results[q]);
      complete(members[q], all.at(members[q]));
    }
    return true;
  }

  // Tells whether two ranks of a group mean the same collective. Of a broadcast or a reduce the owner has values that
  // the others lack.
  static bool is_same_collective(const Op& op, const Op& other) {
    if (other.kind != op.kind || other.part != op.part || other.parts != op.parts || other.peer != op.peer)
      return false;
    if (is_rooted(op)) return moved_values(other) == moved_values(op);
    return other.reads == op.reads && other.writes == op.writes;
  }

  OpContext read(int rank, int position) {
    RankState& state = ranks_[static_cast<size_t>(rank)];
    OpContext context{.op = state.op(position),
                      .rank = rank,
                      .step = state.iteration(position),
                      .data_rank = model_.data_rank(rank),
                      .tensor_rank = model_.place_of(Divided::kLayers, rank),
                      .gradient_rank = model_.gradient_rank(rank)};
    for (const Value& value : context.op.reads) {
      const auto cell = state.memory.find(value);
      if (cell == state.memory.end()) {
        context.wrong.push_back("reads " + name(value) + ", which holds nothing");
        context.reads.push_back({.kind = value.kind, .index = value.index, .version = context.step});
        continue;
      }
      if (cell->second.symbol.kind != value.kind)
        context.wrong.push_back("reads " + name(value) + ", which holds one of " +
                                std::string(kind_name(cell->second.symbol.kind)));
      cell->second.read = true;
      context.reads.push_back(cell->second.symbol);
    }
    return context;
  }

  // Says whether a value must be read before it is overwritten or released. Losses, logits and the caches that a pass
  // begins are read after the program, and a rank that updates nothing does not use the factor.
  bool must_be_read(int rank, const Value& value) const {
    if (value.kind == ValueKind::kLoss || value.kind == ValueKind::kLogits) return false;
    if (value.kind == ValueKind::kCache) return model_.expected().continues_caches;
    return value.kind != ValueKind::kFactor || model_.trains(rank);
  }

  void write(int rank, int position, const std::vector<Symbol>& results) {
    RankState& state = ranks_[static_cast<size_t>(rank)];
    const Op& op = state.op(position);
    for (size_t i = 0; i < op.writes.size() && i < results.size(); ++i) {
      const Value& value = op.writes[i];
      check_name(rank, position, value, results[i]);
      const auto old = state.memory.find(value);
      const bool is_other_part = is_served(op) && op.part > 0;  // which rounds it has is checked with the pull
      if (old != state.memory.end() && !old->second.read && must_be_read(rank, value) && !is_other_part) {
        add_finding_at(rank, position, "overwrites " + name(value) + ", which nobody has read");
      }
      const int slot = state.step->values.at(value).slot;
      for (auto other = state.memory.begin(); slot >= 0 && other != state.memory.end();) {
        const bool in_slot = other->first != value && state.step->values.at(other->first).slot == slot;
        if (in_slot && placed(other->first, value.placement) == value) {
          // A shard lies inside its whole. A gather completes the whole around the shard, and a broadcast leaves what
          // its owner has; another write to one of them spoils the other.
          if (op.kind != OpKind::kAllGather && op.kind != OpKind::kBroadcast) other->second.symbol.version = kSpoiled;
          ++other;
        } else if (in_slot) {
          add_finding_at(
              rank, position,
              "writes " + name(value) + " to slot " + std::to_string(slot) + " while it holds " + name(other->first));
          other = state.memory.erase(other);
        } else {
          ++other;
        }
      }
      state.memory[value] = {results[i], false};
    }
  }

  void release(int rank, int position) {
    RankState& state = ranks_[static_cast<size_t>(rank)];
    for (const Value& value : state.op(position).writes) {
      const auto cell = state.memory.find(value);
      if (cell == state.memory.end()) {
        add_finding_at(rank, position, "releases " + name(value) + ", which holds nothing");
        continue;
      }
      if (!cell->second.read && must_be_read(rank, value))
        add_finding_at(rank, position, "releases " + name(value) + ", which nobody has read");
      state.memory.erase(cell);
    }
  }

  void finish() {
    bool stuck = false;
    for (size_t r = 0; r < ranks_.size(); ++r) {
      for (const auto& [lane, positions] : ranks_[r].lanes) {
        const size_t head = ranks_[r].heads.at(lane);
        if (head >= positions.size()) continue;
        stuck = true;
        add_finding_at(static_cast<int>(r), positions[head],
                       "never runs: lane " + std::string(lane_name(lane.first)) + " waits for ever");
      }
    }
    if (stuck) return;
    for (auto& [key, served] : servers_) {  // where ranks run ahead, nobody has waited for the last rounds
      const auto& [axis, first, group] = key;
      for (auto& [numbers, part] : served.parts) {
        for (const std::string& text : check_rounds(model_, part, group, model_.expected().mesh.ranks(axis, first)))
          add_finding(first, -1, text);
      }
    }
    for (size_t r = 0; r < ranks_.size(); ++r) check_end(static_cast<int>(r));
  }

  // Checks the caches that the next pass reads, and the logits from which a token is sampled.
  void check_caches(int rank) {
    const RankState& state = ranks_[static_cast<size_t>(rank)];
    const auto is_kept = [&](const Value& value, int version) {
      const auto cell = state.memory.find(value);
      if (cell == state.memory.end() || !state.step->values.at(value).persistent)
        add_finding(rank, -1, "keeps no " + name(value));
      else if (cell->second.symbol.version != version)
        add_finding(rank, -1,
                    name(value) + " is at version " + std::to_string(cell->second.symbol.version) + " after " +
                        std::to_string(kSteps) + " passes");
    };
    for (int block = 0; block < model_.num_blocks(); ++block) {
      if (model_.runs(rank, block) && model_.keeps_cache(block)) is_kept(cache(block), kSteps);
    }
    const bool samples = !model_.expected().block_caches.empty() && model_.runs(rank, model_.num_blocks() - 1);
    for (int m = 0; samples && m < model_.expected().micro_batches; ++m) is_kept(logits(m), kSteps - 1);
  }

  void check_end(int rank) {
    check_caches(rank);
    const RankState& state = ranks_[static_cast<size_t>(rank)];
    std::map<int, int> weights, states;
    for (const auto& [value, cell] : state.memory) {
      const bool is_kept =
          value.kind == ValueKind::kWeight || value.kind == ValueKind::kState || value.kind == ValueKind::kResidual;
      if (!state.step->values.at(value).persistent) {
        if (model_.expected().proof.released) add_finding(rank, -1, name(value) + " is never released");
      } else if (is_kept) {
        if (value.kind != ValueKind::kResidual && value.codec == Codec::kPlain)
          ++(value.kind == ValueKind::kWeight ? weights : states)[value.index];
        if (value.codec == Codec::kPlain && cell.symbol.lost != Codec::kPlain)
          add_finding(rank, -1,
                      name(value) + " has lost what " + std::string(codec_name(cell.symbol.lost)) + " does not keep");
        if (cell.symbol.version != model_.version(value.index, kSteps))
          add_finding(rank, -1,
                      name(value) + " is at version " + std::to_string(cell.symbol.version) + " after " +
                          std::to_string(kSteps) + " steps");
      }
    }
    const Proof& proof = model_.expected().proof;
    const int place = proof.shard_axis == kNoAxis ? 0 : model_.expected().mesh.index(proof.shard_axis, rank);
    const bool serves = !proof.has_servers() || place < proof.num_servers;
    for (const int group : model_.groups_of(rank)) {
      const int owner = model_.owner_of(group);
      const bool owns = owner == kNoOwner || owner == place, keeps_states = serves && owns;
      if (weights[group] == 0 && owns) add_finding(rank, -1, "keeps no weights of group " + std::to_string(group));
      if (states[group] > 0 && !owns)
        add_finding(rank, -1,
                    "keeps a state of group " + std::to_string(group) + ", which place " + std::to_string(owner) +
                        " of " + axis_name(model_.expected().mesh, proof.shard_axis) + " owns");
      const bool frozen = model_.expected().frozen_groups.contains(group);
      if (keeps_states && states[group] == 0 && !frozen)
        add_finding(rank, -1, "keeps no state of group " + std::to_string(group));
      if (states[group] > 0 && frozen) add_finding(rank, -1, "keeps a state of frozen group " + std::to_string(group));
    }
  }

  const std::vector<Program>& programs_;
  const Model model_;
  std::vector<RankState> ranks_;
  // (axis, first member, lane) -> rank -> position of an op that waits.
  std::map<std::tuple<int, int, Lane>, std::map<int, int>> waiting_;
  std::map<std::pair<int, int>, int> sends_, receives_;       // (from, to) -> position of an op that waits
  std::map<std::tuple<int, int, int>, ServedGroup> servers_;  // (axis, first member, parameter group)
  std::vector<Finding> findings_;
};

}  // namespace

std::vector<Finding> verify(const std::vector<Program>& programs, const Expectation& expected) {
  return SymbolicMachine(programs, expected).run();
}

std::string to_string(const std::vector<Finding>& findings, const std::vector<Program>& programs) {
  std::string out;
  for (const Finding& finding : findings) {
    out += "rank " + std::to_string(finding.rank) + ", ";
    const auto r = static_cast<size_t>(finding.rank);
    if (finding.op >= 0 && r < programs.size() && static_cast<size_t>(finding.op) < programs[r].ops.size()) {
      const Op& op = programs[r].ops[static_cast<size_t>(finding.op)];
      const std::string of = subject(programs[r], op);
      out += "op " + std::to_string(finding.op) + " " + std::string(op_name(op.kind)) +
             (of.empty() ? "" : " of " + of) + " ";
    } else {
      out += "the program: ";
    }
    out += finding.text + "\n";
  }
  return out;
}

}  // namespace herd::program
