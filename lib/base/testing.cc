#include "lib/base/testing.h"

#ifdef CANTLE_TESTING
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <string>

// Made by the linker around the section that CRASH_POINT fills.
extern "C" {
extern const char __start_cantle_crash[] __attribute__((weak));
extern const char __stop_cantle_crash[] __attribute__((weak));
}

namespace cantle::base {
namespace {

struct Armed {
  std::string name;
  std::atomic<long> left{0};
  Armed() {
    const char* env = std::getenv("CANTLE_CRASH_AT");
    if (env == nullptr) return;
    const std::string_view spec = env;
    const auto colon = spec.rfind(':');
    name = spec.substr(0, colon);
    left = colon == std::string_view::npos ? 1 : std::atol(spec.data() + colon + 1);
  }
};

Armed& armed() {
  static Armed a;
  return a;
}

std::string& current_mutant() {
  static std::string name = [] {
    const char* env = std::getenv("CANTLE_MUTANT");
    return std::string(env == nullptr ? "" : env);
  }();
  return name;
}

}  // namespace

void crash_point_reached(const char* name) {
  auto& a = armed();
  if (a.name.empty() || a.name != name) return;
  if (--a.left == 0) {
    ::kill(::getpid(), SIGKILL);
    for (;;) ::pause();
  }
}

bool mutant_on(std::string_view name) { return current_mutant() == name; }
void set_mutant(std::string_view name) { current_mutant() = name; }

std::vector<std::string_view> crash_points() {
  std::vector<std::string_view> names;
  for (const char* p = __start_cantle_crash; p != __stop_cantle_crash; p += names.back().size() + 1)
    names.emplace_back(p);
  std::sort(names.begin(), names.end());
  names.erase(std::unique(names.begin(), names.end()), names.end());
  return names;
}

}  // namespace cantle::base
#else
namespace cantle::base {
std::vector<std::string_view> crash_points() { return {}; }
}  // namespace cantle::base
#endif
