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
  auto db = sqlite::Db::open(path_, sqlite::Mode::read_only, 1024);
  if (db) return Taken(*this, std::move(*db));
  {
    std::lock_guard lock(mutex_);
    --open_;
  }
  returned_.notify_one();
  return pass(std::move(db.error()));
}

void ReadPool::give_back(std::unique_ptr<sqlite::Db> db) {
  db->rollback();  // a query that failed half-way must not pin the WAL
  {
    std::lock_guard lock(mutex_);
    idle_.push_back(std::move(db));
  }
  returned_.notify_one();
}

}  // namespace billow
