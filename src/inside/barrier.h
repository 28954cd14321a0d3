// The start barrier of a gang. The nodes meet at the address and port that the job itself will use
// (plus one), so that a network that cannot carry the job is found before the job begins. Both
// sides prove that they hold the gang's key.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/file.h"
#include "base/result.h"

namespace billow::client {

struct Barrier {
  std::int64_t rank = 0, nodes = 1;
  std::int64_t repairs = -1;  // -1: not an elastic gang
  std::string address, port, job;
  std::string key;  // known to this job's tasks only; empty: the head is of an older version
  std::vector<std::string> names;
  SteadyTime deadline;

  std::string name_of(std::int64_t rank) const;
  // The rank that a line of greeting proves, with our answer; none for a stranger or another job.
  std::optional<std::pair<std::int64_t, std::string>> greeted(const std::string& line) const;
  std::string hello(const std::string& nonce) const;
  std::string answer(std::int64_t to, const std::string& nonce) const;
  int left_ms() const;
};

// Waits for the other nodes. Returns the listener if later members may come (an elastic gang), and
// the connections by rank.
Result<Fd> meet_as_first(const Barrier& barrier, std::vector<Fd>& others);
// Waits for the first node. Returns the connection to it.
Result<Fd> meet_as_other(const Barrier& barrier);
// Lets a member in that takes the place of a lost one, after the gang has begun.
void admit_latecomer(const Barrier& barrier, const Fd& listener);

bool readable(int fd, int ms);

}  // namespace billow::client
