// The agent's side of the protocol: one connection, one request at a time. Every call waits for its
// answer, for at most a few seconds: the helper does what it is asked at once, as the agent did
// when it was root itself.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"
#include "base/result.h"
#include "privileged/protocol.h"

namespace billow::privileged {

class Client {
 public:
  struct Answer {
    Reply reply;
    std::vector<Fd> descriptors;
  };
  explicit Client(std::string path) : path_(std::move(path)) {}

  // An error of the helper is one of this call. A connection on which nothing can be sent is made
  // anew, once: the helper may have been started again. Nothing is asked twice: who gets no answer
  // does not know what was done.
  Result<Answer> call(const Request& request, const std::vector<std::string_view>& contents = {});

 private:
  Status connect();
  Result<Answer> receive_answer();
  std::string path_;
  Fd socket_;
};

}  // namespace billow::privileged
