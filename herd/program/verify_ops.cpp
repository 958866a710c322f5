// Defines what each kind of op does to symbols, and checks that the op is right.
#include <algorithm>
#include <map>

#include "herd/program/collective_message.h"
#include "herd/program/program_names.h"
#include "herd/program/program_symbols_internal.h"

namespace herd::program {
namespace {

std::string blocks_text(const std::set<Atom>& atoms) {
  std::string out;
  int shown = 0;
  for (const auto& [block, micro_batch, data_rank, part] : atoms) {
    if (++shown > 3) return out + ", ..";
    out += (out.empty() ? "" : ", ") + std::string("block ") + std::to_string(block) + " mb " +
           std::to_string(micro_batch) + " of data rank " + std::to_string(data_rank) +
           (part > 0 ? " part " + std::to_string(part) : "");
  }
  return out;
}

std::set<Atom> minus(const std::set<Atom>& a, const std::set<Atom>& b) {
  std::set<Atom> out;
  std::set_difference(a.begin(), a.end(), b.begin(), b.end(), std::inserter(out, out.begin()));
  return out;
}

Value in_piece(Value value, int piece) {
  value.tensor = piece;
  return value;
}

// Checks an op that a rank runs alone, and returns the symbols that it writes.
class LocalOp {
 public:
  LocalOp(const Model& model, OpContext& context) : model_(model), context_(context) {}

  std::vector<Symbol> run() {
    check_plain();
    switch (context_.op.kind) {
      case OpKind::kLoad:
        return run_block_op(0, 0);
      case OpKind::kForward:
      case OpKind::kRecompute:
      case OpKind::kBackward:
        return run_block_op(0, model_.num_blocks() - 2);
      case OpKind::kBackwardWeight:
        return run_block_op(0, model_.num_blocks() - 1);
      case OpKind::kLoss:
      case OpKind::kLogits:
        return run_block_op(model_.num_blocks() - 1, model_.num_blocks() - 1);
      case OpKind::kNorm:
        return norms();
      case OpKind::kClip:
        return clip();
      case OpKind::kStep:
        return step();
      case OpKind::kFetch:
      case OpKind::kEvict:
      case OpKind::kEncode:
      case OpKind::kDecode:
        return copies();
      case OpKind::kAdd:
        return sum();
      default:
        return {};
    }
  }

 private:
  std::string name(const Value& value) const { return value_name(model_.expected().mesh, value); }
  void wrong(const std::string& text) { context_.wrong.push_back(text); }
  Atom own_atom(int block) const { return {block, context_.op.micro_batch, context_.data_rank, 0}; }
  // Returns what names a value of `block` that holds the rows of all ranks with experts.
  std::set<Atom> atoms_of_sources(int block) const {
    std::set<Atom> out;
    for (const int source : model_.sources(context_.rank)) out.insert({block, context_.op.micro_batch, source, 0});
    return out;
  }
  // Returns what names a value of `block` that the op's block reads or makes.
  std::set<Atom> atoms(int block) const {
    return model_.is_by_experts(context_.op.block) ? atoms_of_sources(block) : std::set<Atom>{own_atom(block)};
  }

  // Returns what an op of a block must read, besides weights and the gradients that it adds to: the kind, and the block
  // or tensor.
  using Input = std::pair<ValueKind, spec::TensorId>;
  std::multiset<Input> inputs() const {
    std::multiset<Input> out;
    const int block = context_.op.block;
    if (context_.op.kind == OpKind::kLoad) return out;
    if (context_.op.kind == OpKind::kBackwardWeight) return {{ValueKind::kPending, block}};
    if (context_.op.kind == OpKind::kBackward) {
      out = {{ValueKind::kGraph, block}};
      for (const spec::TensorId tensor : model_.outputs_with_gradient(block))
        out.insert({ValueKind::kActivationGradient, tensor});
      // A graph that is a shard lacks the block's inputs, so backward reads them, too.
      const auto without_inputs = [&](const Value& value) {
        return value.kind == ValueKind::kGraph && value.placement.shard != 0;
      };
      if (std::none_of(context_.op.reads.begin(), context_.op.reads.end(), without_inputs)) return out;
    }
    for (const spec::TensorId input : model_.inputs_of(block)) out.insert({ValueKind::kActivation, input});
    if (context_.op.kind == OpKind::kLoss && model_.expected().has_targets) out.insert({ValueKind::kTarget, 0});
    if (keeps_cache() && model_.expected().continues_caches) out.insert({ValueKind::kCache, block});
    if (const int routes = read_routing(); routes >= 0) out.insert({ValueKind::kRouting, routes});
    return out;
  }

  bool makes_graph() const {
    return std::ranges::any_of(context_.op.writes, [](const Value& value) { return value.kind == ValueKind::kGraph; });
  }
  bool is_forward() const { return context_.op.kind == OpKind::kForward || context_.op.kind == OpKind::kRecompute; }
  // Returns the block whose routing the op must read; -1 for none. A pass that is computed again takes over what the
  // first one has chosen.
  int read_routing() const {
    const int block = context_.op.block, routes = model_.routed_by(block);
    if (!is_forward()) return -1;
    if (routes >= 0 && routes != block) return routes;
    return model_.keeps_routing(block) && makes_graph() ? block : -1;
  }
  // Tells whether the op must write what its router has chosen.
  bool writes_routing() const {
    const int block = context_.op.block;
    if (!is_forward() || read_routing() >= 0) return false;
    return model_.routed_by(block) == block || model_.keeps_routing(block);
  }

  // Returns how the routing lies that a pass makes: where ranks share experts, it lacks the counts of the others.
  Placement own_routing() const {
    const bool is_shared = model_.routed_by(context_.op.block) >= 0;
    return is_shared ? kWhole.shard_on(model_.axis_of(Divided::kExperts)) : kWhole;
  }

  bool keeps_cache() const { return context_.op.kind == OpKind::kForward && model_.keeps_cache(context_.op.block); }

  // Returns the contributions of which a value must consist. All blocks that read an activation contribute to its
  // gradient; any other value is of one block.
  std::set<Atom> expected_of(const Value& value) const {
    if (value.kind == ValueKind::kTarget) return {own_atom(-1)};
    if (value.kind == ValueKind::kRouting && model_.routed_by(context_.op.block) >= 0)
      return atoms_of_sources(value.index);
    if (value.kind != ValueKind::kActivationGradient) return atoms(value.index);
    std::set<Atom> out;
    for (const int reader : model_.readers_of(tensor_of(value))) out.merge(atoms(reader));
    return out;
  }

