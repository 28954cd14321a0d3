// The simulated library as a stranger meets it: through dlopen, with wrong arguments, and from many
// threads.
#include "fixture.h"

#include <dlfcn.h>

#include <atomic>
#include <cstring>
#include <vector>

#include "gpu/nvml_abi.h"

namespace billow {
namespace {

class SimAbi : public testing::Test {
 protected:
  void* library = nullptr;
  void SetUp() override {
    const auto path = find_sim_library();
    ASSERT_TRUE(path) << path.error().message;
    library = dlopen(path->c_str(), RTLD_NOW | RTLD_LOCAL);
    ASSERT_TRUE(library) << dlerror();
  }
  template <class F>
  F* find(const char* name) {
    auto* function = reinterpret_cast<F*>(dlsym(library, name));
    EXPECT_TRUE(function) << name;
    return function;
  }
#define BILLOW_FUNCTION(name, parameters) nvml::Return(*name) parameters = nullptr;
  struct Functions {
    BILLOW_NVML_REQUIRED(BILLOW_FUNCTION)
    BILLOW_NVML_OPTIONAL(BILLOW_FUNCTION)
    BILLOW_NVML_SIMULATED(BILLOW_FUNCTION)
  };
#undef BILLOW_FUNCTION
  Functions all() {
    Functions f;
#define BILLOW_FIND(name, parameters) f.name = find<nvml::Return parameters>(#name);
    BILLOW_NVML_REQUIRED(BILLOW_FIND)
    BILLOW_NVML_OPTIONAL(BILLOW_FIND)
    BILLOW_NVML_SIMULATED(BILLOW_FIND)
#undef BILLOW_FIND
    return f;
  }
};

// A scope in which the library reads this specification from the environment, as a foreign NVML
// client would.
class Initialised {
 public:
  template <class F>
  Initialised(F& f, const char* spec, const std::string& state = "") : shutdown_(f.nvmlShutdown) {
    setenv("BILLOW_SIM", spec, 1);
    setenv("BILLOW_SIM_STATE", state.c_str(), 1);
    code = f.nvmlInit_v2();
    unsetenv("BILLOW_SIM");
    unsetenv("BILLOW_SIM_STATE");
  }
  ~Initialised() {
    if (code == nvml::success)
      shutdown_();
  }
  nvml::Return code;

