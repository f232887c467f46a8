// CANTLE_FIELDS: names a struct's fields once, for the codecs.
//
//   struct Ping { Epoch epoch; std::string text; CANTLE_FIELDS(epoch, text) };
//
// gives the struct a member template each_field(visitor) that calls visitor("epoch", epoch) and so
// on, in that order. lib/wire/codec.h turns such structs into MessagePack maps and back: unknown
// fields are ignored and counted, missing ones keep their default. Up to 32 fields.
#pragma once

#define CANTLE_PARENS_ ()
#define CANTLE_EXPAND_(...) CANTLE_EXPAND4_(CANTLE_EXPAND4_(CANTLE_EXPAND4_(__VA_ARGS__)))
#define CANTLE_EXPAND4_(...) CANTLE_EXPAND3_(CANTLE_EXPAND3_(CANTLE_EXPAND3_(__VA_ARGS__)))
#define CANTLE_EXPAND3_(...) CANTLE_EXPAND2_(CANTLE_EXPAND2_(CANTLE_EXPAND2_(__VA_ARGS__)))
#define CANTLE_EXPAND2_(...) __VA_ARGS__
#define CANTLE_EACH_(visitor, field, ...) \
  visitor(#field, field);                 \
  __VA_OPT__(CANTLE_EACH_AGAIN_ CANTLE_PARENS_(visitor, __VA_ARGS__))
#define CANTLE_EACH_AGAIN_() CANTLE_EACH_

#define CANTLE_FIELDS(...)                                         \
  template <class Visitor>                                         \
  void each_field(Visitor&& visitor) {                             \
    __VA_OPT__(CANTLE_EXPAND_(CANTLE_EACH_(visitor, __VA_ARGS__))) \
  }                                                                \
  template <class Visitor>                                         \
  void each_field(Visitor&& visitor) const {                       \
    __VA_OPT__(CANTLE_EXPAND_(CANTLE_EACH_(visitor, __VA_ARGS__))) \
  }
