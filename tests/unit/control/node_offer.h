// A node with GPUs, for tests.
#pragma once

#include "core/model/node.h"

namespace billow::control {

inline NodeOffer node_offer(std::string name, int gpus, std::string type = "H100") {
  NodeOffer o;
  o.name = std::move(name);
  o.boot_id = "boot";
  for (int i = 0; i < gpus; ++i)
    o.gpus.push_back({.index = i,
                      .uuid = o.name + "-" + std::to_string(i),
                      .vendor = "nvidia",
                      .type = type,
                      .mem_mib = 81559});
  o.cpu_milli = 64000;
  o.mem_mib = 65536;
  return o;
}

}  // namespace billow::control
