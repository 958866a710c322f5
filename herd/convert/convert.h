// Converts weights from one format and precision to another, piece by piece and never whole in memory. It reads a herd
// checkpoint or a folder of Hugging Face's transformers, and writes either. It leaves optimizer states out. The folder
// appears whole or not at all, and is durable. It copies the tokenizer and the generation config of the source
// (companions.h), since a model only works with the token ids that it was trained on. Throws as open_weights() and
// AtomicFolder; kBadConfig for a weight that the precision can't hold or that is not finite, and for a model that the
// format can't state. Threads: any, on different folders.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string_view>

#include "herd/base/dtype.h"
#include "herd/convert/companions.h"
#include "herd/convert/transformers_folder.h"
#include "herd/storage/atomic_folder.h"

namespace herd::convert {

// A checkpoint that holds weights alone has the note kContentNote with the value kWeightsOnly. No run resumes from it.
inline constexpr char kContentNote[] = "holds", kWeightsOnly[] = "weights";

enum class Format { kHerd, kGpt2, kLlama, kMixtral, kQwen2, kQwen3, kQwen2Moe, kQwen3Moe, kDeepseek, kBert };

// Names the formats, in the order of the enum; all but the first are types of models that transformers has.
inline constexpr std::string_view kFormatNames[] = {"herd",  "gpt2",      "llama",     "mixtral",  "qwen2",
                                                    "qwen3", "qwen2_moe", "qwen3_moe", "deepseek", "bert"};

struct ConvertOptions {
  std::filesystem::path source, out;
  Format to = Format::kHerd;
  DType dtype = DType::kF32;  // fp32, bf16 or fp16
  Replace replace = Replace::kNever;
  // Returns companions that the source's folder does not hold, such as the tokenizer of its data.
  std::function<Companions(const WeightSource&)> extra_companions = {};
  Progress progress = {};
};

struct Converted {
  spec::RunFile run;  // describes the model
  int64_t parameters = 0, bytes = 0;
  std::vector<std::string> companions = {};  // names of the companions that were written
  std::vector<std::string> warnings = {};    // what may go wrong with the folder, each with a fix on a last line
};

Converted convert(const ConvertOptions& options, FileSystem& files = FileSystem::system());

}  // namespace herd::convert
