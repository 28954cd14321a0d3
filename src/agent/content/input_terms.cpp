#include "agent/content/input_terms.h"

#include <algorithm>

#include "base/crypto.h"
#include "base/file.h"
#include "base/text.h"
#include "core/wire/codec.h"
#include "core/wire/confined.h"
#include "s3/objects.h"

namespace billow::agent {
namespace {

constexpr std::size_t brought_bytes_max = 1 << 20;

// The agent's notes on a task, of which only this part is read here.
struct Notes {
  InputTerms inputs;
  template <class S, class V>
  static constexpr void fields(S& s, V& v) {
    v("inputs", s.inputs);
  }
};

std::string digest_of(const std::string& salt, const s3::Access& access) {
  std::string text = salt;
  for (const std::string* part : {&access.access_key, &access.secret_key, &access.session_token})
    text += sha256_hex(*part);
  return sha256_hex(text);
}

}  // namespace

InputTerms input_terms(const wire::agent_v1::Start& start) {
  InputTerms out;
  if (start.surroundings.inputs.empty())
    return out;
  out.noted = true;
  out.node_network =
      start.surroundings.network == ContainerNetwork::host && !wire::strict_isolation(start);
  if (start.surroundings.network == ContainerNetwork::internet)
    out.allow = start.surroundings.allow;
  out.salt = hex(random_bytes(16));
  // A secret replaces a variable of the same name.
  out.keys = digest_of(out.salt, s3::access_of([&](const char* name) {
                         for (const GivenSecret& secret : start.secrets)
                           if (std::string value;
                               secret.variable == name && base64_decode(secret.value, value))
                             return value;
                         const auto found = start.env.find(name);
                         return found == start.env.end() ? std::string() : found->second;
                       }));
  return out;
}

InputTerms input_terms_in(const std::string& meta) {
  const auto notes = wire::from_json_text<Notes>(meta);
  return notes ? notes->inputs : InputTerms();
}

bool are_submitted_keys(const InputTerms& terms, const s3::Access& offered) {
  return digest_of(terms.salt, offered) == terms.keys;
}

bool BroughtInputs::all() const {
  const auto text = read_file(file_, brought_bytes_max);
  const auto brought = text ? split(*text, '\n') : std::vector<std::string>();
  return std::ranges::all_of(wishes_, [&](const std::string& wish) {
    return std::ranges::count(brought, sha256_hex(wish)) > 0;
  });
}

Status BroughtInputs::add(const std::string& wish) const {
  const std::string before = read_file(file_, brought_bytes_max).value_or("");
  return write_file_atomic(file_, before + sha256_hex(wish) + "\n", 0600);
}

}  // namespace billow::agent