  // Says whether ranks of the tensor axis share the value. Tokens, targets and graphs are each rank's own.
  bool is_placed(const Value& value) const {
    return (value.kind == ValueKind::kActivation && value.index > 0) || value.kind == ValueKind::kActivationGradient;
  }
  void check_placement(const Value& value, const Symbol& symbol) {
    if (!is_placed(value)) return;
    const std::map<int, Cut> needed = model_.cuts_of(context_.op.block, tensor_of(value), context_.rank);
    const Mesh& mesh = model_.expected().mesh;
    if (symbol.partial)
      wrong("reads " + name(value) + ", which is partial");
    else if (symbol.cuts != needed)
      wrong("reads " + name(value) + ", which is " + cuts_text(mesh, symbol.cuts) + ", where it needs " +
            cuts_text(mesh, needed));
  }
  // Returns the symbol as its block makes it: a part of the rows or heads, a partial sum, or whole.
  Symbol as_split(const Value& value, Symbol symbol) const {
    const spec::Split split = model_.split_of(context_.op.block);
    symbol.cuts = model_.cuts_of(context_.op.block, tensor_of(value), context_.rank);
    if (split != spec::Split::kCut || model_.is_by_heads(tensor_of(value)) || model_.is_whole(tensor_of(value)))
      return symbol;
    symbol.partial = true;
    std::set<Atom> parts;
    for (auto [block, micro_batch, data, part] : symbol.atoms)
      parts.insert({block, micro_batch, data, context_.tensor_rank});
    symbol.atoms = std::move(parts);
    return symbol;
  }

  int update_delay() const { return model_.expected().proof.update_delay; }

  // Tells whether the group's weights come from parameter servers.
  bool is_served(int group) const { return model_.expected().proof.has_servers() && model_.version(group, 1) > 0; }

  // Checks an op of a block: it reads the weights, its inputs, and in backward the gradients to which it adds.
  std::vector<Symbol> run_block_op(int first_block, int last_block) {
    const Op& op = context_.op;
    const bool loads = op.kind == OpKind::kLoad, differentiates = op.kind == OpKind::kBackward ||
                                                                  op.kind == OpKind::kLoss ||
                                                                  op.kind == OpKind::kBackwardWeight;
    if ((op.block < std::max(first_block, 0) || op.block > last_block) && !loads) {
      wrong("is of block " + std::to_string(op.block) + ", but only blocks " + std::to_string(first_block) + " to " +
            std::to_string(last_block) + " have it");
      return std::vector<Symbol>(op.writes.size());
    }
    if (op.micro_batch < 0 || op.micro_batch >= model_.expected().micro_batches) {
      wrong("is of micro-batch " + std::to_string(op.micro_batch) + ", but the step has " +
            std::to_string(model_.expected().micro_batches));
    }
    const std::vector<int> none;
    const auto& groups = loads ? none : model_.expected().block_groups[static_cast<size_t>(op.block)];
    std::multiset<int> weights;
    std::multiset<Input> other_reads;
    const int joint_axis = loads || op.kind == OpKind::kBackwardWeight ? kNoAxis : model_.joint_axis(op.block);
    if (op.axis != joint_axis) wrong("is computed along " + axis_name(model_.expected().mesh, op.axis));
    for (size_t i = 0; i < op.reads.size(); ++i) {
      const Symbol& symbol = context_.reads[i];
      const ValueKind kind = op.reads[i].kind;
      if (kind == ValueKind::kWeight) {
        weights.insert(symbol.index);
        if (symbol.version != model_.version(symbol.index, context_.step)) {
          wrong("runs on " + name(op.reads[i]) + " of version " + std::to_string(symbol.version) + " in step " +
                std::to_string(context_.step));
        } else if (is_served(symbol.index)) {
          if (!within_staleness(model_.expected().proof, symbol.oldest, context_.step))
            wrong("runs on " + name(op.reads[i]) + ", which may lack pushes of step " + std::to_string(symbol.oldest) +
                  " in step " + std::to_string(context_.step));
        } else if (model_.version(symbol.index, 1) > 0 && symbol.oldest < context_.step - update_delay()) {
          wrong("runs on " + name(op.reads[i]) + ", which lacks the gradient of step " + std::to_string(symbol.oldest) +
                " in step " + std::to_string(context_.step));
        }
        const bool direct = model_.expected().proof.direct_blocks.contains(op.block);
        const Value read = direct ? in_tier(op.reads[i], Tier::kDevice) : op.reads[i];
        if (symbol.shards != 1 || symbol.owned || !is_plain_whole(read, kind) || op.reads[i].tier == Tier::kNvme)
          wrong("needs whole weights, not " + name(op.reads[i]));
        if (symbol.lost != Codec::kPlain && symbol.lost != model_.expected().proof.weight_codec)
          wrong("runs on " + name(op.reads[i]) + ", which was " + std::string(codec_name(symbol.lost)));
      } else if (differentiates && adds_to(op.reads[i])) {
        continue;
      } else {
        other_reads.insert({kind, tensor_of(op.reads[i])});
        check_placement(op.reads[i], symbol);
        if (symbol.tensor != op.reads[i].tensor)
          wrong("reads " + name(op.reads[i]) + ", which holds tensor " + std::to_string(symbol.tensor));
        if (symbol.atoms != expected_of(op.reads[i]) || symbol.version != context_.step) {
          wrong("reads " + name(op.reads[i]) + ", which holds that of " + blocks_text(symbol.atoms) + ", step " +
                std::to_string(symbol.version));
        }
      }
    }
    const auto& reads_no_weights = model_.expected().backward_without_weights;
    const bool needs_none =
        op.kind == OpKind::kBackwardWeight ||
        (op.kind == OpKind::kBackward && !reads_no_weights.empty() && reads_no_weights[static_cast<size_t>(op.block)]);
    if (needs_none ? !weights.empty() : weights != std::multiset<int>(groups.begin(), groups.end()))
      wrong("does not read the weights of its block, each once");
    if (other_reads != inputs()) wrong("does not read what an op of its kind needs");

    const auto caches = std::count_if(op.writes.begin(), op.writes.end(),
                                      [](const Value& value) { return value.kind == ValueKind::kCache; });
    if (caches != (keeps_cache() ? 1 : 0))
      wrong("writes " + std::to_string(caches) + " caches, where its block has " + (keeps_cache() ? "one" : "none"));

    const auto routings = std::ranges::count(op.writes, ValueKind::kRouting, &Value::kind);
    if (routings != (writes_routing() ? 1 : 0))
      wrong("keeps what its router has chosen " + std::to_string(routings) + " times");

    std::vector<Symbol> out;
    std::set<int> added_groups;
    for (const Value& value : op.writes) {
      switch (value.kind) {
        case ValueKind::kActivation:
          out.push_back(loads ? made_symbol(value.kind, 0, true)
                              : as_split(value, made_symbol(value.kind, op.block + 1, op.kind == OpKind::kForward)));
          out.back().tensor = value.tensor;
          if (value.index != (loads ? 0 : op.block + 1)) wrong("writes " + name(value) + ", which is another block's");
          break;
        case ValueKind::kTarget:
          out.push_back(made_symbol(value.kind, -1, loads));
          break;
        case ValueKind::kGraph:
          out.push_back(
              made_symbol(value.kind, op.block, op.kind == OpKind::kForward || op.kind == OpKind::kRecompute));
          break;
        case ValueKind::kActivationGradient:
          out.push_back(added_activation(value, differentiates && op.kind != OpKind::kBackwardWeight));
          break;
        case ValueKind::kPending:
          out.push_back(made_symbol(value.kind, op.block, op.kind == OpKind::kBackward || op.kind == OpKind::kLoss));
          break;
        case ValueKind::kLoss:
          out.push_back(made_symbol(value.kind, op.block, op.kind == OpKind::kLoss));
          break;
        case ValueKind::kCache:
          if (value.index != op.block) wrong("writes " + name(value) + ", which is another block's");
          out.push_back(made_symbol(value.kind, op.block, keeps_cache()));
          out.back().version = context_.step + 1;
          break;
        case ValueKind::kLogits:
          out.push_back(made_symbol(value.kind, op.block, op.kind == OpKind::kLogits));
          break;
        case ValueKind::kRouting:
          if (value.index != op.block) wrong("writes " + name(value) + ", which is another block's");
          out.push_back(made_symbol(value.kind, op.block, op.kind == OpKind::kForward));
          if (value.placement != own_routing()) wrong("writes " + name(value) + ", which has what other ranks chose");
          break;
        case ValueKind::kGradient:
          out.push_back(added_gradient(value, groups, differentiates));
          if (!added_groups.insert(value.index).second) wrong("writes " + name(value) + " twice");
          break;
        default:
          out.push_back(made_symbol(value.kind, op.block, false));
      }
    }
    return out;
  }