 private:
  nvml::Return (*shutdown_)();
};

TEST_F(SimAbi, HasEveryFunctionTheBindingKnows) {
  all();
}

TEST_F(SimAbi, NothingAnswersBeforeInitAndAfterShutdown) {
  const auto f = all();
  unsigned count = 0;
  EXPECT_EQ(f.nvmlDeviceGetCount_v2(&count), nvml::error_uninitialized);
  EXPECT_EQ(f.nvmlShutdown(), nvml::error_uninitialized);
  {
    const Initialised init(f, "2xL4");
    ASSERT_EQ(init.code, nvml::success);
    EXPECT_EQ(f.nvmlInit_v2(), nvml::success);  // counted
    EXPECT_EQ(f.nvmlShutdown(), nvml::success);
    EXPECT_EQ(f.nvmlDeviceGetCount_v2(&count), nvml::success);
    EXPECT_EQ(count, 2u);
  }
  EXPECT_EQ(f.nvmlDeviceGetCount_v2(&count), nvml::error_uninitialized);
}

TEST_F(SimAbi, ABadEnvironmentIsAnErrorWithAReason) {
  const auto f = all();
  for (const char* spec : {"", "9xFOO", "/nonexistent.json"}) {
    const Initialised init(f, spec);
    EXPECT_NE(init.code, nvml::success) << spec;
    char text[512] = {};
    EXPECT_EQ(f.billowSimLastError(text, sizeof text), nvml::success);
    EXPECT_GT(std::strlen(text), 10u);
  }
}

TEST_F(SimAbi, WrongArgumentsAreErrorCodes) {
  const auto f = all();
  const Initialised init(f, "2xH100+mig=1g.10gb");
  ASSERT_EQ(init.code, nvml::success);
  nvml::Device card = nullptr;
  EXPECT_EQ(f.nvmlDeviceGetHandleByIndex_v2(2, &card), nvml::error_invalid_argument);
  EXPECT_EQ(f.nvmlDeviceGetHandleByIndex_v2(0, nullptr), nvml::error_invalid_argument);
  ASSERT_EQ(f.nvmlDeviceGetHandleByIndex_v2(0, &card), nvml::success);
  char small[4];
  EXPECT_EQ(f.nvmlDeviceGetName(card, small, sizeof small), nvml::error_insufficient_size);
  EXPECT_EQ(f.nvmlDeviceGetUUID(card, nullptr, 96), nvml::error_invalid_argument);
  int not_a_card = 0;
  const auto made_up = reinterpret_cast<nvml::Device>(&not_a_card);
  nvml::Memory memory{};
  unsigned number = 0;
  for (const nvml::Device bad : {nvml::Device{nullptr}, made_up}) {
    EXPECT_EQ(f.nvmlDeviceGetMemoryInfo(bad, &memory), nvml::error_invalid_argument);
    EXPECT_EQ(f.nvmlDeviceGetPowerUsage(bad, &number), nvml::error_invalid_argument);
    EXPECT_EQ(f.nvmlDeviceGetMigMode(bad, &number, &number), nvml::error_invalid_argument);
  }
  EXPECT_EQ(f.nvmlDeviceGetMemoryInfo(card, nullptr), nvml::error_invalid_argument);
  EXPECT_EQ(f.nvmlGpuInstanceDestroy(reinterpret_cast<nvml::GpuInstance>(&not_a_card)),
            nvml::error_invalid_argument);
  EXPECT_EQ(f.nvmlComputeInstanceDestroy(reinterpret_cast<nvml::ComputeInstance>(&not_a_card)),
            nvml::error_invalid_argument);
  EXPECT_EQ(f.nvmlEventSetFree(reinterpret_cast<nvml::EventSet>(&not_a_card)),
            nvml::error_invalid_argument);
  EXPECT_EQ(f.nvmlGpmSampleFree(reinterpret_cast<nvml::GpmSample>(&not_a_card)),
            nvml::error_invalid_argument);
  EXPECT_EQ(f.nvmlGpmMetricsGet(nullptr), nvml::error_invalid_argument);
}

TEST_F(SimAbi, VersionedStructuresMustSayTheirVersion) {
  const auto f = all();
  const Initialised init(f, "1xH100");
  nvml::Device card = nullptr;
  ASSERT_EQ(f.nvmlDeviceGetHandleByIndex_v2(0, &card), nvml::success);
  nvml::MemoryV2 memory{};
  EXPECT_EQ(f.nvmlDeviceGetMemoryInfo_v2(card, &memory), nvml::error_argument_version);
  memory.version = 40 | 2u << 24;  // the number in NVIDIA's header, spelled out
  EXPECT_EQ(f.nvmlDeviceGetMemoryInfo_v2(card, &memory), nvml::success);
  EXPECT_EQ(memory.total, 81559ull << 20);
  nvml::GpuInstanceProfileV2 profile{};
  EXPECT_EQ(f.nvmlDeviceGetGpuInstanceProfileInfoV(card, 0, &profile),
            nvml::error_argument_version);
  profile.version = 152 | 2u << 24;
  EXPECT_EQ(f.nvmlDeviceGetGpuInstanceProfileInfoV(card, 0, &profile), nvml::success);
  EXPECT_STREQ(profile.name, "MIG 1g.10gb");
  nvml::GpmSupport support{7, 0};
  EXPECT_EQ(f.nvmlGpmQueryDeviceSupport(card, &support), nvml::error_argument_version);
}

TEST_F(SimAbi, ProcessListsReportTheSizeTheyNeed) {
  const auto f = all();
  const TempDir state;
  const Child child(rest);
  ASSERT_TRUE(write_sim_hold(state.path(), "t", {{0, 1000, 0, child.pid(), "", -1}}));
  const Initialised init(f, "1xL4", state.path());
  nvml::Device card = nullptr;
  ASSERT_EQ(f.nvmlDeviceGetHandleByIndex_v2(0, &card), nvml::success);
  unsigned count = 0;
  EXPECT_EQ(f.nvmlDeviceGetComputeRunningProcesses_v3(card, &count, nullptr),
            nvml::error_insufficient_size);
  ASSERT_EQ(count, 1u);
  nvml::ProcessInfo info{};
  EXPECT_EQ(f.nvmlDeviceGetComputeRunningProcesses_v3(card, &count, &info), nvml::success);
  EXPECT_EQ(info.pid, static_cast<unsigned>(child.pid()));
  EXPECT_EQ(info.gpu_instance_id, nvml::not_available);
  nvml::ProcessInfoV1 old{};
  count = 1;
  EXPECT_EQ(f.nvmlDeviceGetComputeRunningProcesses(card, &count, &old), nvml::success);
  EXPECT_EQ(old.pid, info.pid);
}

TEST_F(SimAbi, AStaleMigHandleIsNotFoundAndNotReused) {
  const auto f = all();
  const Initialised init(f, "1xH100+mig");
  nvml::Device card = nullptr, mig = nullptr;
  ASSERT_EQ(f.nvmlDeviceGetHandleByIndex_v2(0, &card), nvml::success);
  nvml::GpuInstance instance = nullptr;
  nvml::ComputeInstance compute = nullptr;
  ASSERT_EQ(f.nvmlDeviceCreateGpuInstance(card, 19, &instance), nvml::success);
  EXPECT_EQ(f.nvmlDeviceGetMigDeviceHandleByIndex(card, 0, &mig),
            nvml::error_not_found);  // no compute instance yet
  ASSERT_EQ(f.nvmlGpuInstanceCreateComputeInstance(instance, 0, &compute), nvml::success);
  ASSERT_EQ(f.nvmlDeviceGetMigDeviceHandleByIndex(card, 0, &mig), nvml::success);
  EXPECT_EQ(f.nvmlGpuInstanceDestroy(instance), nvml::error_in_use);
  nvml::Memory memory{};
  EXPECT_EQ(f.nvmlDeviceGetMemoryInfo(mig, &memory), nvml::success);
  EXPECT_EQ(memory.total, (81559ull / 8) << 20);
  unsigned power = 0;
  EXPECT_EQ(f.nvmlDeviceGetPowerUsage(mig, &power),
            nvml::error_invalid_argument);  // a card's question
  EXPECT_EQ(f.nvmlComputeInstanceDestroy(compute), nvml::success);
  EXPECT_EQ(f.nvmlGpuInstanceDestroy(instance), nvml::success);
  EXPECT_EQ(f.nvmlDeviceGetMemoryInfo(mig, &memory), nvml::error_not_found);
  EXPECT_EQ(f.nvmlGpuInstanceDestroy(instance), nvml::error_not_found);
}

TEST_F(SimAbi, ManyThreadsAskAtOnce) {
  const auto f = all();
  const TempDir state;
  const Child child(rest);
  ASSERT_TRUE(write_sim_hold(state.path(), "t", {{0, 1000, 0, child.pid(), "", -1}}));
  const Initialised init(f, "4xH100", state.path());
  ASSERT_EQ(init.code, nvml::success);
  std::atomic<int> wrong = 0;
  std::vector<std::thread> threads;
  for (unsigned t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 300; ++i) {
        nvml::Device card = nullptr;
        nvml::Memory memory{};
        nvml::Utilization utilization{};
        nvml::EventSet set = nullptr;
        nvml::EventData data{};
        unsigned power = 0;
        if (f.nvmlDeviceGetHandleByIndex_v2(t, &card) != nvml::success ||
            f.nvmlDeviceGetMemoryInfo(card, &memory) != nvml::success ||
            f.nvmlDeviceGetUtilizationRates(card, &utilization) != nvml::success ||
            f.nvmlDeviceGetPowerUsage(card, &power) != nvml::success ||
            f.nvmlEventSetCreate(&set) != nvml::success ||
            f.nvmlEventSetWait_v2(set, &data, 0) != nvml::error_timeout ||
            f.nvmlEventSetFree(set) != nvml::success) {
          ++wrong;
        }
      }
    });
  }
  for (std::thread& thread : threads)
    thread.join();
  EXPECT_EQ(wrong, 0);
}

}  // namespace
}  // namespace billow
