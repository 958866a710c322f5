#include "herd/chain/model_chain.h"

#include <c10/util/Type.h>

#include <algorithm>
#include <charconv>
#include <mutex>

#include "herd/base/error.h"

namespace herd {
namespace {

// Splits "layer:1" into the name and the number of the tensor; the number is 0 where the text has none.
std::pair<std::string, int> parse_reference(const std::string& text) {
  const size_t colon = text.rfind(':');
  if (colon == std::string::npos) return {text, 0};
  int number = 0;
  const char* end = text.data() + text.size();
  const auto [rest, status] = std::from_chars(text.data() + colon + 1, end, number);
  if (status != std::errc() || rest != end || number < 0)
    throw Error(Code::kBadConfig,
                "\"" + text + "\" names no tensor\n  fix: \"block\", or \"block:1\" for its second one");
  return {text.substr(0, colon), number};
}

using Make = std::function<std::shared_ptr<torch::nn::Module>()>;

// Returns `make`, but for a module that it gave before and that is still there: two blocks, or the trace and the run,
// would own its parameters.
Make new_each_time(const std::string& block, Make make) {
  struct Last {
    std::mutex mutex;
    std::weak_ptr<torch::nn::Module> module;
  };
  return [block, make = std::move(make), last = std::make_shared<Last>()] {
    std::shared_ptr<torch::nn::Module> module = make();
    std::lock_guard lock(last->mutex);
    if (module != nullptr && module == last->module.lock()) {
      throw Error(Code::kBadConfig, "the factory of block \"" + block +
                                        "\" gives the same module again, whose parameters herd has taken already"
                                        "\n  fix: a factory that builds its module inside, and anew in each call");
    }
    last->module = module;
    return module;
  };
}

}  // namespace

void Chain::refuse_type(const std::string& block, const std::string& owner, const char* taken_as,
                        const torch::nn::Module& module) {
  throw Error(Code::kBadConfig, "block \"" + block + "\" takes the module of block \"" + owner + "\" for a " +
                                    c10::demangle(taken_as) + ", and it is a " + module.name() +
                                    "\n  fix: that type in Chain::add_shared<...>()");
}

const Chain::Block* Chain::find(const std::string& name) const {
  const auto found = std::ranges::find(blocks_, name, &Block::name);
  return found == blocks_.end() ? nullptr : &*found;
}

const Chain::Block& Chain::owner_of(const Block& block) const { return *find(block.module); }

Chain& Chain::append(Block block) {
  if (block.name.empty() || block.name.find_first_of(": \t\n/") != std::string::npos)
    throw Error(Code::kBadConfig, "a block's name is a word without ':', '/' and spaces, got \"" + block.name +
                                      "\"\n  fix: another name");
  if (find(block.name) != nullptr)
    throw Error(Code::kBadConfig, "two blocks are named \"" + block.name + "\"\n  fix: another name for one of them");
  if (block.make && block.module == block.name) block.make = new_each_time(block.name, std::move(block.make));
  blocks_.push_back(std::move(block));
  return *this;
}

Chain& Chain::report(std::vector<std::string> figures) {
  for (const std::string& name : figures) {
    if (name.empty() || std::ranges::count(figures, name) > 1)
      throw Error(Code::kBadConfig, "Chain::report() gets the name \"" + name + "\"" + (name.empty() ? "" : " twice") +
                                        "\n  fix: another name for each figure");
  }
  figures_ = std::move(figures);
  return *this;
}

std::function<std::shared_ptr<torch::nn::Module>()> Chain::maker_of(const std::string& owner) const {
  const Block* block = find(owner);
  if (block == nullptr || block->module != owner)
    throw Error(Code::kBadConfig, "no earlier block \"" + owner + "\" has a module to share\n  fix: add() it first");
  return block->make;
}

std::vector<std::string> Chain::batch_names() const {
  std::vector<std::string> names;
  for (const Block& block : blocks_) {
    for (const std::string& text : block.reads) {
      const std::string name = parse_reference(text).first;
      if (find(name) == nullptr && std::ranges::count(names, name) == 0) names.push_back(name);
    }
  }
  return names;
}

std::vector<spec::TensorId> Chain::inputs_of(int index) const {
  const Block& block = blocks_.at(static_cast<size_t>(index));
  if (block.reads.empty() && index == 0)
    throw Error(Code::kBadConfig,
                "block \"" + block.name + "\" is the first, and reads nothing\n  fix: names of the batch's tensors");
  if (block.reads.empty()) return {{index, 0}};
  const std::vector<std::string> batch = batch_names();
  std::vector<spec::TensorId> inputs;
  for (const std::string& text : block.reads) {
    const auto [name, number] = parse_reference(text);
    const auto producer = std::ranges::find(blocks_, name, &Block::name) - blocks_.begin();
    if (producer == static_cast<long>(blocks_.size()))
      inputs.push_back({0, static_cast<int>(std::ranges::find(batch, name) - batch.begin())});
    else if (producer < index)
      inputs.push_back({static_cast<int>(producer) + 1, number});
    else
      throw Error(Code::kBadConfig, "block \"" + block.name + "\" reads \"" + text +
                                        "\", which comes later in the chain\n  fix: add \"" + name + "\" before it");
    if (std::ranges::count(inputs, inputs.back()) > 1)
      throw Error(Code::kBadConfig, "block \"" + block.name + "\" reads \"" + text + "\" twice\n  fix: name it once");
  }
  return inputs;
}

}  // namespace herd