  Symbol made_symbol(ValueKind kind, int block, bool fits) {
    if (!fits) wrong("writes " + std::string(kind_name(kind)) + ", which an op of its kind does not make");
    return {.kind = kind, .index = 0, .version = context_.step, .atoms = atoms(block)};
  }

  // Says whether an op of a block reads the value in order to add to it.
  bool adds_to(const Value& value) const {
    if (value.kind == ValueKind::kGradient) return true;
    return value.kind == ValueKind::kActivationGradient &&
           std::find(context_.op.writes.begin(), context_.op.writes.end(), value) != context_.op.writes.end();
  }

  Symbol added_activation(const Value& value, bool fits) {
    const std::vector<spec::TensorId>& inputs = model_.inputs_of(context_.op.block);
    Symbol symbol = as_split(value, made_symbol(value.kind, context_.op.block, fits));
    symbol.tensor = value.tensor;
    if (std::find(inputs.begin(), inputs.end(), tensor_of(value)) == inputs.end())
      wrong("writes " + name(value) + ", which is no gradient of what its block reads");
    for (size_t i = 0; i < context_.op.reads.size(); ++i) {
      if (context_.op.reads[i] != value) continue;
      const Symbol& so_far = context_.reads[i];
      const std::set<Atom> readers = expected_of(value);
      if (so_far.version != context_.step || so_far.cuts != symbol.cuts || so_far.tensor != symbol.tensor ||
          so_far.partial != symbol.partial ||
          !std::includes(readers.begin(), readers.end(), so_far.atoms.begin(), so_far.atoms.end()))
        wrong("adds to " + name(value) + ", which holds " + blocks_text(so_far.atoms) + " of step " +
              std::to_string(so_far.version));
      for (const Atom& atom : so_far.atoms) {
        if (!symbol.atoms.insert(atom).second) wrong("adds " + blocks_text({atom}) + " to " + name(value) + " twice");
      }
    }
    return symbol;
  }

  Symbol added_gradient(const Value& value, const std::vector<int>& groups, bool fits) {
    const bool of_block = std::find(groups.begin(), groups.end(), value.index) != groups.end() &&
                          !model_.expected().frozen_groups.contains(value.index);
    if (!fits || !of_block || !is_plain_whole(value, ValueKind::kGradient))
      wrong("writes " + name(value) + ", which is no gradient of its block");
    Symbol symbol{.kind = ValueKind::kGradient, .index = value.index, .version = context_.step};
    for (size_t i = 0; i < context_.op.reads.size(); ++i) {
      if (context_.op.reads[i] != value) continue;
      if (context_.reads[i].index != value.index || context_.reads[i].version != context_.step ||
          context_.reads[i].shards != 1) {
        wrong("adds to another gradient than " + name(value) + " of step " + std::to_string(context_.step));
      }
      if (!context_.reads[i].summed_parts.empty()) wrong("adds to " + name(value) + ", part of which is summed");
      symbol.atoms = context_.reads[i].atoms;
    }
    const bool part = model_.split_of(context_.op.block) == spec::Split::kSequence || model_.is_copied(value.index);
    const int own_part = (part ? context_.tensor_rank : 0) + model_.first_contribution_of(value.index, context_.rank);
    for (const int rank : model_.contributors(value.index, context_.rank)) {
      const Atom own = {context_.op.block, context_.op.micro_batch, model_.gradient_rank(rank), own_part};
      if (!symbol.atoms.insert(own).second) wrong("adds " + blocks_text({own}) + " to " + name(value) + " twice");
    }
    return symbol;
  }

  // Checks a gradient that must hold all contributions of the step `delay` steps ago.
  void check_complete(const Value& value, const Symbol& symbol, int delay = 0) {
    if (symbol.version != context_.step - delay)
      wrong("reads " + name(value) + " of step " + std::to_string(symbol.version) + " in step " +
            std::to_string(context_.step));
    const std::set<Atom> all = model_.contributions(symbol.index, context_.rank);
    const std::set<Atom> missing = minus(all, symbol.atoms), surplus = minus(symbol.atoms, all);
    if (!missing.empty()) {
      wrong("reads " + name(value) + " with " + std::to_string(symbol.atoms.size()) + " of " +
            std::to_string(all.size()) + " contributions: without " + blocks_text(missing));
    }
    if (!surplus.empty()) wrong("reads " + name(value) + " with what does not belong to it: " + blocks_text(surplus));
  }

  // Checks a norm op: it writes one norm per gradient, or one of all of them.
  std::vector<Symbol> norms() {
    std::vector<Symbol> out;
    for (const Value& value : context_.op.writes) {
      out.push_back({.kind = ValueKind::kNorm, .index = value.index, .version = context_.step});
      if (value.kind != ValueKind::kNorm) wrong("makes norms, not " + name(value));
    }
    if (out.size() != 1 && out.size() != context_.op.reads.size()) {
      wrong("must write one norm per gradient, or one of all");
      return out;
    }
    for (size_t i = 0; i < context_.op.reads.size(); ++i) {
      if (context_.op.reads[i].kind != ValueKind::kGradient)
        wrong("makes norms of gradients, not of " + name(context_.op.reads[i]));
      check_complete(context_.op.reads[i], context_.reads[i]);
      const int part = model_.part_of(context_.reads[i].index, context_.rank);
      const Atom atom = {context_.reads[i].index, context_.reads[i].shard, context_.reads[i].shards, part};
      if (!out[out.size() == 1 ? 0 : i].atoms.insert(atom).second)
        wrong("counts " + name(context_.op.reads[i]) + " twice");
    }
    return out;
  }

  std::vector<Symbol> clip() {
    std::map<int, std::set<std::pair<int, int>>> seen;  // group -> (shard, part) of each norm
    std::map<int, std::set<int>> cuts;                  // group -> its numbers of shards
    for (size_t i = 0; i < context_.op.reads.size(); ++i) {
      if (context_.op.reads[i].kind != ValueKind::kNorm || context_.reads[i].version != context_.step)
        wrong("must read the norms of this step, nothing else");
      for (const auto& [group, shard, shards, part] : context_.reads[i].atoms) {
        if (!seen[group].insert({shard, part}).second)
          wrong("counts the norm of group " + std::to_string(group) + " twice");
        cuts[group].insert(shards);
      }
    }
    for (const int group : model_.trained_groups()) {
      const int parts = model_.parts_of(group);
      if (cuts[group].size() != 1 || static_cast<int>(seen[group].size()) != *cuts[group].begin() * parts) {
        wrong("has not seen the whole norm of group " + std::to_string(group));
      }
    }
    std::vector<Symbol> out;
    for (const Value& value : context_.op.writes) {
      if (value.kind != ValueKind::kFactor) wrong("writes a factor, nothing else");
      out.push_back({.kind = ValueKind::kFactor, .version = context_.step});
    }
    if (out.size() != 1) wrong("must write one factor");
    return out;
  }

