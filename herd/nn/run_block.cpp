#include "herd/nn/run_block.h"

#include <ATen/ops/empty.h>
#include <c10/core/AutogradState.h>

#include "herd/base/check.h"

namespace herd::nn {

Tuple Block::backward(const Tuple&, const Context&) {
  HERD_CHECK(false, "block " + name_ + " has no backward of its own");
  return {};
}

Graph run_forward(Block& block, const Tuple& x, const Context& context) {
  Graph graph;
  graph.groups = block.groups(), graph.block = &block;
  if (block.has_backward()) {
    graph.self_differentiating = &block, graph.context = context;
    graph.outputs = run_without_graph(block, x, context);
    return graph;
  }
  at::AutoGradMode with_grad(true);
  for (size_t i = 0; i < x.size(); ++i) {
    const bool differentiates = x[i].is_floating_point() && block.differentiates_input(i);
    graph.inputs.push_back(differentiates ? x[i].detach().requires_grad_() : x[i].detach());
  }
  graph.outputs = block.forward(graph.inputs, context);
  return graph;
}

Tuple detached(const Tuple& x) {
  Tuple out;
  for (const at::Tensor& tensor : x) out.push_back(tensor.detach());
  return out;
}

Tuple take_outputs(Graph& graph) {
  Tuple out = detached(graph.outputs);
  if (graph.self_differentiating != nullptr) graph.outputs.clear();
  // Replaces each output whole, since a view would keep its base even with its data replaced.
  for (at::Tensor& output : graph.outputs) {
    if (!output.requires_grad()) continue;
    at::Tensor edge = at::empty({0}, output.options().requires_grad(false));
    torch::autograd::impl::set_gradient_edge(edge, torch::autograd::impl::gradient_edge(output));
    output = edge;
  }
  return out;
}

namespace {

// On a device, autograd would go on in a thread of its own; labels of memory and gradients for later are this thread's.
class OwnThread {
 public:
  OwnThread() : before_(state().get_multithreading_enabled()) { state().set_multithreading_enabled(false); }
  ~OwnThread() { state().set_multithreading_enabled(before_); }
  OwnThread(const OwnThread&) = delete;
  OwnThread& operator=(const OwnThread&) = delete;

 private:
  static c10::AutogradState& state() { return c10::AutogradState::get_tls_state(); }
  bool before_;
};

}  // namespace

Tuple run_backward(Graph&& graph, const Tuple& dy, DeferredGradients* later) {
  if (graph.self_differentiating != nullptr) {
    at::NoGradGuard no_grad;
    Tuple dx = graph.self_differentiating->backward(dy, graph.context);
    finish_gradients(graph.groups, nullptr);
    return dx;
  }
  HERD_CHECK_EQ(dy.size(), graph.outputs.size());
  Tuple outputs, output_gradients, leaves;
  for (size_t i = 0; i < dy.size(); ++i) {
    if (!dy[i].defined() || !graph.outputs[i].requires_grad()) continue;
    outputs.push_back(graph.outputs[i]);
    output_gradients.push_back(dy[i]);
  }
  std::vector<Parameter*> parameters;
  for (const auto& group : graph.groups) {
    if (group->frozen()) continue;
    for (Parameter& parameter : group->parameters()) parameters.push_back(&parameter);
  }
  std::vector<size_t> input_index;
  for (size_t i = 0; i < graph.inputs.size(); ++i) {
    if (!graph.inputs[i].requires_grad()) continue;
    input_index.push_back(i);
    leaves.push_back(graph.inputs[i]);
  }
  for (Parameter* parameter : parameters) leaves.push_back(parameter->value());

  Tuple gradients(leaves.size());
  HERD_CHECK(graph.block != nullptr, "a graph without its block");
  const DeferScope scope(later);
  const OwnThread own_thread;
  if (!outputs.empty())  // without outputs, the block is frozen and its inputs are tokens
    graph.block->run_autograd([&] {
      gradients = torch::autograd::grad(outputs, leaves, output_gradients, /*retain_graph=*/false,
                                        /*create_graph=*/false, /*allow_unused=*/true);
    });
  Tuple dx(graph.inputs.size());
  // Without what it is a view of, which would count as another owner of its memory.
  for (size_t i = 0; i < input_index.size(); ++i)
    if (gradients[i].defined()) dx[input_index[i]] = gradients[i].detach();
  for (size_t i = 0; i < parameters.size(); ++i) {
    at::Tensor gradient = gradients[input_index.size() + i];
    if (!gradient.defined()) continue;
    if (gradient.is_sparse()) gradient = gradient.to_dense();  // that of an embedding with sparse(true)
    if (later != nullptr)
      later->add([parameter = parameters[i], gradient] { parameter->add_gradient(gradient); });
    else
      parameters[i]->add_gradient(gradient);
  }
  finish_gradients(graph.groups, later);
  graph = Graph();
  return dx;
}

Tuple run_without_graph(Block& block, const Tuple& x, const Context& context) {
  at::NoGradGuard no_grad;
  return block.forward(x, context);
}

}  // namespace herd::nn
