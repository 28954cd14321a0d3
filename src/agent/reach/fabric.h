// The node's side of a fabric check: the copies between its GPUs, one end of a stream to another
// node, and the figures kept, which are labels of the node from then on. The head asks
// (head/fabric_check), and nothing happens that it did not ask for.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>

#include "agent/reach/stream_test.h"
#include "core/wire/fabric_v1.h"
#include "gpu/device.h"
#include "net/loop.h"
#include "net/workers.h"

namespace billow::agent {

class Fabric {
 public:
  struct Options {
    std::string data_dir;       // where the figures are kept
    std::vector<GpuInfo> gpus;  // as offered, in their order
    std::function<void(wire::fabric_v1::Answer)> answer;
    std::function<void()> on_labels;  // they changed: the offer did
  };
  Fabric(net::Loop& loop, Options options);
  ~Fabric();

  void ask(const wire::fabric_v1::Ask& ask);
  // Measured, from the last check; they go with the cards they were measured on.
  std::map<std::string, std::string> labels() const { return labels_; }

 private:
  struct Kept;
  void measure_gpus(const wire::fabric_v1::Ask& ask);
  void listen(const wire::fabric_v1::Ask& ask);
  void dial(const wire::fabric_v1::Ask& ask);
  void keep(const wire::fabric_v1::Ask& ask);
  std::string cards() const;
  std::string path() const { return options_.data_dir + "/fabric.json"; }

  net::Loop& loop_;
  Options options_;
  net::Workers workers_;
  std::unique_ptr<StreamListener> listener_;
  net::Timer listener_end_;
  std::map<std::string, std::string> labels_;
};

// What the driver says of how the cards are joined, for every node that joins: "gpu-link" is
// nvlink4 or pcie5, and "nvlink-gpus" how many reach each other by it.
std::map<std::string, std::string> link_labels(const std::vector<GpuInfo>& gpus);

}  // namespace billow::agent
