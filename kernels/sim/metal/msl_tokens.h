// The words of a shader's text after the preprocessor, with their places.
#pragma once
#include <string>
#include <vector>

namespace lfmsl {

enum class Kind { Space, Directive, Word, Number, String, Mark };

struct Token {
  Kind kind;
  std::string text;
  int file, line;  // of Text::files

  bool is(const char* s) const { return kind != Kind::String && text == s; }
  bool blank() const { return kind == Kind::Space || kind == Kind::Directive; }
};

struct Text {
  std::vector<Token> tokens;
  std::vector<std::string> files;

  // at returns "file:line" of a token.
  std::string at(size_t i) const;

  // after and before return the position of the next word after or before i that is not
  // blank; size() if there is none.
  size_t after(size_t i) const;
  size_t before(size_t i) const;

  // closing returns the position of the bracket that closes the one at i, or size().
  size_t closing(size_t i) const;
  // angle is the same for "<" of template arguments.
  size_t angle(size_t i) const;

  size_t size() const { return tokens.size(); }
  const Token& operator[](size_t i) const { return tokens[i]; }
  bool is(size_t i, const char* s) const { return i < size() && tokens[i].is(s); }

  // join returns the text from i up to end.
  std::string join(size_t i, size_t end) const;
};

Text lex(const std::string& preprocessed);

}  // namespace lfmsl
