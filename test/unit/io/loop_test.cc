// The loop, its timers, and what comes before what.
#include "lib/io/loop.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <optional>
#include <thread>
#include <vector>

#include "lib/io/signal.h"
#include "lib/io/timer.h"

namespace cantle::io {
namespace {

using namespace std::chrono_literals;

TEST(Loop, runs_until_stopped) {
  Loop loop;
  int turns = 0;
  Timer timer(loop, [&] {
    if (++turns == 3) loop.stop();
  });
  timer.start(1ms, 1ms);
  loop.run();
  EXPECT_EQ(turns, 3);
}

TEST(Loop, a_stop_before_run_ends_it_at_once) {
  Loop loop;
  loop.stop();
  loop.run();
  loop.defer([&] { loop.stop(); });
  loop.run();  // and only once
}

TEST(Loop, run_until_ends_with_the_condition_or_the_deadline) {
  Loop loop;
  bool done = false;
  Timer timer(loop, [&] { done = true; });
  timer.start(2ms);
  EXPECT_TRUE(loop.run_for(5s, [&] { return done; }));
  const auto before = loop.refresh_now();
  EXPECT_FALSE(loop.run_for(20ms, [] { return false; }));
  EXPECT_GE(loop.refresh_now() - before, 20ms);
}

TEST(Loop, a_timer_is_never_early_even_behind_a_slow_callback) {
  Loop loop;
  base::Instant started{}, fired{};
  Timer late(loop, [&] { fired = loop.refresh_now(); });
  loop.defer([&] {
    const auto until = loop.refresh_now() + 20ms;
    while (loop.refresh_now() < until) {
    }
    started = loop.refresh_now();
    late.start(10ms);
  });
  ASSERT_TRUE(loop.run_for(5s, [&] { return fired != base::Instant{}; }));
  EXPECT_GE(fired - started, 10ms);
}

TEST(Loop, a_timer_may_be_restarted_stopped_and_destroyed_in_its_own_function) {
  Loop loop;
  int fired = 0;
  std::optional<Timer> timer;
  timer.emplace(loop, [&] {
    if (++fired < 3)
      timer->start(1ms);
    else
      timer.reset();
  });
  timer->start(1ms);
  EXPECT_TRUE(timer->active());
  ASSERT_TRUE(loop.run_for(5s, [&] { return !timer.has_value(); }));
  EXPECT_EQ(fired, 3);
  Timer stopped(loop, [] { FAIL(); });
  stopped.start(1ms);
  stopped.stop();
  EXPECT_FALSE(stopped.active());
  loop.run_for(10ms, [] { return false; });
}

TEST(Loop, deferred_functions_run_in_order_before_the_loop_waits) {
  Loop loop;
  std::vector<int> order;
  loop.defer([&] {
    order.push_back(1);
    loop.defer([&] { order.push_back(3); });
  });
  loop.defer([&] { order.push_back(2); });
  ASSERT_TRUE(loop.run_for(5s, [&] { return order.size() == 3; }));
  EXPECT_EQ(order, (std::vector{1, 2, 3}));
}

TEST(Loop, functions_that_defer_for_ever_do_not_starve_timers) {
  Loop loop;
  uint64_t deferred = 0;
  std::function<void()> again = [&] {
    ++deferred;
    loop.defer(again);
  };
  loop.defer(again);
  bool fired = false;
  Timer timer(loop, [&] { fired = true; });
  timer.start(5ms);
  EXPECT_TRUE(loop.run_for(5s, [&] { return fired; }));
  EXPECT_GT(deferred, 16u);
}

TEST(Loop, next_turn_lets_the_others_have_theirs) {
  Loop loop;
  int turns = 0;
  bool fired = false;
  std::function<void()> again = [&] {
    ++turns;
    if (!fired) loop.next_turn(again);
  };
  loop.next_turn(again);
  Timer timer(loop, [&] { fired = true; });
  timer.start(5ms);
  EXPECT_TRUE(loop.run_for(5s, [&] { return fired && turns > 1; }));
}

TEST(Loop, posts_from_other_threads_arrive_in_order_and_once) {
  Loop loop;
  constexpr int kThreads = 4, kEach = 20000;
  std::vector<int> last(kThreads, -1);
  int total = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t)
    threads.emplace_back([&, t] {
      for (int i = 0; i < kEach; ++i)
        loop.post([&, t, i] {
          EXPECT_TRUE(loop.in_thread());
          EXPECT_EQ(last[static_cast<size_t>(t)], i - 1);
          last[static_cast<size_t>(t)] = i;
          ++total;
        });
    });
  EXPECT_TRUE(loop.run_for(30s, [&] { return total == kThreads * kEach; }));
  for (auto& thread : threads) thread.join();
}

TEST(Loop, now_stands_still_within_a_phase_and_never_goes_back) {
  Loop loop;
  bool done = false;
  loop.defer([&] {
    const auto first = loop.now();
    const auto until = std::chrono::steady_clock::now() + 3ms;
    while (std::chrono::steady_clock::now() < until) {
    }
    EXPECT_EQ(loop.now(), first);
    EXPECT_GE(loop.refresh_now() - first, 3ms);
    EXPECT_GE(loop.now() - first, 3ms);
    done = true;
  });
  ASSERT_TRUE(loop.run_for(5s, [&] { return done; }));
}

TEST(Loop, a_callback_that_blocks_is_noticed_as_a_gap) {
  Loop loop;
  base::Duration noticed{};
  loop.watch_gaps(40ms, [&](base::Duration gap) { noticed = gap; });
  loop.run_for(100ms, [] { return false; });
  const auto usual = loop.take_longest_gap();
  loop.defer([&] {
    const auto until = loop.refresh_now() + 120ms;
    while (loop.refresh_now() < until) {
    }
  });
  ASSERT_TRUE(loop.run_for(5s, [&] { return noticed > usual && noticed >= 120ms; }));
  EXPECT_GE(loop.longest_gap(), 120ms);
}

TEST(Loop, signals_arrive_on_the_loop) {
  Loop loop;
  int got = 0;
  Signal usr1(loop, SIGUSR1, [&] { ++got; });
  kill(getpid(), SIGUSR1);
  EXPECT_TRUE(loop.run_for(5s, [&] { return got == 1; }));
}

TEST(Loop, what_functions_hold_is_released_with_the_loop) {
  const auto token = std::make_shared<int>(1);
  {
    Loop loop;
    loop.post([token] {});
    loop.defer([token] {});
    loop.next_turn([token] {});
    Timer timer(loop, [token] {});
  }
  EXPECT_EQ(token.use_count(), 1);
}

}  // namespace
}  // namespace cantle::io
