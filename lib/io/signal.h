// Signal: calls a function on the loop when the process gets a signal.
//
//   io::Signal term(loop, SIGTERM, [&] { drain(); });
//
// Ownership: as Timer.
#pragma once

#include <functional>

namespace cantle::io {

class Loop;

class Signal {
 public:
  Signal(Loop& loop, int number, std::function<void()> fn);
  ~Signal();
  Signal(const Signal&) = delete;
  Signal& operator=(const Signal&) = delete;

 private:
  struct State;
  State* state_;
};

}  // namespace cantle::io
