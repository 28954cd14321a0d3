#include "store/read_pool.h"

namespace billow {

Result<ReadPool::Taken> ReadPool::take() {
  {
    std::unique_lock lock(mutex_);
    returned_.wait(lock, [&] { return !idle_.empty() || open_ < connections_max_; });
    if (!idle_.empty()) {
      auto db = std::move(idle_.back());
      idle_.pop_back();
      return Taken(*this, std::move(db));
    }
    ++open_;
  }
  auto db = open_one_();
  if (db)
    return Taken(*this, std::move(*db));
  {
    std::lock_guard lock(mutex_);
    --open_;
  }
  returned_.notify_one();
  return pass(std::move(db.error()));
}

void ReadPool::give_back(std::unique_ptr<sql::Db> db) {
  db->rollback();  // a failed query must not keep a snapshot pinned
  {
    std::lock_guard lock(mutex_);
    if (db->usable())
      idle_.push_back(std::move(db));
    else
      --open_;
  }
  returned_.notify_one();
}

}  // namespace billow
