// Writes a folder of tokens that training reads (token_folder.h) from token ids of a tokenizer that is not herd's,
// without tokenizer.model. Of .jsonl files each document goes to one split, of other files
// each run of ids (32 Ki ids or fewer). Threads: any, on different folders.
#pragma once

#include "herd/data/id_file.h"
#include "herd/data/token_folder.h"

namespace herd {

struct IdFolderOptions {
  std::vector<std::filesystem::path> files = {};  // of the kinds of id_file.h
  std::filesystem::path out = {};
  int vocabulary_size = 0;                  // number of tokens of the tokenizer that wrote the ids
  std::optional<IdType> raw_type = {};      // type of the ids in files that are neither .npy nor .jsonl
  std::optional<int64_t> end_of_text = {};  // this id is put after each document that does not end with it
  double validation = 0.05;                 // share of the ids, in [0, 0.5]
  std::function<void(int64_t done_bytes, int64_t all_bytes)> progress = {};
};

// Throws as read_id_file() and write_token_folder(); kBadConfig where the files hold no ids. On an error no folder
// is left that training would accept.
TokenFolder write_id_folder(const IdFolderOptions& options);

}  // namespace herd
