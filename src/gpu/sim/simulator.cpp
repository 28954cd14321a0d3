#include "gpu/sim/simulator.h"

#include <dirent.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>

#include <fmt/format.h>

#include "base/file.h"
#include "base/text.h"

namespace billow {
namespace {

// Short enough to follow changes, long enough to be meaningful.
constexpr std::int64_t refresh_ns = 100'000'000;
constexpr std::int64_t faults_refresh_ns = 5'000'000;
constexpr std::size_t hold_files_max = 4096;
constexpr std::size_t events_max = 65'536;  // later ones are not reported

struct FileId {
  std::int64_t mtime_ns = -1;
  std::uint64_t inode = 0;
};
FileId file_id(const std::string& path) {
  struct stat s {};
  if (stat(path.c_str(), &s) != 0)
    return {};
  return {s.st_mtim.tv_sec * 1'000'000'000LL + s.st_mtim.tv_nsec, s.st_ino};
}

// FNV-1a: a card's UUID must be the same in every process that loads the library, and differ
// between nodes.
std::uint64_t hash(std::string_view text, std::uint64_t seed) {
  std::uint64_t h = 14695981039346656037ull ^ seed;
  for (const char c : text)
    h = (h ^ static_cast<unsigned char>(c)) * 1099511628211ull;
  h ^= h >> 32;
  return h * 0x9E3779B97F4A7C15ull;
}

std::string make_uuid(const std::string& identity, Vendor vendor) {
  const std::uint64_t a = hash(identity, 1), b = hash(identity, 2);
  if (vendor == Vendor::amd)
    return fmt::format("GPU-{:016x}", a);
  return fmt::format("GPU-{:08x}-{:04x}-{:04x}-{:04x}-{:012x}", a >> 32, (a >> 16) & 0xffff,
                     a & 0xffff, b >> 48, b & 0xffffffffffffull);
}

}  // namespace

double SimCard::power_w() const {
  const double idle = spec.facts->power_idle_w, max = spec.facts->power_max_w;
  // A hung kernel spins on one SM at full clocks. Measured on an H200: utilisation 100 %, SM
  // activity 0.8 %, 122 W with 78 W idle and a limit of 700 W.
  return hung ? idle + 0.07 * (max - idle) : idle + load * 0.95 * (max - idle);
}

Result<std::unique_ptr<Simulator>> Simulator::create(SimSpec spec, std::string state_dir) {
  std::unique_ptr<Simulator> simulator(new Simulator(std::move(spec), std::move(state_dir)));
  simulator->lay_out();
  simulator->read_mig();
  // Instances that an earlier run left in the state directory replace the initial ones of a new
  // node.
  const bool fresh = simulator->mig_mtime_ns_ < 0;
  for (SimCard& card : simulator->cards_) {
    for (const std::string& name : card.spec.mig_instances) {
      if (!fresh)
        break;
      for (unsigned p = 0; p < card.profiles.size(); ++p) {
        if (card.profiles[p].name != name)
          continue;
        const auto starts = simulator->free_starts(card, p);
        if (starts.empty())
          return fail(Code::invalid,
                      fmt::format("GPU {}: no space for MIG instance {} beside those before it",
                                  card.index, name));
        const SimMigInstance* made = simulator->create_instance(card, p, starts.front());
        simulator->set_compute(card, made->id, true);
      }
    }
  }
  simulator->read_faults(true);
  simulator->refresh();
  return simulator;
}

std::int64_t Simulator::now_ns() const {
  timespec t{};
  clock_gettime(CLOCK_BOOTTIME, &t);
  return t.tv_sec * 1'000'000'000LL + t.tv_nsec;
}

// The layout of the cards: two per PCIe switch; with five or more cards, half of them on each of
// two sockets. Cards of one type with a fabric are connected by it: through switches, or directly
// (eight in two squares, as on a DGX-1, unless a card has a link to every other).
void Simulator::lay_out() {
  const std::size_t n = spec_.gpus.size();
  char host[256] = {};
  gethostname(host, sizeof host - 1);
  const std::string identity = state_dir_.empty() ? std::string(host) : state_dir_;
  for (std::size_t i = 0; i < n; ++i) {
    SimCard card;
    card.index = static_cast<unsigned>(i);
    card.spec = spec_.gpus[i];
    card.uuid = make_uuid(fmt::format("{}/{}/{}", identity, i, card.spec.facts->type),
                          card.spec.facts->vendor);
    card.bus_id = fmt::format("{:08X}:{:02X}:00.0", i / 16, 0x0B + (i % 16) * 0x0F);
    card.numa = n > 4 && i >= n / 2 ? 1 : 0;
    card.profiles = sim_mig_profiles(*card.spec.facts);
    cards_.push_back(std::move(card));
  }
  for (SimCard& card : cards_) {
    std::vector<unsigned> neighbours;
    for (const SimCard& other : cards_)
      if (fabric(card, other))
        neighbours.push_back(other.index);
    for (unsigned link = 0; link < card.spec.facts->fabric_links && !neighbours.empty(); ++link) {
      const bool switched = card.spec.facts->fabric == FabricKind::switched;
      card.links.push_back(switched ? card.index : neighbours[link % neighbours.size()]);
    }
  }
}

bool Simulator::fabric(const SimCard& a, const SimCard& b) const {
  if (a.index == b.index || a.spec.facts != b.spec.facts)
    return false;
  switch (a.spec.facts->fabric) {
    case FabricKind::none:
      return false;
    case FabricKind::switched:
      return true;
    case FabricKind::mesh: {
      if (cards_.size() <= a.spec.facts->fabric_links + 1u)
        return true;
      return a.index / 4 == b.index / 4 || (a.index ^ b.index) == 4;
    }
  }
  return false;
}

unsigned Simulator::pcie_level(const SimCard& a, const SimCard& b) const {
  if (a.numa != b.numa)
    return 50;
  return a.index / 2 == b.index / 2 ? 10 : 40;
}

void Simulator::read_holds() {
  ++hold_round_;
  const std::string folder = state_dir_ + "/hold";
  if (DIR* dir = opendir(folder.c_str())) {
    while (const dirent* entry = readdir(dir)) {
      const std::string name = entry->d_name;
      // Dot files are temporary ones, about to be renamed into place.
      if (name.starts_with(".") || name.ends_with(".tmp") || holds_.size() >= hold_files_max)
        continue;
      const std::string path = folder + "/" + name;
      const FileId id = file_id(path);
      if (id.mtime_ns < 0)
        continue;
      HoldFile& file = holds_[name];
      file.round = hold_round_;
      if (file.mtime_ns == id.mtime_ns && file.inode == id.inode)
        continue;
      file.mtime_ns = id.mtime_ns;
      file.inode = id.inode;
      const auto text = read_file(path, 1 << 20);
      file.entries = text ? parse_sim_hold(*text) : std::vector<SimHoldEntry>{};
    }
    closedir(dir);
  }
  std::erase_if(holds_, [&](const auto& item) { return item.second.round != hold_round_; });
}

void Simulator::apply_loads() {
  for (SimCard& card : cards_) {
    card.load = 0;
    card.mem_used_mib = 0;
    card.processes.clear();
  }
  std::map<std::string, SimTreeLoad> loads;  // one sample per target, however many cards it holds
  for (const auto& [task, file] : holds_) {
    for (const SimHoldEntry& entry : file.entries) {
      if (entry.gpu >= cards_.size())
        continue;
      SimCard& card = cards_[entry.gpu];
      const std::string key = entry.cgroup.empty() ? std::to_string(entry.pid) : entry.cgroup;
      auto found = loads.find(key);
      if (found == loads.end())
        found = loads.emplace(key, meter_.look(entry)).first;
      const SimTreeLoad& tree = found->second;
      if (tree.processes.empty())
        continue;
      const double share = entry.milli / 1000.0;
      card.load += share * tree.busy;
      std::int64_t left_mib =
          entry.mem_mib > 0
              ? entry.mem_mib
              : static_cast<std::int64_t>(static_cast<double>(card.spec.memory_mib) * share);
      std::int64_t busy_ns = 0;
      for (const SimProcess& process : tree.processes)
        busy_ns += process.busy_ns;
      bool root = true;
      for (const SimProcess& process : tree.processes) {
        // A declared figure applies to the whole tree and is shown at its root.
        const std::int64_t wanted =
            tree.declared_mib >= 0 ? (root ? tree.declared_mib : 0) : process.rss_mib;
        const std::int64_t mem = std::min(left_mib, wanted);
        root = false;
        left_mib -= mem;
        card.mem_used_mib += mem;
        const double part =
            busy_ns > 0 ? static_cast<double>(process.busy_ns) / static_cast<double>(busy_ns) : 0;
        card.processes.push_back({process.pid, mem, share * tree.busy * part, entry.gpu_instance});
      }
    }
  }
  for (SimCard& card : cards_) {
    card.load = std::min(card.load, 1.0);
    card.mem_used_mib = std::min(card.mem_used_mib, card.spec.memory_mib);
  }
}

void Simulator::refresh() {
  const std::int64_t now = now_ns();
  if (now - faults_looked_ns_ >= faults_refresh_ns) {
    faults_looked_ns_ = now;
    read_faults(false);
    read_mig();
  }
  if (refreshed_ns_ != 0 && now - refreshed_ns_ < refresh_ns)
    return;
  const std::int64_t window_ns = refreshed_ns_ == 0 ? 0 : now - refreshed_ns_;
  meter_.begin(now);
  read_holds();
  apply_loads();
  meter_.end();
  for (SimCard& card : cards_) {
    const double ns = static_cast<double>(window_ns);
    card.activity_ns += card.sm_activity() * ns;
    card.tensor_ns += card.sm_activity() * 0.5 * ns;
    card.dram_ns += card.sm_activity() * 0.4 * ns;
    card.energy_mj += card.power_w() * ns / 1e6;
  }
  refreshed_ns_ = now;
}

// Errors that existed when the library started are a state, not news: only lines added later are
// reported.
void Simulator::read_faults(bool first) {
  if (state_dir_.empty())
    return;
  const std::string path = state_dir_ + "/faults";
  const FileId id = file_id(path);
  if (!first && id.mtime_ns == faults_mtime_ns_ && id.inode == faults_inode_)
    return;
  faults_mtime_ns_ = id.mtime_ns;
  faults_inode_ = id.inode;
  std::multiset<SimFault> faults;
  std::vector<SimFault> in_order;
  if (const auto text = read_file(path, 1 << 20)) {
    for (const std::string& line : split(*text, '\n')) {
      const auto fault = parse_sim_fault(line);
      if (!fault || fault->gpu >= cards_.size())
        continue;
      faults.insert(*fault);
      in_order.push_back(*fault);
    }
  }
  for (SimCard& card : cards_) {
    card.lost = false;
    card.hung = false;
    card.hot = false;
    card.ecc_uncorrected = 0;
    card.link_errors = 0;
  }
  std::multiset<SimFault> before = faults_seen_;
  for (const SimFault& fault : in_order) {
    SimCard& card = cards_[fault.gpu];
    bool news = !first;
    if (const auto old = before.find(fault); old != before.end()) {
      before.erase(old);
      news = false;
    }
    SimEvent event{fault.gpu, true, fault.value};
    switch (fault.kind) {
      case SimFaultKind::xid:
        card.lost |= fault.value == 79;
        break;
      case SimFaultKind::lost:
        card.lost = true;
        event.value = 79;
        break;
      case SimFaultKind::hung:
        card.hung = true;
        news = false;
        break;
      case SimFaultKind::hot:
        card.hot = true;
        news = false;
        break;
      case SimFaultKind::link:
        card.link_errors += fault.value;
        news = false;
        break;
      case SimFaultKind::ecc:
        card.ecc_uncorrected += fault.value;
        event = {fault.gpu, false, fault.value};
        break;
    }
    if (news && events_.size() < events_max)
      events_.push_back(event);
  }
  faults_seen_ = std::move(faults);
}

int Simulator::profile_by_id(const SimCard& card, unsigned id) const {
  for (std::size_t i = 0; i < card.profiles.size(); ++i)
    if (card.profiles[i].id == id)
      return static_cast<int>(i);
  return -1;
}

std::vector<unsigned> Simulator::free_starts(const SimCard& card, unsigned profile) const {
  const SimMigProfile& shape = card.profiles[profile];
  unsigned compute = shape.compute_slices, same = 0;
  for (const SimMigInstance& instance : card.instances) {
    compute += card.profiles[instance.profile].compute_slices;
    same += instance.profile == profile;
  }
  std::vector<unsigned> starts;
  if (compute > 7 || same >= shape.instances_max)
    return starts;
  for (const unsigned start : shape.starts) {
    bool taken = false;
    for (const SimMigInstance& other : card.instances) {
      const unsigned size = card.profiles[other.profile].memory_slices;
      taken |= start < other.start + size && other.start < start + shape.memory_slices;
    }
    if (!taken)
      starts.push_back(start);
  }
  return starts;
}

const SimMigInstance* Simulator::create_instance(SimCard& card, unsigned profile, unsigned start) {
  unsigned id = 1;
  while (std::ranges::any_of(card.instances, [&](const SimMigInstance& i) { return i.id == id; }))
    ++id;
  card.instances.push_back({id, profile, start, false});
  write_mig();
  return &card.instances.back();
}

bool Simulator::destroy_instance(SimCard& card, unsigned id) {
  const bool gone =
      std::erase_if(card.instances, [&](const SimMigInstance& i) { return i.id == id; }) > 0;
  if (gone)
    write_mig();
  return gone;
}

bool Simulator::set_compute(SimCard& card, unsigned id, bool present) {
  for (SimMigInstance& instance : card.instances) {
    if (instance.id != id)
      continue;
    instance.compute = present;
    write_mig();
    return true;
  }
  return false;
}

// `<state>/mig`: one line per instance, "gpu id profile start compute". Written on every change,
// read by all processes.
void Simulator::write_mig() {
  if (state_dir_.empty())
    return;
  std::string text;
  for (const SimCard& card : cards_) {
    for (const SimMigInstance& i : card.instances)
      text +=
          fmt::format("{} {} {} {} {}\n", card.index, i.id, i.profile, i.start, i.compute ? 1 : 0);
  }
  const std::string path = state_dir_ + "/mig";
  if (!make_directories(state_dir_) || !write_file_atomic(path, text))
    return;
  const FileId id = file_id(path);
  mig_mtime_ns_ = id.mtime_ns;
  mig_inode_ = id.inode;
}

void Simulator::read_mig() {
  if (state_dir_.empty())
    return;
  const std::string path = state_dir_ + "/mig";
  const FileId id = file_id(path);
  if (id.mtime_ns < 0 || (id.mtime_ns == mig_mtime_ns_ && id.inode == mig_inode_))
    return;
  mig_mtime_ns_ = id.mtime_ns;
  mig_inode_ = id.inode;
  const auto text = read_file(path, 1 << 20);
  if (!text)
    return;
  for (SimCard& card : cards_)
    card.instances.clear();
  for (const std::string& line : split(*text, '\n')) {
    const auto words = split(line, ' ');
    if (words.size() != 5)
      continue;
    std::int64_t v[5];
    bool good = true;
    for (int i = 0; i < 5; ++i) {
      const auto number = parse_int(words[i], 0, 1023);
      good &= number.has_value();
      v[i] = number.value_or(0);
    }
    if (!good || v[0] >= static_cast<std::int64_t>(cards_.size()))
      continue;
    SimCard& card = cards_[static_cast<std::size_t>(v[0])];
    if (!card.spec.mig || v[2] >= static_cast<std::int64_t>(card.profiles.size()))
      continue;
    card.instances.push_back({static_cast<unsigned>(v[1]), static_cast<unsigned>(v[2]),
                              static_cast<unsigned>(v[3]), v[4] == 1});
  }
}

}  // namespace billow
