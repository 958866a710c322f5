// Defines what pushes and pulls do to symbols, and checks them.
#include <algorithm>

#include "herd/program/collective_message.h"
#include "herd/program/program_names.h"
#include "herd/program/program_symbols_internal.h"

namespace herd::program {
namespace {

std::string name_of(const Model& model, const Value& value) { return value_name(model.expected().mesh, value); }

// Checks that a round has each contribution to the gradient of its step exactly once.
void check_round(const Model& model, const ServedPart& served, int group, const std::vector<int>& members, int round,
                 std::vector<std::string>& wrong) {
  std::set<Atom> found;
  const std::string what = "pulls what round " + std::to_string(round) + " of the servers makes, ";
  for (const int member : members) {
    const Symbol& symbol = served.pushes.at(member)[static_cast<size_t>(round)];
    if (symbol.version != round)
      wrong.push_back(what + "in which rank " + std::to_string(member) + " has pushed a gradient of step " +
                      std::to_string(symbol.version));
    for (const Atom& atom : symbol.atoms) {
      if (!found.insert(atom).second)
        wrong.push_back(what + "which has a contribution of block " + std::to_string(std::get<0>(atom)) + " twice");
    }
  }
  const std::set<Atom> all = model.contributions(group, members.front());
  if (found != all)
    wrong.push_back(what + "which has " + std::to_string(found.size()) + " contributions, not the " +
                    std::to_string(all.size()) + " that belong to it");
}

// Ranks that send to other servers than there are would wait for answers that never come.
void check_servers(const Model& model, OpContext& context) {
  const int servers = model.expected().proof.dedicated_servers;
  if (context.op.servers != servers)
    context.wrong.push_back("names " + std::to_string(context.op.servers) +
                            " servers that are ranks of their own, but the run has " + std::to_string(servers));
}

// Checks that an op is on a part that there is.
void check_part(OpContext& context) {
  const Op& op = context.op;
  if (op.part < 0 || op.part >= op.parts)
    context.wrong.push_back("is on part " + std::to_string(op.part) + " of " + std::to_string(op.parts));
}

// Notes that the rank has pulled a part of `rounds`, and returns true once it has all parts of the group.
bool pull_part(OpContext& context, ServedGroup& served, int rounds) {
  const Op& op = context.op;
  std::map<PartOfGroup, int>& pulled = served.pulled[context.rank];
  if (!pulled.emplace(PartOfGroup(op.part, op.parts), rounds).second)
    context.wrong.push_back("pulls part " + std::to_string(op.part) + " twice");
  for (const auto& [part, others] : pulled) {
    if (part.second != op.parts)
      context.wrong.push_back("is on a part of " + std::to_string(op.parts) + " beside one of " +
                              std::to_string(part.second));
    else if (others != rounds)
      context.wrong.push_back("pulls a part of version " + std::to_string(rounds) + " beside one of version " +
                              std::to_string(others));
  }
  if (static_cast<int>(pulled.size()) < op.parts) return false;
  pulled.clear();
  return true;
}

std::string bound_text(int staleness) {
  return staleness == kNoBound ? "without bound" : "within " + std::to_string(staleness);
}

}  // namespace

bool within_staleness(const Proof& proof, int oldest, int step) {
  return proof.staleness == kNoBound || oldest >= step - proof.staleness;
}

std::vector<std::string> check_rounds(const Model& model, ServedPart& served, int group,
                                      const std::vector<int>& members) {
  size_t complete = served.pushes[members.front()].size();
  for (const int member : members) complete = std::min(complete, served.pushes[member].size());
  std::vector<std::string> wrong;
  for (; served.checked_rounds < complete; ++served.checked_rounds)
    check_round(model, served, group, members, static_cast<int>(served.checked_rounds), wrong);
  return wrong;
}

std::vector<Symbol> run_push(const Model& model, OpContext& context, ServedGroup& served) {
  const Op& op = context.op;
  const int group = op.reads[0].index;
  // In any codec: the encode has kept what it lost.
  const bool fits = op.reads.size() == 1 &&
                    op.reads[0] == in_tier(in_codec(gradient(group), op.reads[0].codec), op.reads[0].tier) &&
                    op.writes == std::vector<Value>{pushed(group)};
  if (!fits) context.wrong.push_back("must read one whole gradient, and write that it is pushed");
  check_servers(model, context);
  check_part(context);
  const Symbol& gradient = context.reads[0];
  if (gradient.index != group || gradient.shards != 1)
    context.wrong.push_back("pushes another gradient than " + name_of(model, op.reads[0]));
  if (gradient.version != context.step)
    context.wrong.push_back("pushes " + name_of(model, op.reads[0]) + " of step " + std::to_string(gradient.version));
  served.parts[{op.part, op.parts}].pushes[context.rank].push_back(gradient);
  return std::vector<Symbol>(op.writes.size(), {.kind = ValueKind::kPushed, .index = group, .version = context.step});
}

std::vector<Symbol> run_pull(const Model& model, OpContext& context, ServedGroup& served,
                             const std::vector<int>& members) {
  const Op& op = context.op;
  std::vector<Symbol> out(op.writes.size());
  const int group = op.reads[0].index;
  const bool serves = model.expected().mesh.index(op.axis, context.rank) < model.expected().proof.num_servers;
  const size_t values = serves ? 2 : 1;
  const bool fits = op.reads.size() == values && op.writes.size() == values && op.reads[0] == pushed(group) &&
                    op.writes[0] == in_tier(weight(group), op.writes[0].tier);
  const bool keeps = !serves || (fits && op.reads[1].kind == ValueKind::kState && op.reads[1].index == group &&
                                 op.writes[1] == op.reads[1]);
  if (!fits || !keeps) {
    context.wrong.push_back(serves
                                ? "must read that a gradient is pushed, and its state, and write weights and state"
                                : "must read that a gradient is pushed, and write weights, as its rank serves nothing");
    return out;
  }
  check_servers(model, context);
  check_part(context);
  const Symbol& push = context.reads[0];
  if (push.index != group || push.version != context.step)
    context.wrong.push_back("pulls " + name_of(model, op.writes[0]) + " after a push of step " +
                            std::to_string(push.version));
  ServedPart& part = served.parts[{op.part, op.parts}];
  const std::vector<Symbol>& own_pushes = part.pushes[context.rank];
  if (op.parts > 1 && (own_pushes.empty() || own_pushes.back().version != context.step))
    context.wrong.push_back("pulls a part of " + name_of(model, op.writes[0]) + " that is not pushed in this step");
  // The rank is at its newest push; how far others are by now, the bound alone says.
  const int rounds = static_cast<int>(own_pushes.size());
  const bool has_all = pull_part(context, served, rounds);
  if (serves) {
    const Symbol& state = context.reads[1];
    if (state.index != group || state.version != context.step)
      context.wrong.push_back("reads " + name_of(model, op.reads[1]) + " of version " + std::to_string(state.version) +
                              " in step " + std::to_string(context.step));
    out[1] = state;
    if (has_all) out[1].version = context.step + 1;
  }
  const int staleness = model.expected().proof.staleness;
  if (op.staleness != staleness)
    context.wrong.push_back("is " + bound_text(op.staleness) + ", but the staleness of the run is " +
                            bound_text(staleness));
  for (const std::string& text : check_rounds(model, part, group, members)) context.wrong.push_back(text);
  out[0] = {.kind = ValueKind::kWeight, .index = group, .version = has_all ? rounds : kSpoiled};
  out[0].oldest = op.staleness == kNoBound ? 0 : std::max(0, rounds - op.staleness);
  return out;
}

}  // namespace herd::program
