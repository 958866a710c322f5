// The one precompiled header of herd_torch: tensors and autograd. Not torch/torch.h, torch/types.h or
// custom_function.h: the templates that they use are instantiated again in every source, 8, 1 and 1 s each; whoever
// needs torch::nn or an autograd::Function includes its header.
#pragma once
#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>
