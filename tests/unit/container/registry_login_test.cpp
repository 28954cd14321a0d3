// The login for the registry of an image, as a secret has it and as podman reads it.
#include "container/registry_login.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "base/crypto.h"

namespace billow::container {
namespace {

ImageName image(const std::string& name) {
  return parse_image_name(name).value();
}

// What podman reads; the message if there is nothing to read.
std::string file_for(const std::string& value, const std::string& name) {
  const auto memory = login_in_memory({"ghcr", value}, image(name));
  if (!memory)
    return memory.error().message;
  return read_file(fmt::format("/proc/self/fd/{}", memory->get())).value();
}

TEST(RegistryLogin, IsForTheRegistryOfTheImage) {
  const std::string auth = base64("ana:pass:word");
  EXPECT_EQ(file_for("ana:pass:word\n", "ghcr.io/acme/train:7"),
            fmt::format(R"({{"auths":{{"ghcr.io":{{"auth":"{}"}}}}}})", auth));
  EXPECT_EQ(file_for("ana:pass:word", "ubuntu"),
            fmt::format(R"({{"auths":{{"docker.io":{{"auth":"{}"}}}}}})", auth));
}

TEST(RegistryLogin, OfAFileOnlyTheLoginOfTheRegistryIsUsed) {
  const std::string file =
      R"({"auths":{"https://index.docker.io/v1/":{"auth":"aHVi"},"ghcr.io":{"auth":"Z2hjcg=="}},)"
      R"("credsStore":"desktop","credHelpers":{"ghcr.io":"evil"}})";
  EXPECT_EQ(file_for(file, "ghcr.io/a/b"), R"({"auths":{"ghcr.io":{"auth":"Z2hjcg=="}}})");
  EXPECT_EQ(file_for(file, "python:3.12"), R"({"auths":{"docker.io":{"auth":"aHVi"}}})");
  EXPECT_EQ(file_for(file, "quay.io/a/b"), "secret ghcr has no login for registry quay.io");
}

TEST(RegistryLogin, NothingElseIsTakenNorQuoted) {
  for (const std::string& value :
       {std::string("token-alone"), std::string(":secretword"), std::string("secretname:"),
        std::string("ana:secret\nword"), std::string("{\"secretkey\":1}"), std::string("{secret"),
        std::string("ana:se\0cret", 11), std::string()}) {
    const auto memory = login_in_memory({"ghcr", value}, image("ghcr.io/a/b"));
    ASSERT_FALSE(memory) << value;
    EXPECT_EQ(memory.error().code, Code::invalid) << value;
    for (const std::string& text : {memory.error().message, memory.error().hint}) {
      EXPECT_EQ(text.find("secretword"), std::string::npos) << text;
      EXPECT_EQ(text.find("token-alone"), std::string::npos) << text;
    }
    EXPECT_NE(memory.error().message.find("ghcr"), std::string::npos);
  }
}

}  // namespace
}  // namespace billow::container
