// Tool: what partc's verbs stand on: a loop, the coordination service, the client; built when first needed.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lib/base/result.h"
#include "lib/client/client.h"
#include "lib/client/format.h"
#include "lib/daemon/app.h"

namespace cantle::partc {

// A little longer than the request itself may take: its own deadline gives the better answer.
constexpr base::Duration kSlack = std::chrono::seconds(5);

// Flags that many verbs have.
struct CommonFlags {
  std::string table;
  std::string level = "majority";
  std::string timeout = "10s";
  bool hex = false;  // keys on the command line are hexadecimal
};

class Tool {
 public:
  explicit Tool(const daemon::GlobalFlags& flags);
  ~Tool();
  Tool(const Tool&) = delete;
  Tool& operator=(const Tool&) = delete;

  const daemon::GlobalFlags& flags() const { return flags_; }
  io::Loop& loop();
  // Connects to the coordination service and learns the cluster; `retry` counts for the first call.
  base::Result<client::Client*> client(const client::RetryOptions& retry = {});
  // Several of them, each with connections of its own.
  base::Result<std::unique_ptr<client::Client>> another_client(const client::RetryOptions& retry);
  // The partition servers that ever arrived and were not declared dead, whether they live or not.
  base::Result<std::vector<model::ServerId>> partition_servers();
  base::Result<client::MapPtr> map(const std::string& table, base::Duration timeout);

 private:
  struct Parts;
  base::Status connect();
  const daemon::GlobalFlags& flags_;
  std::unique_ptr<Parts> parts_;
};

base::Result<model::Level> parse_level(const std::string& word);
// A key from the command line: %XX stands for a byte, or with `hex` two digits for each.
base::Result<std::string> parse_key(const std::string& text, bool hex);
base::Result<std::string> parse_value(const std::string& text);  // as it is; "-": all of stdin
base::Result<std::string> read_all_of_stdin(size_t limit);       // too_large: over the limit
base::Result<std::string> read_file(const std::string& path, size_t limit);
// " as tsv; is this jsonl or deb822?": behind what says that nothing could be read.
std::string another_format(client::Format format);
// "12.3 MB", "1.2 s": for people.
std::string size_text(double bytes);
std::string duration_text(base::Duration d);

}  // namespace cantle::partc
