#include "herd/train/routing_files.h"

#include <algorithm>
#include <cerrno>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "herd/base/error.h"
#include "herd/storage/atomic_file.h"
#include "herd/storage/routing_folder.h"

namespace herd::train {
namespace {

namespace fs = std::filesystem;

constexpr char kRoutingHeader[] = R"({"format":"herd-routing","version":1})";
constexpr int64_t kMostExperts = std::numeric_limits<int32_t>::max();

class RoutingLine {
 public:
  RoutingLine(const fs::path& file, int64_t line, const std::string& text)
      : where_(file.string() + " line " + std::to_string(line) + ": "),
        json_(nlohmann::json::parse(text, nullptr, false)) {
    if (!json_.is_object()) corrupt("not a JSON object");
  }

  void check_header() const {
    if (json_.value("format", nlohmann::json()) != "herd-routing" || json_.value("version", nlohmann::json()) != 1)
      corrupt(std::string("a routing file starts with ") + kRoutingHeader);
  }

  void add_to(nn::RecordedRouting& routing) const {
    nn::SampleChoices choices{.top_k = whole("top_k", 1, kMostExperts)};
    const auto experts = json_.find("experts");
    if (experts == json_.end() || !experts->is_array() || std::ssize(*experts) % choices.top_k != 0)
      corrupt("\"experts\" must be a list of top_k whole numbers for each token");
    for (const nlohmann::json& expert : *experts) {
      const bool is_whole = expert.is_number_integer() &&
                            !(expert.is_number_unsigned() && expert.get<uint64_t>() >= kMostExperts) &&
                            expert.get<int64_t>() >= -1 && expert.get<int64_t>() < kMostExperts;
      if (!is_whole) corrupt("\"experts\" must be whole numbers, or -1 where a token's is not known");
      choices.experts.push_back(expert.get<int32_t>());
    }
    try {
      routing.add({step() - 1, static_cast<int>(whole("layer", 0, std::numeric_limits<int>::max())),
                   whole("sample", 0, std::numeric_limits<int64_t>::max())},
                  choices);
    } catch (const Error& error) {
      if (error.code() == Code::kCorruptFile) throw;
      corrupt(error.message());
    }
  }
  int64_t step() const { return whole("step", 1, std::numeric_limits<int64_t>::max()); }

 private:
  [[noreturn]] void corrupt(const std::string& rule) const { throw Error(Code::kCorruptFile, where_ + rule); }

  int64_t whole(const char* name, int64_t least, int64_t most) const {
    const auto found = json_.find(name);
    const bool is_whole = found != json_.end() && found->is_number_integer() &&
                          !(found->is_number_unsigned() && found->get<uint64_t>() > static_cast<uint64_t>(most)) &&
                          found->get<int64_t>() >= least && found->get<int64_t>() <= most;
    if (!is_whole)
      corrupt("it must have the whole number \"" + std::string(name) + "\", from " + std::to_string(least) + " on");
    return found->get<int64_t>();
  }

  std::string where_;
  nlohmann::json json_;
};

fs::path file_of(const fs::path& folder, int rank) { return folder / ("rank" + std::to_string(rank) + ".jsonl"); }

void read_file(const fs::path& path, nn::RecordedRouting& routing) {
  std::ifstream file(path);
  int64_t line = 0;
  for (std::string text; std::getline(file, text);) {
    if (file.eof() && line > 0) break;  // a rank was killed as it wrote
    const RoutingLine parsed(path, ++line, text);
    if (line == 1)
      parsed.check_header();
    else
      parsed.add_to(routing);
  }
  if (line == 0) throw Error(Code::kCorruptFile, path.string() + ": a routing file starts with " + kRoutingHeader);
}

// Writes the file anew with the lines up to a step, or with none but the first.
void keep_steps(const fs::path& path, int64_t most) {
  std::string kept = std::string(kRoutingHeader) + "\n";
  std::ifstream before(path);
  int64_t line = 0;
  for (std::string text; most > 0 && std::getline(before, text) && !before.eof();) {
    const RoutingLine parsed(path, ++line, text);
    if (line == 1)
      parsed.check_header();
    else if (parsed.step() <= most)
      kept += text + "\n";
  }
  before.close();
  write_file_atomically(path, kept);
}

}  // namespace

void RoutingRecorder::open(int64_t resumed_step) {
  make_folders(folder_);
  const fs::path own = file_of(folder_, rank_);
  keep_steps(own, resumed_step);
  for (int more = ranks_; rank_ == 0 && fs::exists(file_of(folder_, more)); ++more) {
    if (resumed_step > 0)
      keep_steps(file_of(folder_, more), resumed_step);
    else
      fs::remove(file_of(folder_, more));
  }
  file_.open(own, std::ios::app);
  if (!file_) throw_errno(Code::kStorage, "open " + own.string(), errno);
}

void RoutingRecorder::write() {
  for (const auto& [at, choices] : routing_.samples()) {
    const nlohmann::ordered_json line = {{"step", at.step + 1},
                                         {"layer", at.layer},
                                         {"sample", at.sample},
                                         {"top_k", choices.top_k},
                                         {"experts", choices.experts}};
    file_ << line.dump() << "\n";
  }
  routing_.clear();
  if (!file_.flush())
    throw_errno(Code::kStorage, "write the routing of a step to " + file_of(folder_, rank_).string(), errno);
}

nn::RecordedRouting read_routing(const fs::path& folder) {
  nn::RecordedRouting routing;
  for (const fs::path& file : recorded_routing_files(folder)) read_file(file, routing);
  return routing;
}

}  // namespace herd::train
