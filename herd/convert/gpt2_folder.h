// A folder in Hugging Face's format for GPT-2: config.json and one or more *.safetensors (docs/formats/gpt2.md).
// Reading takes names with and without "transformer." before them, and leaves out the causal masks that some files hold
// (h.N.attn.bias, h.N.attn.masked_bias) and a tied model's second copy of the embedding.
// Threads: one at a time.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <string>

#include "herd/convert/weight_source.h"
#include "herd/storage/file_system.h"

namespace herd::convert {

using Progress = std::function<void(int64_t done, int64_t all)>;  // bytes written

// The names in a folder, sorted, at most 12, with commas between them.
std::string names_in(const std::filesystem::path& folder);

// Whether it has a config.json and is no checkpoint of herd.
bool is_gpt2_folder(const std::filesystem::path& folder);

// Throws kBadConfig naming what is missing, extra, or of another shape or type than config.json states.
std::unique_ptr<WeightSource> open_gpt2_folder(const std::filesystem::path& folder);

// Writes config.json and model.safetensors into `folder`, which is there. Not atomic by itself: see AtomicFolder.
void write_gpt2_folder(const std::filesystem::path& folder, WeightSource& source, DType dtype, const Progress& progress,
                       FileSystem& files = FileSystem::system());

}  // namespace herd::convert
