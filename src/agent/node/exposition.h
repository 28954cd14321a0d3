// The text format Prometheus reads (0.0.4), and a node's GPUs in it under the names of NVIDIA's
// dcgm-exporter, so that dashboards made for it work unchanged. The head writes all nodes with it,
// an agent its own.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/histogram.h"
#include "core/model/node.h"
#include "core/wire/agent_v1.h"

namespace billow::agent {

class Exposition {
 public:
  // Families come out in the order they were first named. `labels` is written as given: see
  // label().
  void add(
      const char* name, const char* type, const char* help, std::string_view labels, double value);
  void add(const char* name, const char* help, const Histogram& histogram);
  std::string text() const;

 private:
  struct Family {
    const char* name;
    const char* type;
    const char* help;
    std::string samples;
  };
  Family& family(const char* name, const char* type, const char* help);
  std::vector<Family> families_;
};

// name="value", with what must be escaped.
std::string label(std::string_view name, std::string_view value);
// gpu, UUID, device, modelName and Hostname, as dcgm-exporter has them.
std::string gpu_labels(const NodeGpu& gpu, std::string_view node);
void add_gpus(Exposition& out,
              std::string_view node,
              const std::vector<NodeGpu>& gpus,
              const wire::agent_v1::Heartbeat& beat);

}  // namespace billow::agent
