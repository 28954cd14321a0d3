// The chain of the journal: each record carries a link, a hash over itself and the link of the
// record before it. A record that is changed, removed or inserted later breaks the chain from
// there on. Somebody who can write the database can compute a whole new chain; a link that was
// noted elsewhere (an export, a mail) shows that too.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/clock.h"
#include "base/ids.h"
#include "base/result.h"

namespace billow {

// What a link covers, besides the link before it. The payload enters as its digest, so that a
// reader who may not see payloads can check the chain.
struct LinkedFacts {
  Seq seq = 0;
  Epoch epoch = 0;
  WallTime at;
  std::string_view kind;
  std::string_view payload_sha256;  // hex
};
std::string link_of(std::string_view previous_link, const LinkedFacts& facts);

// Follows a chain from record 1 on, ascending. Records from before there were links have none; once
// there is one, all that follow must have one. Where retention removed records, the next one that
// is left comes with the link of the one before it, and the chain continues from there.
class ChainCheck {
 public:
  Status take(const LinkedFacts& facts,
              std::string_view link,
              const std::optional<std::string>& link_before = std::nullopt);

  Seq last() const { return last_; }
  const std::string& link() const { return link_; }
  std::uint64_t linked() const { return linked_; }
  std::uint64_t without_link() const { return without_link_; }
  std::uint64_t removed() const { return removed_; }  // by retention

 private:
  Seq last_ = 0;
  std::string link_;
  std::uint64_t linked_ = 0, without_link_ = 0, removed_ = 0;
};

}  // namespace billow
