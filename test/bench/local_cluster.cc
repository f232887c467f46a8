#include "test/bench/local_cluster.h"

#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <mutex>
#include <sstream>
#include <thread>
#include <utility>

namespace cantle::bench {

namespace {

constexpr int kStartTimeField = 22;  // of /proc/PID/stat, the first is 1

// Clusters that are up: must() ends the program without their destructors.
std::vector<std::string>& up() {
  static std::vector<std::string> dirs;
  return dirs;
}

std::string bin() {
  if (const char* given = std::getenv("CANTLE_BIN")) return given;
  return (std::filesystem::read_symlink("/proc/self/exe").parent_path().parent_path() / "bin").string();
}

}  // namespace

RunResult run(const std::string& command) {
  char errors[] = "/tmp/cantle-bench-XXXXXX";
  const int fd = ::mkstemp(errors);
  if (fd >= 0) ::close(fd);
  FILE* pipe = ::popen(("( " + command + " ) 2>" + errors).c_str(), "re");
  RunResult result;
  if (!pipe) return result;
  char buffer[65536];
  for (size_t n = 0; (n = std::fread(buffer, 1, sizeof buffer, pipe)) > 0;) result.out.append(buffer, n);
  const int status = ::pclose(pipe);
  result.status = WIFEXITED(status) ? WEXITSTATUS(status) : 128;
  if (result.status != 0) {
    std::ifstream in(errors);
    std::fprintf(stderr, "%s", std::string(std::istreambuf_iterator<char>(in), {}).c_str());
  }
  ::unlink(errors);
  return result;
}

void give_up() {
  for (const auto& dir : std::exchange(up(), {})) stop_cluster(dir);
  std::exit(1);
}

void stop_cluster(const std::string& dir) { run(bin() + "/cantle-local --dir " + dir + " down --purge"); }

std::string must(const std::string& command) {
  auto result = run(command);
  if (result.status != 0) {
    std::fprintf(stderr, "bench: exit status %d from: %s\n", result.status, command.c_str());
    give_up();
  }
  return std::move(result.out);
}

double json_number(const std::string& json, const std::string& name) {
  const size_t at = json.find("\"" + name + "\":");
  return at == std::string::npos ? -1 : std::strtod(json.c_str() + at + name.size() + 3, nullptr);
}

LocalCluster::LocalCluster(const std::string& dir, const std::string& up_flags) : dir_(dir) {
  up().push_back(dir_);
  must(bin() + "/cantle-local --dir " + dir_ + " up " + up_flags);
}
LocalCluster::~LocalCluster() {
  std::erase(up(), dir_);
  stop_cluster(dir_);
}

std::string LocalCluster::tool(const std::string& command) const {
  return must("eval \"$(" + bin() + "/cantle-local --dir " + dir_ + " env)\"; " + command);
}
RunResult LocalCluster::try_tool(const std::string& command) const {
  return run("eval \"$(" + bin() + "/cantle-local --dir " + dir_ + " env)\"; " + command);
}
std::string LocalCluster::local(const std::string& verb) const {
  return must(bin() + "/cantle-local --dir " + dir_ + " " + verb);
}
std::string LocalCluster::url() const {
  std::string text = tool("printf %s \"$CANTLE_COORD\"");
  return text;
}

double LocalCluster::running_s(const std::string& name) const {
  std::ifstream in("/proc/" + std::to_string(pid(name)) + "/stat");
  const std::string stat{std::istreambuf_iterator<char>(in), {}};
  std::istringstream fields(stat.substr(std::min(stat.size(), stat.rfind(')') + 1)));
  std::string field;
  for (int i = 3; i < kStartTimeField; ++i) fields >> field;
  double ticks = 0;
  fields >> ticks;
  timespec now{};
  clock_gettime(CLOCK_BOOTTIME, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) / 1e9 -
         ticks / static_cast<double>(::sysconf(_SC_CLK_TCK));
}

pid_t LocalCluster::pid(const std::string& name) const {
  std::ifstream in(dir_ + "/run/" + name + ".pid");
  pid_t pid = -1;
  in >> pid;
  return pid;
}

double LocalCluster::rss_anon_mib(const std::string& name) const {
  std::ifstream in("/proc/" + std::to_string(pid(name)) + "/status");
  for (std::string line; std::getline(in, line);)
    if (line.starts_with("RssAnon:")) return std::strtod(line.c_str() + 8, nullptr) / 1024;
  return 0;
}

std::vector<std::string> LocalCluster::daemons() const {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(dir_ + "/run")) {
    const auto name = entry.path().filename().string();
    if (name.ends_with(".pid") && !name.starts_with("zk")) names.push_back(name.substr(0, name.size() - 4));
  }
  std::sort(names.begin(), names.end());
  return names;
}

struct MemoryWatch::Core {
  explicit Core(const LocalCluster& c) : cluster(c), names(c.daemons()) {}
  const LocalCluster& cluster;
  const std::vector<std::string> names;
  std::atomic<bool> stopping{false};
  std::mutex mutex;
  std::map<std::string, double> most;
  std::thread thread;

  void look() {
    for (const auto& name : names) {
      const double now = cluster.rss_anon_mib(name);
      const std::lock_guard lock(mutex);
      most[name] = std::max(most[name], now);
    }
  }
};

MemoryWatch::MemoryWatch(const LocalCluster& cluster) : core_(new Core(cluster)) {
  core_->thread = std::thread([c = core_] {
    while (!c->stopping) {
      c->look();
      ::usleep(50000);
    }
  });
}

MemoryWatch::~MemoryWatch() {
  core_->stopping = true;
  if (core_->thread.joinable()) core_->thread.join();
  delete core_;
}

void MemoryWatch::print(const std::string& what) {
  core_->stopping = true;
  if (core_->thread.joinable()) core_->thread.join();
  std::string line;
  char cell[64];
  for (const auto& [name, mib] : core_->most) {
    std::snprintf(cell, sizeof cell, " %s %.0f", name.c_str(), mib);
    line += cell;
  }
  std::printf("%-44s peak RssAnon in MiB:%s (bar 200)\n", what.c_str(), line.c_str());
}

}  // namespace cantle::bench
