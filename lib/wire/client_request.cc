#include "lib/wire/client_request.h"

#include <unordered_set>

#include "lib/model/series.h"
#include "lib/wire/block.h"
#include "lib/wire/msgpack.h"

namespace cantle::wire {

using base::Code;

namespace {

constexpr uint32_t kFieldsMax = 64;
constexpr size_t kRecordExtra = 64;  // what a record has besides key and value, encoded

base::Error wrong(std::string_view field) {
  return {Code::malformed, "field '" + std::string(field.substr(0, 64)) + "' has the wrong type"};
}

// Whether one of the first `count` fields has this name.
bool among_first(std::string_view params, uint32_t count, std::string_view name) {
  Reader in(params);
  uint32_t n = 0;
  std::string_view other, value;
  if (!in.map(&n)) return false;
  for (uint32_t i = 0; i < count; i++) {
    if (!in.text(&other) || !in.skip(&value)) return false;
    if (other == name) return true;
  }
  return false;
}

// Walks the fields of the one map, none of which may stand there twice; `each` says false for a value of the wrong
// type.
template <class Each>
base::Status fields(std::string_view params, Each each) {
  Reader in(params);
  uint32_t n = 0;
  if (params.empty()) return base::ok();
  if (!in.map(&n) || n > kFieldsMax) return base::fail(Code::malformed, "the parameters are not one map of fields");
  uint64_t seen = 0;  // a bit a name; the names there are have bits of their own
  for (uint32_t i = 0; i < n; i++) {
    std::string_view name;
    if (!in.text(&name)) return base::fail(Code::malformed, "a field's name is not text");
    const auto bit = uint64_t{1} << ((name.size() + (name.empty() ? 0 : static_cast<uint8_t>(name.front()))) & 63);
    if ((seen & bit) != 0 && among_first(params, i, name))
      return base::fail(Code::malformed, "field '" + std::string(name.substr(0, 64)) + "' stands there twice");
    seen |= bit;
    if (!each(name, in)) return base::fail(wrong(name));
  }
  return in.done() ? base::ok() : base::fail(Code::malformed, "bytes after the parameters");
}

bool number(Reader& in, uint32_t* out) {
  uint64_t v = 0;
  if (!in.uint(&v) || v > UINT32_MAX) return false;
  *out = static_cast<uint32_t>(v);
  return true;
}

// True when the field was one of these; `ok` says whether it had the right type.
bool common(RequestCommon& c, std::string_view name, Reader& in, bool* ok) {
  switch (name.size()) {
    case 5:
      if (name == "table") return *ok = in.text(&c.table), true;
      if (name == "level") {
        uint32_t v = 0;
        *ok = number(in, &v);
        c.level = v >= 1 && v <= 6 ? static_cast<model::Level>(v) : model::Level{};
        return true;
      }
      return false;
    case 6: return name == "txnseq" ? (*ok = in.uint(&c.txnseq.value), true) : false;
    case 3: return name == "hop" ? (*ok = in.boolean(&c.hop), true) : false;
    case 11: return name == "deadline_ms" ? (*ok = number(in, &c.deadline_ms), true) : false;
    default: return false;
  }
}

base::Status check_common(const RequestCommon& c) {
  if (c.level == model::Level{})
    return base::fail(Code::invalid,
                      "level is 1 (one), 2 (majority) or 3 (all); of a read 4 (linearizable), 5 (session) or 6 (any)");
  return base::ok();
}

// The same for the fields that say which of its client's writes it is.
bool series(WriteRequest& r, std::string_view name, Reader& in, bool* ok) {
  uint64_t* to = name == "client"       ? &r.client
                 : name == "series"     ? &r.series
                 : name == "series_low" ? &r.series_low
                 : name == "age_ms"     ? &r.age_ms
                                        : nullptr;
  if (to == nullptr) return false;
  *ok = in.nil() || in.uint(to);
  return true;
}

base::Status check_series(const WriteRequest& r) {
  if ((r.client == 0) != (r.series == 0)) return base::fail(Code::invalid, "client and series go together");
  if (r.series_low == 0) return base::ok();
  if (r.series_low > r.series) return base::fail(Code::invalid, "series_low is above the series itself");
  if (r.series - r.series_low >= model::kSeriesWindow)
    return base::fail(Code::invalid, "series_low is more than " + std::to_string(model::kSeriesWindow - 1) +
                                         " below the series: answers still waited for would be forgotten");
  return base::ok();
}

bool version(std::optional<model::Version>& out, Reader& in, base::Status& status) {
  if (in.nil()) return true;
  std::string_view raw;
  if (!in.text(&raw)) return false;
  auto v = model::Version::from_bytes(raw);
  if (v)
    out = *v;
  else
    status = base::fail(std::move(v).error());
  return true;
}

base::Status check_op(const WriteOp& op) {
  TRY(check_key(op.key));
  if (op.op != model::Op::put && op.op != model::Op::del)
    return base::fail(Code::invalid, "op is 1 (put) or 2 (delete)");
  if (op.op == model::Op::del && !op.value.empty()) return base::fail(Code::invalid, "a delete has no value");
  if (op.value.size() > model::kValueMax)
    return base::fail(Code::too_large, "a value of " + std::to_string(op.value.size()) + " bytes; the limit is " +
                                           std::to_string(model::kValueMax));
  return base::ok();
}

base::Status finish(WriteRequest& r, base::Status& status) {
  TRY(status);
  TRY(check_common(r));
  if (!model::is_push_level(r.level))
    return base::fail(Code::invalid, "level " + std::string(to_string(r.level)) + " is for reads");
  TRY(check_series(r));
  for (const auto& op : r.ops) {
    TRY(check_op(op));
    r.keys.push_back(op.key);
    r.bytes += op.key.size() + op.value.size() + kRecordExtra;
  }
  if (r.bytes > model::kBatchBytesMax)
    return base::fail(Code::too_large, "a write of " + std::to_string(r.bytes) + " bytes; the limit is " +
                                           std::to_string(model::kBatchBytesMax));
  return base::ok();
}

base::Result<WriteRequest> decode_one(std::string_view params, model::Op op) {
  WriteRequest r;
  r.level = model::Level::majority;
  r.params = params;
  WriteOp one{op, {}, {}};
  base::Status status = base::ok();
  TRY(fields(params, [&](std::string_view name, Reader& in) {
    bool ok = true;
    if (name == "key") return in.text(&one.key);
    if (name == "value" && op == model::Op::put) return in.text(&one.value);
    if (common(r, name, in, &ok) || series(r, name, in, &ok)) return ok;
    if (name == "version") return version(r.version, in, status);
    if (name == "after") return version(r.after, in, status);
    return in.skip();
  }));
  r.ops.push_back(one);
  TRY(finish(r, status));
  return r;
}

bool decode_expect(ExpectView& expect, Reader& in, base::Status& status) {
  uint32_t n = 0;
  if (!in.map(&n) || n > kFieldsMax) return false;
  uint32_t seen = 0;  // a bit a name
  const auto first = [&seen](uint32_t bit) { return (seen & bit) == 0 && (seen |= bit) != 0; };
  for (uint32_t i = 0; i < n; i++) {
    std::string_view name;
    bool ok = false;
    if (!in.text(&name)) return false;
    if (name == "version")
      ok = first(1) && version(expect.version, in, status);
    else if (name == "value")
      ok = first(2) && (in.nil() || in.text(&expect.value.emplace()));
    else if (name == "absent")
      ok = first(4) && in.boolean(&expect.absent);
    else
      ok = in.skip();
    if (!ok) return false;
  }
  return true;
}

base::Status check_expect(const ExpectView& e) {
  if ((e.version ? 1 : 0) + (e.value ? 1 : 0) + (e.absent ? 1 : 0) != 1)
    return base::fail(Code::invalid, "expect has exactly one of version, value and absent");
  if (e.value && e.value->size() > model::kValueMax)
    return base::fail(Code::too_large, "an expected value of " + std::to_string(e.value->size()) +
                                           " bytes; the limit is " + std::to_string(model::kValueMax));
  return base::ok();
}

// A request of one key that is judged against what the key holds. `own` is for its own fields.
template <class Own>
base::Result<WriteRequest> decode_judged(std::string_view params, WriteKind kind, Own own) {
  WriteRequest r;
  r.kind = kind;
  r.level = model::Level::majority;
  r.params = params;
  WriteOp one;
  base::Status status = base::ok();
  TRY(fields(params, [&](std::string_view name, Reader& in) {
    bool ok = true;
    if (name == "key") return in.text(&one.key);
    if (common(r, name, in, &ok) || series(r, name, in, &ok) || own(r, one, name, in, status, &ok)) return ok;
    return in.skip();
  }));
  r.ops.push_back(one);
  TRY(finish(r, status));
  if (kind == WriteKind::cas) TRY(check_expect(r.expect));
  return r;
}

bool decode_op(WriteOp& op, Reader& in) {
  uint32_t n = 0;
  if (!in.map(&n) || n > kFieldsMax) return false;
  for (uint32_t i = 0; i < n; i++) {
    std::string_view name;
    if (!in.text(&name)) return false;
    uint32_t v = 0;
    bool ok = true;
    if (name == "op") {
      ok = number(in, &v);
      op.op = v <= UINT8_MAX ? static_cast<model::Op>(v) : model::Op{};
    } else if (name == "key") {
      ok = in.text(&op.key);
    } else if (name == "value") {
      ok = in.text(&op.value);
    } else {
      ok = in.skip();
    }
    if (!ok) return false;
  }
  return true;
}

bool decode_ops(WriteRequest& r, Reader& in, base::Status& status) {
  uint32_t n = 0;
  if (!in.array(&n)) return false;
  if (n > model::kBatchRecordsMax) {
    status = base::fail(Code::too_large, "a batch of " + std::to_string(n) + " records; the limit is " +
                                             std::to_string(model::kBatchRecordsMax));
    return true;
  }
  for (uint32_t i = 0; i < n; i++) {
    WriteOp op;
    if (!decode_op(op, in)) return false;
    r.ops.push_back(op);
  }
  return true;
}

}  // namespace

base::Status check_key(std::string_view key) {
  if (key.empty()) return base::fail(Code::invalid, "an empty key");
  if (key.size() > model::kKeyMax)
    return base::fail(Code::too_large, "a key of " + std::to_string(key.size()) + " bytes; the limit is " +
                                           std::to_string(model::kKeyMax));
  return base::ok();
}

base::Result<GetView> decode_get(std::string_view params) {
  GetView r;
  TRY(fields(params, [&](std::string_view name, Reader& in) {
    bool ok = true;
    if (name == "key") return in.text(&r.key);
    if (common(r, name, in, &ok)) return ok;
    if (name == "session") return in.nil() || in.uint(&r.session);
    return in.skip();
  }));
  TRY(check_common(r));
  TRY(check_key(r.key));
  return r;
}

base::Result<WriteRequest> decode_put(std::string_view params) { return decode_one(params, model::Op::put); }
base::Result<WriteRequest> decode_delete(std::string_view params) { return decode_one(params, model::Op::del); }

base::Result<WriteRequest> decode_batch(std::string_view params) {
  WriteRequest r;
  r.level = model::Level::majority;
  r.params = params;
  base::Status status = base::ok();
  bool too_many = false;
  auto walked = fields(params, [&](std::string_view name, Reader& in) {
    bool ok = true;
    if (name == "ops") {
      ok = decode_ops(r, in, status);
      too_many = !status;
      return ok && !too_many;
    }
    if (common(r, name, in, &ok) || series(r, name, in, &ok)) return ok;
    if (name == "version") return version(r.version, in, status);
    if (name == "after") return version(r.after, in, status);
    return in.skip();
  });
  if (too_many) return base::fail(std::move(status).error());
  TRY(walked);
  if (r.ops.empty()) return base::fail(Code::invalid, "an empty batch");
  TRY(finish(r, status));
  std::unordered_set<std::string_view> seen;
  for (const auto& key : r.keys)
    if (!seen.insert(key).second) return base::fail(Code::invalid, "a batch names a key twice");
  return r;
}

base::Result<WriteRequest> decode_cas(std::string_view params) {
  return decode_judged(
      params, WriteKind::cas,
      [](WriteRequest& r, WriteOp& op, std::string_view name, Reader& in, base::Status& status, bool* ok) {
        if (name == "value") return *ok = in.text(&op.value), true;
        if (name == "expect") return *ok = decode_expect(r.expect, in, status), true;
        if (name != "op") return false;
        uint32_t v = 0;
        *ok = number(in, &v);
        op.op = v <= UINT8_MAX ? static_cast<model::Op>(v) : model::Op{};
        return true;
      });
}

base::Result<WriteRequest> decode_append(std::string_view params) {
  return decode_judged(params, WriteKind::append,
                       [](WriteRequest&, WriteOp& op, std::string_view name, Reader& in, base::Status&, bool* ok) {
                         return name == "value" ? (*ok = in.text(&op.value), true) : false;
                       });
}

base::Result<WriteRequest> decode_incr(std::string_view params) {
  return decode_judged(params, WriteKind::incr,
                       [](WriteRequest& r, WriteOp&, std::string_view name, Reader& in, base::Status&, bool* ok) {
                         return name == "by" ? (*ok = in.sint(&r.by), true) : false;
                       });
}

std::string pass_on(std::string_view params, model::TxnSeq txnseq) {
  std::string out, kept;
  Reader in(params);
  Writer keep(kept);
  uint32_t n = 0, fields = 0;
  if (!in.map(&n)) n = 0;
  for (uint32_t i = 0; i < n; i++) {
    std::string_view name, value;
    if (!in.text(&name) || !in.skip(&value)) break;
    if (name == "hop" || name == "txnseq") continue;
    keep.str(name);
    keep.raw(value);
    fields++;
  }
  Writer w(out);
  w.map(fields + 2);
  w.str("hop");
  w.boolean(false);
  w.str("txnseq");
  w.uint(txnseq.value);
  w.raw(kept);
  return out;
}

}  // namespace cantle::wire
