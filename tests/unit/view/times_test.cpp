// How long a job ran and how long it was suspended, by its leases.
#include <gtest/gtest.h>

#include "view/times.h"

namespace billow::view {
namespace {

LeaseRow lease(int from_s,
               int to_s,
               PriceClass price_class = PriceClass::on_demand,
               bool open = false) {
  LeaseRow row;
  row.from = WallTime{} + seconds(from_s);
  row.to = WallTime{} + seconds(to_s);
  row.price_class = enum_name(price_class);
  row.open = open;
  return row;
}

TEST(JobTimes, RunningAndSuspendedAreToldApart) {
  const JobTimes times = times_of(
      {lease(100, 115), lease(115, 215, PriceClass::suspended), lease(215, 225, PriceClass::spot)},
      1);
  EXPECT_EQ(times.ran, seconds(25));
  EXPECT_EQ(times.suspended, seconds(100));
}
TEST(JobTimes, ALeaseThatIsHeldIsNotCountedTwice) {
  EXPECT_EQ(times_of({lease(100, 110), lease(110, 150, PriceClass::on_demand, true)}, 1).ran,
            seconds(10));
}
TEST(JobTimes, TheNodesOfAGangRunAtTheSameTime) {
  EXPECT_EQ(times_of({lease(0, 60), lease(0, 60), lease(0, 60), lease(0, 60)}, 4).ran, seconds(60));
}

}  // namespace
}  // namespace billow::view
