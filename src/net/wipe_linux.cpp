#include "net/wipe.h"

#include <malloc.h>
#include <string.h>

#include <atomic>
#include <cstdlib>
#include <new>

namespace {

std::atomic<bool> wiping = false;

void release(void* block) {
  if (block != nullptr && wiping.load(std::memory_order_relaxed))
    ::explicit_bzero(block, ::malloc_usable_size(block));
  std::free(block);
}

void* obtain(std::size_t bytes) {
  for (;;) {
    if (void* block = std::malloc(bytes == 0 ? 1 : bytes))
      return block;
    const std::new_handler handler = std::get_new_handler();
    if (handler == nullptr)
      throw std::bad_alloc();
    handler();
  }
}

}  // namespace

// The forms for arrays call these.
void* operator new(std::size_t bytes) {
  return obtain(bytes);
}
void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept {
  try {
    return obtain(bytes);
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}
void operator delete(void* block) noexcept {
  release(block);
}
void operator delete(void* block, std::size_t) noexcept {
  release(block);
}

namespace billow::net {

void wipe_freed_memory() {
  wiping = true;
}

void wipe_used(char* buffer, std::size_t bytes) {
  if (wiping.load(std::memory_order_relaxed))
    ::explicit_bzero(buffer, bytes);
}

}  // namespace billow::net
