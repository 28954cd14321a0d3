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
    BILLOW_CHECK(text.find("..") == text.npos && text.find("//") == text.npos, "no way upwards");
    const std::string full = name->qualified();
    const auto again = billow::parse_image_name(full);
    BILLOW_CHECK(again && !again->registry.empty(), "a full name is a name");
    BILLOW_CHECK(again->qualified() == full, "and stays one");
  }
  const billow::Status login = billow::check_registry_login("pull", text);
  if (!login && size > 8)
    BILLOW_CHECK((login.error().message + login.error().hint).find(text) == std::string::npos,
                 "never quoted");
  return 0;
}
