// Which model a request of an OpenAI-compatible API names.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace billow::gateway {

// The text of the member "model" of a JSON object; of several, the last, as JSON parsers take it.
// None: there is none, it is no text, or the text before it is no JSON. Reads the body once and
// builds nothing, because bodies can hold whole documents and images; what comes after the model is
// for the replica to judge.
std::optional<std::string> model_name(std::string_view body);

}  // namespace billow::gateway
