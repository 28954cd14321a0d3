// The keys of all endpoints of a gateway: what they have used is kept on disk, reported to the
// head, and compared with their limits.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "gateway/pure/key_meter.h"
#include "gateway/record/disk_writer.h"
#include "gateway/table.h"

namespace billow::gateway {

// What a key has used, as it is on disk.
struct KeptKey {
  std::string endpoint, key;
  std::vector<KeyWindow> windows;
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("endpoint", s.endpoint);
    v("key", s.key);
    v("windows", s.windows);
  }
};

class Keys {
 public:
  using Name = std::pair<std::string, std::string>;  // of the endpoint, and of the key
  // Without a path, nothing is kept.
  Keys(DiskWriter& disk, std::string path) : disk_(disk), path_(std::move(path)) {}
  void load();
  void save();  // if something has changed

  KeyMeter& meter(const std::string& endpoint, const std::string& key) {
    changed_ = true;
    return meters_[{endpoint, key}];
  }
  // What is reported to the head: the days that are not over, and those before.
  std::vector<KeyUse> report() const;
  const std::string& gateway() const { return gateway_; }

  // A successor continues with what is saved now; it hears of the rest.
  void hand_over();
  std::vector<KeptKey> since_hand_over() const;
  void hear_predecessor(const std::vector<KeptKey>& since);

 private:
  DiskWriter& disk_;
  std::string path_;
  std::string gateway_;  // the number under which the head counts this gateway
  std::map<Name, KeyMeter> meters_;
  bool changed_ = false;
  std::map<Name, std::vector<KeyWindow>> handed_;       // as saved for the successor
  std::map<Name, std::vector<KeyWindow>> predecessor_;  // what it had used when last heard
};

}  // namespace billow::gateway
