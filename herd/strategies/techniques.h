// The table of strategies: the rows of all techniques, in the order in which they rewrite a step. What a version
// supports follows from it.
// Threads: any may read; rows are added while nobody does.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "herd/strategies/technique.h"

namespace herd::strategies {

const std::vector<Technique>& techniques();

// A row of one's own, right after the row named `after`, as long as this lives. Throws kBadConfig where there is no
// such row, or there is one of its name.
class AddedTechnique {
 public:
  AddedTechnique(Technique row, std::string_view after);
  ~AddedTechnique();
  AddedTechnique(const AddedTechnique&) = delete;
  AddedTechnique& operator=(const AddedTechnique&) = delete;

 private:
  std::string_view name_;
};

// The first setting of [mesh] or [strategy] that no row supports: a program of this run can't be built.
std::optional<spec::Unsupported> without_technique(const spec::RunFile& run);

// "mesh.cp = 2 is not in this version", and on a second line the fix; empty where herd train takes the run.
std::string not_supported(const spec::RunFile& run);

// The layout of a run that this version can train. Throws kBadConfig with not_supported(), and as spec::resolve_mesh().
spec::Layout resolve(const spec::RunFile& run, int world_size);

}  // namespace herd::strategies
