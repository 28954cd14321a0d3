#include "core/model/chain.h"

#include <fmt/format.h>

#include "base/crypto.h"

namespace billow {

std::string link_of(std::string_view previous_link, const LinkedFacts& facts) {
  return sha256_hex(fmt::format("{}\n{}\n{}\n{}\n{}\n{}", previous_link, facts.seq, facts.epoch,
                                facts.at.ns, facts.kind, facts.payload_sha256));
}

Status ChainCheck::take(const LinkedFacts& facts,
                        std::string_view link,
                        const std::optional<std::string>& link_before) {
  if (link_before && facts.seq > last_ + 1) {
    removed_ += facts.seq - last_ - 1;
    last_ = facts.seq - 1;
    link_ = *link_before;
  }
  if (facts.seq != last_ + 1) {
    return fail(
        Code::conflict,
        last_ == 0 ? fmt::format("the journal begins with record {}: those before it are missing",
                                 facts.seq)
                   : fmt::format("the journal goes from record {} to {}: those between are missing",
                                 last_, facts.seq),
        "restore it from a backup");
  }
  last_ = facts.seq;
  if (link.empty()) {
    if (linked_ == 0 && link_.empty()) {
      ++without_link_;
      return {};
    }
    return fail(Code::conflict, fmt::format("record {} ({}) has no link", facts.seq, facts.kind));
  }
  if (link != link_of(link_, facts)) {
    return fail(Code::conflict,
                fmt::format("record {} ({}) does not match its link: it, or the record before it, "
                            "was changed after it was written",
                            facts.seq, facts.kind));
  }
  link_ = link;
  ++linked_;
  return {};
}

}  // namespace billow
