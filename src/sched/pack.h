// How good a place is: the score that keeps GPUs usable for the work that is still to come.
//
// Four things make idle GPU useless, and each has a term (lower is better, about one GPU = 1.0):
//   fragment   what typical tasks could no longer use of the node's idle GPU, as FGD (ATC'23) counts it, unquantised;
//   card       what is expected to stay unused on the card at last, if typical shares keep filling it, good fits preferred;
//   stranded   idle GPU beyond what the node's idle cores can feed at the workload's usual cores per GPU;
//   scarce     taking a GPU type that type-bound work will need.
// Two small terms prefer nodes that are already nearly full. A tie is decided by what the nodes are, never by names or order.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "model/share.h"

namespace billow::sched {

struct PackWeights {
  double card = 1.0;
  double stranded = 0.3;
  double scarce = 0.3;
  double cores_left = 0.05;      // per 128 cores
  double gpus_left = 0.05;       // per 8 GPUs
  double cores_per_gpu = 1.1;    // times the workload's mean
  double fit_bias = 10.0;        // how strongly later shares are expected to choose cards they fill well
  double typical_part = 0.95;    // of the tasks make up the typical workload
};

// The GPU side of a node as the score sees it. A card's room is the smaller of its compute and its memory.
struct PackNode {
  static constexpr int gpus_max = 16;
  int type = -1;                 // of the model; -1: unknown to it
  int gpus = 0;
  std::array<std::int32_t, gpus_max> free{};
  std::int64_t cpu_milli = 0;
};

class PackModel {
 public:
  // `typical`: the work to keep room for, weighted by how often it comes. `capacity`: GPUs per type.
  PackModel(const std::vector<std::pair<Resources, double>>& typical, const std::map<std::string, std::int64_t>& capacity,
            PackWeights weights = {});

  int type_of(const std::string& gpu_type) const;
  double fragment(const PackNode& node) const;   // in GPUs
  double card_waste(int type, std::int32_t free_milli) const;
  // The score of taking `taken` milli and `cpu_milli` so that `before` becomes `after`; `before_fragment` = fragment(before).
  double score(const PackNode& before, double before_fragment, const PackNode& after) const;

 private:
  struct Group {                 // typical tasks alike in GPUs, by rising CPU request
    std::int32_t milli = 0, gpus = 0;
    std::vector<std::int64_t> cpu_milli;
    std::vector<double> weight_up_to;
  };
  struct Type {
    std::vector<Group> groups;   // by milli
    std::vector<float> waste;    // by milli left on a card
    double scarcity = 0;
  };
  PackWeights weights_;
  std::map<std::string, int> names_;
  std::vector<Type> types_;
  double cpu_per_gpu_ = 0;       // milli-cores per GPU of the typical work; 0: not known
};

// What is assumed to be typical before anything has run: mostly single GPUs, some parts and some whole nodes.
std::vector<std::pair<Resources, double>> typical_prior();

}  // namespace billow::sched
