// What a long run has read from its disk. A new head reads the same snapshot and the same records
// as the one before it, and both say the same as often as they are read: each is read once, and
// then remembered. The checks of replay fold each record once into the state that the snapshot and
// the records make. Short runs read everything anew.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <optional>

#include "core/control/core.h"
#include "store/journal.h"

namespace billow::sim {

class Readings {
 public:
  explicit Readings(const std::vector<Record>& records) : records_(records) {}
  Result<control::State> state_of(const Snapshot& snapshot);
  // The state that the snapshot and all records after it make; valid until the next call.
  Result<const control::State*> replayed(const Snapshot& snapshot);
  Result<std::shared_ptr<const Event>> event_of(const Record& record);

 private:
  struct Image {
    Snapshot snapshot;
    std::function<Result<control::State>()> state;
    std::unique_ptr<control::Core> replay;  // once it was asked for
  };
  Result<Image*> image_of(const Snapshot& snapshot);

  const std::vector<Record>& records_;               // by seq, the first is 1
  std::deque<Image> images_;                         // of the newest snapshots
  std::deque<std::shared_ptr<const Event>> events_;  // newest last, without gaps
};

// The event of a record that can be read; without `readings` it is read anew.
std::shared_ptr<const Event> read_record(const Record& record, Readings* readings);
// Keys and tokens in a record are random: of its text only the length is taken.
void add_to_hash(std::uint64_t& hash, const Record& record);

}  // namespace billow::sim
