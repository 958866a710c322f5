// Defines the table of strategies: the rows of all techniques, in the order in which they rewrite a step. What a
// version supports follows from it. Threads: any may read; nobody may read while a row is added.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "herd/strategies/technique.h"

namespace herd::strategies {

const std::vector<Technique>& techniques();

// Adds a row right after the row named `after`, as long as this object lives. Throws kBadConfig where no row has that
// name, or one has the new row's name.
class AddedTechnique {
 public:
  AddedTechnique(Technique row, std::string_view after);
  ~AddedTechnique();
  AddedTechnique(const AddedTechnique&) = delete;
  AddedTechnique& operator=(const AddedTechnique&) = delete;

 private:
  std::string_view name_;
};

// Returns the first setting of [mesh] or [strategy] that no row supports, so that no program can be built.
std::optional<spec::Unsupported> first_unsupported_setting(const spec::RunFile& run);

// Returns the first setting that the planner's equations do not know. They know what rows with Technique::in_equations
// support. `also_known` lists the values that they know although no row supports them.
std::optional<spec::Unsupported> first_setting_without_equations(const spec::RunFile& run,
                                                                 const std::vector<spec::SupportedValues>& also_known);

// Returns why herd train refuses the run, with a fix on a second line: "mesh.cp = 2 is not in this version". Empty
// where it takes the run.
std::string not_supported(const spec::RunFile& run);

// Returns by key the values that not_supported() refuses whatever else a run states: choices of a text, "more than 1"
// of a number. So the guide says what this version lacks.
std::map<std::string, std::string> refused_values();

// Returns the layout of a run that this version can train. Throws kBadConfig with not_supported(), and as
// spec::resolve_mesh().
spec::Layout trainable_layout(const spec::RunFile& run, int world_size);

}  // namespace herd::strategies
