#include "readings.h"

#include <fmt/format.h>

#include <algorithm>

#include "audit.h"
#include "core/control/image.h"
#include "world.h"

namespace billow::sim {

namespace {
constexpr std::size_t images_kept = 2;  // as many as a disk keeps
constexpr std::size_t events_kept = 5000;

Result<std::shared_ptr<const Event>> read(const Record& record) {
  return std::make_shared<const Event>(
      BILLOW_TRY(control::decode_event(record.seq, record.at, record.kind, record.payload)));
}
}  // namespace

Result<Readings::Image*> Readings::image_of(const Snapshot& snapshot) {
  const auto known = std::find_if(images_.begin(), images_.end(), [&](const Image& image) {
    return image.snapshot.seq == snapshot.seq && image.snapshot.bytes == snapshot.bytes;
  });
  if (known != images_.end())
    return &*known;
  images_.push_back({snapshot, BILLOW_TRY(control::read_image(snapshot.bytes)), nullptr});
  if (images_.size() > images_kept)
    images_.pop_front();
  return &images_.back();
}

Result<control::State> Readings::state_of(const Snapshot& snapshot) {
  return BILLOW_TRY(image_of(snapshot))->state();
}

Result<const control::State*> Readings::replayed(const Snapshot& snapshot) {
  Image& image = *BILLOW_TRY(image_of(snapshot));
  if (!image.replay)
    image.replay = std::make_unique<control::Core>(BILLOW_TRY(image.state()), prices());
  control::Core& core = *image.replay;
  while (core.state().seq < records_.size())
    core.replay(*BILLOW_TRY(event_of(records_[core.state().seq])));
  return &core.state();
}

Result<std::shared_ptr<const Event>> Readings::event_of(const Record& record) {
  const Seq next = events_.empty() ? record.seq : events_.back()->seq + 1;
  const Seq first = next - events_.size();
  if (record.seq >= first && record.seq < next)
    return events_[record.seq - first];
  const auto event = BILLOW_TRY(read(record));
  if (record.seq == next) {
    events_.push_back(event);
    if (events_.size() > events_kept)
      events_.pop_front();
  }
  return event;
}

std::shared_ptr<const Event> read_record(const Record& record, Readings* readings) {
  auto event = readings ? readings->event_of(record) : read(record);
  if (!event)
    broken(fmt::format("record {} cannot be read: {}", record.seq, event.error().message));
  return std::move(*event);
}

void add_to_hash(std::uint64_t& hash, const Record& record) {
  const auto add = [&hash](std::uint64_t n) {
    hash = (hash ^ n) * 1099511628211u;
  };
  add(static_cast<std::uint64_t>(record.at.ns));
  add(record.epoch);
  add(record.payload.size());
  for (const char c : record.kind)
    add(static_cast<unsigned char>(c));
}

}  // namespace billow::sim
