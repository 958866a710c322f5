#include "herd/checkpoint/module_checkpoint.h"

#include <ATen/ATen.h>
#include <torch/optim/adagrad.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/rmsprop.h>
#include <torch/optim/sgd.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <sstream>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "herd/base/error.h"
#include "herd/base/version.h"
#include "herd/checkpoint/checkpoint_peers.h"
#include "herd/checkpoint/loader.h"

namespace herd {
namespace {

using torch::optim::Optimizer;
constexpr std::chrono::minutes kSlowestDisk{10};

// Each names the fields of a state that an optimizer keeps for a parameter: tensor(name, at::Tensor&), count(name,
// int64_t&).
void each_field(torch::optim::SGDParamState& state, const auto& tensor, const auto&) {
  tensor("momentum_buffer", state.momentum_buffer());
}
template <typename State>
requires std::is_same_v<State, torch::optim::AdamParamState> || std::is_same_v<State, torch::optim::AdamWParamState>
void each_field(State& state, const auto& tensor, const auto& count) {
  tensor("exp_avg", state.exp_avg());
  tensor("exp_avg_sq", state.exp_avg_sq());
  tensor("max_exp_avg_sq", state.max_exp_avg_sq());
  count("step", state.step());
}
void each_field(torch::optim::AdagradParamState& state, const auto& tensor, const auto& count) {
  tensor("sum", state.sum());
  count("step", state.step());
}
void each_field(torch::optim::RMSpropParamState& state, const auto& tensor, const auto& count) {
  tensor("square_avg", state.square_avg());
  tensor("momentum_buffer", state.momentum_buffer());
  tensor("grad_avg", state.grad_avg());
  count("step", state.step());
}

// Calls use() with a null pointer to the type of the optimizer's states.
template <typename Use>
void with_state_type(const Optimizer& optimizer, const Use& use) {
  using namespace torch::optim;
  if (dynamic_cast<const SGD*>(&optimizer) != nullptr) return use(static_cast<SGDParamState*>(nullptr));
  if (dynamic_cast<const AdamW*>(&optimizer) != nullptr) return use(static_cast<AdamWParamState*>(nullptr));
  if (dynamic_cast<const Adam*>(&optimizer) != nullptr) return use(static_cast<AdamParamState*>(nullptr));
  if (dynamic_cast<const Adagrad*>(&optimizer) != nullptr) return use(static_cast<AdagradParamState*>(nullptr));
  if (dynamic_cast<const RMSprop*>(&optimizer) != nullptr) return use(static_cast<RMSpropParamState*>(nullptr));
  throw Error(
      Code::kBadConfig,
      "the states of this optimizer can't be saved or loaded: herd knows those of SGD, Adam, AdamW, Adagrad and "
      "RMSprop\n  fix: one of these, or no optimizer (nullptr), and save its states yourself");
}

struct Member {
  std::string name;
  at::Tensor tensor;
};

// Returns parameters and buffers, each tensor once, under its first name.
std::vector<Member> members_of(const torch::nn::Module& module) {
  std::vector<Member> members;
  std::set<const void*> seen;
  for (const auto& list : {module.named_parameters(), module.named_buffers()}) {
    for (const auto& item : list) {
      if (item.value().defined() && seen.insert(item.value().unsafeGetTensorImpl()).second)
        members.push_back({item.key(), item.value().detach()});
    }
  }
  return members;
}

// Returns the optimizer's parameters with their names in the module.
std::vector<Member> parameters_of(const Optimizer& optimizer, const torch::nn::Module& module) {
  std::map<const void*, std::string> names;
  for (const auto& item : module.named_parameters()) names.try_emplace(item.value().unsafeGetTensorImpl(), item.key());
  std::vector<Member> parameters;
  for (const auto& group : optimizer.param_groups()) {
    for (const at::Tensor& tensor : group.params()) {
      const auto name = names.find(tensor.unsafeGetTensorImpl());
      if (name == names.end()) {
        std::ostringstream sizes;
        sizes << tensor.sizes();
        throw Error(Code::kBadConfig, "the optimizer has a parameter of sizes " + sizes.str() +
                                          " that the module does not have\n  fix: save and load it with the module "
                                          "whose parameters() it was made of");
      }
      parameters.push_back({name->second, tensor});
    }
  }
  return parameters;
}

// Adds this rank's share of the flattened tensor.
void add_share(std::vector<NamedTensor>& shares, const std::string& name, const at::Tensor& tensor,
               const Communicator& comm) {
  const at::Tensor flat = tensor.contiguous();
  const int64_t all = flat.numel(), n = comm.size(), r = comm.rank();
  if (all < n) {  // one rank writes what is too small to share
    if (r == 0) shares.push_back(whole_tensor(name, flat));
    return;
  }
  const int64_t begin = all / n * r + std::min(all % n, r), end = begin + all / n + (r < all % n ? 1 : 0);
  shares.push_back(flat_shard(name, flat.view({-1}).narrow(0, begin, end - begin), tensor.sizes().vec(), begin));
}

}  // namespace

std::filesystem::path save_module(const std::filesystem::path& root, const torch::nn::Module& module,
                                  Optimizer* optimizer, Communicator& comm, CheckpointState state, int keep) {
  at::NoGradGuard no_grad;
  std::vector<NamedTensor> shares;
  for (const Member& member : members_of(module)) add_share(shares, member.name, member.tensor, comm);
  if (optimizer != nullptr) {
    with_state_type(*optimizer, [&]<typename State>(State*) {
      for (const Member& parameter : parameters_of(*optimizer, module)) {
        const auto found = optimizer->state().find(parameter.tensor.unsafeGetTensorImpl());
        if (found == optimizer->state().end()) continue;  // it has had no gradient so far
        const auto add = [&](const std::string& field, const at::Tensor& value) {
          if (value.defined()) add_share(shares, parameter.name + "." + field, value.detach(), comm);
        };
        each_field(static_cast<State&>(*found->second), add,
                   [&](const char* field, int64_t count) { add(field, at::scalar_tensor(count, at::kLong)); });
      }
    });
  }
  const auto peers = checkpoint_peers(comm, kSlowestDisk);
  CheckpointSaver saver({.root = root, .keep = keep, .herd_version = version()}, *peers);
  saver.save(std::move(state), shares);
  saver.wait();
  return saver.last_saved();
}

std::optional<CheckpointState> load_module(const std::filesystem::path& root, torch::nn::Module& module,
                                           Optimizer* optimizer, Communicator& comm) {
  at::NoGradGuard no_grad;
  const auto peers = checkpoint_peers(comm, kSlowestDisk);
  const auto folder = find_resumable(root, *peers);
  if (!folder) return {};
  CheckpointReader reader(*folder);
  const auto& stored = reader.manifest().tensors;

  std::vector<NamedTensor> loaded;
  std::vector<std::function<void()>> then;  // what to do once all bytes are there
  std::set<std::string> names;              // that the checkpoint may hold
  const auto load = [&](const std::string& name, at::Tensor into) {
    at::Tensor bytes = into.is_contiguous() ? into : at::empty_like(into, at::MemoryFormat::Contiguous);
    if (!bytes.is_same(into)) then.emplace_back([into, bytes] { into.copy_(bytes); });
    loaded.push_back(whole_tensor(name, bytes));
    names.insert(name);
  };
  for (const Member& member : members_of(module)) load(member.name, member.tensor);
  if (optimizer != nullptr) {
    with_state_type(*optimizer, [&]<typename State>(State*) {
      for (const Member& parameter : parameters_of(*optimizer, module)) {
        auto state = std::make_shared<State>();
        bool any = false;
        const auto load_stored = [&](const std::string& field, const auto& make) {
          const std::string name = parameter.name + "." + field;
          if (!stored.contains(name)) return;
          load(name, make());
          any = true;
        };
        each_field(
            *state,
            [&](const char* field, at::Tensor& tensor) {
              load_stored(field,
                          [&] { return tensor = at::empty_like(parameter.tensor, at::MemoryFormat::Contiguous); });
            },
            [&](const char* field, int64_t& count) {
              load_stored(field, [&] {
                const at::Tensor value = at::zeros({}, at::kLong);
                then.emplace_back([state, &count, value] { count = value.item<int64_t>(); });
                return value;
              });
            });
        void* key = parameter.tensor.unsafeGetTensorImpl();
        then.emplace_back([optimizer, state, key, any] {
          if (any)
            optimizer->state()[key] = std::make_unique<State>(*state);
          else
            optimizer->state().erase(key);
        });
      }
    });
  } else {
    for (const auto& [name, tensor] : stored) {  // states of an optimizer are passed over
      for (const Member& member : members_of(module))
        if (name.starts_with(member.name + ".")) names.insert(name);
    }
  }
  load_tensors(reader, loaded, names);
  for (const auto& act : then) act();
  return CheckpointState{.step = reader.manifest().step,
                         .samples = reader.manifest().samples,
                         .config = reader.manifest().config,
                         .notes = reader.manifest().notes};
}

}  // namespace herd
