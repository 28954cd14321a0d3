// The node's side of a fabric check: copies between its GPUs, and one end of a stream to another
// node. The figures are stored and become labels of the node. Only the head (head/fabric_check)
// starts a check.
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
    std::string data_dir;       // where the figures are stored
    std::vector<GpuInfo> gpus;  // in the order of the offer
    std::function<void(wire::fabric_v1::Answer)> answer;
    std::function<void()> on_labels;  // the labels changed, and with them the offer
  };
  Fabric(net::Loop& loop, Options options);
  ~Fabric();

  void ask(const wire::fabric_v1::Ask& ask);
  // Figures of the last check; they are dropped when the cards change.
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

// How the cards are connected, according to the driver: "gpu-link" is nvlink4 or pcie5, and
// "nvlink-gpus" is the number of cards that reach each other by NVLink.
std::map<std::string, std::string> link_labels(const std::vector<GpuInfo>& gpus);

}  // namespace billow::agent
