// SHA-256 of two pieces at once. The instructions that processors have for it wait for their own
// results: with two pieces in turn they do not, and one core hashes half as much again.
#pragma once

#include <array>
#include <string_view>

#include "base/crypto.h"

namespace billow::files {

std::array<Sha256, 2> sha256_pair(std::string_view first, std::string_view second);

}  // namespace billow::files
