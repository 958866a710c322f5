// Says what a Trainer trains: where the blocks of the model come from, and its samples. There are two: the families of
// model.kind, and a chain of own blocks (chain_source.h). Threads: one at a time; collective where it says so.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "herd/comm/communicator.h"
#include "herd/data/sample_source.h"
#include "herd/models/model.h"
#include "herd/program/program.h"
#include "herd/runtime/model_bindings.h"
#include "herd/spec/model_table.h"
#include "herd/spec/run_file.h"

namespace herd::train {

// Reads samples by global index, as micro-batches.
class Samples {
 public:
  virtual ~Samples() = default;
  virtual int64_t per_epoch() const = 0;
  virtual std::string summary() const { return {}; }  // says what a log should hold of them; may be empty
  // Returns the micro-batches of the program's rank, of a batch of `batch` samples over all ranks that begins with
  // global sample `first`, and the weight of their losses. There are as many as in the program, of at most
  // `micro_batch` samples. Collective.
  virtual runtime::StepInput read(int64_t first, int64_t batch, int64_t micro_batch,
                                  const program::Program& step) const = 0;
};

class ModelSource {
 public:
  virtual ~ModelSource() = default;
  // Returns the run file with what follows from the model. Collective; throws the same error on every rank.
  virtual spec::RunFile complete(spec::RunFile run, Communicator& comm) const = 0;
  // Builds the part of the model that the program's rank runs, with its parameters on `device`.
  virtual models::Model make(const spec::RunFile& run, const spec::ModelTable& table, const program::Program& step,
                             at::Device device) const = 0;
  virtual std::unique_ptr<Samples> open(const spec::RunFile& run, Split split, Communicator& comm) const = 0;
  // Tells whether open() has samples for a validation.
  virtual bool has_validation() const = 0;
  // Returns the names of the figures that a validation reports beside the loss.
  virtual std::vector<std::string> figures() const { return {}; }
  // Tells whether samples for training are read beside the steps before.
  virtual bool reads_ahead() const { return false; }
  // Returns one micro-batch of `rows` samples, to time passes with.
  virtual runtime::StepInput example(const spec::RunFile& run, int64_t rows) const = 0;
};

// Returns the source of the families that model.kind names, which reads the data of [data].
std::shared_ptr<const ModelSource> family_source();

// Reads windows of tokens, in samples of context + 1 ids.
std::unique_ptr<Samples> token_samples(std::unique_ptr<SampleSource> source);

}  // namespace herd::train
