// What operations are called, and how they read.
#include <array>

#include "lib/base/bytes.h"
#include "lib/model/operation.h"

namespace cantle::model {
namespace {

constexpr std::array<std::string_view, std::variant_size_v<Operation>> kNames = {
    "CREATE_TABLE", "DROP_TABLE", "SET_OPTION",     "SPLIT",         "INITIALIZE",  "FINALIZE_SPLIT",
    "ABORT_SPLIT",  "REPLACE",    "MARK_AVAILABLE", "FINALIZE_MOVE", "CANCEL_MOVE", "REMOVE_DEAD",
    "SWEEP_ENDED",  "MERGE",      "FINALIZE_MERGE", "ABORT_MERGE"};

template <class T>
concept HasFields = requires(const T& t) {
  t.each_field([](auto&&...) {});
};

class Printer {
 public:
  explicit Printer(std::string* out) : out_(out) {}
  void operator()(const char* name, const auto& value) {
    *out_ += ' ';
    *out_ += name;
    *out_ += '=';
    print(value);
  }

 private:
  template <class Tag>
  void print(const Id128<Tag>& id) {
    *out_ += to_string(id);
  }
  template <class Tag, class Int>
  void print(const Number<Tag, Int>& n) {
    *out_ += to_string(n);
  }
  void print(const std::string& bytes) { *out_ += base::escape(bytes); }
  void print(const ServerId& id) { *out_ += id.name; }
  void print(bool b) { *out_ += b ? "yes" : "no"; }
  void print(uint32_t n) { *out_ += std::to_string(n); }
  void print(int32_t n) { *out_ += std::to_string(n); }
  void print(Keyspace k) { *out_ += k == Keyspace::hash ? "hash" : "range"; }
  void print(Replication r) { *out_ += r == Replication::quorum ? "quorum" : "push"; }
  void print(const Interval& i) { *out_ += to_string(i); }
  template <class T>
  void print(const std::optional<T>& o) {
    if (o) print(*o);
  }
  template <class T>
  void print(const std::vector<T>& list) {
    *out_ += '[';
    for (size_t i = 0; i < list.size(); i++) {
      if (i != 0) *out_ += ' ';
      print(list[i]);
    }
    *out_ += ']';
  }
  void print(const std::map<std::string, std::string>& map) {
    *out_ += '{';
    for (const auto& [k, v] : map) *out_ += k + ":" + base::escape(v) + " ";
    *out_ += '}';
  }
  void print(const NewAssignment& a) { *out_ += a.server.name + "/" + to_string(a.id); }
  template <HasFields T>
  void print(const T& t) {
    *out_ += '(';
    t.each_field(*this);
    *out_ += " )";
  }

  std::string* out_;
};

}  // namespace

std::string_view operation_name(const Operation& operation) { return kNames[operation.index()]; }

std::string to_string(const Operation& operation) {
  std::string out(operation_name(operation));
  std::visit([&](const auto& op) { op.each_field(Printer(&out)); }, operation);
  return out;
}

}  // namespace cantle::model
