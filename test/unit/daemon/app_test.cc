// Flags, environment, configuration file, and what they end with.
#include "lib/daemon/app.h"

#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <filesystem>
#include <fstream>
#include <optional>

namespace cantle::daemon {
namespace {

using base::Code;

// A daemon with a verb and a flag of its own.
struct Program {
  CLI::App app{"Test."};
  GlobalFlags flags;
  DaemonFlags own;
  uint32_t overlay = 64;
  bool dry = false;
  bool ran = false;

  Program() {
    add_global_flags(app, flags);
    add_daemon_flags(app, own);
    app.add_option("--overlay-mib", overlay, "Overlay")->capture_default_str();
    auto* verb = app.add_subcommand("run", "Run");
    verb->add_flag("--dry-run", dry, "Only say it");
    app.require_subcommand(1);
  }
  int run(std::vector<std::string> arguments, base::Result<int> result = 0) {
    arguments.insert(arguments.begin(), "/usr/sbin/partd");
    std::vector<char*> argv;
    for (auto& a : arguments) argv.push_back(a.data());
    return daemon::run(app, static_cast<int>(argv.size()), argv.data(), flags, [&] {
      ran = true;
      return result;
    });
  }
};

class App : public testing::Test {
 protected:
  App() {
    std::string text = "/tmp/cantle-app-XXXXXX";
    dir = mkdtemp(text.data());
    capture_output(&out);
    for (const char* v : kVariables) unsetenv(v);
    setenv("CANTLE_CONFIG", write("").c_str(), 1);  // not the machine's own
  }
  ~App() override {
    capture_output(nullptr);
    for (const char* v : kVariables) unsetenv(v);
    std::filesystem::remove_all(dir);
  }
  std::string write(const std::string& text) {
    std::ofstream(dir + "/conf") << text;
    return dir + "/conf";
  }
  static constexpr const char* kVariables[] = {"CANTLE_CONFIG",   "CANTLE_CLUSTER", "CANTLE_OVERLAY_MIB",
                                               "CANTLE_DATA_DIR", "CANTLE_LISTEN",  "CANTLE_DRY_RUN",
                                               "CANTLE_JSON"};
  std::string dir, out;
};

TEST_F(App, defaults_flags_and_flags_behind_the_verb) {
  Program p;
  EXPECT_EQ(p.run({"--id", "p1", "run", "--coord", "file:///x", "--json", "--dry-run"}), 0);
  EXPECT_TRUE(p.ran && p.dry);
  EXPECT_EQ(p.own.id, "p1");
  EXPECT_EQ(p.flags.coord, "file:///x");
  EXPECT_EQ(p.flags.cluster, "cantle");
  EXPECT_EQ(p.flags.format, Format::json);
}

TEST_F(App, command_line_beats_environment_beats_file_beats_default) {
  const auto conf = write("cluster = \"file\"\noverlay-mib = 1\ndata-dir = \"/file\"\n");
  setenv("CANTLE_CONFIG", conf.c_str(), 1);
  setenv("CANTLE_CLUSTER", "environment", 1);
  setenv("CANTLE_OVERLAY_MIB", "2", 1);
  Program p;
  EXPECT_EQ(p.run({"run", "--overlay-mib", "3"}), 0);
  EXPECT_EQ(p.overlay, 3u);
  EXPECT_EQ(p.flags.cluster, "environment");
  EXPECT_EQ(p.own.data_dir, "/file");
  EXPECT_EQ(p.own.drain_seconds, 30u);
}

TEST_F(App, the_environment_alone_is_enough) {
  setenv("CANTLE_CLUSTER", "environment", 1);
  setenv("CANTLE_LISTEN", "127.0.0.1:1,127.0.0.1:2", 1);
  setenv("CANTLE_JSON", "1", 1);
  Program p;
  EXPECT_EQ(p.run({"run"}), 0);
  EXPECT_EQ(p.flags.cluster, "environment");
  EXPECT_EQ(p.own.listen, (std::vector<std::string>{"127.0.0.1:1", "127.0.0.1:2"}));
  EXPECT_EQ(p.flags.format, Format::json);
}

TEST_F(App, a_verb_s_own_flags_are_not_in_the_environment) {
  setenv("CANTLE_DRY_RUN", "1", 1);
  Program p;
  EXPECT_EQ(p.run({"run"}), 0);
  EXPECT_FALSE(p.dry);
}

TEST_F(App, sections_are_for_one_program) {
  const auto conf = write("cluster = \"c\"\n[partd]\noverlay-mib = 9\n[mdserver]\nanything = 1\n");
  Program p;
  EXPECT_EQ(p.run({"run", "--config", conf}), 0);
  EXPECT_EQ(p.overlay, 9u);
  EXPECT_EQ(p.flags.config, conf);
}

TEST_F(App, what_nobody_knows_in_the_file_is_a_wrong_configuration) {
  for (const char* text : {"no-such-key = 1\n", "[partd]\nno-such-key = 1\n", "[nobody]\nid = 1\n", "config = \"/x\"\n",
                           "overlay-mib = \"lots\"\n"}) {
    const auto conf = write(text);
    Program p;
    EXPECT_EQ(p.run({"run", "-c", conf}), 78) << text;
    EXPECT_FALSE(p.ran);
  }
}

TEST_F(App, a_missing_file_is_one_only_when_asked_for) {
  {
    Program p;
    EXPECT_EQ(p.run({"run", "--config", dir + "/none"}), 78);
  }
  setenv("CANTLE_CONFIG", (dir + "/none").c_str(), 1);
  Program p;
  EXPECT_EQ(p.run({"run"}), 78);
  EXPECT_FALSE(p.ran);
}

TEST_F(App, wrong_usage_is_64) {
  for (const auto& arguments : std::vector<std::vector<std::string>>{{},
                                                                     {"nonsense"},
                                                                     {"run", "--nonsense"},
                                                                     {"run", "--overlay-mib", "x"},
                                                                     {"run", "-o", "xml"},
                                                                     {"run", "--log-level", "loud"}}) {
    Program p;
    EXPECT_EQ(p.run(arguments), 64) << (arguments.empty() ? "nothing" : arguments.back());
    EXPECT_FALSE(p.ran);
  }
}

TEST_F(App, help_and_version_need_no_good_file) {
  setenv("CANTLE_CONFIG", write("nonsense").c_str(), 1);
  for (const char* flag : {"--help", "--version"}) {
    Program p;
    testing::internal::CaptureStdout();
    EXPECT_EQ(p.run({flag}), 0);
    EXPECT_FALSE(testing::internal::GetCapturedStdout().empty());
    EXPECT_FALSE(p.ran);
  }
}

TEST_F(App, the_body_s_error_becomes_the_exit_status) {
  Program p;
  EXPECT_EQ(p.run({"run"}, base::fail(Code::not_found, "no table orders")), 3);
  Program q;
  EXPECT_EQ(q.run({"run"}, kExitFindings), 2);
}

TEST_F(App, config_says_what_is_in_force_and_whence) {
  const auto conf = write("data-dir = \"/file\"\n");
  setenv("CANTLE_CLUSTER", "environment", 1);
  Program p;
  EXPECT_EQ(p.run({"config", "-c", conf, "--id=p7", "-o", "tsv"}), 0);
  EXPECT_FALSE(p.ran);
  const auto has = [&](const std::string& line) { return ("\n" + out).find("\n" + line + "\n") != std::string::npos; };
  EXPECT_TRUE(has("cluster\tenvironment\tenvironment CANTLE_CLUSTER")) << out;
  EXPECT_TRUE(has("data-dir\t/file\tfile " + conf)) << out;
  EXPECT_TRUE(has("id\tp7\tcommand line")) << out;
  EXPECT_TRUE(has("overlay-mib\t64\tdefault")) << out;
}

TEST_F(App, crash_points_can_be_listed) {
  Program p;
  EXPECT_EQ(p.run({"--list-crash-points"}), 0);
  EXPECT_FALSE(p.ran);
}

TEST_F(App, a_token_is_read_without_its_newline) {
  GlobalFlags flags;
  EXPECT_EQ(*read_token(flags), "");
  flags.token_file = write("s3cret\n");
  EXPECT_EQ(*read_token(flags), "s3cret");
  flags.token_file = write("\n");
  EXPECT_EQ(read_token(flags).error().code, Code::identity);
  flags.token_file = dir + "/none";
  EXPECT_EQ(read_token(flags).error().code, Code::identity);
}

TEST_F(App, coord_is_asked_for_in_words) {
  GlobalFlags flags;
  EXPECT_EQ(need_coord(flags).error().code, Code::usage);
  flags.coord = "file:///x";
  EXPECT_EQ(*need_coord(flags), "file:///x");
}

}  // namespace
}  // namespace cantle::daemon
