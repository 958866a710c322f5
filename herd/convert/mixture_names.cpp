#include "herd/convert/llama_names.h"
#include "herd/convert/mixture_names_internal.h"

namespace herd::convert {

std::vector<StoredTensor> mixture_tensors(const Weight& weight, const spec::RunFile::Model& model,
                                          const MixtureNames& names) {
  const size_t dot = weight.name.starts_with("h.") ? weight.name.find('.', 2) : weight.name.npos;
  if (dot == weight.name.npos) return llama_tensors(weight, model);
  const std::string name = weight.name.substr(dot + 1);
  const std::string mixture = "layers." + weight.name.substr(2, dot - 1) + std::string(names.mixture);
  if (name == "router.weight") return {{mixture + "gate.weight", weight.shape}};
  if (name == "shared_gate.weight") return {{mixture + "shared_expert_gate.weight", weight.shape}};
  for (const auto& [mine, of_expert] : {std::pair("gate", names.gate), {"up", names.up}, {"down", names.down}}) {
    const std::string matrix = std::string(mine) + ".weight";
    if (name == "shared." + matrix)
      return {{mixture + std::string(names.shared) + mine + "_proj.weight", weight.shape}};
    if (name != "experts." + matrix) continue;
    std::vector<StoredTensor> out;
    for (int64_t e = 0; e < weight.shape[0]; ++e)
      out.push_back({mixture + "experts." + std::to_string(e) + "." + std::string(of_expert) + ".weight",
                     {weight.shape[1], weight.shape[2]}});
    return out;
  }
  return llama_tensors(weight, model);
}

}  // namespace herd::convert
