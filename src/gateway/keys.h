// The keys of all endpoints of a gateway: what they have used is kept on disk, reported to the
// head, and compared with their limits.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "gateway/pure/key_meter.h"
#include "gateway/table.h"

namespace billow::gateway {

class Keys {
 public:
  using Name = std::pair<std::string, std::string>;            // of the endpoint, and of the key
  explicit Keys(std::string path) : path_(std::move(path)) {}  // empty: nothing is kept
  void load();
  void save();  // if something has changed

  KeyMeter& meter(const std::string& endpoint, const std::string& key) {
    changed_ = true;
    return meters_[{endpoint, key}];
  }
  // What the head is told: the days that are not over, and those before.
  std::vector<KeyUse> report() const;
  const std::string& gateway() const { return gateway_; }

 private:
  std::string path_;
  std::string gateway_;  // the number under which the head counts this gateway
  std::map<Name, KeyMeter> meters_;
  bool changed_ = false;
};

}  // namespace billow::gateway
