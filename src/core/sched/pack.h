// The score of a placement: it keeps GPUs usable for future jobs.
//
// Four things make idle GPU capacity useless, and each has a term (lower is better, about one GPU =
// 1.0):
//   fragment   the part of the node's idle GPUs that typical tasks could no longer use, as FGD
//              (ATC'23) counts it, unquantised;
//   card       the part of the card expected to stay unused if typical shares keep filling it,
//              good fits preferred;
//   stranded   idle GPUs beyond what the node's idle cores can feed, expected over the cores per
//              GPU of the workload (a single mean has cliffs: nodes that just reach it all look
//              good, and those that just miss it all look bad);
//   scarce     taking a GPU type that jobs bound to it will need.
// Two small terms prefer nodes that are nearly full. Ties are broken by the nodes' properties,
// never by names or order.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "core/model/share.h"

namespace billow::sched {

struct PackWeights {
  double card = 1.0;
  double stranded = 0.8;
  double scarce = 0.3;
  double cores_left = 0.05;  // per 128 cores
  double gpus_left = 0.05;   // per 8 GPUs
  // How strongly later shares are expected to choose cards that they fill well.
  double fit_bias = 10.0;
  double typical_part = 0.95;  // this part of all tasks makes up the typical workload
};

// The GPUs of a node as the score sees them. A card's capacity is the smaller of its compute and
// its memory.
struct PackNode {
  static constexpr int gpus_max = 16;
  int type = -1;  // index in the model; -1: unknown
  int gpus = 0;
  std::array<std::int32_t, gpus_max> free{};
  std::int64_t cpu_milli = 0;
};

// The model's view of a node's capacity, computed once per state so that scoring a change of one
// card is a short loop.
struct PackView {
  int type = -1;
  std::int64_t idle_milli = 0;
  std::int64_t cpu_milli = 0;
  double fragment = 0;  // in GPUs
  double stranded = 0;
  struct Level {  // cards with at least the level's milli left
    std::int32_t cards = 0;
    std::int32_t sum = 0;
  };
  std::vector<Level> levels;  // same levels as the model's, by rising milli
  std::size_t reached = 0;    // the first so many of them have cards
};

class PackModel {
 public:
  // `typical`: the jobs to keep capacity free for, weighted by frequency. `capacity`: GPUs per
  // type.
  using Typical = std::vector<std::pair<Resources, double>>;
  PackModel(const Typical& typical,
            const std::map<std::string, std::int64_t>& capacity,
            PackWeights weights = {});

  int type_of(const std::string& gpu_type) const;
  double fragment(const PackNode& node) const;  // in GPUs
  double card_waste(int type, std::int32_t free_milli) const;
  void look(const PackNode& node, PackView& out) const;

  // The score of a task: on one card, with `free` before and `rest` after, or on so many cards
  // alike; without cards; or on several cards, so that the node becomes `after`.
  double score_card(const PackView& before,
                    std::int32_t free,
                    std::int32_t rest,
                    std::int64_t cpu_after,
                    std::int32_t cards = 1) const;
  double score_cores(const PackView& before, std::int64_t cpu_after) const;
  double score_cards(const PackNode& before_node,
                     const PackView& before,
                     const PackNode& after) const;

 private:
  struct Type {
    std::vector<std::int32_t> levels;     // the shares that typical tasks ask for, rising
    std::vector<std::uint16_t> within;    // by milli: how many of these fit
    std::vector<std::int64_t> cpu_steps;  // the cores that they ask for, rising
    int cards_max = 0;                    // the most cards that one of them asks for
    // The part of the typical workload that can use a card of a level, by free cards of that level
    // and free cores: [cpu rank][level][cards], where the rank is the number of steps reached.
    std::vector<double> usable;
    std::vector<float> waste;  // by milli left on a card
    double scarcity = 0;
    // Both are asked for every score.
    std::size_t levels_within(std::int32_t milli) const {
      return within[static_cast<std::size_t>(std::clamp(milli, 0, whole_gpu_milli))];
    }
    const double* row(std::int64_t cpu_milli) const {
      // Most nodes reach the last step: no search.
      const std::size_t reached =
          !cpu_steps.empty() && cpu_milli >= cpu_steps.back() ? cpu_steps.size() : rank(cpu_milli);
      return usable.data() + reached * levels.size() * (static_cast<std::size_t>(cards_max) + 1);
    }
    std::size_t rank(std::int64_t cpu_milli) const;
  };
  struct PopularTask {
    double weight = 0;
    std::int64_t cpu_milli = 0;
    std::int32_t gpus = 0;
    std::int32_t milli = 0;          // of each GPU
    std::vector<std::string> types;  // empty: any
  };
  void weigh_types(const Typical& typical, const std::map<std::string, std::int64_t>& capacity);
  void fill_cores_per_gpu(const Typical& typical);
  std::vector<PopularTask> popular_tasks(const Typical& typical, double& covered) const;
  void fill_waste(Type& type, const std::map<std::int32_t, double>& shares) const;
  static void fill_within(Type& type);
  void fill_usable(Type& type,
                   const std::map<std::pair<std::int32_t, std::int32_t>,
                                  std::map<std::int64_t, double>>& grouped) const;
  double stranded(std::int64_t idle_milli, std::int64_t cpu_milli) const;
  double finish(const PackView& before,
                double fragment_after,
                double waste,
                std::int64_t idle_after,
                std::int64_t cpu_after) const;

  PackWeights weights_;
  std::map<std::string, int> names_;
  std::vector<Type> types_;
  // Milli-cores per GPU of each quarter of the typical demand, rising; empty: not known. Work
  // without GPUs counts as if it were spread over them.
  std::vector<double> cores_per_gpu_;
};

// The workload assumed before anything has run: mostly single GPUs, some shares and some whole
// nodes.
std::vector<std::pair<Resources, double>> typical_prior();

}  // namespace billow::sched
