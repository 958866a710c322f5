// Reads and writes folders of Hugging Face's transformers: config.json and one or more *.safetensors
// (docs/formats/gpt2.md, bert.md, llama.md), of the kinds of models that transformers_format() knows. Reading takes
// names with and without the format's prefix before them. It leaves out what follows from config.json (GPT-2's causal
// masks, Llama's frequencies) and a tied model's second copy of the embedding. Threads: one at a time.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <string>

#include "herd/convert/transformers_format.h"
#include "herd/convert/weight_source.h"
#include "herd/storage/file_system.h"

namespace herd::convert {

using Progress = std::function<void(int64_t done, int64_t all)>;  // takes the bytes written so far, and those of all

// Lists the names in a folder, sorted, with commas between them; at most 12, since error messages show them.
std::string list_names_for_message(const std::filesystem::path& folder);

// Tells whether the folder has a config.json and is no checkpoint of herd.
bool is_transformers_folder(const std::filesystem::path& folder);

// Opens the weights of a folder. Throws kBadConfig with what is missing, extra, or of another shape or type than
// config.json states.
std::unique_ptr<WeightSource> open_transformers_folder(const std::filesystem::path& folder);

// Writes config.json and model.safetensors into `folder`, which exists. It is not atomic by itself: see AtomicFolder.
void write_transformers_folder(const std::filesystem::path& folder, const TransformersFormat& format,
                               WeightSource& source, DType dtype, const Progress& progress,
                               FileSystem& files = FileSystem::system());

}  // namespace herd::convert
