// libFuzzer over names of images and logins of registries: a name that is accepted is no option, no
// path and no transport, reads back as itself, and a login's error never quotes the login.
#include <cstdint>
#include <string>
#include <string_view>

#include "base/check.h"
#include "core/model/image_name.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  if (const auto name = billow::parse_image_name(text)) {
    BILLOW_CHECK(name->text() == text, "as it was written");
    BILLOW_CHECK(!text.starts_with('-') && !text.starts_with('/'), "no option and no path");
    // A tag or a host may hold two dots ("a:n..") where they are no part of a path.
    BILLOW_CHECK(text.find("/.") == text.npos && text.find("//") == text.npos, "no way upwards");
    BILLOW_CHECK(name->repository.find("..") == std::string::npos, "no way upwards");
    const std::string full = name->qualified();
    const auto again = billow::parse_image_name(full);
    BILLOW_CHECK(again && !again->registry.empty(), "a full name is a name");
    BILLOW_CHECK(again->qualified() == full, "and stays one");
  }
  // The same error for every value: no error quotes a login.
  const billow::Status login = billow::check_registry_login("pull", text);
  if (!login) {
    const std::string said = login.error().message + login.error().hint;
    bool fixed = false;
    for (const char* other : {"x", "{"}) {
      const billow::Status usual = billow::check_registry_login("pull", other);
      fixed = fixed || (!usual && usual.error().message + usual.error().hint == said);
    }
    BILLOW_CHECK(fixed, "never quoted");
  }
  return 0;
}
