#include "core/wire/copy.h"

#include "core/wire/codec.h"

namespace billow::wire::agent_v1 {
namespace {

// Never the length of a frame's JSON: an agent or head without copies reports that it cannot read
// such a frame, and continues.
constexpr std::string_view mark("\xfd\xff\xff\xff", 4);

}  // namespace

bool is_copy_frame(std::string_view frame) {
  return frame.starts_with(mark);
}

std::string encode_copy(const Copying& message) {
  return std::string(mark) + std::visit(
                                 [](const auto& m) {
                                   return std::string(std::decay_t<decltype(m)>::kind) + "\n" +
                                          to_json_text(m);
                                 },
                                 message);
}

Result<Copying> decode_copy(std::string_view frame) {
  frame.remove_prefix(std::min(mark.size(), frame.size()));
  const auto line = frame.find('\n');
  const std::string_view kind = frame.substr(0, line);
  const std::string_view text =
      line == std::string_view::npos ? std::string_view() : frame.substr(line + 1);
  if (kind == CopyFiles::kind)
    return BILLOW_TRY(from_json_text<CopyFiles>(text));
  if (kind == FilesCopied::kind)
    return BILLOW_TRY(from_json_text<FilesCopied>(text));
  return fail(Code::invalid, "a frame about files that is not understood");
}

}  // namespace billow::wire::agent_v1
