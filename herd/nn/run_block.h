// Runs one block forward with a graph of its own, and backward through that graph.
//
// Layers with large weights (Linear, Embedding) write their weight gradients into the group's flat gradient themselves.
// run_backward() adds the few gradients that autograd returns (norms, positions). The groups must be attached in both
// passes, their gradients in the backward pass. Weights may move or be detached in between, but their bytes must be the
// same.
// Threads: one at a time.
#pragma once

#include "herd/nn/block.h"
#include "herd/nn/deferred_gradients.h"

namespace herd::nn {

// Holds what backward needs. It frees its memory when destroyed or after run_backward().
struct Graph {
  Tuple inputs;   // detached from the graph of the block before; floating ones require grad
  Tuple outputs;  // with grad history; pass take_outputs() to the next block
  std::vector<std::shared_ptr<ParameterGroup>> groups;
  const Block* block = nullptr;  // that made it, and outlives it
  // The block if it computes its own backward; then inputs is empty, and so is outputs after take_outputs(). Else null.
  Block* self_differentiating = nullptr;
  Context context = {};  // context of that backward
};

Graph run_forward(Block& block, const Tuple& x, const Context& context);
Tuple detached(const Tuple& x);  // returns the same memory without grad history
// Moves the outputs out of the graph, without grad history. The graph keeps the history, not the outputs' memory.
Tuple take_outputs(Graph& graph);

// Takes dy, the gradients of graph.outputs (undefined = zero). Returns dx, one per input; undefined where the input
// takes none. It consumes the graph and runs on the calling thread. With `later` it makes only the block's input
// gradient and leaves gradients of weights to `later`. REQUIRES then a block without a backward of its own.
Tuple run_backward(Graph&& graph, const Tuple& dy, DeferredGradients* later = nullptr);

// Runs forward without a graph: for evaluation, generation, and the first pass under recomputation.
Tuple run_without_graph(Block& block, const Tuple& x, const Context& context);

}  // namespace herd::nn
