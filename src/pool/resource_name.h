// Names for a provider's resources. Machine names may contain upper-case letters, dots and
// underscores, and two installations in one account may use the same ones; clouds allow neither.
#pragma once

#include <string>
#include <string_view>

namespace billow::pool {

// What the names of all resources of an installation begin with.
std::string resource_prefix(std::string_view installation);
// "fast-7" of installation ab12cd34 → "billow-ab12cd34-fast-7": a lower-case letter, then at most
// 62 lower-case letters, digits and hyphens. Different machines never get the same name: one that
// had to be changed ends in a hash of the original.
std::string resource_name(std::string_view installation, std::string_view machine);

// The same text as the value of a label: at most 63 of [a-z0-9_-].
std::string label_value(std::string_view text);

// A UUID that depends on the words alone: the idempotency token of a request.
std::string request_uuid(std::string_view words);

}  // namespace billow::pool