  std::vector<Symbol> step() {
    const Symbol* gradient = nullptr;
    std::map<ValueKind, int> counts;
    for (size_t i = 0; i < context_.op.reads.size(); ++i) {
      ++counts[context_.op.reads[i].kind];
      if (context_.op.reads[i].kind == ValueKind::kGradient) {
        gradient = &context_.reads[i];
        check_complete(context_.op.reads[i], context_.reads[i], update_delay());
      }
    }
    if (model_.expected().proof.has_servers()) wrong("updates weights, which parameter servers do");
    if (gradient != nullptr && !model_.updates(gradient->index, context_.rank) &&
        model_.owner_of(gradient->index) != kNoOwner)
      wrong("updates group " + std::to_string(gradient->index) + ", which place " +
            std::to_string(model_.owner_of(gradient->index)) + " of " +
            axis_name(model_.expected().mesh, model_.expected().proof.shard_axis) + " owns");
    const int factors = model_.expected().proof.clipped ? 1 : 0;
    if (counts[ValueKind::kGradient] != 1 || counts[ValueKind::kState] != 1 || counts[ValueKind::kWeight] > 1 ||
        counts[ValueKind::kFactor] != factors) {
      wrong("must read one gradient, one state" + std::string(factors ? ", the factor" : "") +
            " and at most one weight");
    }
    if (gradient == nullptr) return std::vector<Symbol>(context_.op.writes.size());
    int pieces = 1;
    for (size_t i = 0; i < context_.op.reads.size(); ++i) {
      const Symbol& symbol = context_.reads[i];
      const std::string read = name(context_.op.reads[i]);
      const bool waits = symbol.kind == ValueKind::kGradient || symbol.kind == ValueKind::kFactor;
      if (symbol.version != context_.step - (waits ? update_delay() : 0))
        wrong("reads " + read + " of version " + std::to_string(symbol.version) + " in step " +
              std::to_string(context_.step));
      if (symbol.kind != ValueKind::kFactor && symbol.index != gradient->index)
        wrong("mixes " + read + " with the gradient of group " + std::to_string(gradient->index));
      if (symbol.lost != Codec::kPlain)
        wrong("updates " + read + ", which was " + std::string(codec_name(symbol.lost)));
      const bool cut_alike = symbol.kind == ValueKind::kWeight || symbol.kind == ValueKind::kState;
      if (cut_alike && symbol.tensor != gradient->tensor)
        wrong("mixes " + read + " with piece " + std::to_string(gradient->tensor) + " of its gradient");
      if (symbol.kind == ValueKind::kState) pieces = symbol.pieces;
      if (cut_alike &&
          (symbol.shard != gradient->shard || symbol.shards != gradient->shards || symbol.owned != gradient->owned))
        wrong("cuts " + read + " other than its gradient");
    }
    std::vector<Symbol> out;
    std::multiset<ValueKind> kinds;
    for (const Value& value : context_.op.writes) {
      kinds.insert(value.kind);
      if (value.index != gradient->index)
        wrong("writes " + name(value) + " with the gradient of group " + std::to_string(gradient->index));
      out.push_back({value.kind, gradient->index, context_.step + 1, gradient->shard, gradient->shards});
      out.back().owned = gradient->owned;
      out.back().tensor = gradient->tensor, out.back().pieces = pieces;
      out.back().oldest = gradient->version + 1;
    }
    if (kinds != std::multiset<ValueKind>{ValueKind::kWeight, ValueKind::kState})
      wrong("must write one weight and one state");
    return out;
  }

  // Checks that only copies work on encoded values.
  void check_plain() {
    if (context_.op.kind == OpKind::kEncode || context_.op.kind == OpKind::kDecode ||
        context_.op.kind == OpKind::kFetch || context_.op.kind == OpKind::kEvict)
      return;
    for (const auto* side : {&context_.op.reads, &context_.op.writes}) {
      for (const Value& value : *side) {
        if (value.codec != Codec::kPlain) wrong("works on " + name(value) + ", which is encoded");
      }
    }
  }

  // Says whether an encode makes the sum of a host's terms, of which the hosts have one each.
  bool sums_host_terms(const Value& from, const Value& to) const {
    const Proof& proof = model_.expected().proof;
    if (proof.hops.within == kNoAxis || proof.losses_kept || !keeps_residuals(from.codec)) return false;
    return from.kind == ValueKind::kGradient && from.placement == kWhole.shard_on(proof.hops.within) &&
           to == placed(from, from.placement.partial_on(proof.hops.between));
  }

  // Tells whether an evict takes a piece of a gradient that the device has as one.
  bool takes_piece(const Value& from, const Value& to) const {
    return context_.op.kind == OpKind::kEvict && from.kind == ValueKind::kGradient && from.tier == Tier::kDevice &&
           from.tensor == 0 && to.tensor > 0;
  }
  // Tells whether a fetch puts a piece of a weight into the one that the device has.
  bool puts_piece() const {
    const Op& op = context_.op;
    return op.kind == OpKind::kFetch && op.reads.size() == 2 && op.writes.size() == 1 && op.reads[1] == op.writes[0] &&
           op.reads[0].kind == ValueKind::kWeight && op.reads[0].tensor > 0 && op.writes[0].tensor == 0 &&
           op.writes[0].tier == Tier::kDevice;
  }

  // Returns the weight in which a fetch has put a piece. It is of a version again once all its pieces are.
  Symbol with_piece(const Symbol& piece, Symbol all) {
    const std::string read = name(context_.op.reads[0]);
    if (piece.index != all.index || piece.shard != all.shard || piece.shards != all.shards || piece.owned != all.owned)
      wrong("puts " + read + " into " + name(context_.op.writes[0]) + ", which is cut otherwise");
    if (!all.renewed.emplace(piece.tensor, piece.version).second) wrong("puts " + read + " into its weight twice");
    all.version = kSpoiled;
    for (const auto& [number, version] : all.renewed)
      if (version != piece.version)
        wrong("puts " + read + " beside piece " + std::to_string(number) + " of another version");
    if (static_cast<int>(all.renewed.size()) < piece.pieces) return all;
    all.renewed.clear();
    all.version = piece.version, all.oldest = piece.oldest;
    return all;
  }

  // Says whether a fetch, evict, encode or decode changes only the tier or the codec, and in the right direction.
  bool is_copy(const Value& from, const Value& to) const {
    switch (context_.op.kind) {
      case OpKind::kFetch:
        return in_tier(puts_piece() ? in_piece(from, 0) : from, to.tier) == to && to.tier < from.tier;
      case OpKind::kEvict:
        return in_tier(takes_piece(from, to) ? in_piece(from, to.tensor) : from, to.tier) == to && from.tier < to.tier;
      case OpKind::kEncode:
        if (from.kind == ValueKind::kResidual) return from == to;
        if (sums_host_terms(from, to)) return true;
        return in_codec(from, to.codec) == to && from.codec == Codec::kPlain && to.codec != Codec::kPlain;
      default:
        return in_codec(from, to.codec) == to && from.codec != Codec::kPlain && to.codec == Codec::kPlain;
    }
  }

