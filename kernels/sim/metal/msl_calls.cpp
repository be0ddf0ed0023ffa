#include "msl_calls.h"

#include <string>
#include <vector>

namespace lfmsl {

namespace {

struct Function {
  std::string name;
  size_t begin;  // of its definition, behind template<…> and attributes
  std::set<std::string> words;
  bool meets = false;
};

// definition_begin searches backwards from the name of a function for the start of its definition.
size_t definition_begin(const Text& t, size_t name) {
  size_t begin = name;
  for (size_t i = t.before(name); i < t.size(); i = t.before(i)) {
    if (t.is(i, ";") || t.is(i, "{") || t.is(i, "}") || t.is(i, ":")) break;
    begin = i;
  }
  while (t.is(begin, "template")) begin = t.after(t.angle(t.after(begin)));
  while (t.is(begin, "[")) begin = t.after(t.closing(begin));
  return begin;
}

std::vector<Function> functions(const Text& t) {
  std::vector<Function> found;
  for (size_t i = 0; i < t.size(); i++) {
    if (!t.is(i, "(")) continue;
    size_t name = t.before(i), close = t.closing(i), body = t.after(close);
    if (t.is(body, "const")) body = t.after(body);
    if (name == t.size() || t[name].kind != Kind::Word || !t.is(body, "{")) {
      i = close;
      continue;
    }
    Function f{t[name].text, definition_begin(t, name), {}};
    size_t end = t.closing(body);
    for (size_t j = body; j < end && j < t.size(); j++) {
      if (t[j].kind == Kind::Word) f.words.insert(t[j].text);
    }
    found.push_back(f);
    i = end;
  }
  return found;
}

}  // namespace

std::set<size_t> meeting_functions(const Text& t) {
  std::vector<Function> all = functions(t);
  std::set<std::string> meeting = {"threadgroup_barrier", "simdgroup_barrier", "simdgroup_multiply", "simdgroup_multiply_accumulate"};
  auto meets = [&](const std::string& word) { return meeting.count(word) || word.compare(0, 5, "simd_") == 0; };
  for (bool more = true; more;) {
    more = false;
    for (Function& f : all) {
      if (f.meets) continue;
      for (const std::string& w : f.words) f.meets |= meets(w);
      if (!f.meets) continue;
      meeting.insert(f.name);
      more = true;
    }
  }
  std::set<size_t> places;
  for (const Function& f : all) {
    if (f.meets && !t.is(f.begin, "kernel")) places.insert(f.begin);
  }
  return places;
}

}  // namespace lfmsl
