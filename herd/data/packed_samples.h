// Reads samples that are packed of whole documents (document_packing.h). Which sequence sample s is follows
// sample_order.h, as for windows: each epoch visits every sequence once. So the position of a run is one number.
//   random   made-up documents of uniform ids, whose lengths are uniform in [1, context]; a pure function of seed and
//            sample (for benches)
// Threads: any.
#pragma once

#include <filesystem>
#include <memory>

#include "herd/data/sample_source.h"

namespace herd {

// Opens a split of a folder as open_tokens(). Throws, too, kBadConfig where it has no ends of documents or no document
// has two ids, and kCorruptFile as read_document_ends() (document_file.h).
std::unique_ptr<SampleSource> open_documents(const std::filesystem::path& folder, Split split, int64_t context,
                                             uint64_t seed);
std::unique_ptr<SampleSource> random_documents(int64_t vocabulary, int64_t context, uint64_t seed);

}  // namespace herd
