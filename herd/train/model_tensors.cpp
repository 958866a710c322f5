#include "herd/train/model_tensors.h"

#include <algorithm>
#include <functional>

#include "herd/storage/residual_name.h"
#include "herd/storage/waiting_gradient_name.h"

namespace herd::train {
namespace {

std::string state_name(const std::string& parameter, const optim::Optimizer& optimizer, int k) {
  return parameter + "." + std::string(optimizer.state_names()[static_cast<size_t>(k)]);
}

// Visits the boxes of a shared parameter that have some of the elements [begin, end) of what this rank holds. Calls
// visit(box of the whole, where its elements begin in what this rank holds, which elements of the box they are).
void for_each_box(const nn::ParameterSpec& spec, int64_t begin, int64_t end,
                  const std::function<void(std::vector<IndexRange>, int64_t, IndexRange)>& visit) {
  int64_t at = 0;
  for (const nn::Span& span : spec.spans) {
    std::vector<IndexRange> box;
    for (size_t d = 0; d < spec.whole_sizes.size(); ++d)
      box.push_back(static_cast<int>(d) == spec.cut_dim ? IndexRange{span.begin, span.end}
                                                        : IndexRange{0, spec.whole_sizes[d]});
    const int64_t count = num_box_elements({box, {}}), from = std::max(begin, at), to = std::min(end, at + count);
    if (from < to) visit(std::move(box), from, {from - at, to - at});
    at += count;
  }
}

using PartOf = std::function<kernels::ElementRange(int group)>;

PartOf whole_part(const runtime::FlatParameters& parameters) {
  return [&](int group) { return parameters.part(group); };
}
PartOf part_to_save(const runtime::FlatParameters& parameters) {
  return [&](int group) { return parameters.saved_part(group); };
}

// Adds the elements of each parameter of a group that lie in `part`. `memory` begins at element `first` of the group,
// as does `low`, which holds the lower halves where it is defined.
void add_pieces(const nn::ParameterGroup& group, kernels::ElementRange part, int64_t first, const at::Tensor& memory,
                const at::Tensor& low, const std::function<std::string(const std::string&)>& name,
                std::vector<NamedTensor>& out) {
  for (const nn::Parameter& parameter : group.parameters()) {
    const auto& spec = parameter.spec();
    const int64_t begin = std::max(part.begin, parameter.offset());
    const int64_t end = std::min(part.end, parameter.offset() + spec.elements());
    if (begin >= end) continue;
    const auto slice_of = [&](const at::Tensor& all, int64_t from, int64_t count) {
      return all.defined() ? all.narrow(0, from - first, count) : all;
    };
    if (spec.cut_dim >= 0) {
      for_each_box(spec, begin - parameter.offset(), end - parameter.offset(),
                   [&](std::vector<IndexRange> box, int64_t at, IndexRange elements) {
                     const int64_t from = parameter.offset() + at;
                     out.push_back({name(spec.name),
                                    slice_of(memory, from, elements.size()),
                                    {std::move(box), elements},
                                    spec.whole_sizes,
                                    slice_of(low, from, elements.size())});
                   });
      continue;
    }
    const at::Tensor piece = slice_of(memory, begin, end - begin), low_piece = slice_of(low, begin, end - begin);
    if (end - begin == spec.elements())
      out.push_back(whole_tensor(name(spec.name), piece.view(spec.sizes), low_piece));
    else
      out.push_back(flat_shard(name(spec.name), piece, spec.sizes, begin - parameter.offset(), low_piece));
  }
}

std::string same_name(const std::string& name) { return name; }

std::vector<NamedTensor> weights_of(const runtime::FlatParameters& parameters, const PartOf& part_of) {
  std::vector<NamedTensor> tensors;
  for (int g = 0; g < parameters.num_groups(); ++g) {
    if (!parameters.holds(g)) continue;
    const at::Tensor master = parameters.own_master(g);
    add_pieces(parameters.group(g), part_of(g), parameters.part(g).begin,
               master.defined() ? master : parameters.own_weights(g), parameters.own_low_halves(g), same_name, tensors);
  }
  return tensors;
}

std::vector<NamedTensor> tensors_of(const runtime::FlatParameters& parameters, const optim::Optimizer& optimizer,
                                    const PartOf& part_of) {
  std::vector<NamedTensor> tensors = weights_of(parameters, part_of);
  for (int k = 0; k < parameters.num_states(); ++k)
    for (int g = 0; g < parameters.num_groups(); ++g) {
      if (!parameters.holds(g) || parameters.group(g).frozen()) continue;
      add_pieces(
          parameters.group(g), part_of(g), parameters.part(g).begin, parameters.own_state(k, g), {},
          [&](const std::string& name) { return state_name(name, optimizer, k); }, tensors);
    }
  return tensors;
}

std::vector<NamedTensor> waiting_gradients(const runtime::FlatParameters& parameters, const PartOf& part_of) {
  std::vector<NamedTensor> tensors;
  for (int g = 0; g < parameters.num_groups(); ++g) {
    if (!parameters.holds(g) || parameters.group(g).frozen()) continue;
    add_pieces(parameters.group(g), part_of(g), parameters.part(g).begin, parameters.update_gradient(g), {},
               waiting_gradient_name, tensors);
  }
  return tensors;
}

}  // namespace

std::vector<NamedTensor> own_waiting_gradients(const runtime::FlatParameters& parameters) {
  return waiting_gradients(parameters, whole_part(parameters));
}

std::vector<NamedTensor> saved_waiting_gradients(const runtime::FlatParameters& parameters) {
  return waiting_gradients(parameters, part_to_save(parameters));
}

std::vector<NamedTensor> own_weights(const runtime::FlatParameters& parameters) {
  return weights_of(parameters, whole_part(parameters));
}

std::vector<NamedTensor> own_tensors(const runtime::FlatParameters& parameters, const optim::Optimizer& optimizer) {
  return tensors_of(parameters, optimizer, whole_part(parameters));
}

std::vector<NamedTensor> saved_tensors(const runtime::FlatParameters& parameters, const optim::Optimizer& optimizer) {
  return tensors_of(parameters, optimizer, part_to_save(parameters));
}

std::vector<NamedTensor> weights_of_server(const runtime::ServedParameters& served,
                                           const runtime::FlatParameters& parameters, bool first) {
  const runtime::ServerShare& share = served.share();
  std::vector<NamedTensor> tensors = weights_of(parameters, [&](int group) {
    const bool by_servers = share.has_group(group) && !share.is_dedicated();
    return first && !by_servers ? parameters.part(group) : kernels::ElementRange{0, 0};
  });
  for (int64_t key = 0; !share.is_dedicated() && key < share.keys().size(); ++key) {
    const int g = share.group_of(key);
    add_pieces(parameters.group(g), share.served(key), 0, parameters.own_weights(g), {}, same_name, tensors);
  }
  return tensors;
}

std::vector<NamedTensor> served_tensors(const runtime::ServerShare& share, const optim::Optimizer& optimizer) {
  std::vector<NamedTensor> tensors;
  for (int k = 0; k < share.num_moments(); ++k) {
    for (int64_t key = 0; key < share.keys().size(); ++key) {
      const kernels::ElementRange part = share.served(key);
      add_pieces(
          share.group(share.group_of(key)), part, part.begin, share.moment(k, key), {},
          [&](const std::string& name) { return state_name(name, optimizer, k); }, tensors);
    }
  }
  return tensors;
}

std::vector<NamedTensor> residual_tensors(const runtime::EncodedGradients& encoded,
                                          const runtime::FlatParameters& parameters, int rank) {
  std::vector<NamedTensor> tensors;
  for (const int group : encoded.groups())
    tensors.push_back(whole_tensor(residual_name(rank, parameters.group(group).name()), encoded.residual(group)));
  return tensors;
}

std::set<std::string> tensor_names(const runtime::FlatParameters& parameters, const optim::Optimizer& optimizer) {
  std::set<std::string> names;
  for (int g = 0; g < parameters.num_groups(); ++g) {
    for (const nn::Parameter& parameter : parameters.group(g).parameters()) {
      names.insert(parameter.spec().name);
      if (parameter.frozen()) continue;
      for (int k = 0; k < optimizer.num_states(); ++k) names.insert(state_name(parameter.spec().name, optimizer, k));
    }
  }
  return names;
}

}  // namespace herd::train
