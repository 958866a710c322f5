// A model of the project's own, which main() of own_model_main.cpp trains.
#pragma once

#include "herd/chain/chain_data.h"
#include "herd/chain/model_chain.h"

herd::Chain make_model();
herd::Batch read_points(const std::vector<int64_t>& samples);
