#include "herd/data/token_folder_writer.h"

#include <cmath>
#include <nlohmann/json.hpp>
#include <set>
#include <string>

#include "herd/base/error.h"
#include "herd/data/document_file.h"
#include "herd/storage/file_kind.h"
#include "herd/storage/temporary_name.h"

namespace herd {
namespace {

constexpr char kTrain[] = "train.tokens", kValidation[] = "val.tokens";

void add_end(std::vector<int64_t>& ends, int64_t tokens) {
  if (tokens > (ends.empty() ? 0 : ends.back())) ends.push_back(tokens);
}

// Throws unless the folder is absent, is empty, or holds the files of an earlier herd tokenize alone.
void require_own(const std::filesystem::path& folder) {
  if (!is_taken(folder)) return;
  if (!is_folder(folder)) {
    throw Error(Code::kBadConfig, folder.string() + " is a file, --out takes a folder\n  fix: another --out");
  }
  const std::set<std::string> own_names = {
      kTokenizerFile, kTrain, kValidation, kMetaFile, documents_path(kTrain), documents_path(kValidation)};
  for (const auto& path : entries_of(folder)) {
    const std::string name = path.filename().string();
    if (own_names.contains(name.substr(0, name.find(".tmp.")))) continue;
    throw Error(Code::kBadConfig, folder.string() + " holds " + name + ", which herd tokenize did not write" +
                                      "\n  fix: an --out that is new, empty, or holds tokens alone");
  }
}

// Makes the folder, and removes what an earlier run left in it and this one may not write.
std::filesystem::path prepared(const std::filesystem::path& out) {
  make_folders(out);
  remove_stale_temporaries(out);
  for (const char* old_name : {kMetaFile, kTokenizerFile}) FileSystem::system().remove(out / old_name);
  return out;
}

}  // namespace

void TokenFolderWriter::check_can_write(const std::filesystem::path& out, double validation) {
  if (!(validation >= 0 && validation <= 0.5)) {
    throw Error(Code::kBadConfig,
                "--validation " + std::to_string(validation) + " is not in [0, 0.5]\n  fix: --validation 0.05");
  }
  require_own(out);
}

TokenFolderWriter::TokenFolderWriter(std::filesystem::path out, int vocabulary, double validation)
    : out_(prepared(out)),
      vocabulary_(vocabulary),
      shares_(validation),
      train_(out_ / kTrain, vocabulary),
      validation_(out_ / kValidation, vocabulary) {}

Split SplitShares::next(double size) {
  constexpr double kGoldenRatio = 0.6180339887498949;  // its multiples, modulo 1, have no period
  size_ += size;
  const auto taken = static_cast<double>(num_validation_);
  const double place = std::fmod(0.5 + taken * kGoldenRatio, 1.0);
  const bool is_due = share_ * static_cast<double>(num_pieces() + 1) >= taken + place;
  const Split split = is_due && share_ * size_ >= size / 2 ? Split::kValidation : Split::kTrain;
  ++(split == Split::kValidation ? num_validation_ : num_train_);
  return split;
}

Split TokenFolderWriter::append(std::span<const int> ids, double size) {
  const Split split = shares_.next(size);
  append_to(split, ids);
  return split;
}

void TokenFolderWriter::end_document() {
  add_end(train_ends_, train_.count());
  add_end(validation_ends_, validation_.count());
}

TokenFolder TokenFolderWriter::commit(const Origin& origin) {
  end_document();
  train_.commit();
  validation_.commit();
  write_document_file(out_ / documents_path(kTrain), train_ends_, train_.checksum());
  write_document_file(out_ / documents_path(kValidation), validation_ends_, validation_.checksum());
  nlohmann::ordered_json sources = nlohmann::ordered_json::array();
  for (const auto& file : origin.files)
    sources.push_back({{"path", file.string()}, {"bytes", std::filesystem::file_size(file)}});
  nlohmann::ordered_json meta = {{"format", kTokenFolderFormat},
                                 {"version", 1},
                                 {"vocabulary", vocabulary_},
                                 {"train_tokens", train_.count()},
                                 {"validation_tokens", validation_.count()},
                                 {"train_documents", train_ends_.size()},
                                 {"validation_documents", validation_ends_.size()},
                                 {"text_bytes", origin.text_bytes},
                                 {"end_of_text", nullptr},
                                 {"files", sources}};
  if (origin.end_of_text) meta["end_of_text"] = *origin.end_of_text;
  write_file_atomically(out_ / kMetaFile, meta.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n");
  return {.text_bytes = origin.text_bytes,
          .train_tokens = train_.count(),
          .validation_tokens = validation_.count(),
          .documents = static_cast<int64_t>(train_ends_.size() + validation_ends_.size()),
          .vocabulary = vocabulary_};
}

}  // namespace herd
