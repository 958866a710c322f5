// Writes a folder of tokens that training reads, from text files:
//   tokenizer.model   sentencepiece, herd/data/tokenizer.h; not in a folder of ids (id_folder.h)
//   train.tokens      herd/data/token_file.h
//   val.tokens        the validation split
//   train.documents, val.documents   where their documents end, herd/data/document_file.h
//   meta.json         written last: a folder without it is unfinished and refused
// The tokens of every document end with the end-of-text token. Where each file is one document, the split is by runs of
// whole lines spread evenly over the text, else by documents; it is a pure function of the text and the fraction. So
// validation sees the same kind of text as training.
// Threads: any, on different folders.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "herd/data/text_documents.h"

namespace herd {

inline constexpr char kTokenizerFile[] = "tokenizer.model", kMetaFile[] = "meta.json",
                      kTokenFolderFormat[] = "herd-token-folder";

struct TokenFolderOptions {
  std::vector<std::filesystem::path> files;
  std::filesystem::path out;
  int vocabulary = 4096;
  double validation = 0.05;                  // share of the text, in [0, 0.5]; 0 writes an empty val.tokens
  int64_t learn_bytes = int64_t{256} << 20;  // the vocabulary is learned from at most this much, taken from every file
  std::function<void(int64_t done_bytes, int64_t all_bytes)> progress = {};  // is called now and then
  bool replace_bad_bytes = false;  // U+FFFD for each byte that is no UTF-8, in place of an error; not with kJsonl
  TextDocuments documents = TextDocuments::kFiles;
};

struct TokenFolder {
  int64_t text_bytes = 0, train_tokens = 0, validation_tokens = 0;
  int64_t documents = 0;  // of both splits; one with tokens in both counts twice
  int vocabulary = 0;
  int64_t replaced_bytes = 0;  // bytes that are no UTF-8, and U+FFFD in the tokens
  int64_t space_marks = 0;     // characters U+2581 of the text, which come back from its tokens as spaces
};

// Learns a tokenizer and writes the folder. Throws kBadConfig if a file cannot be read, is empty or is not UTF-8,
// if `out` holds anything that this function did not write, or as Tokenizer::train. Throws kStorage if the disk is
// full. Files of an earlier run are replaced.
TokenFolder write_token_folder(const TokenFolderOptions& options);

// Holds what meta.json says of the tokens.
struct TokenFolderFacts {
  bool has_tokenizer = true;                // the tokens are of tokenizer.model; else of a tokenizer elsewhere
  std::optional<int64_t> end_of_text = {};  // the id after each text, where that is known
};
// Reads meta.json. Throws kBadConfig if the folder lacks it, kCorruptFile if that is not what TokenFolderWriter
// (token_folder_writer.h) writes.
TokenFolderFacts read_token_folder(const std::filesystem::path& folder);

// Returns what tells the tokenizer of a folder's ids from another: the checksum of tokenizer.model, or the vocabulary
// and the end of text of ids whose tokenizer is elsewhere. Throws as read_token_folder() and TokenFile.
std::string identify_tokenizer(const std::filesystem::path& folder);

}  // namespace herd
