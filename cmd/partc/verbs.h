// The verbs of partc: each takes its flags, prints its answer on stdout and returns the exit status.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cmd/partc/tool.h"

namespace cantle::partc {

// --- records.cc
struct GetFlags : CommonFlags {
  std::vector<std::string> keys;
  bool raw = false;    // the value and nothing behind it
  std::string direct;  // a data directory of this host
};
base::Result<int> get(Tool& tool, const GetFlags& flags);

struct PutFlags : CommonFlags {
  std::string key, value;
};
base::Result<int> put(Tool& tool, const PutFlags& flags);

struct DeleteFlags : CommonFlags {
  std::vector<std::string> keys;
};
base::Result<int> remove(Tool& tool, const DeleteFlags& flags);

struct BatchFlags : CommonFlags {
  std::string file = "-", format = "jsonl";
};
base::Result<int> batch(Tool& tool, const BatchFlags& flags);

// --- update.cc: quorum tables only
struct CasFlags : CommonFlags {
  std::string key, value, expect_value, expect_version;
  bool has_value = false, has_expect_value = false, expect_absent = false, remove = false;
};
base::Result<int> cas(Tool& tool, const CasFlags& flags);

struct AppendFlags : CommonFlags {
  std::string key, value;
};
base::Result<int> append(Tool& tool, const AppendFlags& flags);

struct IncrFlags : CommonFlags {
  std::string key;
  int64_t by = 1;
};
base::Result<int> incr(Tool& tool, const IncrFlags& flags);

// --- scan.cc
struct ScanFlags : CommonFlags {
  std::string begin, end, prefix, direct;
  bool reverse = false, keys_only = false, consistent = false;
  uint64_t limit = 0;
};
base::Result<int> scan(Tool& tool, const ScanFlags& flags);

struct DumpFlags : ScanFlags {
  std::string file = "-", format = "jsonl";
  bool progress = false;
};
base::Result<int> dump(Tool& tool, const DumpFlags& flags);

// --- load.cc
struct LoadFlags : CommonFlags {
  std::string file = "-", format = "jsonl", key_field, gap_log;
  double rate = 0;
  uint64_t window = 2048, batch = 64;
  uint64_t show_rejected = 20;
  bool progress = false, keep_going = false;
};
base::Result<int> load(Tool& tool, const LoadFlags& flags);

// --- verify.cc
struct VerifyFlags : CommonFlags {
  std::string against, format = "jsonl", key_field;
  uint64_t show_differences = 20;
  bool progress = false;
};
base::Result<int> verify(Tool& tool, const VerifyFlags& flags);
base::Result<int> hash(Tool& tool, const CommonFlags& flags);

// --- cluster.cc
struct RouteFlags : CommonFlags {
  std::string key;
};
base::Result<int> route(Tool& tool, const RouteFlags& flags);

struct StatusFlags : CommonFlags {
  std::string at, server, wait = "0s";
  bool ready = false;
};
base::Result<int> status(Tool& tool, const StatusFlags& flags);

// --- bench.cc
struct BenchFlags : CommonFlags {
  std::string workload;
  uint64_t connections = 1, in_flight = 1, records = 100000, count = 0;
  uint64_t key_size = 16, value_size = 100, seed = 1;
  double read_share = 0.5, rate = 0;
  std::string duration = "10s", direct, history, gap_log;
  bool keep_going = false;
};
base::Result<int> bench(Tool& tool, const BenchFlags& flags);

}  // namespace cantle::partc