  // An encode adds what it loses to the residual of this step, and leaves that of the next.
  void add_loss(const Value& value, Symbol& symbol) {
    if (symbol.version != context_.step)
      wrong("adds to " + name(value) + " of version " + std::to_string(symbol.version) + " in step " +
            std::to_string(context_.step));
    if (symbol.index != value.index) wrong("adds to the residual of group " + std::to_string(symbol.index));
    symbol.version = context_.step + 1;
  }

  // Checks that an encode keeps a residual of exactly the gradients that lose more than bf16 does. Weights lose only
  // what passes do not get.
  void check_residuals() {
    std::multiset<int> lossy, kept;
    for (const Value& value : context_.op.writes) {
      if (value.kind == ValueKind::kResidual)
        kept.insert(value.index);
      else if (value.kind != ValueKind::kWeight && keeps_residuals(value.codec))
        lossy.insert(value.index);
    }
    if (!model_.expected().proof.losses_kept) lossy.clear();
    if (lossy != kept) wrong("does not keep what it loses");
  }

  // Adds what a shard of a gradient holds to the sum of further terms.
  void add_to_shard(const Value& value, const Symbol& so_far, Symbol& sum) {
    if (so_far.version != sum.version || so_far.index != sum.index || so_far.shard != sum.shard ||
        so_far.shards != sum.shards)
      wrong("adds to " + name(value) + ", which is another shard of step " + std::to_string(so_far.version));
    for (const Atom& atom : so_far.atoms) {
      if (!sum.atoms.insert(atom).second) wrong("adds " + blocks_text({atom}) + " to " + name(value) + " twice");
    }
  }

  std::vector<Symbol> copies() {
    const Op& op = context_.op;
    std::vector<Symbol> out(op.writes.size());
    // A decode that adds to its shards reads them, too, after the terms.
    const bool adds = op.kind == OpKind::kDecode && op.reads.size() == 2 * op.writes.size() &&
                      std::equal(op.writes.begin(), op.writes.end(), op.reads.begin() + static_cast<long>(out.size()));
    if (op.reads.size() != op.writes.size() && !adds && !puts_piece())
      wrong("must copy each value it reads to one that it writes");
    for (size_t i = 0; i < std::min(out.size(), context_.reads.size()); ++i) {
      if (!is_copy(context_.op.reads[i], context_.op.writes[i]))
        wrong("copies " + name(context_.op.reads[i]) + " to " + name(context_.op.writes[i]));
      out[i] = context_.reads[i];
      if (takes_piece(op.reads[i], op.writes[i])) out[i].tensor = op.writes[i].tensor;
      if (puts_piece()) out[i] = with_piece(context_.reads[0], context_.reads[1]);
      const bool encodes = context_.op.kind == OpKind::kEncode && out[i].kind == ValueKind::kWeight;
      if (encodes && out[i].lost != Codec::kPlain) wrong("encodes " + name(context_.op.reads[i]) + " again");
      if (encodes) out[i].lost = context_.op.writes[i].codec;
      out[i].partial = out[i].kind == ValueKind::kGradient && op.writes[i].placement.partial != 0;
      if (out[i].kind == ValueKind::kResidual) add_loss(context_.op.reads[i], out[i]);
      if (adds) add_to_shard(op.writes[i], context_.reads[out.size() + i], out[i]);
      if (adds && out[i].kind != ValueKind::kGradient) wrong("adds to " + name(op.writes[i]));
    }
    if (context_.op.kind == OpKind::kEncode) check_residuals();
    return out;
  }

  // Checks the sum of a gradient of an activation and a term that another stage has sent.
  std::vector<Symbol> sum() {
    const Op& op = context_.op;
    std::vector<Symbol> out(op.writes.size());
    const auto fits = [&] {
      if (op.reads.size() != 2 || op.writes.size() != 1) return false;
      const Value& value = op.writes[0];
      const Placement term = value.placement.partial_on(model_.axis_of(Divided::kStages));
      return value.kind == ValueKind::kActivationGradient && value.micro_batch == op.micro_batch &&
             op.reads[0] == value && op.reads[1] == placed(value, term) && term != value.placement;
    };
    if (!fits()) {
      wrong("must add a gradient of an activation and a term that another stage has sent");
      return out;
    }
    const Symbol &so_far = context_.reads[0], &term = context_.reads[1];
    if (so_far.partial || !term.partial || so_far.version != context_.step || term.version != context_.step ||
        so_far.cuts != term.cuts || so_far.tensor != op.writes[0].tensor || term.tensor != so_far.tensor)
      wrong("adds to " + name(op.writes[0]) + ", which holds " + blocks_text(so_far.atoms) + " of step " +
            std::to_string(so_far.version) + ", " + blocks_text(term.atoms) + " of step " +
            std::to_string(term.version));
    out[0] = so_far;
    for (const Atom& atom : term.atoms) {
      if (!out[0].atoms.insert(atom).second)
        wrong("adds " + blocks_text({atom}) + " to " + name(op.writes[0]) + " twice");
    }
    return out;
  }

