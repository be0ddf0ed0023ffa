#include "msl_tokens.h"

#include <ctype.h>
#include <stdlib.h>

#include <algorithm>

namespace lfmsl {

namespace {

bool starts_word(char c) { return isalpha((unsigned char)c) || c == '_'; }
bool in_word(char c) { return isalnum((unsigned char)c) || c == '_'; }

// number_end returns the position after a number: 1, 0x1p-3f, 1.5e+3.
size_t number_end(const std::string& s, size_t i) {
  for (size_t n = s.size(); i < n; i++) {
    if (in_word(s[i]) || s[i] == '.') continue;
    bool sign = (s[i] == '+' || s[i] == '-') && (s[i - 1] == 'e' || s[i - 1] == 'E' || s[i - 1] == 'p' || s[i - 1] == 'P');
    if (!sign) break;
  }
  return i;
}

size_t quoted_end(const std::string& s, size_t i) {
  char quote = s[i++];
  while (i < s.size() && s[i] != quote) i += s[i] == '\\' ? 2 : 1;
  return std::min(i + 1, s.size());
}

}  // namespace

Text lex(const std::string& s) {
  Text t;
  t.files.push_back("?");
  int file = 0, line = 1;
  size_t i = 0;
  bool first = true;  // of its line
  auto take = [&](Kind kind, size_t end) {
    t.tokens.push_back({kind, s.substr(i, end - i), file, line});
    i = end;
  };
  while (i < s.size()) {
    char c = s[i];
    if (c == '\n') {
      take(Kind::Space, i + 1);
      line++;
      first = true;
    } else if (isspace((unsigned char)c)) {
      size_t end = i;
      while (end < s.size() && s[end] != '\n' && isspace((unsigned char)s[end])) end++;
      take(Kind::Space, end);
    } else if (c == '#' && first) {
      size_t end = std::min(s.find('\n', i), s.size());
      take(Kind::Directive, end);
      // # 12 "file" 1: what the next line is
      const std::string& d = t.tokens.back().text;
      size_t open = d.find('"'), close = d.rfind('"');
      if (d.size() > 2 && isdigit((unsigned char)d[2]) && open != std::string::npos && close > open) {
        std::string name = d.substr(open + 1, close - open - 1);
        auto known = std::find(t.files.begin(), t.files.end(), name);
        file = (int)(known - t.files.begin());
        if (known == t.files.end()) t.files.push_back(name);
        line = atoi(d.c_str() + 2) - 1;
      }
    } else {
      first = false;
      if (starts_word(c)) {
        size_t end = i;
        while (end < s.size() && in_word(s[end])) end++;
        take(Kind::Word, end);
      } else if (isdigit((unsigned char)c)) {
        take(Kind::Number, number_end(s, i + 1));
      } else if (c == '"' || c == '\'') {
        take(Kind::String, quoted_end(s, i));
      } else if (s.compare(i, 2, "::") == 0 || s.compare(i, 2, "->") == 0) {
        take(Kind::Mark, i + 2);
      } else {
        take(Kind::Mark, i + 1);
      }
    }
  }
  return t;
}

std::string Text::at(size_t i) const {
  if (i >= size()) i = size() - 1;
  return files[(size_t)tokens[i].file] + ":" + std::to_string(tokens[i].line);
}

size_t Text::after(size_t i) const {
  for (i++; i < size() && tokens[i].blank(); i++) {
  }
  return i;
}

size_t Text::before(size_t i) const {
  while (i > 0) {
    if (!tokens[--i].blank()) return i;
  }
  return size();
}

size_t Text::closing(size_t i) const {
  int depth = 0;
  for (; i < size(); i++) {
    const Token& t = tokens[i];
    if (t.kind != Kind::Mark) continue;
    if (t.is("(") || t.is("[") || t.is("{")) depth++;
    if ((t.is(")") || t.is("]") || t.is("}")) && --depth == 0) return i;
  }
  return size();
}

size_t Text::angle(size_t i) const {
  int depth = 0;
  for (; i < size(); i++) {
    const Token& t = tokens[i];
    if (t.is("(") || t.is("[")) {
      i = closing(i);
    } else if (t.is("<")) {
      depth++;
    } else if (t.is(">")) {
      if (--depth == 0) return i;
    } else if (t.is(";") || t.is("{") || t.is("}")) {
      break;
    }
  }
  return size();
}

std::string Text::join(size_t i, size_t end) const {
  std::string s;
  for (; i < end && i < size(); i++) s += tokens[i].text;
  return s;
}

}  // namespace lfmsl
