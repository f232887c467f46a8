#include "lib/coord/zk_hosts.h"

#include <gtest/gtest.h>

#include "lib/io/loop.h"

namespace cantle::coord::zk {
namespace {

using namespace std::chrono_literals;
using Servers = std::vector<std::pair<std::string, std::string>>;

TEST(ZkHosts, targets) {
  EXPECT_EQ(parse_target("h1:1,h2:2,h3").value().servers, (Servers{{"h1", "1"}, {"h2", "2"}, {"h3", "2181"}}));
  EXPECT_EQ(parse_target("h/a/b").value().chroot, "/a/b");
  EXPECT_EQ(parse_target("h/").value().chroot, "");
  EXPECT_EQ(parse_target("[::1]:7,[fe80::1]").value().servers, (Servers{{"::1", "7"}, {"fe80::1", "2181"}}));
  for (const char* bad : {"", ":1", "h:", "h:0", "h:70000", "h:x", "h,", "h/a//b", "h/a/", "[::1"})
    EXPECT_FALSE(parse_target(bad)) << bad;
}

// ZOOKEEPER-2466
TEST(ZkHosts, a_list_is_always_odd_and_names_nobody_it_should_not) {
  EXPECT_EQ(odd_list({"a:1"}), "a:1");
  EXPECT_EQ(odd_list({"a:1", "b:1"}), "a:1,b:1,a:1");
  EXPECT_EQ(odd_list({"a:1", "b:1", "a:1"}), "a:1,b:1,a:1");
  EXPECT_EQ(odd_list({"a:1", "b:1", "c:1"}), "a:1,b:1,c:1");
  EXPECT_EQ(odd_list({"a:1", "b:1", "c:1", "d:1"}), "a:1,b:1,c:1,d:1,a:1");
}

TEST(ZkHosts, numbers_are_taken_as_they_are_and_names_looked_up) {
  io::Loop loop;
  std::vector<base::Result<std::string>> answers;
  const auto take = [&](base::Result<std::string> r) { answers.push_back(std::move(r)); };
  const auto a = resolve(loop, parse_target("127.0.0.1:1,[::1]:2").value(), take);
  EXPECT_TRUE(answers.empty());  // never from inside the call
  ASSERT_TRUE(loop.run_for(5s, [&] { return answers.size() == 1; }));
  EXPECT_EQ(answers[0].value(), "127.0.0.1:1,::1:2,127.0.0.1:1");
  const auto b = resolve(loop, parse_target("localhost:3").value(), take);
  ASSERT_TRUE(loop.run_for(5s, [&] { return answers.size() == 2; }));
  EXPECT_NE(answers[1].value().find(":3"), std::string::npos);
  const auto c = resolve(loop, parse_target("no-such-host.invalid:3").value(), take);
  ASSERT_TRUE(loop.run_for(20s, [&] { return answers.size() == 3; }));
  EXPECT_EQ(answers[2].error().code, base::Code::unavailable);
}

TEST(ZkHosts, a_dropped_resolution_says_nothing) {
  io::Loop loop;
  int calls = 0;
  resolve(loop, parse_target("127.0.0.1:1,localhost:2").value(), [&](auto) { calls++; }).reset();
  loop.run_for(50ms, [] { return false; });
  EXPECT_EQ(calls, 0);
}

}  // namespace
}  // namespace cantle::coord::zk
