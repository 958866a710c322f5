// What a program of torch tensors uses of herd, in one include: collectives on at::Tensor, data parallel training of
// any module, its checkpoints, and models of one's own in every layout. It includes of torch what these need, and no
// more: a program includes the modules and optimizers that it uses.
//
//   auto comm = herd::Communicator::create();
//   comm.all_reduce(tensor);
//   herd::DistributedDataParallel ddp(net, comm);
//   herd::save_module("checkpoints", *net, &optimizer, comm, {.step = step});
#pragma once

#include "herd/base/error.h"
#include "herd/bridge/tensor_buffer.h"
#include "herd/checkpoint/module_checkpoint.h"
#include "herd/comm/communicator.h"
#include "herd/ddp/distributed_data_parallel.h"
#include "herd/ddp/sync_batch_norm.h"
#include "herd/train/train_chain.h"
