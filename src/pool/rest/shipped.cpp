#include "pool/rest/shipped.h"

using EmbeddedFiles = std::vector<std::pair<std::string_view, std::string_view>>;
EmbeddedFiles billow_embedded_providers();  // generated from the names of the files

namespace billow::pool::rest {

const std::vector<std::pair<std::string_view, std::string_view>>& shipped_providers() {
  static const EmbeddedFiles files = billow_embedded_providers();
  return files;
}

}  // namespace billow::pool::rest