  const Model& model_;
  OpContext& context_;
};

std::string shard_text(const Symbol& symbol) {
  return "shard " + std::to_string(symbol.shard) + " of " + std::to_string(symbol.shards);
}

}  // namespace

std::string cuts_text(const Mesh& mesh, const std::map<int, Cut>& cuts) {
  std::string out;
  for (const auto& [axis, cut] : cuts) {
    out += (out.empty() ? "" : " and ") + std::string("place ") + std::to_string(cut.place) + " of " +
           axis_name(mesh, axis) + " by " +
           (cut.by == Dimension::kHeads     ? "heads"
            : cut.by == Dimension::kExperts ? "experts"
                                            : "rows");
  }
  return out.empty() ? "whole" : out;
}

std::vector<Symbol> run_local(const Model& model, OpContext& context) { return LocalOp(model, context).run(); }

namespace {

// Runs a collective of activations: it makes partial values whole or shards, makes shards whole, or shards along one
// dimension shards along another.
std::vector<std::vector<Symbol>> run_activations(const Mesh& mesh, std::vector<OpContext>& contexts) {
  const Op& op = contexts[0].op;
  const int n = static_cast<int>(contexts.size());
  const bool gather = op.kind == OpKind::kAllGather, scatter = op.kind == OpKind::kReduceScatter;
  const bool exchange = op.kind == OpKind::kAllToAll;
  auto& wrong = contexts[0].wrong;
  std::vector<std::vector<Symbol>> out(contexts.size(), std::vector<Symbol>(op.writes.size()));
  if (op.reads.size() != 1 || op.writes.size() != 1) {
    wrong.push_back("must read one value and write one");
    return out;
  }
  const Value &from = op.reads[0], &to = op.writes[0];
  const std::string name = value_name(mesh, from);
  const Dimension before = from.placement.dimension(op.axis);
  const Dimension after =
      exchange && before == Dimension::kRows ? Dimension::kHeads : Dimension::kRows;  // of what an op cuts
  const Placement becomes =
      scatter || exchange ? from.placement.shard_on(op.axis, after) : from.placement.whole_on(op.axis);
  const bool reads_shards = gather || exchange;
  const bool fits = reads_shards ? from.placement.is_shard(op.axis) : from.placement.is_partial(op.axis);
  if (!fits || to != placed(from, becomes)) wrong.push_back("turns " + name + " into " + value_name(mesh, to));
  const Symbol& first = contexts[0].reads[0];
  const auto other_cuts = [&](std::map<int, Cut> cuts) {  // along other axes
    cuts.erase(op.axis);
    return cuts;
  };
  std::map<Atom, int> terms;  // contribution without its part -> how many ranks have one
  for (int q = 0; q < n; ++q) {
    const Symbol& symbol = contexts[static_cast<size_t>(q)].reads[0];
    if (symbol.version != first.version) wrong.push_back("mixes " + name + " of two steps");
    const auto cut = symbol.cuts.find(op.axis);
    const bool own_shard = cut != symbol.cuts.end() && cut->second == Cut{q, before};
    if (other_cuts(symbol.cuts) != other_cuts(first.cuts) ||
        (reads_shards ? symbol.partial || !own_shard || symbol.atoms != first.atoms
                      : !symbol.partial || cut != symbol.cuts.end())) {
      wrong.push_back((exchange ? "exchanges "
                       : gather ? "gathers "
                                : "sums ") +
                      name + ", of which place " + std::to_string(q) + " of the axis holds " +
                      (symbol.partial ? "a partial sum of " : cuts_text(mesh, symbol.cuts) + " of ") +
                      blocks_text(symbol.atoms));
    }
    for (const auto& [block, micro_batch, data, part] : symbol.atoms) ++terms[{block, micro_batch, data, 0}];
  }
  Symbol sum = first;
  sum.partial = false;
  sum.cuts.erase(op.axis);
  sum.atoms.clear();
  for (const auto& [atom, ranks] : terms) {
    if (ranks != n) wrong.push_back("sums " + name + " of different work: " + blocks_text({atom}));
    sum.atoms.insert(atom);
  }
  for (int q = 0; q < n; ++q) {
    out[static_cast<size_t>(q)][0] = sum;
    if (scatter || exchange) out[static_cast<size_t>(q)][0].cuts[op.axis] = {q, after};
  }
  return out;
}

// Runs the all-gather by which ranks that share experts tell each other what their routers have chosen.
std::vector<std::vector<Symbol>> run_routing(const Model& model, std::vector<OpContext>& contexts) {
  const Op& op = contexts[0].op;
  const Mesh& mesh = model.expected().mesh;
  auto& wrong = contexts[0].wrong;
  std::vector<std::vector<Symbol>> out(contexts.size(), std::vector<Symbol>(op.writes.size()));
  // The lane of all exchanges of rows, since these use the communicator with which ranks meet here.
  const bool is_gather =
      op.kind == OpKind::kAllGather && op.axis == model.axis_of(Divided::kExperts) && op.lane == Lane::kActivations;
  if (!is_gather || op.reads.size() != 1 || op.writes.size() != 1 ||
      op.reads[0] != placed(op.writes[0], kWhole.shard_on(op.axis)) || !op.writes[0].placement.is_whole()) {
    wrong.push_back("must gather what the routers of ranks that share experts have chosen, on lane activations");
    return out;
  }
  Symbol all = contexts[0].reads[0];
  all.atoms.clear();
  for (const OpContext& context : contexts) {
    const Symbol& own = context.reads[0];
    if (own.version != all.version) wrong.push_back("mixes " + value_name(mesh, op.reads[0]) + " of two steps");
    for (const auto& [block, micro_batch, data, part] : own.atoms) {
      if (data != context.data_rank || block != op.reads[0].index || micro_batch != op.reads[0].micro_batch)
        wrong.push_back("gathers " + value_name(mesh, op.reads[0]) + ", which holds that of " + blocks_text(own.atoms));
      all.atoms.insert({block, micro_batch, context.gradient_rank, part});
    }
  }
  for (auto& symbols : out) symbols[0] = all;
  return out;
}

// Runs an exchange of rows: those of each rank, once, to the ranks of their experts, or back to the rank of their
// tokens.
std::vector<std::vector<Symbol>> run_rows(const Model& model, std::vector<OpContext>& contexts) {
  const Op& op = contexts[0].op;
  const Mesh& mesh = model.expected().mesh;
  auto& wrong = contexts[0].wrong;
  std::vector<std::vector<Symbol>> out(contexts.size(), std::vector<Symbol>(op.writes.size()));
  const Value &from = op.reads[0], &routing = op.reads[1];
  const std::string name = value_name(mesh, from);
  const bool to_experts = !from.placement.is_shard(op.axis);
  const Value at_home = placed(from, from.placement.whole_on(op.axis)),
              at_experts = placed(from, from.placement.shard_on(op.axis, Dimension::kExperts));
  const bool reads_gradient = to_experts && from.kind == ValueKind::kActivationGradient;  // of the tokens' outputs
  if (op.lane != Lane::kActivations || op.axis != model.axis_of(Divided::kExperts) || op.writes.size() != 1 ||
      op.reads.size() != (reads_gradient ? 3 : 2) || from != (to_experts ? at_home : at_experts) ||
      op.writes[0] != (to_experts ? at_experts : at_home)) {
    wrong.push_back("must give rows to the ranks of their experts, or bring them back, on lane activations");
    return out;
  }
  const int routes = model.routed_by(from.index - 1);
  if (from.tensor != 0 || routes < 0 || routing != Value{ValueKind::kRouting, routes, from.micro_batch})
    wrong.push_back("moves " + name + " by " + value_name(mesh, routing) + ", which is not that of its rows");
  std::set<int> sources;
  for (const OpContext& context : contexts) sources.insert(context.gradient_rank);
  std::set<Atom> all;  // of all sources
  for (size_t q = 0; q < contexts.size(); ++q) {
    const OpContext& context = contexts[q];
    const Symbol &rows = context.reads[0], &chosen = context.reads[1];
    const auto cut = rows.cuts.find(op.axis);
    const bool is_there = cut != rows.cuts.end();
    if (rows.partial || is_there == to_experts ||
        (is_there && cut->second != Cut{static_cast<int>(q), Dimension::kExperts}) || rows.tensor != from.tensor)
      wrong.push_back("moves " + name + ", of which place " + std::to_string(q) + " of the axis holds " +
                      (rows.partial ? "a partial sum" : cuts_text(mesh, rows.cuts)));
    std::set<int> told;
    for (const auto& [block, micro_batch, source, part] : chosen.atoms) {
      if (block == routes && micro_batch == from.micro_batch) told.insert(source);
    }
    if (told != sources || chosen.atoms.size() != sources.size() || chosen.version != rows.version)
      wrong.push_back("moves " + name + " by " + value_name(mesh, routing) + ", which holds that of " +
                      blocks_text(chosen.atoms) + ", step " + std::to_string(chosen.version));
    for (const auto& [block, micro_batch, source, part] : rows.atoms) {
      if (to_experts && source != context.data_rank)
        wrong.push_back("gives rows of another rank: " + blocks_text(rows.atoms));
      if (to_experts ? !all.insert({block, micro_batch, context.gradient_rank, part}).second
                     : !sources.contains(source))
        wrong.push_back("moves rows twice: " + blocks_text(rows.atoms));
    }
    if (!to_experts && (rows.atoms != contexts[0].reads[0].atoms || rows.version != contexts[0].reads[0].version))
      wrong.push_back("brings back " + name + " of different work: " + blocks_text(rows.atoms));
    if (reads_gradient) {
      const Symbol& of_tokens = context.reads[2];
      const auto& readers = model.readers_of(tensor_of(from));
      const bool fits = op.reads[2].kind == from.kind && op.reads[2].tensor == 0 && readers.size() == 1 &&
                        op.reads[2].index == readers[0] + 1 && op.reads[2].micro_batch == from.micro_batch &&
                        of_tokens.version == rows.version && op.reads[2].placement == from.placement &&
                        !of_tokens.partial && of_tokens.cuts == rows.cuts;
      if (!fits) wrong.push_back("reads " + value_name(mesh, op.reads[2]) + " for the outputs of its tokens");
    }
  }
  for (size_t q = 0; q < contexts.size(); ++q) {
    Symbol moved = contexts[q].reads[0];
    if (to_experts) {
      moved.cuts[op.axis] = {static_cast<int>(q), Dimension::kExperts};
      moved.atoms = all;
    } else {
      moved.cuts.erase(op.axis);
      moved.atoms.clear();
      for (const auto& [block, micro_batch, source, part] : contexts[q].reads[0].atoms) {
        if (source == contexts[q].gradient_rank) moved.atoms.insert({block, micro_batch, contexts[q].data_rank, part});
      }
    }
    out[q][0] = std::move(moved);
  }
  return out;
}

bool sums_part(const Op& op) {
  return op.kind == OpKind::kAllReduce && op.parts > 1 && op.part >= 0 && op.part < op.parts && op.reads == op.writes &&
         op.writes.size() == 1 && op.writes[0].kind == ValueKind::kGradient;
}

// Returns the gradient that a rank holds after a part of it is summed: the sum, once all parts are.
Symbol with_part(OpContext& context, const Symbol& sum, const std::string& name) {
  Symbol out = context.reads[0];
  SummedParts& summed = out.summed_parts;
  const auto part = static_cast<size_t>(context.op.part), parts = static_cast<size_t>(context.op.parts);
  if (summed.empty()) summed = {std::vector<bool>(parts), 0, sum.atoms};
  if (summed.is_summed.size() != parts || summed.atoms != sum.atoms) {
    context.wrong.push_back("sums part " + std::to_string(part) + " of " + std::to_string(parts) + " of " + name +
                            " with " + std::to_string(sum.atoms.size()) + " contributions, of which " +
                            std::to_string(summed.num_summed) + " of " + std::to_string(summed.is_summed.size()) +
                            " parts are summed with " + std::to_string(summed.atoms.size()));
    return out;
  }
  if (summed.is_summed[part]) {
    context.wrong.push_back("sums part " + std::to_string(part) + " of " + name + " twice");
    return out;
  }
  summed.is_summed[part] = true;
  if (++summed.num_summed < context.op.parts) return out;
  out.atoms = sum.atoms;
  summed = {};
  return out;
}

// Tells whether a collective may move a value in its codec. Gradients in codecs that lose more than bf16 are summed by
// an all-reduce where residuals keep what they lose, else exchanged, as wholes or as the
// sums of hosts. Nothing else is exchanged here.
bool terms_fit(const Op& op, const Value& from, const Proof& proof) {
  const bool lossy = from.kind == ValueKind::kGradient && keeps_residuals(from.codec);
  if (!lossy) return op.kind != OpKind::kAllToAll;
  const bool host_sums = proof.hops.between != kNoAxis && op.axis == proof.hops.between &&
                         from.placement == kWhole.shard_on(proof.hops.within).partial_on(proof.hops.between);
  if (host_sums) return op.kind == OpKind::kAllToAll && !proof.losses_kept;
  return op.kind == (proof.losses_kept ? OpKind::kAllReduce : OpKind::kAllToAll) && from.placement.is_whole();
}

// Tells whether a shard is the one that place q of n gives to a gather: a neighbour of those of other places, or
// between hosts the one at this rank's place of host q.
bool is_part_at(int q, int n, const Symbol& symbol, const Symbol& first, bool between_hosts) {
  if (symbol.shards % n != 0) return false;
  const int per_host = symbol.shards / n;
  if (between_hosts) return symbol.shard / per_host == q && symbol.shard % per_host == first.shard % per_host;
  return symbol.shard % n == q && symbol.shard / n == first.shard / n;
}

// Runs a broadcast of what its owner has, or a reduce to the owner, which alone has the sum.
std::vector<std::vector<Symbol>> run_rooted(const Expectation& expected, std::vector<OpContext>& contexts) {
  const Op& op = contexts[0].op;
  const Mesh& mesh = expected.mesh;
  const bool broadcast = op.kind == OpKind::kBroadcast;
  const std::vector<Value> moved = moved_values(op);
  auto& wrong = contexts[0].wrong;
  std::vector<std::vector<Symbol>> out;
  for (const OpContext& context : contexts) out.emplace_back(context.op.writes.size());
  if (op.peer < 0 || op.peer >= static_cast<int>(contexts.size()) || op.axis != expected.proof.shard_axis) {
    wrong.push_back("has no owner: " + axis_name(mesh, op.axis) + " " + std::to_string(op.peer));
    return out;
  }
  const auto root = static_cast<size_t>(op.peer);
  std::vector<Value> owned = moved;
  for (Value& value : owned) value.placement = value.placement.owned_on(op.axis);
  std::vector<Value> with_owned = moved;  // what a reduce reads that adds to what its owner has
  with_owned.insert(with_owned.end(), owned.begin(), owned.end());
  const Op& at_root = contexts[root].op;
  const bool adds = !broadcast && at_root.reads == with_owned;
  for (size_t q = 0; q < contexts.size(); ++q) {
    const Op& one = contexts[q].op;
    const bool is_root = q == root;
    const bool fits =
        broadcast ? one.reads == (is_root ? owned : std::vector<Value>{}) && one.writes == moved
                  : (one.reads == moved || (is_root && adds)) && one.writes == (is_root ? owned : std::vector<Value>{});
    if (fits) continue;
    contexts[q].wrong.push_back(is_root ? "must move what its owner holds, each value once"
                                        : "touches what place " + std::to_string(op.peer) + " owns");
    return out;
  }
  for (size_t i = 0; i < moved.size(); ++i) {
    const std::string name = value_name(mesh, moved[i]);
    const ValueKind kind = broadcast ? ValueKind::kWeight : ValueKind::kGradient;
    if (moved[i] != placed({kind, moved[i].index}, moved[i].placement.whole_on(op.axis)))
      wrong.push_back("moves " + name + ", where only plain weights are broadcast and gradients reduced");
    const auto group = static_cast<size_t>(moved[i].index);
    const int owner = group < expected.proof.owners.size() ? expected.proof.owners[group] : kNoOwner;
    if (owner != op.peer)
      wrong.push_back("has place " + std::to_string(op.peer) + " as the owner of " + name + ", which place " +
                      std::to_string(owner) + " owns");
    Symbol result = contexts[root].reads[i];
    if (broadcast) {
      if (!result.owned) wrong.push_back("broadcasts " + name + ", which is not its owner's");
      result.owned = false;
      for (auto& symbols : out) symbols[i] = result;
      continue;
    }
    result.atoms.clear();
    result.owned = true;
    const auto add = [&](const Symbol& term) {
      for (const Atom& atom : term.atoms) {
        if (result.atoms.insert(atom).second) continue;
        wrong.push_back("adds contributions to " + name + " twice: " + blocks_text({atom}));
        return;
      }
    };
    for (const OpContext& context : contexts) {
      const Symbol& term = context.reads[i];
      if (term.index != result.index || term.version != result.version || term.shards != 1 || term.owned)
        wrong.push_back("mixes " + name + " of version " + std::to_string(result.version) + " and " +
                        std::to_string(term.version));
      if (!term.summed_parts.empty()) wrong.push_back("sums " + name + ", part of which is summed");
      add(term);
    }
    if (adds) {
      const Symbol& so_far = contexts[root].reads[moved.size() + i];
      if (so_far.index != result.index || so_far.version != result.version || !so_far.owned)
        wrong.push_back("adds to " + value_name(mesh, owned[i]) + ", which is of step " +
                        std::to_string(so_far.version));
      add(so_far);
    }
    out[root][i] = result;
  }
  return out;
}

}  // namespace

std::vector<std::vector<Symbol>> run_collective(const Model& model, std::vector<OpContext>& contexts) {
  const Expectation& expected = model.expected();
  const Op& op = contexts[0].op;
  const Mesh& mesh = expected.mesh;
  const Proof& proof = expected.proof;
  if (is_rooted(op)) return run_rooted(expected, contexts);
  if (!op.reads.empty() && op.reads[0].kind == ValueKind::kRouting) return run_routing(model, contexts);
  if (moves_rows_of_experts(op) && is_activation_or_gradient(op.reads[0])) return run_rows(model, contexts);
  if (!op.reads.empty() && is_activation_or_gradient(op.reads[0])) return run_activations(mesh, contexts);
  const int n = static_cast<int>(contexts.size());
  const bool gather = op.kind == OpKind::kAllGather, exchange = op.kind == OpKind::kAllToAll;
  // An exchange of encoded gradients gives each rank the terms of its shard, which a decode sums.
  const bool scatter = op.kind == OpKind::kReduceScatter || exchange;
  auto& wrong = contexts[0].wrong;
  std::vector<std::vector<Symbol>> out(contexts.size(), std::vector<Symbol>(op.writes.size()));
  if (op.parts != 1 && !sums_part(op)) {
    wrong.push_back("works on part " + std::to_string(op.part) + " of " + std::to_string(op.parts) +
                    ", where only an all-reduce of one gradient may");
    return out;
  }
  // A reduce-scatter that adds to its shards reads them, too, after the whole gradients.
  const bool adds =
      scatter && op.reads.size() == 2 * op.writes.size() &&
      std::equal(op.writes.begin(), op.writes.end(), op.reads.begin() + static_cast<long>(op.writes.size()));
  if (op.reads.size() != op.writes.size() && !adds) {
    wrong.push_back("must write one value for each that it reads");
    return out;
  }
  for (size_t i = 0; i < op.writes.size(); ++i) {
    const Value &from = op.reads[i], &to = op.writes[i];
    const std::string name = value_name(mesh, from);
    const bool norms = from.kind == ValueKind::kNorm;
    const bool kind_fits = (gather ? from.kind == ValueKind::kWeight : norms || from.kind == ValueKind::kGradient) &&
                           terms_fit(op, from, proof);
    const bool moves_parts = gather || exchange;
    const bool between_hosts = moves_parts && proof.hops.between != kNoAxis && op.axis == proof.hops.between;
    const bool in_host = moves_parts && proof.hops.within != kNoAxis && op.axis == proof.hops.within;
    // A gradient or norm is summed where it lies, among ranks that have the same part of it.
    const Placement of_host = kWhole.shard_on(proof.hops.within), of_rank = kWhole.shard_on(proof.shard_axis);
    const Placement becomes = between_hosts ? (gather ? of_host : of_rank)
                              : gather      ? from.placement.whole_on(op.axis)
                              : scatter     ? from.placement.shard_on(op.axis)
                                            : from.placement;
    const bool is_cut =
        between_hosts && gather ? from.placement == of_rank : from.placement.is_shard(op.axis) == gather;
    if (!kind_fits || !is_cut || to != placed(from, becomes))
      wrong.push_back("turns " + name + " into " + value_name(mesh, to));
    const Symbol& first = contexts[0].reads[i];
    Symbol sum = first;
    for (int q = 0; q < n; ++q) {
      const Symbol& symbol = contexts[static_cast<size_t>(q)].reads[i];
      if (op.parts == 1 && !symbol.summed_parts.empty()) wrong.push_back("sums " + name + ", part of which is summed");
      if (symbol.index != first.index || symbol.version != first.version || symbol.lost != first.lost) {
        wrong.push_back("mixes " + name + " of version " + std::to_string(first.version) + " and " +
                        std::to_string(symbol.version));
      }
      if (symbol.in_pieces != (gather ? in_host : exchange && between_hosts))
        wrong.push_back("moves " + name + ", which is " + (symbol.in_pieces ? "" : "not ") + "the pieces of a host");
      if (gather && !is_part_at(q, n, symbol, first, between_hosts)) {
        wrong.push_back("gathers " + name + " of which place " + std::to_string(q) + " of the axis holds " +
                        shard_text(symbol));
      }
      if (!gather && !norms &&
          (symbol.shard != first.shard || symbol.shards != first.shards || symbol.owned != first.owned)) {
        wrong.push_back("adds " + shard_text(first) + " and " + shard_text(symbol) + " of " + name);
      }
      if (q > 0) {
        for (const Atom& atom : symbol.atoms) {
          if (!sum.atoms.insert(atom).second) {
            wrong.push_back("adds contributions to " + name + " twice: " + blocks_text({atom}));
            break;
          }
        }
      }
    }
    for (int q = 0; q < n; ++q) {
      Symbol result = sum;
      if (gather) {
        result.shards = std::max(first.shards / n, 1);
        result.shard = between_hosts ? first.shard % result.shards : first.shard / n;
        result.in_pieces = between_hosts;
      }
      if (scatter) {  // between hosts, place q has the pieces of host q
        result.shard = between_hosts ? q * sum.shards + sum.shard : sum.shard * n + q;
        result.shards = sum.shards * n;
        result.in_pieces = in_host, result.partial = false;
      }
      if (op.parts > 1) result = with_part(contexts[static_cast<size_t>(q)], sum, name);
      if (adds) {
        const OpContext& own = contexts[static_cast<size_t>(q)];
        const Symbol& so_far = own.reads[op.writes.size() + i];
        if (so_far.version != result.version || so_far.shard != result.shard || so_far.shards != result.shards ||
            so_far.index != result.index) {
          wrong.push_back("adds " + shard_text(result) + " of " + name + " to another: " + value_name(mesh, to) +
                          " holds " + shard_text(so_far) + " of step " + std::to_string(so_far.version));
        }
        for (const Atom& atom : so_far.atoms) {
          if (!result.atoms.insert(atom).second) {
            wrong.push_back("adds contributions to " + name + " twice: " + blocks_text({atom}));
            break;
          }
        }
      }
      out[static_cast<size_t>(q)][i] = result;
    }
  }
  return out;
}

}  // namespace herd::program
