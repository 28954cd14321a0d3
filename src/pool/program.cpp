#include "pool/program.h"

#include <fmt/format.h>

#include <array>

#include "base/crypto.h"
#include "base/file.h"
#include "base/limits.h"

namespace billow::pool {
namespace {

constexpr std::size_t tar_block = 512;
constexpr std::array programs = {"billow", "billow-supervise"};
constexpr std::array companions = {"billow-gpumem", "libbillow-cuda.so", "libbillow-nvml-sim.so"};

// A ustar header: name, mode, owner root, size, no date.
std::string tar_header(const std::string& name, std::size_t bytes) {
  std::string block(tar_block, '\0');
  const auto put = [&](std::size_t at, std::string_view text) {
    block.replace(at, text.size(), text);
  };
  put(0, name);
  put(100, "0000755");
  put(108, "0000000");
  put(116, "0000000");
  put(124, fmt::format("{:011o}", bytes));
  put(136, "00000000000");
  put(148, "        ");
  put(156, "0");
  put(257, std::string_view("ustar\00000", 8));
  unsigned sum = 0;
  for (const char c : block)
    sum += static_cast<unsigned char>(c);
  put(148, fmt::format("{:06o}", sum));
  block[154] = '\0';
  return block;
}

}  // namespace

Result<Program> pack_program(const std::string& directory) {
  Program out;
  const auto add = [&](const std::string& folder, const std::string& name) -> Status {
    const std::string file =
        BILLOW_TRY(read_file(folder + "/" + name, limits::pool_program_bytes_max));
    out.archive += tar_header(name, file.size());
    out.archive += file;
    out.archive.resize((out.archive.size() + tar_block - 1) / tar_block * tar_block);
    return {};
  };
  for (const char* name : programs)
    BILLOW_TRY_VOID(add(directory, name));
  // Where they lie after an installation, and in a build.
  for (const char* name : companions)
    for (const char* folder : {"", "/../lib", "/../lib/billow", "/../shim"})
      if (file_exists(directory + folder + "/" + name)) {
        BILLOW_TRY_VOID(add(directory + folder, name));
        break;
      }
  out.archive.append(2 * tar_block, '\0');
  out.sha256 = sha256_hex(out.archive);
  return out;
}

}  // namespace billow::pool
