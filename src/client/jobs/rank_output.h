// Beside an attached session, which shows a gang's first node: the output of the others, until they
// end.
#pragma once

#include <memory>
#include <string>

#include "client/frame/connect.h"

namespace billow::client {

class RankOutput {
 public:
  RankOutput(const ConnectOptions& options, std::string job, std::uint64_t nodes);
  ~RankOutput();  // waits for them

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace billow::client
