// The audit's part in secrets: tasks get the values that the journal has, and clients hear the
// truth.
#include <fmt/format.h>

#include <algorithm>

#include "audit.h"

namespace billow::sim {

void Audit::secret_durable(const std::string& name, const std::string& value) {
  SecretStory& story = secrets_[name];
  if (!story.asked.contains(value))
    broken(fmt::format("secret {} became \"{}\", which nobody asked for", name, value));
  story.values.push_back(value);
}

void Audit::secret_told(const std::string& name, const std::string& value) {
  read_journal();
  SecretStory& story = secrets_[name];
  const auto found = std::find(story.values.rbegin(), story.values.rend(), value);
  if (found == story.values.rend())
    broken(fmt::format("a client was told that secret {} is set, and the journal does not have it",
                       name));
  story.told = std::max(story.told, static_cast<std::size_t>(story.values.rend() - found) - 1);
}

// Once a client was told about a change, tasks get neither the earlier value nor a removed secret;
// nor a value that a crash could still undo.
void Audit::secret_sent(const std::string& name, const std::string& value) {
  read_journal();
  const SecretStory& story = secrets_[name];
  if (std::find(story.values.begin() + static_cast<std::ptrdiff_t>(story.told), story.values.end(),
                value) == story.values.end())
    broken(fmt::format("secret {} is sent as \"{}\", and is \"{}\"", name, value,
                       story.values.back()));
}

}  // namespace billow::sim
