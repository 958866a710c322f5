// The one precompiled header of herd_torch: tensors and autograd. Not torch/torch.h: the templates of its nn and data
// classes are instantiated again in every source, 8 s each; whoever needs torch::nn includes the header of that class.
#pragma once
#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/types.h>
