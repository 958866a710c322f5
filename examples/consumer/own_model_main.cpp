// Trains a model of one's own with an installed herd:   herd run -n 2 -- consumer_own_model own_model.toml
#include "herd/train/train_chain.h"
#include "own_model.h"

int main(int argc, char** argv) {
  return herd::train_chain(argc, argv, make_model(), {.read = read_points, .samples = 1000});
}
