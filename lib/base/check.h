// CHECK: a bug is not an error. It stays on in production, logs and aborts.
#pragma once

namespace cantle::base {
[[noreturn]] void check_failed(const char* what, const char* file, int line);
}

#define CHECK(cond)                                            \
  do {                                                         \
    if (!(cond)) [[unlikely]]                                  \
      ::cantle::base::check_failed(#cond, __FILE__, __LINE__); \
  } while (0)
