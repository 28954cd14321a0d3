// Sync<T> owns a value together with its mutex: the value can be reached only while holding the
// lock.
#pragma once

#include <mutex>
#include <utility>

namespace billow {

template <class T>
class Sync {
 public:
  template <class... Args>
  explicit Sync(Args&&... args) : value_(std::forward<Args>(args)...) {}

  class Lock {
   public:
    T* operator->() { return value_; }
    T& operator*() { return *value_; }
    std::unique_lock<std::mutex>& mutex_lock() { return lock_; }  // for condition variables

   private:
    friend class Sync;
    Lock(std::mutex& m, T& v) : lock_(m), value_(&v) {}
    std::unique_lock<std::mutex> lock_;
    T* value_;
  };
  Lock lock() { return Lock(mutex_, value_); }

 private:
  std::mutex mutex_;
  T value_;
};

}  // namespace billow
