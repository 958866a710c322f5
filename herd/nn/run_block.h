// Runs one block forward with a graph of its own, and backward through that graph.
//
// Layers with large weights (Linear, Embedding) write their weight gradients into the group's flat gradient themselves;
// what autograd returns for the small rest (norms, positions) is added to it here.
// The groups must be attached in both passes, their gradients in the backward pass. Weights may lie elsewhere then, or
// have been detached in between; their bytes must be the same.
#pragma once

#include "herd/nn/block.h"
#include "herd/nn/deferred_gradients.h"

namespace herd::nn {

// What backward needs. Frees its memory when destroyed or after run_backward.
struct Graph {
  Tuple inputs;   // detached from the graph of the block before; floating ones require grad
  Tuple outputs;  // with grad history; hand on taken_outputs()
  std::vector<std::shared_ptr<ParameterGroup>> groups;
  Block* own = nullptr;  // a block that has a backward of its own; then there are no tensors
  Context context = {};  // for it
};

Graph run_forward(Block& block, const Tuple& x, const Context& context);
Tuple detached(const Tuple& x);  // the same memory without grad history
// The outputs without grad history; the graph keeps no more of them than the way back.
Tuple taken_outputs(Graph& graph);

// dy: gradients of graph.outputs (undefined = zero). Returns dx, one per input; undefined where the input takes none.
// Consumes the graph. Runs on the calling thread. With `later`, gradients of weights are left to it, and then only the
// block's input gradient is made here; it must be a block without a backward of its own.
Tuple run_backward(Graph&& graph, const Tuple& dy, DeferredGradients* later = nullptr);

// Forward without a graph: evaluation, generation, and the first pass under recomputation.
Tuple run_without_graph(Block& block, const Tuple& x, const Context& context);

}  // namespace herd::nn
